"""ServerMetrics: what a server counts, under the names of docs/guides/server.md.

The hot path only adds to plain numbers, on the loop; prometheus_client, imported when a client
asks, makes text of them, in any thread. Labels are from closed lists: never SQL, names or
addresses, and of tablespaces their ids, which systablespaces has beside their names: who scrapes
has not logged in.
"""

import platform
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from bookie.runtime.metrics import Histogram
from herdpy.engine.limit_rows import WAITS_FOR
from herdpy.engine.stats import stats_of
from herdpy.proto import messages
from herdpy.server.operations.limit_rows import peer_limits, tablespace_limits
from herdpy.server.operations.watch import stopped_by
from herdpy.storage.tablespace_list import DEFAULT

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from herdpy.server.hub import Hub

_KINDS = {
    "select": "select", "with": "select", "values": "select", "table": "select", "(": "select",
    "insert": "insert", "upsert": "upsert", "update": "update", "delete": "delete",
    "create": "ddl", "drop": "ddl", "alter": "ddl", "grant": "ddl", "revoke": "ddl",
    "begin": "begin", "start": "begin", "commit": "commit", "end": "commit",
    "rollback": "rollback", "abort": "rollback", "explain": "explain", "kill": "kill",
    "set": "set", "reset": "set", "show": "set",
}  # fmt: skip
_MESSAGES: dict[type[messages.Message], str] = {
    messages.Fetch: "fetch",
    messages.Begin: "begin",
    messages.Commit: "commit",
    messages.Rollback: "rollback",
    messages.Checkpoint: "checkpoint",
    messages.BeginIngest: "ingest",
    messages.IngestRows: "ingest",
    messages.FinishIngest: "ingest",
    messages.ReadPartition: "select",
}
_WRITES = ("insert", "upsert", "update", "delete", "ddl")
_WORD_LENGTH_MAX = 8


def kind_of(message: messages.Message) -> str:
    """Return what kind of statement a request is; "other" for what has no name here."""
    text = getattr(message, "text", None)
    if not isinstance(text, str):
        return _MESSAGES.get(type(message), "other")
    word = text[:6].lower()
    found = _KINDS.get(word)  # most words have six letters
    if found is None:
        start = text.lstrip()[: _WORD_LENGTH_MAX + 1].lower()
        word = "".join(c if c.isalpha() else " " for c in start).split(" ", 1)[0] or start[:1]
        found = _KINDS.get(word, "other")
    return found


class ServerMetrics:
    def __init__(self) -> None:
        self.statements: dict[tuple[str, str], int] = {}
        """By kind and outcome: "ok", or the class of the SQLSTATE."""
        self.durations: dict[str, Histogram] = {}
        """By kind, the wait for a worker included."""
        self.commits = Histogram()
        """COMMIT, and writes that commit by themselves."""
        self.slow_statements = 0
        self.connections_accepted = 0
        self.refused: dict[str, int] = {}
        """By limit; of those who have not said who they are see peer_limits()."""

    def observe(
        self, kind: str, sqlstate: str | None, seconds: float, *, in_transaction: bool = False
    ) -> None:
        """Count a request that was answered; in_transaction: one is open behind it."""
        key = (kind, "ok" if sqlstate is None else sqlstate[:2])
        self.statements[key] = self.statements.get(key, 0) + 1
        histogram = self.durations.get(kind)
        if histogram is None:
            histogram = self.durations[kind] = Histogram()
        histogram.observe(seconds)
        if sqlstate is None and (kind == "commit" or (kind in _WRITES and not in_transaction)):
            self.commits.observe(seconds)

    def refuse(self, limit: str) -> None:
        """Count what a limit has refused or cut off."""
        self.refused[limit] = self.refused.get(limit, 0) + 1


def families_of(hubs: "Sequence[Hub]") -> "Iterator[Metric]":
    """Yield those of one server; of several each sample says which tablespace it is of."""
    if len(hubs) == 1:
        yield from families(hubs[0])
        return
    merged: dict[str, Metric] = {}
    for hub in hubs:
        for family in families(hub):
            named = [
                each._replace(labels={**each.labels, "tablespace": hub.tablespace})
                for each in family.samples
            ]
            into = merged.setdefault(family.name, family)
            into.samples = named if into is family else [*into.samples, *named]
    yield from merged.values()


def families(hub: "Hub") -> "Iterator[Metric]":
    """Yield everything as prometheus_client's families."""
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        InfoMetricFamily,
    )

    metrics, database = hub.metrics, hub.database
    build = {"version": hub.name, "python": platform.python_version()}
    yield InfoMetricFamily("herdpy_build", "The server.", value=build)
    statements = CounterMetricFamily(
        "herdpy_statements", "Statements by outcome.", labels=["kind", "outcome"]
    )
    for labels, count in sorted(metrics.statements.copy().items()):
        statements.add_metric(labels, count)
    yield statements
    refused = CounterMetricFamily(
        "herdpy_refused", "What limits have refused or cut off.", labels=["limit"]
    )
    gave_way = {row.name: row.refused for row in peer_limits(hub) if row.refused}
    for limit, count in sorted({**metrics.refused.copy(), **gave_way}.items()):
        refused.add_metric([limit], count)
    yield refused
    yield CounterMetricFamily(
        "herdpy_slow_statements", "Statements over slow_statement_s.", value=metrics.slow_statements
    )
    yield CounterMetricFamily(
        "herdpy_connections_accepted", "Connections.", value=metrics.connections_accepted
    )
    if (part := hub.default.part) is not None:
        yield GaugeMetricFamily(
            "herdpy_follower_lag_seconds",
            "How old what this node shows is at most; 0: it leads.",
            value=part.known_lag_s(),
        )
    lost = CounterMetricFamily(
        "herdpy_lines_lost", "Lines of the process's logs that were not written.", labels=["of"]
    )
    for lines in hub.lines:
        lost.add_metric([lines.name], lines.lost_count)
    yield lost
    by_kind = {(kind,): item for kind, item in sorted(metrics.durations.copy().items())}
    yield _histogram("herdpy_statement_duration_seconds", "Of statements.", by_kind, ["kind"])
    yield _histogram("herdpy_commit_duration_seconds", "Of commits.", {(): metrics.commits})
    log, checkpoint = database.replica.log_appends.histogram, database.replica.checkpoints.histogram
    yield _histogram(
        "herdpy_log_append_duration_seconds", "Of the log's writes and syncs.", {(): log}
    )
    yield _histogram("herdpy_checkpoint_duration_seconds", "Of checkpoints.", {(): checkpoint})
    yield from _limits(hub)
    yield from _gauges(hub)
    yield from _tablespaces(hub)


def _limits(hub: "Hub") -> "Iterator[Metric]":
    """Yield how much of each limit is used; those of users are added up, and have no names."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    found: dict[tuple[str, str], list[int]] = {}
    for row in hub.database.limits.limits():
        sums = found.setdefault((row.name, "role" if row.user else "server"), [0, 0, 0, 0])
        for place, value in enumerate((row.share, row.used, row.refused, row.waits)):
            sums[place] += value
    names = ["limit", "of"]
    families = (
        GaugeMetricFamily("herdpy_limit_share", "How much there may be.", labels=names),
        GaugeMetricFamily("herdpy_limit_used", "How much there is.", labels=names),
        CounterMetricFamily("herdpy_limit_refused", "What was refused.", labels=names),
        CounterMetricFamily("herdpy_limit_waits", "What has had to wait.", labels=names),
    )
    for labels, sums in sorted(found.items()):
        for family, value in zip(families, sums, strict=True):
            family.add_metric(labels, value)
    yield from families
    waiting = GaugeMetricFamily("herdpy_waiting", "Sessions that wait now.", labels=["for"])
    counts = dict.fromkeys(WAITS_FOR, 0)
    for row in hub.database.waits():
        counts[row.waits_for] = counts.get(row.waits_for, 0) + 1
    for what, count in sorted(counts.items()):
        waiting.add_metric([what], count)
    yield waiting


def _gauges(hub: "Hub") -> "Iterator[Metric]":
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    figures = stats_of(hub.database)
    yield CounterMetricFamily("herdpy_log_entries", "Frames of the log.", value=figures.log_entries)
    yield CounterMetricFamily("herdpy_log_bytes", "Appended.", value=figures.log_bytes)
    refused = figures.disk_refused
    yield CounterMetricFamily("herdpy_disk_refused", "Statements, by a full disk.", value=refused)
    connections = GaugeMetricFamily("herdpy_connections", "Open.", labels=["protocol"])
    for protocol, count in hub.connections_by_protocol().items():
        connections.add_metric([protocol], count)
    yield connections
    memory = GaugeMetricFamily("herdpy_memory_bytes", "In use.", labels=["area"])
    for area, byte_count in (
        ("memtables", figures.memtable_bytes),
        ("versions", figures.version_bytes),
        ("requests", hub.received.used),
        ("responses", hub.stalled.byte_count),
    ):
        memory.add_metric([area], byte_count)
    yield memory
    yield from _accounts(hub)
    last_us = hub.database.replica.checkpoints.last_success_us
    for name, meaning, value in (
        ("transactions_active", "That have written and not ended.", figures.transactions),
        ("leases", "Snapshots that are kept.", figures.leases),
        ("statements_active", "That run or wait.", figures.statements),
        ("statements_waiting", "For a worker.", hub.workers.waiting_count),
        ("statements_waiting_for_locks", "Without a worker.", hub.workers.parked_count),
        ("results_open", "Results with rows to fetch.", hub.results.used),
        ("tables", "Tables.", figures.tables),
        ("pages", "Pages of the last checkpoints.", figures.pages),
        ("memtable_rows", "Rows changed since then.", figures.memtable_rows),
        ("checkpoint_failing", "1: the last one failed.", figures.checkpoint_error is not None),
        ("maintenance_failing", "Steps that are tried again.", figures.maintenance_failing),
        ("disk_full", "1: what can be refused is refused (53100).", figures.is_disk_full),
        ("disk_free_bytes", "Without the reserve.", figures.disk_free_bytes),
        ("disk_needed_bytes", "By what is in memory.", figures.disk_needed_bytes),
        ("disk_reserve_bytes", "Kept for what frees space.", figures.disk_reserve_bytes),
        ("ready", "As /readyz.", hub.reason_not_ready() is None),
        ("checkpoint_last_success_timestamp_seconds", "Since 1970.", (last_us or 0) / 1e6),
    ):
        yield GaugeMetricFamily(f"herdpy_{name}", meaning, value=float(value))


def _tablespaces(hub: "Hub") -> "Iterator[Metric]":
    """Yield what each tablespace has, and whether it can be used; `default`, too."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    hub.database.memory.governor.settle()  # once: it measures every tablespace
    names = ["tablespace"]
    ready = GaugeMetricFamily("herdpy_tablespace_ready", "1: it is open.", labels=names)
    families = (
        GaugeMetricFamily("herdpy_tablespace_sessions", "Open.", labels=names),
        GaugeMetricFamily("herdpy_tablespace_memory_bytes", "Held.", labels=names),
        GaugeMetricFamily("herdpy_tablespace_disk_bytes", "Pages, and log since.", labels=names),
        GaugeMetricFamily("herdpy_tablespace_log_bytes", "Appended.", labels=names),
        GaugeMetricFamily("herdpy_tablespace_maintenance_failing", "Steps.", labels=names),
    )
    shares = (
        GaugeMetricFamily(
            "herdpy_tablespace_limit_share", "It may have.", labels=[*names, "limit"]
        ),
        GaugeMetricFamily("herdpy_tablespace_limit_used", "It has.", labels=[*names, "limit"]),
        CounterMetricFamily("herdpy_tablespace_limit_refused", "To it.", labels=[*names, "limit"]),
        CounterMetricFamily("herdpy_tablespace_limit_waits", "For it.", labels=[*names, "limit"]),
    )
    for entry, database, _ in hub.database.instance.tablespaces.states():
        is_ready = database is not None and stopped_by(database) is None
        label = entry.name if entry.name == DEFAULT else entry.id.hex()
        ready.add_metric([label], float(is_ready))
        if database is None:
            continue
        values = (
            len(database.sessions()),
            database.memory.bytes_held(),
            database.replica.disk_bytes(),
            database.tablespace.log.bytes_appended,
            len(database.retries.failed),
        )
        for family, value in zip(families, values, strict=True):
            family.add_metric([label], value)
        served = hub.served_as_yet(database)
        for row in () if served is None else tablespace_limits(served):
            figures = (row.share, row.used, row.refused, row.waits)
            for family, value in zip(shares, figures, strict=True):
                family.add_metric([label, row.name], value)
    yield ready
    yield from families
    yield from shares


def _accounts(hub: "Hub") -> "Iterator[Metric]":
    """Yield what the kinds of the database's memory hold."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    memory = hub.database.memory
    found = {figures.path.rpartition("/")[2]: figures for figures in memory.kinds()[1:]}
    used = GaugeMetricFamily("herdpy_memory_account_bytes", "Held.", labels=["account"])
    most = GaugeMetricFamily("herdpy_memory_account_max_bytes", "Its bound.", labels=["account"])
    refused = CounterMetricFamily(
        "herdpy_memory_refused", "Charges without room.", labels=["account"]
    )
    waited = CounterMetricFamily(
        "herdpy_memory_waited_seconds", "For room in memory.", labels=["account"]
    )
    for name, figures in found.items():
        used.add_metric([name], figures.bytes_used)
        most.add_metric([name], figures.bytes_max or 0)
        refused.add_metric([name], figures.refused)
        waited.add_metric([name], figures.waited_s)
    yield from (used, most, refused, waited)


def _histogram(
    name: str,
    meaning: str,
    items: dict[tuple[str, ...], Histogram],
    labels: list[str] | None = None,
) -> "Metric":
    from prometheus_client.core import HistogramMetricFamily

    family = HistogramMetricFamily(name, meaning, labels=labels or [])
    for values, histogram in items.items():
        family.add_metric(values, *histogram.buckets())
    return family
