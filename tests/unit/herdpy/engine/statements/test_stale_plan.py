"""A table dropped or made anew between a statement's plan and its snapshot: planned again."""

from collections.abc import Iterator

import pytest

from herdpy.engine.state.snapshots import Snapshot
from herdpy.engine.state.tablespace import Tablespace
from herdpy.engine.state.transactions import Transaction
from herdpy.errors import ProgrammingError
from tests.fixtures.engines import Engine, engine, rows, run, table

STATEMENTS = {
    "row path": "SELECT v FROM t WHERE id >= 1",
    "vector path": "SELECT sum(v) FROM t GROUP BY id % 1",
    "from a query": "INSERT INTO u SELECT id, v FROM t",
}


@pytest.fixture
def db() -> Iterator[Engine]:
    with engine() as made:
        yield made


def before_snapshot(
    db: Engine, monkeypatch: pytest.MonkeyPatch, texts: list[str], *, times: int = 1
) -> None:
    """Let another session run statements just before the next snapshots are taken."""
    other = db.session(autocommit=True)
    left = [times]

    def snapshot(self: Tablespace, transaction: Transaction | None) -> Snapshot:
        if left[0]:
            left[0] -= 1
            depth, left[0] = left[0], 0
            for text in texts:
                run(other, text)
            left[0] = depth
        return original(self, transaction)

    original = Tablespace.snapshot
    monkeypatch.setattr(Tablespace, "snapshot", snapshot)


@pytest.mark.parametrize("path", STATEMENTS)
def test_a_table_made_anew_is_read_as_it_is_now(
    db: Engine, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    a = db.session(autocommit=True)
    run(a, "CREATE TABLE u (id BIGINT PRIMARY KEY, v BIGINT)")
    table(a, (1, 10))
    remake = [
        "DROP TABLE t",
        "CREATE TABLE t (id BIGINT PRIMARY KEY, w TEXT, v BIGINT)",
        "INSERT INTO t VALUES (1, 'x', 77)",
    ]
    before_snapshot(db, monkeypatch, remake)
    if path == "from a query":
        assert run(a, STATEMENTS[path]) == 1
        assert rows(a, "SELECT v FROM u") == [(77,)]
    else:
        assert rows(a, STATEMENTS[path]) == [(77,)]
    assert not db.locks


@pytest.mark.parametrize("change", ["RENAME v TO w", "ADD w BIGINT", "ALTER v TYPE TEXT"])
@pytest.mark.parametrize("condition", ["v < 100", "v % 1000 < 100"])
def test_a_table_that_was_altered_is_read_as_it_is_now(
    db: Engine, monkeypatch: pytest.MonkeyPatch, change: str, condition: str
) -> None:
    a = db.session(autocommit=True)
    run(a, "CREATE TABLE n (id BIGINT PRIMARY KEY, v BIGINT NOT NULL)")
    run(a, "INSERT INTO n VALUES (1, 10)")
    alter = ["ALTER TABLE n ALTER v DROP NOT NULL", "INSERT INTO n VALUES (2, NULL)"]
    before_snapshot(db, monkeypatch, alter)
    assert rows(a, f"SELECT id FROM n WHERE {condition}") == [(1,)]
    before_snapshot(db, monkeypatch, [f"ALTER TABLE n {change}"])
    if change == "ADD w BIGINT":
        assert rows(a, "SELECT * FROM n WHERE id = 1") == [(1, 10, None)]
    elif change == "RENAME v TO w":
        with pytest.raises(ProgrammingError):
            rows(a, "SELECT v FROM n WHERE id = 1")
    else:
        assert rows(a, "SELECT v FROM n WHERE id = 1") == [("10",)]


@pytest.mark.parametrize("path", STATEMENTS)
def test_a_dropped_table_is_an_error_and_not_empty(
    db: Engine, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    a = db.session()
    run(a, "CREATE TABLE u (id BIGINT PRIMARY KEY, v BIGINT)")
    a.commit()
    table(a, (1, 10))
    before_snapshot(db, monkeypatch, ["DROP TABLE t"])
    with pytest.raises(ProgrammingError) as caught:
        rows(a, STATEMENTS[path])
    assert caught.value.sqlstate == "42P01"
    a.commit()


def test_a_table_that_never_stands_still_ends_with_an_error(
    db: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = db.session(autocommit=True)
    table(a, (1, 10))
    remake = ["DROP TABLE t", "CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)"]
    before_snapshot(db, monkeypatch, remake, times=10_000)
    with pytest.raises(ProgrammingError) as caught:
        rows(a, STATEMENTS["row path"])
    assert caught.value.sqlstate == "42P01"


def test_a_transaction_reads_the_table_that_it_has_made(db: Engine) -> None:
    a = db.session()
    run(a, "CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
    run(a, "INSERT INTO t VALUES (1, 2)")
    assert rows(a, STATEMENTS["row path"]) == [(2,)]
    assert rows(a, STATEMENTS["vector path"]) == [(2,)]
    a.execute_many("UPDATE t SET v = ? WHERE id = ?", [(5, 1), (6, 1)])
    assert rows(a, STATEMENTS["row path"]) == [(6,)]
