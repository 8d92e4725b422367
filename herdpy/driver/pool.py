"""Pool: connections to one target, kept open and lent out; and transactions that are run again.

Any thread may call. A connection comes back rolled back and as it was made; the longest waiter
gets it. Connections to a server that restarts are made anew by themselves (retrying.py).
"""

import os
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from bookie.runtime.drivers import new_mutex
from bookie.runtime.ticket import Ticket
from herdpy.driver.attributes import Strict
from herdpy.driver.connection import Connection, connect
from herdpy.driver.interfaces import Waiting, Waits
from herdpy.driver.local import new_waiting
from herdpy.errors import Error, InterfaceError, OperationalError, ProgrammingError, Retry

C = TypeVar("C")
T = TypeVar("T")
TIMEOUT_S = 30.0
_CANCELLED = "57014"


class Lending(Strict, Generic[C]):
    """Connections to one target that are kept open and lent out, to the longest waiter first.

    `options` are connect()'s. No connection is made before the first is asked for. `waits` is for
    simulations.
    """

    __slots__ = (
        "_connections_max",
        "_count",
        "_idle",
        "_is_closed",
        "_mutex",
        "_options",
        "_target",
        "_timeout_s",
        "_waiters",
        "_waiting",
    )

    def __init__(
        self,
        target: "str | os.PathLike[str]",
        *,
        connections_max: int = 10,
        timeout_s: float = TIMEOUT_S,
        waits: Waits | None = None,
        **options: Any,
    ) -> None:
        if connections_max < 1 or timeout_s < 0:
            raise ProgrammingError(
                "Pool: expected connections_max of at least 1 and timeout_s of at least 0, found "
                f"{connections_max!r} and {timeout_s!r}",
                sqlstate="22023",
            )
        # Constant after __init__.
        self._target = target
        self._options: dict[str, Any] = options if waits is None else {**options, "waits": waits}
        self._connections_max = connections_max
        self._timeout_s = timeout_s
        self._waiting: Waiting = waits or new_waiting()
        self._mutex = new_mutex()
        # Under the mutex.
        self._idle: list[C] = []  # the one used last at the end
        self._count = 0  # lent out, idle, or being made
        self._waiters: deque[Ticket[C | None]] = deque()
        self._is_closed = False

    @property
    def connection_count(self) -> int:
        """Connections that are open, lent out or idle."""
        return self._count

    @property
    def waiting_count(self) -> int:
        """Calls that wait for a connection."""
        return len(self._waiters)

    def _find(self) -> C | Ticket[C | None] | None:
        """Return an idle connection, or None: the caller makes one, which counts from here on.

        When there are as many as may be, a Ticket of what comes back, or of None: ask again.
        """
        with self._mutex:
            if self._is_closed:
                raise InterfaceError("the pool is closed")
            if self._idle:
                return self._idle.pop()
            if self._count < self._connections_max:
                self._count += 1
                return None
            waiter: Ticket[C | None] = Ticket()
            self._waiters.append(waiter)
            return waiter

    def _leave(self, waiter: Ticket[C | None]) -> C | None:
        """Wait no longer; what came in this moment goes on to the next. Return what is to close."""
        with self._mutex:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
                return None
        try:
            connection = waiter.result()  # taken from the queue and completed in one
        except InterfaceError:  # the pool was closed
            return None
        return None if self._call_next(connection) else connection

    def _drop(self) -> None:
        """Count a connection less, and let a waiter make another."""
        with self._mutex:
            self._count -= 1
        self._call_next(None)

    def _call_next(self, connection: C | None) -> bool:
        """Hand it to the longest waiter, or keep it; False: the pool is closed."""
        with self._mutex:
            if self._is_closed:
                if connection is not None:
                    self._count -= 1
                return False
            if not self._waiters:
                if connection is not None:
                    self._idle.append(connection)
                return True
            self._waiters.popleft().complete(connection)
        return True

    def _end(self) -> list[C]:
        """Let no call wait or come any more; return the idle connections, to be closed."""
        with self._mutex:
            self._is_closed = True
            idle, self._idle = self._idle, []
            self._count -= len(idle)
            for waiter in self._waiters:
                waiter.fail(InterfaceError("the pool is closed"))
            self._waiters.clear()
        return idle

    def _used_up(self) -> Error:
        return OperationalError(
            f"the pool's {self._connections_max} connections are in use, and none came back in "
            f"{self._timeout_s:g} s",
            sqlstate="53300",
            retry=Retry.SAFE,
            hint="give connections back sooner, or raise connections_max",
        )


def is_repeatable(error: Error) -> bool:
    """Return whether run() runs a transaction again that failed with this."""
    return error.retry is Retry.SAFE and error.sqlstate != _CANCELLED


class Pool(Lending[Connection]):
    __slots__ = ()

    @contextmanager
    def connection(self) -> Generator[Connection]:
        """Lend a connection; its transaction commits at the end, or rolls back on an error.

        53300, SAFE: none came back in timeout_s.
        """
        connection = self._take()
        try:
            try:
                yield connection
            except BaseException:
                connection.rollback()
                raise
            connection.commit()
        finally:
            self._give_back(connection)

    def run(self, work: Callable[[Connection], T], *, retry_timeout_s: float = TIMEOUT_S) -> T:
        """Run a transaction, again as long as it failed with an error that is SAFE to repeat.

        `work` gets a connection, on which it must not commit itself, and is called once for each
        attempt. A commit whose fate is not known (UNKNOWN) is not repeated.
        """
        pauses = self._waiting.new_pauses(retry_timeout_s)
        while True:
            try:
                with self.connection() as connection:
                    if connection.autocommit:
                        with connection.transaction():
                            return work(connection)
                    return work(connection)
            except Error as error:
                if not is_repeatable(error) or not pauses.wait():
                    raise

    def close(self) -> None:
        """Close what is idle, and what is lent out when it comes back; repeatable."""
        for connection in self._end():
            connection.close()

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self) -> Connection:
        deadline = self._waiting.monotonic() + self._timeout_s
        while True:
            found = self._find()
            if isinstance(found, Connection):
                return found
            if found is None:
                return self._make()
            try:
                if not self._waiting.wait(found, deadline):
                    raise self._used_up()
                connection = found.result()
            except BaseException:
                if (left := self._leave(found)) is not None:
                    left.close()
                raise
            if connection is not None:
                return connection

    def _make(self) -> Connection:
        try:
            return connect(self._target, **self._options)
        except BaseException:
            self._drop()
            raise

    def _give_back(self, connection: Connection) -> None:
        try:
            connection.reset()
        except BaseException as error:
            connection.discard()
            self._drop()
            if isinstance(error, Error):
                return
            raise
        if not self._call_next(connection):
            connection.close()
