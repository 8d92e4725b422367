"""What a run prints: a table by file, what was not compared, differences, refusals by count."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.pg_regress.comparison import Verdict
from tests.pg_regress.files import NAMED
from tests.pg_regress.outcome import SETUP, Finding, Outcome

_HEADING = "## PostgreSQL's regression SQL\n"
_NEXT = "\n## "
_INTRODUCTION = """\
Written by `python -m tests.pg_regress CORPUS --table` from a run beside {version}, each file on a
new database in the collation C and UTC, behind test_setup. The line `named` sums up the fifteen
files by which the share is measured, `all` every file but test_setup.

- `equal` are rows, their order where ORDER BY gives one, and column names; `share` is that of what
  PostgreSQL answers.
- `by design` differs as the [closed list](#what-differs-from-postgresql) says. `refused` is what
  PostgreSQL answers, `refused too` what it raises another error for.
- A statement is a consequence where an earlier one was refused, or different, that made or changed
  what it names.
- EXPLAIN, backslash commands and the rows of COPY FROM stdin, which are inserted, do not count.
"""
COLUMNS = (
    "file", " statements", " answered", " equal", " share",
    *(f" {each.value}" for each in [*Verdict][1:]),
)  # fmt: skip
_LINES_MAX, _LINE_MAX, _EXAMPLE_MAX, _RULE_MAX = 12, 160, 110, 70


class Refusal(NamedTuple):
    """One kind of errors that herdpy raises where PostgreSQL does not, and what it costs."""

    reason: str
    statements: int
    """That PostgreSQL answers, and herdpy does not for this reason."""
    consequences: int
    """That PostgreSQL answers, and that differ since one of those was refused."""
    errors: int
    """That PostgreSQL refuses, too, for another reason."""
    files: int
    """In how many files these statements are."""
    example: Finding
    """The shortest."""


def rows(outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """Return a row for each file, one of those by which the share is measured, and one of all.

    test_setup, which runs before each, is in neither.
    """
    counted = [each for each in outcomes if each.name != SETUP]
    measured = [each for each in counted if each.name in NAMED]
    sums = [_sum("named", measured)] if len(measured) == len(NAMED) else []
    return [_row(each) for each in (*outcomes, *sums, _sum("all", counted))]


def _sum(name: str, outcomes: Iterable[Outcome]) -> Outcome:
    whole = Outcome(name)
    for each in outcomes:
        whole.answered += each.answered
        whole.verdicts.update(each.verdicts)
    return whole


def _row(outcome: Outcome) -> tuple[str, ...]:
    found = outcome.verdicts
    return (
        outcome.name, f"{outcome.statements:,}", f"{outcome.answered:,}",
        f"{found[Verdict.EQUAL]:,}", f"{found[Verdict.EQUAL] / max(outcome.answered, 1):.0%}",
        *(f"{found[each]:,}" for each in [*Verdict][1:]),
    )  # fmt: skip


def refusals(findings: Iterable[Finding]) -> list[Refusal]:
    """Return the errors by kind, those that cost most statements first."""
    direct: dict[str, list[Finding]] = {}
    errors, consequences = Counter[str](), Counter[str]()
    for each in findings:
        if each.cause is not None:
            consequences[each.cause.reason] += each.is_answered
        elif each.is_error:
            direct.setdefault(each.reason, []).append(each)
            errors[each.reason] += not each.is_answered
    made = [
        Refusal(reason, len(found) - errors[reason], consequences[reason], errors[reason],
                len({each.where.partition(":")[0] for each in found}),
                min(found, key=lambda each: (not each.is_answered, len(each.text), each.where)))
        for reason, found in direct.items()
    ]  # fmt: skip
    return sorted(made, key=lambda each: (-each.statements - each.consequences, each.reason))


def differences(findings: Iterable[Finding]) -> list[tuple[str, ...]]:
    """Return a row for each kind of differences, how many there are and the first of them."""
    kinds: dict[str, list[Finding]] = {}
    for each in findings:
        if each.verdict in (Verdict.DIFFERENT, Verdict.INTERNAL):
            kinds.setdefault(each.reason, []).append(each)
    ordered = sorted(kinds.items(), key=lambda item: (-len(item[1]), item[0]))
    return [(str(len(found)), reason, one_line(found[0])) for reason, found in ordered]


def by_design(findings: Iterable[Finding]) -> list[tuple[str, ...]]:
    """Return a row for each rule of the closed list, with how many statements it says why of."""
    rules = Counter(each.rule for each in findings if each.rule is not None)
    return [(rule[:_RULE_MAX], str(count)) for rule, count in rules.most_common()]


def one_line(finding: Finding) -> str:
    return f"{finding.where}: {' '.join(finding.text.split())[:_EXAMPLE_MAX]}"


def described(finding: Finding) -> str:
    """Return a difference with both answers, in few lines."""
    why = f", because of {finding.cause.where}: {finding.cause.reason}" if finding.cause else ""
    why = f", {finding.rule}" if finding.rule else why
    return (
        f"{finding.where}: {finding.verdict.value} ({finding.reason}){why}\n"
        f"{_shortened(finding.text, '  ')}\n"
        f"  herdpy:\n{_shortened(finding.ours)}\n  PostgreSQL:\n{_shortened(finding.theirs)}\n"
    )


def _shortened(text: str, indent: str = "    ") -> str:
    lines = text.splitlines()
    if len(lines) > _LINES_MAX:
        lines = [*lines[:_LINES_MAX], f"… {len(lines) - _LINES_MAX} lines more"]
    return "\n".join(indent + line[:_LINE_MAX] for line in lines)


def section(outcomes: Sequence[Outcome], version: str) -> str:
    """Return the section of the page of SQL that says how far herdpy comes in each file."""
    names = [name.strip() for name in COLUMNS]
    lines = [
        _HEADING,
        _INTRODUCTION.format(version=version),
        f"| {' | '.join(names)} |",
        f"|---|{'---:|' * (len(names) - 1)}",
        *(f"| {' | '.join(row)} |" for row in rows(outcomes)),
    ]
    return "\n".join(lines) + "\n"


def with_section(page: str, made: str) -> str:
    """Return the page with this section instead of the one that it has."""
    before, heading, after = page.partition(_HEADING)
    if not heading:
        raise ValueError(f"the page has no section {_HEADING!r}")
    _, following, rest = after.partition(_NEXT)
    return before + made + following + rest
