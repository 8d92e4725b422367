"""LoopSync: the server's loop syncs the log by itself while it would do nothing else.

A sync in a thread of its own costs a commit two changes of thread, which take longer than the rest
of it. The loop, which serves all connections, may stand still for a sync only where none of them
would notice (ADR 44): while nothing but commits come, which wait for the disk in any case, or all
comes from one connection; while no worker runs a statement; and while the disk is fast. On the
loop.
"""

import asyncio
from collections.abc import Callable, Sized
from typing import Protocol

from bookie.runtime.interfaces import Clock
from bookie.runtime.short_waits import SyncSpeed
from herdpy.engine.state.tablespace import Tablespace
from herdpy.model.durability import Durability

STREAK = 16
"""So many commits must have come since another connection asked for anything else."""
_SEVERAL = 0  # the number of no connection


class Duration(Protocol):
    """Of the newest sync, in any thread."""

    @property
    def last_s(self) -> float: ...

    @property
    def ended_s(self) -> float | None: ...


class Waiting(Protocol):
    """The workers, as far as they matter here."""

    @property
    def jobs(self) -> Sized:
        """What they run."""
        ...

    def run_then_due(self, step: Callable[[], object]) -> None:
        """Run a step, and what it has made due."""
        ...


class LoopSync:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        tablespace: Tablespace,
        syncs: Duration,
        workers: Waiting,
        sync_s_max: float,
    ) -> None:
        """sync_s_max: what syncs may take on the average; 0: the loop never does one."""
        self._loop = loop
        self._clock = clock
        self._tablespace = tablespace
        self._syncs = syncs
        self._workers = workers
        self._speed = SyncSpeed(sync_s_max)
        self._other: int | None = None  # who asked for something else since the newest commit
        self._streak = 0
        self._is_due = False
        self._ended_s: float | None = None

    def asked(self, connection: int) -> None:
        """Note that a connection has asked for something else than a commit."""
        self._other = connection if self._other in (None, connection) else _SEVERAL

    def ask(self, connection: int, durability: Durability) -> None:
        """Have the log synced for a commit of a connection, if its durability wants it.

        What came together with it is synced with it.
        """
        other, self._other = self._other, None
        self._streak = 1 if other is not None and other != connection else self._streak + 1
        syncer = self._tablespace.syncer
        assert syncer is not None  # of an open database
        if durability is not Durability.SYNC:
            syncer.ask(durability)
        elif not self._is_due:
            ended_s, now_s = self._syncs.ended_s, self._clock.monotonic()
            if ended_s != self._ended_s:  # several commits share a sync
                self._ended_s = ended_s
                self._speed.note(self._syncs.last_s, now_s)
            is_fast = now_s >= self._speed.slow_until_s
            if self._streak < STREAK or self._workers.jobs or not is_fast:
                syncer.ask(durability)
            else:
                self._is_due = True
                self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._is_due = False
        self._workers.run_then_due(self._sync)

    def _sync(self) -> None:
        syncer = self._tablespace.syncer
        assert syncer is not None
        syncer.request(Durability.SYNC)
