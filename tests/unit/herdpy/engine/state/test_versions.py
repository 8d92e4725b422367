"""What old snapshots cost, how the budget of versions is kept, and that memory is given back."""

import gc
import tracemalloc
from collections.abc import Iterator

import pytest

from herdpy.config import Config
from herdpy.engine.state.memtable import TRIMMED, Memtable, SnapshotGoneError
from herdpy.engine.state.snapshots import Snapshot
from herdpy.errors import SnapshotTooOldError
from herdpy.model.row_memory import encoded_row_bytes
from herdpy.model.types import Row
from tests.fixtures.engines import Engine, engine, run, table

SNAPSHOTS = 10_000
ALL = "SELECT id, v FROM t ORDER BY id"


@pytest.fixture
def db() -> Iterator[Engine]:
    with engine(config=Config(log_file_bytes_first=64 * 1024, version_memory_bytes=8192)) as made:
        yield made


def all_rows(db: Engine, snapshot: Snapshot) -> list[Row]:
    found = db.database.tablespace.state.catalog.table("t")
    assert found is not None
    return list(snapshot.source(found).rows())


def churn(db: Engine, rounds: int) -> None:
    session = db.session(autocommit=True)
    for _ in range(rounds):
        run(session, "UPDATE t SET v = v + 1")


def test_ten_thousand_snapshots_cost_less_than_four_kilobytes_each(db: Engine) -> None:
    table(db.session(), *((n, n) for n in range(10)))
    space = db.database.tablespace
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        held = [space.snapshot(None) for _ in range(SNAPSHOTS)]
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(space.registry) == SNAPSHOTS
    assert grown < 4096 * SNAPSHOTS
    print(f"{grown / SNAPSHOTS:.0f} bytes for a snapshot")
    for snapshot in held:
        snapshot.close()
    assert not len(space.registry)


def test_the_oldest_snapshot_over_the_budget_fails_with_72000(db: Engine) -> None:
    table(db.session(), *((n, n) for n in range(20)))
    space = db.database.tablespace
    oldest = space.snapshot(None)
    assert len(all_rows(db, oldest)) == 20
    churn(db, 1)
    younger = space.snapshot(None)
    expected = all_rows(db, younger)
    churn(db, 1)
    assert space.version_bytes() > 8192
    db.database.run_maintenance_once()
    with pytest.raises(SnapshotTooOldError) as caught:
        all_rows(db, oldest)
    assert caught.value.sqlstate == "72000"
    assert space.version_bytes() <= 8192
    assert all_rows(db, younger) == expected
    churn(db, 1)  # the writer never fails
    younger.close()
    oldest.close()


def test_a_snapshot_of_the_newest_state_is_never_given_up(db: Engine) -> None:
    table(db.session(), *((n, n) for n in range(20)))
    churn(db, 5)
    snapshot = db.database.tablespace.snapshot(None)
    db.database.tablespace.limit_versions(0)
    assert len(all_rows(db, snapshot)) == 20
    assert db.database.tablespace.registry.is_registered(1) is False
    snapshot.check()
    snapshot.close()


def test_nothing_is_given_up_while_a_reader_enters(db: Engine) -> None:
    writer = db.session(autocommit=True)
    table(db.session(), (1, 0))
    space = db.database.tablespace
    read_state = space.state  # by a reader that comes to narrow() later
    token = space.registry.new_token()
    space.registry.enter(token)
    run(writer, "UPDATE t SET v = 20")
    younger = space.snapshot(None)
    run(writer, "UPDATE t SET v = 30")
    assert space.registry.evict_oldest(space.state.position) == 0
    space.registry.narrow(token, read_state.position)
    run(writer, "UPDATE t SET v = 40")
    assert all_rows(db, younger) == [(1, 20)]
    younger.close()
    space.registry.leave(token)


def test_a_layer_of_a_snapshot_that_was_given_up_brings_nothing_back(db: Engine) -> None:
    writer = db.session(autocommit=True)
    table(db.session(), (1, 0))
    db.database.run_checkpoint()
    space = db.database.tablespace
    found = space.state.catalog.table("t")
    assert found is not None
    run(writer, "UPDATE t SET v = 10")
    oldest = space.snapshot(None)
    run(writer, "UPDATE t SET v = 20")
    younger = space.snapshot(None)
    run(writer, "UPDATE t SET v = 30")
    assert space.registry.evict_oldest(space.state.position, 2) == 2
    layer, _ = oldest.layered(found)
    run(writer, "UPDATE t SET v = 40")
    for snapshot in (oldest, younger, layer):
        for read in (
            lambda source: source.get((1,)),
            lambda source: list(source.rows()),
            lambda source: source.arrow([0, 1], []),
        ):
            with pytest.raises(SnapshotTooOldError):
                read(snapshot.source(found))
    for snapshot in (layer, younger, oldest):
        snapshot.close()


def test_a_layer_keeps_the_registration_of_its_snapshot(db: Engine) -> None:
    table(db.session(), (1, 0))
    space = db.database.tablespace
    found = space.state.catalog.table("t")
    assert found is not None
    snapshot = space.snapshot(None)
    layer, _ = snapshot.layered(found)
    layer.close()
    del layer
    snapshot.check()
    layer, _ = snapshot.layered(found)
    del snapshot
    layer.check()
    del layer
    gc.collect()
    assert not len(space.registry)


def test_versions_that_nobody_needs_go_without_giving_up_a_snapshot(db: Engine) -> None:
    table(db.session(), *((n, n) for n in range(50)))
    space = db.database.tablespace
    held = space.snapshot(None)
    churn(db, 3)
    held.close()  # what it kept is not trimmed before the same row is written again
    kept = space.snapshot(None)
    assert space.version_bytes() > 8192
    db.database.run_maintenance_once()
    assert space.version_bytes() == 0
    kept.check()
    kept.close()


def test_a_retired_memtable_counts_and_is_given_back(db: Engine) -> None:
    table(db.session())
    space = db.database.tablespace
    writer = db.session(autocommit=True)
    tracemalloc.start()
    try:
        start = tracemalloc.get_traced_memory()[0]
        writer.execute_many("INSERT INTO t VALUES (?, ?)", [(n, n) for n in range(5000)])
        old = space.snapshot(None)
        # Reads have begun: a cursor in the middle of the memtable.
        found = space.state.catalog.table("t")
        assert found is not None
        started = old.source(found).rows()
        assert next(started) == (0, 0)
        assert db.database.run_checkpoint()
        assert space.version_bytes() > 5000 * 100
        run(writer, "UPDATE t SET v = 0 WHERE id = 1")
        gc.collect()
        before = tracemalloc.get_traced_memory()[0] - start
        db.database.run_maintenance_once()
        after = tracemalloc.get_traced_memory()[0] - start
    finally:
        tracemalloc.stop()
    assert before - after > 5000 * 80
    assert space.version_bytes() == 0
    with pytest.raises(SnapshotTooOldError):
        list(started)
    with pytest.raises(SnapshotTooOldError):
        all_rows(db, old)
    with pytest.raises(SnapshotTooOldError):
        old.source(found).get((5,))
    with pytest.raises(SnapshotTooOldError):
        old.source(found).arrow([0, 1], [])
    old.close()


def test_a_memtable_given_up_reads_as_trimmed() -> None:
    memtable = Memtable()
    memtable.put((1,), (1, "x"), 1, 8, None)
    memtable.give_up()
    assert memtable.chains.get((1,)) is TRIMMED
    assert memtable.chains
    with pytest.raises(SnapshotGoneError):
        memtable.spans(None, None, low_open=False, high_open=False)
    with pytest.raises(SnapshotGoneError):
        memtable.chains.copy()


ROWS = {
    "one": lambda n: (n,),
    "mixed": lambda n: (n, f"text of row {n}", n + 1000, float(n), None),
    "numbers": lambda n: (n, *range(n, n + 20)),
    "texts": lambda n: (n, *(f"text {n} {column}" for column in range(40))),
    "nulls": lambda n: (n, *[None] * 40),
    "long": lambda n: (n, f"{n}" * 200),
}


@pytest.mark.parametrize("kind", ROWS)
def test_the_count_of_bytes_is_within_twice_of_the_truth(kind: str) -> None:
    import msgspec

    make = ROWS[kind]
    start = 10**6
    size = encoded_row_bytes(len(msgspec.msgpack.encode(make(start))), len(make(start)))
    for updates in (0, 1):
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            memtable = Memtable()
            for n in range(start, start + 5000):
                row = make(n)
                memtable.put_all([((row[0],), row)], n, size, lambda: None)
            for n in range(start, start + 5000 * updates):
                row = make(n)
                memtable.put_all([((row[0],), row)], n + 5000, size, lambda: None)
            memtable.spans(None, None, low_open=False, high_open=False)
            truth = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert truth / 2 < memtable.byte_count < truth * 2


@pytest.mark.parametrize(
    "text", ["SELECT v FROM t", "SELECT count(*) FROM t", "SELECT v, count(*) FROM t GROUP BY v"]
)
def test_a_result_that_was_read_to_its_end_keeps_no_snapshot(text: str) -> None:
    with engine() as db:
        session = db.session(autocommit=True)
        table(session, (1, 10), (2, 20))
        result = session.execute(text)
        assert len(db.database.tablespace.registry) == 1
        assert list(result.rows())
        assert len(db.database.tablespace.registry) == 0


def test_a_result_that_was_read_as_arrow_keeps_no_snapshot() -> None:
    with engine() as db:
        session = db.session(autocommit=True)
        session.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        session.execute("INSERT INTO t VALUES (1), (2)")
        result = session.execute("SELECT id, count(*) FROM t GROUP BY id")
        assert result.arrow_batches(100).read_all().num_rows == 2
        assert db.database.tablespace.registry._positions == {}
        result.close()


def test_what_a_reader_needs_that_enters_is_not_trimmed(db: Engine) -> None:
    """What it needs is not known before it has said at which position it reads."""
    table(db.session(), *((n, n) for n in range(20)))
    space = db.database.tablespace
    state, token = space.state, space.registry.new_token()
    space.registry.enter(token)
    churn(db, 50)
    space.limit_versions(0)
    late = Snapshot(space.registry, lambda: state, None)
    assert all_rows(db, late) == [(n, n) for n in range(20)]
    late.close()
    space.registry.leave(token)
    space.limit_versions(0)
    with pytest.raises(SnapshotTooOldError):  # nothing keeps them any more
        all_rows(db, Snapshot(space.registry, lambda: state, None))
