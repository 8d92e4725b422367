"""HealthServer: a server's metrics, health and state over HTTP.

GET /livez: 200 while the loop turns. GET /readyz: 200, or 503 and the reason, while statements can
be served; on a full disk, or while background work fails, 200 and a word of it. GET /status: JSON
about positions, memory and limits. GET /metrics: Prometheus' text. There is no login, so nothing of
it is about the data: no SQL, names or addresses, and of errors their kind alone (watch.py tells the
log what they say). Of /metrics, which takes some milliseconds for each hundred tablespaces, a few
are made at a time, on a worker, and 503 answers more. A node of a cluster has the pages as long as
its process lives: they are those of the servers of copies that are open, of all that are the worst,
and while none is open /readyz says why.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec

from bookie.runtime.http import JSON, TEXT, HttpServer, Page, Request, metrics_page, verdict
from herdpy.cluster.observability.figures import NodeFigures
from herdpy.engine.stats import stats_of
from herdpy.server.common import HTTP_SHARES
from herdpy.server.operations.metrics import families_of
from herdpy.server.operations.node_metrics import node_families
from herdpy.server.operations.watch import shown, stopped_by

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from herdpy.server.hub import Hub

_FAILING_SHOWN_MAX = 5
"""Steps of background work: there may be one for each session."""


class HealthServer(HttpServer):
    """On the server's loop."""

    def __init__(self, figures: NodeFigures | None = None) -> None:
        """figures: of the node whose copy is served; None: the server is no node of a cluster."""
        self._figures = figures or NodeFigures()
        self._hubs: list[Hub] = []
        self._metrics = _Metrics(figures, self._hubs)
        super().__init__(self._page_of, "/livez /readyz /status /metrics", self._metrics)

    def show(self, hub: "Hub") -> None:
        """Show the state of a server from now on, beside others."""
        self._hubs.append(hub)
        hub.peer_shares[HTTP_SHARES] = self.unanswered

    def hide(self, hub: "Hub") -> None:
        """Show it no more."""
        self._hubs.remove(hub)

    def _page_of(self, path: str) -> Page | None:
        match path.partition("?")[0]:
            case "/livez":
                return Page(200, TEXT, b"OK\n")
            case "/readyz":
                return self._readiness()
            case "/status":
                return Page(200, JSON, self._status())
            case _:
                return None

    def _readiness(self) -> Page:
        """Return the first verdict against it, else the first that says more than OK."""
        if not self._hubs:
            return verdict(self._figures.reason_not_open())
        pages = [readiness(hub) for hub in self._hubs]
        return max(pages, key=lambda each: (each.status, len(each.body) > len(verdict(None).body)))

    def _status(self) -> bytes:
        states = [state_of(hub) for hub in self._hubs]
        if not states:
            return _json({"is_ready": False, "reason": self._figures.reason_not_open()})
        if len(states) == 1:
            return _json(states[0])
        return _json({"is_ready": all(each["is_ready"] for each in states), "servers": states})


class _Metrics:
    """Implements bookie.runtime.http.Api, for what takes too long to be made on the loop."""

    def __init__(self, figures: NodeFigures | None, hubs: "Sequence[Hub]") -> None:
        self._figures = figures
        self._hubs = hubs

    def owns(self, path: str) -> bool:
        return path == "/metrics"

    def refusal(self, request: Request) -> Page | None:
        if request.method in ("GET", "HEAD"):
            return None
        return Page(405, TEXT, b"only GET and HEAD\n", "GET, HEAD")

    async def call(self, request: Request) -> Page:
        hubs = tuple(self._hubs)
        if not hubs:
            page = metrics_page(self._of_node)
        else:
            page = await hubs[0].workers.submit_page(
                lambda: metrics_page(lambda: chain(families_of(hubs), self._of_node()))
            )
        return page._replace(body=b"") if request.method == "HEAD" else page

    def _of_node(self) -> "Iterator[Metric]":
        return iter(()) if self._figures is None else node_families(self._figures)

    async def close(self) -> None:
        pass


def readiness(hub: "Hub") -> Page:
    """Return the verdict; a full disk is no reason against it: reads and DELETEs are served.

    Nor is background work that fails, and is tried again.
    """
    found, database = verdict(hub.reason_not_ready()), hub.database
    words: list[str] = []
    if database.replica.space.is_full:
        words.append("the disk is full: writes are refused (53100)")
    part = hub.default.part
    if part is not None and part.follows:
        words.append(f"this node follows, {part.known_lag_s():.1f} s behind at most")
    failing = [each.task for each in database.retries.failed]
    if failing:
        more = len(failing) - _FAILING_SHOWN_MAX
        names = ", ".join(failing[:_FAILING_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
        words.append(f"background work fails and is tried again: {names} (see sysmaintenance)")
    if found.status != 200 or not words:
        return found
    return Page(200, TEXT, f"OK, but {'; '.join(words)}\n".encode())


def state_of(hub: "Hub") -> dict[str, Any]:
    """Return the state of a server, as JSON shows it."""
    figures = stats_of(hub.database)._replace(
        checkpoint_error=shown(hub.database.replica.checkpoint_error),
        failure=shown(stopped_by(hub.database)),
    )
    reason, part = hub.reason_not_ready(), hub.default.part
    lag_s = inf if part is None else part.known_lag_s()
    return {
        "server": hub.name,
        "is_ready": reason is None,
        "reason": reason,
        "is_draining": hub.is_draining,
        "follows": part is not None and part.follows,
        "lag_s": None if lag_s == inf else round(lag_s, 3),
        "uptime_s": round(hub.uptime_s, 3),
        "connections": hub.connections_by_protocol(),
        "statements_waiting": hub.workers.waiting_count,
        "statements_waiting_for_locks": hub.workers.parked_count,
        "results_open": hub.results.used,
        "received_bytes": hub.received.used,
        "untaken_bytes": hub.stalled.byte_count,
        "database": figures._asdict(),
        "limits": {
            name: getattr(hub.config, name)
            for name in (
                "connections_max", "superuser_reserved_connections", "workers", "waiting_max",
                "results_max",                "request_bytes_max", "response_bytes_max",
            )
        },
    }  # fmt: skip


def _json(state: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(state)) + b"\n"
