"""Snapshot leases and parts of tables, as a program sees them.

A SnapshotLease belongs to its connection as a cursor does; its id and a Partition are plain values,
for other connections, threads and processes.
"""

from typing import TYPE_CHECKING, NamedTuple

from herdpy.driver.arguments import checked_text
from herdpy.errors import Error, ProgrammingError

if TYPE_CHECKING:
    from herdpy.driver.connection import Connection
    from herdpy.features import HeldLease


class SnapshotLease:
    """What is committed when it is taken, kept; `with` releases it at the end of the block."""

    def __init__(self, connection: "Connection", held: "HeldLease") -> None:
        self._connection = connection
        self.id = held.id
        self.position = held.position
        """Which state it is: the position of the log, as text."""
        self.seconds = held.seconds
        """So long it lives without a use."""

    def renew(self) -> None:
        """Begin its time anew, as every use does; SnapshotTooOldError: it is gone."""
        self._connection.renew_lease(self.id)

    def release(self) -> None:
        """Let it go; repeatable."""
        self._connection.release_lease(self.id)

    def __enter__(self) -> "SnapshotLease":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.release()
        except Error:
            if kind is None:
                raise  # else it would hide why the block failed

    def __repr__(self) -> str:
        return f"<herdpy.SnapshotLease {self.id} at {self.position}>"


class Partition(NamedTuple):
    """A part of a table: the rows with lower <= key < upper, at a lease or at none."""

    table: str
    lower: bytes | None
    """The key as docs/formats/keys.md writes it; None: from the first row on."""
    upper: bytes | None
    """None: up to the last row."""
    rows: int
    """About how many there are."""
    byte_count: int
    """About how many bytes they are on the disk."""
    lease: str | None
    """The id of the lease that it was cut at."""


def parts_of(partition: object) -> tuple[str, bytes | None, bytes | None, str | None]:
    """Return table, bounds and lease of a partition, which may have come from anywhere; 22023."""
    match partition:
        case (str() as table, (bytes() | None) as low, (bytes() | None) as high, _, _, held) if (
            held is None or isinstance(held, str)
        ):
            held = None if held is None else checked_text("read_partition: lease", held)
            return checked_text("read_partition: table", table), low, high, held
        case _:
            raise ProgrammingError(
                f"read_partition: expected one of partitions(), found {partition!r:.200}",
                sqlstate="22023",
            )


def id_of(what: str, lease: "HeldLease | str | None") -> str | None:
    if lease is None:
        return None
    return checked_text(f"{what}: lease", getattr(lease, "id", lease))
