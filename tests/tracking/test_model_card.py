"""The model card: what it tells, that nothing a user names breaks it, and that an edited one is never lost."""

import ast
import re

import pytest
import yaml
from markdown_it import MarkdownIt

from metarl_agents.config import Config
from metarl_agents.tracking import papers
from metarl_agents.tracking.markdown import code, escape, fenced
from metarl_agents.tracking.model_card import CARD_FILE, CardFacts, is_unedited, keep_cards, render_card, write_card
from metarl_agents.tracking.papers import papers_of

HOSTILE = "a|b `c` ``d`` *e* [f](http://g) <script>alert(1)</script>\n\n# h\n---\n| i |\n\u202e${x}$"


def config(**settings):
    return Config.from_flat(settings)


def facts(**changes):
    values = {"name": "my-run", "config": config(), "base": "Qwen/Qwen3-4B", "base_on_hub": "Qwen/Qwen3-4B"}
    return CardFacts(**(values | changes))


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


def links(tokens):
    inline = [child for token in tokens for child in token.children or ()]
    return [child.attrs["href"] for child in inline if child.type == "link_open"]


def code_blocks(tokens, language):
    return [token.content for token in tokens if token.type == "fence" and token.info == language]


@pytest.mark.parametrize("text", [HOSTILE, "_x_", "<!-- y", "&lt;", "a\\", "``", "~~z~~", "$1$", "#", "  b  "])
def test_escaped_text_is_shown_as_it_is(text):
    lines = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(f"say {escape(text)} end")
    assert [token.type for token in lines] == ["paragraph_open", "inline", "paragraph_close"]
    assert {child.type for child in lines[1].children} <= {"text", "text_special"}
    expected = re.sub(r"[\s\u202e]+", " ", text).strip()
    assert "".join(child.content for child in lines[1].children) == f"say {expected} end"


@pytest.mark.parametrize("text", ["`", "a``b", "`x`", "|", "<b>", HOSTILE])
def test_a_code_span_holds_any_text(text):
    (_, line, _) = MarkdownIt("commonmark").parse(code(text))
    assert [child.type for child in line.children] == ["code_inline"]
    assert line.children[0].content.strip() == re.sub(r"[\s\u202e]+", " ", text).strip()


def test_a_fenced_block_cannot_be_closed_from_inside():
    (block,) = MarkdownIt("commonmark").parse(fenced("```\n````\nend", "python"))
    assert block.type == "fence" and block.content == "```\n````\nend\n"


def test_the_front_matter_is_what_the_hub_reads():
    matter, _ = parsed(render_card(facts(license="apache-2.0")))
    assert matter["base_model"] == "Qwen/Qwen3-4B" and matter["base_model_relation"] == "finetune"
    assert matter["library_name"] == "transformers" and matter["license"] == "apache-2.0"
    assert matter["pipeline_tag"] == "text-generation"
    assert {"metarl_agents", "reinforcement-learning", "lamer", "gigpo", "minesweeper"} <= set(matter["tags"])
    from huggingface_hub import ModelCard

    assert ModelCard(render_card(facts())).data.to_dict()["library_name"] == "transformers"


def test_adapters_say_that_they_are():
    card = render_card(facts(is_adapter=True, config=config(use_peft=True)))
    matter, tokens = parsed(card)
    assert matter["library_name"] == "peft" and matter["base_model_relation"] == "adapter"
    assert "AutoPeftModelForCausalLM" in code_blocks(tokens, "python")[1] and "lora_r" in shown(tokens)


def test_what_is_not_known_is_left_out_of_the_front_matter():
    matter, _ = parsed(render_card(facts(base_on_hub=None)))
    assert not {"base_model", "base_model_relation", "license"} & set(matter)


@pytest.mark.parametrize(
    ("settings", "numbers"),
    [
        ({}, ["2512.16848", "2505.10978"]),
        ({"num_episodes": 1, "advantages": "rloo"}, ["2402.14740"]),
        ({"num_episodes": 1, "advantages": "grpo"}, ["2402.03300"]),
        ({"num_episodes": 1, "advantages": "ppo", "return_mode": "differential"}, ["1707.06347"]),
        ({"return_mode": "differential"}, ["2603.03680", "2512.16848", "2505.10978"]),
        ({"num_episodes": 1, "advantages": "reinforce"}, [None]),
    ],
)
def test_the_papers_cited_are_those_whose_methods_were_used(settings, numbers):
    cited = papers_of(config(**settings))
    assert [paper.arxiv for paper in cited] == numbers
    _, tokens = parsed(render_card(facts(config=config(**settings))))
    (bibtex,) = code_blocks(tokens, "bibtex")
    assert bibtex.count("@") == len(numbers) and all(number in bibtex for number in numbers if number)
    assert bibtex.count("{") == bibtex.count("}") and all(paper.title in bibtex for paper in cited)


def test_papers_are_of_estimators_that_exist():
    from metarl_agents.addresses import ESTIMATOR, RETURN_MODE

    assert set(papers._ESTIMATORS) <= set(ESTIMATOR.names) and set(papers._MAGE_RETURNS) <= set(RETURN_MODE.names)


OWN = {"advantages": "my_credit:my_advantages", "return_mode": "my_credit:my_returns"}


@pytest.mark.parametrize(
    ("settings", "name", "numbers"),
    [
        (
            {"advantages": OWN["advantages"]},
            "meta-RL (LaMer) with the custom advantage estimator my_credit:my_advantages",
            ["2512.16848"],
        ),
        (
            {"return_mode": OWN["return_mode"]},
            "meta-RL (LaMer) with GiGPO and the custom return mode my_credit:my_returns",
            ["2512.16848", "2505.10978"],
        ),
        (
            OWN | {"num_episodes": 1},
            "RL with the custom advantage estimator my_credit:my_advantages and the custom return mode "
            "my_credit:my_returns",
            [],
        ),
    ],
)
def test_functions_of_a_user_s_own_are_named_and_not_cited(settings, name, numbers):
    ours = config(**settings)
    assert papers.method_name(ours) == name and [paper.arxiv for paper in papers_of(ours)] == numbers
    matter, tokens = parsed(render_card(facts(config=ours)))
    assert f"trained by {name}." in shown(tokens)
    assert f"No paper tells of {name.split(' with ')[1].removeprefix('GiGPO and ')}: " in shown(tokens)
    blocks = code_blocks(tokens, "bibtex")
    assert len(blocks) == bool(numbers) and all(number in blocks[0] for number in numbers)
    assert ("gigpo" in matter["tags"]) == ("2505.10978" in numbers)


def test_an_estimator_without_a_paper_is_named_and_nothing_is_cited_for_it(monkeypatch):
    monkeypatch.delitem(papers._ESTIMATORS, "rloo")
    alone, both = config(advantages="rloo", num_episodes=1), config(advantages="rloo")
    assert papers.method_name(alone) == "RL with rloo" and papers_of(alone) == []
    assert "There is no paper to cite." in shown(parsed(render_card(facts(config=alone)))[1])
    assert [paper.name for paper in papers_of(both)] == ["LaMer"]


def test_nothing_that_a_user_names_breaks_the_card():
    hostile = config(env=HOSTILE, model_name_or_path=HOSTILE, use_peft=True, lora_target_modules=[HOSTILE])
    hostile.credit.advantages = hostile.credit.return_mode = HOSTILE
    card = render_card(
        facts(
            name=HOSTILE,
            config=hostile,
            base=HOSTILE,
            env_keywords={"k": HOSTILE},
            notes=(HOSTILE,),
            versions={HOSTILE: HOSTILE},
        )
    )
    _, calm = parsed(render_card(facts(config=config(use_peft=True, **OWN))))
    matter, tokens = parsed(card)
    assert headings(tokens)[1:] == headings(calm)[1:] and len(headings(tokens)) == len(headings(calm))
    assert [t.type for t in tokens].count("tr_open") == [t.type for t in calm].count("tr_open")
    assert links(tokens) == links(calm) and not any(token.type == "html_block" for token in tokens[:-1])
    assert not [child for token in tokens for child in token.children or () if child.type == "html_inline"]
    assert "<script>alert(1)</script>" in shown(tokens)
    assert all("<" not in tag and "\n" not in tag for tag in matter["tags"])
    for block in code_blocks(tokens, "python"):
        ast.parse(block)


def test_the_loading_code_builds_the_environment_with_its_settings():
    settings = config(env="minesweeper", num_episodes=2, max_turns=5, memory="both")
    _, tokens = parsed(render_card(facts(config=settings, env_keywords={"size": 4, "wording": "compact"})))
    block = code_blocks(tokens, "python")[0]
    assert "make('minesweeper', size=4, wording='compact')" in block
    assert "num_episodes=2, max_turns=5, memory='both'" in block


@pytest.mark.parametrize(
    ("address", "keywords"),
    [
        ("a:f.<locals>.Env", {}),
        ("__main__:Guess", {}),
        ("minesweeper", {"board": object()}),
        ("minesweeper", {"a b": 1}),
    ],
)
def test_code_that_could_not_run_is_not_shown(address, keywords):
    _, tokens = parsed(render_card(facts(config=config(env=address), env_keywords=keywords)))
    block = code_blocks(tokens, "python")[0]
    ast.parse(block)
    assert "make(" not in block and "..." in block


def test_equal_facts_give_equal_cards(tmp_path):
    one, two = write_card(tmp_path, render_card(facts())).read_bytes(), render_card(facts())
    assert write_card(tmp_path, two).read_bytes() == one and [p.name for p in tmp_path.iterdir()] == [CARD_FILE]


def test_a_card_of_ours_is_replaced(tmp_path):
    write_card(tmp_path, "# old")
    assert write_card(tmp_path, "# new \ud800").name == CARD_FILE
    assert (tmp_path / CARD_FILE).read_text(encoding="utf-8").startswith("# new") and is_unedited(tmp_path / CARD_FILE)


@pytest.mark.parametrize("edit", [lambda text: text + "mine\n", lambda text: "mine\n" + text, lambda _: "mine\n"])
def test_an_edited_card_stays_and_nothing_is_lost(tmp_path, edit):
    first = write_card(tmp_path, "# one")
    edited = edit(first.read_text(encoding="utf-8"))
    first.write_text(edited, encoding="utf-8")
    second = write_card(tmp_path, "# two")
    assert first.read_text(encoding="utf-8") == edited and second.name == "README.new.md"
    assert write_card(tmp_path, "# three") == second
    second.write_text("edited too", encoding="utf-8")
    third = write_card(tmp_path, "# four")
    assert third.name == "README.new-2.md" and second.read_text(encoding="utf-8") == "edited too"


def test_a_card_that_is_no_text_stays(tmp_path):
    (tmp_path / CARD_FILE).write_bytes(b"\xff\xfe")
    assert write_card(tmp_path, "# new").name == "README.new.md"
    assert (tmp_path / CARD_FILE).read_bytes() == b"\xff\xfe"


def test_cards_move_along_when_a_folder_is_replaced(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    new.mkdir()
    keep_cards(old, new)  # the first time there is no old one
    old.mkdir()
    (old / CARD_FILE).write_text("mine")
    keep_cards(old, new)
    assert (new / CARD_FILE).read_text() == "mine"


def told_settings(card):
    """The settings that the table of a card names, with their values."""
    return dict(re.findall(r"^\| `(\w+)` \| `+ ?(.*?) ?`+ \|$", card, flags=re.MULTILINE))


GAME_SETTINGS = ("opponents", "snapshot_every", "population_rule")
GAME_SETTINGS += ("normalise_by_role", "stop_on_success", "length_penalty")


def test_the_card_of_a_game_tells_whom_the_agent_met_and_how_it_was_compared():
    settings = {"opponents": ["cfr=2", "self"], "snapshot_every": 5, "stop_on_success": False, "length_penalty": 2.0}
    told = told_settings(render_card(facts(is_game=True, config=config(**settings))))
    assert set(GAME_SETTINGS) <= set(told)
    assert told["opponents"] == "['cfr=2', 'self']" and told["snapshot_every"] == "5"
    assert told["stop_on_success"] == "False" and told["normalise_by_role"] == "True"


def test_cards_of_other_environments_tell_such_settings_only_where_they_are_not_the_default():
    assert not set(GAME_SETTINGS) & set(told_settings(render_card(facts())))
    told = told_settings(render_card(facts(config=config(stop_on_success=False, length_penalty=0.5))))
    assert set(GAME_SETTINGS) & set(told) == {"stop_on_success", "length_penalty"} and told["length_penalty"] == "0.5"
