"""Every rule of docs/protocols/rules.md is named by a test, and the tests it names are there."""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.style.test_layers import ROOT

_ROW = re.compile(r"^\| (?P<rule>G\d+|4\.\d) \|", re.MULTILINE)
RULES = tuple([f"4.{n}" for n in range(1, 9)] + [f"G{n}" for n in range(1, 25)])
PAGE = (ROOT / "docs/protocols/rules.md").read_text()


class Found(NamedTuple):
    name: str
    text: str
    """Name and docstring; where a rule has to be named."""


def found_in(source: str) -> Iterator[Found]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith(
            "test_"
        ):
            yield Found(node.name, f"{node.name}\n{ast.get_docstring(node) or ''}")


def all_tests() -> list[Found]:
    files = sorted(ROOT.glob("tests/**/test_*.py"))
    return [test for path in files for test in found_in(path.read_text())]


def is_named(rule: str, tests: list[Found]) -> bool:
    """Tell whether a test says `g6` or `4_6` in its name, or "G6" or "§4.6" in its docstring."""
    inside = rule.lower().replace(".", "_")
    found = re.compile(rf"_{inside}_|\b{rule}\b" if rule[0] == "G" else rf"_{inside}_|§{rule}\b")
    return any(found.search(test.text) for test in tests)


@pytest.fixture(scope="module")
def known() -> list[Found]:
    return all_tests()


@pytest.mark.parametrize("rule", RULES)
def test_a_test_names_the_rule(rule: str, known: list[Found]) -> None:
    assert is_named(rule, known), f"no test names {rule}; write one that fails without it"


def test_the_page_lists_the_rules_and_tests_that_exist(known: list[Found]) -> None:
    assert tuple(match["rule"] for match in _ROW.finditer(PAGE)) == RULES
    names = {test.name for test in known}
    gone = [name for name in re.findall(r"`(test_g?\d\w+)`", PAGE) if name not in names]
    assert not gone, f"no such tests: {', '.join(gone)}"


def test_names_are_not_taken_for_each_other() -> None:
    tests = list(
        found_in("def test_g1_a(): ...\ndef test_4_4_b():\n    'G14, §4.7'\ndef g5(): ...")
    )
    named = [rule for rule in RULES if is_named(rule, tests)]
    assert named == ["4.4", "4.7", "G1", "G14"]
