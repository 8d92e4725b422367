"""Syncers: call sync() for the committers, so that several share one fsync.

request() asks that everything appended before it becomes durable (SYNC), or is handed to the
operating system (OS). on_durable(lsn) is called after each pass, without any lock of the syncer, by
the thread that did it; a log that fails goes to on_failure(error) instead.
"""

from collections.abc import Callable

from bookie.runtime.drivers import new_mutex
from bookie.runtime.interfaces import Driver, Worker
from herdpy.errors import Error, InvariantViolation
from herdpy.log.interfaces import CommitLog, OnDurable, OnFailure
from herdpy.model.durability import Durability

_UNWRITTEN_BYTES_MAX = 1024 * 1024
_AGAIN_S = 0.25
"""Behind a pass that found no memory."""

Measure = Callable[[Callable[[], object]], object]
"""Runs a write or sync of the log, and may note how long it took."""


def unmeasured(step: Callable[[], object]) -> None:
    """Run a step; a Measure that notes nothing."""
    step()


class InlineSyncer:
    """Syncs in the caller. For simulation and memory."""

    def __init__(
        self,
        log: CommitLog,
        on_durable: OnDurable,
        on_failure: OnFailure,
        measure: Measure = unmeasured,
    ) -> None:
        self._measure = measure
        self._log = log
        self._on_durable = on_durable
        self._on_failure = on_failure
        self._bytes_written = 0

    def request(self, durability: Durability) -> None:
        if durability is Durability.NONE and not self.is_much_unwritten:
            return
        log = self._log
        bytes_appended = log.bytes_appended
        try:
            self._measure(log.sync if durability is Durability.SYNC else log.write)
        except Error as error:
            self._on_failure(error)
            return
        self._bytes_written = bytes_appended
        self._on_durable(log.durable_lsn)

    def ask(self, durability: Durability) -> None:
        self.request(durability)

    @property
    def is_much_unwritten(self) -> bool:
        return self._log.bytes_appended - self._bytes_written >= _UNWRITTEN_BYTES_MAX


class GroupSyncer:
    """Syncs in the caller while it is alone, else in one thread for all who came meanwhile.

    A committer that finds a pass running sets its wish and rings; the thread clears the wish
    before its pass, so that one set later is never lost. What keeps passes apart is the log's own
    lock: `_running` only guesses, so that an interrupt cannot leave anything locked.
    """

    def __init__(
        self,
        log: CommitLog,
        driver: Driver,
        on_durable: OnDurable,
        on_failure: OnFailure,
        measure: Measure = unmeasured,
    ) -> None:
        self._log = log
        self._driver = driver
        self._on_failure = on_failure
        self._inline = InlineSyncer(log, on_durable, on_failure, measure)
        self._bell = driver.new_bell()
        self._running: object | None = None  # the newest pass, perhaps waiting for one before it
        self._is_sync_wanted = False
        self._is_closing = False
        self._worker_mutex = new_mutex()
        self._worker: Worker | None = None

    def request(self, durability: Durability) -> None:
        if self._is_closing and self._is_over():
            return
        if durability is Durability.NONE and not self._inline.is_much_unwritten:
            return
        if durability is Durability.SYNC and (self._running or self._is_sync_wanted):
            self._wake()
            return
        # Alone; or a commit that waits for the operating system only: it is visible at its append
        # and has no one to tell it later, so it does its own write.
        self._pass(durability)

    def ask(self, durability: Durability) -> None:
        if self._is_closing and self._is_over():
            return
        if durability is Durability.SYNC or self._inline.is_much_unwritten:
            self._wake()

    def _is_over(self) -> bool:
        """Return whether the log stopped and its end was told: what is asked for is decided."""
        if self._log.failure is None:
            raise InvariantViolation("syncer: a request after close()")
        return True

    def _wake(self) -> None:
        self._is_sync_wanted = True
        with self._worker_mutex:
            if self._worker is None or not self._worker.is_alive:
                self._worker = self._driver.spawn("herdpy-syncer", self._work)
        self._bell.ring()

    def _pass(self, durability: Durability) -> None:
        this_pass = object()
        try:
            self._running = this_pass
            self._inline.request(durability)
        finally:
            if self._running is this_pass:
                self._running = None

    def _work(self) -> None:
        pause_s: float | None = None
        try:
            while not self._is_closing:
                self._bell.wait(pause_s)
                pause_s = None
                if self._is_sync_wanted:
                    self._is_sync_wanted = False
                    try:
                        self._pass(Durability.SYNC)
                    except MemoryError:
                        # As an interrupt: what was begun is gone on with, what is written is not
                        # written again. Those who wait go on waiting.
                        pause_s, self._is_sync_wanted = _AGAIN_S, True
        except Exception as error:
            self._on_failure(InvariantViolation(f"the syncer died: {error!r}"))
            raise
        finally:
            self._bell.ring()  # spawn() may have been interrupted and left a second thread

    def close(self) -> None:
        """Stop and join; what is not synced yet stays so. Idempotent.

        Not from on_durable or on_failure: it joins the thread that calls them.
        """
        self._is_closing = True
        self._bell.ring()
        if self._worker is not None:
            self._worker.join()
