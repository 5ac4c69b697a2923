"""The built-in tokenizer: any text comes back as it was, and what the compact pages say is short."""

import random

import pytest

from metarl_agents.policy.tiny import CHAT_TEMPLATE, SPECIAL, TAGS, build_model, build_tokenizer

ODD_TEXTS = [
    "",
    " ",
    "  ",
    "\n",
    " \n\t \r\n x",
    "a  b   c ",
    "hel" + "lo",
    "Hello,world!How  are you ?",
    "😀 👩‍👩‍👧 🇫🇷",
    "żółć naïve Ωmega 漢字 עברית",
    "\u00a0\u200b\ufeff\u2028",
    "\x00\x01\x7f",
    "<action>(2, 3)</action> <action> up </action>",
    "< action >(2,3)</ action>",
    "Row 1: ? ? 1 .\nRow 2: 1 * 10 .\nRow 12: x",
    "(2, 3)(2,3) (10, 3) ((2, 3))",
    "<|pad|",
    "<|nothing|> <| end |> |end|>",
    "don't can't 've",
    "1234567890 3.14 -7",
]


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_any_text_comes_back_as_it_was(tiny_tokenizer, text):
    ids = tiny_tokenizer.encode(text, add_special_tokens=False)
    assert tiny_tokenizer.decode(ids) == text
    assert tiny_tokenizer.decode(ids, skip_special_tokens=True) == text


def test_random_text_comes_back_as_it_was(tiny_tokenizer):
    draw = random.Random(0)
    pieces = [" ", "\n", "(1, 2)", "<remark>", "Row 3:", "mine", "é", "😀", "0", "_", "avoid", "\t", "zz", "</", "|"]
    for _ in range(200):
        text = "".join(draw.choice(pieces) for _ in range(draw.randrange(30)))
        assert tiny_tokenizer.decode(tiny_tokenizer.encode(text, add_special_tokens=False)) == text


def test_text_that_spells_a_special_token_comes_back_unless_special_tokens_are_skipped(tiny_tokenizer):
    for token in SPECIAL:
        ids = tiny_tokenizer.encode(f"a {token} b", add_special_tokens=False)
        assert tiny_tokenizer.decode(ids) == f"a {token} b"
        assert tiny_tokenizer.decode(ids, skip_special_tokens=True) == "a  b"


def test_nothing_is_added_around_a_text(tiny_tokenizer):
    assert tiny_tokenizer.encode("Open a cell.") == tiny_tokenizer.encode("Open a cell.", add_special_tokens=False)


@pytest.mark.parametrize("lead", ["", " "])
def test_a_cell_a_tag_a_row_header_and_a_known_word_are_one_token_each(tiny_tokenizer, lead):
    pieces = [f"({row}, {col})" for row in range(1, 9) for col in range(1, 9)]
    pieces += [*TAGS, "avoid", "mine", "failed"]
    for piece in pieces:
        assert len(tiny_tokenizer.encode(lead + piece, add_special_tokens=False)) == 1, piece
    for header in ("Row 1:", "\nRow 2:", "\nRow 10:"):
        assert len(tiny_tokenizer.encode(header, add_special_tokens=False)) == 1, header


def test_a_cell_is_one_token_wherever_it_stands(tiny_tokenizer):
    ids = tiny_tokenizer.encode("<action>(2, 3)</action>", add_special_tokens=False)
    assert [tiny_tokenizer.decode([token]) for token in ids] == ["<action>", "(2, 3)", "</action>"]


def test_a_compact_board_of_four_rows_takes_few_tokens(tiny_tokenizer):
    board = "\n".join(f"Row {row}: ? ? 1 ." for row in range(1, 5))
    assert len(tiny_tokenizer.encode(board, add_special_tokens=False)) == 4 * 5


def test_every_id_is_used_once_and_special_tokens_are_single_ids(tiny_tokenizer):
    vocabulary = tiny_tokenizer.get_vocab()
    assert sorted(vocabulary.values()) == list(range(len(tiny_tokenizer)))
    assert tiny_tokenizer.convert_tokens_to_ids(list(SPECIAL)) == list(range(len(SPECIAL)))
    assert tiny_tokenizer.pad_token_id != tiny_tokenizer.eos_token_id


def test_building_twice_gives_the_same_tokenizer():
    assert build_tokenizer().get_vocab() == build_tokenizer().get_vocab()


def test_saving_and_loading_changes_nothing(tiny_tokenizer, tmp_path):
    from transformers import AutoTokenizer

    tiny_tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.get_vocab() == tiny_tokenizer.get_vocab()
    assert loaded.chat_template == CHAT_TEMPLATE
    assert (loaded.pad_token_id, loaded.eos_token_id, loaded.bos_token_id) == (
        tiny_tokenizer.pad_token_id,
        tiny_tokenizer.eos_token_id,
        None,
    )
    for text in ODD_TEXTS:
        ids = loaded.encode(text)
        assert ids == tiny_tokenizer.encode(text) and loaded.decode(ids) == text


def test_the_chat_template_opens_the_answer_and_closes_what_was_answered(tiny_tokenizer):
    messages = [{"role": "user", "content": "Open a cell."}, {"role": "assistant", "content": "(1, 1)"}]
    closed = tiny_tokenizer.apply_chat_template(messages, tokenize=False)
    opened = tiny_tokenizer.apply_chat_template(messages[:1], tokenize=False, add_generation_prompt=True)
    assert closed == "<|user|>Open a cell.<|assistant|>(1, 1)<|end|>"
    assert opened == "<|user|>Open a cell.<|assistant|>"


def test_the_seed_alone_decides_the_first_weights(tiny_tokenizer):
    import torch

    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = build_model(tiny_tokenizer, layers=1, hidden=32, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    again = build_model(tiny_tokenizer, layers=1, hidden=32, seed=3)
    other = build_model(tiny_tokenizer, layers=1, hidden=32, seed=4)
    weights = [model.get_input_embeddings().weight for model in (first, again, other)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])
