"""The vector path's view of a table is what the row path reads, whatever was cached before."""

import random
from collections.abc import Iterator

import pytest

from herdpy.engine.maintenance.checkpoint import freeze
from herdpy.engine.state import overlay as overlay_module
from herdpy.engine.state import snapshots as snapshots_module
from herdpy.engine.state.snapshots import Snapshot
from herdpy.engine.state.transactions import Transaction
from herdpy.errors import QueryCanceledError
from herdpy.model.governor import Governor
from herdpy.model.types import Row
from herdpy.storage import arrow
from tests.fixtures.engines import Engine, engine, run, table

ROUNDS = 250


@pytest.fixture
def db() -> Iterator[Engine]:
    with engine() as made:
        yield made


def by_arrow(db: Engine, snapshot: Snapshot, name: str = "t") -> list[Row]:
    found = snapshot.state.catalog.table(name)
    assert found is not None
    batch = snapshot.source(found).arrow(range(len(found.columns)), [])
    live = batch.column("__live").to_pylist()
    columns = [batch.column(f"c{ordinal}").to_pylist() for ordinal in range(len(found.columns))]
    rows = [row for row, is_live in zip(zip(*columns, strict=True), live, strict=True) if is_live]
    return sorted(rows)


def by_rows(snapshot: Snapshot, name: str = "t") -> list[Row]:
    found = snapshot.state.catalog.table(name)
    assert found is not None
    return sorted(snapshot.source(found).rows())


POINT = "SELECT * FROM t WHERE id = ?"
KEYS = range(140)


def agree(db: Engine, snapshot: Snapshot, transaction: Transaction | None = None) -> list[Row]:
    """Return the rows of t at a snapshot, which every reader sees alike."""
    found = snapshot.state.catalog.table("t")
    read = db.database.plans.latest[POINT].read_row
    assert found is not None
    assert read is not None
    expected = by_rows(snapshot)
    assert snapshot.source(found).count() == len(expected)
    assert by_arrow(db, snapshot) == expected
    source = snapshot.source(found)
    assert list(source.range(None, None, is_reverse=True)) == expected[::-1]
    by_key = [row for key in KEYS if (row := source.get((key,))) is not None]
    points = [read((key,), snapshot.state, transaction) for key in KEYS]
    snapshot.restrict(found, (10,), (30,))
    part = snapshot.source(found)
    in_part = [row for row in expected if 10 <= row[0] < 30]
    assert sorted(part.rows()) == in_part == by_arrow(db, snapshot)
    assert part.count() == len(in_part)
    assert by_key == expected
    assert [row for rows in points for row in rows or ()] == expected
    return expected


def test_random_histories(db: Engine, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small chunks; snapshots held for a while; freezes without an end, as in a checkpoint."""
    monkeypatch.setattr(overlay_module, "_CHUNK_ROWS", 8)
    monkeypatch.setattr(overlay_module, "_REBUILD_ROWS_MIN", 24)
    monkeypatch.setattr(snapshots_module, "_BLOCK_KEYS_FIRST", 2)
    monkeypatch.setattr(snapshots_module, "_BLOCK_KEYS_MAX", 3)
    rng = random.Random(seed)
    space = db.database.tablespace
    writer = db.session(autocommit=True)
    open_one = db.session()
    table(writer, *((n, n) for n in range(20)))
    writer.execute(POINT, (1,)).close()
    held: list[tuple[Snapshot, list[Row]]] = []
    for _ in range(ROUNDS):
        chance = rng.random()
        key = rng.randrange(40)
        if chance < 0.35:
            run(writer, "UPSERT INTO t VALUES (?, ?)", key, rng.randrange(1000))
        elif chance < 0.45:
            low = rng.randrange(40)
            run(writer, "UPDATE t SET v = v + 1 WHERE id BETWEEN ? AND 99", low)
        elif chance < 0.55:
            run(writer, "DELETE FROM t WHERE id BETWEEN ? AND ?", key, key + 1)
        elif chance < 0.60:
            db.database.run_checkpoint()
        elif chance < 0.63:
            db.database.run_compaction()
        elif chance < 0.66:
            freeze(space)  # as a checkpoint that then fails
        elif chance < 0.70:
            snapshot = space.snapshot(None)
            held.append((snapshot, by_rows(snapshot)))
        elif chance < 0.75:
            key = 100 + rng.randrange(30)
            run(open_one, "UPSERT INTO t VALUES (?, ?)", key, rng.randrange(1000))
        elif chance < 0.78:
            rng.choice([open_one.commit, open_one.rollback])()
        if rng.random() < 0.5:
            snapshot = space.snapshot(None)
            agree(db, snapshot)
            snapshot.close()
        if rng.random() < 0.3:
            transaction = open_one.transaction
            snapshot = space.snapshot(transaction)
            agree(db, snapshot, transaction)
            snapshot.close()
        if held and rng.random() < 0.1:
            snapshot, expected = held.pop(rng.randrange(len(held)))
            assert agree(db, snapshot) == expected
            snapshot.close()
    for snapshot, expected in held:
        assert agree(db, snapshot) == expected
        snapshot.close()
    open_one.rollback()


def test_a_query_after_a_small_commit_looks_only_at_what_it_changed(
    db: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 3 * overlay_module._CHUNK_ROWS
    writer = db.session(autocommit=True)
    table(writer, *((n, n) for n in range(count)))
    space = db.database.tablespace
    decided: list[object] = []
    converted: list[int] = []
    decide, convert = overlay_module.Overlay._decide, arrow.rows_batch

    def counting_decide(self, key, *rest):
        decided.append(key)
        decide(self, key, *rest)

    def counting_convert(table, ordinals, rows):
        converted.append(len(rows))
        return convert(table, ordinals, rows)

    monkeypatch.setattr(overlay_module.Overlay, "_decide", counting_decide)
    monkeypatch.setattr(arrow, "rows_batch", counting_convert)
    assert len(by_arrow(db, space.snapshot(None))) == count
    assert not decided  # the first ones, at once
    assert sum(converted) == count
    decided.clear()
    converted.clear()
    run(writer, "UPDATE t SET v = 0 WHERE id = 7")
    run(writer, "DELETE FROM t WHERE id = 8")
    snapshot = space.snapshot(None)
    assert by_arrow(db, snapshot) == by_rows(snapshot)
    assert sorted(set(decided)) == [(7,), (8,)]
    assert converted == [1]
    snapshot.close()


def test_kept_arrays_are_bounded(db: Engine) -> None:
    count = 3 * overlay_module._CHUNK_ROWS
    writer = db.session(autocommit=True)
    table(writer, *((n, n) for n in range(count)))
    space = db.database.tablespace
    # One chunk of two columns has 64 KiB; what is known of the keys is held before.
    bytes_max = overlay_module._PLACE_BYTES * count + 100_000
    space.registry.caches = caches = Governor().root.child("caches", bytes_max)
    for _ in range(2):
        snapshot = space.snapshot(None)
        assert len(by_arrow(db, snapshot)) == count
        snapshot.close()
    (state,) = space.state.tables.values()
    assert 0 < state.memtable.overlay._array_bytes <= 100_000
    assert caches.bytes_used <= bytes_max
    db.database.run_checkpoint()
    caches.reserve("who comes next").grow_to(1)  # closes what the collector has let go
    assert caches.bytes_used < bytes_max // 2


def test_an_interrupt_while_catching_up_leaves_nothing_wrong(
    db: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = db.session(autocommit=True)
    table(writer, *((n, n) for n in range(50)))
    space = db.database.tablespace
    by_arrow(db, space.snapshot(None))
    run(writer, "UPDATE t SET v = v + 1")
    decide = overlay_module.Overlay._decide
    left = [20]

    def interrupted(self, key, *rest):
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        decide(self, key, *rest)

    monkeypatch.setattr(overlay_module.Overlay, "_decide", interrupted)
    snapshot = space.snapshot(None)
    with pytest.raises(KeyboardInterrupt):
        by_arrow(db, snapshot)
    assert by_arrow(db, snapshot) == by_rows(snapshot)
    snapshot.close()


def test_a_cancel_anywhere_leaves_an_overlay_that_goes_on(
    db: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows in memory over rows in pages, of which the transaction has changed some."""
    monkeypatch.setattr(overlay_module, "_CHUNK_ROWS", 8)
    monkeypatch.setattr(overlay_module, "_CHECK_KEYS", 3)
    session = db.session(autocommit=True)
    table(session, *((n, n) for n in range(30)))
    session.execute(POINT, (1,)).close()
    db.database.run_checkpoint()
    run(session, "UPDATE t SET v = v + 1 WHERE id < 20")
    run(session, "INSERT INTO t SELECT id + 100, v FROM t")

    def cancelled_at(number: int) -> int:
        """Read with a cancel at that look; return how many looks there were."""
        looks = 0

        def check() -> None:
            nonlocal looks
            looks += 1
            if looks == number:
                raise QueryCanceledError("stop")

        snapshot = db.database.tablespace.snapshot(None)
        snapshot.check_interrupt = check
        try:
            by_arrow(db, snapshot)
        except QueryCanceledError:
            assert looks == number
        finally:
            snapshot.close()
        return looks

    expected = sorted(
        [(n, n + (n < 20)) for n in range(30)] + [(n + 100, n + (n < 20)) for n in range(30)]
    )
    number = 0
    while True:
        number += 1
        run(session, "UPDATE t SET v = v + 0")  # there is something to catch up with
        is_over = cancelled_at(number) < number
        snapshot = db.database.tablespace.snapshot(None)
        assert agree(db, snapshot) == expected
        snapshot.close()
        if is_over:
            break
    assert number > 20
