"""What records came to, counted; tallies of parts of files are added up."""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

FINDINGS_MAX = 500
"""Kept of one part; all are counted."""


class Refusal(NamedTuple):
    """What refused statements have in common."""

    sqlstate: str
    message: str
    """Its names and numbers left out."""


class Finding(NamedTuple):
    """A wrong answer, or an error that is herdpy's own."""

    where: str
    """file:line"""
    kind: str
    """In what the answer differs, or the error's class."""
    statement: str
    expected: str
    found: str

    def __str__(self) -> str:
        return (
            f"{self.where}: {self.kind}\n  {self.statement}\n"
            f"  expected: {self.expected}\n  found:    {self.found}"
        )


@dataclass(slots=True)
class Tally:
    """Counts of records, but for seconds and files."""

    files: int = 0
    skipped: int = 0
    """By conditions; in no other count."""
    passed: int = 0
    coerced: int = 0
    """Of those that passed: a value was of another Python type than its column's letter."""
    refused: Counter[Refusal] = field(default_factory=Counter)
    different: Counter[str] = field(default_factory=Counter)
    """By kind of Finding."""
    doubtful: int = 0
    """Answers that differ behind a refused statement, without which the tables are others."""
    typed: int = 0
    """Answers that differ by design: averages.py has the rule."""
    internal: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    examples: dict[Refusal, str] = field(default_factory=dict)
    """The first statement of each kind, with its place."""
    findings: list[Finding] = field(default_factory=list)
    """What is wrong."""
    asides: list[Finding] = field(default_factory=list)
    """What is doubtful, or differs by design."""

    @property
    def run(self) -> int:
        refused, wrong = self.refused.total(), self.different.total() + self.internal.total()
        return self.passed + refused + self.doubtful + self.typed + wrong

    @property
    def wrong(self) -> int:
        """Records that never may be, strict or not."""
        return self.different.total() + self.internal.total()

    @property
    def share_passed(self) -> float:
        """Of those that ran; 0.0 where none did."""
        return self.passed / self.run if self.run else 0.0

    def add(self, other: "Tally") -> None:
        self.files += other.files
        self.skipped += other.skipped
        self.passed += other.passed
        self.coerced += other.coerced
        self.refused.update(other.refused)
        self.doubtful += other.doubtful
        self.typed += other.typed
        self.seconds += other.seconds
        for refusal, example in other.examples.items():
            self.examples.setdefault(refusal, example)
        self.asides += other.asides
        self.add_wrong(other)

    def add_wrong(self, other: "Tally") -> None:
        """Take over what is in `wrong` of the other, and nothing else."""
        self.different.update(other.different)
        self.internal.update(other.internal)
        self.findings += other.findings

    def refuse(self, refusal: Refusal, example: str) -> None:
        self.refused[refusal] += 1
        self.examples.setdefault(refusal, example)

    def note(self, counter: Counter[str], finding: Finding) -> None:
        """Count a finding in `different` or `internal`, and keep it if few were."""
        counter[finding.kind] += 1
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(finding)

    def set_aside(self, finding: Finding) -> None:
        """Keep a finding that is counted as doubtful or typed, if few were."""
        if len(self.asides) < FINDINGS_MAX:
            self.asides.append(finding)
