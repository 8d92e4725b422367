"""Backups, dumps and what is made of them, by the driver's face, over every transport."""

import threading
from pathlib import Path

import pytest

import herdpy
from herdpy.sql.reading.script import split_statements
from herdpy.storage.backup_file import PIECE_BYTES
from tests.fixtures.servers import PATH, RunningServer, running_server

ROWS = [
    (1, "it's; -- no\ncomment", -0.0, b"\x00\xff", "12345678901234567890.12", True),
    (2, None, float("inf"), b"", "-0.01", False),
    (3, "ü\\x'", 1e-300, None, None, None),
]


def fill(connection: herdpy.Connection) -> None:
    connection.execute(
        "CREATE TABLE \"T 1\" (id BIGINT PRIMARY KEY, s VARCHAR(40) NOT NULL DEFAULT 'a''b',"
        ' d DOUBLE PRECISION, b BYTEA, n DECIMAL(22,2), "select" BOOLEAN, r REAL DEFAULT 0.1,'
        " i SMALLINT DEFAULT -7)"
    )
    connection.execute("CREATE TABLE heap (day DATE, at TIMESTAMP)")
    connection.execute("CREATE TABLE nothing (id BIGINT PRIMARY KEY)")
    rows = [(i, s or "", d, b, n, x) for i, s, d, b, n, x in ROWS]
    connection.executemany('INSERT INTO "T 1" VALUES (?, ?, ?, ?, ?::DECIMAL(22,2), ?)', rows)
    connection.execute("""UPDATE "T 1" SET r = '-0', i = 32767 WHERE id = 1""")
    text = "INSERT INTO heap VALUES (DATE '2020-02-29', TIMESTAMP '1969-12-31 23:59:59.5')"
    for _ in range(450):
        connection.execute(text)
    connection.execute("INSERT INTO heap VALUES (NULL, NULL)")
    connection.commit()


def content(target: "str | Path") -> dict[str, str]:
    """Return all rows as text, in which -0.0 and NaN say what they are."""
    with herdpy.connect(target) as connection:
        return {
            name: repr(connection.execute(f"SELECT * FROM {name}").fetchall())
            for name in ('"T 1"', "heap", "nothing")
        }


def test_backup_and_restore(target: str, tmp_path: Path) -> None:
    file = tmp_path / "a.backup"
    with herdpy.connect(target) as connection:
        fill(connection)
        connection.execute("DELETE FROM heap")  # open, so no part of it
        seen: list[tuple[int, int]] = []
        length = connection.backup(file, progress=lambda *step: seen.append(step))
        assert connection.in_transaction
        connection.rollback()
        assert length == file.stat().st_size == seen[-1][0]
        assert [done for done, _ in seen] == sorted(done for done, _ in seen)
        herdpy.restore(file, tmp_path / "new")
        assert content(tmp_path / "new")["heap"].count("2020, 2, 29") == 450
        expected = {
            name: repr(connection.execute(f"SELECT * FROM {name}").fetchall())
            for name in ('"T 1"', "heap", "nothing")
        }
    assert content(tmp_path / "new") == expected
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["a.backup"]


def test_a_dump_makes_the_same_tables(target: str, tmp_path: Path) -> None:
    first, second = tmp_path / "a.sql", tmp_path / "b.sql"
    with herdpy.connect(target) as connection:
        fill(connection)
        connection.dump(first)
    text = first.read_text()
    with herdpy.connect(tmp_path / "new", autocommit=True) as connection:
        for statement in split_statements(text):
            connection.execute(statement.text)
        connection.dump(second)
        found = connection.execute('SELECT d, s, n FROM "T 1" ORDER BY id').fetchall()
        assert repr(found[0][0]) == "-0.0"
        assert found[0][1] == ROWS[0][1]
    # The position differs, nothing else.
    assert second.read_text().split("\n", 1)[1] == text.split("\n", 1)[1]
    assert text.count("INSERT INTO heap") == 3


def in_default(target: str) -> str:
    """Return the target of the tablespace default, wherever the suite works."""
    return target if PATH == "" else target.removesuffix(PATH)


@pytest.mark.makes_tablespaces
def test_backup_of_all_tablespaces(target: str, tmp_path: Path) -> None:
    with herdpy.connect(in_default(target), autocommit=True) as connection:
        connection.execute("CREATE TABLE t (v TEXT)")
        connection.execute("INSERT INTO t VALUES ('of default')")
        connection.execute("CREATE TABLESPACE sales WITH (connections_max = 7)")
        connection.execute("CREATE TABLESPACE stock")
        seen: list[tuple[int, int]] = []
        folder = tmp_path / "set"
        length = connection.backup_all(folder, progress=lambda *step: seen.append(step))
        sizes = [path.stat().st_size for path in folder.glob("*.backup")]
        assert length == sum(sizes) == seen[-1][0]
        assert [done for done, _ in seen] == sorted(done for done, _ in seen)
        with pytest.raises(herdpy.ProgrammingError, match="not overwritten") as there:
            connection.backup_all(folder)
        assert there.value.sqlstate == "58P02"
        connection.execute("INSERT INTO t VALUES ('later')")
        assert connection.backup_all(folder, overwrite=True) > 0
        assert len(list(folder.iterdir())) == len(sizes) + 1
    herdpy.restore(folder, tmp_path / "new")
    with herdpy.connect(tmp_path / "new") as new:
        assert new.execute("SELECT v FROM t ORDER BY v").fetchall() == [("later",), ("of default",)]
        text = "SELECT connections_max FROM systablespaces WHERE tablespace IN ('sales', 'stock')"
        assert new.execute(text).fetchall() == [(7,), (None,)]
    with herdpy.connect(tmp_path / "new", tablespace="stock") as stock:
        assert stock.execute("SHOW TABLES").fetchall() == []
    herdpy.restore(folder, tmp_path / "new-stock", tablespace="stock")
    with herdpy.connect(tmp_path / "new-stock") as stock:
        assert stock.execute("SHOW TABLES").fetchall() == []


@pytest.mark.makes_tablespaces
def test_dump_of_all_tablespaces(target: str, tmp_path: Path) -> None:
    with herdpy.connect(in_default(target), autocommit=True) as connection:
        connection.execute("CREATE TABLE t (v TEXT)")
        connection.execute("CREATE TABLESPACE sales WITH (connections_max = 7)")
        length = connection.dump_all(tmp_path / "all.sql")
    text = (tmp_path / "all.sql").read_text()
    assert length == len(text.encode())
    made = "CREATE TABLESPACE IF NOT EXISTS sales WITH (connections_max = 7);\n"
    assert made in text
    first, second = text.split("\n.tablespace sales\n")
    assert "CREATE TABLE t (" in first
    assert "CREATE TABLE t (" not in second


def test_an_interrupted_backup_of_all_leaves_nothing(target: str, tmp_path: Path) -> None:
    class StopError(Exception):
        pass

    def stop(_done: int, _total: int) -> None:
        raise StopError

    with herdpy.connect(in_default(target), autocommit=True) as connection:
        connection.execute("CREATE TABLE t (v TEXT)")
        with pytest.raises(StopError):
            connection.backup_all(tmp_path / "set", progress=stop)
        assert list(tmp_path.iterdir()) == []
        (tmp_path / "set").mkdir()
        with pytest.raises(StopError):
            connection.backup_all(tmp_path / "set", progress=stop)
        assert list((tmp_path / "set").iterdir()) == []
        connection.backup_all(tmp_path / "set")
        (tmp_path / "file").write_text("mine")
        with pytest.raises(herdpy.OperationalError, match="Not a directory"):
            connection.backup_all(tmp_path / "file")
        assert (tmp_path / "file").read_text() == "mine"


def test_a_file_that_exists_is_kept(target: str, tmp_path: Path) -> None:
    file = tmp_path / "a.backup"
    file.write_text("mine")
    with herdpy.connect(target) as connection:
        for export in (connection.backup, connection.dump):
            with pytest.raises(herdpy.ProgrammingError, match="exists already") as caught:
                export(file)
            assert caught.value.sqlstate == "58P02"
        assert file.read_text() == "mine"
        connection.backup(file, overwrite=True)
    herdpy.restore(file, tmp_path / "new")


def test_what_is_no_file(target: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with herdpy.connect(target) as connection:
        with pytest.raises(herdpy.OperationalError, match="No such file"):
            connection.backup(tmp_path / "nowhere" / "a.backup")
        with pytest.raises(herdpy.Error):
            connection.backup(tmp_path / "folder", overwrite=True)
        with pytest.raises(herdpy.ProgrammingError, match="expected the path of a file"):
            connection.backup("herd://localhost/default")
        connection.execute("SELECT 1")
    with pytest.raises(herdpy.OperationalError, match="No such file"):
        herdpy.restore(tmp_path / "nothing", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_an_interrupted_backup_leaves_nothing(target: str, tmp_path: Path) -> None:
    class StopError(Exception):
        pass

    def stop(_done: int, _total: int) -> None:
        raise StopError

    with herdpy.connect(target) as connection:
        fill(connection)
        for _ in range(3):
            with pytest.raises(StopError):
                connection.backup(tmp_path / "a.backup", progress=stop)
            assert list(tmp_path.iterdir()) == []
            assert connection.execute("SELECT count(*) FROM heap").fetchall() == [(451,)]
        connection.backup(tmp_path / "a.backup")


def test_not_into_the_directory_itself(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "data")
    with herdpy.connect(tmp_path / "data") as connection:
        for place in ("data", "data/default/segments", "link/default/log"):
            with pytest.raises(herdpy.ProgrammingError, match="own directory"):
                connection.backup(tmp_path / place / "a.backup")
        connection.backup(tmp_path / "a.backup")
        with pytest.raises(herdpy.OperationalError, match="is open in another process") as caught:
            herdpy.restore(tmp_path / "a.backup", tmp_path / "data", replace=True)
        assert caught.value.sqlstate == "55006"


def test_what_restore_is_not_given(tmp_path: Path) -> None:
    with herdpy.connect(tmp_path / "data") as connection:
        with pytest.raises(herdpy.ProgrammingError, match="own directory"):
            connection.backup_all(tmp_path / "data" / "set")
        connection.backup(tmp_path / "a.backup")
        connection.backup_all(tmp_path / "set")
    new = tmp_path / "new"
    for source, options, code in (
        ("a.backup", {"tablespace": "sales"}, "22023"),
        ("set", {"replace": True}, "0A000"),
        ("set", {"tablespace": "sales"}, "3D000"),
        ("data", {}, "58P01"),
    ):
        with pytest.raises(herdpy.Error) as caught:
            herdpy.restore(tmp_path / source, new, **options)  # type: ignore[arg-type]
        assert caught.value.sqlstate == code
        assert caught.value.hint
        assert not new.exists()
    herdpy.restore(tmp_path / "set", tmp_path / "data", tablespace="default", replace=True)


def test_a_damaged_backup_restores_nothing(tmp_path: Path) -> None:
    with herdpy.connect(tmp_path / "data") as connection:
        fill(connection)
        connection.backup(tmp_path / "a.backup")
    expected = content(tmp_path / "data")
    data = bytearray((tmp_path / "a.backup").read_bytes())
    data[len(data) // 2] ^= 4
    (tmp_path / "a.backup").write_bytes(data)
    for place in ("data", "new"):
        with pytest.raises(herdpy.OperationalError, match=r"damaged backup .* at offset"):
            herdpy.restore(tmp_path / "a.backup", tmp_path / place, replace=True)
    assert content(tmp_path / "data") == expected
    assert not (tmp_path / "new").exists()


def test_in_a_session_that_others_write_beside(server: RunningServer, tmp_path: Path) -> None:
    """A long backup over the wire: the server goes on, and what it sends is one moment."""
    blob = bytes(100_000)
    with herdpy.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT, b BYTEA)")
        for i in range(40):
            connection.execute("INSERT INTO t VALUES (?, 0, ?)", (i, blob + bytes([i])))
        is_over = threading.Event()
        has_written = threading.Event()

        def write() -> None:
            with herdpy.connect(server.url) as other:
                while not is_over.is_set():
                    other.execute("UPDATE t SET v = v + 1")
                    other.commit()
                    has_written.set()

        writer = threading.Thread(target=write)
        writer.start()
        try:
            has_written.wait()
            steps: list[int] = []
            connection.backup(tmp_path / "a", progress=lambda done, _: steps.append(done))
        finally:
            is_over.set()
            writer.join()
        assert len(steps) > 3
        assert max(b - a for a, b in zip([0, *steps], steps, strict=False)) <= 2 * PIECE_BYTES
    herdpy.restore(tmp_path / "a", tmp_path / "new")
    with herdpy.connect(tmp_path / "new") as connection:
        ((low, high, count),) = connection.execute("SELECT min(v), max(v), count(*) FROM t")
        assert low == high > 0
        assert count == 40


@pytest.mark.sync_face("reaches into the connection")
def test_a_reader_that_goes_away_lets_the_snapshot_go() -> None:
    with running_server() as server:
        registry = server.engine.database.tablespace.registry
        with herdpy.connect(server.url) as connection:
            connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, b BYTEA)")
            rows = [(i, bytes(300_000)) for i in range(8)]
            connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
            connection.commit()
            for _ in range(2):
                export = connection.live_session().export("dump")
                pieces = export.pieces()
                next(pieces)
                next(pieces)
                assert len(registry) == 1
                export.close()
                assert connection.execute("SELECT count(*) FROM t").fetchall() == [(8,)]
                connection.rollback()
                assert len(registry) == 0
            connection.live_session().export("dump")
            assert len(registry) == 1
        server.call(server.server.close)  # waits for the ends of all sessions
        assert len(registry) == 0
