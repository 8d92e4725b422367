"""Runs the records of a file, or of a part of it, on a fresh database, and judges each.

A record passes, is refused (an error of herdpy's, but for those of class XX), differs, or has met
an internal error. A statement that is refused although the file needs it leaves tables that are not
the file's: what differs behind it is doubtful, no wrong answer. Refused indexes change no answer.
Of herdpy's own SQL an answer may differ by a type, too (averages.py), which is none of them.
"""

import re
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

import herdpy
from herdpy.driver.connection import Connection
from herdpy.driver.cursor import Cursor
from tests.slt.averages import with_whole_averages
from tests.slt.records import Query, Record, Statement, read_records
from tests.slt.results import difference, digest_of, digest_of_expected, in_order, texts_of
from tests.slt.tally import Finding, Refusal, Tally

STATEMENT_TIMEOUT_S = 60.0
"""A statement that takes longer is refused, with 57014."""
_INDEX = re.compile(r"\s*(CREATE\s+INDEX|DROP\s+INDEX|REINDEX)\b", re.IGNORECASE)
_NAMES = re.compile(r"'[^']*'|\"[^\"]*\"|\b\d[\d.,]*\b")
_NO_TABLE = "42P01"
_TEXT_CHARACTERS = 300
"""Shown of a statement or a result."""


class Target(NamedTuple):
    """What records run on."""

    engine: str
    """What conditions call it."""
    is_strict: bool
    """Without connect(dialect="sqlite")."""
    is_directory: bool
    """In a directory that is removed afterwards, instead of in memory."""


class Part(NamedTuple):
    """Neighbouring records of a file of the corpus, of those that run for the engine."""

    name: str
    """Of the file, below the corpus."""
    first: int
    """From 0. Statements before it are run, too, and not counted unless they come to be wrong."""
    count: int


def run_part(corpus: Path, part: Part, target: Target) -> Tally:
    """Run it and return what its records came to; a malformed file is a ValueError."""
    text = (corpus / part.name).read_text()
    tally = Tally(files=1)
    begun_s = time.perf_counter()
    with ExitStack() as stack:
        if target.is_directory:
            place = stack.enter_context(tempfile.TemporaryDirectory(prefix="herdpy-slt-"))
        else:
            place = ":memory:"
        connection = stack.enter_context(closing(connect(place, target)))
        run = Run(connection, part.name, tally, is_strict=target.is_strict)
        number = 0
        try:
            for record in read_records(text, target.engine):
                if number >= part.first + part.count and not record.is_skipped:
                    break
                if number >= part.first:
                    run.take(record)
                elif isinstance(record, Statement):
                    run.prepare(record)
                number += not record.is_skipped
        except ValueError as error:
            raise ValueError(f"{part.name}:{error}") from error
    tally.seconds = time.perf_counter() - begun_s
    return tally


def connect(place: str, target: Target) -> Connection:
    options = {} if target.is_strict else {"dialect": "sqlite"}
    return herdpy.connect(
        place, autocommit=True, statement_timeout_s=STATEMENT_TIMEOUT_S, **options
    )


class Run:
    """Records of one file on one connection, in their order."""

    def __init__(self, connection: Connection, name: str, tally: Tally, *, is_strict: bool) -> None:
        self._connection = connection
        self._name = name
        self._tally = tally
        self._is_strict = is_strict
        self._labels: dict[str, str] = {}
        self._is_doubtful = False

    def prepare(self, statement: Statement) -> None:
        """Run a statement for what comes behind it; it counts only if it comes to be wrong."""
        counted, self._tally = self._tally, Tally()
        self.take(statement)
        prepared, self._tally = self._tally, counted
        counted.add_wrong(prepared)

    def take(self, record: Record) -> None:
        """Run a record and count what it came to; of one that is skipped the label is checked."""
        if record.is_skipped:
            self._tally.skipped += 1
            if isinstance(record, Query) and record.expected:
                digest = digest_of_expected(record.expected)
                if not self._agrees(record.label, digest):
                    self._differs(record, "label (of a skipped record)", "its label's", digest)
            return
        try:
            if isinstance(record, Query):
                self._query(record)
            else:
                self._statement(record)
        except herdpy.Error as error:
            if error.sqlstate.startswith("XX"):
                self._broken(record, f"{error.sqlstate} {type(error).__name__}", error)
            elif isinstance(record, Statement) and record.must_fail:
                self._tally.passed += 1
            else:
                self._refused(record, error)
        except Exception as error:
            self._broken(record, type(error).__name__, error)

    def _statement(self, record: Statement) -> None:
        with closing(self._connection.execute(record.text)) as cursor:
            if cursor.description is not None:
                cursor.fetchall()
        if record.must_fail:
            self._differs(record, "no error", "an error", "none")
            self._is_doubtful = True
        else:
            self._tally.passed += 1

    def _query(self, record: Query) -> None:
        with closing(self._connection.execute(record.text)) as cursor:
            width = len(cursor.description or ())
            if width != len(record.types):
                self._differs(record, "number of columns", str(len(record.types)), str(width))
                return
            values, is_coerced = _values(cursor, record)
        kind = difference(values, record.expected)
        if kind is None and not self._agrees(record.label, digest_of(values)):
            kind = "label"
        if kind is None:
            self._tally.passed += 1
            self._tally.coerced += is_coerced
            return
        expected, found = " ".join(record.expected), " ".join(values)
        if self._is_strict and self._is_by_type(record):
            self._tally.typed += 1
            self._tally.set_aside(self._finding(record, f"{kind}, by type", expected, found))
        else:
            self._differs(record, kind, expected, found)

    def _is_by_type(self, record: Query) -> bool:
        """Tell whether the answer is the expected one as soon as averages are whole numbers."""
        text = with_whole_averages(record.text)
        if text is None:
            return False
        try:
            with closing(self._connection.execute(text)) as cursor:
                values, _ = _values(cursor, record)
        except herdpy.Error:
            return False
        return difference(values, record.expected) is None

    def _agrees(self, label: str, digest: str) -> bool:
        """Tell whether the label's results were this one so far."""
        return not label or self._labels.setdefault(label, digest) == digest

    def _differs(self, record: Record, kind: str, expected: str, found: str) -> None:
        if self._is_doubtful:
            self._tally.doubtful += 1
            self._tally.set_aside(self._finding(record, f"{kind}, doubtful", expected, found))
        else:
            self._tally.note(self._tally.different, self._finding(record, kind, expected, found))

    def _broken(self, record: Record, kind: str, error: Exception) -> None:
        expected = " ".join(record.expected) if isinstance(record, Query) else "no internal error"
        self._tally.note(self._tally.internal, self._finding(record, kind, expected, str(error)))
        self._is_doubtful |= isinstance(record, Statement)

    def _refused(self, record: Record, error: herdpy.Error) -> None:
        place = f"{self._name}:{record.line}: {_one_line(record.text)}"
        refusal = class_of(error)
        if self._is_doubtful and error.sqlstate == _NO_TABLE:
            refusal = refusal._replace(message=f"{refusal.message} (behind a refused statement)")
        self._tally.refuse(refusal, place)
        if isinstance(record, Statement) and not _INDEX.match(record.text):
            self._is_doubtful = True

    def _finding(self, record: Record, kind: str, expected: str, found: str) -> Finding:
        where = f"{self._name}:{record.line}"
        return Finding(where, kind, _one_line(record.text), _one_line(expected), _one_line(found))


def _values(cursor: Cursor, record: Query) -> tuple[list[str], bool]:
    values, is_coerced = texts_of(cursor.fetchall(), record.types)
    return in_order(values, len(record.types), record.sort), is_coerced


def class_of(error: herdpy.Error) -> Refusal:
    """Return what the error has in common with others of its kind."""
    return Refusal(error.sqlstate, _NAMES.sub("…", error.message.partition("\n")[0]))


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _TEXT_CHARACTERS else f"{line[:_TEXT_CHARACTERS]} …"
