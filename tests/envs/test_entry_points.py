"""Environments of installed packages: found by name, and harmless where they are broken."""

import sys
import warnings

import pytest

from metarl_agents.envs import make, registered, resolve
from metarl_agents.envs.installed import installed_environments
from metarl_agents.errors import ConfigError, UnknownEnvironmentError

WORLD = (
    "from metarl_agents.envs import Environment\n"
    "class World(Environment):\n"
    "    def __init__(self, *, size=3): self.size = size\n"
)


@pytest.fixture(autouse=True)
def names_read_afresh():
    installed_environments.cache_clear()
    yield
    installed_environments.cache_clear()


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a distribution as pip leaves it: a module and a .dist-info folder with entry points."""
    monkeypatch.syspath_prepend(tmp_path)
    modules = []

    def add(package, entries, module=None, code=WORLD, folder=tmp_path, group="metarl_agents.environments"):
        info = folder / f"{package.replace('-', '_')}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{group}]\n{entries}\n")
        if module:
            (folder / f"{module}.py").write_text(code)
            modules.append(module)

    yield add
    for module in modules:
        sys.modules.pop(module, None)


def names_and_warnings():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        names = registered()
        assert registered() == names  # a second look costs no second warning
    return names, [str(warning.message) for warning in caught]


def test_a_package_s_environment_is_built_by_its_name(install):
    install("guest-worlds", "guest = guest_world_for_tests:World", "guest_world_for_tests")
    names, told = names_and_warnings()
    assert "guest" in names and told == []
    assert make("guest", size=5).size == 5 and resolve("guest").__module__ == "guest_world_for_tests"


def test_installed_names_are_suggested_and_listed(install):
    install("guest-worlds", "guest_house = guest_world_for_tests:World", "guest_world_for_tests")
    with pytest.raises(UnknownEnvironmentError) as caught:
        make("guest_hause")
    message = str(caught.value)
    assert 'Did you mean "guest_house"?' in message and " guest_house," in message.split("Registered:")[1]


def test_listing_imports_nothing_of_a_package(install):
    install("guest-worlds", "guest = guest_world_for_tests:World", "guest_world_for_tests", code="raise OSError(7)")
    assert "guest" in registered() and "guest_world_for_tests" not in sys.modules


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import a_package_nobody_has\n", 'needs "a_package_nobody_has", which is not installed'),
        ("raise OSError('no disk')\n", "no disk"),
        ("World = 3\n", "is a int, but a class"),
        ("", 'has no "World"'),
    ],
)
def test_whoever_asks_for_an_environment_that_cannot_be_loaded_learns_whose_it_is(install, code, told):
    install("guest-worlds", "guest = guest_world_for_tests:World", "guest_world_for_tests", code=code)
    with pytest.raises(ConfigError) as caught:
        make("guest")
    assert 'The environment "guest" of the installed package guest-worlds cannot be loaded' in str(caught.value)
    assert told in str(caught.value)
    assert make("two_doors")


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        ("guest = guest_world_for_tests", "is not of the form"),
        ("guest = guest world:World", "is not of the form"),
        ("a:b = guest_world_for_tests:World", 'a name is not empty and holds no ":"'),
        ("no equals sign", "cannot be read"),
    ],
)
def test_a_broken_entry_point_costs_one_warning_that_names_its_package(install, entries, told):
    before = registered()
    installed_environments.cache_clear()
    install("guest-worlds", entries)
    install("good-worlds", "good = good_world_for_tests:World", "good_world_for_tests")
    names, warned = names_and_warnings()
    assert names == sorted([*before, "good"])
    (sentence,) = warned
    assert "the installed package guest-worlds" in sentence and told in sentence and "\n" not in sentence


def test_a_built_in_name_cannot_be_taken(install):
    install("guest-worlds", "minesweeper = guest_world_for_tests:World", "guest_world_for_tests")
    with pytest.warns(UserWarning, match="guest-worlds is left out: that name is the library's own.*_for_tests:World"):
        factory = resolve("minesweeper")
    assert factory.__name__ == "Minesweeper"


def test_of_two_packages_with_one_name_the_first_keeps_it(install, tmp_path, monkeypatch):
    install("first-worlds", "guest = guest_world_for_tests:World", "guest_world_for_tests", folder=tmp_path / "first")
    install("second-worlds", "guest = elsewhere:World", folder=tmp_path / "second")
    monkeypatch.syspath_prepend(tmp_path / "second")
    monkeypatch.syspath_prepend(tmp_path / "first")
    _, warned = names_and_warnings()
    assert len(warned) == 1 and "package second-worlds is left out: the package first-worlds has" in warned[0]
    assert resolve("guest").__module__ == "guest_world_for_tests"


def test_of_two_copies_of_a_package_the_one_that_python_imports_counts(install, tmp_path, monkeypatch):
    install("guest-worlds", "guest = guest_world_for_tests:World", "guest_world_for_tests", folder=tmp_path / "new")
    install("guest.worlds", "guest = elsewhere:World", folder=tmp_path / "old")
    monkeypatch.syspath_prepend(tmp_path / "old")
    monkeypatch.syspath_prepend(tmp_path / "new")
    names, warned = names_and_warnings()
    assert "guest" in names and warned == []
    assert resolve("guest").__module__ == "guest_world_for_tests"


def test_entry_points_of_other_groups_are_none_of_ours(install):
    install("other-tool", "guest = guest_world_for_tests:World\nno equals sign", group="console_scripts")
    names, warned = names_and_warnings()
    assert "guest" not in names and warned == []
