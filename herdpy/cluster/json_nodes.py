"""Nodes of the metadata store as JSON: what is malformed is named, a newer format refused."""

from typing import Protocol, TypeVar

import msgspec

from herdpy.errors import CorruptionError, OperationalError


class Formatted(Protocol):
    @property
    def format(self) -> int: ...


T = TypeVar("T", bound=Formatted)
_OLDEST = 1
"""Of all kinds of nodes: none has been given up yet."""


class _Format(msgspec.Struct, frozen=True):
    """What is read first: the other fields of a newer format may be any."""

    format: int


def read_node(data: bytes, path: str, kind: type[T], newest: int, what: str) -> T:
    """Return the record that a node holds, of the class `kind`.

    CorruptionError: it is malformed; OperationalError 0A000: its format is above `newest`, or older
    than any that this herdpy reads.
    """
    try:
        found = msgspec.json.decode(data, type=_Format).format
        if _OLDEST <= found <= newest:
            return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise CorruptionError(f"{path}: expected {what}, found {error}") from None
    raise OperationalError(
        f"{path}: it has format {found}, and this herdpy reads {newest}",
        sqlstate="0A000",
        hint="use the herdpy that made it, or a newer one; nothing was changed",
    )
