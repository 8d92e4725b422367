"""StagingUses: when each open staging was last used, by this process's clock.

Not part of the log's state: after a start every staging counts as touched. Any thread.
"""

from bookie.runtime.drivers import new_mutex
from bookie.runtime.interfaces import Clock
from herdpy.engine.state.staged import Staged
from herdpy.engine.state.transactions import Transaction, TransactionState


class StagingUses:
    def __init__(self, clock: Clock, timeout_s: float) -> None:
        self._clock = clock
        self._timeout_s = timeout_s
        self._mutex = new_mutex()
        self._touched_s: dict[str, float] = {}
        self._busy: dict[str, list[Transaction]] = {}

    def touch(self, job: str) -> None:
        with self._mutex:
            self._touched_s[job] = self._clock.monotonic()

    def busy(self, job: str, transaction: Transaction) -> None:
        """Keep a job in use until the transaction that commits it has ended."""
        with self._mutex:
            known = self._busy.setdefault(job, [])
            if transaction not in known:
                known.append(transaction)

    def to_end(self, staged: Staged) -> list[str]:
        """Return the jobs that were not used for too long."""
        now_s = self._clock.monotonic()
        found: list[str] = []
        with self._mutex:
            for job, transactions in list(self._busy.items()):
                self._touched_s[job] = now_s
                if all(each.state is TransactionState.ENDED for each in transactions):
                    del self._busy[job]
            for job in self._touched_s.keys() - staged.jobs.keys():
                del self._touched_s[job]
            for job in staged.jobs:
                touched_s = self._touched_s.setdefault(job, now_s)
                if job not in self._busy and now_s - touched_s >= self._timeout_s:
                    found.append(job)
        return found
