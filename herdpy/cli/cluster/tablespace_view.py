"""What `herdpy tablespace show` reads and shows: a tablespace, its replicas, its ledgers."""

from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from herdpy.cli.cluster.log_access import PATIENCE_S, log_access
from herdpy.cli.cluster.log_view import ledger_record, ledger_table
from herdpy.cli.cluster.view import lag_text, new_table, shown_leader, tablespace_record
from herdpy.cluster.observability.log_reading import LedgerFacts
from herdpy.cluster.status import ReplicaStatus, TablespaceStatus, read_status
from herdpy.cluster.tablespace_nodes import no_tablespace
from herdpy.node.place import ClusterPlace


class Shown(NamedTuple):
    """A tablespace and its ledgers; the two may be of two moments."""

    status: TablespaceStatus
    ledgers: tuple[LedgerFacts, ...]

    @property
    def byte_count(self) -> int | None:
        """Return the bytes of all ledgers; None: not all are known."""
        counts = [each.byte_count for each in self.ledgers]
        return None if None in counts else sum(count or 0 for count in counts)


async def read_tablespace(place: ClusterPlace, name: str) -> Shown:
    """Return a tablespace as it is now; errors as log_access()."""
    async with log_access(place, name) as access:
        status = await read_status(access.store, place.root, patience_s=PATIENCE_S)
        found = next((each for each in status.tablespaces if each.name == name), None)
        if found is None:
            raise no_tablespace(name)  # dropped meanwhile
        return Shown(found, tuple(await access.reading.ledgers()))


def shown_record(shown: Shown) -> dict[str, Any]:
    """Return it as what JSON has: tablespace_record(), the ledgers as `log ledgers` has them."""
    return {
        **tablespace_record(shown.status),
        "ledgers": list(map(ledger_record, shown.ledgers)),
        "bytes": shown.byte_count,
    }


def shown_tables(shown: Shown) -> RenderableType:
    """Return what it is, a row for each replica, a row for each ledger."""
    status = shown.status
    facts = new_table(status.name, "")
    kept = "-" if shown.byte_count is None else f"{shown.byte_count:,}"
    for name, value in (
        ("id", Text(status.id)),
        ("leader", shown_leader(status)),
        ("address", Text(status.address or "-")),
        ("epoch", Text(str(status.epoch))),
        ("copies", Text(f"{len(status.replicas)} of {status.expected}")),
        ("ledgers", Text(str(len(shown.ledgers)))),
        ("bytes kept", Text(kept)),
    ):
        facts.add_row(name, value)
    return Group(facts, Text(), _replicas(status), Text(), ledger_table(shown.ledgers))


def _replicas(status: TablespaceStatus) -> RenderableType:
    table = new_table("replica", "part", "position", "lag")
    for each in status.states:
        style = "green" if each.node == status.leader else ""
        table.add_row(
            Text(each.node, style=style), _part(each), each.position or "-", lag_text(each)
        )
    return table


def _part(replica: ReplicaStatus) -> Text:
    if not replica.is_there:
        return Text("away", style="red")
    return Text(replica.part or "-")
