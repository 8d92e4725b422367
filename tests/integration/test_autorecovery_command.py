"""AutoRecovery as processes: a bookie is killed for good, and its ledgers become whole again."""

import json
import os
import re
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bookie.admin.zookeeper_process import ZooKeeperProcess
from tests.fixtures.commanded_cluster import CommandedCluster, commanded, metric
from tests.fixtures.ports import own_port
from tests.fixtures.zookeeper import zookeeper, zookeeper_root

pytestmark = [pytest.mark.integration, pytest.mark.exhaustive]

__all__ = ["zookeeper", "zookeeper_root"]

ENTRIES = 200
SIZES = ("--ensemble", "4", "--write-quorum", "3", "--ack-quorum", "2")


TOKEN = "a token of the test, 16 or more".replace(" ", "-")


def asked(port: int, path: str) -> Any:
    """Return what the management API answers."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/v1/{path}", headers={"Authorization": f"Bearer {TOKEN}"}
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def write(cluster: CommandedCluster) -> int:
    """Make a closed ledger and return its id."""
    entries = b"".join(b"entry %d\n" % number for number in range(ENTRIES))
    return cluster.lines("ledger", "create", *SIZES, stdin=entries)[-1]["ledger_id"]


def read_all(cluster: CommandedCluster, ledger_id: int) -> None:
    found = cluster.lines("ledger", "read", str(ledger_id))
    assert len(found) == ENTRIES


def figure(cluster: CommandedCluster, name: str) -> float:
    """Return a metric, summed over the bookies with AutoRecovery beside."""
    return sum(metric(port, name) for port in cluster.http_ports[4:])


@pytest.fixture
def cluster(
    zookeeper: ZooKeeperProcess, zookeeper_root: str, tmp_path: Path
) -> Iterator[CommandedCluster]:
    """Six bookies, two of them with AutoRecovery beside."""
    with commanded(zookeeper.hosts, zookeeper_root) as made:
        for number in range(6):
            beside = ("--autorecovery", "--set-autorecovery", "poll_interval_s=0.2",
                      "--set-autorecovery", "open_ledger_grace_s=0.5")  # fmt: skip
            made.serve(
                "--session-timeout", "1", "--data", str(tmp_path / f"b{number}"),
                "--port", str(own_port()), "--http-port", "0", *(beside if number >= 4 else ()),
            )  # fmt: skip
        yield made


def test_a_killed_bookie_is_made_up_for_by_itself(cluster: CommandedCluster) -> None:
    alone = cluster.spawn(
        "autorecovery", "--name", "alone", "--session-timeout", "1",
        "--set", "poll_interval_s=0.2", "--set", "open_ledger_grace_s=0.5",
    )  # fmt: skip
    assert alone.next() == {"name": "alone", "http_port": None}
    closed = [write(cluster) for _ in range(6)]
    # Its writer is killed: it stays open, and empty.
    writer = cluster.spawn("ledger", "create", *SIZES)
    cluster.wait_until(lambda: len(cluster.lines("ledger", "list")) == len(closed) + 1)
    writer.kill()
    cluster.processes.remove(writer)
    abandoned = max(one["ledger_id"] for one in cluster.lines("ledger", "list"))
    victim = sorted(cluster.named(abandoned) - set(list(cluster.bookies)[4:]))[0]
    cluster.wait_until(lambda: cluster.lines("replication", "auditor")[0]["auditor"] is not None)
    cluster.kill(victim)
    ledgers = [*closed, abandoned]
    cluster.wait_until(lambda: not any(victim in cluster.named(one) for one in ledgers))
    cluster.wait_until(lambda: not cluster.lines("replication", "under-replicated"))
    assert cluster.metadata(abandoned)["state"] == "CLOSED"
    for ledger_id in closed:
        read_all(cluster, ledger_id)
    assert figure(cluster, "bookie_autorecovery_losses") == 0
    # Nothing names it: it is forgotten without a question.
    assert cluster.lines("bookies", "decommission", victim) == [{"decommissioned": victim}]
    known = cluster.lines("bookies", "list", "--all")
    assert victim not in {one["bookie_id"] for one in known}


@pytest.mark.long
def test_an_operator_recovers_a_bookie_by_hand(cluster: CommandedCluster) -> None:
    assert cluster.lines("replication", "delay") == [{"delay_s": 0}]
    assert cluster.lines("replication", "delay", "7") == [{"delay_s": 7}]
    cluster.wait_until(lambda: figure(cluster, "bookie_autorecovery_is_auditor") == 1)
    (told,) = cluster.lines("replication", "audit", "--checks")
    assert told["auditor"] in cluster.bookies
    cluster.lines("replication", "disable")
    (status,) = cluster.lines("replication", "status")
    assert (status["is_enabled"], status["delay_s"]) == (False, 7)
    assert (status["under_replicated"], status["failing"]) == (0, 0)
    ledgers = [write(cluster) for _ in range(6)]
    members = [one for each in ledgers for one in cluster.named(each)]
    victim = max(list(cluster.bookies)[:4], key=members.count)
    cluster.kill(victim)
    assert "expected an auditor at work" in cluster.refused("bookies", "decommission", victim)
    named = [one for one in ledgers if victim in cluster.named(one)]
    refused = cluster.refused("cookie", "delete", "--yes", victim)
    listed = ", ".join(map(str, named))
    assert f"expected no ledger to name it, found {len(named)}: {listed};" in refused
    planned = cluster.lines("bookies", "recover", "--dry-run", victim)
    assert [one["ledger_id"] for one in planned] == named
    assert all(one["entries"] >= ENTRIES // 2 for one in planned)
    slowly = cluster.spawn("bookies", "recover", "--yes", "--rate", "1000", victim)
    cluster.wait_until(lambda: victim not in cluster.named(named[0]))
    os.kill(slowly.pid, signal.SIGTERM)
    assert slowly.finish() == []
    told = re.search(r"(\d+) of (\d+) ledgers are done; (\d+) are left", slowly.errors[0])
    assert told is not None
    count, of, left = map(int, told.groups())
    assert (of, count + left) == (len(named), len(named))
    assert 0 < count < of
    cluster.processes.remove(slowly)
    (done,) = cluster.lines("bookies", "recover", "--yes", victim)
    assert (done["ledgers"], done["failed"]) == (left, 0)
    assert done["entries"] == sum(one["entries"] for one in planned[count:])
    assert not [one for one in ledgers if victim in cluster.named(one)]
    for ledger_id in ledgers:
        read_all(cluster, ledger_id)
    assert cluster.lines("bookies", "recover", "--dry-run", victim) == []
    assert cluster.lines("cookie", "delete", "--yes", victim) == [{"deleted": victim}]


@pytest.mark.long
def test_a_drained_bookie_may_go(cluster: CommandedCluster, tmp_path: Path) -> None:
    # The workers beside bookies copy to those alone, which some ledgers have among their members.
    access = tmp_path / "access"
    access.write_text(f"admin token {TOKEN}\n")
    access.chmod(0o600)
    alone = cluster.spawn(
        "autorecovery", "--name", "alone", "--session-timeout", "1",
        "--set", "poll_interval_s=0.2", "--set", "open_ledger_grace_s=0.5",
        "--http-port", "0", "--http-access", str(access),
    )  # fmt: skip
    started = alone.next()
    assert started is not None
    port = started["http_port"]
    ledgers = [write(cluster) for _ in range(6)]
    victim = next(one for one in list(cluster.bookies)[:4] if one in cluster.named(ledgers[0]))
    cluster.wait_until(lambda: cluster.lines("replication", "auditor")[0]["auditor"] is not None)
    (risk,) = cluster.lines("bookies", "at-risk", victim, exit_code=3)
    assert (risk["is_safe"], risk["warning"]) == (False, "")
    assert asked(port, f"at_risk?bookie={victim}") == risk
    number = ledgers[0]
    assert asked(port, f"ledger/metadata?ledger_id={number}") == {
        str(number): cluster.metadata(number)
    }
    assert asked(port, f"ledger/read?ledger_id={number}&end_entry_id=0") == {"0": "entry 0"}
    assert asked(port, "lifecycle") == cluster.lines("bookies", "status")
    assert risk["after"]["under_replicated"]["ledgers"] > 0
    beside = list(cluster.bookies)[4:]
    assert cluster.lines("replication", "status")[0]["workers"] == sorted(["alone", *beside])
    (status,) = cluster.lines("bookies", "drain", victim)
    assert (status["lifecycle"], status["warning"]) == ("Draining", "")
    # Draining still, or Drained already.
    assert "drain is not possible" in cluster.refused("bookies", "drain", victim)
    cluster.wait_until(
        lambda: cluster.lines("bookies", "status", victim)[0]["lifecycle"] == "Drained"
    )
    assert not any(victim in cluster.named(one) for one in ledgers)
    assert cluster.lines("bookies", "at-risk", victim)[0]["is_safe"] is True
    assert "registered" in cluster.refused("bookies", "remove", "--yes", victim)
    cluster.kill(victim)
    (removed,) = cluster.lines("bookies", "remove", "--yes", victim)
    assert removed == {"bookie_id": victim, "removed": True}
    known = cluster.lines("bookies", "list", "--all")
    assert victim not in {one["bookie_id"] for one in known}
    for ledger_id in ledgers:
        read_all(cluster, ledger_id)


@pytest.mark.long
def test_a_drain_that_may_not_fence_leaves_a_silent_writer_and_names_its_ledger(
    cluster: CommandedCluster,
) -> None:
    alone = cluster.spawn(
        "autorecovery", "--name", "alone", "--session-timeout", "1",
        "--set", "poll_interval_s=0.2", "--set", "open_ledger_grace_s=0.5",
    )  # fmt: skip
    assert alone.next() == {"name": "alone", "http_port": None}
    writer = cluster.spawn("ledger", "create", *SIZES)
    cluster.wait_until(lambda: len(cluster.lines("ledger", "list")) == 1)
    writer.kill()
    cluster.processes.remove(writer)
    (ledger,) = cluster.lines("ledger", "list")
    abandoned = ledger["ledger_id"]
    victim = sorted(cluster.named(abandoned) - set(list(cluster.bookies)[4:]))[0]
    cluster.wait_until(lambda: cluster.lines("replication", "auditor")[0]["auditor"] is not None)

    def status() -> Any:
        return cluster.lines("bookies", "status", victim)[0]

    (begun,) = cluster.lines("bookies", "drain", "--no-fence", victim)
    assert begun["open_ledgers"] == [abandoned]
    cluster.wait_until(lambda: status()["lifecycle"] == "DrainingFailed")
    found = status()
    assert f"1 ledgers cannot be replicated: {abandoned}; the first: open" in found["reason"]
    assert [one["ledger_id"] for one in found["ledgers"]] == [abandoned]
    assert cluster.metadata(abandoned)["state"] == "OPEN"
    (again,) = cluster.lines("bookies", "drain", victim)
    assert again["open_ledgers"] == [abandoned]
    cluster.wait_until(lambda: status()["lifecycle"] == "Drained")
    assert cluster.metadata(abandoned)["state"] == "CLOSED"
    assert victim not in cluster.named(abandoned)
