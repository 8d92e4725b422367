"""Staging over every transport: many connections stage rows, one commits them as one."""

import pickle
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from decimal import Decimal

import pyarrow as pa
import pytest

import herdpy


@pytest.fixture
def conn(target: str) -> Iterator[herdpy.Connection]:
    with herdpy.connect(target, autocommit=True) as opened:
        opened.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT NOT NULL, x DOUBLE)")
        yield opened


def _another(conn: herdpy.Connection, target: str) -> AbstractContextManager[herdpy.Connection]:
    """Another connection to the database; one in memory has but one."""
    return nullcontext(conn) if target == ":memory:" else herdpy.connect(target)


def _rows(conn: herdpy.Connection) -> list[tuple[object, ...]]:
    return conn.execute("SELECT id, name, x FROM t ORDER BY id").fetchall()


def _data(*ids: int, name: str = "n") -> pa.Table:
    return pa.table({"id": list(ids), "name": [f"{name}{i}" for i in ids]})


def test_tasks_stage_and_one_commits(conn: herdpy.Connection, target: str) -> None:
    job = conn.begin_staging("t")
    tokens: list[bytes] = []
    for task in range(3):
        with _another(conn, target) as other, other.stage(job, task) as stage:
            assert stage.add(_data(10 * task)) == 1
            assert stage.add(_data(10 * task + 1)) == 2
            tokens.append(pickle.dumps(stage.finish()))
    assert _rows(conn) == []
    assert conn.commit_position(job) is None
    position = conn.commit_staging(job, [pickle.loads(token) for token in tokens])
    assert [row[0] for row in _rows(conn)] == [0, 1, 10, 11, 20, 21]
    assert conn.commit_position(job) == position


@pytest.mark.sync_face
def test_rows_that_a_crash_took_are_noticed_at_the_end(conn: herdpy.Connection) -> None:
    """What a server has answered to add() is durable with finish() only."""
    job = conn.begin_staging("t")
    stage = conn.stage(job, "a")
    stage.add(_data(1))
    stage.row_count += 1  # as if one more had been answered, and was gone after a restart
    with pytest.raises(herdpy.OperationalError, match="has 1 rows, expected 2") as caught:
        stage.finish()
    assert (caught.value.sqlstate, caught.value.retry) == ("40001", herdpy.Retry.SAFE)
    again = conn.stage(job, "a")
    again.add(_data(1, 2))
    conn.commit_staging(job, [again.finish()])
    assert [row[0] for row in _rows(conn)] == [1, 2]


def test_a_job_commits_once(conn: herdpy.Connection) -> None:
    job = conn.begin_staging("t", job="nightly")
    assert conn.begin_staging("t", job="nightly") == job
    stage = conn.stage(job, "a")
    stage.add(_data(1))
    token = stage.finish()
    position = conn.commit_staging(job, [token])
    conn.execute("DELETE FROM t")
    assert conn.commit_staging(job, [token]) == position
    assert _rows(conn) == []
    with pytest.raises(herdpy.ProgrammingError, match="has committed") as caught:
        conn.begin_staging("t", job="nightly")
    assert caught.value.sqlstate == "42710"


def test_only_the_named_attempts_count(conn: herdpy.Connection) -> None:
    job = conn.begin_staging("t")
    first, second = conn.stage(job, 0, 0), conn.stage(job, 0, 1)
    for stage in (first, second):
        stage.add(_data(1, 2))
    first.finish()
    conn.commit_staging(job, [second.finish()])
    assert [row[0] for row in _rows(conn)] == [1, 2]


def test_an_attempt_that_begins_again_begins_anew(conn: herdpy.Connection) -> None:
    job = conn.begin_staging("t")
    lost = conn.stage(job, 0, 0)
    lost.add(_data(1))
    stage = conn.stage(job, 0, 0)
    stage.add(_data(2))
    with pytest.raises(herdpy.OperationalError) as caught:
        lost.add(_data(3))
    assert (caught.value.sqlstate, caught.value.retry) == ("42704", herdpy.Retry.SAFE)
    conn.commit_staging(job, [stage.finish()])
    assert [row[0] for row in _rows(conn)] == [2]


def test_what_is_given_up_is_gone(conn: herdpy.Connection) -> None:
    job = conn.begin_staging("t")
    with conn.stage(job, 0) as stage:
        stage.add(_data(1))
    with pytest.raises(herdpy.OperationalError):
        stage.add(_data(2))
    token = conn.stage(job, 1).finish()
    conn.abort_staging(job)
    conn.abort_staging(job)
    with pytest.raises(herdpy.ProgrammingError) as caught:
        conn.commit_staging(job, [token])
    assert caught.value.sqlstate == "42704"
    assert _rows(conn) == []


@pytest.mark.parametrize(
    ("operation", "data", "expected"),
    [
        ("upsert", _data(2, 3, name="u"), [(1, "n1", 1.5), (2, "u2", None), (3, "u3", None)]),
        ("replace", _data(3, name="u"), [(3, "u3", None)]),
        ("ignore", _data(2, 3, name="u"), [(1, "n1", 1.5), (2, "n2", 2.5), (3, "u3", None)]),
        ("update", pa.table({"ID": [2, 9], "x": [7, 7]}), [(1, "n1", 1.5), (2, "n2", 7.0)]),
        ("delete", pa.table({"id": [1, 9]}), [(2, "n2", 2.5)]),
    ],
)
def test_operations(
    conn: herdpy.Connection, operation: str, data: pa.Table, expected: list[tuple[object, ...]]
) -> None:
    conn.execute("INSERT INTO t VALUES (1, 'n1', 1.5), (2, 'n2', 2.5)")
    job = conn.begin_staging("t", operation=operation, key_columns=["ID"])
    stage = conn.stage(job, 0)
    stage.add(data)
    conn.commit_staging(job, [stage.finish()])
    assert _rows(conn) == expected


@pytest.mark.parametrize("is_in_pages", [False, True])
def test_appending_a_key_twice_names_it(conn: herdpy.Connection, is_in_pages: bool) -> None:
    conn.execute("INSERT INTO t VALUES (7, 'there', NULL)")
    for ids, key in (((1, 7), 7), ((5, 5), 5)):
        job = conn.begin_staging("t")
        stage = conn.stage(job, 0)
        stage.add(_data(*ids))
        token = stage.finish()
        if is_in_pages:
            conn.checkpoint()
        with pytest.raises(herdpy.IntegrityError, match=rf"\(id\)=\({key}\)") as caught:
            conn.commit_staging(job, [token])
        assert caught.value.sqlstate == "23505"
    assert [row[0] for row in _rows(conn)] == [7]


def test_the_first_and_the_last_of_a_key(conn: herdpy.Connection) -> None:
    for operation, name in (("upsert", "last"), ("ignore", "first")):
        conn.execute("DELETE FROM t")
        job = conn.begin_staging("t", operation=operation)
        one, two = conn.stage(job, 0), conn.stage(job, 1)
        one.add(pa.table({"id": [1, 1], "name": ["first", "second"]}))
        conn.checkpoint()
        two.add(pa.table({"id": [1], "name": ["last"]}))
        conn.commit_staging(job, [one.finish(), two.finish()])
        assert _rows(conn) == [(1, name, None)]


def test_a_table_without_key(conn: herdpy.Connection) -> None:
    conn.execute("CREATE TABLE heap (x INTEGER)")
    conn.execute("INSERT INTO heap VALUES (1)")
    job = conn.begin_staging("heap")
    one, two = conn.stage(job, 0), conn.stage(job, 1)
    one.add(pa.table({"x": [1, 1]}))
    conn.execute("INSERT INTO heap VALUES (2)")
    two.add(pa.table({"x": [3]}))
    conn.commit_staging(job, [two.finish(), one.finish()])
    conn.execute("INSERT INTO heap VALUES (4)")
    assert conn.execute("SELECT x FROM heap ORDER BY x").fetchall() == [
        (1,), (1,), (1,), (2,), (3,), (4,)
    ]  # fmt: skip
    with pytest.raises(herdpy.ProgrammingError, match="primary key"):
        conn.begin_staging("heap", operation="upsert")


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (pa.table({"id": [1], "name": [None]}), herdpy.IntegrityError),
        (pa.table({"id": [2**40], "name": ["x"]}), herdpy.DataError),
        (pa.table({"id": [1], "name": ["x"], "y": [1]}), herdpy.ProgrammingError),
    ],
)
def test_rows_that_do_not_fit_are_refused_when_they_come(
    conn: herdpy.Connection, data: pa.Table, error: type[Exception]
) -> None:
    job = conn.begin_staging("t")
    stage = conn.stage(job, 0)
    stage.add(_data(5))
    with pytest.raises(error):
        stage.add(data)
    stage.add(_data(6))
    conn.commit_staging(job, [stage.finish()])
    assert [row[0] for row in _rows(conn)] == [5, 6]


def test_calls_that_are_refused(conn: herdpy.Connection) -> None:
    job = conn.begin_staging("t")
    other = conn.begin_staging("t")
    stage = conn.stage(job, 0)
    stage.add(_data(1))
    finished = conn.stage(other, 0).finish()
    refused = [
        (lambda: conn.begin_staging("t", operation="merge"), "22023"),
        (lambda: conn.begin_staging("missing"), "42P01"),
        (lambda: conn.begin_staging("t", key_columns=["name"]), "42P10"),
        (lambda: conn.begin_staging("t", operation="upsert", job=job), "42710"),
        (lambda: conn.begin_staging("t", job="x" * 201), "22023"),
        (lambda: conn.stage("missing", 0), "42704"),
        (lambda: conn.commit_staging(job, [finished]), "22023"),
        (lambda: conn.commit_staging(job, [finished._replace(job=job)]), "55000"),
        (lambda: conn.commit_staging(other, [finished, finished]), "22023"),
    ]
    for call, sqlstate in refused:
        with pytest.raises(herdpy.Error) as caught:
            call()
        assert caught.value.sqlstate == sqlstate, caught.value
    unfinished = finished._replace(job=job, stage=stage.finish().stage + 1)
    with pytest.raises(herdpy.ProgrammingError):
        conn.commit_staging(job, [unfinished])
    with conn.transaction():
        with pytest.raises(herdpy.ProgrammingError) as caught:
            conn.commit_staging(other, [finished])
        assert caught.value.sqlstate == "25001"


def test_a_dropped_table_takes_its_jobs_along(conn: herdpy.Connection) -> None:
    job = conn.begin_staging("t")
    token = conn.stage(job, 0).finish()
    conn.execute("DROP TABLE t")
    with pytest.raises(herdpy.ProgrammingError) as caught:
        conn.commit_staging(job, [token])
    assert caught.value.sqlstate == "42704"


def test_many_rows_become_pages_of_the_table(conn: herdpy.Connection) -> None:
    conn.execute("INSERT INTO t VALUES (5, 'there', NULL), (70000, 'there', NULL)")
    job = conn.begin_staging("t", operation="upsert")
    odd, even = conn.stage(job, "odd"), conn.stage(job, "even")
    odd.add(_data(*range(1, 40_001, 2)))
    conn.checkpoint()
    even.add(_data(*range(0, 40_001, 2)))
    conn.commit_staging(job, [odd.finish(), even.finish()])
    conn.execute("UPDATE t SET name = 'later' WHERE id = 6")

    def check() -> None:
        facts = conn.execute("SELECT count(*), sum(id), count(DISTINCT name) FROM t").fetchone()
        assert facts == (40_002, sum(range(40_001)) + 70_000, 40_002)
        assert conn.execute("SELECT name FROM t WHERE id IN (5, 6) ORDER BY id").fetchall() == [
            ("n5",),
            ("later",),
        ]

    check()
    conn.checkpoint()
    check()


def test_a_run_knows_its_columns_and_their_defaults(conn: herdpy.Connection) -> None:
    columns = "id BIGINT, n DECIMAL(5,2) DEFAULT 1.5, at TIMESTAMP DEFAULT CURRENT_TIMESTAMP"
    conn.execute(f"CREATE TABLE d ({columns})")
    job = pickle.loads(pickle.dumps(conn.begin_staging("d", job="mine")))
    assert (job, job.run != conn.begin_staging("d", job="mine").run) == ("mine", True)
    described = conn.execute("SELECT * FROM d").description
    assert job.description == described
    assert conn.column_defaults("d") == {"n": (Decimal("1.50"), False), "at": (None, True)}
    with pytest.raises(herdpy.ProgrammingError) as caught:
        conn.column_defaults("no such table")
    assert caught.value.sqlstate == "42P01"
    conn.abort_staging("mine")
    assert conn.execute("SELECT count(*) FROM sysstagings").fetchone() == (0,)
