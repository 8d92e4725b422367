"""The program of the cluster's demo: threads that move money, on whatever connect() opens.

What a DSN names is not its business: transfer() and the pool are the same for a directory and for
a cluster whose leader dies.
"""

import random
import threading
import time
from collections.abc import Collection, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from herdpy.driver.connection import Connection
from herdpy.driver.pool import Pool
from herdpy.errors import Error, Retry

ACCOUNTS = 20
OPENING = 1_000
THREADS = 4
_RETRY_S = 60.0
_STEP = 1_000_000
"""Between the numbers of two threads."""


def set_up(pool: Pool) -> None:
    """Make the tables, and the accounts."""
    with pool.connection() as connection:
        connection.execute("CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL)")
        connection.execute(
            "CREATE TABLE transfer (id BIGINT PRIMARY KEY, source BIGINT, target BIGINT,"
            " amount BIGINT)"
        )
        connection.executemany(
            "INSERT INTO account VALUES (?, ?)", [(each, OPENING) for each in range(ACCOUNTS)]
        )


def transfer(connection: Connection, number: int, source: int, target: int, amount: int) -> None:
    move = "UPDATE account SET balance = balance + ? WHERE id = ?"
    connection.execute(move, (-amount, source))
    connection.execute(move, (amount, target))
    connection.execute("INSERT INTO transfer VALUES (?, ?, ?, ?)", (number, source, target, amount))


class Found(NamedTuple):
    """What a copy has."""

    balances: dict[int, int]
    transfers: dict[int, tuple[int, int, int]]

    @property
    def total(self) -> int:
        return sum(self.balances.values())


def read_all(connection: Connection) -> Found:
    """Return all rows."""
    balances = connection.execute("SELECT id, balance FROM account ORDER BY id").fetchall()
    rows = connection.execute("SELECT id, source, target, amount FROM transfer ORDER BY id")
    return Found(dict(balances), {row[0]: row[1:] for row in rows.fetchall()})


def complaints(acknowledged: Collection[int], unknown: Collection[int], found: Found) -> list[str]:
    """Return what is not as promised: lost, not asked for, or by halves; empty: all is."""
    expected = dict.fromkeys(range(ACCOUNTS), OPENING)
    for source, target, amount in found.transfers.values():
        expected[source] -= amount
        expected[target] += amount
    lost = set(acknowledged) - found.transfers.keys()
    unasked = found.transfers.keys() - set(acknowledged) - set(unknown)
    said: list[str] = []
    if lost:
        said.append(f"{len(lost):,} acknowledged transfers are lost")
    if unasked:
        said.append(f"{len(unasked):,} transfers are there that were not acknowledged")
    if expected != found.balances:
        said.append("balances are not what the transfers make of them")
    if found.total != ACCOUNTS * OPENING:
        said.append(f"the total is {found.total:,}, expected {ACCOUNTS * OPENING:,}")
    return said


def longest_gap(moments_s: Sequence[float], since_s: float) -> float:
    """Return the longest time between two moments, in order, the second of which is behind one.

    0: there is none.
    """
    gaps = (b - a for a, b in pairwise(moments_s) if b > since_s)
    return max(gaps, default=0.0)


class Program:
    """Threads that transfer until stop(). What they were told is there to be read meanwhile."""

    def __init__(self, dsn: str) -> None:
        """Start; Error: nothing can be opened there."""
        self.pool = Pool(dsn, connections_max=THREADS)
        set_up(self.pool)
        self.acknowledged: list[list[int]] = [[] for _ in range(THREADS)]
        """By thread: the transfers whose commit has returned, in order."""
        self.moments_s: list[list[float]] = [[] for _ in range(THREADS)]
        """When that was, by time.monotonic()."""
        self.unknown: list[int] = []
        """Whose fate no leader could tell."""
        self.problems: list[Error] = []
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(number,), daemon=True)
            for number in range(THREADS)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, thread: int) -> None:
        number = thread * _STEP
        while not self._is_over.is_set():
            number += 1
            source, target = random.sample(range(ACCOUNTS), 2)
            amount = random.randrange(1, 100)  # noqa: S311 - a demo
            work = partial(transfer, number=number, source=source, target=target, amount=amount)
            try:
                self.pool.run(work, retry_timeout_s=_RETRY_S)
            except Error as error:
                if error.retry is not Retry.UNKNOWN:
                    self.problems.append(error)
                    return
                self.unknown.append(number)
            else:
                self.moments_s[thread].append(time.monotonic())
                self.acknowledged[thread].append(number)

    @property
    def count(self) -> int:
        """Transfers that were acknowledged until now."""
        return sum(map(len, self.acknowledged))

    def complaints(self, found: Found) -> list[str]:
        """Return what is not as promised in a copy; behind stop()."""
        acknowledged = [number for each in self.acknowledged for number in each]
        return complaints(acknowledged, self.unknown, found)

    def has_gone_on(self, moment_s: float) -> bool:
        """Tell whether each thread was told of a commit since; the Error that has ended one."""
        if self.problems:
            raise self.problems[0]
        return all(moments and moments[-1] > moment_s for moments in self.moments_s)

    def pause_s(self, since_s: float) -> float:
        """Return the longest wait of a thread for its next acknowledgement, since a moment."""
        return max(longest_gap(moments, since_s) for moments in self.moments_s)

    def stop(self) -> None:
        """Let each thread end its transfer, and wait for that; repeatable."""
        self._is_over.set()
        for thread in self._threads:
            thread.join()
