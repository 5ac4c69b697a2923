"""The house rules, read off the source: who may import whom, how long things may be, what is listed where."""

import ast
import configparser
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "metarl_agents"
LIBRARY = sorted(PACKAGE.rglob("*.py"))
PLUGS = sorted((ROOT / "environments").rglob("*.py"))
LAUNCHED = sorted(path for folder in ("recipes", "benchmarks") for path in (ROOT / folder).rglob("*.py"))
EVERYTHING = LIBRARY + PLUGS + LAUNCHED

BASE = {"types", "errors", "addresses", "config", "expect", "presets", "progress", "texts", "thoughts", "_version"}
MAY_IMPORT = {
    "thoughts": set(),
    "types": set(),
    "errors": set(),
    "_version": set(),
    "addresses": {"errors"},
    "hints": {"presets"},
    "texts": {"errors"},
    "progress": set(),
    "expect": {"errors"},
    "presets": {"errors"},
    "config": {"errors", "addresses", "hints"},
    "flags": {"errors", "addresses", "config", "hints"},
    "sources": {"errors", "texts"},
    "cli": BASE | {"flags"},
    "envs": BASE | {"environments"},  # by name only, to register what is shipped
    "advantages": BASE,
    "prompting": BASE | {"envs"},
    "policy": BASE,
    "rollout": BASE | {"envs", "prompting", "policy", "sources"},
    "evaluation": BASE | {"envs", "prompting", "rollout", "policy"},
    "tracking": BASE,
    "training": BASE
    | {"cli", "envs", "prompting", "policy", "rollout", "evaluation", "tracking", "advantages", "sources"},
}
HEAVY = {
    "thoughts": set(),
    "types": set(), "errors": set(), "_version": set(), "addresses": set(), "config": set(), "sources": {"datasets"}, "envs": set(), "prompting": set(),
    "hints": set(), "presets": set(), "expect": set(), "texts": set(), "progress": {"tqdm"}, "flags": {"yaml"}, "cli": {"yaml"},
    "advantages": {"torch"},
    "policy": {"torch", "transformers", "tokenizers", "peft", "deepspeed", "accelerate", "safetensors", "yaml", "gguf"},
    "rollout": set(),
    "evaluation": {"numpy", "accelerate", "torch"},
    "tracking": {"torch", "datasets", "tqdm", "tensorboard", "numpy", "yaml"},
    "training": {"torch", "accelerate", "safetensors", "yaml"},
}  # fmt: skip
ONLY_IN = {
    "transformers": {"policy"}, "peft": {"policy"}, "deepspeed": {"policy"}, "tokenizers": {"policy"},
    "accelerate": {"policy", "training", "evaluation"}, "datasets": {"sources", "tracking"}, "tensorboard": {"tracking"},
}  # fmt: skip


def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def ident(path):
    return str(path.relative_to(ROOT))


def imports(path):
    """Every module imported anywhere in a file, functions included."""
    found = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{ident(path)} imports relatively"
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def room(path):
    """The room of a file of the library: its folder, or its own stem at the top."""
    inside = path.relative_to(PACKAGE)
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


def own(names):
    """The rooms of the library among imported names."""
    return {name.split(".")[1] for name in names if name.startswith("metarl_agents.")}


def foreign(names):
    """Top-level packages that are neither the standard library's nor ours."""
    tops = {name.split(".")[0] for name in names}
    return tops - set(sys.stdlib_module_names) - {"metarl_agents"}


def test_the_parser_sees_imports_inside_functions(tmp_path, monkeypatch):
    file = tmp_path / "a.py"
    file.write_text("import os\ndef f():\n    from peft import LoraConfig\n    import metarl_agents.training.loss\n")
    assert foreign(imports(file)) == {"peft"} and own(imports(file)) == {"training"}


ROOMED = [path for path in LIBRARY if room(path) in MAY_IMPORT]


def test_every_room_is_known():
    unknown = {room(path) for path in LIBRARY} - set(MAY_IMPORT) - {"__init__", "agent", "doctor", "play"}
    assert unknown == set()


@pytest.mark.parametrize("path", ROOMED, ids=ident)
def test_a_room_imports_only_rooms_below_it(path):
    strange = own(imports(path)) - MAY_IMPORT[room(path)] - {room(path)}
    assert strange == set(), f"{ident(path)} imports {strange}"


@pytest.mark.parametrize("path", ROOMED, ids=ident)
def test_a_room_imports_only_the_packages_it_is_for(path):
    allowed = HEAVY[room(path)]
    assert foreign(imports(path)) <= allowed, f"{ident(path)} imports {foreign(imports(path)) - allowed}"


@pytest.mark.parametrize("path", LIBRARY, ids=ident)
def test_quarantined_packages_stay_in_their_rooms(path):
    place = str(path.relative_to(PACKAGE))
    for package in foreign(imports(path)) & set(ONLY_IN):
        assert room(path) in ONLY_IN[package], f"{place} imports {package}"


EXTRAS = {"webshop": {"numpy", "bm25s", "rapidfuzz"}}


@pytest.mark.parametrize("path", PLUGS, ids=ident)
def test_shipped_environments_need_the_contract_and_the_standard_library(path):
    inside = path.relative_to(ROOT / "environments")
    name = inside.parts[0] if len(inside.parts) > 1 else ""
    assert foreign(imports(path)) <= EXTRAS.get(name, set())
    assert own(imports(path)) <= {"envs", "types", "errors", "environments"}
    others = {full.split(".")[2] for full in imports(path) if full.startswith("metarl_agents.environments.")}
    assert others <= {name}, "an environment stands alone"


def test_setup_cfg_lists_every_package_folder():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    listed = config["options"]["packages"].split()
    library = {".".join(path.parent.relative_to(ROOT / "src").parts) for path in PACKAGE.rglob("__init__.py")}
    plugs = {
        ".".join(("metarl_agents", *path.parent.relative_to(ROOT).parts))
        for path in ROOT.glob("environments/**/__init__.py")
    }
    assert sorted(listed) == sorted(library | plugs)
    folders = {path.parent for path in LIBRARY + PLUGS}
    assert all((folder / "__init__.py").is_file() for folder in folders)


def functions(path):
    return [node for node in ast.walk(tree_of(path)) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def body_lines(function):
    """Lines of a function's body without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


@pytest.mark.parametrize("path", EVERYTHING, ids=ident)
def test_budgets_of_files_and_functions(path):
    # Beyond 400 lines a file deserves a look; beyond these it is cut.
    assert len(path.read_text(encoding="utf-8").splitlines()) < 450
    long = {function.name: body_lines(function) for function in functions(path) if body_lines(function) >= 60}
    assert long == {}


def test_the_training_loop_fits_on_a_page():
    (loop,) = [function for function in functions(PACKAGE / "training" / "trainer.py") if function.name == "train"]
    assert 10 < loop.end_lineno - loop.lineno + 1 <= 80


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("*.py")), ids=ident)
def test_recipes_are_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.parametrize("path", LIBRARY + PLUGS, ids=ident)
def test_the_library_does_not_print_or_leave(path):
    calls = [node.func for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call)]
    assert {call.id for call in calls if isinstance(call, ast.Name)} & {
        "print",
        "exit",
        "quit",
        "exec",
        "eval",
    } == set()


@pytest.mark.parametrize("path", EVERYTHING, ids=ident)
def test_every_module_says_what_lives_there(path):
    docstring = ast.get_docstring(tree_of(path))
    assert docstring and len(docstring.splitlines()[0]) > 10


GLOBAL_RANDOM = {f"random.{name}" for name in ("seed", "random", "choice", "choices", "randint", "shuffle", "sample")}


@pytest.mark.parametrize("path", LIBRARY + PLUGS, ids=ident)
def test_no_bare_except_and_no_global_random_state(path):
    for node in ast.walk(tree_of(path)):
        assert not (isinstance(node, ast.ExceptHandler) and node.type is None), "a bare except"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            full = f"{node.value.id}.{node.attr}"
            # The contract's check stirs the global generator to prove that an environment does not listen to it.
            assert full not in GLOBAL_RANDOM or path.name == "checks.py", full


def test_public_names_are_few():
    source = tree_of(PACKAGE / "__init__.py")
    (names,) = [
        ast.literal_eval(node.value)
        for node in source.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"
    ]
    assert 10 < len([name for name in names if not name.startswith("__")]) <= 24


def test_names_of_test_files_are_unique():
    # A folder's conftest.py is found by its path; every other file is imported by its name alone.
    names = [path.name for path in (ROOT / "tests").rglob("*.py") if path.name != "conftest.py"]
    assert sorted(names) == sorted(set(names))


def test_files_do_not_start_with_an_underscore():
    allowed = {"__init__.py", "__main__.py", "_version.py"}
    assert [ident(path) for path in LIBRARY + PLUGS if path.name.startswith("_") and path.name not in allowed] == []
