"""Findings about staging that need no Spark: several programs under the name of one job."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import herdpy

ServeCall = Callable[..., Any]


@pytest.fixture
def url(serve: ServeCall) -> str:
    url: str = serve().url
    with herdpy.connect(url, autocommit=True) as conn:
        conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
    return url


@pytest.fixture
def programs(url: str) -> Iterator[tuple[herdpy.Connection, herdpy.Connection]]:
    """Two programs that know nothing of each other, on connections of their own."""
    with (
        herdpy.connect(url, autocommit=True) as first,
        herdpy.connect(url, autocommit=True) as second,
    ):
        yield first, second


def staged(conn: herdpy.Connection, job: str, program: str, *ids: int) -> Any:
    """Stage rows as the one task of a program; return the token."""
    with conn.stage(job, 0, program) as stage:
        stage.add([{"id": number, "v": program} for number in ids])
        return stage.finish()


def refusal(act: Callable[[], object]) -> tuple[str, str]:
    """Return SQLSTATE and text of an error; a success is ("", what it gave)."""
    try:
        found = act()
    except herdpy.Error as error:
        return error.sqlstate or "", str(error)
    return "", repr(found)


def rows(conn: herdpy.Connection) -> list[tuple[Any, ...]]:
    return conn.execute("SELECT id, v FROM t ORDER BY id").fetchall()


@pytest.mark.finding("K1")
def test_two_runs_of_one_job_never_both_succeed(
    programs: tuple[herdpy.Connection, herdpy.Connection],
) -> None:
    first, second = programs
    mine, other = (conn.begin_staging("t", job="nightly") for conn in programs)
    tokens = [staged(first, mine, "a", 1, 2)], [staged(second, other, "b", 3, 4)]
    position = first.commit_staging(mine, tokens[0])
    sqlstate, text = refusal(lambda: second.commit_staging(other, tokens[1]))
    assert sqlstate == "42710", f"its rows are not in the table, and it was told {text}"
    assert f"has committed at {position}" in text
    assert "are not written" in text
    assert first.commit_staging(mine, tokens[0]) == position  # the same ones are no other commit
    assert rows(first) == [(1, "a"), (2, "a")]


@pytest.mark.finding("K1")
@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_a_restart_does_not_forget_what_was_committed(
    serve: ServeCall, tmp_path: Path, *, has_checkpoint: bool
) -> None:
    server = serve(directory=tmp_path / "again")
    with herdpy.connect(server.url, autocommit=True) as conn:
        conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
        job = conn.begin_staging("t", job="nightly")
        token, other = staged(conn, job, "a", 1), staged(conn, job, "b", 2)
        position = conn.commit_staging(job, [token])
        if has_checkpoint:
            conn.checkpoint()
    server.process.kill()
    server.process.wait()
    with herdpy.connect(serve(directory=tmp_path / "again").url, autocommit=True) as conn:
        assert conn.commit_staging("nightly", [token]) == position
        assert refusal(lambda: conn.commit_staging("nightly", [other]))[0] == "42710"
        assert refusal(lambda: conn.commit_staging("nightly", [token, other]))[0] == "42710"
        assert rows(conn) == [(1, "a")]


@pytest.mark.finding("K2")
def test_a_failing_duplicate_gives_up_its_own_run(
    programs: tuple[herdpy.Connection, herdpy.Connection],
) -> None:
    healthy, failing = programs
    mine, other = (conn.begin_staging("t", job="nightly") for conn in programs)
    token = staged(healthy, mine, "healthy", 1, 2)
    staged(failing, other, "failing", 3)
    failing.abort_staging(other)
    counts = healthy.execute("SELECT stages, row_count FROM sysstagings").fetchall()
    assert counts == [(1, 2)]
    sqlstate, text = refusal(lambda: healthy.commit_staging(mine, [token]))
    assert sqlstate == "", text
    assert rows(healthy) == [(1, "healthy"), (2, "healthy")]


@pytest.mark.finding("K2")
def test_the_last_run_takes_the_job_with_it(
    programs: tuple[herdpy.Connection, herdpy.Connection],
) -> None:
    """Also one that has staged nothing yet keeps it: what it begins later is good."""
    first, second = programs
    mine, other = (conn.begin_staging("t", job="nightly") for conn in programs)
    first.abort_staging(mine)
    sqlstate, text = refusal(lambda: staged(second, other, "b", 1))
    assert sqlstate == "", text
    second.abort_staging(other)
    assert first.execute("SELECT count(*) FROM sysstagings").fetchone() == (0,)


@pytest.fixture
def of_users(tmp_path: Path, serve: ServeCall) -> dict[str, str]:
    """URLs of ann and bob, who may insert into t and not read it, by their names."""
    with herdpy.connect(tmp_path / "users", autocommit=True) as conn:
        conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
        for name in ("ann", "bob"):
            conn.execute(f"CREATE USER {name} PASSWORD ?", ("a password of words",))
            conn.execute(f"GRANT INSERT ON t TO {name}")
    url = serve(directory=tmp_path / "users").url
    return {name: url.replace("//", f"//{name}@") for name in ("ann", "bob")}


@pytest.mark.finding("K10")
def test_positions_of_other_users_jobs_are_theirs(of_users: dict[str, str]) -> None:
    with (
        herdpy.connect(of_users["ann"], password="a password of words", autocommit=True) as ann,
        herdpy.connect(of_users["bob"], password="a password of words", autocommit=True) as bob,
    ):
        job = ann.begin_staging("t", job="payroll")
        position = ann.commit_staging(job, [staged(ann, job, "a", 1)])
        assert ann.commit_position("payroll") == position
        sqlstate, text = refusal(lambda: bob.commit_position("payroll"))
        assert sqlstate == "42501", f"bob was told {text}"
        assert position not in refusal(lambda: bob.begin_staging("t", job="payroll"))[1]


@pytest.mark.finding("K7")
def test_a_user_who_may_only_insert_is_told_the_columns(of_users: dict[str, str]) -> None:
    password = "a password of words"
    with herdpy.connect(of_users["ann"], password=password, autocommit=True) as ann:
        job = ann.begin_staging("t")
        columns = [column[:2] for column in getattr(job, "description", ())]
        assert columns == [("id", "BIGINT"), ("v", "TEXT")]


@pytest.mark.finding("K10")
def test_text_without_utf_8_is_refused_by_its_row(url: str) -> None:
    import pyarrow as pa

    data = b"goodb\xff\xfedgood"
    offsets = pa.py_buffer(b"".join(n.to_bytes(4, "little") for n in (0, 4, 8, 12)))
    texts = pa.StringArray.from_buffers(3, offsets, pa.py_buffer(data))
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2, 3]), texts], names=["id", "v"])
    with herdpy.connect(url, autocommit=True) as conn:
        job = conn.begin_staging("t")
        with conn.stage(job, 0) as stage:
            stage.add([{"id": 0, "v": "x"}])
            staged_rows = refusal(lambda: stage.add(batch))
        ingested = refusal(lambda: conn.ingest("t", batch))
    assert staged_rows[0] == "22021", staged_rows
    assert "row 3 of the data: column v: " in staged_rows[1]
    assert ingested[0] == "22021", ingested
    assert "row 2 of the data: column v: " in ingested[1]


@pytest.mark.finding("K4")
def test_a_lease_is_shared_while_nothing_is_committed(url: str) -> None:
    """A program that names the lease it has gets the same one as long as it is the newest state."""
    with herdpy.connect(url, autocommit=True) as conn:
        take: Any = conn.lease
        try:
            first = take(60)
            second = take(60, reuse=first.id)
        except TypeError as error:
            raise AssertionError(f"leases at one state cannot be shared: {error}") from None
        assert second.id == first.id
        conn.execute("INSERT INTO t VALUES (1, 'a')")
        third = take(60, reuse=first.id)
        assert third.id != first.id
        assert third.position > first.position
        assert conn.execute("SELECT count(*) FROM sysleases").fetchone() == (2,)
