"""A checkpoint, a compaction and an UPDATE are held at each of their disk steps; others go on."""

import queue
import threading
from collections.abc import Callable

import pytest

from tests.fixtures.engines import Background, Engine, engine, rows, run
from tests.sim.disk import SimulatedDisk

PER_KEY = "SELECT v FROM t WHERE id = ?"
RANGE = "SELECT id, v FROM t WHERE id BETWEEN 10 AND 12"
VECTOR = "SELECT count(*), count(DISTINCT s) FROM t"
ROWS = 300


class Holder:
    """Holds one thread at every step that it does on the disk, until step() is called."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self._reached: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._go: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._held: int | None = None
        disk.latency = self._on_disk

    def _on_disk(self, op: str, path: str) -> None:
        if threading.get_ident() == self._held:
            self._reached.put(f"{op} {path}")
            self._go.get()

    def run(self, function: Callable[[], object]) -> None:
        self._held = threading.get_ident()
        try:
            function()
        finally:
            self._held = None
            self._reached.put(None)

    def next_step(self) -> str | None:
        """Wait until the thread is at its next step; None when it has ended."""
        return self._reached.get()

    def step(self) -> None:
        self._go.put(None)


def filled(db: Engine) -> None:
    session = db.session(autocommit=True)
    run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT, s TEXT)")
    session.execute_many("INSERT INTO t VALUES (?, ?, ?)", [(n, n, f"s{n}") for n in range(ROWS)])
    db.database.run_checkpoint()
    run(session, "UPDATE t SET v = v + 1 WHERE id < 90")
    db.database.run_checkpoint()
    run(session, "UPDATE t SET v = v + 1 WHERE id BETWEEN 30 AND 100")


def expected(key: int) -> int:
    return key + (key < 90) + (30 <= key <= 100)


@pytest.mark.parametrize("work", ["checkpoint", "compaction", "update"])
def test_readers_and_commits_go_on_at_every_step(work: str) -> None:
    disk = SimulatedDisk(1)
    with engine(disk=disk) as db, Background() as background:
        filled(db)
        reader, writer, updater = (db.session(autocommit=True) for _ in range(3))
        rows(reader, VECTOR)
        holder = Holder(disk)
        functions = {
            "checkpoint": db.database.run_checkpoint,
            "compaction": db.database.run_compaction,
            "update": lambda: run(updater, "UPDATE t SET v = -1 WHERE id = 200"),
        }
        background.start(lambda: holder.run(functions[work]))
        steps: list[str] = []
        while (step := holder.next_step()) is not None:
            steps.append(step)
            assert rows(reader, PER_KEY, 35) == [(37,)]
            assert rows(reader, RANGE) == [(n, n + 1) for n in (10, 11, 12)]
            assert rows(reader, VECTOR) == [(ROWS, ROWS)]
            assert rows(reader, PER_KEY, 200) == [(200,)]
            if work != "update":  # two commits share one fsync, so one may wait for the other's
                count = len(steps)
                assert run(writer, "UPDATE t SET v = ? WHERE id = 299", count) == 1
                assert rows(reader, PER_KEY, 299) == [(count,)]
            holder.step()
        print(steps)
        kinds = {step.split()[0] for step in steps}
        assert {"write", "sync"} <= kinds
        if work != "update":
            assert {"open", "sync_directory"} <= kinds
        assert rows(reader, PER_KEY, 200) == [(-1 if work == "update" else 200,)]
        disk.latency = None
        db.reopen()
        found = dict(rows(db.session(), "SELECT id, v FROM t"))
        last = {"update": (299, -1)}.get(work, (len(steps), 200))
        assert (found.pop(299), found.pop(200)) == last
        assert all(found[n] == expected(n) for n in found)


@pytest.mark.parametrize("work", ["checkpoint", "compaction"])
def test_definitions_change_in_place_at_every_step(work: str) -> None:
    """Pages are the same by another definition; behind it checkpoints and compactions go on."""
    disk = SimulatedDisk(1)
    with engine(disk=disk) as db, Background() as background:
        filled(db)
        session = db.session(autocommit=True)
        run(session, "CREATE INDEX t_s ON t (s)")
        run(session, "UPDATE t SET v = v WHERE id < 200")
        database, holder = db.database, Holder(disk)
        function = database.run_checkpoint if work == "checkpoint" else database.run_compaction
        background.start(lambda: holder.run(function))
        count = 0
        while holder.next_step() is not None:
            run(session, f"ALTER TABLE t ALTER v SET DEFAULT {count}")
            count += 1
            holder.step()
        assert count > (2 if work == "checkpoint" else 0)  # a compaction gives way
        disk.latency = None
        run(session, "UPDATE t SET v = v WHERE id < 50")
        db.database.run_checkpoint()
        db.database.run_compaction()
        for _ in range(2):
            found = rows(db.session(), "SELECT id, v FROM t ORDER BY id")
            assert found == [(key, expected(key)) for key in range(ROWS)]
            assert rows(db.session(), "SELECT id FROM t WHERE s = 's7'") == [(7,)]
            db.reopen()
