"""One connection to one bookie: frames out, answers matched to requests, silence noticed.

Contract: every request given to it is answered exactly once, never from within the call that gave
it: by the bookie, by TIMED_OUT, by UNAVAILABLE when the connection cannot be made or breaks, by
TOO_MANY_REQUESTS when more waits than may, by CLIENT_CLOSED. Requests are matched by (txnId,
operation); answers to unknown ones are ignored (a late answer is one of them); a frame that is no
answer at all closes the connection. It connects by itself when first used, and again, with a
growing pause, when used after it broke. Everything happens on one asyncio loop.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Protocol, cast

from bookie.config import ClientConfig
from bookie.errors import BookieError
from bookie.ledger.types import BookieId, Status
from bookie.proto import v3
from bookie.runtime import frames
from bookie.runtime.interfaces import Tls, context_of

_log = logging.getLogger(__name__)

_BACKOFF_FIRST_S = 0.05
_BACKOFF_MAX_S = 2.0
_TOLD_EVERY_S = 60.0
START_TLS_TXN = 0
"""Of the one request that is not the caller's; their txnIds begin at 1."""


class Pending(NamedTuple):
    """A request under way."""

    deadline: float
    """On the loop's clock."""
    sent_at: float
    operation: v3.Operation
    on_answer: Callable[[BookieId, Any], None]
    """Called with the parsed response, or with a Status that came instead of one."""


class Owner(Protocol):
    """What a connection needs of the Channels that it belongs to."""

    def address_of(self, bookie: BookieId) -> tuple[str, int] | None: ...

    def flush_later(self, connection: "BookieConnection") -> None:
        """Call connection.flush() once, later in this turn of the loop."""
        ...

    def began(self, thing: object) -> None:
        """Take note of a socket, or of an attempt to make one, that is there until ended()."""
        ...

    def ended(self, thing: object) -> None: ...


class _Link(asyncio.Protocol):
    """One attempt to connect, and the connection that it led to.

    What an old one still has to say, such as its end, does not touch its successor.
    """

    def __init__(self, connection: "BookieConnection") -> None:
        self._connection = connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connection.owner.began(self)
        # Not asserted: uvloop's transports are no instances of asyncio's class.
        self._connection.on_made(self, cast(asyncio.Transport, transport))

    def data_received(self, data: bytes) -> None:
        if self._connection.link is self:
            self._connection.on_data(data)

    def pause_writing(self) -> None:
        if self._connection.link is self:
            self._connection.on_writing(is_paused=True)

    def resume_writing(self) -> None:
        if self._connection.link is self:
            self._connection.on_writing(is_paused=False)

    def eof_received(self) -> None:
        """End it: a bookie that sends no more takes no more, so nothing unsent is waited for."""
        if self._connection.link is self:
            self._connection.on_lost()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.owner.ended(self)
        if self._connection.link is self:
            self._connection.on_lost(exc)


class BookieConnection:
    """See the module."""

    def __init__(
        self,
        bookie: BookieId,
        owner: Owner,
        config: ClientConfig,
        loop: asyncio.AbstractEventLoop,
        tls: Tls | None,
    ) -> None:
        self.bookie = bookie
        self.owner = owner
        self._config = config
        self._loop = loop
        self._tls = tls
        # A dict keeps its order: requests of one time-out expire from the front.
        self.adds: dict[int, Pending] = {}
        self.reads: dict[int, Pending] = {}
        self.polls: dict[int, Pending] = {}
        self.address: tuple[str, int] | None = None
        self.link: _Link | None = None
        """The present one; others have nothing to say."""
        self.break_count = 0
        """How often a connection ended, or the attempt to make one."""
        self._transport: asyncio.Transport | None = None
        self._is_ready = False
        self._is_answered = False
        """Something came since it was ready."""
        self._is_paused = False
        self._is_closed = False
        self._tls_problem = ""
        """Why TLS failed, as the log was told then."""
        self._tls_problem_at = 0.0
        self._connecting: asyncio.Task[None] | None = None
        self._connect_timer: asyncio.TimerHandle | None = None
        self._out: list[bytes] = []
        self._out_byte_count = 0
        self._splitter = frames.FrameSplitter(config.frame_bytes_max)
        self._last_data_at = 0.0
        self._backoff_s = 0.0
        self._retry_at = 0.0

    @property
    def request_count(self) -> int:
        return len(self.adds) + len(self.reads) + len(self.polls)

    # --- requests ---------------------------------------------------------------------------------

    def request(
        self, table: dict[int, Pending], txn_id: int, pending: Pending, frame: bytes
    ) -> None:
        """Send `frame`; the answer, or what came instead, goes to pending.on_answer."""
        refusal = self._refusal(len(frame))
        if refusal is not None:
            self._loop.call_soon(pending.on_answer, self.bookie, refusal)
            return
        table[txn_id] = pending
        out = self._out
        if not out:
            self.owner.flush_later(self)
        out.append(frame)
        self._out_byte_count += len(frame)

    def _refusal(self, byte_count: int) -> Status | None:
        if self._is_closed:
            return Status.CLIENT_CLOSED
        transport = self._transport
        waiting_byte_count = self._out_byte_count + byte_count
        if transport is None:
            if self._connecting is None and not self._connect():
                return Status.UNAVAILABLE
        elif self._is_paused:
            waiting_byte_count += transport.get_write_buffer_size()
        config = self._config
        is_full = (
            waiting_byte_count > config.channel_bytes_max
            or len(self.adds) + len(self.reads) >= config.channel_requests_max
            or len(self.polls) >= config.channel_requests_max
        )
        return Status.TOO_MANY_REQUESTS if is_full else None

    def flush(self) -> None:
        """Hand what was written in this turn of the loop to the transport in one piece."""
        if not self._is_ready or self._is_paused or not self._out:
            return
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        out, self._out, self._out_byte_count = self._out, [], 0
        if len(out) == 1:
            transport.write(out[0])
        else:
            transport.writelines(out)

    # --- connecting -------------------------------------------------------------------------------

    def _connect(self) -> bool:
        """Begin to connect; False when that is known to be in vain now."""
        address = self.owner.address_of(self.bookie)
        if address is None:
            return False
        if self._loop.time() < self._retry_at and address == self.address:
            return False
        self.address = address
        self._attempt(self._open(address))
        return True

    def _attempt(self, attempt: Coroutine[Any, Any, None]) -> None:
        """Run one attempt, to connect or to secure the connection, within its time."""
        task = self._connecting = self._loop.create_task(attempt)
        self._connect_timer = self._loop.call_later(self._config.connect_timeout_s, task.cancel)
        self.owner.began(task)
        task.add_done_callback(self._on_connecting_done)

    async def _open(self, address: tuple[str, int]) -> None:
        host, port = address
        self.link = link = _Link(self)
        await self._loop.create_connection(lambda: link, host, port)

    def _on_connecting_done(self, task: asyncio.Task[None]) -> None:
        self.owner.ended(task)
        if task is not self._connecting:
            if not task.cancelled():
                task.exception()
            return
        self._connecting = None
        self._stop_connect_timer()
        error = None if task.cancelled() else task.exception()
        if isinstance(error, ssl.SSLError):
            self._break_tls(str(error))
        elif task.cancelled() or error is not None:
            self._break()
        elif self._transport is not None and not self._is_ready:
            self._begin_tls()

    def _stop_connect_timer(self) -> None:
        if self._connect_timer is not None:
            self._connect_timer.cancel()
            self._connect_timer = None

    def on_made(self, link: _Link, transport: asyncio.Transport) -> None:
        if self.link is not link:
            transport.abort()
            return
        self._transport = transport
        self._last_data_at = self._loop.time()
        transport.set_write_buffer_limits(high=self._config.channel_bytes_max // 4)
        if self._tls is None:
            self._become_ready()

    def _become_ready(self) -> None:
        self._is_ready = True
        self._is_answered = False
        self._backoff_s = 0.0
        self._retry_at = 0.0
        self.flush()

    def _begin_tls(self) -> None:
        """Ask for TLS in clear; what the callers wrote waits for the end of the handshake."""
        if self._tls is None or self._transport is None:
            return
        frame = v3.encode_start_tls_request(START_TLS_TXN)
        now = self._loop.time()
        deadline = now + self._config.connect_timeout_s
        # Its time is not the reads', which are up in the order of sending.
        self.polls[START_TLS_TXN] = Pending(
            deadline, now, v3.Operation.START_TLS, self._on_start_tls_answer
        )
        self._transport.write(frame)

    def _on_start_tls_answer(self, _: BookieId, answer: Any) -> None:
        if isinstance(answer, Status) or self._transport is None:
            self._break()
        elif answer.status != Status.OK:
            self._break_tls(f"it refused START_TLS ({answer.status!r}): it has no certificate")
        elif self._splitter.buffered_byte_count:
            self._break_tls("bytes in clear came behind its answer to START_TLS")
        else:
            self._attempt(self._shake_hands(self._transport))

    def _break_tls(self, reason: str) -> None:
        """Break a connection that cannot be secured; say why, each reason once a minute."""
        now = self._loop.time()
        if reason != self._tls_problem or now >= self._tls_problem_at + _TOLD_EVERY_S:
            self._tls_problem, self._tls_problem_at = reason, now
            _log.warning(
                "no TLS with bookie %s at %s: %s; nothing is sent to it in clear",
                self.bookie,
                self.address,
                reason,
            )
        self._break()

    async def _shake_hands(self, transport: asyncio.Transport) -> None:
        assert self._tls is not None
        assert self.address is not None
        assert self.link is not None
        context = context_of(self._tls)
        host = self.address[0] if context.check_hostname else None
        link = self.link
        try:
            secured = await self._loop.start_tls(transport, link, context, server_hostname=host)
        except BaseException:
            self.owner.ended(link)  # of a handshake that failed it is not told
            raise
        if secured is None or self._transport is not transport:
            (secured or transport).abort()
            return
        self._transport = secured
        secured.set_write_buffer_limits(high=self._config.channel_bytes_max // 4)
        self._become_ready()

    # --- answers ----------------------------------------------------------------------------------

    def on_data(self, data: bytes) -> None:
        self._last_data_at = self._loop.time()
        try:
            parsed = [v3.parse_response(frame) for frame in self._splitter.feed(data)]
        except BookieError:
            self._break()
            return
        if not self._is_ready and self._tls is not None:
            self._on_clear(parsed)
            return
        self._is_answered = True
        for response in parsed:
            self._on_response(response)

    def _on_clear(self, parsed: list[v3.Response]) -> None:
        """Take what came before TLS: the answer to START_TLS and nothing else.

        Whoever is in between could answer in clear what waits for TLS; the ids can be guessed.
        """
        is_asked = START_TLS_TXN in self.polls
        if not parsed and is_asked:
            return
        first = parsed[0] if len(parsed) == 1 else None
        is_answer = first is not None and first.operation == v3.Operation.START_TLS
        if first is None or not is_asked or not is_answer or first.txn_id != START_TLS_TXN:
            self._break_tls("it sent in clear what was to come by TLS")
            return
        self._on_response(first)

    def _on_response(self, response: v3.Response) -> None:
        txn_id = response.txn_id
        for table in (self.adds, self.reads, self.polls):
            pending = table.get(txn_id)
            if pending is not None:
                if pending.operation == response.operation:
                    del table[txn_id]
                    pending.on_answer(self.bookie, response)
                return

    def on_writing(self, *, is_paused: bool) -> None:
        self._is_paused = is_paused
        self.flush()

    # --- silence and the end ----------------------------------------------------------------------

    def expire(self, now: float) -> None:
        """Answer TIMED_OUT where the time is up; give up a connection that is silent for long."""
        expired: list[Pending] = []
        for table in (self.adds, self.reads):
            while table:
                txn_id = next(iter(table))
                if table[txn_id].deadline > now:
                    break
                expired.append(table.pop(txn_id))
        late_ids = [txn_id for txn_id, pending in self.polls.items() if pending.deadline <= now]
        expired += [self.polls.pop(txn_id) for txn_id in late_ids]
        if not expired:
            return
        # A peer that vanished without a word leaves a connection that only TCP's own patience
        # would end: one that has said nothing since a silent request was sent is replaced.
        is_dead = self._last_data_at < max(pending.sent_at for pending in expired)
        for pending in expired:
            pending.on_answer(self.bookie, Status.TIMED_OUT)
        if is_dead and self._is_ready:
            self._break()

    def on_lost(self, error: Exception | None = None) -> None:
        if self._transport is None:
            return
        if isinstance(error, ssl.SSLError):
            self._break_tls(str(error))
        elif self._tls is not None and self._is_ready and not self._is_answered:
            # With TLS 1.3 a client is through before its certificate is looked at.
            self._break_tls(
                "it ended the connection behind the handshake: it most likely takes no "
                "certificate of this client's authority, or was shown none"
            )
        else:
            self._break()

    def retire(self) -> None:
        """Break the connection: the bookie has moved."""
        if self._transport is not None or self._connecting is not None:
            self._break()
        self._retry_at = 0.0

    def _break(self) -> None:
        """Forget the connection and answer everything UNAVAILABLE; the next use connects again."""
        self._backoff_s = min(max(self._backoff_s * 2, _BACKOFF_FIRST_S), _BACKOFF_MAX_S)
        self._retry_at = self._loop.time() + self._backoff_s
        self._drop()
        self._answer_all(Status.UNAVAILABLE)

    def _drop(self) -> None:
        self.break_count += 1
        self.link = None
        transport, self._transport = self._transport, None
        connecting, self._connecting = self._connecting, None
        self._is_ready = self._is_paused = False
        self._out, self._out_byte_count = [], 0
        self._splitter = frames.FrameSplitter(self._config.frame_bytes_max)
        self._stop_connect_timer()
        if connecting is not None:
            connecting.cancel()
        if transport is not None:
            transport.abort()

    def _answer_all(self, status: Status) -> None:
        tables = (self.adds, self.reads, self.polls)
        answered = [pending for table in tables for pending in table.values()]
        for table in tables:
            table.clear()
        for pending in answered:
            pending.on_answer(self.bookie, status)

    def close(self) -> None:
        """Answer everything CLIENT_CLOSED, now and from here on; idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._drop()
        self._answer_all(Status.CLIENT_CLOSED)
