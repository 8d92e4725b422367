"""When a worker tries a ledger again, and when an open one is fenced: plain rules of time.

Times are seconds that never go back, the caller's.
"""

from dataclasses import dataclass

from bookie.ledger.types import Segment

FIRST_SHARE = 32
"""The first pause is this part of the longest; each failure doubles it."""
LEDGERS_MAX = 100_000
"""Of which failures are remembered; beyond it the oldest are forgotten."""


@dataclass(slots=True)
class _Failures:
    count: int
    until_s: float


class BackOff:
    """The pauses of one worker, by ledger."""

    def __init__(self, pause_s_max: float) -> None:
        self._pause_s_max = pause_s_max
        self._failures: dict[int, _Failures] = {}

    def failed(self, ledger_id: int, now_s: float) -> int:
        """Begin a pause; return how often the ledger has failed in a row."""
        count = self.count_of(ledger_id) + 1
        self._failures.pop(ledger_id, None)
        pause_s = min(self._pause_s_max, self._pause_s_max / FIRST_SHARE * 2 ** min(count - 1, 30))
        self._failures[ledger_id] = _Failures(count, now_s + pause_s)
        if len(self._failures) > LEDGERS_MAX:
            del self._failures[next(iter(self._failures))]
        return count

    def succeeded(self, ledger_id: int) -> None:
        self._failures.pop(ledger_id, None)

    def count_of(self, ledger_id: int) -> int:
        found = self._failures.get(ledger_id)
        return 0 if found is None else found.count

    def is_due(self, ledger_id: int, now_s: float) -> bool:
        found = self._failures.get(ledger_id)
        return found is None or now_s >= found.until_s


class GracePeriods:
    """The open segments that a worker waits for: their writers may mend them by themselves.

    While it waits the worker keeps the ledger's lock.
    """

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._waiting: dict[int, tuple[Segment, float]] = {}

    def begin(self, ledger_id: int, segment: Segment, now_s: float) -> None:
        """Wait for this segment; the time runs on when it is the one waited for already."""
        found = self._waiting.get(ledger_id)
        if found is None or found[0] != segment:
            self._waiting[ledger_id] = (segment, now_s + self._grace_s)

    def end(self, ledger_id: int) -> None:
        self._waiting.pop(ledger_id, None)

    def __contains__(self, ledger_id: int) -> bool:
        return ledger_id in self._waiting

    @property
    def ledger_ids(self) -> tuple[int, ...]:
        return tuple(self._waiting)

    def due(self, now_s: float) -> dict[int, Segment]:
        """Return the ledgers that were waited for long enough, and the segment of each."""
        return {
            ledger_id: segment
            for ledger_id, (segment, until_s) in self._waiting.items()
            if now_s >= until_s
        }
