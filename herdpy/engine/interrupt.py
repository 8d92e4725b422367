"""StatementInterrupt: cancellation and the statement time-out of one running statement."""

from collections.abc import Callable

from bookie.runtime.interfaces import Clock
from bookie.runtime.ticket import Ticket
from herdpy.errors import QueryCanceledError


class StatementInterrupt:
    """Implements exec.interfaces.Interrupt. cancel() by any thread, the rest by the statement's."""

    __slots__ = ("_callback", "_clock", "_timeout_s", "deadline", "stop")

    def __init__(self, clock: Clock, timeout_s: float) -> None:
        self._clock = clock
        self._timeout_s = timeout_s
        self.deadline = clock.monotonic() + timeout_s if timeout_s else None
        self.stop: Ticket[None] = Ticket()
        self._callback: Callable[[], object] | None = None

    def cancel(self) -> None:
        """Ask the statement to stop at its next check or wait."""
        self.stop.complete(None)
        callback = self._callback
        if callback is not None:
            callback()

    def check(self) -> None:
        if self.stop.is_done:
            raise QueryCanceledError("the statement was cancelled by conn.cancel()")
        if self.deadline is not None and self._clock.monotonic() >= self.deadline:
            raise self.timeout_error()

    def timeout_error(self) -> QueryCanceledError:
        return QueryCanceledError(
            f"the statement ran longer than statement_timeout ({self._timeout_s:g} s)",
            hint="SET statement_timeout = '30s' allows more; 0 switches it off.",
        )

    def on_cancel(self, callback: Callable[[], object] | None) -> None:
        self._callback = callback
        if callback is not None and self.stop.is_done:
            callback()
