"""Connection: one peer of the bookie, from its bytes to requests and from answers to its bytes.

Contract: memory for a peer grows only as bytes really arrive. The first message of a peer may pass
1 MiB only when its header has been recognised as an add (there is no handshake in this protocol);
any further one may be frame_bytes_max long, as Apache BookKeeper's. Answers of one turn of the loop
are sent by one write. A peer that does not take its answers is not read from meanwhile. A message
that cannot be read closes the connection (Apache BookKeeper: BookieRequestHandler.exceptionCaught),
and so does a message, or a taking of answers, without progress for frame_timeout_s. A first message
has first_message_timeout_s, and who says no more, and has no request under way, idle_timeout_s.

The version is chosen by the peer: v3 until a message does not parse as v3; from then on v2
(docs/formats/wire_v3.md). Everything happens on the server's loop.
"""

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, cast

from bookie.errors import FrameTooLargeError, MalformedFrameError
from bookie.peer_shares import origin_of
from bookie.proto import v2
from bookie.runtime.frames import FrameSplitter
from bookie.runtime.interfaces import context_of
from bookie.runtime.os_sockets import keep_alive
from bookie.server.wire.client_access import CertificateNames, Grant
from bookie.server.wire.message_header import HEADER_BYTES_MAX, is_add_header

if TYPE_CHECKING:
    from bookie.server.wire.dispatch_v2 import DispatcherV2
    from bookie.server.wire.dispatch_v3 import DispatcherV3
    from bookie.server.wire.hub import Hub
    from bookie.server.wire.long_poll import LongPoll

_log = logging.getLogger(__name__)

PREAUTH_BYTES_MAX = 1 << 20
"""Of the first message of a peer unless its header is that of an add, and of every message in clear
where TLS is required."""
TURN_BYTES_MAX = 256 * 1024
"""Of answers that are collected before they are written and the loop goes on with others."""
WRITE_HIGH_WATER = 256 * 1024
"""Of unsent bytes from which on requests of the peer wait."""
FIRST_PIECE_BYTES = 8192
_VIEW_BYTES = 200


class Connection(asyncio.Protocol):
    """See the module. Dispatchers call begin(), then finish() with the answer, or send()."""

    __slots__ = (
        "_dispatch_v2",
        "_dispatch_v3",
        "_first",
        "_frame_count",
        "_frames",
        "_gathered",
        "_has_spoken",
        "_held_receive",
        "_held_response",
        "_hub",
        "_idle_timer",
        "_is_flush_due",
        "_is_open",
        "_is_reading_paused",
        "_is_refused",
        "_is_turn_due",
        "_is_upgrading",
        "_is_v2",
        "_is_writing_paused",
        "_lost",
        "_names",
        "_out",
        "_out_bytes",
        "_progress_mark",
        "_requests",
        "_splitter",
        "_timer",
        "_tls_timer",
        "_transport",
        "_upgrade",
        "_written_mark",
        "grant",
        "is_restricted",
        "now",
        "origin",
        "peer",
        "polls",
    )

    def __init__(self, hub: "Hub", v3: "DispatcherV3", v2_dispatch: "DispatcherV2") -> None:
        self._hub = hub
        self._dispatch_v3 = v3
        self._dispatch_v2 = v2_dispatch
        self.is_restricted = hub.is_tls_required
        """Requests are refused by refuse_unauthorized(), but for START_TLS, and those that `grant`
        allows."""
        self.grant = Grant.NONE if self.is_restricted else Grant.WRITE
        self._names: CertificateNames | None = None
        """Of the certificate that the peer showed, where rights depend on it."""
        frame_bytes_max = hub.config.frame_bytes_max
        if self.is_restricted:
            frame_bytes_max = min(frame_bytes_max, PREAUTH_BYTES_MAX)
        self._splitter = FrameSplitter(frame_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._lost: asyncio.Future[None] | None = None
        self._is_open = False
        self._is_v2 = False
        self._first: bytes | None = b""
        """Bytes of the first message until its header was checked; then None."""
        self._frames: deque[memoryview] = deque()
        """Whole messages that wait until the peer takes answers."""
        self._frame_count = 0
        self._out: list[bytes | bytearray | memoryview] = []
        self._out_bytes = 0
        self._requests = 0
        self._is_flush_due = False
        self._is_turn_due = False
        self._is_reading_paused = False
        self._is_refused = False
        self._is_writing_paused = False
        self._is_upgrading = False
        self._upgrade: asyncio.Task[None] | None = None
        self._held_receive = 0
        self._held_response = 0
        self._gathered = 0
        """Bytes of answers that are put together of many parts."""
        self._timer: asyncio.TimerHandle | None = None
        self._tls_timer: asyncio.TimerHandle | None = None
        """Ends a peer that does not begin TLS where it is required."""
        self._progress_mark = 0
        self._written_mark = 0
        self.now = 0.0
        """When the bytes came that are being dispatched, by the clock (uvloop counts in ms)."""
        self.peer = ""
        self.origin = ""
        """What its address counts as, see peer_shares.py."""
        self._has_spoken = False  # its first message has come
        self._idle_timer: asyncio.TimerHandle | None = None
        self.polls: dict[LongPoll, None] = {}
        """Long polls that wait, in the order in which they came."""

    # --- what the loop calls ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        hub = self._hub
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.peer = str(peer)
        self.origin = origin_of(str(peer[0]) if isinstance(peer, tuple) else self.peer)
        self.now = hub.clock.monotonic()
        if hub.is_closing or not hub.admission.admit(self, self.now):
            hub.metrics.connections_refused += 1
            self._transport.abort()
            return
        self._is_open = True
        self._lost = hub.loop.create_future()
        first_s = hub.config.first_message_timeout_s
        self._idle_timer = hub.loop.call_later(first_s, self._check_idle)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER)
        keep_alive(transport)
        if self.is_restricted:
            timeout_s = hub.config.start_tls_timeout_s
            self._tls_timer = hub.loop.call_later(timeout_s, self._close_without_tls)

    def data_received(self, data: bytes) -> None:
        if not self._frame_count and len(data) > FIRST_PIECE_BYTES:
            # Many small messages must not all be cut out before the first one was looked at.
            self._take(data[:FIRST_PIECE_BYTES])
            data = data[FIRST_PIECE_BYTES:]
            if self._is_upgrading:
                self.close_malformed("bytes in clear behind START_TLS")
        self._take(data)

    def _take(self, data: bytes) -> None:
        if not self._is_open:
            return
        self.now = self._hub.clock.monotonic()
        if self._first is not None:
            checked = self._check_first_message(data)
            if checked is None:
                return
            data = checked
        try:
            frames = self._splitter.feed(data)
        except FrameTooLargeError as error:
            self.close_malformed(str(error))
            return
        if frames:
            if not self._has_spoken and self._tls_timer is None:
                self._has_spoken = True
                self._hub.admission.heard(self)
            self._frame_count += len(frames)
            self._frames.extend(frames)
            if not self._is_upgrading:
                self._dispatch()
        held = self._splitter.buffered_byte_count
        if self._frames:  # they wait, and with them the bytes that they are views of
            held += len(data) + len(self._frames) * _VIEW_BYTES
        if held != self._held_receive:
            self._hold_receive(held)

    def eof_received(self) -> bool:
        """Close also this side: a peer that sends no more takes no answers either."""
        return False

    def pause_writing(self) -> None:
        self._is_writing_paused = True
        transport = self._transport
        assert transport is not None
        self._hold_response(transport.get_write_buffer_size())
        self._watch_progress()

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        self._hold_response(0)
        if self._out:
            self._schedule_flush()
        self._dispatch_later()

    def connection_lost(self, exc: Exception | None) -> None:
        hub = self._hub
        if self._lost is None or self._lost.done():
            return  # was refused, or ended during a handshake already
        self._is_open = False
        hub.admission.leave(self)
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._frames.clear()
        self._out.clear()
        self._out_bytes = 0
        self._hold_receive(0)
        self._hold_response(0)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._stop_tls_timer()
        self.forget_polls()
        if self._is_upgrading and self._upgrade is not None:
            # uvloop ends no handshake, by its time-out neither, of what was lost before it began.
            self._upgrade.cancel()
        self._lost.set_result(None)

    # --- what dispatchers call --------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._is_open

    @property
    def held_byte_count(self) -> int:
        """Bytes kept of a message that has not come whole."""
        return len(self._first or b"") + self._splitter.buffered_byte_count

    @property
    def requests(self) -> int:
        """Requests under way."""
        return self._requests

    def begin(self) -> bool:
        """Count a request as under way; False: refuse it with TOO_MANY_REQUESTS."""
        hub = self._hub
        config = hub.config
        limit = None
        if self._requests >= config.requests_per_connection_max:
            limit = "requests_per_connection_max"
        elif hub.requests >= config.requests_max:
            limit = "requests_max"
        if limit is not None:
            hub.metrics.requests_refused += 1
            hub.metrics.refused[limit] += 1
            return False
        self._requests += 1
        hub.requests += 1
        return True

    def finish(self, *parts: bytes | bytearray | memoryview) -> None:
        """Answer a request that begin() counted; the parts make one message."""
        hub = self._hub
        self._requests -= 1
        hub.requests -= 1
        if self._is_open:
            self.send(*parts)
        if hub.is_closing and not hub.requests:
            hub.idle.set()

    def send(self, *parts: bytes | bytearray | memoryview) -> None:
        """Send one message at the end of this turn of the loop."""
        if not self._is_open:
            return
        for part in parts:
            self._out.append(part)
            self._out_bytes += len(part)
        if not self._is_flush_due:
            self._schedule_flush()

    def gather(self, byte_count: int) -> None:
        """Count a part of an answer that has_room(), until the whole is sent; then negative."""
        self._gathered += byte_count
        self._hub.response_bytes += byte_count

    def has_room(self, byte_count: int) -> bool:
        """Say whether an answer of this size may wait here; else answer TOO_MANY_REQUESTS."""
        hub = self._hub
        waiting = self._out_bytes + self._held_response + self._gathered + byte_count
        if waiting <= WRITE_HIGH_WATER:
            return True
        config = hub.config
        limit = None
        if waiting > config.response_bytes_max:
            limit = "response_bytes_max"
        elif hub.response_bytes + self._out_bytes + byte_count > config.response_bytes_total_max:
            limit = "response_bytes_total_max"
        if limit is not None:
            hub.metrics.requests_refused += 1
            hub.metrics.refused[limit] += 1
            return False
        return True

    def close_malformed(self, reason: str) -> None:
        """Close because of what the peer sent; answers under way are not sent any more."""
        self._hub.metrics.frames_malformed += 1
        _log.info("closed the connection of %s: %s", self.peer, reason)
        self._abort()

    def refuse_unauthorized(self, answer: bytes) -> None:
        """Answer a request that came in clear where TLS is required, or without the right to it."""
        if not self._is_refused:
            self._is_refused = True
            _log.warning("refuses requests of %s (EUA): %s", self.peer, self._restriction())
        self._hub.metrics.requests_unauthorized += 1
        self.send(answer)

    def _restriction(self) -> str:
        if self._names is None:
            return "they came in clear, TLS is required"
        if self.grant is Grant.READ:
            return f"its certificate ({self._names}) gives the right to read, not to write"
        return (
            f"its certificate ({self._names}) gives no right; a line of --tls-access, or a role of "
            "--authorized-roles, would"
        )

    def take_grant(self) -> None:
        """Let the peer do what its certificate gives now; the rules may have changed."""
        access = self._hub.access
        if access is None or self._names is None:
            return
        grant = access().grant_of(self._names)
        if grant is not self.grant:
            self._is_refused = False  # to be told anew
        self.grant = grant
        self.is_restricted = grant is not Grant.WRITE

    def start_tls(self, answer: bytes) -> None:
        """Send the answer in clear, then go on with TLS on the same socket."""
        transport = self._transport
        assert transport is not None
        if self._upgrade is not None:  # each layer would keep buffers of its own
            self.close_malformed("START_TLS inside TLS")
            return
        if self._frames or self._splitter.buffered_byte_count or self._requests:
            self.close_malformed("START_TLS with other messages under way")
            return
        self._out.append(answer)
        self._out_bytes += len(answer)
        self._flush()
        self._is_upgrading = True
        self._splitter = FrameSplitter(self._hub.config.frame_bytes_max)
        # What comes from here on is the handshake's. A client that ends it first may send requests
        # before start_tls() has returned here; bytes in clear make the handshake fail.
        transport.pause_reading()
        self._upgrade = self._hub.loop.create_task(self._start_tls(transport))

    def forget_polls(self) -> None:
        """Answer no long poll that waits."""
        for poll in list(self.polls):
            poll.forget()
        self.polls.clear()

    # --- closing ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Send what was answered, then close."""
        if self._is_open and self._transport is not None:
            self._flush()
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._abort()

    def give_way(self) -> None:
        """Close at once for a newer connection."""
        hub = self._hub
        hub.metrics.connections_refused += 1
        hub.admission.leave(self)
        _log.info("closed the connection of %s: others needed its place", self.peer)
        self._abort()

    def idle_s(self, now: float) -> float:
        """Return for how long nothing has come and nothing was under way."""
        is_busy = self._requests or self.polls or self._out or self._is_writing_paused
        return 0.0 if is_busy else now - self.now

    def _check_idle(self) -> None:
        """Close a peer that says nothing, or look again when it may be idle for long enough."""
        hub = self._hub
        timeout_s = hub.config.idle_timeout_s
        idle_s = self.idle_s(hub.clock.monotonic())
        if not self._has_spoken and self.held_byte_count:
            # It comes as long as _watch_progress() says so.
            self._idle_timer = hub.loop.call_later(hub.config.frame_timeout_s, self._check_idle)
            return
        if not self._has_spoken:
            hub.metrics.peers_too_slow += 1
            hub.metrics.refused["first_message_timeout_s"] += 1
            reason = "no message came in time"
        elif idle_s >= timeout_s:
            hub.metrics.refused["idle_timeout_s"] += 1
            reason = "it was idle"
        else:
            self._idle_timer = hub.loop.call_later(timeout_s - idle_s, self._check_idle)
            return
        _log.info("closed the connection of %s: %s", self.peer, reason)
        self._abort()

    async def wait_lost(self) -> None:
        """Wait until the connection has ended, TLS handshake included."""
        if self._lost is not None:
            await asyncio.shield(self._lost)
        if self._upgrade is not None:
            await asyncio.gather(self._upgrade, return_exceptions=True)

    def _abort(self) -> None:
        self._is_open = False
        self._frames.clear()
        if self._transport is not None:
            self._transport.abort()

    # --- receiving --------------------------------------------------------------------------------

    def _check_first_message(self, data: bytes) -> bytes | None:
        """Check the header of the first message; return the bytes to go on with, or None: wait."""
        assert self._first is not None
        data = self._first + data if self._first else data
        if len(data) < 4:
            self._first = data
            self._watch_progress()
            return None
        byte_count = int.from_bytes(data[:4], "big")
        if PREAUTH_BYTES_MAX < byte_count + 4 <= self._splitter.frame_bytes_max:
            if len(data) < HEADER_BYTES_MAX:
                self._first = data
                self._watch_progress()
                return None
            if not is_add_header(data[4:HEADER_BYTES_MAX]):
                self.close_malformed(
                    f"a first message of {byte_count} bytes: expected an add, or at most 1 MiB"
                )
                return None
        self._first = None
        return data

    def _dispatch(self) -> None:
        """Dispatch the messages that wait, as long as the peer takes answers."""
        frames = self._frames
        was_flush_due = self._is_flush_due
        self._is_flush_due = True  # one write at the end, unless one is scheduled already
        try:
            while frames:
                if self._is_writing_paused:
                    self._pause_reading()
                    break
                if self._out_bytes >= TURN_BYTES_MAX:
                    self._pause_reading()
                    self._dispatch_later()
                    break
                self._handle(frames.popleft())
                if not self._is_open or self._is_upgrading:
                    return
            else:
                if self._is_reading_paused:
                    self._hold_receive(self._splitter.buffered_byte_count)
                    self._resume_reading()
        finally:
            self._is_flush_due = was_flush_due
        if not was_flush_due or self._out_bytes >= TURN_BYTES_MAX:
            self._flush()

    def _handle(self, frame: memoryview) -> None:
        try:
            if not self._is_v2:
                try:
                    self._dispatch_v3.handle(self, frame)
                    return
                except MalformedFrameError:
                    if not v2.is_v2(frame):
                        raise
                    self._is_v2 = True
            self._dispatch_v2.handle(self, frame)
        except MalformedFrameError as error:
            self.close_malformed(str(error))

    def _dispatch_later(self) -> None:
        if not self._is_turn_due and self._frames:
            self._is_turn_due = True
            self._hub.loop.call_soon(self._dispatch_turn)

    def _dispatch_turn(self) -> None:
        self._is_turn_due = False
        if self._is_open and not self._is_upgrading:
            self.now = self._hub.clock.monotonic()
            self._dispatch()

    def _pause_reading(self) -> None:
        if not self._is_reading_paused:
            self._is_reading_paused = True
            assert self._transport is not None
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._is_open:
            self._is_reading_paused = False
            assert self._transport is not None
            self._transport.resume_reading()

    # --- sending ----------------------------------------------------------------------------------

    def _schedule_flush(self) -> None:
        self._is_flush_due = True
        self._hub.loop.call_soon(self._flush_turn)

    def _flush_turn(self) -> None:
        self._is_flush_due = False
        self._flush()

    def _flush(self) -> None:
        out = self._out
        transport = self._transport
        if not out or not self._is_open or transport is None:
            return
        self._out = []
        self._out_bytes = 0
        self._written_mark += 1
        if len(out) == 1:
            transport.write(out[0])
        else:
            transport.writelines(out)
        if self._is_writing_paused:
            self._hold_response(transport.get_write_buffer_size())

    async def _start_tls(self, transport: asyncio.Transport) -> None:
        hub = self._hub
        assert hub.tls is not None
        secured: asyncio.Transport | None = None
        try:
            if transport.is_closing():
                raise ConnectionResetError("the connection was lost before it began")
            secured = await hub.loop.start_tls(
                transport,
                self,
                context_of(hub.tls),
                server_side=True,
                ssl_handshake_timeout=hub.config.start_tls_timeout_s,
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, the connection ends
            _log.info("TLS with %s failed: %s", self.peer, error)
            hub.metrics.tls_failed += 1
        finally:
            self._is_upgrading = False
            if secured is None or secured.is_closing() or not self._is_open:
                # Not every kind of loop tells a protocol that its connection ended in a handshake.
                self._abort()
                self.connection_lost(None)
        if secured is None or not self._is_open:
            return
        self._stop_tls_timer()
        self._transport = secured
        self.is_restricted = False
        self.grant = Grant.WRITE
        if hub.access is not None:
            self._names = CertificateNames.of(secured.get_extra_info("peercert"))
            self.take_grant()
        self._dispatch_later()

    def _close_without_tls(self) -> None:
        self._tls_timer = None
        self._hub.metrics.tls_failed += 1
        _log.info(
            "closed the connection of %s: TLS is required, and was not there after %g s",
            self.peer,
            self._hub.config.start_tls_timeout_s,
        )
        self._abort()

    def _stop_tls_timer(self) -> None:
        if self._tls_timer is not None:
            self._tls_timer.cancel()
            self._tls_timer = None

    # --- limits -----------------------------------------------------------------------------------

    def _hold_receive(self, byte_count: int) -> None:
        hub = self._hub
        hub.receive_bytes += byte_count - self._held_receive
        self._held_receive = byte_count
        if not byte_count:
            return
        self._watch_progress()
        if hub.receive_bytes > hub.config.receive_bytes_total_max:
            hub.metrics.connections_refused += 1
            hub.metrics.refused["receive_bytes_total_max"] += 1
            _log.warning(
                "closed the connection of %s: messages that have not come whole take %d bytes, "
                "receive_bytes_total_max is %d",
                self.peer,
                hub.receive_bytes,
                hub.config.receive_bytes_total_max,
            )
            self._abort()

    def _hold_response(self, byte_count: int) -> None:
        self._hub.response_bytes += byte_count - self._held_response
        self._held_response = byte_count

    def _watch_progress(self) -> None:
        """Look again after frame_timeout_s whether the message ended or the answers were taken."""
        if self._timer is None and self._is_open:
            self._progress_mark = self._frame_count
            self._written_mark = 0
            timeout_s = self._hub.config.frame_timeout_s
            self._timer = self._hub.loop.call_later(timeout_s, self._check_progress)

    def _check_progress(self) -> None:
        self._timer = None
        if not self._is_open:
            return
        transport = self._transport
        assert transport is not None
        if self._is_writing_paused:
            left = transport.get_write_buffer_size()
            if left >= self._held_response and not self._written_mark:
                self._close_slow(f"took none of {left} bytes of answers")
                return
            self._hold_response(left)
            self._watch_progress()
        elif self._first or self._splitter.buffered_byte_count:
            if self._frame_count == self._progress_mark and not self._is_reading_paused:
                self._close_slow(f"a message of it did not end, {self._held_receive} bytes came")
                return
            self._watch_progress()

    def _close_slow(self, what: str) -> None:
        self._hub.metrics.peers_too_slow += 1
        _log.info(
            "closed the connection of %s: within %g s it %s",
            self.peer,
            self._hub.config.frame_timeout_s,
            what,
        )
        self._abort()
