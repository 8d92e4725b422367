"""Counters and latencies of the bookie, under the names and with the meaning of Apache BookKeeper.

The hot path only adds to plain integers; prometheus_client turns them into text when a scrape asks
(runtime/metrics.py). Latencies are in milliseconds, as BookKeeper's are. Everything happens on the
server's loop.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from bookie.ledger.types import Status
from bookie.runtime.metrics import Histogram
from bookie.runtime.os_log import LineWriter

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_MS = 1000.0


class OpStats:
    """How often one operation succeeded and failed, and how long it took."""

    __slots__ = ("failed", "name", "succeeded")

    def __init__(self, name: str) -> None:
        self.name = name
        self.succeeded = Histogram()
        self.failed = Histogram()

    def observe(self, status: Status, seconds: float) -> None:
        (self.succeeded if status is Status.OK else self.failed).observe(seconds)

    @property
    def success_count(self) -> int:
        return self.succeeded.count

    @property
    def failure_count(self) -> int:
        return self.failed.count


class Figure(NamedTuple):
    """One value at the moment of a scrape."""

    name: str
    meaning: str
    value: float


class Limit(NamedTuple):
    """A setting that bounds what peers may have, and how much there is at a scrape."""

    name: str
    share: float
    used: float


class ServerMetrics:
    """What one bookie counts. Gauges are read when asked, from functions that their owners add."""

    __slots__ = (
        "add",
        "auth",
        "connections_refused",
        "fence",
        "force",
        "frames_malformed",
        "gauges",
        "info",
        "limits",
        "list_entries",
        "long_poll",
        "long_poll_wait",
        "peers_too_slow",
        "read",
        "read_bytes",
        "read_lac",
        "refused",
        "requests_refused",
        "requests_unauthorized",
        "sources",
        "tls_failed",
        "write_bytes",
        "write_lac",
    )

    def __init__(self) -> None:
        self.add = OpStats("bookkeeper_server_ADD_ENTRY")
        self.read = OpStats("bookkeeper_server_READ_ENTRY")
        self.fence = OpStats("bookkeeper_server_READ_ENTRY_FENCE_READ")
        self.long_poll = OpStats("bookkeeper_server_READ_ENTRY_LONG_POLL_READ")
        self.long_poll_wait = OpStats("bookkeeper_server_READ_ENTRY_LONG_POLL_WAIT")
        self.read_lac = OpStats("bookkeeper_server_READ_LAC")
        self.write_lac = OpStats("bookkeeper_server_WRITE_LAC")
        self.force = OpStats("bookkeeper_server_FORCE_LEDGER")
        self.info = OpStats("bookkeeper_server_GET_BOOKIE_INFO")
        self.list_entries = OpStats("bookkeeper_server_GET_LIST_OF_ENTRIES_OF_LEDGER")
        self.auth = OpStats("bookkeeper_server_AUTH")
        self.write_bytes = 0
        """Of entry packets that came with an ADD that succeeded."""
        self.read_bytes = 0
        """Of entry packets handed out."""
        self.requests_refused = 0
        """With ETOOMANYREQUESTS, by the limits of connection and server."""
        self.requests_unauthorized = 0
        """With EUA: in clear where TLS is required, or not allowed by the certificate."""
        self.tls_failed = 0
        """Handshakes that failed, and peers that began none where TLS is required."""
        self.connections_refused = 0
        """Closed by connections_max or receive_bytes_total_max."""
        self.frames_malformed = 0
        """Each closed its connection."""
        self.peers_too_slow = 0
        """Closed because a message, or the taking of answers, made no progress."""
        self.gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        """Name -> (what it says, how to read it)."""
        self.limits: Callable[[], Iterable[Limit]] = tuple
        """The settings that bound what peers may have, once the server listens."""
        self.refused: Counter[str] = Counter()
        """By limit: requests, and connections that were refused, gave way or were closed."""
        self.sources: list[Callable[[], list[Figure]]] = []
        """Give several gauges at once."""

    def operations(self) -> tuple[OpStats, ...]:
        return (
            self.add,
            self.read,
            self.fence,
            self.long_poll,
            self.long_poll_wait,
            self.read_lac,
            self.write_lac,
            self.force,
            self.info,
            self.list_entries,
            self.auth,
        )

    def counters(self) -> tuple[tuple[str, str, int], ...]:
        """Return (name, meaning, value)."""
        return (
            ("bookie_WRITE_BYTES", "bytes of entries added", self.write_bytes),
            ("bookie_READ_BYTES", "bytes of entries read", self.read_bytes),
            (
                "bookkeeper_server_REQUESTS_REFUSED",
                "requests answered with ETOOMANYREQUESTS by a limit of the server",
                self.requests_refused,
            ),
            (
                "bookkeeper_server_REQUESTS_UNAUTHORIZED",
                "requests answered with EUA: in clear where TLS is required, or not allowed to the "
                "bearer of the certificate",
                self.requests_unauthorized,
            ),
            (
                "bookkeeper_server_TLS_FAILED",
                "TLS handshakes that failed, or did not come where TLS is required",
                self.tls_failed,
            ),
            (
                "bookkeeper_server_CONNECTIONS_REFUSED",
                "connections closed because a limit over all of them was reached",
                self.connections_refused,
            ),
            (
                "bookkeeper_server_FRAMES_MALFORMED",
                "messages that could not be read; each closed its connection",
                self.frames_malformed,
            ),
            (
                "bookkeeper_server_PEERS_TOO_SLOW",
                "connections closed because the peer sent or took too slowly",
                self.peers_too_slow,
            ),
        )

    def add_source(self, source: Callable[[], list[Figure]]) -> None:
        self.sources.append(source)

    def gauge(self, name: str, meaning: str, read: Callable[[], float]) -> None:
        """Show a value that is read at each scrape; a name that is there is replaced."""
        self.gauges[name] = (meaning, read)


def families(metrics: ServerMetrics) -> "Iterator[Metric]":
    """Yield everything as prometheus_client's families (needs prometheus_client)."""
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    for stats in metrics.operations():
        family = HistogramMetricFamily(
            stats.name, "Latency in milliseconds, by success.", labels=["success"]
        )
        family.add_metric(["true"], *stats.succeeded.buckets(_MS))
        family.add_metric(["false"], *stats.failed.buckets(_MS))
        yield family
    for name, meaning, value in metrics.counters():
        yield CounterMetricFamily(name, meaning, value=value)
    for name, (meaning, read) in metrics.gauges.items():
        yield GaugeMetricFamily(name, meaning, value=read())
    yield from _limit_families(metrics)
    for source in metrics.sources:
        yield from figure_families(source())


def _limit_families(metrics: ServerMetrics) -> "Iterator[Metric]":
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    share = GaugeMetricFamily("bookie_limit_share", "How much there may be.", labels=["limit"])
    used = GaugeMetricFamily("bookie_limit_used", "How much there is.", labels=["limit"])
    refused = CounterMetricFamily(
        "bookie_limit_refused", "What was refused, gave way or was closed.", labels=["limit"]
    )
    for limit in metrics.limits():
        share.add_metric([limit.name], limit.share)
        used.add_metric([limit.name], limit.used)
        refused.add_metric([limit.name], metrics.refused[limit.name])
    yield from (share, used, refused)


def log_figures(lines: LineWriter) -> list[Figure]:
    """Return what became of the process's log."""
    return [
        Figure("bookie_log_lines_lost", "lines of the log that were not written, since the start",
               lines.lost_count),
        Figure("bookie_log_waiting_bytes", "of lines of the log that are not written yet",
               lines.waiting_bytes),
    ]  # fmt: skip


def figure_families(figures: Iterable[Figure]) -> "Iterator[Metric]":
    """Yield figures as gauges (needs prometheus_client)."""
    from prometheus_client.core import GaugeMetricFamily

    for figure in figures:
        yield GaugeMetricFamily(*figure)
