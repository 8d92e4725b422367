"""The rows of sysnodes, systablespacereplicastate, syslog: who has copies, and how far each is.

Any thread.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from herdpy.engine.cluster_view import LEADING, LOCAL
from herdpy.engine.tablespace_rows import visible_states
from herdpy.model.types import Row

if TYPE_CHECKING:
    from herdpy.engine.database import Database


def node_rows(database: "Database") -> Iterator[Row]:
    """Yield a row for each node."""
    view = database.instance.cluster
    if view is None:
        yield LOCAL, None, False, None, True
        return
    for node in view.nodes():
        yield node.id, node.address, node.has_tls, node.version, node.id == view.node_id


def replica_rows(database: "Database") -> Iterator[Row]:
    """Yield a row for each copy of each tablespace; of this node's own what is so now."""
    view = database.instance.cluster
    if view is None:
        now_us = database.clock.wall_us()
        for entry, opened, _ in visible_states(database, None):
            if opened is not None:
                position = str(opened.tablespace.log.durable_lsn)
                yield entry.name, entry.id.hex(), LOCAL, LEADING, position, 0.0, now_us
        return
    found = view.leadership()
    for each in view.replicas():
        yield found.tablespace, found.id, *each


def log_rows(database: "Database") -> Iterator[Row]:
    """Yield a row for each log of this node: where it ends, and up to where it is durable."""
    view = database.instance.cluster
    node_id, part = (LOCAL, LEADING) if view is None else (view.node_id, view.part())
    for entry, opened, _ in visible_states(database, None):
        if opened is None:
            continue
        name, tablespace_id = entry.name, entry.id.hex()
        if view is not None:
            found = view.leadership()
            name, tablespace_id = found.tablespace, found.id
        log = opened.tablespace.log
        last, durable = log.last_lsn, log.durable_lsn
        yield name, tablespace_id, node_id, durable.ledger_id, durable.entry_id, str(last), part
