"""StatementInterrupt: cancellation and the statement time-out of one running statement."""

from collections.abc import Callable

from bookie.runtime.interfaces import Clock
from bookie.runtime.ticket import Ticket
from herdpy.errors import QueryCanceledError

_AGAIN_S = 0.01
"""Until a stop is repeated: whom it is meant for may have missed it."""


class StatementInterrupt:
    """Implements exec.interfaces.Interrupt. cancel() by any thread, the rest by the statement's."""

    __slots__ = (
        "_by",
        "_callback",
        "_clock",
        "_is_cancelled",
        "_stop",
        "_timeout_s",
        "deadline",
        "on_late",
        "watch",
    )

    def __init__(self, clock: Clock, timeout_s: float) -> None:
        self._clock = clock
        self._timeout_s = timeout_s
        self.deadline = clock.monotonic() + timeout_s if timeout_s else None
        self._is_cancelled = False
        self._by = ""
        self._stop: Ticket[None] | None = None
        self._callback: Callable[[], object] | None = None
        self.watch: Callable[[StatementInterrupt], object] | None = None
        """Has stop_if_late() called when it is time; None where there are no threads."""

        self.on_late: Callable[[], object] | None = None
        """Called once when the statement ends for its time-out."""

    @property
    def stop(self) -> Ticket[None]:
        """Done when cancelled. Made on first use: few statements wait for anything."""
        stop = self._stop
        if stop is None:
            stop = self._stop = Ticket()
        if self._is_cancelled:  # after the store, as cancel() looks for the ticket after the flag
            stop.complete(None)
        return stop

    def cancel(self, by: str = "conn.cancel() or close()") -> None:
        """Ask the statement to stop at its next check or wait."""
        self._by = by
        self._is_cancelled = True
        stop = self._stop
        if stop is not None:
            stop.complete(None)
        callback = self._callback
        if callback is not None:
            callback()
            if self.watch is not None:
                self.watch(self)

    def stop_if_late(self, now_s: float) -> float | None:
        """Stop what on_cancel() has named, when cancelled or behind the deadline.

        Returns the moment to come again; None when nothing is named, or never to be stopped.
        """
        callback, deadline = self._callback, self.deadline
        if callback is None:
            return None
        if not self._is_cancelled and (deadline is None or now_s < deadline):
            return deadline
        callback()
        return now_s + _AGAIN_S

    def check(self) -> None:
        if self.deadline is not None and self._clock.monotonic() >= self.deadline:
            raise self.timeout_error()
        if self._is_cancelled:
            raise QueryCanceledError(f"the statement was cancelled: {self._by}")

    def timeout_error(self) -> QueryCanceledError:
        on_late, self.on_late = self.on_late, None
        if on_late is not None:
            on_late()
        return QueryCanceledError(
            f"the statement ran longer than statement_timeout ({self._timeout_s:g} s)",
            hint="SET statement_timeout = '30s' allows more, up to the role's maximum; 0 switches "
            "it off where there is none.",
        )

    def on_cancel(self, callback: Callable[[], object] | None) -> None:
        self._callback = callback
        if callback is None or not (self._is_cancelled or self.deadline is not None):
            return
        if self._is_cancelled:
            callback()
        if self.watch is not None:
            self.watch(self)
