"""Protocol v3: one request in, one answer out, as docs/protocols/bookie_server.md says.

Every answer carries its status twice, outside and in the operation's own message, and echoes
operation and txn id only. A fencing read is answered, found or not, after fence and master key are
durable (G6). Requests beyond the limits of connection and server get ETOOMANYREQUESTS.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bookie.ledger.types import Status
from bookie.proto import v3
from bookie.server.interfaces import BytesLike
from bookie.server.wire.client_access import Grant
from bookie.server.wire.entry_lists import EntryLists
from bookie.server.wire.long_poll import LongPoll

if TYPE_CHECKING:
    from bookie.server.wire.connection import Connection
    from bookie.server.wire.hub import Hub

_log = logging.getLogger(__name__)

PARTS_BYTES_MIN = 16 * 1024
"""Bodies from this size on go to the socket without being copied into the answer."""


class DispatcherV3:
    """Serves all connections of one server; keeps nothing of a request but its callbacks."""

    def __init__(self, hub: "Hub") -> None:
        self._hub = hub
        self._service = hub.service
        self._metrics = hub.metrics
        self._now = hub.clock.monotonic
        self._lists = EntryLists(self, hub)
        # The values take the request class that is their key.
        self._by_kind: dict[type, Callable[[Connection, Any], None]] = {
            v3.AddRequest: self._add,
            v3.ReadRequest: self._read,
            v3.ReadLacRequest: self._read_lac,
            v3.WriteLacRequest: self._write_lac,
            v3.ForceRequest: self._force,
            v3.InfoRequest: self._info,
            v3.ListEntriesRequest: self._list_entries,
            v3.AuthRequest: self._auth,
            v3.StartTlsRequest: self._start_tls,
            v3.RefusedRequest: self._refuse,
        }

    def handle(self, connection: "Connection", frame: memoryview) -> None:
        """Serve one message; MalformedFrameError when it is no v3 request."""
        request = v3.parse_request(frame)
        if connection.is_restricted and not _is_allowed(connection.grant, request):
            connection.refuse_unauthorized(_refusal(request, Status.UNAUTHORIZED))
            return
        requests_before = connection.requests
        try:
            self._by_kind[type(request)](connection, request)
        except Exception:  # noqa: BLE001 - one request that breaks must not break the others
            self.broken(connection, request, is_begun=connection.requests > requests_before)

    def broken(
        self, connection: "Connection", request: v3.Request, *, is_begun: bool = True
    ) -> None:
        """Report an error of the bookie itself; answer a request that was begun and not ended."""
        _log.exception("%s of %s failed in the bookie", type(request).__name__, connection.peer)
        if is_begun:
            connection.finish(_refusal(request, Status.BAD_REQUEST))

    # --- adds -------------------------------------------------------------------------------------

    def _add(self, connection: "Connection", request: v3.AddRequest) -> None:
        if not connection.begin():
            self._too_many(connection, request)
            return
        now = self._now
        started = connection.now
        metrics = self._metrics
        txn_id, ledger_id, entry_id = request[:3]
        packet = request.packet

        def answer(status: Status) -> None:
            connection.finish(v3.encode_add_response(txn_id, status, ledger_id, entry_id))
            metrics.add.observe(status, now() - started)
            if status is Status.OK:
                metrics.write_bytes += byte_count

        byte_count = len(packet)
        self._service.add(
            packet,
            request.master_key,
            answer,
            is_recovery=request.is_recovery,
            is_deferred_sync=request.is_deferred_sync,
            is_high_priority=request.priority > 0,
        )

    def _write_lac(self, connection: "Connection", request: v3.WriteLacRequest) -> None:
        if not connection.begin():
            self._too_many(connection, request)
            return
        started = connection.now

        def answer(status: Status) -> None:
            connection.finish(
                v3.encode_write_lac_response(request.txn_id, status, request.ledger_id)
            )
            self._metrics.write_lac.observe(status, self._now() - started)

        self._service.write_lac(request.ledger_id, request.master_key, request.packet, answer)

    def _force(self, connection: "Connection", request: v3.ForceRequest) -> None:
        if not connection.begin():
            self._too_many(connection, request)
            return
        started = connection.now

        def answer(status: Status) -> None:
            connection.finish(v3.encode_force_response(request.txn_id, status, request.ledger_id))
            self._metrics.force.observe(status, self._now() - started)

        self._service.force(request.ledger_id, answer)

    # --- reads ------------------------------------------------------------------------------------

    def _read(self, connection: "Connection", request: v3.ReadRequest) -> None:
        if not connection.begin():
            self._too_many(connection, request)
            return
        if request.is_fence:
            self._fence(connection, request)
        elif request.previous_lac is not None:
            LongPoll(self, self._hub, connection, request).begin()
        else:
            self._read_plain(connection, request)

    def _read_plain(self, connection: "Connection", request: v3.ReadRequest) -> None:
        started = connection.now

        def answer(status: Status, body: BytesLike) -> None:
            if status is Status.OK:
                lac = self._service.last_add_confirmed(request.ledger_id)
                status = self.answer_read(connection, request, status, body=body, max_lac=lac)
            else:
                self.answer_read(connection, request, status)
            self._metrics.read.observe(status, self._now() - started)

        self._service.read(request.ledger_id, request.entry_id, answer)

    def _fence(self, connection: "Connection", request: v3.ReadRequest) -> None:
        """Fence, wait until that is durable, then read: no answer before, not even ENOENTRY."""
        started = connection.now

        def finish(status: Status, body: BytesLike | None = None) -> None:
            status = self.answer_read(connection, request, status, body=body)
            self._metrics.fence.observe(status, self._now() - started)

        def fenced(status: Status) -> None:
            if status is not Status.OK:
                finish(status)
                return
            try:
                self._service.read(request.ledger_id, request.entry_id, read)
            except Exception:  # noqa: BLE001 - as in handle()
                self.broken(connection, request)

        def read(status: Status, body: BytesLike) -> None:
            finish(status, body if status is Status.OK else None)

        if request.master_key is None or len(request.master_key) != v3.MASTER_KEY_BYTES:
            finish(Status.UNAUTHORIZED)
            return
        self._service.fence(request.ledger_id, request.master_key, fenced)

    def answer_read(
        self,
        connection: "Connection",
        request: v3.ReadRequest,
        status: Status,
        *,
        entry_id: int | None = None,
        body: BytesLike | None = None,
        max_lac: int | None = None,
        lac_update_ms: int | None = None,
    ) -> Status:
        """Answer a read that was begun; entry_id None: the one asked for.

        Returns what was answered: TOO_MANY_REQUESTS when the peer lets too many answers wait.
        """
        if entry_id is None:
            entry_id = request.entry_id
        if body is not None:
            if not connection.has_room(len(body)):
                status, body, max_lac, lac_update_ms = Status.TOO_MANY_REQUESTS, None, None, None
            else:
                self._metrics.read_bytes += len(body)
        arguments = (request.txn_id, status, request.ledger_id, entry_id)
        if body is not None and len(body) >= PARTS_BYTES_MIN:
            head, body, tail = v3.encode_read_response_parts(
                *arguments, body, max_lac, lac_update_ms
            )
            connection.finish(head, body, tail)
        else:
            connection.finish(v3.encode_read_response(*arguments, body, max_lac, lac_update_ms))
        return status

    def _read_lac(self, connection: "Connection", request: v3.ReadLacRequest) -> None:
        if not connection.begin():
            self._too_many(connection, request)
            return
        started = connection.now

        def answer(status: Status, lac_body: BytesLike, last_entry_body: BytesLike) -> None:
            if not connection.has_room(len(lac_body) + len(last_entry_body)):
                status, lac_body, last_entry_body = Status.TOO_MANY_REQUESTS, b"", b""
            connection.finish(
                v3.encode_read_lac_response(
                    request.txn_id, status, request.ledger_id, lac_body, last_entry_body
                )
            )
            self._metrics.read_lac.observe(status, self._now() - started)

        self._service.read_lac(request.ledger_id, answer)

    # --- about the bookie -------------------------------------------------------------------------

    def _info(self, connection: "Connection", request: v3.InfoRequest) -> None:
        if not connection.begin():
            self._too_many(connection, request)
            return
        total_bytes = free_bytes = None
        status = Status.OK
        try:
            total, free = self._service.space()
        except OSError as error:
            _log.warning("cannot tell the space of the ledger directories: %s", error)
            status = Status.IO_ERROR
        else:
            total_bytes = total if request.requested & v3.INFO_TOTAL else None
            free_bytes = free if request.requested & v3.INFO_FREE else None
        connection.finish(v3.encode_info_response(request.txn_id, status, total_bytes, free_bytes))
        self._metrics.info.observe(status, self._now() - connection.now)

    def _list_entries(self, connection: "Connection", request: v3.ListEntriesRequest) -> None:
        if not connection.begin():
            self._too_many(connection, request)
            return
        self._lists.ask(connection, request)

    # --- the connection itself --------------------------------------------------------------------

    def _auth(self, connection: "Connection", request: v3.AuthRequest) -> None:
        """Tell the peer that authentication is disabled; it is authenticated by that."""
        connection.send(v3.encode_auth_response(request.txn_id))
        self._metrics.auth.observe(Status.OK, 0.0)

    def _start_tls(self, connection: "Connection", request: v3.StartTlsRequest) -> None:
        if self._hub.tls is None:
            connection.send(v3.encode_start_tls_response(request.txn_id, Status.BAD_REQUEST))
            return
        connection.start_tls(v3.encode_start_tls_response(request.txn_id))

    # --- refusals ---------------------------------------------------------------------------------

    def _refuse(self, connection: "Connection", request: v3.RefusedRequest) -> None:
        connection.send(_refusal(request, request.status))

    def _too_many(self, connection: "Connection", request: v3.Request) -> None:
        connection.send(_refusal(request, Status.TOO_MANY_REQUESTS))


_READING = (
    v3.AuthRequest,
    v3.InfoRequest,
    v3.ListEntriesRequest,
    v3.ReadLacRequest,
    v3.RefusedRequest,
)


def _is_allowed(grant: Grant, request: v3.Request) -> bool:
    """Tell whether a peer with less than all rights may ask for this."""
    if isinstance(request, v3.StartTlsRequest):
        return True
    if grant is not Grant.READ:
        return grant is Grant.WRITE
    if isinstance(request, v3.ReadRequest):
        return not request.is_fence
    return isinstance(request, _READING)


def _refusal(request: v3.Request, status: Status) -> bytes:
    return v3.encode_refusal(
        request.operation,
        request.txn_id,
        status,
        getattr(request, "ledger_id", -1),
        getattr(request, "entry_id", -1),
    )
