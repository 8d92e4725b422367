"""Hub: what all connections of one bookie server share: service, limits, counters, the list.

Everything happens on the server's loop. Each limit is on what peers can make the server hold:
connections, requests under way, bytes of messages that have not come whole, bytes of answers that
are not taken.
"""

import asyncio
import ssl
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from bookie.config import BookieConfig
from bookie.runtime.interfaces import Clock, Tls, context_of
from bookie.runtime.os_executors import Executor
from bookie.server.interfaces import BookieService
from bookie.server.metrics import Limit, ServerMetrics
from bookie.server.wire.admission import Admission
from bookie.server.wire.client_access import ClientAccess

if TYPE_CHECKING:
    from bookie.server.wire.connection import Connection


class Hub:
    """See the module. `connections` is in the order in which they came."""

    __slots__ = (
        "access",
        "admission",
        "clock",
        "config",
        "connections",
        "executor",
        "idle",
        "is_closing",
        "is_tls_required",
        "loop",
        "metrics",
        "receive_bytes",
        "requests",
        "response_bytes",
        "service",
        "tls",
    )

    def __init__(
        self,
        service: BookieService,
        config: BookieConfig,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        metrics: ServerMetrics,
        tls: Tls | None = None,
        executor: Executor | None = None,
        access: Callable[[], ClientAccess] | None = None,
    ) -> None:
        self.service = service
        self.config = config
        self.clock = clock
        self.loop = loop
        self.tls = tls
        self.is_tls_required = config.is_tls_required or (
            tls is not None and context_of(tls).verify_mode is ssl.CERT_REQUIRED
        )
        """In clear every request but START_TLS is refused."""
        self.access = access
        """What certificates give; None: all may do everything."""
        self.executor = executor
        self.metrics = metrics
        self.connections: dict[Connection, None] = {}
        self.admission = Admission(config, self.connections, metrics.refused)
        self.requests = 0
        """Under way, over all connections."""
        self.receive_bytes = 0
        """Of messages that have begun and not ended, over all connections."""
        self.response_bytes = 0
        """Waiting for peers that take their answers slowly, over all connections."""
        metrics.limits = self.limits
        self.is_closing = False
        self.idle = asyncio.Event()
        """Set when, while closing, the last request has been answered."""

    def limits(self) -> Iterator[Limit]:
        """Yield the settings of what all connections may have, and the time-outs (seconds)."""
        config, silent = self.config, self.admission.silent
        now = self.clock.monotonic()
        idle_s = max((each.idle_s(now) for each in self.connections), default=0.0)
        most_requests = max((each.requests for each in self.connections), default=0)
        for name, used in (
            ("connections_max", len(self.connections)),
            ("silent_of_address_max", silent.most_of_origin),
            ("requests_max", self.requests),
            ("requests_per_connection_max", most_requests),
            ("response_bytes_total_max", self.response_bytes),
            ("receive_bytes_total_max", self.receive_bytes),
            ("idle_timeout_s", idle_s),
        ):
            yield Limit(name, getattr(config, name), used)
        # Of these only the refusals are counted.
        yield Limit("response_bytes_max", config.response_bytes_max, 0)
        yield Limit("first_message_timeout_s", config.first_message_timeout_s, 0)
