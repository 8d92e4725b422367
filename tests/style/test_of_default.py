"""What is left out where suites run in another tablespace is there, once, and has a reason."""

import ast

import pytest

from tests.fixtures.of_default import OF_DEFAULT, OfDefault
from tests.style.test_layers import ROOT


@pytest.mark.parametrize("each", OF_DEFAULT, ids=lambda each: each.function)
def test_each_is_a_test(each: OfDefault) -> None:
    tree = ast.parse((ROOT / each.path).read_text())
    assert each.function in [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert len(each.reason.split()) > 5
    assert sum(other[:2] == each[:2] for other in OF_DEFAULT) == 1
