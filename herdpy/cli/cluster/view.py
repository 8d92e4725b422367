"""A cluster's status: as tables for a terminal, as a record for programs, as lines of changes."""

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from herdpy.cluster.status import HERD, ClusterStatus, ReplicaStatus, TablespaceStatus

_LEDGERS_SHOWN = 3


def as_record(status: ClusterStatus) -> dict[str, Any]:
    """Return the status as what JSON has; docs/guides/cluster.md names the keys."""
    ensemble, write, ack = status.quorums
    return {
        "cluster": status.id,
        "root": status.root,
        "ledgers": status.ledgers,
        "quorums": {"ensemble": ensemble, "write": write, "ack": ack},
        "nodes": [
            {
                "id": node.id,
                "addresses": node.addresses,
                "has_tls": node.record.has_tls,
                "session": f"{node.session:#x}",
            }
            for node in status.nodes
        ],
        "tablespaces": list(map(tablespace_record, status.tablespaces)),
        "bookies": [{"id": bookie, "mode": mode} for bookie, mode in status.bookies.items()],
    }


def tablespace_record(tablespace: TablespaceStatus) -> dict[str, Any]:
    """Return a tablespace as what JSON has."""
    return {
        "name": tablespace.name,
        "id": tablespace.id,
        "epoch": tablespace.epoch,
        "named": tablespace.named,
        "leader": tablespace.leader,
        "address": tablespace.address,
        "replicas": list(tablespace.replicas),
        "expected": tablespace.expected,
        "ledgers": list(tablespace.ledgers),
        "first_ledger": tablespace.first_ledger,
        "states": [each._asdict() for each in tablespace.states],
    }


def as_tables(status: ClusterStatus) -> RenderableType:
    """Return tables of nodes, tablespaces and bookies."""
    return Group(tablespaces_table(status), Text(), _nodes(status), Text(), _bookies(status))


def new_table(*columns: str) -> Table:
    """Return a table of the style of all that commands show of a cluster."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def tablespaces_table(status: ClusterStatus) -> RenderableType:
    """Return a row for each tablespace."""
    if not status.tablespaces:
        return Text("no tablespace yet: `herdpy cluster create` makes one", style="dim")
    table = new_table("tablespace", "leader", "epoch", "address", "replicas", "ledgers")
    for each in status.tablespaces:
        table.add_row(
            Text(each.name),
            shown_leader(each),
            str(each.epoch),
            Text(each.address or "-"),
            _replicas(each, {node.id for node in status.nodes}),
            _ledgers(each),
        )
    return table


def shown_leader(tablespace: TablespaceStatus) -> Text:
    """Return which node leads, or that none does."""
    if tablespace.leader is not None:
        return Text(tablespace.leader, style="green")
    return Text(f"none ({tablespace.named} was named last)", style="red")


def lag_text(replica: ReplicaStatus) -> str:
    """Return how far behind a replica has said it was; a dash: that is not known."""
    return "-" if replica.lag_s is None else f"{replica.lag_s:.1f} s"


def _replicas(tablespace: TablespaceStatus, there: set[str]) -> Text:
    text = Text()
    states = {each.node: each for each in tablespace.states}
    for number, replica in enumerate(tablespace.replicas):
        text.append(", " if number else "")
        text.append(replica, style="" if replica in there else "red strike")
        state = states.get(replica)
        if state is not None and state.is_there and replica != tablespace.leader:
            text.append(f" ({lag_text(state)})", style="dim")
    return text


def _ledgers(tablespace: TablespaceStatus) -> Text:
    shown = tablespace.ledgers[-_LEDGERS_SHOWN:]
    more = len(tablespace.ledgers) - len(shown)
    return Text((f"{more} more, " if more else "") + ", ".join(map(str, shown)) or "-")


def _nodes(status: ClusterStatus) -> RenderableType:
    if not status.nodes:
        return Text("no node is registered: `herdpy node` starts one", style="red")
    table = new_table("node", "address", "leads")
    for node in status.nodes:
        led = [each.name for each in status.tablespaces if each.leader == node.id]
        table.add_row(
            Text(node.id), Text(node.addresses.get(HERD, "-")), Text(", ".join(led) or "-")
        )
    return table


def _bookies(status: ClusterStatus) -> RenderableType:
    ensemble, write, ack = status.quorums
    table = new_table("bookie", "mode")
    for bookie, mode in status.bookies.items():
        table.add_row(Text(bookie), Text(mode, style="" if mode == "writable" else "yellow"))
    foot = Text(
        f"ledgers lie on {ensemble} bookies, an entry on {write}, and {ack} acknowledge it",
        style="dim",
    )
    return Group(table, foot)


def changes(before: ClusterStatus | None, now: ClusterStatus) -> list[str]:
    """Return what is different, a line each; of everything when there was no status before."""
    found: list[str] = []
    old_nodes = {} if before is None else {each.id: each for each in before.nodes}
    new_nodes = {each.id: each for each in now.nodes}
    for node_id in sorted(old_nodes | new_nodes):
        old, new = old_nodes.get(node_id), new_nodes.get(node_id)
        if new is None:
            found.append(f"node {node_id}: away")
        elif old is None or old.session != new.session:
            found.append(f"node {node_id}: there, at {new.addresses.get(HERD, '-')}")
    old_bookies = {} if before is None else before.bookies
    for bookie in sorted(old_bookies | now.bookies):
        if old_bookies.get(bookie) != now.bookies.get(bookie):
            found.append(f"bookie {bookie}: {now.bookies.get(bookie, 'away')}")
    old_tablespaces = {} if before is None else {each.id: each for each in before.tablespaces}
    for each in now.tablespaces:
        was = old_tablespaces.get(each.id)
        if was is not None and (was.leader, was.epoch) == (each.leader, each.epoch):
            continue
        if each.leader is None:
            found.append(f"tablespace {each.name}: no leader (epoch {each.epoch})")
        else:
            where = each.address or "an unknown address"
            found.append(
                f"tablespace {each.name}: {each.leader} leads under epoch {each.epoch}, at {where}"
            )
    return found
