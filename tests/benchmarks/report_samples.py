"""Summaries as `bench.summary.summarize` returns them, and a reader of pages."""

import copy
import sys
from html.parser import HTMLParser
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))

from report import charts, model, page, reading, text  # noqa: E402

__all__ = ["charts", "model", "page", "reading", "text"]

ATTACK = "</script><script>alert(1)</script><img src=x onerror=alert(1)> | `x` [l](http://evil) *b*\n# h\n@@BODY@@"
VOID = {"meta", "link", "img", "br", "hr", "input"}


def share(value, per_run=()):
    per_run = list(per_run) or [value]
    spread = {"min": min(per_run), "max": max(per_run)}
    return {"share": value, "interval": [value - 0.03, value + 0.03], "per_run": per_run, "spread": spread}


def row(name, values=(0.3, 0.4, 0.5), **changes):
    """One row of a summary, with numbers unless `values` is empty."""
    entry = {
        "id": name,
        "label": f"Method {name}",
        "method": name,
        "variant": None,
        "meaningful": True,
        "seeds": [0, 1],
        "done": [0, 1] if values else [],
        "state": "finished" if values else "missing",
        "problems": [],
        "n": 128 if values else 0,
        "num_tasks": 64 if values else 0,
        "pass": {str(k): share(value, (value - 0.01, value + 0.01)) for k, value in enumerate(values, start=1)},
        "gain": {"mean": 0.2, "low": 0.15, "high": 0.25} if values else None,
        "independent": {"1": share(0.31), "2": share(0.38), "8": share(0.99)} if values else {},
        "diversity": {"nats": 0.44, "share": 0.2, "interval": [0.41, 0.47], "over_tasks": True, "samples": 8}
        if values
        else None,
        "training": {"steps": 100, "episodes_allotted": 38_400, "episodes_used": 29_911, "tokens": 5_254_903.0}
        | {"seconds": 812.0}
        if values
        else None,
        "curves": [],
        "published": [44.1, 66.4, 74.4],
        "best": False,
        "runs": [f"runs/bench/{name}"],
        "models": [name],
        "player": name,
    }
    return entry | changes


def curves(seed, high=0.6):
    steps = range(1, 21)
    train = {f"pass@{k}": [[s, 0.2 + (high - 0.2) * s / 20 + 0.01 * seed] for s in steps] for k in (1, 3)}
    return {"seed": seed, "curves": {"train": train, "eval": {"pass@3": [[10, 0.5 + 0.02 * seed], [20, high]]}}}


def summary(rows=None, **changes):
    block = {
        "name": "minesweeper",
        "title": "MineSweeper 4x4",
        "env": "minesweeper",
        "kind": "main",
        "reference": "lamer",
        "vary": None,
        "num_episodes": 3,
        "notes": ["sampling: temperature 0.7"],
        "published": {"source": "LaMer, arXiv 2512.16848", "setting": "Qwen3-4B, 6x6"},
        "rows": rows or [row("gigpo"), row("lamer", (0.31, 0.55, 0.66), best=True)],
        "differences": [
            {"k": 3, "better": "lamer", "than": "gigpo", "mean": 0.16, "low": 0.1, "high": 0.22}
            | {"p_value": 0.0002, "p_holm": 0.0006}
        ],
        "verdict": "Method lamer leads.",
    }
    found = {
        "preset": "cpu",
        "title": "Benchmark",
        "header": ["512 test tasks", "torch 2.13.0", "made 2026-11-28"],
        "blocks": [block],
        "missing": [],
        "failed": [],
        "skipped": [],
    }
    return found | changes


def report_of(found, root=Path("/nowhere"), folder=Path("/nowhere/benchmarks")):
    return reading.read_report(found, root=root, page_folder=folder)


def html_of(found, **places):
    return page.render_page(report_of(found, **places))


def markdown_of(found):
    return text.render_text(report_of(found), pictures="pictures")


class Page(HTMLParser):
    """The elements of a page, their texts, and whether each is closed where it belongs."""

    def __init__(self, source):
        super().__init__()
        self.elements, self.stack, self.texts, self.faults = [], [], [], []
        self.feed(source)
        assert not self.stack and not self.faults, (self.stack, self.faults)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self.stack or self.stack.pop() != tag:
            self.faults.append(tag)

    def handle_data(self, data):
        if self.stack and self.stack[-1] not in ("style", "title", "desc"):
            self.texts.append(data)

    @property
    def text(self):
        return " ".join("".join(self.texts).split())

    def tags(self):
        return [tag for tag, _ in self.elements]


def hostile():
    """A summary whose every text is an attack."""
    rows = [
        row(ATTACK, label=ATTACK, curves=[curves(0)], runs=[f"javascript:alert(1)//{ATTACK}"]),
        row("b", (), label=ATTACK, state="failed", problems=[{"cell": ATTACK, "status": "failed", "reason": ATTACK}]),
    ]
    found = summary(
        rows, title=ATTACK, header=[ATTACK], missing=[ATTACK], skipped=[{"block": ATTACK, "reason": ATTACK}]
    )
    found["failed"] = [{"cell": ATTACK, "reason": ATTACK}]
    (block,) = found["blocks"]
    block |= {"name": ATTACK, "title": ATTACK, "notes": [ATTACK], "verdict": ATTACK, "reference": ATTACK}
    block["published"] = {"source": ATTACK, "setting": ATTACK}
    block["differences"] = [block["differences"][0] | {"better": ATTACK, "than": "b"}]
    found["blocks"].append(copy.deepcopy(block) | {"kind": "ablation", "name": "second"})
    return found
