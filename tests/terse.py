"""A wording in which every text is recognised at a glance, for tests of pages and of rollouts."""

from metarl_agents.envs import Wording

TERSE = Wording(
    play_request="PLAY",
    reflect_request="REFLECT",
    initial="START {observation}",
    current="NOW {observation}",
    history_heading="HISTORY",
    history_entry="{number}:{action}>{observation}",
    memory_heading="MEMORY",
    memory_remark="[{number} {outcome} | {remark}]",
    memory_trajectory="[{number} {outcome} | {trajectory}]",
    memory_both="[{number} {outcome} | {trajectory} | {remark}]",
    trajectory_entry="{action}>{observation}",
    outcome_failure="lost",
    outcome_success="won",
    outcome_draw="drew",
    reflect_note="IT {outcome}",
    reflect_heading="REVIEW",
    history_turns=4,
    full_observations=2,
    reflect_full_observations=3,
    separator="\n",
    entry_separator=" ",
)
