"""Records of single inserted rows are taken in many at once, and make what one by one makes."""

import random
from decimal import Decimal
from typing import Any

import pytest

from herdpy.engine.state.applier import Applier
from herdpy.engine.state.transactions import UsedToken
from tests.fixtures.digest import state_digest
from tests.fixtures.engines import Engine
from tests.sim.disk import SimulatedDisk


def written(seed: int) -> SimulatedDisk:
    """Return the disk of a database with all kinds of writes in its log, mostly single rows."""
    rng = random.Random(seed)
    engine = Engine(disk=SimulatedDisk(seed))
    session = engine.session(autocommit=True)
    session.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
    session.execute("CREATE TABLE d (id BIGINT PRIMARY KEY, v NUMERIC(30, 2))")
    session.execute("CREATE TABLE heap (v TEXT)")
    other = engine.session()
    other.execute("INSERT INTO t VALUES (?, ?)", (-1, "open"))
    tokens = 0
    for number in range(700):
        table = rng.choice(("t", "t", "t", "d", "heap"))
        value: Any = Decimal(number) / 4 if table == "d" else "x" * rng.randrange(300)
        session.token = None
        if rng.random() < 0.2:
            tokens += 1
            session.token = UsedToken((session.token_session, tokens), tokens - 1)
        if table == "heap":
            session.execute("INSERT INTO heap VALUES (?)", (value,))
        elif number > 5 and rng.random() < 0.1:
            session.execute(f"DELETE FROM {table} WHERE id = ?", (rng.randrange(number),))
        elif number > 5 and rng.random() < 0.1:
            some = rng.randrange(number)
            session.execute(f"UPDATE {table} SET v = ? WHERE id = ?", (value, some))
        else:
            key = rng.randrange(number + 1) if rng.random() < 0.1 else number
            session.execute(f"UPSERT INTO {table} VALUES (?, ?)", (key, value))
    session.token = None
    for text in ("INSERT INTO t VALUES (?, 'a')", "DELETE FROM t WHERE id = ?"):
        session.execute(text, (10_000,))
    session.execute("INSERT INTO t VALUES (?, 'b')", (10_000,))  # not new any more
    engine.database.tablespace.log.sync()
    assert isinstance(engine.disk, SimulatedDisk)
    return engine.disk.restart(seed, is_power_lost=False)


def facts(disk: SimulatedDisk) -> list[object]:
    """Return what an open makes of the log, counters and all."""
    engine = Engine(disk=disk)
    applier = engine.database.tablespace.applier
    state = applier.state
    memtables = [
        (each.memtable.byte_count, each.memtable.chains, each.memtable.touched)
        for each in state.tables.values()
    ]
    found = [state_digest(engine.database.tablespace), state.position, state.lsn, memtables]
    return [*found, applier.next_row_id, applier.tokens.to_plain(), sorted(applier.transactions)]


@pytest.mark.parametrize("seed", range(4))
def test_runs_make_what_single_records_make(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = written(seed)
    runs: list[int] = []
    replay_inserts = Applier.replay_inserts

    def note(self: Applier, run: Any) -> bool:
        is_done = replay_inserts(self, run)
        runs.append(len(run) if is_done else 0)
        return is_done

    with monkeypatch.context() as patch:
        patch.setattr(Applier, "replay_inserts", note)
        found = facts(disk.restart(1, is_power_lost=False))
    assert max(runs) > 3
    assert 0 in runs
    assert any(number == 0 for number in runs) or seed in (1, 2)
    monkeypatch.setattr(Applier, "replay_inserts", lambda self, run: False)
    assert facts(disk.restart(2, is_power_lost=False)) == found
