"""What a script did: its statements by verdict, and those whose answers are not equal."""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.pg_regress.causes import Cause
from tests.pg_regress.comparison import Verdict

SETUP = "test_setup"
"""The script that runs before each."""


class Finding(NamedTuple):
    """A statement whose answers are not equal."""

    where: str
    """File and line."""
    verdict: Verdict
    head: str
    """What kind of statement it is."""
    text: str
    ours: str
    theirs: str
    reason: str
    """The kind of herdpy's answer."""
    rule: str | None
    """Of what differs by design how its rule begins."""
    cause: Cause | None
    """Of a consequence."""
    is_error: bool
    """Whether herdpy raised an error."""
    is_answered: bool
    """By PostgreSQL: it raised no error."""


@dataclass
class Outcome:
    """What a script did."""

    name: str
    answered: int = 0
    """Statements that PostgreSQL raised no error for."""
    verdicts: Counter[Verdict] = field(default_factory=Counter[Verdict])
    skipped: Counter[str] = field(default_factory=Counter[str])
    """What was not compared, by its kind."""
    findings: list[Finding] = field(default_factory=list[Finding])

    @property
    def statements(self) -> int:
        return self.verdicts.total()


def ended(name: str) -> Outcome:
    """Return the outcome of a file whose process has ended."""
    outcome = Outcome(name, verdicts=Counter((Verdict.INTERNAL,)))
    outcome.findings.append(
        Finding(f"{name}.sql", Verdict.INTERNAL, "", "", "the process has ended", "", "", None,
                None, is_error=True, is_answered=False)
    )  # fmt: skip
    return outcome
