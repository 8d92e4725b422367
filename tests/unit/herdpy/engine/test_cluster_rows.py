"""sysnodes, systablespacereplicastate, syslog: of a directory alone, and of a node of a cluster."""

from collections.abc import Sequence

from bookie.runtime.memory_disk import MemoryDisk
from herdpy.engine.cluster_view import Leadership, NodeInfo, ReplicaInfo
from tests.fixtures.engines import rows
from tests.unit.herdpy.engine.test_tablespaces import do, instance, session

ID = "0123456789abcdef0123456789abcdef"


class View:
    """What a node knows of a cluster."""

    node_id = "n2"

    def part(self) -> str:
        return "following"

    def leadership(self) -> Leadership:
        return Leadership("sales", ID, "n1", 7, ("n1", "n2"), 3)

    def nodes(self) -> Sequence[NodeInfo]:
        return [NodeInfo("n1", "db1:7000", True, "1.0"), NodeInfo("n2", None, False, "1.1")]

    def replicas(self) -> Sequence[ReplicaInfo]:
        return [
            ReplicaInfo("n1", "leading", "4.2.0", 0.0, 1_000_000),
            ReplicaInfo("n2", "following", "4.1.0", 0.5, None),
        ]


def test_a_directory_alone_is_one_node_that_leads() -> None:
    with instance(MemoryDisk()) as found:
        do(found, "CREATE TABLESPACE sales")
        here, there = session(found), session(found, "sales")
        assert rows(here, "SELECT * FROM sysnodes") == [("local", None, False, None, True)]
        text = "SELECT tablespace, node_id, part, lag_s, said_at IS NULL"
        text += " FROM systablespacereplicastate ORDER BY 1"
        sales = ("sales", "local", "leading", 0.0, False)
        assert rows(here, text) == [("default", "local", "leading", 0.0, False), sales]
        assert rows(there, text) == [sales]
        text = "SELECT leader, epoch, replicas, expected_replicas FROM systablespaces"
        assert rows(here, text) == [("local", None, "local", 1)] * 2
        text = "SELECT entry FROM syslog WHERE tablespace = 'sales' AND ledger = -1"
        ((before,),) = rows(here, text)
        do(found, "CREATE TABLE t (id BIGINT PRIMARY KEY)", "sales")
        ((after,),) = rows(here, text)
        assert after > before
        (log,) = rows(there, "SELECT tablespace, node_id, last_position, part FROM syslog")
        end = found.tablespaces.database("sales").tablespace.log.last_lsn
        assert log == ("sales", "local", str(end), "leading")


def test_a_node_shows_what_it_knows_of_its_cluster() -> None:
    with instance(MemoryDisk()) as found:
        found.cluster = View()
        here = session(found)
        assert rows(here, "SELECT * FROM sysnodes ORDER BY node_id") == [
            ("n1", "db1:7000", True, "1.0", False),
            ("n2", None, False, "1.1", True),
        ]
        shown = rows(here, "SELECT * FROM systablespacereplicastate ORDER BY node_id")
        assert [row[:6] for row in shown] == [
            ("sales", ID, "n1", "leading", "4.2.0", 0.0),
            ("sales", ID, "n2", "following", "4.1.0", 0.5),
        ]
        assert [row[6] is None for row in shown] == [False, True]
        text = "SELECT leader, epoch, replicas, expected_replicas FROM systablespaces"
        assert rows(here, text) == [("n1", 7, "n1, n2", 3)]
        text = "SELECT tablespace, id, node_id, part FROM syslog"
        assert rows(here, text) == [("sales", ID, "n2", "following")]
