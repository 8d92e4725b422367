"""Audit: who came, who was refused and why, and who changed what others may see or do.

One JSON object a line. Passwords and literals of statements are never in it: a statement ends where
its first literal begins. Any thread.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from bookie.runtime.interfaces import Clock
from herdpy.model.printable import escaped

_TEXT_CHARACTERS_MAX = 256
_MARK = re.compile(r"""/\*|--[^\r\n]*|\{#.*?#\}|"[^"]*"|['$]""", re.DOTALL)
"""What begins a comment, is one or a name in quotes, or begins a literal."""
_COMMENT = re.compile(r"/\*|\*/")


def without_literals(text: str) -> str:
    """Return a statement without its comments, up to its first literal."""
    shown, place = "", 0
    while (found := _MARK.search(text, place)) is not None:
        shown += text[place : found.start()]
        mark = found[0]
        if mark in ("'", "$"):
            return f"{_spaced(shown)} …"
        place = _end_of_comment(text, found.end()) if mark == "/*" else found.end()
        shown += mark if mark[0] == '"' else " "
    return _spaced(shown + text[place:])


def _end_of_comment(text: str, place: int) -> int:
    """Return where a comment ends that begins before the place; comments nest."""
    depth = 1
    while depth and (found := _COMMENT.search(text, place)) is not None:
        depth += 1 if found[0] == "/*" else -1
        place = found.end()
    return len(text) if depth else place


def _spaced(text: str) -> str:
    return " ".join(text.split())


def line_of(clock: Clock, event: str, *, tablespace: str = "", **fields: Any) -> bytes:
    """Return one event as a line with its end; texts are cut to 256 characters.

    tablespace: where it is, or what the client has named; "": it is of none, or none is known.
    """
    at = datetime.fromtimestamp(clock.wall_us() / 1e6, UTC)
    line = {"at": at.isoformat(timespec="milliseconds"), "event": event}
    line["tablespace"] = _cut(tablespace)
    for name, value in fields.items():
        line[name] = _cut(value) if isinstance(value, str) else value
    return msgspec.json.encode(line) + b"\n"


class Audit:
    """`write` takes one line with its end, and never waits: events come from the server's loop.

    What it loses it counts and says itself (audit_file.py).
    """

    def __init__(self, clock: Clock, write: Callable[[bytes], None] | None = None) -> None:
        self._clock = clock
        self._write = write

    def record(self, event: str, **fields: Any) -> None:
        """Write one event, of line_of()'s fields; texts are cut to 256 characters."""
        if self._write is not None:
            self._write(line_of(self._clock, event, **fields))


def _cut(text: str) -> str:
    shown = escaped(text)  # lone surrogates, too, which have no UTF-8
    return shown if len(shown) <= _TEXT_CHARACTERS_MAX else f"{shown[:_TEXT_CHARACTERS_MAX]}…"
