"""LeaseBook: the leases of a history and what each has to keep showing, over every crash (I9)."""

from collections.abc import Mapping
from dataclasses import dataclass

from herdpy.engine.database import Database
from herdpy.engine.maintenance.index_check import check_indexes
from herdpy.engine.state.snapshot_leases import SnapshotLease
from herdpy.engine.state.snapshots import Snapshot
from tests.crash.model import SHAPES, Content, Row, ordered

Rows = dict[str, list[Row]]

_WIDTHS = {name: shape.width for name, shape in SHAPES.items()}


@dataclass
class _Known:
    content: Rows
    is_sure: bool = False
    """It was acknowledged: no crash may take it away."""
    may_end: bool = False
    """A client asked for its end, and was not told."""


class LeaseBook:
    """Lives beside the model, longer than any process of the history."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._ended: set[str] = set()

    @property
    def unsure(self) -> set[str]:
        """Those that were not acknowledged."""
        return {number for number, known in self._known.items() if not known.is_sure}

    def begins(self, number: str, content: Content) -> None:
        """Note a lease whose record is about to enter the log, and what is committed by then."""
        self._known[number] = _Known(content.tables())

    def failed(self, number: str) -> None:
        """Note that it never entered the log."""
        self._known.pop(number, None)

    def begun(self, number: str) -> None:
        self._known[number].is_sure = True

    def ends(self, number: str) -> None:
        self._known[number].may_end = True

    def stays(self, number: str) -> None:
        """Note that its end did not happen."""
        self._known[number].may_end = False

    def ended(self, number: str) -> None:
        del self._known[number]
        self._ended.add(number)

    def check(self, database: Database) -> None:
        """Read every lease; raise for one that changed, or that must or must not be there."""
        found = {lease.id: lease for lease in database.tablespace.applier.leases}
        for number, lease in found.items():
            assert number not in self._ended, f"lease {number} has come again"
            assert number in self._known, f"lease {number}, which was never taken"
            content = lease_content(database, lease, _WIDTHS)
            expected = self._known[number].content
            assert content == expected, f"I9: lease {number}: {content}, expected {expected}"
        for number, known in self._known.items():
            is_free = known.may_end or not known.is_sure
            assert number in found or is_free, f"lease {number} is gone, and was not ended"

    def survive(self, database: Database) -> None:
        """Take up what was found after a crash."""
        self.check(database)
        for number in list(self._known):
            if database.tablespace.applier.leases.find(number) is None:
                del self._known[number]
                self._ended.add(number)
            else:
                self._known[number].is_sure = True
                self._known[number].may_end = False


def lease_content(
    database: Database, lease: SnapshotLease, widths: Mapping[str, int] | None = None
) -> Rows:
    """Return all rows of a lease, by table name, in the order of Content.plain().

    ``widths`` says how many columns of each table count; without it, all do.
    """
    space = database.tablespace
    snapshot = Snapshot(space.registry, lambda: space.state, None, fixed=lease)
    found: Rows = {}
    try:
        tables = snapshot.state.tables
        indexes = {index.id for item in tables.values() for index in item.table.indexes}
        for item in tables.values():
            check_indexes(snapshot, item.table)
            if item.table.id in indexes:
                continue
            if not item.table.has_rows:
                continue
            rows = list(snapshot.source(item.table).range(None, None))
            assert rows[::-1] == list(
                snapshot.source(item.table).range(None, None, is_reverse=True)
            )
            width = None if widths is None else widths[item.table.name]
            found[item.table.name] = ordered(row[:width] for row in rows)
    finally:
        snapshot.close()
    return found
