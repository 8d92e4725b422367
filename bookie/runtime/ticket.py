"""Ticket: the one thing the core may wait for.

A Ticket is completed once, by any thread, with a value or an error. A statement that has to wait
returns the Ticket instead of a result; a coroutine awaits it; a driver (drivers.py, or the
simulator) knows how to wait. There is no lock in it: outcomes are appended and the first one
counts; a callback is appended first and the outcome looked at afterwards, so that one of the two
threads sees the other. A callback is taken off the list after it ran: an interrupt in between, or
two threads at once, repeat it, and never lose it.
"""

from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Ticket(Generic[T]):
    """A value that will be there later. complete(), fail() and on_done() may race."""

    __slots__ = ("_callbacks", "_outcomes")

    def __init__(self) -> None:
        self._outcomes: list[tuple[T | None, BaseException | None]] = []
        self._callbacks: list[Callable[[], object]] = []

    @property
    def is_done(self) -> bool:
        return bool(self._outcomes)

    @property
    def is_awaited(self) -> bool:
        """Something runs when it is done."""
        return bool(self._callbacks)

    def complete(self, value: T) -> None:
        """Set the value and run the callbacks in this thread; later outcomes are ignored.

        Interrupted, it may be called again: what is set stays set, what did not run runs.
        """
        if not self._outcomes:
            self._outcomes.append((value, None))
        if self._callbacks:
            self._run_callbacks()

    def fail(self, error: BaseException) -> None:
        """Set the error that result() raises; otherwise as complete()."""
        if not self._outcomes:
            self._outcomes.append((None, error))
        self._run_callbacks()

    def result(self) -> T:
        """Return the value or raise the error; RuntimeError while not done."""
        if not self._outcomes:
            raise RuntimeError("ticket is not done")
        value, error = self._outcomes[0]
        if error is not None:
            raise error
        return value  # type: ignore[return-value]  # complete() stored a T

    def on_done(self, callback: Callable[[], object]) -> None:
        """Run callback when done, at once if it is; it must not raise or wait.

        It runs at least once, and more than once in rare races, so it is idempotent.
        """
        self._callbacks.append(callback)
        if self._outcomes:
            self._run_callbacks()

    def forget(self, callback: Callable[[], object]) -> None:
        """Take a callback back, if it is still there; it may be running in another thread."""
        try:
            self._callbacks.remove(callback)
        except ValueError:
            pass

    def _run_callbacks(self) -> None:
        callbacks = self._callbacks
        while callbacks:
            try:
                callback = callbacks[-1]
            except IndexError:  # another thread took the last one
                return
            callback()
            if callback in callbacks:  # else another thread took it off, or a forget()
                try:
                    callbacks.remove(callback)
                except ValueError:
                    pass

    def __await__(self) -> Generator["Ticket[Any]", None, T]:
        if not self._outcomes:
            yield self
        return self.result()
