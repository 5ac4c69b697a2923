"""What the processes of a launch do together; `launches.py` starts this file through `accelerate launch`.

    scenarios.py NAME FOLDER

Each scenario leaves its findings in FOLDER: `result.json`, and tensors as safetensors.
"""

import json
import os
import random
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))
sys.path.insert(0, str(Path(__file__).parents[1] / "rollout"))

from pennies import Pennies
from safetensors.torch import save_file
from training_helpers import SHORT, SMALL, Coin, small_config, small_policy, untied_model

from metarl_agents.cli import leave
from metarl_agents.config import ModelConfig
from metarl_agents.policy import scoring
from metarl_agents.policy.adapters import add_adapters, name_base
from metarl_agents.policy.processes import start_processes
from metarl_agents.tracking import finish
from metarl_agents.training.logbook import reduce_stats
from metarl_agents.training.saving import save_checkpoint
from metarl_agents.training.setup import build_run
from metarl_agents.training.trainer import make_batch, train
from metarl_agents.training.update import update_policy
from metarl_agents.types import Episode, Outcome, Phase, Response, StepResult, Trial, Turn

SEEDS = [0, 1, 2, 3]
GROUP = 4
SETTINGS = {"tasks_per_step": 4, "group_size": GROUP, "max_tokens_per_micro_batch": 120, "learning_rate": 1e-3}
# A rate that differs from step to step, so that what is resumed must find it.
SETTINGS |= {"lr_scheduler_type": "linear", "critic_learning_rate": 3e-3}
# Few logits at once, so that processes with more response tokens than others need more pieces.
scoring._CHUNK_ELEMENTS = 641 * 8


class Lopsided(Coin):
    """Won at once on the first process, never on the others, where answers still differ in reward."""

    wording = SHORT

    def step(self, action):
        if os.environ.get("RANK", "0") == "0":
            return StepResult("prize", 10.0, True, False, {"success": True})
        return StepResult("on", float(action), False, False, {"success": False})


class Deaf(Coin):
    """Takes its time on the second process, once."""

    slept = False

    def step(self, action):
        if os.environ.get("RANK") == "1" and not Deaf.slept:
            Deaf.slept = True
            time.sleep(28)
        return super().step(action)


def made_trials(seeds):
    """Trials that nobody sampled: groups of even seeds win in turn 1 and differ in nothing, the others do."""
    return [made_trial(seed, group, index) for group, seed in enumerate(seeds) for index in range(GROUP)]


def made_trial(seed, group, index):
    rng = random.Random(1000 * seed + index)
    if seed % 2 == 0:
        return Trial(seed=seed, group=group, episodes=[Episode("o", [made_turn(rng, 10.0)], "o", Outcome.SUCCESS)])
    episodes = []
    for number in range(2):
        turns = [made_turn(rng, float(rng.random() < 0.5)) for _ in range(rng.randint(1, 6))]
        remark = made_turn(rng, 0.0, Phase.REFLECT) if number == 0 else None
        episodes.append(Episode("o", turns, "o", Outcome.FAILURE, remark))
    return Trial(seed=seed, group=group, episodes=episodes)


def made_turn(rng, reward, phase=Phase.PLAY):
    def ids(low, high):
        return tuple(rng.randrange(10, 600) for _ in range(rng.randint(low, high)))

    answer = ids(2, 9)
    return Turn(
        phase=phase,
        observation="o" if phase is Phase.PLAY else "",
        prompt_ids=ids(5, 30),
        response=Response(ids=answer, text="x", logprobs=(-1.0,) * len(answer)),
        action="x",
        shown_action="x",
        reward=reward,
    )


def update(run, step, look=None):
    """One optimizer step on this process's share of the made trials; returns what `look` sees before it.

    That is the whole gradient unless told otherwise.
    """
    accelerator, found = run.accelerator, {}
    take_step = type(run.sharding).step

    def recording():
        found.update((look or whole_gradients)(run))
        return take_step(run.sharding)

    run.sharding.step = recording
    batch, _ = make_batch(run, made_trials(SEEDS[accelerator.process_index :: accelerator.num_processes]))
    stats = update_policy(run, batch, step)
    run.progress.step += 1
    return found, stats


def whole_gradients(run):
    named = [(name, p) for name, p in run.plain_scorer.named_parameters() if p.requires_grad]
    if run.sharding.kind.startswith("zero"):
        from deepspeed.utils import safe_get_full_grad

        return {name: safe_get_full_grad(p).clone() for name, p in named}
    return {name: (p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad).clone() for name, p in named}


def gradient_dtypes(run):
    """What gradients are kept in until the step: under ZeRO in DeepSpeed's buffers, which have no public name."""
    if run.sharding.kind.startswith("zero"):
        kept = run.sharding.scorer.optimizer.averaged_gradients.values()
        return {str(tensor.dtype): True for tensors in kept for tensor in tensors}
    return {str(p.grad.dtype): True for p in run.plain_scorer.parameters() if p.grad is not None}


def weights_of(run):
    found = run.sharding.whole_weights(run.plain_scorer)
    named = run.plain_scorer.named_parameters()
    return {name: p.detach().clone() for name, p in named if p.requires_grad} if found is None else found


def logprobs_of(run):
    """Log-probs of fixed tokens; every process takes part."""
    ids = torch.arange(20, 60).view(2, 20)
    mask = torch.ones_like(ids, dtype=torch.bool)
    response = mask.clone()
    response[:, :5] = False
    with torch.no_grad():
        return run.scorer(ids, mask, response, 1.0, 2).logprobs.float().clone()


def write(run, folder, name, tensors):
    if run.accelerator.is_main_process:
        save_file({key: value.contiguous() for key, value in tensors.items()}, str(folder / f"{name}.safetensors"))


def walk(folder, **settings):
    """Update, save, update; then resume from the save and update again."""
    settings = SETTINGS | settings
    place = made(folder / "run", start_processes(60))
    run = built(place, settings)
    first, stats = update(run, 0)
    save_checkpoint(run)
    write(run, folder, "gradient", first)
    write(run, folder, "first", weights_of(run))
    update(run, 1)
    write(run, folder, "weights", weights_of(run))
    write(run, folder, "logprobs", {"logprobs": logprobs_of(run)})
    save_checkpoint(run)
    resumed = built(place, settings, resume=place / "checkpoint-1")
    update(resumed, 1)
    write(resumed, folder, "resumed", weights_of(resumed))
    return {
        "kind": run.sharding.kind,
        "num_processes": run.accelerator.num_processes,
        "skipped": stats["update/skipped"][0],
        "kl": stats.get("kl", (0.0, 1.0))[0],
        "loss": finish(reduce_stats(run, stats))["loss"],
    }


# (what is trained, schedule, warm-up) -> the steps after which it is cut.
CUTS = {("weights", name, warmup): (2,) for name in ("constant", "linear", "cosine") for warmup in (0, 1)}
CUTS |= {("critic", "linear", 2): (1, 3), ("lora", "cosine", 2): (1, 3)}
TRAINED = {
    "weights": {},
    "critic": {"advantages": "ppo", "critic": "separate"},
    "lora": {"use_peft": True, "lora_r": 4},
}


def resumes(folder):
    """Four steps in one go, saved after each, and from some checkpoints on to the end.

    Returns {case: whether the weights and rates that follow each cut are those of the steps in one go}, and the rates.
    """
    base, found, rates = saved_base(folder), {}, {}
    for (part, schedule, warmup), cuts in CUTS.items():
        chosen = {"lr_scheduler_type": schedule, "warmup_steps": warmup, "max_steps": 4, "save_total_limit": None}
        settings = SETTINGS | TRAINED[part] | chosen | {"model_name_or_path": base}
        case = f"{part} {schedule} {warmup}"
        place = made(folder / case.replace(" ", "-"), start_processes(60))
        run = built(place, settings)
        straight = [followed(run, step, save=step + 1 in cuts) for step in range(4)]
        rates[case] = [step_rates for step_rates, _ in straight]
        for cut in cuts:
            resumed = built(place, settings, resume=place / f"checkpoint-{cut}")
            again = [followed(resumed, step) for step in range(cut, 4)]
            found[f"{case} cut after {cut}"] = all(map(is_same, straight[cut:], again))
    return {"exact": found, "rates": rates}


def followed(run, step, save=False):
    """Take a step; return the rates it was taken with, and the weights after it."""
    rates = [group["lr"] for group in run.sharding.optimizer.param_groups]
    update(run, step, look=lambda run: {})
    if save:
        save_checkpoint(run)
    return rates, weights_of(run)


def is_same(one, other):
    (rates, weights), (other_rates, other_weights) = one, other
    equal = all(torch.equal(weights[name], other_weights[name]) for name in weights)
    return rates == other_rates and weights.keys() == other_weights.keys() and equal


def lora(folder, **settings):
    """The walk with adapters on a base that was saved under a name."""
    return walk(folder, model_name_or_path=saved_base(folder), use_peft=True, lora_r=4, **settings)


def lora_kl(folder):
    """The walk from adapters in a folder, which have moved already, with a divergence from where they start."""
    base, accelerator = saved_base(folder), start_processes(60)
    if accelerator.is_main_process:
        policy, generator = small_policy(), torch.Generator().manual_seed(5)
        add_adapters(policy, ModelConfig(use_peft=True, lora_r=4))
        name_base(policy, Path(base))
        for name, parameter in policy.model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.3, generator=generator)
        policy.save(folder / "start")
    accelerator.wait_for_everyone()
    return walk(folder, model_name_or_path=str(folder / "start"), use_peft=True, lora_r=4, beta=0.3)


def lora_head(folder):
    """The walk with adapters on the output head alone, whose weight is its own, and which is used in several pieces."""
    base = saved_base(folder, small_policy(model=untied_model()))
    return walk(folder, model_name_or_path=base, use_peft=True, lora_r=4, lora_target_modules=["lm_head"])


def saved_base(folder, policy=None):
    accelerator = start_processes(60)
    if accelerator.is_main_process:
        (policy or small_policy()).save(folder / "base")
    accelerator.wait_for_everyone()
    return str(folder / "base")


def built(place, settings, resume=None):
    """A run in a folder that is there; without a model's name it starts from the small policy."""
    policy = None if "model_name_or_path" in settings else small_policy()
    return build_run(small_config(**settings), Coin, policy, place, resume, start_processes(60))


def made(folder, accelerator):
    if accelerator.is_main_process:
        folder.mkdir(parents=True)
    accelerator.wait_for_everyone()
    return folder


def play(folder, **settings):
    """Three training steps in a world where one process wins at once and the other plays on; then the exam."""
    values = SMALL | {"tasks_per_step": 4, "max_turns": 4, "max_steps": 3, "max_new_tokens_per_turn": 6} | settings
    policy = None if "model_name_or_path" in settings else small_policy()
    result = train(Lopsided, policy=policy, output_dir=str(folder / "run"), **values)
    return {"steps": result.steps, "interrupted": result.interrupted}


def lora_play(folder):
    """The play with adapters, a divergence from their base, and the two merged at the end."""
    adapters = {"use_peft": True, "lora_r": 4, "merge_and_save": True, "beta": 0.3}
    return play(folder, model_name_or_path=saved_base(folder), **adapters)


def all_modes_walk(folder):
    """The fast test: a walk and a play in one launch, because starting processes is what takes the time."""
    return walk(folder / "walk") | play(folder / "play")


def masters(folder):
    """A step of 1e-6 in bf16: what the optimizer steps on before and after, and the dtypes beside it."""
    run = built(made(folder / "run", start_processes(60)), SETTINGS | {"learning_rate": 1e-6})
    before = [tensor.clone() for tensor in stepped(run)]
    gradients, _ = update(run, 0, gradient_dtypes)
    after = stepped(run)
    moved = max((new - old).abs().max().item() for new, old in zip(after, before, strict=True))
    steps = {name: str(p.dtype) for name, p in run.plain_scorer.named_parameters()}
    weights = sorted(set(steps.values()))
    return {"moved": moved, "dtype": str(after[0].dtype), "weights": weights, "gradients": sorted(gradients)}


def stepped(run):
    """The tensors that the optimizer moves on this process."""
    if run.sharding.kind.startswith("zero"):
        return [master.detach() for master in run.sharding._masters()]
    parameters = [p for group in run.sharding.optimizer.param_groups for p in group["params"]]
    return [(p.to_local() if hasattr(p, "to_local") else p).detach() for p in parameters]


SELF_PLAY = {"opponents": ["heads", "self=3"], "snapshot_every": 2, "snapshot_limit": 1, "memory": "none"}


def population(folder):
    """Games against own snapshots: four steps in one go, and two and two."""
    values = SMALL | SELF_PLAY | {"tasks_per_step": 4, "max_turns": 3, "num_episodes": 1, "eval_tasks": 1}
    for name, parts in (("straight", (4,)), ("halves", (2, 4))):
        for steps in parts:
            resume = "latest" if steps != parts[0] else None
            chosen = values | {"max_steps": steps, "save_steps": 2, "resume_from_checkpoint": resume}
            train(Pennies, policy=small_policy(), output_dir=str(folder / name), **chosen)
    return {"games": 4 * values["tasks_per_step"] * values["group_size"]}


def late(folder):
    """One process plays slowly; the other's watchdog must name it."""
    train(Deaf, policy=small_policy(), output_dir=str(folder / "run"), **(SMALL | {"collective_timeout_s": 40}))
    return {}


class Poisoned(Coin):
    """Puts NaN among the second process's weights, alone, when its 20th trial begins."""

    policy, resets = None, 0

    def reset(self, *, seed):
        Poisoned.resets += 1
        if Poisoned.resets == 20 and os.environ.get("RANK") == "1":
            with torch.no_grad():
                next(self.policy.model.parameters())[:] = torch.nan
        return super().reset(seed=seed)


def ruined(folder):
    """Weights that a step ruins, and outputs that are NaN on one of the processes, where each has weights of its own."""
    settings = SMALL | {"tasks_per_step": 4, "max_steps": 5, "save_steps": 1}
    step = settings | {"learning_rate": 1e30, "weight_decay": 1e10}
    results = [train(Coin, policy=small_policy(), output_dir=str(folder / "step"), **step)]
    if not {"ACCELERATE_USE_DEEPSPEED", "ACCELERATE_USE_FSDP"} & set(os.environ):
        Poisoned.policy = small_policy()
        results.append(train(Poisoned, policy=Poisoned.policy, output_dir=str(folder / "output"), **settings))
    return {"endings": [[result.learned, result.steps, result.ending] for result in results]}


SCENARIOS = {
    "walk_and_play": all_modes_walk,
    "walk": walk,
    "kl": lambda folder: walk(folder, beta=0.3),
    "critic": lambda folder: walk(folder, advantages="ppo", critic="separate", gradient_checkpointing=True),
    "checkpointing": lambda folder: walk(folder, gradient_checkpointing=True),
    "play": play,
    "resumes": resumes,
    "lora_play": lora_play,
    "best": lambda folder: play(folder, eval_steps=1, load_best_model_at_end=True, metric_for_best_model="pass@1"),
    "lora": lora,
    "lora_checkpointing": lambda folder: lora(folder, gradient_checkpointing=True),
    "lora_head": lora_head,
    "lora_kl": lora_kl,
    "masters": masters,
    "population": population,
    "late": late,
    "ruined": ruined,
}


def main():
    name, folder = sys.argv[1], Path(sys.argv[2])
    result = SCENARIOS[name](folder)
    if os.environ.get("RANK", "0") == "0":
        (folder / "result.json").write_text(json.dumps(result))
    leave(0)


if __name__ == "__main__":
    main()
