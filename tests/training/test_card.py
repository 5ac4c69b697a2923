"""The card of a run: found facts, both results, and what training leaves beside the model."""

import json
import time
from functools import partial
from types import SimpleNamespace

import pytest
import yaml
from markdown_it import MarkdownIt

from metarl_agents import make
from metarl_agents.config import Config
from metarl_agents.evaluation import EvaluationResult
from metarl_agents.tracking.model_card import CARD_FILE, is_unedited


def config(**settings):
    return Config.from_flat(settings)


def parsed(card):
    """(front matter, tokens of the body) as a Markdown reader with GitHub's tables sees them."""
    _, matter, body = card.split("---\n", 2)
    return yaml.safe_load(matter), MarkdownIt("commonmark", {"html": True}).enable("table").parse(body)


def shown(tokens):
    """What a reader sees: the text of all lines, markup gone."""
    inline = [child for token in tokens for child in token.children or ()]
    return " ".join(child.content for child in inline if child.type in ("text", "code_inline"))


def headings(tokens):
    return [after.content for token, after in zip(tokens, tokens[1:], strict=False) if token.type == "heading_open"]


class Env:
    """Stands for an environment of somebody's."""

    tiny_model = "minesweeper_4x4"


def run_in(folder, *, loaded="", make_env=Env, adapters=None, **settings):
    """The parts of a run that its card reads."""
    from metarl_agents.training.checkpoint import Progress

    folder.mkdir(exist_ok=True)
    model = SimpleNamespace(name_or_path=loaded)
    if adapters is not None:
        model.peft_config = {"default": SimpleNamespace(base_model_name_or_path=adapters)}
    return SimpleNamespace(
        config=config(**settings),
        policy=SimpleNamespace(model=model),
        make_env=make_env,
        output_dir=folder,
        progress=Progress(step=7, optimizer_steps=9, num_tokens=123_456, num_episodes=789),
        accelerator=SimpleNamespace(num_processes=2),
        population=None,
        results={},
        device=SimpleNamespace(type="cuda"),
        logger=SimpleNamespace(message=lambda text: folder.joinpath("said").write_text(text)),
    )


def result(step, solved_at=(0, None, 1), **changes):
    values = {
        "label": "x",
        "env": "minesweeper",
        "env_kwargs": {},
        "num_episodes": 3,
        "max_turns": 12,
        "memory": "reflection",
        "sampling": "temperature 0.7",
        "split": "test",
        "task_seeds": list(range(len(solved_at))),
        "solved_at": list(solved_at),
        "step": step,
    }
    return EvaluationResult(**(values | changes))


def card_of(run):
    from metarl_agents.training.card import write_model_card

    write_model_card(run, run.output_dir, {"torch": "2.13.0"})
    return (run.output_dir / CARD_FILE).read_text(encoding="utf-8")


def test_the_card_of_a_run_tells_both_results_with_intervals_and_what_it_cost(tmp_path):
    run = run_in(tmp_path / "run", model_name_or_path="Qwen/Qwen3-4B")
    result(0, [None, None, 0]).to_json(run.output_dir / "eval" / "before.json")
    result(7).to_json(run.output_dir / "eval" / "after.json")
    text = shown(parsed(card_of(run))[1])
    before, after = result(0, [None, None, 0]), result(7)
    for row in (before, after):
        low, high = row.interval(3)
        assert f"{100 * row.pass_at(3):.1f} [{100 * low:.1f}, {100 * high:.1f}]" in text
    assert "before training" in text and "after training" in text
    assert "789" in text and "123,456" in text and "torch 2.13.0" in text and "cuda, 2 processes" in text


def test_a_result_of_other_weights_is_left_out(tmp_path):
    run = run_in(tmp_path / "run", model_name_or_path="Qwen/Qwen3-4B")
    result(0).to_json(run.output_dir / "eval" / "before.json")
    result(5).to_json(run.output_dir / "eval" / "after.json")
    card = card_of(run)
    assert "before training" in card and "after training" not in card


def test_a_damaged_result_does_not_cost_the_card(tmp_path):
    run = run_in(tmp_path / "run", model_name_or_path="Qwen/Qwen3-4B")
    (run.output_dir / "eval").mkdir()
    (run.output_dir / "eval" / "before.json").write_text("{")
    assert "Not measured." in card_of(run)


def test_an_error_message_of_an_environment_stays_text(tmp_path):
    run = run_in(tmp_path / "run", model_name_or_path="Qwen/Qwen3-4B")
    crash = [{"seed": 1, "error": "<script>alert(1)</script> | `x` |\n# no"}]
    result(7, crashed=crash, env_kwargs={"<b>": "<i>"}).to_json(run.output_dir / "eval" / "after.json")
    _, tokens = parsed(card_of(run))
    assert "<script>alert(1)</script>" in shown(tokens) and headings(tokens)[-1] == "Citation"
    html = [child for token in tokens for child in token.children or () if child.type == "html_inline"]
    assert html == []


def test_an_edited_card_of_a_run_stays_and_the_user_is_told(tmp_path):
    run = run_in(tmp_path / "run", model_name_or_path="Qwen/Qwen3-4B")
    card_of(run)
    (run.output_dir / CARD_FILE).write_text("mine")
    assert card_of(run) == "mine" and (run.output_dir / "README.new.md").is_file()
    assert "README.new.md" in (run.output_dir / "said").read_text()


def test_a_full_disk_costs_the_card_and_not_the_run(tmp_path, monkeypatch):
    from metarl_agents.training import card as module

    def refuse(*_):
        raise OSError("no space left")

    monkeypatch.setattr(module, "write_card", refuse)
    run = run_in(tmp_path / "run", model_name_or_path="Qwen/Qwen3-4B")
    module.write_model_card(run, run.output_dir, {})
    assert "no space left" in (run.output_dir / "said").read_text()


def test_the_base_is_named_as_what_it_is(tmp_path):
    from metarl_agents.policy.loading import shipped_folder
    from metarl_agents.training.card import card_facts

    def base(**given):
        found = card_facts(run_in(tmp_path / "run", **given), {}, is_adapter=False)
        return found.base, found.base_on_hub, found.license

    shipped = str(shipped_folder("minesweeper_4x4"))
    built_in = ("the built-in tiny model minesweeper_4x4", None, "apache-2.0")
    made = ("a small model made for this run", None, None)
    own = tmp_path / "run"
    assert base(loaded=shipped) == base(loaded=str(own / "checkpoint-3")) == base(adapters=shipped) == built_in
    assert base() == base(adapters=str(own / "base")) == base(loaded=str(own / "checkpoint-3"), make_env=object) == made
    assert base(loaded="some/model") == ("some/model", "some/model", None)
    assert base(model_name_or_path="a/b/c.gguf") == ("a/b/c.gguf", "a/b", None)
    assert base(model_name_or_path="smollm2")[1:] == ("HuggingFaceTB/SmolLM2-135M-Instruct", "apache-2.0")
    local = tmp_path / "local"
    local.mkdir()
    assert base(model_name_or_path=str(local)) == (str(local), None, None)
    (local / CARD_FILE).write_text("---\nlicense: mit\nbase_model: x\n---\n# A model\n")
    assert base(model_name_or_path=str(local)) == (str(local), None, "mit")


def test_keywords_of_the_environment_are_found_behind_partials(tmp_path):
    from metarl_agents.training.card import card_facts

    env = partial(partial(Env, size=4, mines=3), mines=2)
    run = run_in(tmp_path / "run", make_env=env, model_name_or_path="Qwen/Qwen3-4B")
    assert card_facts(run, {}, is_adapter=False).env_keywords == {"size": 4, "mines": 2}


def test_a_card_says_the_same_of_an_environment_in_worker_processes(tmp_path):
    from metarl_agents.config import TrialConfig
    from metarl_agents.envs.factory import environment_workers

    run = run_in(tmp_path / "run", make_env=partial(make, "minesweeper", size=4, mines=2, wording="compact"))
    card = card_of(run)
    with environment_workers(run.make_env, TrialConfig(env_workers=1)) as run.make_env:
        assert card_of(run) == card and "mines" in card


class Brittle(Env):
    """Cannot be built any more, cannot be closed, or leaves the program; it counts what was."""

    open = 0

    def __init__(self, error=None):
        if error is not None:
            raise error
        Brittle.open += 1

    def close(self):
        Brittle.open -= 1
        raise SystemExit(4)


@pytest.mark.parametrize("error", [None, OSError("the server is gone"), SystemExit(3)])
def test_a_failing_environment_does_not_cost_the_card(tmp_path, error):
    from metarl_agents.policy.loading import shipped_folder
    from metarl_agents.training.card import card_facts

    run = run_in(tmp_path / "run", make_env=partial(Brittle, error), loaded=str(shipped_folder("minesweeper_4x4")))
    assert card_facts(run, {}, is_adapter=False).base == "the built-in tiny model minesweeper_4x4"
    assert card_of(run) and Brittle.open == 0


def test_an_environment_that_hangs_does_not_hold_up_the_card(tmp_path):
    from metarl_agents.training.card import card_facts

    run = run_in(tmp_path / "run", make_env=lambda: time.sleep(30), env_timeout_s=0.1)
    started = time.monotonic()
    assert card_facts(run, {}, is_adapter=False).base == "a small model made for this run"
    assert time.monotonic() - started < 10


def test_the_environment_that_is_asked_for_its_tiny_model_is_closed():
    from metarl_agents.training.start import build_policy

    policy = build_policy(config(model_name_or_path="tiny"), Brittle)
    assert policy is not None and Brittle.open == 0


def train_doors(folder, **settings):
    """A run of two steps."""
    from metarl_agents import train
    from metarl_agents.environments.two_doors import TwoDoors

    sizes = {"num_episodes": 2, "max_turns": 2, "group_size": 2, "tasks_per_step": 2, "max_new_tokens_per_turn": 3}
    short = {"eval_tasks": 2, "eval_samples": 0, "eval_steps": 1, "eval_validation_tasks": 2, "report_to": ["none"]}
    short |= {"max_prompt_tokens": 200, "save_steps": 0, "max_steps": 2, "save_trajectories_steps": 0}
    return train(TwoDoors, output_dir=str(folder), **(sizes | short | settings))


@pytest.fixture
def small(make_model, tiny_tokenizer):
    from metarl_agents.policy.policy import Policy

    return Policy(make_model().eval(), tiny_tokenizer)


def test_training_leaves_a_card_beside_the_model(tmp_path, small):
    train_doors(tmp_path / "run", policy=small)
    card = (tmp_path / "run" / CARD_FILE).read_text(encoding="utf-8")
    matter, tokens = parsed(card)
    assert matter["library_name"] == "transformers" and "before training" in card
    assert (
        "after training" in card
        and "TwoDoors" in shown(tokens)
        and not (tmp_path / "run" / "checkpoint-2" / CARD_FILE).exists()
    )


def test_the_best_checkpoint_has_a_card_and_an_edited_one_survives_resuming(tmp_path, small, make_model):
    from metarl_agents.policy.policy import Policy

    run = tmp_path / "run"
    best = {"load_best_model_at_end": True, "metric_for_best_model": "pass@2"}
    train_doors(run, policy=small, **best)
    step = json.loads((run / "checkpoint-2" / "trainer_state.json").read_text())["best_step"]
    assert is_unedited(run / f"checkpoint-{step}" / CARD_FILE)
    assert f"best after step {step}" in (run / CARD_FILE).read_text()
    (run / CARD_FILE).write_text("my own words")
    again = Policy(make_model().eval(), small.tokenizer)
    train_doors(run, policy=again, max_steps=3, resume_from_checkpoint="latest", **best)
    assert (run / CARD_FILE).read_text() == "my own words" and is_unedited(run / "README.new.md")


@pytest.mark.slow
def test_adapters_and_merged_weights_each_have_a_card_and_peft_replaces_none(tmp_path, small, make_model):
    from metarl_agents.policy.policy import Policy

    run = tmp_path / "run"
    lora = {"use_peft": True, "merge_and_save": True}
    train_doors(run, policy=small, **lora)
    assert parsed((run / CARD_FILE).read_text())[0]["library_name"] == "peft"
    assert parsed((run / "merged" / CARD_FILE).read_text())[0]["library_name"] == "transformers"
    for folder in (run, run / "merged"):
        (folder / CARD_FILE).write_text("mine")
    again = Policy(make_model().eval(), small.tokenizer)
    train_doors(run, policy=again, max_steps=3, resume_from_checkpoint="latest", **lora)
    assert (run / CARD_FILE).read_text() == (run / "merged" / CARD_FILE).read_text() == "mine"
    assert is_unedited(run / "README.new.md") and is_unedited(run / "merged" / "README.new.md")


def games_of(opponent):
    """Statistics of a game as `examine_games` leaves them."""
    shares = {"won": 0.25, "drawn": 0.0, "lost": 0.75, "unfinished": 0.0}
    episode = {"n": 4, **shares, "payoff": (-0.5, -1.0, 0.0), "exploited": (0.125, 0.0, 0.25)}
    parts = [(None, None), (None, 1), (opponent, 1)]
    return {
        "players": ["first", "second"],
        "rows": [],
        "exact": [{"opponent": opponent, "seat": 1, "floor": -1.0, "ceiling": 3.0}],
        "unframed": [],
        "least": [],
        "summary": [{"opponent": name, "seat": seat, "n": 4, "episodes": [episode]} for name, seat in parts],
    }


def test_the_card_of_a_game_tells_payoffs_and_ratings_and_foreign_names_stay_text(tmp_path):
    run = run_in(tmp_path / "run", model_name_or_path="Qwen/Qwen3-4B")
    name = "a|b <i>*x*</i>"
    result(7, meta={"games": games_of(name)}).to_json(run.output_dir / "eval" / "after.json")
    (run.output_dir / "population").mkdir()
    rated = {"name": name, "rating": 1234.4, "low": 1100.0, "high": 1300.0, "games": 9.0}
    (run.output_dir / "population" / "ratings.json").write_text(json.dumps({"step": 7, "ratings": [rated]}))
    _, tokens = parsed(card_of(run))
    text = shown(tokens)
    assert text.count(name) == 2 and "second seat, against" in text
    assert "-0.500 [-1.000, +0.000]" in text and "12.5 [0.0, 25.0]" in text
    assert "1234 [1100, 1300] 9" in text
    assert not [child for token in tokens for child in token.children or () if child.type == "html_inline"]


@pytest.mark.parametrize("damaged", ["{", "{}", '{"ratings": [{"name": "x"}]}'])
def test_a_card_survives_damaged_ratings_and_games_that_were_never_summed_up(tmp_path, damaged):
    run = run_in(tmp_path / "run", model_name_or_path="Qwen/Qwen3-4B")
    result(7, meta={"games": {"players": ["a", "b"], "rows": []}}).to_json(run.output_dir / "eval" / "after.json")
    (run.output_dir / "population").mkdir()
    (run.output_dir / "population" / "ratings.json").write_text(damaged)
    assert "after training" in card_of(run) and "What was won" not in card_of(run)
