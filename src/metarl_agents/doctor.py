"""Check a model before it is trained or played: versions, device, what must hold of the model, memory.

    python -m metarl_agents.doctor Qwen/Qwen3-4B
    python -m metarl_agents.doctor runs/minesweeper-20260101-120000 --env minesweeper
    python -m metarl_agents.doctor my_model --env my_package.my_env:MyEnv --max_prompt_tokens 4096

Every check prints `ok` and what was found, or FAIL and a sentence with a cure; the exit status is 1 if one failed. With
`--env` the environment's first prompt is encoded and answered once.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import shutil
import sys
import textwrap
import time
from collections.abc import Callable
from typing import Any

from metarl_agents.cli import model_settings, parse_with_extras, run_cli, trial_defaults
from metarl_agents.config import Config
from metarl_agents.errors import ConfigError, EnvironmentContractError, UnknownEnvironmentError
from metarl_agents.flags import build_parser

SETTINGS = (
    *("env_kwargs", "wording", "max_prompt_tokens", "max_new_tokens_per_turn", "max_tokens_per_micro_batch"),
    *("dtype", "gguf_file", "trust_remote_code", "attn_implementation", "enable_thinking"),
    *("lora_r", "lora_alpha", "lora_target_modules"),
)
PACKAGES = ("torch", "transformers", "accelerate", "peft", "deepspeed", "metarl-agents")
_WIDEST = 100
_LABEL = 36
_GIB, _MIB = 2**30, 2**20


def main(argv: list[str] | None = None) -> int:
    """Check a model, print the report, and return the exit status."""
    config, extras = parse_with_extras(argv, _parser(), _defaults)
    report = Report(sys.stdout)
    report.title(f"Doctor: {config.model.model_name_or_path}")
    _machine(report, config)
    policy = _checks(report, config, asked_env=extras["asked_env"] is not None)
    if policy is not None and extras["asked_env"] is not None:
        _environment(report, config, policy)
    if policy is not None:
        _memory(report, config, policy)
    failed = report.failed
    report.title("All checks passed." if not failed else f"{failed} check{'s' * (failed > 1)} failed.")
    return int(failed > 0)


class Report:
    """Writes lines of `ok` or FAIL, and counts the latter."""

    def __init__(self, out: Any) -> None:
        """Write to `out`."""
        self._out = out
        self._width = min(_WIDEST, shutil.get_terminal_size().columns)
        self.failed = 0

    def title(self, text: str) -> None:
        """Write the heading of a part."""
        self._out.write(f"\n{text}\n")
        self._out.flush()

    def fact(self, name: str, value: str) -> None:
        """Write one line that is neither good nor bad."""
        self._entry(f"  {name:12}", value)

    def check(self, title: str, run: Callable[[], str]) -> bool:
        """Run one check, write what came of it, and return whether it passed."""
        try:
            found = run()
        except (ConfigError, EnvironmentContractError, UnknownEnvironmentError) as error:
            self.failed += 1
            self._entry(f"  FAIL  {title}", "")
            self._entry("        ", str(error))
            return False
        self._entry(f"  ok    {title:{_LABEL - 8}}  ", found)
        return True

    def skipped(self, title: str) -> None:
        """Write that a check was not tried."""
        self._entry(f"  -     {title:{_LABEL - 8}}  ", "not tried")

    def table(self, rows: list[tuple[str, ...]]) -> None:
        """Write rows of equal length, the first of which are headings; numbers stand on the right."""
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        for first, *rest in rows:
            numbers = "  ".join(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))
            self._out.write(f"  {first:{widths[0]}}  {numbers}\n")
        self._out.flush()

    def _entry(self, label: str, text: str) -> None:
        lines = textwrap.wrap(text, max(40, self._width - len(label)), break_on_hyphens=False) or [""]
        self._out.write("\n".join((label + lines[0], *(" " * len(label) + line for line in lines[1:]))).rstrip() + "\n")
        self._out.flush()


def _parser() -> argparse.ArgumentParser:
    parser = build_parser(__doc__ or "", only=SETTINGS)
    parser.prog = "python -m metarl_agents.doctor"
    parser.usage = "%(prog)s MODEL [--env ENV] [--SETTING VALUE ...]"
    parser.add_argument("model_name_or_path", metavar="MODEL", help="hub name, folder of a model or run, or `tiny`")
    parser.add_argument("--env", dest="asked_env", metavar="ENV", help="also try it on this environment")
    return parser


def _defaults(flags: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of the model's own run, or those that the tiny model knows."""
    model, env = flags.get("model_name_or_path", "tiny"), flags["asked_env"]
    asked = {} if env is None else {"env": env}
    return {"model_name_or_path": model, **trial_defaults(model_settings(model, env), flags | asked), **asked}


def _machine(report: Report, config: Config) -> None:
    def version(package: str) -> str:
        try:
            return f"{package} {importlib.metadata.version(package)}"
        except importlib.metadata.PackageNotFoundError:
            return f"no {package}"

    report.fact("versions", ", ".join([f"python {platform.python_version()}", *map(version, PACKAGES)]))
    import torch

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
    threads = torch.get_num_threads()
    report.fact("machine", f"{threads} thread{'s' * (threads > 1)}, {memory / _GIB:.1f} GiB of memory")
    devices = ["cpu, no accelerator found"]
    if torch.cuda.is_available():
        properties = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
        devices = [f"{found.name}, {found.total_memory / _GIB:.0f} GiB" for found in properties]
    elif torch.accelerator.is_available():
        devices = [str(torch.accelerator.current_accelerator())]
    report.fact("device", "; ".join(devices))
    launched = os.environ.get("ACCELERATE_MIXED_PRECISION", "no")
    report.fact("precision", f"weights in {config.model.dtype}, the launcher's mixed precision: {launched}")


def _checks(report: Report, config: Config, *, asked_env: bool) -> Any | None:
    """Load the model and run its checks; return it where all passed."""
    from metarl_agents.policy.model_check import CHECKS, runnable

    report.title("Checks")
    loaded: list[Any] = []
    if not report.check("the model loads", lambda: _load(config, loaded, asked_env=asked_env)):
        return None
    (policy,) = loaded
    ends = ", ".join(repr(policy.decode_raw([number])) for number in policy.end_ids)
    report.check("chat template", lambda: f"shows what is said; an answer ends with {ends}")
    for note in policy.template.notes:
        report.fact("", f"note: {note}")
    started, passes = time.perf_counter(), True
    with runnable(policy):
        for check in CHECKS:
            # A later check would repeat the failure of an earlier one in other words.
            if passes:
                passes = report.check(check.title, lambda check=check: check(policy))
            else:
                report.skipped(check.title)
    report.fact("", f"(checked in {time.perf_counter() - started:.2f} s)")
    return policy if passes else None


def _load(config: Config, loaded: list[Any], *, asked_env: bool) -> str:
    """Put the policy into `loaded` and return a description of it."""
    from metarl_agents.envs.factory import environment_factory, opened, tiny_model_name
    from metarl_agents.policy.loading import load_policy, needs_warm_start
    from metarl_agents.training.warm_start import untaught_tiny_policy

    started = time.perf_counter()
    make_env = environment_factory(config.trial) if asked_env else None
    tiny_name = None
    if make_env is not None:
        with opened(make_env) as env:
            tiny_name = tiny_model_name(env)
    untaught = needs_warm_start(config.model, tiny_name)
    if untaught and make_env is not None:
        policy = untaught_tiny_policy(make_env, config)
    else:
        policy = load_policy(config.model, tiny_name=tiny_name, check=False)
    loaded.append(policy)
    parameters = list(policy.model.parameters())
    count, size = sum(p.numel() for p in parameters), sum(p.nbytes for p in parameters)
    context = f"context {policy.context_length:,} tokens" if policy.context_length else "no stated context"
    note = ", not yet taught" if untaught else ""
    seconds = time.perf_counter() - started
    return (
        f"{type(policy.model).__name__}{note}: {count:,} parameters, {_size(size)} in "
        f"{str(policy.model.dtype).removeprefix('torch.')}, {context}, loaded in {seconds:.1f} s"
    )


def _environment(report: Report, config: Config, policy: Any) -> None:
    """Encode the environment's first prompt and let the model answer it."""
    from metarl_agents.envs.factory import environment_factory
    from metarl_agents.rollout.runner import TrialRunner
    from metarl_agents.rollout.tasks import evaluation_seeds
    from metarl_agents.training.setup import fit_context

    report.title(f"Environment {config.trial.env}")
    runner = TrialRunner(environment_factory(config.trial), evaluation_seeds("test", 1)[0], 0, config.trial)

    def first_prompt() -> str:
        _refuse_crash(runner)
        fit_context(config, policy)
        length, limit = len(policy.encode(runner.messages())), config.sampling.max_prompt_tokens
        if length > limit:
            raise ConfigError(
                f"the first prompt has {length} tokens, but `max_prompt_tokens` and the model's context allow {limit}: "
                "raise `--max_prompt_tokens`, shorten the environment's texts, or choose a model with a longer context."
            )
        beside = f", the context {policy.context_length:,} with the answer" if policy.context_length else ""
        return f"{length} tokens; {limit:,} are allowed{beside}"

    if report.check("the first prompt fits", first_prompt):
        report.check("an answer is played", lambda: _answer(config, policy, runner))


def _answer(config: Config, policy: Any, runner: Any) -> str:
    from metarl_agents.policy.sampling import Sampling

    prompt, started = policy.encode(runner.messages()), time.perf_counter()
    (response,) = policy.generate([prompt], Sampling.for_evaluation(config), seed=0)
    seconds = time.perf_counter() - started
    runner.receive(prompt, response)
    _refuse_crash(runner)
    turn = next(iter(runner.trial.rows()))[2]
    shown = textwrap.shorten(response.text, 60, placeholder=" ...") or "nothing"
    meaning = "no action was found in it" if turn.invalid else f"action {turn.shown_action}, reward {turn.reward:g}"
    return f'"{shown}": {meaning} ({len(response.ids)} tokens in {seconds:.1f} s)'


def _refuse_crash(runner: Any) -> None:
    if runner.trial.error is not None:
        raise ConfigError(f"the environment failed ({runner.trial.error}): run `check_environment` on it.")


def _memory(report: Report, config: Config, policy: Any) -> None:
    """Print what training takes with and without recomputation and adapters; the policy gets adapters on the way."""
    from metarl_agents.policy.adapters import add_adapters
    from metarl_agents.policy.footprint import activations_per_token, checkpointed_per_token, training_state
    from metarl_agents.policy.model_check import runnable

    tokens = config.update.max_tokens_per_micro_batch
    report.title(f"LoRA, and the memory of an update in one process with micro-batches of {tokens:,} tokens")
    rows = [("", "weights and optimizer", "activations", "together")]

    def add(name: str) -> None:
        state, per_token = training_state(policy.model), activations_per_token(policy)
        for flag, kept in (("", per_token), ("--gradient_checkpointing", checkpointed_per_token(policy, per_token))):
            sizes = (state, kept * tokens, state + kept * tokens)
            rows.append((" ".join(filter(None, (name, flag))) or "all weights", *map(_size, sizes)))

    def with_adapters() -> str:
        add_adapters(policy, config.model)
        trained = [(name, p) for name, p in policy.model.named_parameters() if p.requires_grad]
        kinds = sorted({name.split(".lora_")[0].rpartition(".")[2] for name, _ in trained})
        return f"{sum(p.numel() for _, p in trained):,} weights on {', '.join(kinds)}"

    with runnable(policy):
        if not hasattr(policy.model, "peft_config"):
            add("")
        if report.check("LoRA adapters fit", with_adapters):
            policy.model.eval()
            add("--use_peft")
    report.table(rows)
    report.fact("", "weights, gradients and AdamW counted; activations measured on short rows and scaled")


def _size(count: float) -> str:
    return f"{count / _GIB:.1f} GiB" if count >= _GIB else f"{count / _MIB:.1f} MiB"


if __name__ == "__main__":
    run_cli(main)
