"""HealthServer: a process's metrics, health and readiness over HTTP, open to all.

GET /heartbeat: 200 while the process runs. GET /health: 200, or 503 with the reason, while
requests can be served. GET /ready (and /api/v1/bookie/is_ready, as Apache BookKeeper's): 200 once
the process is to be used (a bookie: it is registered and serves), else 503. GET /metrics:
Prometheus' text format. Everything happens on one asyncio loop.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from bookie.runtime.http import TEXT, Api, HttpServer, Page, metrics_page, verdict

if TYPE_CHECKING:
    from prometheus_client.core import Metric

PAGES = {
    "/heartbeat": "The process runs.",
    "/health": "Requests can be served; 503 with the reason if not.",
    "/ready": "It is to be used; 503 with the reason if not.",
    "/api/v1/bookie/is_ready": "As /ready, at BookKeeper's path.",
    "/metrics": "Everything that is counted, as Prometheus' text.",
}
"""What there is, and what 200 says."""


class HealthServer(HttpServer):
    """See the module. `health` and `readiness` return None, or the reason why not."""

    def __init__(
        self,
        families: "Callable[[], Iterable[Metric]]",
        health: Callable[[], str | None],
        readiness: Callable[[], str | None],
        api: Api | None = None,
    ) -> None:
        def page(path: str) -> Page | None:
            match path.partition("?")[0]:
                case "/heartbeat":
                    return Page(200, TEXT, b"OK\n")
                case "/health":
                    return verdict(health())
                case "/ready" | "/api/v1/bookie/is_ready":
                    return verdict(readiness())
                case "/metrics":
                    return metrics_page(families)
                case _:
                    return None

        paths = "/heartbeat /health /ready /metrics"
        if api is None:
            paths += "; the management API needs --http-access"
        super().__init__(page, paths, api)
