"""Background errors that cannot have changed anything: noted, put off, tried again, never final."""

import logging
import threading
from itertools import pairwise
from typing import Any

import pytest

from bookie.runtime.memory_disk import MemoryDisk
from herdpy.engine.maintenance.tasks import MaintenanceTask, Retries
from herdpy.engine.state.applier import Applier
from herdpy.errors import DiskFullError
from herdpy.log.file_log import FileLog
from tests.fixtures.engines import engine, rows, run, table
from tests.sim.clock import SimulatedClock

ALL = "SELECT id, v FROM t ORDER BY id"


class Step:
    """A step that fails as often as it is told to."""

    def __init__(self, error: Exception, times: int) -> None:
        self.error = error
        self.left = times
        self.tries = 0
        self.is_through = threading.Event()

    def __call__(self) -> None:
        self.tries += 1
        if self.left:
            self.left -= 1
            raise self.error
        self.is_through.set()


@pytest.mark.parametrize(
    "error",
    [MemoryError(), OSError(5, "Input/output error"), TypeError("a bug"), DiskFullError("")],
)
def test_a_step_that_fails_is_put_off_and_tried_again(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    clock = SimulatedClock()
    retries, step, other = Retries(clock), Step(error, 6), Step(error, 0)
    tasks = [MaintenanceTask("a step", step), MaintenanceTask("another", other)]
    tried: list[float] = []
    with caplog.at_level(logging.WARNING):
        for _ in range(200):
            before = step.tries
            retries.run(tasks)
            if step.tries > before:
                tried.append(clock.monotonic())
            if step.left:
                ((task, failures, text, _, wait_s),) = retries.rows()
                assert (task, failures) == ("a step", step.tries)
                assert type(error).__name__ in text
                assert 0 <= wait_s <= 16.0
            clock.advance(0.25)
    pauses = [after - before for before, after in pairwise(tried)][:6]
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0]
    assert retries.rows() == []
    assert other.tries == 200  # the others are done meanwhile
    assert caplog.records


def test_what_comes_between_the_steps_is_noted_until_the_next_round() -> None:
    retries = Retries(SimulatedClock())
    retries.note(MemoryError())
    assert [each.task for each in retries.failed] == ["a round"]
    retries.run([])
    assert retries.failed == []


def test_what_fails_is_shown_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimulatedClock()
    with engine(clock=clock) as db:
        session = db.session(autocommit=True)
        table(session, (1, 1))
        database = db.database
        step = Step(MemoryError(), 1)
        monkeypatch.setattr(database, "end_dropped_users", step)
        database.retries.run(database._tasks())
        assert rows(session, "SELECT task, failures, error FROM sysmaintenance") == [
            ("dropped users", 1, "MemoryError: ")
        ]
        clock.advance(1.0)
        database.retries.run(database._tasks())
        assert rows(session, "SELECT * FROM sysmaintenance") == []
        assert step.tries == 2


def test_a_round_that_cannot_begin_does_not_stop_the_database(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with engine(is_threaded=True) as db:
        session = db.session(autocommit=True)
        table(session, (1, 1))
        step = Step(MemoryError(), 3)
        database, tasks = db.database, db.database._session_tasks

        def failing() -> Any:
            step()
            return tasks()

        monkeypatch.setattr(database, "_session_tasks", failing)
        database.instance.wake()
        step.is_through.wait()
        run(session, "INSERT INTO t VALUES (2, 2)")
        assert rows(session, ALL) == [(1, 1), (2, 2)]
        assert database.tablespace.failure is None


@pytest.mark.parametrize("is_threaded", [False, True])
def test_a_commit_that_finds_no_memory_when_it_is_applied_is_applied_later(
    monkeypatch: pytest.MonkeyPatch, *, is_threaded: bool
) -> None:
    disk = MemoryDisk()
    with engine(disk=disk, is_threaded=is_threaded) as db:
        session = db.session(autocommit=True)
        table(session, (1, 1))
        apply, step = Applier.apply, Step(MemoryError(), 1)

        def failing(self: Applier, *arguments: Any) -> None:
            step()
            apply(self, *arguments)

        monkeypatch.setattr(Applier, "apply", failing)
        try:
            run(session, "INSERT INTO t VALUES (2, 2)")
        except MemoryError:
            pass  # the log has it already, as with an interrupt
        run(session, "INSERT INTO t VALUES (3, 3)")
        assert step.tries >= 2
        assert rows(session, ALL) == [(1, 1), (2, 2), (3, 3)]
        assert db.database.tablespace.failure is None
        monkeypatch.undo()
        db.reopen()
        assert rows(db.session(), ALL) == [(1, 1), (2, 2), (3, 3)]


def test_a_syncer_that_finds_no_memory_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with engine(is_threaded=True) as db:
        session = db.session(autocommit=True)
        table(session, (1, 1))
        log, step = db.database.tablespace.log, Step(MemoryError(), 2)
        assert isinstance(log, FileLog)
        sync = log.sync

        def failing(**options: Any) -> None:
            step()
            sync(**options)

        monkeypatch.setattr(log, "sync", failing)
        syncer = db.database.tablespace.syncer
        assert syncer is not None
        syncer.ask(session.settings.durability)  # as a server's loop asks: the thread syncs
        step.is_through.wait()
        run(session, "INSERT INTO t VALUES (2, 2)")
        assert rows(session, ALL) == [(1, 1), (2, 2)]
        assert log.failure is None
