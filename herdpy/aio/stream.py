"""LoopStream: a connection to a server for functions that run in switched(), on asyncio.

As bookie/runtime/os_stream.py: BlockingStream, and with TLS as bookie/runtime/os_tls/stream.py.
send() and receive() wait inside switched() only; elsewhere send() leaves what does not go at once
to the loop, and receive() is an OSError. One loop's thread, but for abandon().
"""

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, cast

from bookie.runtime.interfaces import Rng
from bookie.runtime.os_backoff import Backoff
from bookie.runtime.os_sockets import QUICK, USUAL, keep_alive
from bookie.runtime.ticket import Ticket
from herdpy.aio.switching import can_wait, wait_for, wait_for_ticket

if TYPE_CHECKING:
    from herdpy.driver.dsn import RemoteTarget
    from herdpy.driver.interfaces import Locators

_WAITING_BYTES_MAX = 1024 * 1024
"""Nothing more is read while so much was not taken."""
_END_S = 1.0


class LoopWaits:
    """What a connection waits with in a task of the running loop, whose time it has."""

    def __init__(self, rng: Rng | None = None, locators: "Locators | None" = None) -> None:
        """Rng spreads the pauses; None: the system's, and the process's Locators."""
        self.rng = rng
        self._locators = locators
        self._loop = asyncio.get_running_loop()

    @property
    def locators(self) -> "Locators":
        if self._locators is None:
            from herdpy.driver.remote.locators import locators_of_process

            return locators_of_process()
        return self._locators

    def monotonic(self) -> float:
        return self._loop.time()

    def open_stream(self, target: "RemoteTarget") -> "LoopStream":
        if not target.has_tls:
            return LoopStream(target)
        from herdpy.driver.remote.tls import client_context, tls_errors

        context = client_context(target)
        with tls_errors(target):
            return LoopStream(target, context)

    def new_pauses(self, budget_s: float) -> "_LoopPauses":
        return _LoopPauses(Backoff(budget_s, monotonic=self.monotonic, rng=self.rng))

    def wait(self, ticket: Ticket[Any], deadline: float) -> bool:
        return wait_for_ticket(ticket, deadline)


class _LoopPauses:
    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self.next_pause_s = backoff.next_pause_s

    @property
    def left_s(self) -> float:
        return self._backoff.left_s

    def wait(self) -> bool:
        pause_s = self._backoff.next_pause_s()
        if pause_s is None:
            return False
        wait_for(asyncio.sleep(pause_s))
        return True


class LoopStream(asyncio.Protocol):
    def __init__(self, target: "RemoteTarget", context: ssl.SSLContext | None = None) -> None:
        """Connect; OSError (TimeoutError), ssl.SSLError among them."""
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._timeout_s: float | None = target.connect_timeout_s
        self._keep = QUICK if target.is_node else USUAL
        self._received: deque[bytes] = deque()
        self._received_bytes = 0
        self._is_paused = False  # reading
        self._is_full = False  # what is to be sent
        self._is_over = False
        self._failure: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        connecting = self._loop.create_connection(
            lambda: self,
            target.host,
            target.port,
            ssl=context,
            server_hostname=None if context is None else target.tls_name,
        )
        try:
            wait_for(_within(connecting, target.connect_timeout_s))
        except BaseException:
            self.end()
            raise

    @property
    def peer_certificate(self) -> bytes | None:
        """The peer's certificate, as DER; None without TLS."""
        tls = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        return None if tls is None else cast(ssl.SSLObject, tls).getpeercert(binary_form=True)

    # --- the loop's calls ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        keep_alive(transport, self._keep)

    def data_received(self, data: bytes) -> None:
        self._received.append(data)
        self._received_bytes += len(data)
        if self._received_bytes >= _WAITING_BYTES_MAX and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_over = True
        self._failure = self._failure or exc
        self._wake()

    # --- the driver's ----------------------------------------------------------------------------

    def set_timeout(self, timeout_s: float | None) -> None:
        """Let receive() raise TimeoutError after so long; None: never. It may be called again."""
        self._timeout_s = timeout_s

    def send(self, data: bytes) -> None:
        """Send all of it; OSError."""
        if self._is_over or self._transport is None or self._transport.is_closing():
            raise self._error()
        self._transport.write(data)
        while self._is_full and not self._is_over and can_wait():
            self._wait(None)

    def receive(self) -> bytes:
        """Wait for bytes and return them; b"" at the end; OSError."""
        while not self._received:
            if self._is_over:
                if self._failure is not None:
                    raise self._error()
                return b""
            self._wait(self._timeout_s)
        data = self._received.popleft()
        self._received_bytes -= len(data)
        if self._is_paused and self._received_bytes < _WAITING_BYTES_MAX and not self._is_over:
            self._is_paused = False
            assert self._transport is not None
            self._transport.resume_reading()
        return data

    def close(self) -> None:
        """Leave the connection to the parent of a forked process; repeatable."""
        # Its descriptor stays: to close it through the loop would tell the parent's selector.

    def end(self) -> None:
        """End the connection; repeatable. Inside switched(), wait until its socket is closed."""
        transport = self._transport
        if transport is None or self._loop.is_closed():
            return
        self._shut_down()
        transport.abort()
        try:
            while not self._is_over and can_wait():
                self._wait(_END_S)
        except OSError:
            pass  # the loop closes it soon

    def abandon(self) -> None:
        """End the connection, at any line of any thread."""
        try:
            self._loop.call_soon_threadsafe(self.end)
        except RuntimeError:
            pass  # the loop is closed, and with it the connection

    def _shut_down(self) -> None:
        """Tell the peer, also when a forked child still has the descriptor."""
        transport = self._transport
        found = None if transport is None else transport.get_extra_info("socket")
        try:
            if found is not None:
                cast(socket.socket, found).shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the peer was faster

    def _wait(self, timeout_s: float | None) -> None:
        """Wait until something happens; TimeoutError."""
        waiter = self._waiter = self._loop.create_future()
        timer = None
        if timeout_s is not None:
            timer = self._loop.call_later(timeout_s, _time_out, waiter)
        try:
            wait_for(waiter)
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _error(self) -> OSError:
        if isinstance(self._failure, OSError):
            return self._failure
        if self._failure is not None:
            return ConnectionError(str(self._failure))
        return ConnectionError("the connection is closed")


def _time_out(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError("timed out"))


async def _within(connecting: Awaitable[object], timeout_s: float) -> None:
    # Not wait_for(), which up to 3.11 forgets a cancellation that comes with the connection.
    try:
        async with asyncio.timeout(timeout_s):
            await connecting
    except TimeoutError:
        raise TimeoutError("timed out") from None
