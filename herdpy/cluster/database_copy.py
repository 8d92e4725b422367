"""DatabaseCopy: a tablespace's copy in a directory of its node, over the log that the cluster has.

It follows in the engine's own state (FollowedLog), and leads by putting a LedgerLog in its place.
Calls wait, one at a time, but for the properties.
"""

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import import_module

from bookie.runtime.interfaces import Driver
from herdpy.cluster.blocking_chain import BlockingChain
from herdpy.cluster.tail import Run
from herdpy.cluster.upkeep import Ledger
from herdpy.engine.database import Database
from herdpy.engine.instance import Instance
from herdpy.engine.maintenance.file_logs import LogSource
from herdpy.engine.statements.plan_cache import load_compiler
from herdpy.errors import Error, InvariantViolation, loading
from herdpy.exec.vector import load_duckdb
from herdpy.log.followed_log import FollowedLog
from herdpy.log.interfaces import LogSpaceError
from herdpy.log.ledger_log import LedgerLog
from herdpy.model.lsn import Lsn
from herdpy.storage.manifest import LEDGER_LOG

_FOLLOWED = LogSource(LEDGER_LOG, lambda _: FollowedLog(), leads=False)
_HEAVY = ("herdpy.exec.vector.duck", "herdpy.storage.arrow_shadows", "herdpy.storage.arrow_staged")


class DatabaseCopy:
    """Implements herdpy.cluster.member.Copy. `database` is there from open() to close()."""

    def __init__(
        self,
        new_instance: Callable[[LogSource], Instance],
        new_chain: Callable[[], BlockingChain],
        driver: Driver,
        *,
        ledger_bytes_max: int,
        reported_s: Callable[[float], float] | None = None,
    ) -> None:
        """new_instance: of the copy's directory. new_chain: of the tablespace's ledgers.

        reported_s: as Leases.await_reports(), where leases_heard() will be called; else None.
        """
        self._new_instance = new_instance
        self._new_chain = new_chain
        self._driver = driver
        self._ledger_bytes_max = ledger_bytes_max
        self._reported_s = reported_s
        self._chain: BlockingChain | None = None
        self._log: LedgerLog | None = None
        self._epoch = 0
        self._leases_s = 0.0
        """When it was asked last which leases are used."""
        self.database: Database | None = None

    @property
    def failure(self) -> Error | None:
        database = self.database
        return None if database is None else database.failure

    @property
    def position(self) -> Lsn:
        return self._opened().tablespace.state.lsn

    @property
    def durable_position(self) -> Lsn | None:
        database = self.database
        if database is None:
            return None
        tablespace = database.tablespace
        # A leader's state is ahead of what a quorum has.
        return min(tablespace.state.lsn, tablespace.log.durable_lsn)

    @property
    def byte_count(self) -> int:
        database = self.database
        return 0 if database is None else database.tablespace.log.bytes_appended

    def used_leases(self) -> dict[str, float]:
        database = self.database
        if database is None:
            return {}
        since_s, self._leases_s = self._leases_s, database.clock.monotonic()
        return database.tablespace.applier.leases.used(since_s)

    def shortest_lease_s(self) -> float:
        database = self.database
        leases = [] if database is None else database.tablespace.applier.leases
        return min((lease.seconds for lease in leases), default=math.inf)

    def extend_leases(self, ids: Iterable[str]) -> None:
        if self.database is not None:
            self.database.tablespace.applier.leases.extend(ids)

    def leases_heard(self, age_s: float | None) -> None:
        if self.database is not None:
            self.database.tablespace.applier.leases.heard(age_s)

    def open(self) -> None:
        database = self._new_instance(_FOLLOWED).start()
        if self._reported_s is not None:
            database.tablespace.applier.leases.await_reports(self._reported_s)
        self.database = database
        _load()

    def follow(self, run: Run) -> None:
        self._opened().replica.follow(run)

    def probe(self, epoch: int, timeout_s: float) -> None:
        chain = self._new_chain()
        try:
            chain.probe(epoch, timeout_s)
        finally:
            chain.close()

    def claim(self, epoch: int) -> None:
        self._let_go()
        self._chain, self._epoch = self._new_chain(), epoch
        self._chain.claim(epoch)

    def lead(self, end: Lsn | None) -> None:
        if self._chain is None:
            raise InvariantViolation("a copy leads behind a claim")
        log = LedgerLog(self._chain, self._driver, ledger_bytes_max=self._ledger_bytes_max)
        self._opened().replica.take_over(log, self._epoch, end)
        self._log = log

    def tick(self) -> None:
        with suppress(Error, LogSpaceError):  # it fails, or has no ledger: the leader sees that
            self._opened().tablespace.tick()

    @property
    def ledger(self) -> Ledger | None:
        log, chain = self._log, self._chain
        ledger_id = None if log is None else log.ledger_id
        if log is None or chain is None or ledger_id is None:
            return None
        return Ledger(ledger_id, log.ledger_bytes, chain.is_narrow, chain.is_missing)

    def roll(self) -> None:
        if self._log is None:
            raise InvariantViolation("a copy that leads has a log")
        if self._log.ledger_id is None:
            self._log.prepare(0)
        else:
            self._log.roll()

    def end_log(self) -> Lsn:
        if self._log is None:
            raise InvariantViolation("a copy that leads has a log")
        self._opened().tablespace.hold()
        return self._log.finish()

    def close(self) -> None:
        self._log = None
        database, self.database = self.database, None
        try:
            if database is not None:
                database.close()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        chain, self._chain = self._chain, None
        if chain is not None:
            with suppress(Error):
                chain.close()

    def _opened(self) -> Database:
        if self.database is None:
            raise InvariantViolation("the copy is not open")
        return self.database


def _load() -> None:
    """Import what statements need, and what a follower needs that adopts pages.

    Elsewhere both wait for their first use. Here that would be just when this node comes to lead,
    with all its clients waiting, or between a commit of staged rows and what reads them on a copy.
    """
    load_compiler()
    with loading():
        load_duckdb()
        for name in _HEAVY:
            import_module(name)
