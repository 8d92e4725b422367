"""AsyncioChannels: the Channels of a real client, over asyncio connections.

Contract in bookie/client/interfaces.py. An entry for several bookies is encoded once and carries
one txnId on all their connections; what is written in one turn of the loop leaves in one piece for
each bookie; time-outs are looked for by one coarse timer, so an answer TIMED_OUT may come late by
an eighth of the time-out, never early.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from bookie.client.connection import BookieConnection, Pending
from bookie.client.interfaces import BookieInfo, LacReply, OnStatus, ReadReply
from bookie.config import ClientConfig
from bookie.ledger.types import BookieId, Status
from bookie.proto import v3
from bookie.runtime.interfaces import Tls

BytesLike = bytes | bytearray | memoryview

_TICK_MIN_S = 0.005
_TICK_MAX_S = 0.5
_CLOSE_MAX_S = 5.0
"""For the ends of aborted connections, which come within a few turns of the loop."""


class Directory(Protocol):
    """What channels ask of the BookieDirectory."""

    def address_of(self, bookie_id: BookieId) -> tuple[str, int] | None: ...


class AsyncioChannels:
    """See the module. Made on the loop that it works on; close() it there."""

    def __init__(
        self,
        directory: Directory,
        config: ClientConfig,
        *,
        tls: Tls | None = None,
    ) -> None:
        self._directory = directory
        self._config = config
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._connections: dict[BookieId, list[BookieConnection]] = {}
        self._unflushed: list[BookieConnection] = []
        self._last_txn_id = 0
        shortest_s = min(config.add_timeout_s, config.read_timeout_s)
        self._tick_s = min(max(shortest_s / 8, _TICK_MIN_S), _TICK_MAX_S)
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._open: dict[object, None] = {}
        """Sockets, and attempts to make some, that have not ended."""
        self._all_ended: asyncio.Future[None] | None = None

    # --- what connections ask ---------------------------------------------------------------------

    def address_of(self, bookie: BookieId) -> tuple[str, int] | None:
        return self._directory.address_of(bookie)

    def flush_later(self, connection: BookieConnection) -> None:
        if not self._unflushed:
            self._loop.call_soon(self._flush)
        self._unflushed.append(connection)

    def began(self, thing: object) -> None:
        self._open[thing] = None

    def ended(self, thing: object) -> None:
        self._open.pop(thing, None)
        if not self._open and self._all_ended is not None and not self._all_ended.done():
            self._all_ended.set_result(None)

    def _flush(self) -> None:
        unflushed, self._unflushed = self._unflushed, []
        for connection in unflushed:
            connection.flush()

    # --- requests ---------------------------------------------------------------------------------

    def add(
        self,
        bookies: tuple[BookieId, ...],
        ledger_id: int,
        entry_id: int,
        master_key: bytes,
        packet: BytesLike,
        on_done: Callable[[BookieId, Status], None],
        *,
        is_recovery: bool = False,
        is_high_priority: bool = False,
        is_deferred_sync: bool = False,
    ) -> None:
        txn_id = self._next_txn_id()
        frame = v3.encode_add_request(
            txn_id,
            ledger_id,
            entry_id,
            master_key,
            packet,
            is_recovery=is_recovery,
            is_deferred_sync=is_deferred_sync,
            priority=v3.PRIORITY_HIGH if is_high_priority else 0,
        )

        def on_answer(bookie: BookieId, answer: Any) -> None:
            on_done(bookie, answer if isinstance(answer, Status) else answer.status)

        now = self._loop.time()
        deadline = now + self._config.add_timeout_s
        pending = Pending(deadline, now, v3.Operation.ADD_ENTRY, on_answer)
        for bookie in bookies:
            connection = self._connection(bookie, ledger_id)
            connection.request(connection.adds, txn_id, pending, frame)

    def read(
        self,
        bookie: BookieId,
        ledger_id: int,
        entry_id: int,
        on_done: Callable[[ReadReply], None],
        *,
        fence_key: bytes | None = None,
        previous_lac: int | None = None,
        wait_ms: int | None = None,
        is_piggyback: bool = False,
        is_high_priority: bool = False,
    ) -> None:
        txn_id = self._next_txn_id()
        frame = v3.encode_read_request(
            txn_id,
            ledger_id,
            entry_id,
            fence_key=fence_key,
            previous_lac=previous_lac,
            wait_ms=wait_ms,
            is_piggyback=is_piggyback,
            priority=v3.PRIORITY_HIGH if is_high_priority else 0,
        )

        def on_answer(_: BookieId, answer: Any) -> None:
            if isinstance(answer, Status):
                on_done(ReadReply(answer))
            else:
                on_done(ReadReply(answer.status, answer.entry_id, answer.body, answer.max_lac))

        operation = v3.Operation.READ_ENTRY
        self._ask(bookie, ledger_id, txn_id, operation, frame, on_answer, wait_ms=wait_ms)

    def read_lac(
        self, bookie: BookieId, ledger_id: int, on_done: Callable[[LacReply], None]
    ) -> None:
        def on_answer(_: BookieId, answer: Any) -> None:
            if isinstance(answer, Status):
                on_done(LacReply(answer))
            else:
                on_done(LacReply(answer.status, answer.lac_body, answer.last_entry_body))

        txn_id = self._next_txn_id()
        frame = v3.encode_read_lac_request(txn_id, ledger_id)
        self._ask(bookie, ledger_id, txn_id, v3.Operation.READ_LAC, frame, on_answer)

    def write_lac(
        self,
        bookie: BookieId,
        ledger_id: int,
        master_key: bytes,
        lac: int,
        packet: BytesLike,
        on_done: OnStatus,
    ) -> None:
        txn_id = self._next_txn_id()
        frame = v3.encode_write_lac_request(txn_id, ledger_id, master_key, lac, packet)
        operation = v3.Operation.WRITE_LAC
        self._ask(bookie, ledger_id, txn_id, operation, frame, _status_to(on_done))

    def force(self, bookie: BookieId, ledger_id: int, on_done: OnStatus) -> None:
        txn_id = self._next_txn_id()
        frame = v3.encode_force_request(txn_id, ledger_id)
        operation = v3.Operation.FORCE_LEDGER
        self._ask(bookie, ledger_id, txn_id, operation, frame, _status_to(on_done))

    def break_count(self, bookie: BookieId, ledger_id: int) -> int:
        connections = self._connections.get(bookie)
        return connections[ledger_id % len(connections)].break_count if connections else 0

    def info(self, bookie: BookieId, on_done: Callable[[BookieInfo], None]) -> None:
        def on_answer(_: BookieId, answer: Any) -> None:
            if isinstance(answer, Status):
                on_done(BookieInfo(answer))
            else:
                on_done(BookieInfo(answer.status, answer.total_bytes or 0, answer.free_bytes or 0))

        txn_id = self._next_txn_id()
        frame = v3.encode_info_request(txn_id, v3.INFO_TOTAL | v3.INFO_FREE)
        self._ask(bookie, 0, txn_id, v3.Operation.GET_BOOKIE_INFO, frame, on_answer)

    def list_entries(
        self, bookie: BookieId, ledger_id: int, on_done: Callable[[Status, bytes], None]
    ) -> None:
        def on_answer(_: BookieId, answer: Any) -> None:
            if isinstance(answer, Status):
                on_done(answer, b"")
            else:
                on_done(answer.status, bytes(answer.availability))

        txn_id = self._next_txn_id()
        frame = v3.encode_list_entries_request(txn_id, ledger_id)
        operation = v3.Operation.GET_LIST_OF_ENTRIES_OF_LEDGER
        self._ask(bookie, ledger_id, txn_id, operation, frame, on_answer)

    def _ask(
        self,
        bookie: BookieId,
        ledger_id: int,
        txn_id: int,
        operation: v3.Operation,
        frame: bytes,
        on_answer: Callable[[BookieId, Any], None],
        *,
        wait_ms: int | None = None,
    ) -> None:
        now = self._loop.time()
        deadline = now + self._config.read_timeout_s + (wait_ms or 0) / 1000
        connection = self._connection(bookie, ledger_id)
        # Requests that wait long stand apart: the others' time is up in the order of sending.
        table = connection.reads if wait_ms is None else connection.polls
        connection.request(table, txn_id, Pending(deadline, now, operation, on_answer), frame)

    def _next_txn_id(self) -> int:
        self._last_txn_id += 1
        return self._last_txn_id

    def _connection(self, bookie: BookieId, ledger_id: int) -> BookieConnection:
        connections = self._connections.get(bookie)
        if connections is None:
            connections = [
                BookieConnection(bookie, self, self._config, self._loop, self._tls)
                for _ in range(self._config.connections_per_bookie)
            ]
            self._connections[bookie] = connections
            if self._is_closed:
                self._close_all(connections)
        if self._timer is None and not self._is_closed:
            self._timer = self._loop.call_later(self._tick_s, self._on_tick)
        return connections[ledger_id % len(connections)]

    # --- time and the end -------------------------------------------------------------------------

    def _on_tick(self) -> None:
        self._timer = None
        now = self._loop.time()
        is_needed = False
        for connections in list(self._connections.values()):
            for connection in connections:
                connection.expire(now)
                is_needed = is_needed or connection.request_count > 0
        if is_needed and self._timer is None and not self._is_closed:
            self._timer = self._loop.call_later(self._tick_s, self._on_tick)

    def follow_moves(self) -> None:
        """Leave connections to addresses at which the directory has another place for a bookie."""
        # What is answered meanwhile may ask others, and so add to the table.
        for bookie, connections in list(self._connections.items()):
            address = self._directory.address_of(bookie)
            for connection in connections:
                if address is not None and connection.address not in (None, address):
                    connection.retire()

    async def close(self) -> None:
        """Answer everything CLIENT_CLOSED, now and from here on, and end the connections."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connections in list(self._connections.values()):
            self._close_all(connections)
        # Aborted transports close their sockets in a later turn of the loop.
        self._all_ended = self._loop.create_future()
        if self._open:
            await asyncio.wait([self._all_ended], timeout=_CLOSE_MAX_S)

    def _close_all(self, connections: list[BookieConnection]) -> None:
        for connection in connections:
            connection.close()


def _status_to(on_done: OnStatus) -> Callable[[BookieId, Any], None]:
    def on_answer(_: BookieId, answer: Any) -> None:
        on_done(answer if isinstance(answer, Status) else answer.status)

    return on_answer
