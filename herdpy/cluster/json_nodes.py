"""Nodes of the metadata store as JSON: what is malformed is named, a newer format refused."""

from typing import Protocol, TypeVar

import msgspec

from herdpy.errors import CorruptionError, OperationalError


class Formatted(Protocol):
    @property
    def format(self) -> int: ...


T = TypeVar("T", bound=Formatted)


class _Format(msgspec.Struct, frozen=True):
    """What is read first: the other fields of a newer format may be any."""

    format: int


def read_node(
    data: bytes, path: str, kind: type[T], newest: int, what: str, *, oldest: int = 1
) -> T:
    """Return the record that a node holds, of the class `kind`.

    CorruptionError: it is malformed; OperationalError 0A000: its format is another one.
    """
    try:
        found = msgspec.json.decode(data, type=_Format).format
        if oldest <= found <= newest:
            return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise CorruptionError(f"{path}: expected {what}, found {error}") from None
    raise OperationalError(
        f"{path}: it has format {found}, and this herdpy reads {newest}",
        sqlstate="0A000",
        hint="use the herdpy that made it"
        + (", or a newer one" if found > newest else "; or make the cluster anew"),
    )
