"""LongPoll: a read that waits for news of a ledger's LAC.

Rules (docs/protocols/bookie_server.md): a READ_ENTRY with previousLAC that does not fence. With
timeOut it waits until the LAC exceeds previousLAC, the ledger is fenced or closed, or the time is
over; then it reads. With ENTRY_PIGGYBACK the answer carries the LAC and, when that has moved and
this bookie has it, entry previousLAC + 1; whether or not it has, the answer is OK. An unknown
ledger is answered at once, and so is anything while the server closes. Everything happens on the
server's loop.
"""

import asyncio
from typing import TYPE_CHECKING

from bookie.ledger.types import Status
from bookie.proto import v3
from bookie.server.interfaces import BytesLike

if TYPE_CHECKING:
    from bookie.server.wire.connection import Connection
    from bookie.server.wire.dispatch_v3 import DispatcherV3
    from bookie.server.wire.hub import Hub


class LongPoll:
    """One request that was begun. It ends with one answer, or with forget()."""

    __slots__ = (
        "_connection",
        "_dispatcher",
        "_hub",
        "_is_done",
        "_lac_update_ms",
        "_previous_lac",
        "_request",
        "_started",
        "_timer",
        "_token",
    )

    def __init__(
        self,
        dispatcher: "DispatcherV3",
        hub: "Hub",
        connection: "Connection",
        request: v3.ReadRequest,
    ) -> None:
        assert request.previous_lac is not None
        self._dispatcher = dispatcher
        self._hub = hub
        self._connection = connection
        self._request = request
        self._previous_lac = request.previous_lac
        self._started = connection.now
        self._timer: asyncio.TimerHandle | None = None
        self._token: object | None = None
        self._lac_update_ms: int | None = None
        self._is_done = False
        """The wait is over."""

    def begin(self) -> None:
        request = self._request
        if request.is_piggyback and request.entry_id != v3.LAST_ENTRY:
            self._finish(Status.BAD_REQUEST)
            return
        lac = self._hub.service.last_add_confirmed(request.ledger_id)
        if lac is None:
            self._finish(Status.NO_LEDGER)
            return
        wait_ms = request.wait_ms or 0
        if wait_ms <= 0 or lac > self._previous_lac or self._hub.is_closing:
            self._is_done = True
            self._read()
            return
        self._connection.polls[self] = None
        token = self._hub.service.watch_lac(request.ledger_id, self._previous_lac, self._woken)
        if self._is_done:
            return  # it was called back from within
        self._token = token
        wait_s = min(wait_ms / 1000, self._hub.config.long_poll_s_max)
        self._timer = self._hub.loop.call_later(wait_s, self._timed_out)

    def forget(self) -> None:
        """Stop waiting, since the peer is gone; send no answer."""
        if self._end_wait():
            self._connection.finish()

    def _woken(self) -> None:
        self._token = None  # it was good for one call
        if self._end_wait():
            self._lac_update_ms = self._hub.clock.wall_us() // 1000
            self._hub.metrics.long_poll_wait.observe(Status.OK, self._waited_s())
            self._read()

    def _timed_out(self) -> None:
        if self._end_wait():
            self._hub.metrics.long_poll_wait.observe(Status.TIMED_OUT, self._waited_s())
            self._read()

    def _end_wait(self) -> bool:
        if self._is_done:
            return False
        self._is_done = True
        self._connection.polls.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
        if self._token is not None:
            self._hub.service.forget_watch(self._token)
        return True

    def _waited_s(self) -> float:
        return self._hub.clock.monotonic() - self._started

    def _read(self) -> None:
        """Answer with what is known now."""
        request = self._request
        service = self._hub.service
        entry_id = request.entry_id
        if request.is_piggyback:
            lac = service.last_add_confirmed(request.ledger_id)
            if lac is None:
                self._finish(Status.NO_LEDGER)
                return
            if lac <= self._previous_lac:
                self._finish(Status.OK, max_lac=lac)
                return
            entry_id = self._previous_lac + 1
        try:
            service.read(request.ledger_id, entry_id, self._answer)
        except Exception:  # noqa: BLE001 - a poll that breaks must not break its waker
            self._dispatcher.broken(self._connection, request)

    def _answer(self, status: Status, body: BytesLike) -> None:
        request = self._request
        lac = self._hub.service.last_add_confirmed(request.ledger_id)
        if status is Status.OK:
            entry_id = self._previous_lac + 1 if request.is_piggyback else None
            self._finish(status, entry_id=entry_id, body=body, max_lac=lac)
        elif status is Status.NO_ENTRY and request.is_piggyback:
            # The entry may lie on other bookies of the ensemble: the LAC alone is news.
            self._finish(Status.OK, max_lac=lac)
        else:
            self._finish(status)

    def _finish(
        self,
        status: Status,
        *,
        entry_id: int | None = None,
        body: BytesLike | None = None,
        max_lac: int | None = None,
    ) -> None:
        self._is_done = True
        lac_update_ms = self._lac_update_ms
        if max_lac is None or max_lac <= self._previous_lac:
            lac_update_ms = None
        status = self._dispatcher.answer_read(
            self._connection,
            self._request,
            status,
            entry_id=entry_id,
            body=body,
            max_lac=max_lac,
            lac_update_ms=lac_update_ms,
        )
        self._hub.metrics.long_poll.observe(status, self._waited_s())
