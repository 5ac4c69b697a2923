"""What the tests of the shop and of its player share: every way pages are shown, and one played episode."""

SHOWN = [
    {"wording": "paper"},
    {"wording": "paper", "observation_mode": "text_rich"},
    {"wording": "paper", "observation_mode": "compact"},
    {"wording": "compact"},
    {"wording": "compact", "observation_mode": "text", "preset": "tiny"},
    {"wording": "compact", "observation_mode": "text_rich", "preset": "tiny"},
]


def play(env, player, seed, rng, remarks=(), max_turns=12):
    """Play one episode; return (score, observations)."""
    observation, _ = env.reset(seed=seed)
    player.start_episode(list(remarks), rng)
    seen, score = [observation], 0.0
    for _ in range(max_turns):
        observation, _, over, _, info = env.step(env.parse_action(player.act(observation, rng)))
        seen.append(observation)
        score = info["score"]
        if over:
            break
    return score, seen
