"""Memory by formula: its laws, and the formulas against the tensors that training really holds."""

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
KINDS = ["whole", "zero2", "zero3", "fsdp2"]


@pytest.fixture(scope="module")
def memory():
    """The script `benchmarks/memory.py`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("memory")
    sys.modules.pop("memory", None)


@pytest.fixture(scope="module")
def memory_check(memory):
    """The script `benchmarks/memory_check.py`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("memory_check")
    sys.modules.pop("memory_check", None)


@pytest.fixture
def tiny(memory):
    """A network that trains in a blink."""
    return memory.Shape(
        hidden=64, layers=4, heads=4, kv_heads=2, intermediate=192, head_dim=16, vocabulary=1000, tied=True
    )


@pytest.mark.parametrize("name", ["0.6B", "4B", "8B"])
def test_parameters_are_those_of_the_network(memory, memory_check, name):
    shape = memory.MODELS[name]
    model = memory_check.random_model(shape, torch.bfloat16, "meta")
    assert sum(parameter.numel() for parameter in model.parameters()) == shape.parameters


@pytest.mark.parametrize("tied", [True, False])
def test_adapters_are_those_of_peft(memory, memory_check, tiny, tied):
    peft = pytest.importorskip("peft")
    model = memory_check.random_model(replace(tiny, tied=tied), torch.float32, "cpu")
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=3, target_modules="all-linear", task_type="CAUSAL_LM"))
    trained = sum(parameter.numel() for parameter in adapted.parameters() if parameter.requires_grad)
    assert trained == replace(tiny, tied=tied).adapters(3)


@pytest.mark.parametrize("processes", [2, 3, 8, 64])
@pytest.mark.parametrize("name", ["0.6B", "4B", "8B"])
def test_more_sharding_holds_less(memory, name, processes):
    sizes = {kind: memory.state(memory.Setup(memory.MODELS[name], kind, processes)) for kind in KINDS}
    assert sizes["fsdp2"] <= sizes["zero3"] < sizes["zero2"] < sizes["whole"]


@pytest.mark.parametrize("kind", ["zero2", "zero3", "fsdp2"])
def test_more_processes_hold_less_each_and_all_shards_add_up(memory, kind):
    shape = memory.MODELS["4B"]
    parts = {count: memory.held(memory.Setup(shape, kind, count)) for count in (1, 2, 8)}
    assert sum(parts[8].values()) < sum(parts[2].values()) < sum(parts[1].values())
    split = [name for name in parts[1] if kind != "zero2" or name != "weights"]
    for name in split:
        assert 8 * parts[8][name] == pytest.approx(parts[1][name])


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("processes", [1, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_adapters_need_less_than_all_weights(memory, kind, processes, checkpointing):
    for shape in memory.MODELS.values():
        full = memory.Setup(shape, kind, processes, checkpointing=checkpointing)
        lora = replace(full, lora_rank=16)
        assert memory.state(lora) < memory.state(full)
        assert memory.rest(lora) < memory.rest(full)
        assert memory.update_peak(lora) < memory.update_peak(full)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rank", [0, 16])
def test_state_is_linear_in_parameters(memory, kind, rank):
    def state(layers):
        return memory.state(memory.Setup(replace(memory.MODELS["4B"], layers=layers), kind, 8, rank))

    assert state(30) - state(20) == pytest.approx(state(20) - state(10))
    assert state(20) > state(10) > 0


def test_state_of_full_training_is_sixteen_bytes_a_parameter(memory):
    shape = memory.MODELS["4B"]
    assert memory.state(memory.Setup(shape)) == 16 * shape.parameters
    assert memory.rest(memory.Setup(shape)) == 12 * shape.parameters
    # bf16 weights, fp32 masters, two moments and gradients
    assert memory.state(memory.Setup(shape, "zero2")) == 18 * shape.parameters


def test_recomputing_activations_saves_memory_and_nothing_else(memory):
    plain = memory.Setup(memory.MODELS["4B"])
    thrifty = replace(plain, checkpointing=True)
    assert memory.update_peak(thrifty) < memory.update_peak(plain) / 2
    assert memory.rollout_peak(thrifty) == memory.rollout_peak(plain)
    assert memory.state(thrifty) == memory.state(plain)


def test_budgets_of_tokens_bound_the_peaks(memory):
    setup = memory.Setup(memory.MODELS["0.6B"])
    assert memory.update_peak(replace(setup, micro_batch_tokens=4096)) < memory.update_peak(setup)
    assert memory.rollout_peak(replace(setup, generate_tokens=32_768)) < memory.rollout_peak(setup)
    # More trials than fit one call are sampled one call after another.
    assert memory.generation(replace(setup, rows=10_000)) == memory.generation(replace(setup, rows=1000))
    # 4B: 36 layers, 8 heads of 128, keys and values, two bytes.
    assert 2 * memory.MODELS["4B"].kv_elements == 147_456


@pytest.mark.parametrize(
    ("precision", "rank", "checkpointing"),
    [("bf16", 0, False), ("bf16", 0, True), ("bf16", 4, False), ("bf16", 4, True), ("no", 0, False)],
)
def test_formulas_agree_with_real_tensors(memory_check, tiny, monkeypatch, precision, rank, checkpointing):
    if rank:
        pytest.importorskip("peft")
    from accelerate.state import AcceleratorState

    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", precision)
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    AcceleratorState._reset_state()
    try:
        found = memory_check.check(tiny, lora_rank=rank, checkpointing=checkpointing, rows=8, length=32)
    finally:
        AcceleratorState._reset_state()
    ratios = {name: measured / formula for name, (measured, formula) in found.items()}
    held = ("after the backward pass", "at rest", "while sampling, without its cache")
    assert {name: ratios[name] for name in held} == {name: pytest.approx(1, abs=0.02) for name in held}
    assert ratios["kept by a forward pass"] == pytest.approx(1, abs=0.1)
    assert ratios["an update, at most"] == pytest.approx(1, abs=0.15)


def test_storages_that_operations_make_are_counted_until_they_are_freed(memory_check):
    given = torch.ones(1000)
    with memory_check.LiveBytes() as live:
        view = given.view(10, 100)
        assert live.now == 0
        made = view * 2  # 4,000 bytes
        other = made + 1
        assert live.now == 8000
        del made, other
        assert (live.now, live.peak) == (0, 8000)


def test_reachable_tensors_are_counted_once_each(memory_check):
    before = memory_check.live_bytes()
    weight = torch.nn.Parameter(torch.ones(5000))
    alias = weight.detach().view(50, 100)
    assert memory_check.live_bytes() - before == 20_000
    weight.sum().backward()
    weight.grad = torch.ones(5000)
    assert memory_check.live_bytes() - before == 40_000
    assert alias.shape == (50, 100)


def test_the_table_marks_what_does_not_fit(memory):
    workload = {"prompt_tokens": 900, "response_tokens": 300}
    lines = memory.table(workload, trials=128, gpu_gib=78).splitlines()[2:]
    rows = {tuple(cell.strip() for cell in line.split("|")[1:5]): line.split("|")[5:9] for line in lines}
    assert len(rows) == 27
    for model in memory.MODELS:
        assert {kind for kind in KINDS if (model, "LoRA, rank 16", kind, "8") in rows} == {"whole", "zero2", "zero3"}
    assert "(!)" in rows["4B", "all", "whole", "1"][2]
    assert not any("(!)" in cell for cell in rows["0.6B", "all", "whole", "1"])
    assert "(!)" not in "".join(memory.table(workload, trials=128, gpu_gib=1000))


def test_the_scaling_guide_shows_the_table_as_it_is(memory):
    workload = {
        name: getattr(memory.Setup, name) for name in ("prompt_tokens", "response_tokens", "micro_batch_tokens")
    }
    guide = (BENCHMARKS.parent / "docs" / "scaling.md").read_text(encoding="utf-8")
    assert memory.table(workload, trials=128, gpu_gib=78) in guide
