"""Syncers: call sync() for the committers, so that several share one fsync.

request() asks that everything appended before it becomes durable (SYNC), or is handed to the
operating system (OS). on_durable(lsn) is called after each pass, without any lock of the syncer, by
the thread that did it; a log that fails goes to on_failure(error) instead.
"""

from collections.abc import Callable

from bookie.runtime.drivers import new_mutex
from bookie.runtime.interfaces import Bell, Driver, Worker
from herdpy.errors import Error, InvariantViolation
from herdpy.limits import sync_threads_max
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
    """Syncs in the caller while it is alone, else in a shared thread for all who came meanwhile.

    A committer that finds a pass running sets its wish and asks for a thread, which clears the wish
    before its pass, so that one set later is never lost. What keeps passes apart is the log's own
    lock: `_running` only guesses, so that an interrupt cannot leave anything locked.
    """

    def __init__(
        self,
        log: CommitLog,
        threads: "SyncThreads",
        on_durable: OnDurable,
        on_failure: OnFailure,
        measure: Measure = unmeasured,
    ) -> None:
        self._log = log
        self._threads = threads
        self._on_failure = on_failure
        self._inline = InlineSyncer(log, on_durable, on_failure, measure)
        self._running: object | None = None  # the newest pass, perhaps waiting for one before it
        self._is_sync_wanted = False
        self._is_closing = False
        self.turn = new_mutex()
        """Held by the thread that works for it."""
        threads.serve(self)

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
        self._threads.wake(self)

    def _pass(self, durability: Durability) -> None:
        this_pass = object()
        try:
            self._running = this_pass
            self._inline.request(durability)
        finally:
            if self._running is this_pass:
                self._running = None

    def work(self) -> bool:
        """Do the pass that is wanted, if one is; False: there was no memory, try again later.

        Its turn is held.
        """
        if not self._is_sync_wanted or self._is_closing:
            return True
        self._is_sync_wanted = False
        try:
            self._pass(Durability.SYNC)
        except MemoryError:
            # As an interrupt: what was begun is gone on with, what is written is not written
            # again. Those who wait go on waiting.
            self._is_sync_wanted = True
            return False
        except Exception as error:
            self._on_failure(InvariantViolation(f"the syncer died: {error!r}"))
            raise
        return True

    def close(self) -> None:
        """Stop, and wait for a pass of the threads; what is not synced yet stays so. Idempotent.

        Not from on_durable or on_failure: it waits for the thread that calls them.
        """
        self._is_closing = True
        self._threads.forget(self)


class SyncThreads:
    """The threads that sync for the logs of all tablespaces, made when they are first needed.

    One for one log, at most sync_threads_max for many; close() ends them. A log has one thread at
    a time: it holds the syncer's turn.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._wanted: dict[GroupSyncer, None] = {}  # whose turn comes, the first to ask first
        # Own mutex.
        self._mutex = new_mutex()
        self._syncers: dict[GroupSyncer, None] = {}
        self._threads: list[_SyncThread] = []
        self._is_closed = False

    def serve(self, syncer: GroupSyncer) -> None:
        """Count a log that may ask, until forget()."""
        with self._mutex:
            self._syncers[syncer] = None

    def wake(self, syncer: GroupSyncer) -> None:
        """Have a thread do the syncer's work() soon. Any thread; an interrupt leaves it asked."""
        self._wanted[syncer] = None  # first: who looks from here on finds it
        with self._mutex:
            self._wake_one()

    def _wake_one(self) -> None:
        """Ring for a thread that sleeps; one that does not looks again before it does. Mutex."""
        if self._is_closed:
            return
        thread = next((each for each in self._threads if not each.is_busy), None)
        if thread is None:
            if len(self._threads) >= min(len(self._syncers), sync_threads_max):
                return
            thread = _SyncThread(self, self._driver.new_bell())
            self._threads.append(thread)
        if thread.worker is None or not thread.worker.is_alive:
            thread.worker = self._driver.spawn("herdpy-syncer", thread.run)
        thread.bell.ring()

    def next_for(self, thread: "_SyncThread") -> GroupSyncer | None:
        """Return whose work() comes now, with its turn taken; None: the thread may sleep."""
        with self._mutex:
            for syncer in list(self._wanted):
                if syncer.turn.acquire(timeout=0):
                    self._wanted.pop(syncer, None)
                    thread.is_busy = True
                    return syncer
            thread.is_busy = False
            return None

    def put_back(self, syncer: GroupSyncer) -> None:
        """Have it done later: its work() has found no memory."""
        self._wanted[syncer] = None

    def died(self, thread: "_SyncThread") -> None:
        """Have others do what a thread leaves that ends by an error."""
        with self._mutex:
            self._threads = [each for each in self._threads if each is not thread]
            if self._wanted:
                self._wake_one()

    def forget(self, syncer: GroupSyncer) -> None:
        """Wait until no thread is at work for a log that is closing; repeatable."""
        with self._mutex:
            self._wanted.pop(syncer, None)
            self._syncers.pop(syncer, None)
        with syncer.turn:
            pass

    def close(self) -> None:
        """End the threads and wait for them; repeatable."""
        with self._mutex:
            self._is_closed = True
            threads = list(self._threads)
        for thread in threads:
            thread.is_ending = True
            thread.bell.ring()
        for thread in threads:
            if thread.worker is not None:
                thread.worker.join()


class _SyncThread:
    """One of the threads."""

    def __init__(self, owner: SyncThreads, bell: Bell) -> None:
        self._owner = owner
        self.bell = bell
        self.is_busy = False  # under the owner's mutex
        self.is_ending = False
        self.worker: Worker | None = None

    def run(self) -> None:
        pause_s: float | None = None
        try:
            while not self.is_ending:
                self.bell.wait(pause_s)
                pause_s = None if self._do_all() else _AGAIN_S
        except BaseException:
            self._owner.died(self)
            raise
        finally:
            self.bell.ring()  # spawn() may have been interrupted and left a second thread

    def _do_all(self) -> bool:
        """Do what is wanted; False: something has found no memory."""
        while True:
            syncer = self._owner.next_for(self)
            if syncer is None:
                return True
            try:
                is_done = syncer.work()
            finally:
                syncer.turn.release()
            if not is_done:
                self._owner.put_back(syncer)
                return False
