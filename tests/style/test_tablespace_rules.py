"""Every rule of docs/protocols/tablespace_rules.md has a test, and the tests it names are there."""

import re

from tests.style.test_gotchas import all_tests
from tests.style.test_layers import ROOT

PAGE = (ROOT / "docs/protocols/tablespace_rules.md").read_text()
_ROW = re.compile(r"^\| (?P<rule>[DHI]\d+) \|(?P<says>.*)\|(?P<tests>.*)\|$", re.MULTILINE)
RULES = [
    f"{kind}{n}" for kind, count in (("D", 10), ("H", 14), ("I", 11)) for n in range(1, count + 1)
]
_NAME = re.compile(r"`(test_\w+)`")
_OTHER_ROW = re.compile(r"those of ([DHI]\d+)")


def test_every_rule_has_tests_that_exist() -> None:
    rows = {match["rule"]: match["tests"] for match in _ROW.finditer(PAGE)}
    assert list(rows) == RULES
    known = {test.name for test in all_tests()}
    for rule, tests in rows.items():
        named, others = _NAME.findall(tests), _OTHER_ROW.findall(tests)
        assert named or others, f"{rule} has no test"
        gone = [name for name in named if name not in known]
        assert not gone, f"{rule}: no such tests: {', '.join(gone)}"
        assert all(_NAME.search(rows[other]) for other in others), rule


def test_every_test_of_a_rule_of_herddb_is_in_its_row() -> None:
    rows = {match["rule"].lower(): match["tests"] for match in _ROW.finditer(PAGE)}
    for test in all_tests():
        if found := re.match(r"test_herddb_([dh]\d+)_", test.name):
            assert f"`{test.name}`" in rows[found[1]], f"{test.name} is not in its row"
