"""One small game of each kind, as its examination sees it."""

from dataclasses import replace

from metarl_agents.config import TrialConfig

KUHN = TrialConfig(env="kuhn", wording="compact", max_turns=4, num_episodes=3, stop_on_success=False)
ROCK = replace(KUHN, env="matrix_game", max_turns=5, env_kwargs={"rounds": 2, "opponent": "always_rock"})
BOARD = replace(KUHN, env="tictactoe", max_turns=6, env_kwargs={"opponent": "prefers_edges"})
