"""A result's columns on the wire, and what both sides keep of those that come again and again.

Source: docs/protocols/frames.md, Done. Any thread.
"""

from collections.abc import Callable
from typing import Any

from herdpy.model.types import Kind, SqlType
from herdpy.proto.messages import Column
from herdpy.proto.values import rows_decoder

_KEPT_MAX = 64
_KEPT_CHARACTERS_MAX = 4096
"""Of the names of one result: what a peer sends is kept only while it is small."""
_KINDS = {kind.value: kind for kind in Kind}

Columns = tuple[tuple[str, SqlType], ...]
Decode = Callable[[Any], list[tuple[Any, ...]]]


class SentColumns:
    """The server's side: columns by identity, because a plan gives the same ones every time."""

    def __init__(self) -> None:
        # The columns themselves are kept too, so that no others can get their identity.
        self._kept: dict[int, tuple[Columns, tuple[Column, ...]]] = {}

    def of(self, columns: Columns) -> tuple[Column, ...]:
        """Return columns as Done carries them."""
        kept = self._kept.get(id(columns))
        if kept is not None:
            return kept[1]
        found = tuple(
            (name, sql_type.kind.value, sql_type.precision, sql_type.scale, sql_type.length)
            for name, sql_type in columns
        )
        if len(self._kept) >= _KEPT_MAX:
            self._kept.clear()
        self._kept[id(columns)] = columns, found
        return found


class ReceivedColumns:
    """The driver's side."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Column, ...], tuple[Columns, Decode]] = {}

    def of(self, sent: tuple[Column, ...]) -> tuple[Columns, Decode]:
        """Return columns, and the decoder of their rows (values.py)."""
        kept = self._kept.get(sent)
        if kept is not None:
            return kept
        columns = tuple(
            (name, SqlType(_KINDS.get(kind, Kind.UNKNOWN), *rest)) for name, kind, *rest in sent
        )
        found = columns, rows_decoder(tuple(sql_type.kind for _, sql_type in columns))
        if sum(len(name) for name, *_ in sent) <= _KEPT_CHARACTERS_MAX:
            if len(self._kept) >= _KEPT_MAX:
                self._kept.clear()
            self._kept[sent] = found
        return found
