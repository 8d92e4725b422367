"""What an idle cluster asks of ZooKeeper and of its bookies, counted where the requests arrive.

ZooKeeper says by `cons` how many packets each connection has sent; whose it is the kernel knows.
Its `mntr` counts what was written below the root, which are the renewals of tenures. Bookies count
by kind in their metrics, which they serve at --http-port: with_metrics() starts them again so.
"""

import re
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from bookie.admin.zookeeper_process import four_letter_word
from tests.fixtures.ports import own_port
from tests.fixtures.real_cluster import RealCluster

_CONNECTION = re.compile(r"/127\.0\.0\.1:(\d+)\[1\]\(queued=\d+,recved=(\d+)")
_WRITES = re.compile(r"^zk_cnt_(\w+)_write_per_namespace\s+(\d+)", re.MULTILINE)
_BOOKIE = re.compile(r'^bookkeeper_server_(\w+)_count\{success="\w+"\} (\S+)', re.MULTILINE)
_POLLS, _LOOKS, _TICKS = "READ_ENTRY_LONG_POLL_READ", "READ_LAC", "ADD_ENTRY"
_WAITS = "READ_ENTRY_LONG_POLL_WAIT"
"""The same request as one of the polls."""


class Idle(NamedTuple):
    """Requests a second of all nodes."""

    renewals: float
    """Of tenures, to ZooKeeper."""
    looks_store: float
    """Other requests to ZooKeeper: looks for the end of the log, watches, signs of life."""
    polls: float
    """Long polls, to bookies."""
    looks_bookies: float
    """Questions to bookies how far the log is confirmed."""
    ticks: float
    """Entries."""
    others: float
    """To bookies."""

    @property
    def counted(self) -> float:
        """All but renewals, polls and ticks, which are counted apart."""
        return self.looks_store + self.looks_bookies + self.others


def with_metrics(cluster: RealCluster) -> list[int]:
    """Start the bookies again, one by one, so that they serve metrics; the ports."""
    ports: list[int] = []
    for name in [each.name for each in cluster.programs.values() if each.kind == "bookie"]:
        cluster.terminate(name)
        ports.append(own_port())
        cluster.programs[name].command += ["--http-port", str(ports[-1])]
        cluster.start(name)
        cluster.wait_ready(name)
    return ports


def measure_idle(cluster: RealCluster, ports: Iterable[int], seconds: float) -> Idle:
    """Count for so long; nothing else may use the cluster."""
    ports, nodes = list(ports), [each for each in cluster.programs.values() if each.kind == "node"]
    zookeeper = int(cluster.zookeeper.rsplit(":", 1)[1])
    names = cluster.root.strip("/")

    def counted() -> Counter[str]:
        found: Counter[str] = Counter()
        sent = {int(port): int(count) for port, count in _CONNECTION.findall(_said(zookeeper))}
        for node in nodes:
            for port in _own_ports(node.pid, zookeeper):
                found["store"] += sent.get(port, 0)
        writes = dict(_WRITES.findall(four_letter_word(zookeeper, "mntr")))
        found["renewals"] = int(writes.get(names, 0))
        for port in ports:
            for kind, count in _BOOKIE.findall(_metrics(port)):
                found[kind] += float(count)  # type: ignore[assignment]
        return found

    before, begun = counted(), time.perf_counter()
    time.sleep(seconds)
    after, taken = counted(), time.perf_counter() - begun
    rate = {kind: (after[kind] - before[kind]) / taken for kind in after}
    known = ("store", "renewals", _POLLS, _WAITS, _LOOKS, _TICKS)
    return Idle(
        renewals=rate["renewals"],
        looks_store=rate["store"] - rate["renewals"],
        polls=rate[_POLLS],
        looks_bookies=rate[_LOOKS],
        ticks=rate[_TICKS],
        others=sum(each for kind, each in rate.items() if kind not in known),
    )


def _said(zookeeper: int) -> str:
    return four_letter_word(zookeeper, "cons")


def _metrics(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        return answer.read().decode()


def _own_ports(pid: int, remote_port: int) -> list[int]:
    """Return the ports of a process's connections to a port of loopback, as Linux has them."""
    links = [each.readlink() for each in Path(f"/proc/{pid}/fd").iterdir() if each.is_symlink()]
    inodes = {str(link)[8:-1] for link in links if str(link).startswith("socket:[")}
    found: list[int] = []
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        parts = line.split()
        if parts[9] in inodes and int(parts[2].rsplit(":", 1)[1], 16) == remote_port:
            found.append(int(parts[1].rsplit(":", 1)[1], 16))
    return found
