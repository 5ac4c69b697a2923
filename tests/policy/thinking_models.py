"""Small tokenizers with templates built like those of families that think, and a policy that writes what it is told.

The families differ in who opens a thought, how it is marked, and which token ends an answer rather than a thought.
"""

import torch
from small_chat_models import QWEN3_TEMPLATE, Family, small_tokenizer

from metarl_agents.policy.policy import Policy
from metarl_agents.policy.tiny import build_model

CHATML = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
ASKS = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
OPENS = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}"
DEEPSEEK = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '<｜User｜>' + m.content }}{% else %}"
    "{{ '<｜Assistant｜>' + m.content.split('</think>')[-1] + eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<｜Assistant｜><think>\n' }}{% endif %}"
)
HARMONY = (
    "{{ '<|start|>system<|message|>You are a player. Valid channels: analysis, final.<|end|>' }}"
    "{% for m in messages %}{% if m.role == 'assistant' %}{% if loop.last and m.thinking is defined %}"
    "{{ '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' }}{% endif %}"
    "{{ '<|start|>assistant<|channel|>final<|message|>' + m.content }}"
    "{{ '<|return|>' if loop.last and not add_generation_prompt else '<|end|>' }}"
    "{% else %}{{ '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}"
)
SMOLLM3 = (
    "{{ '<|im_start|>system\nReasoning: ' + ('on' if enable_thinking else 'off') + '<|im_end|>\n' }}"
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' %}"
    "{{ ('' if enable_thinking else '<think>\n\n</think>\n') + m.content.lstrip('\n') }}{% else %}{{ m.content }}"
    "{% endif %}{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{{ '' if enable_thinking else '<think>\n\n</think>\n' }}{% endif %}"
)
BRACKETS = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST]' + m.content + '[/INST]' }}{% else %}"
    "{% if m.reasoning_content is defined %}{{ '[THINK]' + m.reasoning_content + '[/THINK]' }}{% endif %}"
    "{{ m.content + eos_token }}{% endif %}{% endfor %}"
)
INNER = (
    "{% for m in messages %}{{ '<|' + m.role + '_start|>' }}{% if m.reasoning_content is defined %}"
    "{{ '<|inner_prefix|>' + m.reasoning_content + '<|inner_suffix|>' }}{% endif %}"
    "{{ m.content + '<|' + m.role + '_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant_start|>' }}{% endif %}"
)
CHATML_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
THINK = ("<think>", "</think>")


def family(template, special, end, begin=None):
    return Family("qwen3", template, special, end=end, pad=None, begin=begin, puts_begin=False, ends=(end,))


CHANNELS = ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|return|>", "<|call|>", "<|endoftext|>")
ANALYSIS = "<|channel|>analysis<|message|>"
FINAL = "<|end|><|start|>assistant<|channel|>final<|message|>"
DEEPSEEK_TOKENS = ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>")
THINKERS = {
    # name: (family, what the model writes before a thought, between a thought and what it says)
    "qwen3": (family(QWEN3_TEMPLATE, CHATML_TOKENS, "<|im_end|>"), "<think>\n", "\n</think>\n\n"),
    "qwen3 registered": (family(QWEN3_TEMPLATE, CHATML_TOKENS + THINK, "<|im_end|>"), "<think>\n", "\n</think>\n\n"),
    "qwen3 thinking": (family(CHATML + OPENS, CHATML_TOKENS, "<|im_end|>"), "", "\n</think>\n\n"),
    "qwen3 thinking registered": (family(CHATML + OPENS, CHATML_TOKENS + THINK, "<|im_end|>"), "", "\n</think>\n\n"),
    "deepseek": (family(DEEPSEEK, DEEPSEEK_TOKENS, DEEPSEEK_TOKENS[1], DEEPSEEK_TOKENS[0]), "", "\n</think>\n\n"),
    "gpt-oss": (family(HARMONY, CHANNELS, "<|return|>"), ANALYSIS, FINAL),
    "smollm3": (family(SMOLLM3, CHATML_TOKENS, "<|im_end|>"), "<think>\n", "\n</think>\n"),
    "thinking tags": (family(CHATML + ASKS, CHATML_TOKENS, "<|im_end|>"), "<Thinking>", "</Thinking>"),
    "brackets": (
        family(BRACKETS, ("<s>", "</s>", "[INST]", "[/INST]", "[THINK]", "[/THINK]"), "</s>", "<s>"),
        "[THINK]",
        "[/THINK]",
    ),
    "marks of its own": (
        family(
            INNER,
            ("<|user_start|>", "<|user_end|>", "<|assistant_start|>", "<|assistant_end|>", "<|inner_prefix|>",
             "<|inner_suffix|>"),
            "<|assistant_end|>",
        ),
        "<|inner_prefix|>",
        "<|inner_suffix|>",
    ),
}  # fmt: skip


class Dictated:
    """Makes a small model write given texts, one for each call of `generate`, and go on with spaces after them.

    A list of texts is one text, whose pieces are encoded on their own.
    """

    def __init__(self, policy, texts):
        self.policy, self.texts, self._step, self._ids = policy, list(texts), 0, []
        policy.model.register_forward_hook(self._force, with_kwargs=True)

    def _force(self, model, args, kwargs, output):
        ids = kwargs.get("input_ids", args[0] if args else None)
        if ids.shape[1] > 1:  # a prompt is read first, then token after token
            text = self.texts.pop(0) if len(self.texts) > 1 else self.texts[0]
            pieces = [text] if isinstance(text, str) else text
            encode = self.policy.tokenizer.encode
            self._ids, self._step = [n for piece in pieces for n in encode(piece, add_special_tokens=False)], 0
        rest = self._ids[self._step :]
        token = rest[0] if rest else self.policy.tokenizer.encode(" ", add_special_tokens=False)[0]
        self._step += 1
        output.logits[:, -1] = -50.0
        output.logits[:, -1, token] = 50.0


def small_policy(tokenizer, texts=None, **options):
    """A small random model on a tokenizer; with `texts` it writes these."""
    model = build_model(tokenizer, layers=1, hidden=16, max_length=4096).eval()
    policy = Policy(model, tokenizer, **options)
    if texts is not None:
        Dictated(policy, texts)
    return policy


def thinking_policy(name, texts=None, **options):
    torch.set_num_threads(1)
    return small_policy(small_tokenizer(THINKERS[name][0]), texts, **{"enable_thinking": True, **options})
