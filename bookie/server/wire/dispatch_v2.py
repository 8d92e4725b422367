"""Protocol v2: adds, reads and batch reads for the clients that ask for it.

Messages: docs/formats/wire_v2.md. Same rules as v3, in the numbers of v2; no LAC in answers, no
long poll, no force. An operation that this version does not have closes the connection: clients
tell by that. A fencing read is answered after the fence is durable (G6).
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bookie.ledger.types import Status
from bookie.proto import v2
from bookie.proto.v3 import AUTH_DISABLED_PLUGIN
from bookie.server.interfaces import BytesLike
from bookie.server.wire.client_access import Grant

if TYPE_CHECKING:
    from bookie.server.wire.connection import Connection
    from bookie.server.wire.hub import Hub

_log = logging.getLogger(__name__)

BATCH_COUNT_MAX = 4096
"""Entries in one answer, so that no batch holds up the loop; the client asks for the rest."""


class DispatcherV2:
    """Serves all connections of one server that speak v2."""

    def __init__(self, hub: "Hub") -> None:
        self._hub = hub
        self._service = hub.service
        self._metrics = hub.metrics
        self._now = hub.clock.monotonic
        # The values take the request class that is their key.
        self._by_kind: dict[type, Callable[[Connection, Any], None]] = {
            v2.AddRequest: self._add,
            v2.ReadRequest: self._read,
            v2.BatchReadRequest: self._batch_read,
            v2.AuthRequest: self._auth,
            v2.RefusedRequest: self._refuse,
        }

    def handle(self, connection: "Connection", frame: memoryview) -> None:
        """Serve one message; MalformedFrameError when it is no v2 request."""
        request = v2.parse_request(frame)
        if connection.is_restricted and not _is_allowed(connection.grant, request):
            self._refuse_unauthorized(connection, request)
            return
        requests_before = connection.requests
        try:
            self._by_kind[type(request)](connection, request)
        except Exception:  # noqa: BLE001 - one request that breaks must not break the others
            _log.exception("%s of %s failed in the bookie", type(request), connection.peer)
            if connection.requests > requests_before:
                connection.finish(_refusal(request, Status.BAD_REQUEST))

    def _add(self, connection: "Connection", request: v2.AddRequest) -> None:
        if not connection.begin():
            connection.send(_refusal(request, Status.TOO_MANY_REQUESTS))
            return
        started = connection.now
        byte_count = len(request.packet)

        def answer(status: Status) -> None:
            connection.finish(v2.encode_add_response(status, request.ledger_id, request.entry_id))
            self._metrics.add.observe(status, self._now() - started)
            if status is Status.OK:
                self._metrics.write_bytes += byte_count

        self._service.add(
            request.packet,
            request.master_key,
            answer,
            is_recovery=request.is_recovery,
            is_high_priority=request.is_high_priority,
        )

    def _read(self, connection: "Connection", request: v2.ReadRequest) -> None:
        if not connection.begin():
            connection.send(_refusal(request, Status.TOO_MANY_REQUESTS))
            return
        started = connection.now
        stats = self._metrics.fence if request.is_fence else self._metrics.read

        def answer(status: Status, body: BytesLike = b"") -> None:
            if status is not Status.OK:
                body = b""
            elif connection.has_room(len(body)):
                self._metrics.read_bytes += len(body)
            else:
                status, body = Status.TOO_MANY_REQUESTS, b""
            connection.finish(
                v2.encode_read_response(status, request.ledger_id, request.entry_id, body)
            )
            stats.observe(status, self._now() - started)

        self._when_fenced(
            connection,
            request,
            lambda: self._service.read(request.ledger_id, request.entry_id, answer),
            answer,
        )

    def _batch_read(self, connection: "Connection", request: v2.BatchReadRequest) -> None:
        if not connection.begin():
            connection.send(_refusal(request, Status.TOO_MANY_REQUESTS))
            return
        batch = _Batch(self._hub, connection, request)
        self._when_fenced(connection, request, batch.go_on, batch.finish)

    def _when_fenced(
        self,
        connection: "Connection",
        request: "v2.ReadRequest | v2.BatchReadRequest",
        then: Callable[[], None],
        refuse: Callable[[Status], None],
    ) -> None:
        """Call `then`, after the fence is durable if the request asks for one."""

        def fenced(status: Status) -> None:
            if status is not Status.OK:
                refuse(status)
                return
            try:
                then()
            except Exception:  # noqa: BLE001 - as in handle()
                _log.exception("a read of %s failed in the bookie", connection.peer)
                refuse(Status.IO_ERROR)

        if not request.is_fence:
            then()
        elif request.master_key is None:
            refuse(Status.UNAUTHORIZED)
        else:
            self._service.fence(request.ledger_id, request.master_key, fenced)

    def _auth(self, connection: "Connection", request: v2.AuthRequest) -> None:
        """Tell the peer that authentication is disabled; it is authenticated by that."""
        connection.send(v2.encode_auth_response(AUTH_DISABLED_PLUGIN))
        self._metrics.auth.observe(Status.OK, 0.0)

    def _refuse_unauthorized(self, connection: "Connection", request: v2.Request) -> None:
        """Refuse what came in clear, or without the right; START_TLS is asked for in v3."""
        if isinstance(request, v2.AuthRequest):
            connection.close_malformed("v2 AUTH without a right, which has no error answer")
        else:
            connection.refuse_unauthorized(_refusal(request, Status.UNAUTHORIZED))

    def _refuse(self, connection: "Connection", request: v2.RefusedRequest) -> None:
        connection.send(_refusal(request, request.status))


def _is_allowed(grant: Grant, request: v2.Request) -> bool:
    """Tell whether a peer with less than all rights may ask for this."""
    if grant is not Grant.READ:
        return grant is Grant.WRITE
    if isinstance(request, v2.ReadRequest | v2.BatchReadRequest):
        return not request.is_fence
    return isinstance(request, v2.AuthRequest | v2.RefusedRequest)


def _refusal(request: v2.Request, status: Status) -> bytes:
    request_id = 0
    match request:
        case v2.AddRequest():
            opcode = v2.Opcode.ADD
        case v2.ReadRequest():
            opcode = v2.Opcode.READ
        case v2.BatchReadRequest():
            opcode, request_id = v2.Opcode.BATCH_READ, request.request_id
        case v2.RefusedRequest():
            opcode, request_id = request.opcode, request.request_id
        case v2.AuthRequest():
            raise TypeError("AUTH has no error answer")
    return v2.encode_refusal(opcode, status, request.ledger_id, request.entry_id, request_id)


class _Batch:
    """One batch read: entries one after the other while they are there and fit.

    At least one entry is sent if the first is there; the status of the first is the answer's.
    """

    def __init__(self, hub: "Hub", connection: "Connection", request: v2.BatchReadRequest) -> None:
        self._hub = hub
        self._connection = connection
        self._request = request
        self._started = connection.now
        self._packets: list[BytesLike] = []
        self._budget = v2.BatchBudget(request, hub.config.frame_bytes_max)
        self._byte_count = 0
        asked = request.max_count if request.max_count > 0 else BATCH_COUNT_MAX
        self._count_max = min(asked, BATCH_COUNT_MAX)
        self._is_running = False
        self._is_answered = False
        self._is_over = False

    def go_on(self) -> None:
        """Read on; answers that come at once are taken in this loop, not by recursion."""
        if self._is_running:
            return
        self._is_running = True
        try:
            while not self._is_over:
                self._is_answered = False
                entry_id = self._request.entry_id + len(self._packets)
                self._hub.service.read(self._request.ledger_id, entry_id, self._take)
                if not self._is_answered:
                    return  # _take() comes back to it
        finally:
            self._is_running = False

    def _take(self, status: Status, packet: BytesLike) -> None:
        self._is_answered = True
        packets = self._packets
        if status is not Status.OK:
            self.finish(Status.OK if packets else status)
        elif not self._budget.take(len(packet)):
            self.finish(Status.OK)
        elif not self._connection.is_open or not self._connection.has_room(len(packet)):
            # Of a batch that grows beside others, what there was room for is an answer, too.
            self.finish(Status.OK if packets else Status.TOO_MANY_REQUESTS)
        else:
            packets.append(packet)
            self._connection.gather(len(packet))
            self._byte_count += len(packet)
            if len(packets) == self._count_max:
                self.finish(Status.OK)
            else:
                self.go_on()

    def finish(self, status: Status) -> None:
        self._is_over = True
        request, connection, packets = self._request, self._connection, self._packets
        connection.gather(-self._byte_count)
        if status is not Status.OK:
            packets = []
        elif not connection.has_room(self._byte_count):
            status, packets = Status.TOO_MANY_REQUESTS, []
        self._hub.metrics.read_bytes += sum(map(len, packets))
        connection.finish(
            v2.encode_batch_read_response(
                status, request.ledger_id, request.entry_id, request.request_id, packets
            )
        )
        self._hub.metrics.read.observe(status, self._hub.clock.monotonic() - self._started)
