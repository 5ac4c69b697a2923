"""Names and addresses of estimators and return modes: what is found, where, and what the refusals say."""

import os
import subprocess
import sys
from dataclasses import fields
from functools import partial

import pytest

from metarl_agents.addresses import ENVIRONMENT, ESTIMATOR, RETURN_MODE, has_mark, is_address, load
from metarl_agents.config import CreditConfig
from metarl_agents.errors import ConfigError


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    (tmp_path / "own_credit_for_tests.py").write_text(
        "def my_advantages(table): ...\nclass Family:\n    @staticmethod\n    def advantages(table): ...\nnumber = 3\n"
    )
    (tmp_path / "own_broken_credit_for_tests.py").write_text("import a_package_nobody_has\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("own_credit_for_tests", None)


@pytest.mark.parametrize("kind", [ESTIMATOR, RETURN_MODE], ids=["estimator", "return_mode"])
def test_every_short_name_leads_to_a_function_that_says_what_it_is(kind):
    for name, address in kind.names.items():
        assert is_address(address) and load(name, kind).__doc__ and load(name, kind) is load(address, kind)
        assert name.isidentifier()


def test_the_settings_take_exactly_the_names_that_the_library_has_functions_for():
    from metarl_agents.advantages import ADVANTAGES, RETURN_MODES

    taken = {item.name: item.metadata["names"] for item in fields(CreditConfig) if item.metadata["names"]}
    assert taken == {"advantages": tuple(ADVANTAGES), "return_mode": tuple(RETURN_MODES)}
    assert {"gigpo", "rloo", "grpo", "reinforce", "ppo"} <= set(taken["advantages"])
    assert {"paper", "recursive", "differential", "final", "single"} <= set(taken["return_mode"])


@pytest.mark.parametrize(
    ("setting", "kind", "address", "name"),
    [
        ("advantages", ESTIMATOR, "metarl_agents.advantages.rloo:rloo_advantages", "rloo"),
        ("advantages", ESTIMATOR, "metarl_agents.advantages:ppo_advantages", "ppo"),
        ("return_mode", RETURN_MODE, "metarl_agents.advantages.returns:single_returns", "single"),
    ],
)
def test_what_is_shipped_goes_by_its_short_name_however_it_was_named(setting, kind, address, name):
    assert load(address, kind) is load(name, kind)
    assert getattr(CreditConfig(**{setting: address}), setting) == name
    for other in (f"my_module:{address.partition(':')[2]}", "metarl_agents.advantages.returns:own", name):
        assert getattr(CreditConfig(**{setting: other}), setting) == other


def test_a_mark_is_read_through_partials_and_not_where_there_is_none():
    def bare(table, gamma_step=1.0): ...

    def marked(table, gamma_step=1.0): ...

    marked.compares_trials = True
    outer = partial(marked)
    outer.note = "a partial with an attribute is not merged with the one around it"
    for function in (marked, partial(marked, gamma_step=0.5), partial(outer, gamma_step=0.5)):
        assert has_mark(function, "compares_trials") and not has_mark(function, "reads_values")
    assert not has_mark(bare, "compares_trials") and not has_mark(partial(bare), "compares_trials")
    own = partial(bare)
    own.reads_values = True
    assert has_mark(own, "reads_values") and not has_mark(bare, "reads_values")


def test_a_function_is_found_by_its_address(own_module):
    assert load("own_credit_for_tests:my_advantages", ESTIMATOR).__name__ == "my_advantages"
    assert load("own_credit_for_tests:Family.advantages", RETURN_MODE).__name__ == "advantages"


@pytest.mark.parametrize(
    ("address", "kind", "message"),
    [
        ("no_such_module_here:f", ESTIMATOR, 'There is no module "no_such_module_here", which the address'),
        ("own_credit_for_tests:my_advantage", ESTIMATOR, 'has no "my_advantage". Did you mean "my_advantages"?'),
        ("own_credit_for_tests:number", ESTIMATOR, "is a int, but a function is expected."),
        ("own_credit_for_tests:number", ENVIRONMENT, "is a int, but a class (or a callable) is expected."),
        ("own_broken_credit_for_tests:f", RETURN_MODE, 'needs "a_package_nobody_has", which is not installed'),
        ("f:", ESTIMATOR, '`f:` is no address of an advantage estimator. Write it as "package.module:function".'),
        ("a b:c", RETURN_MODE, '`a b:c` is no address of a return mode. Write it as "package.module:function".'),
        ("a b:c", ENVIRONMENT, '`a b:c` is no address of an environment. Write it as "package.module:Class".'),
    ],
)
def test_refusals_say_what_was_looked_for(own_module, address, kind, message):
    with pytest.raises(ConfigError) as caught:
        load(address, kind)
    assert message in str(caught.value)


def test_a_name_that_a_module_has_not_is_told_with_the_file_that_was_read(own_module, tmp_path):
    with pytest.raises(ConfigError) as caught:
        load("own_credit_for_tests:nothing_like_it", ESTIMATOR)
    file = tmp_path / "own_credit_for_tests.py"
    assert f', read from {file}, has no "nothing_like_it". Check the spelling.' in str(caught.value)
    with pytest.raises(ConfigError, match='The module "sys" of `sys:nothing_like_it` has no "nothing_like_it"'):
        load("sys:nothing_like_it", ESTIMATOR)  # built in: there is no file


SCRIPT = """
import sys
from metarl_agents.cli import parse_config
from metarl_agents.training.credit import check_functions

config = parse_config()
check_functions(config.credit)
print(config.credit.advantages)
"""


@pytest.mark.parametrize(
    ("flags", "status", "said"),
    [
        ("--advantages own_credit_here:own", 0, "own_credit_here:own"),
        ("--advantages own_credit_here:own --group_size 1", 1, "`own_credit_here:own` compares a trial with the other"),
    ],
)
def test_a_script_elsewhere_finds_a_function_of_the_current_folder(tmp_path, flags, status, said):
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "script.py").write_text(SCRIPT)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "own_credit_here.py").write_text(
        "from metarl_agents.advantages import compares_trials\n@compares_trials\ndef own(table): ...\n"
    )
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [sys.executable, str(tmp_path / "scripts" / "script.py"), *flags.split()]
    done = subprocess.run(words, cwd=tmp_path / "here", env=bare, capture_output=True, text=True)
    assert done.returncode == status and said in done.stdout + done.stderr, done.stderr
