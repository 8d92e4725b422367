"""HealthServer: a bookie's metrics, health and readiness over HTTP.

GET /heartbeat: 200 while the process runs. GET /health: 200, or 503 with the reason, while
requests can be served. GET /ready (and /api/v1/bookie/is_ready, as Apache BookKeeper's): 200 once
the bookie is registered and serves, else 503. GET /metrics: Prometheus' text format. Everything
happens on one asyncio loop.
"""

from collections.abc import Callable

from bookie.runtime.http import TEXT, Api, HttpServer, Page, metrics_page, verdict
from bookie.server.metrics import ServerMetrics, families


class HealthServer(HttpServer):
    """See the module. `health` and `readiness` return None, or the reason why not."""

    def __init__(
        self,
        metrics: ServerMetrics,
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
                    return metrics_page(lambda: families(metrics))
                case _:
                    return None

        super().__init__(page, "/heartbeat /health /ready /metrics", api)
