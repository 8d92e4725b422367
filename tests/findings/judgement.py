"""What has to be true of the tests of findings, and which tests there are: no process, no clock.

A test shows that a finding is mended when it passes here and fails on the commit where the finding
was made, by an assertion of its own: a name that is missing there, a fixture that cannot be set up
or a time-out would fail on any commit and show nothing.
"""

import ast
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent
EXPECTED = FOLDER / "expected_ids.txt"


class Outcome(NamedTuple):
    """How one test ended, as finding_outcomes.py wrote it."""

    test: str
    ids: tuple[str, ...]
    phase: str
    outcome: str
    raised: str
    is_in_test: bool
    reason: str

    @staticmethod
    def of(document: dict[str, Any]) -> "Outcome":
        ids = sorted(document["ids"], key=lambda name: _order((name,)))
        return Outcome(**{**document, "ids": tuple(ids)})

    def __str__(self) -> str:
        if self.outcome in ("passed", "skipped", "xfailed"):
            return self.outcome
        if self.phase != "call":
            return f"{self.raised} in its {self.phase}"
        is_elsewhere = self.raised == "AssertionError" and not self.is_in_test
        where = ", not in the test" if is_elsewhere else ""
        return f"{self.raised}{where}"


class Run(NamedTuple):
    """One run of all tests; `broken` are files that could not be imported, with the reason."""

    outcomes: tuple[Outcome, ...]
    broken: tuple[str, ...] = ()


class Row(NamedTuple):
    """One line of the table; `old` is None when no older commit was asked."""

    ids: tuple[str, ...]
    test: str
    old: str | None
    new: str
    problem: str | None


class MarkedTest(NamedTuple):
    id: str
    test: str
    title: str


def expected_ids(text: str) -> list[str]:
    lines = (line.partition("#")[0] for line in text.splitlines())
    return [name for line in lines for name in line.split()]


def shows_the_finding(outcome: Outcome) -> bool:
    """Tell whether this is how a test has to end on the commit of the finding."""
    return (
        (outcome.phase, outcome.outcome) == ("call", "failed")
        and outcome.raised == "AssertionError"
        and outcome.is_in_test
    )


def judge(expected: Iterable[str], new: Run, old: Run | None) -> tuple[list[Row], list[str]]:
    """Return the table and one line for each thing that is not as it has to be."""
    wanted = set(expected)
    before = {} if old is None else {outcome.test: outcome for outcome in old.outcomes}
    rows: list[Row] = []
    for outcome in sorted(new.outcomes, key=lambda each: (_order(each.ids), each.test)):
        there = before.pop(outcome.test, None)
        problem: str | None = None
        if outcome.outcome != "passed":
            problem = f"does not pass here ({outcome}): {outcome.reason}"
        elif old is not None and there is None:
            problem = "did not run on the old commit"
        elif there is not None and not shows_the_finding(there):
            problem = f"has to fail on the old commit by its own assertion: {there}"
            problem += f": {there.reason}" if there.reason else ""
        elif unknown := [name for name in outcome.ids if name not in wanted]:
            problem = f"names {', '.join(unknown)}, which {EXPECTED.name} does not list"
        elif not outcome.ids:
            problem = "is marked without an id"
        said = None if old is None else str(there or "did not run")
        rows.append(Row(outcome.ids, outcome.test, said, str(outcome), problem))
    problems = [f"{row.test}: {row.problem}" for row in rows if row.problem]
    problems += [f"{test}: ran on the old commit and not here" for test in before]
    for run, where in ((new, "here"), (old, "on the old commit")):
        problems += [f"{text} (not imported {where})" for text in (run.broken if run else ())]
    tested = {name for outcome in new.outcomes for name in outcome.ids}
    problems += [f"{name}: no test is marked with it" for name in expected if name not in tested]
    return rows, problems


def marked_tests(folder: Path = FOLDER) -> list[MarkedTest]:
    """Return the tests of a folder with their ids, read from their text, in the order of ids.

    A mark stands at the function, its class, its module (pytestmark) or in its pytest.param.
    """
    found: list[MarkedTest] = []
    for path in sorted(folder.glob("**/test_*.py")):
        module = ast.parse(path.read_text())
        name = path.relative_to(folder).as_posix()
        found += _marked(module.body, name, _module_ids(module.body))
    return sorted(found, key=lambda each: (_order((each.id,)), each.test))


def _marked(body: Sequence[ast.stmt], name: str, around: set[str]) -> Iterator[MarkedTest]:
    for node in body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        ids = around | _ids(node.decorator_list)
        if isinstance(node, ast.ClassDef):
            yield from _marked(node.body, f"{name}::{node.name}", ids | _module_ids(node.body))
        elif node.name.startswith("test_"):
            title = (ast.get_docstring(node) or node.name[5:].replace("_", " ")).splitlines()[0]
            yield from (MarkedTest(each, f"{name}::{node.name}", title) for each in ids)


def _module_ids(body: Sequence[ast.stmt]) -> set[str]:
    return _ids(
        node.value
        for node in body
        if isinstance(node, ast.Assign)
        and any(
            isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets
        )
    )


def _ids(expressions: Iterable[ast.expr]) -> set[str]:
    return {
        argument.value
        for expression in expressions
        for node in ast.walk(expression)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.finding"
        for argument in node.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    }


def _order(ids: Sequence[str]) -> tuple[str, int]:
    """Order ids by letter, then by number."""
    first = ids[0] if ids else ""
    return first[:1], int(first[1:]) if first[1:].isdigit() else 0
