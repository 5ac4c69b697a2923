"""Estimators and return modes as the settings name them: what they are given, and what a user's own must return."""

import sys
from functools import partial
from types import ModuleType

import pytest
import torch
from training_helpers import Coin, metrics_of, open_run, play, run_training, small_policy

from metarl_agents.advantages import ADVANTAGES, RETURN_MODES, RunningMean, compares_trials, reads_values
from metarl_agents.config import Config, CreditConfig
from metarl_agents.errors import ConfigError
from metarl_agents.training.credit import assign_credit, check_functions, needs_values, tabulate
from metarl_agents.types import Episode, Phase, Response, Trial, Turn

ODD = {
    "gamma_step": 0.9, "gamma_traj": 0.7, "step_weight": 0.5, "norm": "mean_std", "episode_score": "reward",
    "credit_unit": "row", "gae_lambda": 0.8,
}  # fmt: skip


def trials():
    """Two groups of three ragged trials, with reflections, penalties and equal observations."""
    made = []
    for index, rewards in enumerate([[0, 1], [10], [0, 0, -1], [2, 2], [0], [7, 0, 0, 3]]):
        turns = [Turn(Phase.PLAY, f"o{t % 2}", (1,), Response((2,), "x"), "x", "x", float(r), row_penalty=0.1 * t)
                 for t, r in enumerate(rewards)]  # fmt: skip
        reflection = Turn(Phase.REFLECT, "", (1,), Response((2,), "r"), "r", "r", -0.5)
        episodes = [Episode("start", turns, "end", reflection=reflection), Episode("start", turns[:1], "end")]
        made.append(Trial(seed=0, group=index // 3, episodes=episodes))
    return made


def judge(config, baseline=None):
    """The credit of the trials under some settings, on one process."""
    table = tabulate(trials(), config)
    if needs_values(config):
        table = table.with_values(torch.linspace(-1, 1, len(table)))
    return assign_credit(table, config, baseline or RunningMean(), lambda values: values)


@pytest.fixture
def own(monkeypatch):
    """Put functions into a module of a user's own; returns the address of the one given."""
    module = ModuleType("own_credit_functions")
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def place(function, name="own"):
        setattr(module, name, function)
        return f"{module.__name__}:{name}"

    return place


# ---- what functions are given ------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, ODD], ids=["defaults", "odd"])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gigpo", ("step_weight", "norm", "episode_score", "credit_unit")),
        ("rloo", ("episode_score", "credit_unit")),
        ("grpo", ("episode_score", "credit_unit")),
        ("reinforce", ("episode_score",)),
        ("ppo", ("gae_lambda",)),
    ],
)
def test_the_shipped_estimators_get_their_settings_and_nothing_else(name, options, settings):
    config = CreditConfig(advantages=name, **settings)
    baseline = RunningMean()
    baseline.mean = 1.25
    credit = judge(config, baseline)
    expected = {option: getattr(config, option) for option in options}
    expected |= {"baseline": 1.25} if name == "reinforce" else {}
    assert torch.equal(credit.advantages, ADVANTAGES[name](credit.table, **expected))
    assert (baseline.mean != 1.25) == (name == "reinforce")


@pytest.mark.parametrize("mode", sorted(RETURN_MODES))
def test_the_shipped_return_modes_get_both_discounts(mode):
    table = tabulate(trials(), CreditConfig(return_mode=mode, gamma_step=0.9, gamma_traj=0.7))
    for index, trial in enumerate(trials()):
        rows = list(trial.rows())
        columns = (
            torch.tensor([turn.reward for _, _, turn in rows], dtype=torch.float64),
            torch.tensor([n for n, _, _ in rows]),
            torch.tensor([turn.phase is Phase.REFLECT for _, _, turn in rows]),
        )
        expected = RETURN_MODES[mode](*columns, gamma_step=0.9, gamma_traj=0.7)
        assert torch.equal(table.returns[table.trial == index], expected)


def test_parameters_named_like_settings_are_filled_with_them_whatever_their_default(own):
    seen = {}

    def advantages(table, gamma_traj, /, *more, step_weight=9.0, mine=4, baseline, **rest):
        raise AssertionError("not called")

    def fine(table, gamma_traj, *more, step_weight=9.0, mine=4, baseline, **rest):
        seen.update(gamma_traj=gamma_traj, more=more, step_weight=step_weight, mine=mine, baseline=baseline, rest=rest)
        return table.returns

    config = CreditConfig(advantages=own(fine), gamma_traj=0.7, step_weight=0.5)
    judge(config, RunningMean())
    assert seen.pop("baseline") > 0
    assert seen == {"gamma_traj": 0.7, "more": (), "step_weight": 0.5, "mine": 4, "rest": {}}
    with pytest.raises(ConfigError, match="has a parameter `gamma_traj` that nothing fills"):
        check_functions(CreditConfig(advantages=own(advantages)))  # it cannot be given by name


def test_what_a_partial_has_decided_stays_decided(own):
    address = own(partial(ADVANTAGES["gigpo"], step_weight=0.0))
    credit = judge(CreditConfig(advantages=address, norm="mean_std"))
    assert torch.equal(credit.advantages, ADVANTAGES["gigpo"](credit.table, step_weight=0.0, norm="mean_std"))


@pytest.mark.parametrize(
    ("setting", "function", "message"),
    [
        ("advantages", lambda table, temperature: ..., "a parameter `temperature` that nothing fills: .*baseline"),
        ("advantages", lambda: ..., r"takes \(\), but is given the table of turns.*begin with a parameter\."),
        ("advantages", lambda *, table: ..., "but is given the table of turns"),
        ("advantages", lambda *args, **kwargs: ..., "but is given the table of turns"),
        ("return_mode", lambda rewards, episode: ..., "given rewards, episode, is_reflection, .*a parameter for each"),
        ("return_mode", lambda r, e, i, baseline: ..., "a parameter `baseline` that nothing fills"),
        ("advantages", dict, "does not tell its parameters"),
    ],
)
def test_what_cannot_be_called_is_refused_in_one_sentence_before_anything_is_loaded(
    own, tmp_path, setting, function, message
):
    address = own(function)
    with pytest.raises(ConfigError, match=f"^`{address}` .*{message}") as caught:
        run_training(tmp_path / "run", **{setting: address})
    assert "\n" not in str(caught.value) and not (tmp_path / "run").exists()


def test_marks_of_a_user_s_own_estimator_are_heeded(own):
    assert needs_values(CreditConfig(advantages=own(reads_values(lambda table: table.values))))
    assert not needs_values(CreditConfig(advantages=own(lambda table: table.returns)))
    Config.from_flat({"advantages": own(lambda table: table.returns), "group_size": 1}).check()
    address = own(compares_trials(lambda table: table.returns))
    with pytest.raises(ConfigError, match=f"`group_size` is 1, but `{address}` compares a trial with the other trials"):
        Config.from_flat({"advantages": address, "group_size": 1}).check()


def test_a_partial_bears_the_marks_of_its_function_and_one_that_only_calls_it_is_told_of_the_mark(own):
    address = own(partial(ADVANTAGES["gigpo"], step_weight=0.0))
    with pytest.raises(ConfigError, match=f"`group_size` is 1, but `{address}` compares a trial"):
        Config.from_flat({"advantages": address, "group_size": 1}).check()
    config = CreditConfig(advantages=own(partial(ADVANTAGES["ppo"], gae_lambda=0.0)), gae_lambda=1.0)
    credit = judge(config)
    assert needs_values(config)
    assert torch.equal(credit.advantages, ADVANTAGES["ppo"](credit.table, gae_lambda=0.0))
    with pytest.raises(ConfigError, match="an estimator that calls this one needs the mark `@reads_values`"):
        judge(CreditConfig(advantages=own(lambda table: ADVANTAGES["ppo"](table))))


# ---- what a user's own must return -------------------------------------------------------------------------------


def test_what_a_user_s_own_functions_return_is_what_counts(own):
    config = CreditConfig(
        advantages=own(lambda table: table.returns.double() * 2, "advantages"),
        return_mode=own(lambda rewards, episode, is_reflection, gamma_traj: rewards + gamma_traj * episode, "returns"),
        gamma_traj=0.5,
    )
    credit = judge(config)
    assert torch.equal(credit.table.returns, credit.table.reward + 0.5 * credit.table.episode)
    assert torch.equal(credit.advantages, 2 * credit.table.returns) and credit.advantages.dtype is torch.float32


def test_no_gradient_comes_out_of_a_user_s_own_function(own):
    weight = torch.ones(1, requires_grad=True)
    assert not judge(CreditConfig(advantages=own(lambda table: table.returns * weight))).advantages.requires_grad


BAD = {
    "a list": lambda like: like.tolist(),
    "a NoneType": lambda like: None,
    "shape \\(\\)": lambda like: like.sum(),
    "shape \\(\\d+, 1\\)": lambda like: like[:, None],
    "torch.int64 numbers": lambda like: like.long(),
    "torch.bool numbers": lambda like: like > 0,
    "numbers that are not all finite": lambda like: torch.cat([like[1:], torch.tensor([torch.nan])]),
    "numbers that are too large for float32": lambda like: torch.full_like(like, 1e300, dtype=torch.float64),
}


@pytest.mark.parametrize("found", BAD)
@pytest.mark.parametrize("setting", ["advantages", "return_mode"])
def test_a_wrong_result_is_refused_with_what_was_expected(own, setting, found):
    spoil = BAD[found]
    bad = {"advantages": lambda table: spoil(table.returns), "return_mode": lambda r, e, i: spoil(r.float())}[setting]
    rows, place = (25, "table") if setting == "advantages" else (4, "trial")
    expected = rf"must return a tensor of shape \({rows},\), one finite float for each row of the {place}"
    with pytest.raises(ConfigError, match=f"^`own_credit_functions:own` {expected}, but returned {found}\\.$"):
        judge(CreditConfig(**{setting: own(bad)}))


def test_an_exception_of_a_user_s_own_keeps_its_traceback(own):
    def clumsy(table):
        return 1 / 0

    with pytest.raises(ZeroDivisionError) as caught:
        judge(CreditConfig(advantages=own(clumsy)))
    assert caught.traceback[-1].name == "clumsy"


def test_the_process_whose_trials_gave_a_wrong_result_tells_it(own, monkeypatch, capsys):
    from metarl_agents import cli
    from metarl_agents.cli import run_cli

    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(cli, "_wait_to_be_ended", sys.exit)  # the launcher ends who waits for the first to tell it
    with pytest.raises(SystemExit):
        run_cli(lambda: judge(CreditConfig(advantages=own(lambda table: table.returns / 0))))
    assert "numbers that are not all finite" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run_cli(lambda: check_functions(CreditConfig(advantages=own(lambda: ...))))
    assert capsys.readouterr().err == ""  # the first process has said so


# ---- in a run ----------------------------------------------------------------------------------------------------

OWN = """
from metarl_agents.advantages import compares_trials, paper_returns, rloo_advantages

@compares_trials
def advantages(table, *, episode_score, credit_unit):
    return rloo_advantages(table, episode_score=episode_score, credit_unit=credit_unit)

def returns(rewards, episode, is_reflection, *, gamma_step, gamma_traj):
    return paper_returns(rewards, episode, is_reflection, gamma_step=gamma_step, gamma_traj=gamma_traj)
"""


def test_a_run_with_functions_of_the_current_folder_is_the_run_with_the_shipped_ones(tmp_path, monkeypatch):
    (tmp_path / "own_credit_in_a_run.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(tmp_path))])
    own = {"advantages": "own_credit_in_a_run:advantages", "return_mode": "own_credit_in_a_run:returns"}
    try:
        results = [
            run_training(tmp_path / name, policy=small_policy(), env="two_doors", max_steps=1, **settings)
            for name, settings in (("own", own), ("shipped", {"advantages": "rloo"}))
        ]
    finally:
        sys.modules.pop("own_credit_in_a_run", None)
    one, other = (metrics_of(result.output_dir) for result in results)
    assert one == other and one[1]["grad_norm"] > 0
    card = (results[0].output_dir / "README.md").read_text()
    assert (
        "custom advantage estimator own\\_credit\\_in\\_a\\_run:advantages" in card and "@misc{jiang2025metarl" in card
    )


def test_a_run_whose_estimator_reads_values_gets_a_critic(own, tmp_path):
    address = own(reads_values(lambda table: table.returns - table.values))
    run = open_run(tmp_path / "run", Coin, advantages=address)
    batch, credit = play(run)
    assert run.plain_scorer.critic is not None and torch.equal(batch.old_values, credit.table.values)


def test_a_step_without_rows_does_not_call_a_user_s_own_function(own):
    def never(table):
        raise AssertionError("called")

    config = CreditConfig(advantages=own(never))
    credit = assign_credit(tabulate([], config), config, RunningMean(), lambda values: values)
    assert credit.advantages.shape == (0,)
