"""Which names can be a model, and what is refused before a weight is read."""

import json
from pathlib import Path

import pytest
import yaml

from metarl_agents.config import ModelConfig
from metarl_agents.errors import ConfigError
from metarl_agents.policy.loading import check_model_name, is_tiny, load_policy, shipped_folder, shipped_tiny_models

CONFIGS = Path(__file__).parents[2] / "recipes" / "configs"


def named(name, **settings):
    return ModelConfig(model_name_or_path=str(name), **settings)


# ---- names ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["runs/minesweeper-20260101", "runs", "mine/model", "runs/a.gguf", "a/b.gguf"])
def test_a_folder_that_is_not_there_is_not_looked_for_on_the_hub(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    with pytest.raises(ConfigError, match="there is no model folder"):
        check_model_name(named(name))


@pytest.mark.parametrize("name", ["Qwen/Qwen3-4B", "gpt2", "owner/repo/model.gguf", "owner/repo/small/model.gguf"])
def test_names_of_the_hub_pass(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    check_model_name(named(name))


# ---- chat templates ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_adapters", [False, True])
def test_a_missing_chat_template_is_told_before_weights_are_read(tmp_path, make_policy, has_adapters):
    model = tmp_path / "model"
    make_policy().save(model)
    folder = model
    (model / "model.safetensors").unlink()
    if has_adapters:
        folder = tmp_path / "adapters"
        make_policy().tokenizer.save_pretrained(folder)
        (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(model)}))
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(ConfigError, match=f"the tokenizer of {folder} has no chat template"):
        load_policy(named(folder))


def test_where_the_template_is_there_missing_weights_are_what_is_told(tmp_path, make_policy):
    make_policy().save(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match="cannot load the model .*safetensors"):
        load_policy(named(tmp_path))


# ---- the built-in model -----------------------------------------------------------------------------------------


def run_folder(place, model):
    place.mkdir(parents=True)
    (place / "config.yaml").write_text(f"env: minesweeper\nmodel_name_or_path: {model}\n", encoding="utf-8")
    return place


def test_the_built_in_model_is_known_wherever_it_lies(tmp_path):
    run = run_folder(tmp_path / "run", "tiny")
    after = run_folder(tmp_path / "after", run / "checkpoint-3")
    inside = [run / "checkpoint-3", run / "merged", run / "base", run / "population" / "snapshot-4"]
    for folder in inside:
        folder.mkdir(parents=True)
    shipped = [shipped_folder(name) for name in shipped_tiny_models()]
    for folder in ["tiny", run, f"{run}/", after, *inside, *shipped]:
        assert is_tiny(str(folder)), folder


def test_other_models_are_not_taken_for_it(tmp_path):
    run = run_folder(tmp_path / "run", "Qwen/Qwen3-4B")
    circle = run_folder(tmp_path / "circle", tmp_path / "circle")
    (tmp_path / "plain").mkdir()
    (broken := tmp_path / "broken").mkdir()
    (broken / "config.yaml").write_text("a: [", encoding="utf-8")
    (listed := tmp_path / "listed").mkdir()
    (listed / "config.yaml").write_text("- tiny\n", encoding="utf-8")
    # A model that only lies in a folder which holds a run's settings is nobody's checkpoint.
    (beside := run_folder(tmp_path / "work", "tiny") / "qwen").mkdir()
    for folder in [
        "Qwen/Qwen3-4B",
        "gpt2",
        tmp_path / "nothing",
        run,
        circle,
        tmp_path / "plain",
        broken,
        listed,
        beside,
    ]:
        assert not is_tiny(str(folder)), folder


# ---- what lies beside the shipped models -------------------------------------------------------------------------


@pytest.mark.parametrize("name", shipped_tiny_models())
def test_the_record_of_a_shipped_model_says_what_its_preset_says(name):
    record = json.loads((shipped_folder(name) / "warm_start.json").read_text(encoding="utf-8"))
    files = {
        f"{file.parent.name}_{file.stem.removeprefix('warm_start_')}": file for file in CONFIGS.glob("*/warm_start_*")
    }
    preset = yaml.safe_load(files[name].read_text(encoding="utf-8"))
    assert record["preset"] == name and {key: record[key] for key in preset} == preset
    made = {"wording", "num_episodes", "memory_mix", "vocabulary_trials", "batch_size", "rows", "device", "seed", "log"}
    assert made <= set(record)
    steps = [steps for steps, _ in record["stages"]]
    assert (record["log"][-1]["stage"], record["log"][-1]["step"]) == (len(steps) - 1, steps[-1] - 1)
