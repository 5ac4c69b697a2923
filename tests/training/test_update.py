"""One batch into optimizer steps: what decides the gradient, what must not, and when nothing moves."""

import copy
import math

import pytest
import torch
from training_helpers import (
    TOKENIZER,
    AlwaysOne,
    Coin,
    GradientRecorder,
    one_step,
    open_run,
    play,
    run_training,
    same_weights,
    small_policy,
    untied_model,
    weights_of,
)

from metarl_agents.advantages import RETURN_MODES
from metarl_agents.errors import ConfigError
from metarl_agents.policy import scoring
from metarl_agents.policy.tiny import build_model
from metarl_agents.training.update import update_policy


def gradient(run, batch, **changes):
    """The gradients of the optimizer steps on `batch`, with nothing moved."""
    for name, value in changes.items():
        setattr(run.config.update, name, value)
    recorder = GradientRecorder(run)
    stats = update_policy(run, batch, 0)
    return recorder.gradients, stats


def close(one, other, tolerance=1e-5):
    assert one.keys() == other.keys()
    return all(torch.allclose(one[name], other[name], rtol=1e-4, atol=tolerance) for name in one)


@pytest.fixture
def run(tmp_path):
    return open_run(tmp_path / "run", max_grad_norm=1e9)


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean"])
def test_the_gradient_does_not_depend_on_the_micro_batch_split(tmp_path, aggregation):
    run = open_run(tmp_path / "run", max_grad_norm=1e9, loss_aggregation=aggregation)
    batch, _ = play(run)
    (whole,), whole_stats = gradient(run, batch, max_tokens_per_micro_batch=10**6)
    (pieces,), piece_stats = gradient(run, batch, max_tokens_per_micro_batch=1)
    assert len(batch.split(range(len(batch)), 1)) == len(batch) > len(batch.split(range(len(batch)), 10**6))
    assert max(value.abs().max() for value in whole.values()) > 1e-3
    assert close(whole, pieces)
    for name in ("loss", "entropy", "grad_norm", "sampling/logp_difference/mean"):
        one, other = (stats[name][0] / stats[name][1] for stats in (whole_stats, piece_stats))
        assert one == pytest.approx(other, rel=1e-4, abs=1e-5), name


def test_empty_micro_batches_weigh_nothing(run, monkeypatch):
    from metarl_agents.training import update

    batch, _ = play(run)
    (alone,), stats = gradient(run, batch)
    agreed = update._agreed_split
    monkeypatch.setattr(update, "_agreed_split", lambda *args: [([], 1), *agreed(*args), ([], 2), ([], 1)])
    (padded,), padded_stats = gradient(run, batch)
    assert close(alone, padded, 1e-8)
    assert padded_stats == {name: pytest.approx(value) for name, value in stats.items()}


def test_rows_without_signal_count_in_the_normaliser_and_get_no_forward_pass(run):
    batch, credit = play(run)
    silent = credit.table.group == 0
    batch.advantages[silent] = 0.0
    batch.has_signal[silent] = False
    seen = []
    run.scorer.register_forward_hook(lambda module, args, output: seen.append(len(args[0])))
    (got,), _ = gradient(run, batch, entropy_coef=0.7)
    assert sum(seen) == int((~silent).sum()) < len(batch)
    batch.has_signal[:] = True  # now they run forward too, with advantage 0 and no entropy bonus to differ by
    (expected,), _ = gradient(run, batch, entropy_coef=0.0)
    batch.has_signal[silent] = False
    (without_bonus,), _ = gradient(run, batch, entropy_coef=0.0)
    assert close(without_bonus, expected)
    assert not close(got, without_bonus)


def test_a_batch_of_equal_returns_is_skipped_whole(tmp_path):
    run = open_run(tmp_path / "run", lr_scheduler_type="linear", max_steps=10, num_episodes=1)
    one_step(run)
    before, moments = weights_of(run.policy.model), copy.deepcopy(run.sharding.optimizer.state_dict())
    rate = run.schedule.rates
    run.make_env = AlwaysOne
    batch, credit = play(run, 1)
    assert not credit.advantages.any() and not batch.has_signal.any()
    stats = update_policy(run, batch, 1)
    assert stats["update/skipped"] == (1, 1) and stats["update/steps"] == (0, 1)
    assert same_weights(before, weights_of(run.policy.model))
    after = run.sharding.optimizer.state_dict()
    for index, state in moments["state"].items():
        assert all(torch.equal(state[name], after["state"][index][name]) for name in state)
    assert run.schedule.rates == rate and run.progress.optimizer_steps == 1


class AlwaysNothing(AlwaysOne):
    """No reward whatever is done."""

    def step(self, action):
        return super().step(action)._replace(reward=0.0)


def test_a_critic_that_is_right_already_leaves_nothing_to_step_on(tmp_path):
    run = open_run(tmp_path / "run", AlwaysNothing, num_episodes=1, advantages="ppo", weight_decay=0.1)
    before = weights_of(run.policy.model)
    batch, credit = play(run)
    assert not credit.advantages.any() and torch.equal(batch.old_values, batch.returns)
    assert update_policy(run, batch, 0)["update/skipped"] == (1, 1)
    assert same_weights(before, weights_of(run.policy.model))
    batch.returns[0] += 1.0  # now the critic has something to learn
    assert update_policy(run, batch, 0)["update/skipped"] == (0, 1)


def test_equal_groups_are_explained_once(tmp_path, capsys):
    run_training(tmp_path / "run", AlwaysOne, max_steps=3, num_episodes=1)
    assert capsys.readouterr().out.count("all groups have equal reward") == 1


def test_with_beta_equal_groups_are_still_pulled_to_the_reference(tmp_path):
    run = open_run(tmp_path / "run", AlwaysOne, num_episodes=1, beta=0.5, max_grad_norm=1e9, entropy_coef=0.5)
    batch, _ = play(run)
    (at_reference,), stats = gradient(run, batch)
    assert max(value.abs().max() for value in at_reference.values()) < 1e-6  # no entropy bonus either
    assert stats["update/skipped"] == (0, 1)
    with torch.no_grad():
        run.policy.model.lm_head.weight[TOKENIZER.eos_token_id] += 0.3
    apart = kl_now(run)
    run.sharding.optimizer = torch.optim.SGD(run.policy.model.parameters(), lr=0.5)
    for _ in range(5):
        update_policy(run, batch, 0)
    assert kl_now(run) < 0.7 * apart
    assert all(value.isfinite().all() for value in weights_of(run.policy.model).values())


def kl_now(run):
    """Mean KL on freshly played rows; nothing is moved."""
    batch, _ = play(run)
    optimizer = run.sharding.optimizer
    _, stats = gradient(run, batch)
    run.sharding.optimizer = optimizer
    return stats["kl"][0] / stats["kl"][1]


def dropout_model():
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 256, "vocab_size": len(TOKENIZER)}
    drop = {"resid_pdrop": 0.3, "embd_pdrop": 0.3, "attn_pdrop": 0.3}
    ends = {"eos_token_id": TOKENIZER.eos_token_id, "bos_token_id": None, "pad_token_id": TOKENIZER.pad_token_id}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return GPT2LMHeadModel(GPT2Config(**sizes, **drop, **ends)).train()


def bloom():
    from transformers import BloomConfig, BloomForCausalLM

    ends = {"eos_token_id": TOKENIZER.eos_token_id, "bos_token_id": None, "pad_token_id": TOKENIZER.pad_token_id}
    sizes = {"hidden_size": 32, "n_layer": 1, "n_head": 2, "vocab_size": len(TOKENIZER)}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return BloomForCausalLM(BloomConfig(**sizes, **ends, hidden_dropout=0.3, attention_dropout=0.3))


@pytest.mark.parametrize("kind", ["plain", "dropout", "lora", "lora on a model with dropout"])
def test_kl_is_0_and_the_ratio_1_before_the_first_step(tmp_path, kind):
    settings = {"beta": 0.1, "max_tokens_per_micro_batch": 200}
    if kind.startswith("lora"):
        settings |= {"use_peft": True, "lora_r": 4, "lora_dropout": 0.3}
    models = {"dropout": dropout_model, "lora on a model with dropout": bloom}
    policy = small_policy(model=models[kind]() if kind in models else None)
    run = open_run(tmp_path / "run", policy=policy, **settings)
    if kind == "dropout":
        run.scorer.train()
    stats = one_step(run)
    assert stats["kl"][0] / stats["kl"][1] == pytest.approx(0.0, abs=1e-6)
    assert stats["sampling/logp_difference/max"][0] < 1e-4
    assert stats["entropy"][1] > 0
    later = one_step(run, 1)
    assert later["kl"][0] / later["kl"][1] > 1e-6


def test_the_update_learns_in_the_distribution_that_filters_leave(tmp_path):
    stats = one_step(open_run(tmp_path / "run", top_k=2, beta=0.1))
    entropy = stats["entropy"][0] / stats["entropy"][1]
    assert 0.3 < entropy <= math.log(2) + 1e-4, "of two tokens each"
    assert stats["sampling/logp_difference/max"][0] < 1e-4 and stats["kl"][0] == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize("filters", [{"top_k": 5}, {"top_p": 0.5}, {"min_p": 0.2}])
def test_filters_leave_finite_gradients_when_the_weights_have_moved_on(tmp_path, filters):
    run = open_run(tmp_path / "run", entropy_coef=0.1, updates_per_batch=3, learning_rate=0.1, **filters)
    stats = one_step(run)
    assert stats["update/non_finite"][0] == 0 and stats["update/steps"][0] == 3
    assert all(torch.isfinite(parameter).all() for parameter in run.policy.model.parameters())


def test_dropout_inside_adapters_does_not_part_sampling_from_learning(tmp_path):
    run = open_run(tmp_path / "run", use_peft=True, lora_r=4, lora_dropout=0.3)
    with torch.no_grad():
        for name, parameter in run.policy.model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.5, generator=torch.Generator().manual_seed(0))
    run.scorer.train()
    assert one_step(run)["sampling/logp_difference/max"][0] < 1e-4


def test_with_adapters_only_they_move(tmp_path):
    run = open_run(tmp_path / "run", use_peft=True, lora_r=4)
    before = weights_of(run.policy.model)
    one_step(run)
    after = weights_of(run.policy.model)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == {name for name in before if "lora_" in name}


@pytest.mark.parametrize("targets", [["lm_head"], ["lm_head", "q_proj"], ["q_proj"]])
@pytest.mark.parametrize("tied", [False, True])
def test_adapters_learn_wherever_they_sit_when_logits_come_in_pieces(tmp_path, monkeypatch, targets, tied):
    """The head's adapter is trained although the weight under it is not, and nothing below it may be trained."""
    monkeypatch.setattr(scoring, "_CHUNK_ELEMENTS", 8 * len(TOKENIZER))
    policy = small_policy(model=None if tied else untied_model())
    run = open_run(tmp_path / "run", policy=policy, use_peft=True, lora_r=4, lora_target_modules=targets)
    before = weights_of(run.policy.model)
    assert one_step(run)["update/steps"] == (1, 1)
    moved = {name for name, value in weights_of(run.policy.model).items() if not torch.equal(before[name], value)}
    assert {name.split(".lora_")[0].rpartition(".")[2] for name in moved} == set(targets)


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_skips_the_step_and_is_counted(run, poison):
    batch, _ = play(run)
    before = weights_of(run.policy.model)
    handle = run.policy.model.lm_head.weight.register_hook(lambda grad: grad * poison)
    stats = update_policy(run, batch, 0)
    assert stats["update/non_finite"] == (1, 1) and stats["update/skipped"] == (1, 1)
    assert same_weights(before, weights_of(run.policy.model)) and run.progress.optimizer_steps == 0
    assert "grad_norm" not in stats
    handle.remove()
    assert update_policy(run, batch, 0)["update/steps"] == (1, 1)  # the bad gradient has not stayed behind
    assert all(value.isfinite().all() for value in weights_of(run.policy.model).values())


def test_at_a_learning_rate_of_1e_6_every_weight_matrix_moves(tmp_path):
    run = open_run(tmp_path / "run", learning_rate=1e-6)
    before = weights_of(run.policy.model)
    one_step(run)
    after = weights_of(run.policy.model)
    matrices = [name for name, value in before.items() if value.dim() == 2]
    assert len(matrices) >= 8
    assert [name for name in matrices if torch.equal(before[name], after[name])] == []


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_weights_are_refused_in_one_sentence(tmp_path, dtype):
    model = build_model(TOKENIZER, layers=1, hidden=32).to(dtype)
    with pytest.raises(ConfigError, match=r"^`dtype` is b?float16, .* keep `--dtype float32`[^\n]*$"):
        open_run(tmp_path / "run", policy=small_policy(model=model))


def test_the_first_of_several_updates_is_the_single_update_on_the_same_rows(run):
    batch, _ = play(run)
    first_rows, second_rows = batch.parts(2, seed=run.config.run.seed)
    run.config.update.updates_per_batch = 2
    recorded, _ = gradient(run, batch)
    assert len(recorded) == 2
    alone = copy.copy(batch)
    silent = torch.ones(len(batch), dtype=torch.bool)
    silent[first_rows] = False
    tokens = batch.num_response_tokens(first_rows) / batch.num_response_tokens(range(len(batch)))
    alone.advantages[silent] = 0.0
    alone.has_signal[:] = batch.has_signal & ~silent
    run.config.update.updates_per_batch = 1
    (single,), _ = gradient(run, alone)
    assert close({name: value * tokens for name, value in recorded[0].items()}, single)


def test_the_second_update_measures_its_ratio_from_where_the_batch_began(tmp_path):
    run = open_run(tmp_path / "run", updates_per_batch=2, learning_rate=0.05)
    batch, _ = play(run)
    stats = update_policy(run, batch, 0)
    assert stats["update/steps"] == (2, 1)
    clipped = stats["clip_ratio/low_mean"][0] + stats["clip_ratio/high_mean"][0]
    assert clipped > 0
    single = open_run(tmp_path / "single", learning_rate=0.05)
    assert sum(one_step(single)[f"clip_ratio/{side}_mean"][0] for side in ("low", "high")) == 0


def test_more_updates_than_rows_leave_the_surplus_out(tmp_path):
    run = open_run(tmp_path / "run", updates_per_batch=500)
    batch, _ = play(run)
    stats = update_policy(run, batch, 0)
    assert stats["update/steps"][0] + stats["update/skipped"][0] == 500
    assert 0 < stats["update/steps"][0] <= len(batch)


@pytest.mark.parametrize("kind", ["head", "separate"])
def test_the_critic_learns_the_return(tmp_path, kind):
    settings = {"advantages": "ppo", "critic": kind, "critic_learning_rate": 0.02, "learning_rate": 0.0}
    run = open_run(tmp_path / "run", value_clip=None, weight_decay=0.0, **settings)
    batch, _ = play(run)
    losses = []
    for step in range(12):
        stats = update_policy(run, batch, step)
        losses.append(stats["value_loss"][0] / stats["value_loss"][1])
    assert losses[-1] < 0.8 * losses[0]
    assert losses[0] == pytest.approx(0.5 * batch.returns.square().mean().item(), rel=1e-4) or kind == "separate"


@pytest.mark.parametrize("kind", ["head", "separate"])
def test_the_value_loss_does_not_reach_the_policy(tmp_path, kind):
    run = open_run(tmp_path / "run", advantages="ppo", critic=kind, entropy_coef=0.0, max_grad_norm=1e9)
    batch, _ = play(run)
    batch.advantages[:] = 0.0  # what is left is the value loss
    (got,), stats = gradient(run, batch)
    assert stats["value_loss"][0] > 0
    assert all(not value.any() for name, value in got.items() if name.startswith("model."))
    assert any(value.any() for name, value in got.items() if name.startswith("critic."))


def test_ppo_advantages_are_returns_minus_values(tmp_path):
    run = open_run(tmp_path / "run", advantages="ppo", critic_learning_rate=0.05, value_clip=None)
    one_step(run)
    batch, credit = play(run, 1)
    assert batch.old_values.abs().max() > 0.01
    assert torch.allclose(batch.advantages, credit.table.returns - batch.old_values, atol=1e-4)


def test_the_baseline_of_reinforce_remembers_earlier_batches(tmp_path):
    run = open_run(tmp_path / "run", advantages="reinforce", group_size=1, tasks_per_step=8)
    assert run.baseline.mean is None
    _, first = play(run, 0)
    mean = run.baseline.mean
    batch, second = play(run, 1)
    scores = second.table.scores()
    assert torch.allclose(second.advantages.double(), scores - mean, atol=1e-5)
    assert run.baseline.mean != mean and math.isfinite(run.baseline.mean)


ESTIMATORS = ("gigpo", "rloo", "grpo", "reinforce", "ppo")
MODES = tuple(RETURN_MODES)
MEMORIES = ("reflection", "trajectory", "both", "none")


def combinations():
    """Each pair of values meets at least once: a Latin square of estimator and return mode, memories alongside."""
    for i, estimator in enumerate(ESTIMATORS):
        for j, mode in enumerate(MODES):
            if (i + j) % 2 == 0 or estimator == "gigpo":
                yield estimator, mode, MEMORIES[(i + j) % 4]


@pytest.mark.parametrize(("estimator", "mode", "memory"), list(combinations()))
def test_every_estimator_runs_with_every_kind_of_return_and_memory(tmp_path, estimator, mode, memory):
    run = open_run(tmp_path / "run", Coin, advantages=estimator, return_mode=mode, memory=memory)
    before = weights_of(run.policy.model)
    stats = one_step(run)
    assert stats["update/steps"] == (1, 1)
    assert math.isfinite(stats["loss"][0]) and stats["grad_norm"][0] > 0
    assert not same_weights(before, weights_of(run.policy.model))


def test_two_doors_runs_through_the_same_path(tmp_path):
    from metarl_agents.environments.two_doors import TwoDoors

    run = open_run(tmp_path / "run", TwoDoors, penalty_scope="row", length_penalty=1.0)
    stats = one_step(run)
    assert math.isfinite(stats["loss"][0]) and stats["update/steps"][0] + stats["update/skipped"][0] == 1


# ---- memory ------------------------------------------------------------------------------------------------------


def hungry(run, monkeypatch, limit):
    """Let a forward pass over more than `limit` padded tokens run out of memory, as a GPU says it."""
    forward = type(run.plain_scorer).forward

    def limited(self, input_ids, *others):
        if input_ids.numel() > limit:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        return forward(self, input_ids, *others)

    monkeypatch.setattr(type(run.plain_scorer), "forward", limited)


def test_where_memory_runs_out_micro_batches_are_halved_once(tmp_path, monkeypatch, capsys):
    halved = open_run(tmp_path / "run", halve_on_oom=True, max_tokens_per_micro_batch=1000)
    batch, _ = play(halved)
    twin = open_run(tmp_path / "twin", max_tokens_per_micro_batch=500)
    update_policy(twin, batch, 0)
    hungry(halved, monkeypatch, 600)
    update_policy(halved, batch, 0)
    assert halved.config.update.max_tokens_per_micro_batch == 500
    assert capsys.readouterr().out.count("Memory ran out: going on with `max_tokens_per_micro_batch` 500") == 1
    expected = weights_of(twin.policy.model)
    assert all(torch.allclose(value, expected[name]) for name, value in weights_of(halved.policy.model).items())
    hungry(halved, monkeypatch, 100)
    with pytest.raises(
        ConfigError, match=r"^memory ran out in the update.*tokens: lower `--max_tokens_per_micro_batch`"
    ):
        update_policy(halved, batch, 1)


def test_without_the_option_running_out_of_memory_is_one_sentence(run, monkeypatch):
    batch, _ = play(run)
    hungry(run, monkeypatch, 1)
    with pytest.raises(ConfigError, match="`--gradient_checkpointing`") as caught:
        update_policy(run, batch, 0)
    assert "\n" not in str(caught.value)
