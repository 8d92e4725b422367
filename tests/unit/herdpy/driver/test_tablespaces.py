"""connect(tablespace=…): one directory, one lock, several tablespaces of one process."""

from pathlib import Path

import pytest

import herdpy


def test_connections_to_two_tablespaces_of_a_directory(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with herdpy.connect(data, autocommit=True) as first:
        first.execute("CREATE TABLESPACE sales")
        first.execute("CREATE TABLE t (v TEXT)")
    with herdpy.connect(data, tablespace="sales", autocommit=True) as sales:  # opens all of it
        sales.execute("CREATE TABLE t (v TEXT)")
        sales.execute("INSERT INTO t VALUES ('of sales')")
        with herdpy.connect(data) as other, herdpy.connect(data, tablespace="default") as same:
            assert other.execute("SELECT * FROM t").fetchall() == []
            text = "SELECT tablespace FROM sysclients ORDER BY id"
            assert same.execute(text).fetchall() == [("sales",), ("default",), ("default",)]
        assert sales.execute("SELECT * FROM t").fetchall() == [("of sales",)]
    with herdpy.connect(data, tablespace="sales") as sales:
        assert sales.execute("SELECT * FROM t").fetchall() == [("of sales",)]


def test_one_that_is_not_there_leaves_nothing_open(tmp_path: Path) -> None:
    for target in (tmp_path / "data", ":memory:"):
        with pytest.raises(herdpy.OperationalError, match="does not exist") as missing:
            herdpy.connect(target, tablespace="sales")
        assert missing.value.sqlstate == "3D000"
    # The directory is free: another memory_bytes_max is none of an open database.
    herdpy.connect(tmp_path / "data", memory_bytes_max=64 * 2**20).close()


@pytest.mark.parametrize("name", ["", 7, b"sales"])
def test_what_is_no_name(name: object) -> None:
    with pytest.raises(herdpy.InterfaceError, match="tablespace: expected a name"):
        herdpy.connect(":memory:", tablespace=name)  # type: ignore[arg-type]


def test_what_a_url_and_an_argument_say() -> None:
    with pytest.raises(herdpy.InterfaceError, match="Name it once"):
        herdpy.connect("herd://localhost:1/sales", tablespace="stock")


def test_backup_and_dump_are_of_the_connection_s_tablespace(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with herdpy.connect(data, autocommit=True) as first:
        first.execute("CREATE TABLESPACE sales")
    with herdpy.connect(data, tablespace="sales", autocommit=True) as sales:
        sales.execute("CREATE TABLE t (v TEXT)")
        sales.execute("INSERT INTO t VALUES ('of sales')")
        sales.backup(tmp_path / "sales.backup")
        sales.dump(tmp_path / "sales.sql")
    assert "of sales" in (tmp_path / "sales.sql").read_text()
    herdpy.restore(tmp_path / "sales.backup", tmp_path / "copy")
    with herdpy.connect(tmp_path / "copy") as copy:
        assert copy.execute("SELECT * FROM t").fetchall() == [("of sales",)]


def test_the_limit_of_the_disk_holds_for_rows_one_by_one(tmp_path: Path) -> None:
    """They take the fast path, which leaves to the general one what may be refused."""
    with herdpy.connect(tmp_path, autocommit=True) as default:
        default.execute("CREATE TABLESPACE small WITH (disk_bytes_max = 1048576)")
        with herdpy.connect(tmp_path, tablespace="small", autocommit=True) as conn:
            conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")

            def fill() -> None:
                for number in range(5_000):
                    conn.execute("INSERT INTO t VALUES (?, ?)", (number, "x" * 1000))

            with pytest.raises(herdpy.OperationalError, match="more than the 1,048,576") as caught:
                fill()
            assert caught.value.sqlstate == "53100"
            conn.execute("DELETE FROM t WHERE id < 900")
