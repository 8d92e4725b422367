"""EntryLists: answers GET_LIST_OF_ENTRIES_OF_LEDGER, few at a time, over all connections.

A request of twenty bytes makes the bookie put together a list of millions of ids: those that wait
do so as requests, in the order in which they came, not as lists. Everything happens on the server's
loop but the encoding of long lists. Source: docs/protocols/bookie_server.md.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from bookie.ledger.types import Status
from bookie.proto import availability, v3

if TYPE_CHECKING:
    from bookie.server.wire.connection import Connection
    from bookie.server.wire.dispatch_v3 import DispatcherV3
    from bookie.server.wire.hub import Hub

ENTRY_IDS_ON_LOOP_MAX = 4096
"""Lists of entries that are longer are encoded by the executor."""
LISTS_AT_ONCE = 2
_ANSWER_BYTES_MAX = 80
"""Of an answer, without the list."""

_log = logging.getLogger(__name__)


class _Asked(NamedTuple):
    connection: "Connection"
    request: v3.ListEntriesRequest
    started: float


class EntryLists:
    """The queue of one server."""

    def __init__(self, dispatcher: "DispatcherV3", hub: "Hub") -> None:
        self._dispatcher = dispatcher
        self._hub = hub
        self._waiting: deque[_Asked] = deque()
        self._running = 0
        self._is_starting = False

    def ask(self, connection: "Connection", request: v3.ListEntriesRequest) -> None:
        """Answer a request that was begun, when its turn has come."""
        self._waiting.append(_Asked(connection, request, connection.now))
        self._start()

    def _start(self) -> None:
        if self._is_starting:
            return  # a list that was there at once: the loop below goes on
        self._is_starting = True
        try:
            while self._waiting and self._running < LISTS_AT_ONCE:
                asked = self._waiting.popleft()
                if not asked.connection.is_open:
                    asked.connection.finish()
                    continue
                self._running += 1
                requests_before = asked.connection.requests
                try:
                    self._hub.service.list_entries(
                        asked.request.ledger_id, partial(self._listed, asked)
                    )
                except Exception:  # noqa: BLE001 - the others in the queue must not wait for ever
                    is_begun = asked.connection.requests == requests_before
                    self._running -= is_begun
                    self._dispatcher.broken(asked.connection, asked.request, is_begun=is_begun)
        finally:
            self._is_starting = False

    def _listed(self, asked: _Asked, status: Status, entry_ids: Sequence[int]) -> None:
        if status is not Status.OK:
            self._answer(asked, status)
        elif len(entry_ids) <= ENTRY_IDS_ON_LOOP_MAX:
            self._answer(asked, status, availability.encode(entry_ids))
        else:  # a second for a million entries: not on the loop
            job = partial(availability.encode, entry_ids)
            future = self._hub.loop.run_in_executor(self._hub.executor, job)
            future.add_done_callback(partial(self._encoded, asked))

    def _encoded(self, asked: _Asked, future: asyncio.Future[bytes]) -> None:
        if future.cancelled() or future.exception() is not None:
            self._answer(asked, Status.IO_ERROR)
        else:
            self._answer(asked, Status.OK, future.result())

    def _answer(self, asked: _Asked, status: Status, encoded: bytes = b"") -> None:
        self._running -= 1
        hub = self._hub
        connection, request, started = asked
        if len(encoded) + _ANSWER_BYTES_MAX > hub.config.frame_bytes_max:
            # Java's clients close the connection on it, and with it fail all that is under way.
            _log.warning(
                "ledger %d: its entries have so many gaps that their list takes %d bytes; "
                "frame_bytes_max is %d",
                request.ledger_id,
                len(encoded),
                hub.config.frame_bytes_max,
            )
            status, encoded = Status.IO_ERROR, b""
        elif not connection.has_room(len(encoded)):
            status, encoded = Status.TOO_MANY_REQUESTS, b""
        connection.finish(
            v3.encode_list_entries_response(request.txn_id, status, request.ledger_id, encoded)
        )
        hub.metrics.list_entries.observe(status, hub.clock.monotonic() - started)
        self._start()
