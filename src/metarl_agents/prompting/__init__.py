"""The page: what the model reads. Pure text; no tokenizer.

Read first: `messages.py` (the prompts), then `memory.py` (what an episode may read about those before it).
"""

from metarl_agents.prompting.memory import memory_text
from metarl_agents.prompting.messages import Page, play_messages, reflect_messages

__all__ = ["Page", "memory_text", "play_messages", "reflect_messages"]
