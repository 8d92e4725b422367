"""Snapshot leases and parts of tables, over every transport."""

import pickle
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

import herdpy
from bookie.runtime.memory_disk import MemoryDisk
from herdpy.errors import (
    DataError,
    InternalError,
    NotSupportedError,
    ProgrammingError,
    Retry,
    SnapshotTooOldError,
)
from tests.fixtures.servers import RunningServer, running_server


@pytest.fixture
def conn(target: str) -> Iterator[herdpy.Connection]:
    with herdpy.connect(target, autocommit=True) as opened:
        yield opened


def fill(conn: herdpy.Connection, count: int = 3_000) -> None:
    conn.execute("CREATE TABLE t (a BIGINT, b TEXT, v DOUBLE, PRIMARY KEY (b, a))")
    conn.executemany(
        "INSERT INTO t VALUES (?, ?, ?)", [(i, f"k{i % 97}", i * 1.5) for i in range(count)]
    )


def read_all(conn: herdpy.Connection, parts: list[Any], **options: Any) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for part in parts:
        table = conn.read_partition(part, **options).read_all()
        found += zip(*(column.to_pylist() for column in table.columns), strict=True)
    return sorted(found)


def test_a_lease_keeps_what_was_committed(target: str, conn: herdpy.Connection) -> None:
    fill(conn, 300)
    with conn.lease(60) as lease:
        conn.execute("UPDATE t SET v = -1")
        conn.execute("DELETE FROM t WHERE a >= 100")
        conn.execute("CREATE TABLE u (a BIGINT PRIMARY KEY)")
        for _ in range(2):
            conn.execute("BEGIN")
            conn.execute(f"SET TRANSACTION SNAPSHOT '{lease.id}'")
            found = conn.execute("SELECT count(*), sum(v) FROM t").fetchall()
            assert found == [(300, 1.5 * 299 * 150)]
            assert conn.execute("SELECT v FROM t WHERE b = ? AND a = ?", ("k2", 99)).fetchall() == [
                (148.5,)
            ]
            with pytest.raises(ProgrammingError, match="u"):
                conn.execute("SELECT * FROM u")
            conn.rollback()
            conn.checkpoint()
        assert conn.execute("SELECT count(*), sum(v) FROM t").fetchall() == [(100, -100.0)]
    with pytest.raises(SnapshotTooOldError) as caught:
        lease.renew()
    assert (caught.value.sqlstate, caught.value.retry) == ("72000", Retry.NEVER)


def test_at_a_lease_nothing_is_written(conn: herdpy.Connection) -> None:
    fill(conn, 10)
    with conn.lease() as lease:
        for text in ("DELETE FROM t", "DROP TABLE t", "INSERT INTO t VALUES (1, 'x', 2)"):
            conn.execute("BEGIN")
            conn.execute(f"SET TRANSACTION SNAPSHOT '{lease.id}'")
            with pytest.raises(InternalError) as caught:
                conn.execute(text)
            assert caught.value.sqlstate == "25006"
            conn.rollback()
        assert conn.execute("SELECT count(*) FROM t").fetchall() == [(10,)]


def test_a_snapshot_is_set_at_the_beginning(conn: herdpy.Connection) -> None:
    fill(conn, 10)
    with conn.lease() as lease:
        with pytest.raises(InternalError) as caught:
            conn.execute(f"SET TRANSACTION SNAPSHOT '{lease.id}'")
        assert caught.value.sqlstate == "25P01"
        conn.execute("BEGIN")
        conn.execute(f"SET TRANSACTION SNAPSHOT '{lease.id}'")
        with pytest.raises(InternalError) as caught:
            conn.execute("BEGIN")  # it would read the present from here on
        assert caught.value.sqlstate == "25001"
        conn.rollback()
        conn.execute("BEGIN")
        conn.execute("DELETE FROM t")
        with pytest.raises(InternalError) as caught:
            conn.execute(f"SET TRANSACTION SNAPSHOT '{lease.id}'")
        assert caught.value.sqlstate == "25001"
        conn.rollback()
        conn.execute("BEGIN")
        with pytest.raises(SnapshotTooOldError):
            conn.execute("SET TRANSACTION SNAPSHOT 'no such lease'")
        conn.rollback()


@pytest.mark.parametrize("count", [1, 3, 40])
def test_every_row_is_in_exactly_one_part(conn: herdpy.Connection, count: int) -> None:
    fill(conn)
    expected = sorted(conn.execute("SELECT * FROM t").fetchall())
    with conn.lease() as lease:
        for _ in range(2):  # from memory, then from pages
            parts = conn.partitions("t", count, lease=lease)
            assert 1 <= len(parts) <= count
            if count < 10:
                assert len(parts) == count
                rows = [part.rows for part in parts]
                assert max(rows) < 1.3 * 3_000 / count
            assert parts[0].lower is None
            assert parts[-1].upper is None
            assert read_all(conn, pickle.loads(pickle.dumps(parts))) == expected
            conn.execute("DELETE FROM t WHERE a % 2 = 0")
            conn.execute("UPSERT INTO t VALUES (-5, 'k5', 0), (3, 'k3', -1), (7, 'zz', 1)")
            now = sorted(conn.execute("SELECT * FROM t").fetchall())
            assert read_all(conn, conn.partitions("t", count)) == now
            conn.checkpoint()
            assert read_all(conn, conn.partitions("t", count)) == now


def test_a_part_takes_columns_and_a_condition(conn: herdpy.Connection) -> None:
    fill(conn)
    with conn.lease() as lease:
        conn.checkpoint()
        parts = conn.partitions("t", 4, lease=lease)
        found = read_all(
            conn, parts, columns=["v", "a"], where="v > ? AND b LIKE 'k1%'", parameters=(2000,)
        )
        expected = conn.execute(
            "SELECT v, a FROM t WHERE v > 2000 AND b LIKE 'k1%' ORDER BY 1"
        ).fetchall()
        assert found == expected
        for batch in conn.read_partition(parts[0], rows=100):
            assert batch.num_rows <= 100


@pytest.mark.parametrize(
    ("options", "kind", "sqlstate"),
    [
        ({"columns": ["no"]}, ProgrammingError, "42703"),
        ({"columns": []}, ProgrammingError, "22023"),
        ({"columns": "v"}, ProgrammingError, "22023"),
        ({"where": "v >"}, ProgrammingError, "42601"),
        ({"where": "v > no"}, ProgrammingError, "42703"),
        ({"where": "v > (SELECT max(v) FROM t)"}, NotSupportedError, "0A000"),
        ({"where": "true) UNION SELECT * FROM t WHERE (true"}, NotSupportedError, "0A000"),
        ({"where": "v > ?"}, ProgrammingError, "07001"),
        ({"lease": "gone"}, SnapshotTooOldError, "72000"),
        ({"rows": 0}, ProgrammingError, "22023"),
    ],
)
def test_what_a_part_refuses(
    conn: herdpy.Connection, options: dict[str, Any], kind: type[herdpy.Error], sqlstate: str
) -> None:
    fill(conn, 10)
    (part,) = conn.partitions("t", 1)
    with pytest.raises(kind) as caught:
        conn.read_partition(part, **options).read_all()
    assert caught.value.sqlstate == sqlstate
    if sqlstate == "42703" and "where" in options:
        assert caught.value.position == 5


def test_what_cannot_be_asked_for(conn: herdpy.Connection) -> None:
    fill(conn, 10)
    for seconds in (0, -1, 10**9, float("nan")):
        with pytest.raises((ProgrammingError, DataError)) as caught:
            conn.lease(seconds)
        assert caught.value.sqlstate == "22023"
    for count in (0, 10**6):
        with pytest.raises(ProgrammingError):
            conn.partitions("t", count)
    with pytest.raises(ProgrammingError) as caught:
        conn.partitions("missing", 1)
    assert caught.value.sqlstate == "42P01"
    (part,) = conn.partitions("t", 1)
    with pytest.raises(ProgrammingError) as caught:
        conn.read_partition(part._replace(lower=b"\x07nonsense"))
    assert caught.value.sqlstate == "22023"
    assert conn.release_lease("gone") is False


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("k BIGINT PRIMARY KEY", [(i * 7919 % 10007 - 5000,) for i in range(500)]),
        ("k TEXT PRIMARY KEY", [(f"{i}é\n{i * i}",) for i in range(500)]),
        ("k DECIMAL(30, 2) PRIMARY KEY", [(Decimal(i - 250) ** 9 / 100,) for i in range(500)]),
        ("k DOUBLE PRIMARY KEY", [(float(i - 250) * 1e300,) for i in range(500)]),
        ("k REAL PRIMARY KEY", [(float(i - 250) * 2**99,) for i in range(500)]),
        ("k SMALLINT PRIMARY KEY", [(i * 7919 % 10007 - 5000,) for i in range(500)]),
        ("k BYTEA PRIMARY KEY", [(bytes([i % 256, 0, i // 256]),) for i in range(500)]),
        ("k BOOLEAN PRIMARY KEY", [(True,), (False,)]),
        ("k BIGINT", [(i % 3,) for i in range(500)]),
        ("k BIGINT PRIMARY KEY", []),
        ("k BIGINT PRIMARY KEY", [(1,)]),
    ],
)
def test_parts_by_keys_of_every_kind(
    conn: herdpy.Connection, key: str, values: list[tuple[Any, ...]]
) -> None:
    conn.execute(f"CREATE TABLE t ({key})")
    if values:
        conn.executemany("INSERT INTO t VALUES (?)", values)
    for _ in range(2):
        parts = conn.partitions("t", 7)
        assert len(parts) == min(7, max(len(values), 1))
        assert read_all(conn, parts) == sorted(conn.execute("SELECT * FROM t").fetchall())
        conn.checkpoint()


def test_a_part_in_a_transaction_has_what_it_wrote(conn: herdpy.Connection) -> None:
    fill(conn, 100)
    with conn.lease() as lease, conn.transaction():
        conn.execute("DELETE FROM t WHERE a > 10")
        conn.execute("INSERT INTO t VALUES (-1, 'k', 0)")
        parts = conn.partitions("t", 3)
        assert len(read_all(conn, parts)) == 12
        assert len(read_all(conn, parts, lease=lease)) == 100


def test_a_lease_is_its_users(server: RunningServer) -> None:
    with herdpy.connect(server.url, autocommit=True) as conn:
        fill(conn, 10)
        for name in ("ann", "bob"):
            conn.execute(f"CREATE USER {name} PASSWORD 'a long password'")
        conn.execute("CREATE USER root PASSWORD 'a long password' SUPERUSER")
        conn.execute("GRANT SELECT ON t TO ann")
        conn.execute("CREATE TABLE hidden (a BIGINT PRIMARY KEY)")
    url = server.url.replace("herd://", "herd://{}@")
    ann = herdpy.connect(url.format("ann"), password="a long password", autocommit=True)
    bob = herdpy.connect(url.format("bob"), password="a long password", autocommit=True)
    with ann, bob:
        lease = ann.lease(60)
        (part,) = ann.partitions("t", 1, lease=lease)
        assert ann.read_partition(part).read_all().num_rows == 10
        for call in (
            lambda: bob.renew_lease(lease.id),
            lambda: bob.release_lease(lease.id),
            lambda: bob.partitions("t", 1),
            lambda: bob.read_partition(part),
            lambda: bob.read_partition(part._replace(lease=None)),
            lambda: ann.partitions("hidden", 1, lease=lease),
            lambda: ann.read_partition(part._replace(table="hidden")),
            lambda: ann.execute("SELECT * FROM sysleases"),
        ):
            with pytest.raises(ProgrammingError) as caught:
                call()
            assert caught.value.sqlstate == "42501"
        bob.execute("BEGIN")
        with pytest.raises(ProgrammingError) as caught:
            bob.execute(f"SET TRANSACTION SNAPSHOT '{lease.id}'")
        assert caught.value.sqlstate == "42501"
        bob.rollback()
        with herdpy.connect(url.format("root"), password="a long password") as root:
            root.execute("TRUNCATE t")
            root.commit()
            with pytest.raises(ProgrammingError) as caught:
                ann.read_partition(part)  # it is unknown who might read what is gone
            assert caught.value.sqlstate == "42501"
            assert root.read_partition(part).read_all().num_rows == 10
        lease.release()
        lease.release()


def test_a_lease_outlives_who_took_it(target: str, conn: herdpy.Connection) -> None:
    if target == ":memory:":
        pytest.skip("a database in memory is its connection's")
    fill(conn, 50)
    with herdpy.connect(target) as other:
        lease = other.lease(60).id
        parts = other.partitions("t", 2, lease=lease)
    conn.execute("DELETE FROM t")
    assert len(read_all(conn, parts)) == 50
    assert conn.release_lease(lease) is True
    with pytest.raises(SnapshotTooOldError):
        conn.read_partition(parts[0])


@pytest.mark.parametrize("is_written", [False, True], ids=["from the log", "from pages"])
def test_a_lease_outlives_a_restart_of_the_server(is_written: bool) -> None:
    disk = MemoryDisk()
    with running_server(disk) as server, herdpy.connect(server.url, autocommit=True) as conn:
        fill(conn, 500)
        lease = conn.lease(60).id
        parts = conn.partitions("t", 3, lease=lease)
        conn.execute("DELETE FROM t WHERE a > 10")
        if is_written:
            conn.checkpoint()
    with running_server(disk) as server, herdpy.connect(server.url, autocommit=True) as conn:
        assert len(read_all(conn, parts)) == 500
        conn.execute("DELETE FROM t")
        conn.renew_lease(lease)
        conn.execute("BEGIN")
        conn.execute(f"SET TRANSACTION SNAPSHOT '{lease}'")
        assert conn.execute("SELECT count(*) FROM t").fetchall() == [(500,)]
        conn.rollback()
        assert conn.release_lease(lease)
    with running_server(disk) as server, herdpy.connect(server.url) as conn:
        assert conn.release_lease(lease) is False
