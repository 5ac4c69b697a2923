"""The page is one file, and nothing a model writes is ever markup."""

import json
from html.parser import HTMLParser

import pytest

from metarl_agents.tracking.records import write_records
from metarl_agents.tracking.viewer import main, newest, render_page

ATTACK = "</script><img src=x onerror=alert(1)><!--<script>"


def record(step=1, split="train", seed=5, response="go"):
    turn = {"phase": "play", "observation": ATTACK, "prompt": ATTACK, "response": response, "action": ATTACK}
    turn |= {"reward": 1.0, "row_penalty": 0.0, "invalid": False, "truncated": False, "prompt_shortened": False}
    turn |= {"prompt_tokens": 3, "response_tokens": 2, "return": 1.0, "advantage": -0.5}
    episode = {"outcome": "success", "reward": 1.0, "initial_observation": "", "final_observation": ""}
    episode |= {"turns": [turn], "reflection": None}
    trial = {"step": step, "split": split, "group": 0, "seed": seed, "opponent": None, "seat": 0, "error": None}
    return trial | {"solved_at": 0, "episodes": [episode]}


class Page(HTMLParser):
    """Collects the elements of a page, and the text of its data element."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.data, self._inside = [], "", False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._inside = dict(attrs).get("id") == "data"

    def handle_endtag(self, tag):
        self._inside = False

    def handle_data(self, data):
        if self._inside:
            self.data += data


def test_a_hostile_response_stays_text():
    records = [record(response=ATTACK)]
    page = Page(render_page(records, title=ATTACK))
    assert "img" not in [tag for tag, _ in page.elements]
    assert [tag for tag, _ in page.elements].count("script") == 2
    assert json.loads(page.data) == {"title": ATTACK, "total": 1, "trials": records}


def test_the_script_never_parses_markup():
    template = render_page([], title="")
    for risky in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert risky not in template


def test_the_page_loads_nothing():
    template = render_page([], title="")
    attributes = [
        value for _, attrs in Page(template).elements for name, value in attrs.items() if name in ("src", "href")
    ]
    assert attributes == []
    assert (
        "http://" not in template
        and "https://" not in template
        and "url(" not in template
        and "@import" not in template
    )
    assert "default-src 'none'" in template


def test_the_page_follows_the_reader():
    template = render_page([], title="")
    assert "prefers-color-scheme: dark" in template and "max-width: 760px" in template
    assert 'name="viewport"' in template


def test_the_newest_trials_are_kept_and_no_split_crowds_out_another():
    train = [record(step) for step in range(10)]
    evaluated = [record(step, "eval") for step in range(3)]
    kept, total = newest([*evaluated, *train], 6)
    assert total == 13
    assert [(r["split"], r["step"]) for r in kept] == [("eval", s) for s in (0, 1, 2)] + [
        ("train", s) for s in (7, 8, 9)
    ]
    assert newest([*evaluated, *train], 100)[0] == [*evaluated, *train]
    assert [r["step"] for r in newest([*evaluated, *train], 8)[0][3:]] == [5, 6, 7, 8, 9]


def test_the_command_writes_the_page_of_a_run(tmp_path, capsys):
    run = tmp_path / "my-run"
    write_records(
        run / "trajectories" / "train.jsonl", [record(step, response="caf\u00e9 \ud800") for step in range(5)]
    )
    write_records(run / "trajectories" / "eval.jsonl", [record(0, "eval")])
    assert main([str(run), "--max-trials", "2", "--split", "train"]) == 0
    assert capsys.readouterr().out.strip() == str(run / "trajectories.html")
    data = json.loads(Page((run / "trajectories.html").read_text(encoding="utf-8")).data)
    assert (data["title"], data["total"], [r["step"] for r in data["trials"]]) == ("my-run", 5, [3, 4])
    assert data["trials"][0]["episodes"][0]["turns"][0]["response"] == "caf\u00e9 \ud800"


def test_the_command_takes_one_file_and_an_output(tmp_path):
    write_records(tmp_path / "some.jsonl", [record()])
    assert main([str(tmp_path / "some.jsonl"), "--output", str(tmp_path / "out" / "page.html")]) == 0
    assert (tmp_path / "out" / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize("options", [[], ["--split", "test"]])
def test_nothing_to_show_is_one_sentence(tmp_path, capsys, options):
    if options:
        write_records(tmp_path / "trajectories" / "train.jsonl", [record()])
    assert main([str(tmp_path), *options]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert ("recorded trials" in err) or ('no trials of split "test"' in err)


def test_a_page_of_no_trials_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main([str(tmp_path), "--max-trials", "0"])
    assert "at least 1" in capsys.readouterr().err
