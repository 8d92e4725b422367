"""Pool: connections to one target, kept open and lent out; and transactions that are run again.

Any thread may call. A connection comes back rolled back and as it was made; the longest waiter
gets it. Connections to a server that restarts are made anew by themselves (retrying.py).
"""

import os
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

from bookie.runtime.drivers import new_mutex
from bookie.runtime.os_backoff import Backoff
from bookie.runtime.ticket import Ticket
from herdpy.driver.attributes import Strict
from herdpy.driver.connection import Connection, connect
from herdpy.driver.local import new_waiting
from herdpy.errors import Error, InterfaceError, OperationalError, ProgrammingError, Retry

T = TypeVar("T")
CONNECTIONS_MAX = 10
TIMEOUT_S = 30.0
_CANCELLED = "57014"


class Pool(Strict):
    """`options` are connect()'s. No connection is made before the first is asked for."""

    __slots__ = (
        "_clock",
        "_connections_max",
        "_count",
        "_driver",
        "_idle",
        "_is_closed",
        "_mutex",
        "_options",
        "_target",
        "_timeout_s",
        "_waiters",
    )

    def __init__(
        self,
        target: "str | os.PathLike[str]",
        *,
        connections_max: int = CONNECTIONS_MAX,
        timeout_s: float = TIMEOUT_S,
        **options: Any,
    ) -> None:
        check_pool(connections_max, timeout_s)
        # Constant after __init__.
        self._target = target
        self._options = options
        self._connections_max = connections_max
        self._timeout_s = timeout_s
        self._driver, self._clock = new_waiting()
        self._mutex = new_mutex()
        # Under the mutex.
        self._idle: list[Connection] = []  # the one used last at the end
        self._count = 0  # lent out, idle, or being made
        self._waiters: deque[Ticket[Connection | None]] = deque()
        self._is_closed = False

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
        pauses = Backoff(retry_timeout_s)
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

    @property
    def connection_count(self) -> int:
        """Connections that are open, lent out or idle."""
        return self._count

    @property
    def waiting_count(self) -> int:
        """Threads that wait for a connection."""
        return len(self._waiters)

    def close(self) -> None:
        """Close what is idle, and what is lent out when it comes back; repeatable."""
        with self._mutex:
            self._is_closed = True
            idle, self._idle = self._idle, []
            self._count -= len(idle)
            for waiter in self._waiters:
                waiter.fail(pool_closed())
            self._waiters.clear()
        for connection in idle:
            connection.close()

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self) -> Connection:
        deadline = self._clock.monotonic() + self._timeout_s
        while True:
            with self._mutex:
                if self._is_closed:
                    raise pool_closed()
                if self._idle:
                    return self._idle.pop()
                waiter: Ticket[Connection | None] | None = None
                if self._count < self._connections_max:
                    self._count += 1
                else:
                    waiter = Ticket()
                    self._waiters.append(waiter)
            connection = self._make() if waiter is None else self._wait(waiter, deadline)
            if connection is not None:
                return connection

    def _make(self) -> Connection:
        try:
            return connect(self._target, **self._options)
        except BaseException:
            self._drop()
            raise

    def _wait(self, waiter: Ticket[Connection | None], deadline: float) -> Connection | None:
        """Return what came back, None when there is room for a new one."""
        try:
            if self._driver.wait(waiter, deadline):
                return waiter.result()
        except BaseException:
            self._leave(waiter)
            raise
        self._leave(waiter)
        raise pool_used_up(self._connections_max, self._timeout_s)

    def _leave(self, waiter: Ticket[Connection | None]) -> None:
        """Wait no longer; what came in this moment goes on to the next."""
        with self._mutex:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
                return
        try:
            connection = waiter.result()  # who takes it from the queue completes it, in one
        except InterfaceError:  # the pool was closed
            return
        if connection is None:
            self._call_next(None)
        else:
            self._give_back(connection)

    def _give_back(self, connection: Connection) -> None:
        try:
            connection.reset()
        except Error:
            connection.discard()
            self._drop()
            return
        except BaseException:
            connection.discard()
            self._drop()
            raise
        if not self._call_next(connection):
            connection.close()

    def _drop(self) -> None:
        """Count a connection less, and let a waiter make another."""
        with self._mutex:
            self._count -= 1
        self._call_next(None)

    def _call_next(self, connection: Connection | None) -> bool:
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


# What herdpy.aio's pool has in common with it.


def check_pool(connections_max: int, timeout_s: float) -> None:
    """Raise 22023 for what is no pool."""
    if connections_max < 1 or timeout_s < 0:
        raise ProgrammingError(
            "Pool: expected connections_max of at least 1 and timeout_s of at least 0, found "
            f"{connections_max!r} and {timeout_s!r}",
            sqlstate="22023",
        )


def is_repeatable(error: Error) -> bool:
    """Return whether run() runs a transaction again that failed with this."""
    return error.retry is Retry.SAFE and error.sqlstate != _CANCELLED


def pool_used_up(connections_max: int, timeout_s: float) -> Error:
    return OperationalError(
        f"the pool's {connections_max} connections are in use, and none came back in "
        f"{timeout_s:g} s",
        sqlstate="53300",
        retry=Retry.SAFE,
        hint="give connections back sooner, or raise connections_max",
    )


def pool_closed() -> Error:
    return InterfaceError("the pool is closed")
