"""A digest of everything that apply() can change, to compare replicas, checkpoints and replays."""

import hashlib
from collections.abc import Iterator
from typing import Any

from herdpy.engine.state.page_adoption import net_changes
from herdpy.engine.state.snapshot_leases import SnapshotLease
from herdpy.engine.state.snapshots import Snapshot
from herdpy.engine.state.tablespace import Tablespace
from herdpy.engine.state.transactions import Transaction
from herdpy.model.access import changes_to_plain, facts_to_plain
from herdpy.model.lsn import Lsn
from herdpy.model.schema import Table, table_to_plain
from herdpy.model.types import Row


def state_digest(tablespace: Tablespace) -> str:
    """Return the SHA-256, in hex, of all that is state at State.lsn: rows, counters, leases, ….

    Takes the monitor only to note the open transactions; rows are read from a snapshot. Equal logs
    give equal digests, whatever checkpoints lie between.
    """
    with tablespace.monitor:
        tablespace.enter()
        applier = tablespace.applier
        snapshot = tablespace.snapshot(None)
        lsn = snapshot.state.lsn
        tokens = (applier.tokens.to_plain(), applier.tokens.horizon)
        leases = list(applier.leases)
        counters = (
            applier.next_table_id,
            applier.next_role_id,
            sorted(applier.reserved.items()),
            tokens,
        )
        open_at = sorted(
            (_open_digest(transaction, lsn) for transaction in applier.transactions.values()),
            key=repr,
        )
    try:
        digest = hashlib.sha256(repr((tuple(lsn), counters, open_at)).encode())
        digest.update(repr(facts_to_plain(snapshot.state.catalog.access.facts)).encode())
        for table in snapshot.state.catalog.tables():
            digest.update(repr(table_to_plain(table)).encode())
            for row in snapshot.source(table).range(None, None):
                digest.update(repr(row).encode())
        staged = snapshot.state.staged
        digest.update(repr(staged.to_plain()).encode())
        digest.update(repr(staged.runs_to_plain()).encode())
        for stage in staged.stages.values():
            for _, row in sorted(net_changes([stage], stage.operation).items()):
                digest.update(repr(row).encode())
        for lease in leases:
            digest.update(_lease_digest(tablespace, lease))
        return digest.hexdigest()
    finally:
        snapshot.close()


def _lease_digest(tablespace: Tablespace, lease: SnapshotLease) -> bytes:
    digest = hashlib.sha256(repr(lease.to_plain()).encode())
    for table, row in lease_rows_of(tablespace, lease):
        digest.update(repr((table.id, table.version, row)).encode())
    return digest.digest()


def lease_rows_of(tablespace: Tablespace, lease: SnapshotLease) -> Iterator[tuple[Table, Row]]:
    """Yield the rows that a lease keeps, table by table, in the order of their keys."""
    leased = (tablespace.applier.leases, lease)
    snapshot = Snapshot(tablespace.registry, lambda: tablespace.state, None, leased=leased)
    try:
        for table_id in sorted(snapshot.state.tables):
            table = snapshot.state.tables[table_id].table
            for row in snapshot.source(table).range(None, None):
                yield table, row
    finally:
        snapshot.close()


def _open_digest(transaction: Transaction, lsn: Lsn) -> tuple[Any, ...]:
    changes = {
        table_id: sorted((key, row) for key, (_, row, _) in items)
        for table_id, items in transaction.changes_until(lsn).items()
        if items
    }
    catalog = {
        name: None if table is None else table_to_plain(table)
        for name, table in transaction.catalog_until(lsn).items()
    }
    return (
        transaction.id,
        transaction.begun_us,
        sorted(changes.items()),
        sorted(catalog.items(), key=repr),
        changes_to_plain(transaction.access_until(lsn)),
    )
