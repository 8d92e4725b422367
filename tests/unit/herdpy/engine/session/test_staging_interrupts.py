"""Ctrl-C before any line of a staging, its commit or a large ingest: wholly or not at all."""

from collections.abc import Callable
from itertools import count

import pyarrow as pa
import pytest

import herdpy
from bookie.runtime.memory_disk import MemoryDisk
from herdpy.driver import local
from herdpy.driver.staging import StageToken
from herdpy.engine.database import Database
from herdpy.engine.session import ingest
from herdpy.engine.state import page_adoption
from herdpy.model.settings import Settings
from tests.fixtures.interrupts import LineInterrupter
from tests.unit.herdpy.engine.test_keyboard_interrupt import FIRST_LINE, STRIDE

_OLD = [(number, 0) for number in range(0, 40, 4)]
_NEW = {"id": list(range(30)), "v": [1] * 30}
_AFTER = sorted({**dict(_OLD), **dict.fromkeys(range(30), 1)}.items())


class _World:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, has_pages: bool) -> None:
        disk = MemoryDisk()
        monkeypatch.setattr(local, "MemoryDisk", lambda: disk)
        self.conn = herdpy.connect(":memory:", autocommit=True)
        self.conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
        self.conn.executemany("INSERT INTO t VALUES (?, ?)", _OLD)
        if has_pages:
            self.conn.checkpoint()
        database = self.conn._claim._shared.database  # pyright: ignore[reportAttributeAccessIssue]
        assert isinstance(database, Database)
        self.database = database
        self.other = database.session(Settings(lock_timeout_s=5.0), autocommit=True)
        self.token: StageToken | None = None

    def stage(self) -> None:
        job = self.conn.begin_staging("t", operation="upsert", job="job")
        with self.conn.stage(job, 0) as stage:
            stage.add(pa.table(_NEW))
            self.token = stage.finish()

    def commit(self) -> None:
        assert self.token is not None
        self.conn.commit_staging("job", [self.token])

    def ingest(self) -> None:
        self.conn.ingest("t", pa.table(_NEW), mode="upsert")

    def content(self) -> list[tuple[object, ...]]:
        return list(self.other.execute("SELECT id, v FROM t ORDER BY id").rows())

    def check(self) -> None:
        """Look for what an interrupt may have left: locks, maintenance that never ends."""
        for connection in (self.conn, self.other):
            connection.execute("UPDATE t SET v = v WHERE id = 4")
        assert self.database.tablespace.locks.held() == {}
        self.conn.checkpoint()
        self.conn.checkpoint()

    def staged(self) -> list[tuple[object, ...]]:
        return list(self.other.execute("SELECT job FROM sysstagings").rows())


def _stage_again(world: _World) -> None:
    world.stage()
    world.commit()
    assert world.content() == _AFTER


def _commit_again(world: _World) -> None:
    assert world.content() in (_OLD, _AFTER)
    world.commit()
    assert world.content() == _AFTER


def _nothing_left(world: _World) -> None:
    assert world.content() in (_OLD, _AFTER)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("prepare", "act", "go_on"),
    [
        (None, _World.stage, _stage_again),
        (_World.stage, _World.commit, _commit_again),
        (None, _World.ingest, _nothing_left),
    ],
    ids=["stage", "commit", "ingest"],
)
def test_an_interrupt_at_any_line(
    monkeypatch: pytest.MonkeyPatch,
    prepare: Callable[[_World], None] | None,
    act: Callable[[_World], None],
    go_on: Callable[[_World], None],
) -> None:
    for module in (page_adoption, ingest):
        monkeypatch.setattr(module, "FEW_ROWS", 5)
    for number in count(FIRST_LINE, STRIDE):
        world = _World(monkeypatch, has_pages=number % 2 == 0)
        if prepare is not None:
            prepare(world)
        interrupter = LineInterrupter(number)
        try:
            with interrupter:
                act(world)
        except KeyboardInterrupt:
            pass
        try:
            world.check()
            go_on(world)
            world.check()
            assert world.staged() == []
        except BaseException as error:
            error.add_note(f"interrupted at line {number}: {interrupter.where}")
            raise
        world.conn.close()
        if not interrupter.where:
            return
