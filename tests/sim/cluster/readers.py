"""Readers: programs that read on nodes that follow, and write to the leader what they look for.

staleness   a statement shows what was surely confirmed before it began, less the time that is asked
            for, by clocks that run apart by less than a tenth
monotonic   a connection never shows less than it has shown, on whichever nodes it was
"""

import asyncio
import math
import random
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from herdpy.aio.stream import LoopWaits
from herdpy.aio.switching import wait_for
from herdpy.driver.connection import Connection, connect
from herdpy.errors import Error
from tests.sim.cluster.checkers import CheckError
from tests.sim.server.checkers import Fate, History
from tests.sim.server.clients import EXPECTED, url
from tests.sim.switching import in_thread

LOOK_S = 0.1
"""How often nodes that follow look for the end of the log."""
MAX_STALENESS_S = 0.25
_TRUE_STALENESS_S = 1.11 * MAX_STALENESS_S
_PAUSE_S = 0.04
_POSITION_S = 0.5
_AGAIN_S = 0.05


class TimedHistory(History):
    """Knows as well from when on each value of a register was surely confirmed.

    That is when a transaction is acknowledged which began behind the acknowledgement of the one
    that raised it: its entry says that the other one's is confirmed, and lies on a quorum. What a
    leader has acknowledged last may be known to no bookie when it ends.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        super().__init__()
        self._now_s = now_s
        self._begun: dict[int, float] = {}
        self._raised_at: list[tuple[float, int, int]] = []
        """When it was acknowledged, register, value: of those that are not confirmed yet."""
        self._confirmed: dict[int, list[tuple[float, int]]] = {}
        """When, and the highest value until then, by register."""
        self.first_s = math.inf
        """When what had been there before all transactions was surely confirmed."""

    def end(self, number: int, fate: Fate) -> None:
        super().end(number, fate)
        if fate is Fate.RUNNING:
            self._begun[number] = self._now_s()
        elif fate is Fate.COMMITTED and number in self._begun:
            self._confirm(self._begun[number])
            self.first_s = min(self.first_s, self._now_s())

    def raised(self, register: int, value: int) -> None:
        super().raised(register, value)
        self._raised_at.append((self._now_s(), register, value))

    def _confirm(self, before_s: float) -> None:
        """Take what was acknowledged before for confirmed from now on."""
        now_s = self._now_s()
        for acknowledged_s, register, value in self._raised_at:
            if acknowledged_s < before_s:
                known = self._confirmed.setdefault(register, [])
                known.append((now_s, max(value, known[-1][1] if known else 0)))
        self._raised_at = [each for each in self._raised_at if each[0] >= before_s]

    def confirmed_before(self, register: int, before_s: float) -> int:
        """Return the highest value of a register that was surely confirmed at a time."""
        known = self._confirmed.get(register, [])
        index = bisect_right(known, before_s, key=lambda each: each[0])
        return known[index - 1][1] if index else 0


class Reader:
    """A program with a connection to the leader, and one to nodes that follow."""

    def __init__(self, world: Any, number: int) -> None:
        self.world = world
        self.number = number
        self.node = world.loop.add_node(f"r{number}")
        self.is_over = False
        self._locators = world.new_locators(self.node)
        self.rng: random.Random = world.new_rng()
        self._writer: Connection | None = None
        self._reader: Connection | None = None
        self._shown: dict[int, int] = {}
        """Registers as the connection has shown them."""
        self._written = 0
        """What is in its own row at least, as it was told."""
        self._seen = 0

    def start(self) -> "asyncio.Task[None]":
        return in_thread(self.node, self._run)

    def _run(self) -> None:
        while not self.is_over:
            wait_for(asyncio.sleep(self.rng.random() * _PAUSE_S))
            begun_s = self.world.loop.time()
            try:
                if self.rng.random() < 0.3:
                    self._read_own_write()
                else:
                    self._read_registers()
            except Error as error:
                # A copy may show what was there before the tables were made.
                tables_s = self.world.history.first_s + _TRUE_STALENESS_S
                is_early = error.sqlstate == "42P01" and begun_s < tables_s
                if error.sqlstate not in EXPECTED and not is_early:
                    raise CheckError("errors", f"a reader was told {error!r}") from error
                if error.sqlstate == "25006":
                    self.world.happen("a follower that does not answer")
                self._close()
                wait_for(asyncio.sleep(self.rng.random() * _AGAIN_S))
        self._close()

    def _connect(self, **options: str) -> Connection:
        more = "".join(f"&{name}={value}" for name, value in options.items())
        text = url(self.world, number=1 + self.number % 2).replace("retry_timeout_s=10", "")
        return connect(
            f"{text}&retry_timeout_s=1{more}".replace("&&", "&"),
            autocommit=True,
            waits=LoopWaits(random.Random(self.rng.getrandbits(64)), self._locators),
            statement_timeout_s=2.0,
        )

    def _opened(self) -> Connection:
        if self._reader is None:
            mode = self.rng.choice(("follower", "follower", "nearest"))
            self._reader = self._connect(read=mode, max_staleness_s=str(MAX_STALENESS_S))
        return self._reader

    def _close(self) -> None:
        for each in (self._writer, self._reader):
            if each is not None:
                each.close()
        self._writer = self._reader = None
        self._shown.clear()
        self._seen = 0

    def _read_registers(self) -> None:
        connection, history = self._opened(), self.world.history
        begun_s = self.world.loop.time()
        found = dict(connection.execute("SELECT id, v FROM register").fetchall())
        for register, value in found.items():
            wanted = history.confirmed_before(register, begun_s - _TRUE_STALENESS_S)
            if value < wanted:
                raise CheckError(
                    "staleness",
                    f"register {register} is {value}, and {wanted} was confirmed more than "
                    f"{_TRUE_STALENESS_S:.2f} s before {begun_s:.3f}",
                )
            if value < self._shown.get(register, 0):
                raise CheckError(
                    "monotonic", f"register {register} is {value} behind {self._shown[register]}"
                )
        self._shown |= found
        self.world.happen("registers of a follower")

    def _read_own_write(self) -> None:
        """Write to the leader, and look for it on a node that follows."""
        if self._writer is None:
            self._writer = self._connect()
        writer, table = self._writer, f"echo_{self.number}"
        if not self._written:
            writer.execute(f"CREATE TABLE IF NOT EXISTS {table} (id BIGINT PRIMARY KEY, v BIGINT)")
            writer.execute(f"INSERT INTO {table} VALUES (1, 0) ON CONFLICT DO NOTHING")
        value = self._written + 1
        writer.execute(f"UPDATE {table} SET v = ? WHERE id = 1", (value,))
        self._written = value
        reader = self._opened()
        reader.wait_for(writer.position, _POSITION_S)
        (found,) = reader.execute(f"SELECT v FROM {table} WHERE id = 1").fetchone() or (0,)
        if found < max(value, self._seen):
            raise CheckError("monotonic", f"{table} has {found}, behind {value} and {self._seen}")
        self._seen = found
        self.world.happen("an own write on a follower")
