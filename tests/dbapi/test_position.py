"""Positions: an answer tells how far the log was, and nothing it shows lies behind that."""

from pathlib import Path

import pytest

import herdpy


@pytest.fixture
def shared(target: str, tmp_path: Path) -> str:
    """Return what two connections share; a database in memory belongs to one."""
    return str(tmp_path / "data") if target == ":memory:" else target


def place(conn: herdpy.Connection) -> tuple[int, ...]:
    return tuple(map(int, conn.position.rsplit(".", 2)))


def test_what_was_committed_is_before_the_position_of_who_has_seen_it(shared: str) -> None:
    with (
        herdpy.connect(shared, autocommit=True) as writer,
        herdpy.connect(shared, autocommit=True) as reader,
    ):
        writer.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        places = [place(writer)]
        writer.execute("INSERT INTO t VALUES (?)", (1,))
        places.append(place(writer))
        writer.execute("INSERT INTO t VALUES (?)", (2,))  # in the short way
        places.append(place(writer))
        with writer.transaction():
            writer.execute("INSERT INTO t VALUES (3)")
        places.append(place(writer))
        with writer.pipeline() as pipe:
            pipe.execute("INSERT INTO t VALUES (4)")
        places.append(place(writer))
        assert places == sorted(set(places))  # each commit is behind the one before
        assert reader.execute("SELECT count(*) FROM t").fetchone() == (4,)
        assert place(reader) >= places[-1]


def test_leases_and_staged_commits_tell_it_too(target: str) -> None:
    with herdpy.connect(target, autocommit=True) as conn:
        conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        with conn.lease() as lease:
            told = [(lease.position, conn.position)]
            lease.renew()
        job = conn.begin_staging("t", job="nightly")
        with conn.stage(job, 0) as stage:
            stage.add([{"id": 1}])
            tokens = [stage.finish()]
        told.append((conn.commit_staging(job, tokens), conn.position))
    for position, heard in told:
        assert tuple(map(int, heard.rsplit(".", 2))) >= tuple(map(int, position.rsplit(".", 2)))
    if target == ":memory:":
        return
    with herdpy.connect(target, autocommit=True) as other:
        found = other.commit_position("nightly")
        assert found == told[-1][0]
        assert place(other) >= tuple(map(int, found.rsplit(".", 2)))


def test_rows_by_key_and_pipelines_tell_it_too(shared: str) -> None:
    with (
        herdpy.connect(shared, autocommit=True) as writer,
        herdpy.connect(shared, autocommit=True) as reader,
    ):
        writer.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        for key in range(3):
            writer.execute("INSERT INTO t VALUES (?)", (key,))
            if key < 2:
                row = reader.execute("SELECT id FROM t WHERE id = ?", (key,)).fetchone()
            else:
                reader.execute("BEGIN")
                with reader.pipeline() as pipe:
                    found = pipe.execute("SELECT id FROM t WHERE id = ?", (key,))
                row = found.fetchone()
            assert row == (key,)
            assert place(reader) >= place(writer)
