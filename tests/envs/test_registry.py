"""Names and addresses: what resolves, and what the refusals say."""

import os
import subprocess
import sys

import pytest

from metarl_agents.envs import Environment, make, register, registered, registry, resolve
from metarl_agents.errors import ConfigError, UnknownEnvironmentError


@pytest.fixture(autouse=True)
def names_put_back(monkeypatch):
    registered()
    monkeypatch.setattr(registry, "_addresses", dict(registry._addresses))


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    (tmp_path / "own_world_for_tests.py").write_text(
        "from metarl_agents.envs import Environment\n"
        "class World(Environment):\n"
        "    def __init__(self, *, size=3): self.size = size\n"
        "class Inner:\n"
        "    class Deep(Environment): pass\n"
        "number = 3\n"
    )
    (tmp_path / "own_broken_for_tests.py").write_text("import a_package_nobody_has\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("own_world_for_tests", None)


def test_shipped_names_are_sorted_and_resolve():
    names = registered()
    assert names == sorted(names) and {"minesweeper", "two_doors"} <= set(names)
    assert resolve("minesweeper").__name__ == "Minesweeper"
    assert make("minesweeper", size=4, mines=2).size == 4


def test_addresses_work_without_registration(own_module):
    assert make("own_world_for_tests:World", size=5).size == 5
    assert isinstance(make("own_world_for_tests:Inner.Deep"), Environment)


def test_own_names_can_be_registered_once(own_module):
    register("own", "own_world_for_tests:World")
    assert "own" in registered() and make("own").size == 3
    with pytest.raises(ConfigError, match='"own" is taken by own_world_for_tests:World'):
        register("own", "elsewhere:World")
    with pytest.raises(ConfigError, match='"minesweeper" is taken'):
        register("minesweeper", "elsewhere:World")


@pytest.mark.parametrize(("name", "address"), [("own", "no_colon"), ("own", "a:"), ("a:b", "a:B"), ("", "a:B")])
def test_odd_names_and_addresses_are_refused(name, address):
    with pytest.raises(ConfigError):
        register(name, address)


def test_an_unknown_name_gets_a_suggestion_the_list_and_the_address_hint():
    with pytest.raises(UnknownEnvironmentError) as caught:
        make("minesweper")
    message = str(caught.value)
    assert message.startswith('no environment is called "minesweper". Did you mean "minesweeper"?\nRegistered: ')
    assert "two_doors" in message and '--env "my_package.module:MyEnv"' in message
    with pytest.raises(KeyError, match="no environment is called"):
        resolve("qqqq")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("no_such_module_here:World", 'There is no module "no_such_module_here"'),
        ("metarl_agents.no_such_part:World", 'There is no module "metarl_agents.no_such_part"'),
        ("own_world_for_tests:Wrld", 'has no "Wrld". Did you mean "World"?'),
        ("own_world_for_tests:number", "is a int, but a class"),
        ("own_broken_for_tests:World", 'needs "a_package_nobody_has", which is not installed'),
        ("own_world_for_tests:not a name", "is no address"),
    ],
)
def test_wrong_addresses_say_what_is_missing(own_module, address, message):
    with pytest.raises(ConfigError) as caught:
        resolve(address)
    assert message in str(caught.value)


def test_wrong_keywords_are_answered_with_those_accepted():
    with pytest.raises(ConfigError, match=r"sise=3.*It takes: size, mines, max_clicks, reward_preset, wording\."):
        make("minesweeper", sise=3)
    with pytest.raises(ConfigError, match="It takes no keywords"):
        make("two_doors", doors=3)


@pytest.mark.parametrize("name", ["gymnasium", "textarena", "openspiel", "gymnasium:", "textarena:", "openspiel:"])
def test_a_library_alone_is_no_environment(name):
    with pytest.raises(UnknownEnvironmentError, match="alone is no environment: name one .* as in --env"):
        resolve(name)


def test_a_registered_name_may_be_that_of_a_library(own_module):
    register("gymnasium", "own_world_for_tests:World")
    assert make("gymnasium", size=4).size == 4


@pytest.mark.parametrize("library", ["gymnasium", "textarena"])
def test_a_library_that_is_not_installed_gets_one_sentence(library, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ConfigError) as caught:
        make(f"{library}:Anything-v0")
    message = str(caught.value)
    assert f"needs the package {library}, which is not installed" in message
    assert f'pip install -e ".[{library}]"' in message


def test_listing_names_imports_no_environment():
    code = (
        "import sys; from metarl_agents.envs import registered; registered();"
        "print([m for m in sys.modules if m.startswith('metarl_agents.environments.') or m in ('torch', 'numpy', 'gymnasium', 'textarena', 'pyspiel')])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


SCRIPT = """
import sys
from metarl_agents.config import TrialConfig
from metarl_agents.envs.factory import environment_factory, environment_workers

if __name__ == "__main__":
    config = TrialConfig(env=sys.argv[1], env_workers=int(sys.argv[2]), env_timeout_s=None)
    with environment_workers(environment_factory(config), config) as build:
        print(build().reset(seed=5)[0])
"""
WORLD = """
from metarl_agents.envs import Environment
class World(Environment):
    def reset(self, *, seed):
        return f"task {seed}", {}
"""


def run_script(folder, address, workers=0):
    """Run a script that lies in another folder than the current one, `folder`, as recipes do."""
    (folder / "scripts").mkdir()
    (folder / "scripts" / "script.py").write_text(SCRIPT)
    here = folder / "here"
    here.mkdir()
    (here / "own_world_here.py").write_text(WORLD)
    (here / "own_package_here").mkdir()
    (here / "own_package_here" / "worlds.py").write_text(WORLD)
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [sys.executable, str(folder / "scripts" / "script.py"), address, str(workers)]
    return subprocess.run(words, cwd=here, env=bare, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("address", "workers"),
    [("own_world_here:World", 0), ("own_package_here.worlds:World", 0), ("own_world_here:World", 1)],
)
def test_a_script_elsewhere_finds_a_module_of_the_current_folder(tmp_path, address, workers):
    done = run_script(tmp_path, address, workers)
    assert (done.returncode, done.stdout) == (0, "task 5\n"), done.stderr


def test_what_the_current_folder_lacks_is_still_missing_there(tmp_path):
    done = run_script(tmp_path, "own_package_here.wrlds:World")
    assert done.returncode != 0 and 'There is no module "own_package_here.wrlds"' in done.stderr


def test_the_path_stays_as_it_is_where_the_current_folder_has_no_such_module(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(tmp_path))])
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    for address in ("no_such_module_here:World", "metarl_agents.no_such_part:World"):
        with pytest.raises(ConfigError, match="There is no module"):
            resolve(address)
    assert sys.path == before


def test_a_module_that_registers_an_id_of_gymnasium_is_found_in_the_current_folder(tmp_path, monkeypatch):
    pytest.importorskip("gymnasium")
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(tmp_path))])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_ids_here.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.toy_text import FrozenLakeEnv\n"
        "gymnasium.register('OwnLake-v0', entry_point=FrozenLakeEnv)\n"
    )
    try:
        lake = make("gymnasium:own_ids_here:OwnLake-v0", render_mode="ansi")
        assert "red:S" in lake.reset(seed=0)[0]
    finally:
        sys.modules.pop("own_ids_here", None)
