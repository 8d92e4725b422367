"""Reads files of sqllogictest: the records of a text, in order, as one engine has to take them.

Records are separated by empty lines; a line that begins with # is not there. The format is that of
about.wiki in the corpus, and where it is silent of the C driver beside it: a label is its first 20
characters, `halt` ends the file unless a condition is for another engine, and the word behind the
engine's name in a condition is a comment. `hash-threshold` is passed over: a result that the file
has as a digest is compared as one, however many values it has.
"""

from collections.abc import Iterator
from typing import NamedTuple

TYPES = frozenset("IRT")
SORTS = ("nosort", "rowsort", "valuesort")
_LABEL_CHARACTERS = 20


class Statement(NamedTuple):
    """A statement whose rows, if there are any, do not count."""

    line: int
    """Of the record's first line in the file, from 1; of a query too."""
    text: str
    is_skipped: bool
    """A condition says that this engine does not run it."""
    must_fail: bool


class Query(NamedTuple):
    """A query and what it has to give."""

    line: int
    text: str
    is_skipped: bool
    types: str
    """For each column I (whole number), R (%.3f) or T (text)."""
    sort: str
    label: str
    """Queries of one file with one label have one result; empty: there is none."""
    expected: list[str]
    """A value a line, row by row and sorted as `sort` says, or one line that has their digest."""


Record = Statement | Query


class FormatError(ValueError):
    """A record that the format does not know; the message begins with its line."""


def read_records(text: str, engine: str) -> Iterator[Record]:
    """Yield the statements and queries of a file up to where it ends for this engine.

    engine: what conditions call it, in lower case.
    """
    for line, lines in _blocks(text):
        is_skipped = False
        words = lines[0].split()
        start = 1
        while words[0] in ("skipif", "onlyif") and start < len(lines):
            is_named = [word.lower() for word in words[1:2]] == [engine]
            is_skipped |= is_named == (words[0] == "skipif")
            words = lines[start].split()
            start += 1
        match words:
            case ["halt", *_]:
                if not is_skipped:
                    return
            case ["hash-threshold", _]:
                pass
            case ["statement", "ok" | "error" as word, *_]:
                text_of = "\n".join(lines[start:])
                yield Statement(line, text_of, is_skipped, must_fail=word == "error")
            case ["query", types, *rest] if TYPES.issuperset(types):
                sort, label = [*rest, "", ""][:2]
                if (sort or SORTS[0]) not in SORTS:
                    raise FormatError(f"{line}: {sort} is no way to sort")
                body = lines[start:]
                end = body.index("----") if "----" in body else len(body)
                yield Query(
                    line,
                    "\n".join(body[:end]),
                    is_skipped,
                    types,
                    sort or SORTS[0],
                    label[:_LABEL_CHARACTERS],
                    body[end + 1 :],
                )
            case _:
                raise FormatError(f"{line}: {' '.join(words)} begins no record")


def _blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines of each record, and the number of the first."""
    first, block = 0, list[str]()
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        if not line or line.isspace():
            if block:
                yield first, block
                block = []
        elif line[0] != "#":
            if not block:
                first = number
            block.append(line)
    if block:
        yield first, block
