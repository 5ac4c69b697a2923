"""Flags and YAML: what wins, what fits, what is refused, and how quickly."""

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict, fields
from pathlib import Path

import pytest

import metarl_agents
from metarl_agents import config as parts
from metarl_agents import hints
from metarl_agents.addresses import ESTIMATOR, RETURN_MODE
from metarl_agents.cli import TRIAL_SETTINGS, coerce, parse_config, run_cli, run_settings, settings
from metarl_agents.config import Config
from metarl_agents.errors import CheckpointError, ConfigError, EnvironmentContractError, UnknownEnvironmentError
from metarl_agents.flags import GROUPS, written

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "transformers", "accelerate", "deepspeed", "peft", "datasets", "numpy", "tensorboard")


def flat(*argv, **options):
    return parse_config(list(argv), **options).flat()


def yaml_file(folder, text):
    file = folder / "settings.yaml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_without_flags_the_defaults_are_the_papers():
    values = flat()
    assert values == Config().flat()
    papers = {"num_episodes": 3, "group_size": 8, "tasks_per_step": 16, "learning_rate": 1e-6, "gamma_step": 0.95}
    papers |= {"gamma_traj": 0.6, "clip_low": 0.2, "dual_clip": 3.0, "entropy_coef": 0.001, "beta": 0.0}
    papers |= {"memory": "reflection", "return_mode": "paper", "advantages": "gigpo", "temperature": 1.0}
    papers |= {"eval_temperature": 0.7, "eval_top_p": 0.8, "eval_top_k": 20, "max_steps": 300, "eval_tasks": 512}
    assert {name: values[name] for name in papers} == papers


@pytest.mark.parametrize(
    ("argv", "name", "value"),
    [
        (["--max_steps", "5"], "max_steps", 5),
        (["--max_steps=5"], "max_steps", 5),
        (["--max_steps", "1e3"], "max_steps", 1000),
        (["--learning_rate", "2e-4"], "learning_rate", 2e-4),
        (["--learning_rate", "1"], "learning_rate", 1.0),
        (["--use_peft"], "use_peft", True),
        (["--use_peft", "false"], "use_peft", False),
        (["--stop_on_success", "No"], "stop_on_success", False),
        (["--memory", "none"], "memory", "none"),
        (["--dual_clip", ""], "dual_clip", None),
        (["--env_timeout_s", "none"], "env_timeout_s", None),
        (["--advantage_clip", "4"], "advantage_clip", 4.0),
        (["--env_kwargs", "{size: 6, mines: 4}"], "env_kwargs", {"size": 6, "mines": 4}),
        (["--env_kwargs", '{"size": 6}'], "env_kwargs", {"size": 6}),
        (["--env_kwargs", "size: 6"], "env_kwargs", {"size": 6}),
        (["--lora_target_modules", "q_proj,v_proj"], "lora_target_modules", ["q_proj", "v_proj"]),
        (["--report_to", "none"], "report_to", ["none"]),
        (["--lora_target_modules", "[q_proj, v_proj]"], "lora_target_modules", ["q_proj", "v_proj"]),
        (["--lora_target_modules", "[q_proj,", "v_proj]"], "lora_target_modules", ["q_proj", "v_proj"]),
        (["--lora_target_modules", "q_proj", "v_proj"], "lora_target_modules", ["q_proj", "v_proj"]),
        (["--lora_target_modules", "q_proj, v_proj"], "lora_target_modules", ["q_proj", "v_proj"]),
        (["--opponents", '["model:my runs/a=2", cfr]'], "opponents", ["model:my runs/a=2", "cfr"]),
        (["--opponents", "cfr", "equilibrium=2", "--seed", "1"], "opponents", ["cfr", "equilibrium=2"]),
        (["--report_to", "[tensorboard, none]"], "report_to", ["tensorboard", "none"]),
        (["--env", "my_package.module:MyEnv"], "env", "my_package.module:MyEnv"),
        (["--advantages", "my_module:my_advantages"], "advantages", "my_module:my_advantages"),
        (["--return_mode=my_module:my_returns"], "return_mode", "my_module:my_returns"),
        (["--num_generations", "6"], "group_size", 6),
        (["--epsilon", "0.1"], "clip_low", 0.1),
        (["--epsilon_high", "0.3"], "clip_high", 0.3),
    ],
)
def test_flags_become_values_of_the_right_type(argv, name, value):
    got = flat(*argv)[name]
    assert got == value and type(got) is type(value)


def test_flags_win_over_the_file_and_the_file_replaces_the_preset(tmp_path):
    file = yaml_file(tmp_path, "max_steps: 20\nseed: 7\nnum_generations: 4\n")
    preset = {"max_steps": 10, "max_turns": 3}
    assert flat(defaults=preset)["max_turns"] == 3
    values = flat("--config", file, "--seed", "9", defaults=preset)
    assert (values["max_steps"], values["seed"], values["group_size"]) == (20, 9, 4)
    assert values["max_turns"] == Config().flat()["max_turns"]


def test_yaml_values_are_converted_like_flags(tmp_path):
    text = "learning_rate: 1e-5\nuse_peft: yes\ndual_clip:\nenv_kwargs: {size: 4}\nreport_to: [none]\nmax_steps: 3.0\n"
    values = flat("--config", yaml_file(tmp_path, text))
    assert values["learning_rate"] == 1e-5 and values["use_peft"] is True and values["dual_clip"] is None
    assert values["env_kwargs"] == {"size": 4} and values["report_to"] == ["none"] and values["max_steps"] == 3


def test_a_preset_may_be_a_file(tmp_path):
    assert flat(defaults=yaml_file(tmp_path, "max_steps: 11"))["max_steps"] == 11
    assert flat(defaults=yaml_file(tmp_path, ""))["max_steps"] == 300


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--lerning_rate", "1"], "there is no flag `--lerning_rate`. Did you mean `--learning_rate`"),
        (["--max_stepz=1"], "Did you mean `--max_steps`"),
        (["--qqqqqq", "1"], "there is no flag `--qqqqqq`"),
        (["--max_step", "1"], "Did you mean `--max_steps`"),  # no silent abbreviations
        (["stray"], "`stray` belongs to no flag"),
        (["--env_kwargs", "{size:", "6}"], "put a value that holds blanks in quotes"),
        (["--opponents", "[a, b"], "must be a list, for example"),
        (["--report_to", "wandb"], r"`report_to` is 'wandb', but must be one of tensorboard, none\. Metrics go to"),
        (["--max_steps"], "expected one argument"),
        (["--memory", "reflections"], "must be one of .*; did you mean 'reflection'"),
        (
            ["--advantages", "rlo"],
            "`advantages` is 'rlo', but .* ppo, or your own by its address, \"my_module:.*\"; did you mean 'rloo'\\?$",
        ),
        (
            ["--return_mode", "qqq"],
            "`return_mode` is 'qqq', but .* single, or your own by its address, \"my_module:my_function\"\\.$",
        ),
        (["--max_steps", "many"], "`max_steps` is 'many', but must be a whole number"),
        (["--max_steps", "1.5"], "must be a whole number"),
        (["--max_steps", "inf"], "must be a whole number"),
        (["--learning_rate", "nan"], "must be a number"),
        (["--learning_rate", "inf"], "must be a number"),
        (["--use_peft", "maybe"], "must be true or false"),
        (["--env_kwargs", "[1, 2]"], "must be a mapping"),
        (["--config", "/nowhere.yaml"], "cannot read the settings file /nowhere.yaml"),
    ],
)
def test_mistakes_on_the_command_line_are_one_sentence(argv, message):
    with pytest.raises(ConfigError, match=message) as caught:
        flat(*argv)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_stepz: 3", "there is no setting `max_stepz`. Did you mean `max_steps`"),
        ("zzz: 3", "there is no setting `zzz`"),
        ("max_steps: true", "must be a whole number"),
        ("- a\n- b", "must hold `name: value` lines, but holds a list"),
        ("a: [", "is not valid YAML"),
        ("memory: 3", "must be one of"),
        ("advantages: 3", "`advantages` is '3', but must be one of gigpo, "),
        ("advantages:", "`advantages` is 'None', but must be one of"),
    ],
)
def test_mistakes_in_a_file_are_one_sentence(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message) as caught:
        flat("--config", yaml_file(tmp_path, text))
    assert "\n" not in str(caught.value)


LISTS = {name: kind for name, (kind, _) in settings().items() if "list[" in str(kind)}


@pytest.mark.parametrize("name", sorted(LISTS))
def test_every_list_is_read_alike_from_flags_files_and_programs(tmp_path, name):
    words = {"report_to": ["none", "tensorboard"]}.get(name, ["a", "b"])
    one, other = words
    for text in (f"[{one}, {other}]", f"{one},{other}", f"{one} {other}", f"{one}, {other}", f'["{one}","{other}"]'):
        assert flat(f"--{name}", text)[name] == words
        assert coerce({name: text}) == {name: words}
        assert (
            flat("--config", yaml_file(tmp_path, f"{name}: {text}" if text[0] == "[" else f"{name}: '{text}'"))[name]
            == words
        )
    assert flat(f"--{name}", *words)[name] == coerce({name: tuple(words)})[name] == words
    assert coerce({name: [f"{one} {other}"]}) == {name: [f"{one} {other}"]}  # what is a list already stays as it is


def test_the_words_of_neighbouring_tools_lead_to_settings_that_exist():
    known = settings()
    taken = {*known, *(alias for _, item in known.values() for alias in item.metadata["aliases"])}
    assert set(hints._OURS.values()) <= set(known) and not taken & {*hints._OURS, *hints._SENTENCES}
    for sentence in {*hints._SENTENCES.values(), *hints._FAMILIES.values()}:
        assert set(re.findall(r"`--(\w+)", sentence)) <= set(known)


FOREIGN = {
    "lr": "Use `--learning_rate`.",
    "model": "Use `--model_name_or_path`.",
    "max_completion_length": "Use `--max_new_tokens_per_turn`.",
    "kl_coef": "Use `--beta`.",
    "use_vllm": "Sampling runs inside the training processes",
    "vllm_mode": "Sampling runs inside the training processes",
    "bf16": "`accelerate launch --mixed_precision bf16 ...`",
    "fp16": "Precision belongs to the launcher",
    "per_device_train_batch_size": "`--max_tokens_per_micro_batch` bounds memory",
    "gradient_accumulation_steps": "`--tasks_per_step` times",
    "packing": "filled by tokens",
    "push_to_hub": "`hf upload NAME FOLDER`",
    "num_train_epochs": "set `--max_steps`",
    "deepspeed": "Sharding belongs to the launcher",
    "eval_strategy": "`--eval_steps 50`",
    "load_in_4bit": "`--dtype bfloat16`",
    "no_stop_on_success": "Write `--stop_on_success false`.",
}


@pytest.mark.parametrize("word", FOREIGN)
def test_words_of_neighbouring_tools_are_answered_by_what_to_use_here(tmp_path, word):
    for given in (word, word.replace("_", "-")):
        with pytest.raises(ConfigError) as caught:
            flat(f"--{given}", "3")
        assert str(caught.value).startswith(f"there is no flag `--{given}`. ") and FOREIGN[word] in str(caught.value)
    as_setting = re.sub(r"`--(\w+) ([^`]+)`", r"`\1: \2`", FOREIGN[word]).replace("`--", "`")
    with pytest.raises(ConfigError, match=f"there is no setting `{word}`. .*{re.escape(as_setting)}"):
        flat("--config", yaml_file(tmp_path, f"{word}: 3"))
    with pytest.raises(ConfigError, match=f"there is no setting `{word}`. .*{re.escape(as_setting)}"):
        metarl_agents.train(**{word: 3})


def test_names_are_unique_over_all_parts_and_survive_a_round_trip():
    names = [item.name for part in fields(Config) for item in fields(part.default_factory)]
    aliases = [alias for _, item in settings().values() for alias in item.metadata["aliases"]]
    assert len(set(names + aliases)) == len(names + aliases)
    config = Config.from_flat({"max_steps": 3, "gamma_traj": 0.9, "env_kwargs": {"size": 5}})
    assert Config.from_flat(config.flat()) == config
    assert coerce(config.flat()) == config.flat()


def test_every_setting_says_what_it_is_and_no_two_configs_share_a_mutable_default():
    assert all(item.metadata["help"] for _, item in settings().values())
    one, other = Config(), Config()
    one.trial.env_kwargs["size"] = 1
    one.run.report_to.append("none")
    assert other.trial.env_kwargs == {} and other.run.report_to == ["tensorboard"]


OUT_OF_RANGE = {
    "gamma_step": (-0.1, 1.1), "gamma_traj": (-0.1, 1.1), "gae_lambda": (2,), "step_weight": (-1,),
    "advantage_clip": (0, -1), "group_size": (0,), "num_episodes": (0,), "max_turns": (0,), "tasks_per_step": (0,),
    "invalid_action_penalty": (-1,), "length_penalty": (-1,), "env_timeout_s": (0,), "env_workers": (-1,), "learning_rate": (-1e-6, 1e39),
    "beta": (-0.1,), "clip_low": (-0.2,), "dual_clip": (0.5,), "adam_beta1": (1.0,), "max_grad_norm": (0,),
    "updates_per_batch": (0,), "max_tokens_per_micro_batch": (0,), "value_clip": (-1,), "temperature": (-1,),
    "top_p": (0, 1.5), "top_k": (-1,), "min_p": (1.5,), "repetition_penalty": (0,), "max_new_tokens_per_turn": (0,),
    "max_prompt_tokens": (0,), "eval_temperature": (-1,), "eval_top_p": (0,), "lora_r": (0,), "lora_dropout": (1.0,),
    "max_steps": (-1,), "save_steps": (-1,), "logging_steps": (0,), "save_total_limit": (0,), "eval_tasks": (0,),
    "eval_steps": (-1,), "seed": (-1,), "warmup_steps": (-1,), "weight_decay": (-0.1,), "entropy_coef": (-1,),
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, bad in OUT_OF_RANGE.items() for value in bad])
def test_numbers_out_of_range_are_refused_by_name(name, value):
    with pytest.raises(ConfigError, match=f"^`{name}` is .* but must be (at least|between) .*`--{name}`"):
        flat(f"--{name}={value}")


def test_a_part_checks_its_numbers_however_it_is_made():
    with pytest.raises(ConfigError, match="gamma_traj"):
        parts.CreditConfig(gamma_traj=float("nan"))
    with pytest.raises(ConfigError, match="group_size"):
        parts.TrialConfig(group_size=0)
    with pytest.raises(ConfigError, match="`return_mode` is 'papers', .*; did you mean 'paper'?"):
        parts.CreditConfig(return_mode="papers")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--group_size", "1"], "`gigpo` compares a trial with the other trials"),
        (["--group_size", "1", "--advantages", "rloo"], "needs at least 2"),
        (["--temperature", "0"], "training must explore"),
        (["--lora_dropout", "0.1", "--use_peft"], "leave it out"),
        (["--load_best_model_at_end", "--num_episodes", "2"], "measures pass@1, pass@2"),
        (["--load_best_model_at_end", "--eval_steps", "0"], "needs validation"),
        (["--load_best_model_at_end", "--metric_for_best_model", "reward"], "measures pass@1, pass@2, pass@3"),
    ],
)
def test_settings_that_contradict_each_other(argv, message):
    with pytest.raises(ConfigError, match=message):
        flat(*argv)


def test_group_size_1_is_fine_where_nothing_is_compared():
    for estimator in ("reinforce", "ppo"):
        assert flat("--group_size", "1", "--advantages", estimator)["group_size"] == 1


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("`a` is 1."),
        CheckpointError("no space."),
        EnvironmentContractError("it lies."),
        UnknownEnvironmentError("no environment is called x."),
    ],
)
def test_a_user_s_mistake_ends_with_status_2_and_a_single_line(error, capsys):
    def main():
        raise error

    with pytest.raises(SystemExit) as left:
        run_cli(main)
    assert left.value.code == 2
    assert capsys.readouterr().err == f"{type(error).__name__}: {error.args[0]}\n"


def test_other_errors_keep_their_traceback_and_the_status_of_main_is_the_exit_status():
    with pytest.raises(ZeroDivisionError):
        run_cli(lambda: 1 / 0)
    with pytest.raises(SystemExit) as left:
        run_cli(lambda: 130)
    assert left.value.code == 130


def python(code, *argv):
    return subprocess.run([sys.executable, *code, *argv], capture_output=True, text=True, timeout=60, cwd=ROOT)


WRONG = "from metarl_agents import cli; from metarl_agents.errors import ConfigError as E\n{}\ncli.run_cli({})"


def wrong(raised, rank="1", before=""):
    """A process of several whose `main` raises what is told."""
    code = WRONG.format(before, f"lambda: (_ for _ in ()).throw({raised})")
    environment = os.environ | {"RANK": rank, "WORLD_SIZE": "2"}
    return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment)


def test_a_mistake_of_all_is_told_by_the_first_process_while_the_others_wait_to_be_ended():
    handler = "import signal; signal.signal(signal.SIGTERM, lambda *_: None)"  # as training does
    other = wrong("E('so.')", before=handler)
    assert wrong("E('so.')", rank="0").communicate(timeout=30)[1] == "ConfigError: so.\n"
    with pytest.raises(subprocess.TimeoutExpired):
        other.wait(timeout=1)
    other.terminate()  # what a launcher does, once the first has failed
    assert other.communicate(timeout=10)[1] == "" and other.returncode == -signal.SIGTERM


def test_a_mistake_that_no_other_process_tells_is_told_by_the_one_that_made_it():
    left_alone = wrong("E('so.')", before="cli.TELLING_S = 0.1")
    assert left_alone.communicate(timeout=30)[1] == "ConfigError: so.\n" and left_alone.returncode == 2


@pytest.mark.parametrize("lines", [1, 100_000])
def test_output_that_nobody_reads_to_its_end_is_no_failure_to_tell(lines):
    code = f"from metarl_agents import cli\ncli.run_cli(lambda: [print('a table') for _ in range({lines})] and None)"
    program = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
    program.stdout.close()
    assert program.stderr.read() == b"" and program.wait(timeout=30) == 128 + signal.SIGPIPE


def test_a_broken_pipe_of_the_program_s_own_is_told(capfd):
    def main():
        raise BrokenPipeError("a worker has gone")

    with capfd.disabled(), pytest.raises(BrokenPipeError):
        run_cli(main)


def test_importing_the_package_and_reading_flags_imports_nothing_heavy():
    code = (
        "import sys, metarl_agents, metarl_agents.cli as cli, metarl_agents.types\n"
        "metarl_agents.Config, metarl_agents.ConfigError, metarl_agents.Environment\n"
        "cli.parse_config(['--max_steps', '3'])\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = python(["-c", code])
    assert done.stdout.strip() == "[]", done.stderr


def help_of(*argv):
    """{setting: what `--help` prints for it}, and the whole text."""
    started = time.perf_counter()
    done = python([*argv, "--help"])
    assert done.returncode == 0 and time.perf_counter() - started < 5, done.stderr
    pieces = re.split(r"^  --(\w+)", done.stdout, flags=re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in zip(pieces[1::2], pieces[2::2], strict=True)}, done.stdout


@pytest.mark.parametrize("recipe", sorted(path.name for path in (ROOT / "recipes").glob("train_*.py")))
def test_help_of_a_recipe_is_quick_and_shows_every_setting_with_the_recipe_s_own_default(recipe):
    shown, text = help_of(f"recipes/{recipe}")
    name = recipe.removeprefix("train_").removesuffix(".py")
    own = flat(defaults=ROOT / "recipes" / "configs" / name / "tiny.yaml")
    assert {setting: f"[{written(own[setting])}]" in shown[setting] for setting in settings()} == dict.fromkeys(
        own, True
    )
    headings = [f"\n{heading}:\n" for heading in GROUPS.values()]
    assert [text.index(heading) for heading in headings] == sorted(text.index(heading) for heading in headings)


def test_help_shows_what_the_whole_command_would_use(tmp_path):
    file = yaml_file(tmp_path, "max_turns: 31\nreport_to: [none]\n")
    shown, _ = help_of("recipes/train_minesweeper.py", "--config", file, "--seed", "77", "--typo")
    assert "[31]" in shown["max_turns"] and "[none]" in shown["report_to"] and "[77]" in shown["seed"]
    (tmp_path / "config.yaml").write_text("env: kuhn\nmodel_name_or_path: tiny\nmax_turns: 4\n", encoding="utf-8")
    shown, text = help_of("recipes/evaluate.py", "--model_name_or_path", str(tmp_path))
    assert "[kuhn]" in shown["env"] and "[4]" in shown["max_turns"] and "--agent" in text
    assert "learning_rate" not in shown  # it shapes training only


def test_a_mistake_in_a_recipe_s_flags_is_told_before_anything_heavy():
    started = time.perf_counter()
    done = python(["recipes/train_minesweeper.py", "--gama_traj", "0.9"])
    assert done.returncode == 2 and time.perf_counter() - started < 5
    assert done.stderr == "ConfigError: there is no flag `--gama_traj`. Did you mean `--gamma_traj`?\n"


def test_a_word_that_names_no_estimator_is_told_before_anything_heavy_and_an_address_imports_nothing_yet():
    code = (
        "import sys; from metarl_agents.cli import parse_config; from metarl_agents.errors import ConfigError\n"
        "parse_config(['--advantages', 'no_such_module:f', '--return_mode', 'no_such_module:g'])\n"
        "try: parse_config(['--advantages', 'rlo'])\n"
        f"except ConfigError as error: print(error, [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = python(["-c", code])
    known = ", ".join(ESTIMATOR.names)
    address = 'or your own by its address, "my_module:my_function"'
    expected = f"`advantages` is 'rlo', but must be one of {known}, {address}; did you mean 'rloo'? []\n"
    assert done.stdout == expected, done.stderr


def test_help_lists_the_names_of_estimators_and_return_modes(capsys):
    with pytest.raises(SystemExit):
        parse_config(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for kind, default in ((ESTIMATOR, "gigpo"), (RETURN_MODE, "paper")):
        assert f"{{{', '.join(kind.names)}}} [{default}]" in shown


def test_every_public_name_can_be_imported():
    for name in metarl_agents.__all__:
        assert getattr(metarl_agents, name) is not None
    assert set(metarl_agents.__all__) == set(metarl_agents._PUBLIC) | {"__version__"}
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        metarl_agents.trian  # noqa: B018


WITHOUT = """
import sys
for name in ("deepspeed", "peft", "datasets"):
    sys.modules[name] = None
sys.path.insert(0, "tests/training")
from training_helpers import Coin, run_training
result = run_training(sys.argv[1], max_steps=1)
print([result.steps, [name for name in ("deepspeed", "peft", "datasets") if sys.modules[name]]])
"""


def test_a_machine_without_deepspeed_peft_and_datasets_trains(tmp_path):
    done = python(["-c", WITHOUT, str(tmp_path / "run")])
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip().splitlines()[-1] == "[1, []]"
    assert (tmp_path / "run" / "model.safetensors").is_file()


NOT_OF_A_TRIAL = {
    "model": "model_name_or_path gguf_file dtype attn_implementation trust_remote_code gradient_checkpointing",
    "sampling": "temperature top_p top_k min_p repetition_penalty max_tokens_per_generate_batch",
    "eval_sampling": "",
    "trial": "group_size tasks_per_step env_workers tasks",
}
"""Settings that a run does not bring along: of its training, of its machine, of one command, or a matter of trust."""


@pytest.mark.parametrize("part", NOT_OF_A_TRIAL)
def test_every_setting_beside_a_trial_is_either_brought_by_a_run_or_listed_as_no_part_of_it(part):
    names = {name for name in asdict(getattr(Config(), part)) if not name.startswith(("lora_", "use_peft", "merge_"))}
    left_out = set(NOT_OF_A_TRIAL[part].split())
    assert names - set(TRIAL_SETTINGS) == left_out
    assert names - left_out <= set(TRIAL_SETTINGS)


def test_a_model_inside_a_run_knows_the_settings_of_its_run(tmp_path):
    (tmp_path / "config.yaml").write_text("env: kuhn\nmodel_name_or_path: tiny\nmax_turns: 4\nlearning_rate: 1.0\n")
    for place in (".", "checkpoint-3", "merged", "population/snapshot-2"):
        assert run_settings(tmp_path / place) == {"env": "kuhn", "max_turns": 4}
    for place in ("population", "other", "population/snapshot-2/checkpoint-1", "snapshot-2"):
        assert run_settings(tmp_path / place) == {}


@pytest.mark.parametrize(
    ("keywords", "names"), [("{opponents: [a, c]}", "a c"), ("{opponent: c}", "c"), ("{opponents: c}", "c")]
)
def test_opponents_among_keywords_do_not_silently_yield_to_those_of_the_preset(keywords, names):
    preset = {"env_kwargs": {"opponents": ["a", "b"]}, "opponents": ["a=2", "b"]}
    with pytest.raises(ConfigError, match=f'the preset\'s `opponents` .a=2 b. would be met: .*`--opponents "{names}"`'):
        flat("--env_kwargs", keywords, defaults=preset)


def test_opponents_among_keywords_may_stand_beside_a_list_that_says_the_same_or_was_given_too():
    preset = {"env_kwargs": {"opponents": ["a", "b"]}, "opponents": ["a=2", "b"]}
    assert flat("--env_kwargs", "{opponents: [b, a], rounds: 3}", defaults=preset)["opponents"] == ["a=2", "b"]
    assert flat("--env_kwargs", "{opponents: [c]}", "--opponents", "c d", defaults=preset)["opponents"] == ["c", "d"]
    assert flat("--env_kwargs", "{rounds: 3}", defaults=preset)["opponents"] == ["a=2", "b"]
    assert flat("--env_kwargs", "{opponents: [c]}", defaults={"env_kwargs": {}})["opponents"] is None
