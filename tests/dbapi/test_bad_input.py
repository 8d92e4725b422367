"""Bad input: each mistake gets its SQLSTATE, names what is wrong, and changes nothing."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import herdpy
from herdpy.driver import local
from herdpy.limits import key_bytes_max, row_bytes_max
from herdpy.server.requests.requests import RESULTS_MAX
from tests.fixtures.servers import RunningServer


@pytest.fixture
def connection(target: str) -> Iterator[herdpy.Connection]:
    yield from _connection(target)


@pytest.fixture
def local_connection() -> Iterator[herdpy.Connection]:
    yield from _connection(":memory:")


def _connection(target: str) -> Iterator[herdpy.Connection]:
    with herdpy.connect(target, autocommit=True) as made:
        made.execute(
            "CREATE TABLE accounts (id BIGINT PRIMARY KEY, name VARCHAR(5) NOT NULL, n INTEGER,"
            " d DECIMAL(5, 2), day DATE)"
        )
        made.execute("CREATE TABLE notes (id BIGINT, part TEXT, x TEXT, PRIMARY KEY (id, part))")
        made.execute("INSERT INTO accounts (id, name) VALUES (1, 'one')")
        made.execute("INSERT INTO notes VALUES (1, 'a', 'b')")
        yield made


INSERT = "INSERT INTO accounts (id, name) VALUES (?, ?)"
STATEMENTS: dict[str, tuple[str, Any, str, str]] = {
    # what: text, parameters, SQLSTATE, words of the message or hint
    "unknown table": ("SELECT * FROM acounts", None, "42P01", '"acounts".*Did you mean "accounts"'),
    "unknown column": ("SELECT nam FROM accounts", None, "42703", '"nam".*Did you mean "name"'),
    "ambiguous": (
        "SELECT id FROM accounts JOIN notes ON accounts.id = notes.id",
        None,
        "42702",
        "accounts.id, notes.id",
    ),
    "too few parameters": ("SELECT * FROM accounts WHERE id = ?", (), "07001", "1.*found 0"),
    "too many parameters": ("SELECT * FROM accounts WHERE id = ?", (1, 2), "07001", "found 2"),
    "wrong names": ("SELECT * FROM notes WHERE id = :a", {"b": 1}, "07001", ":a.*:b"),
    "no name": ("SELECT * FROM notes WHERE id = :a", {"a": 1, "\ud800": 2}, "07001", "unknown :"),
    "? and :name": ("SELECT * FROM notes WHERE id = :a OR id = ?", {"a": 1}, "42601", ":name"),
    "type": (INSERT, ("x", "a"), "22P02", 'column id.*bigint.*"x"'),
    "range": ("UPDATE accounts SET n = ?", (2**31,), "22003", "column n.*2147483648"),
    "range of all": (
        INSERT,
        (10**4300, "a"),
        "22003",
        "(parameter 1|column id): value of 14,285 bits is out",
    ),
    "range of any": (
        INSERT,
        (-(10**4000), "a"),
        "22003",
        "(parameter 1|column id): value of 13,288 bits",
    ),
    "range of a key": (INSERT, (2**63, "a"), "22003", ""),
    "range of a decimal": ("UPDATE accounts SET d = 1000", None, "22003", r"decimal\(5,2\)"),
    "length": (INSERT, (2, "123456"), "22001", r"name.*VARCHAR\(5\).*6"),
    "day": ("UPDATE accounts SET day = '2024-02-30'", None, "22008", "2024-02-30"),
    "NULL": (INSERT, (2, None), "23502", '"name".*"accounts"'),
    "NULL by default": ("INSERT INTO accounts (id) VALUES (2)", None, "23502", '"name"'),
    "NULL in the key": ("UPDATE accounts SET id = NULL", None, "23502", '"id"'),
    "duplicate key": (INSERT, (1, "b"), "23505", r'"accounts".*\(id\)=\(1\)'),
    "duplicate composite key": (
        "INSERT INTO notes VALUES (2, 'b', ''), (1, 'a', '')",
        None,
        "23505",
        r"\(id, part\)=\(1, a\)",
    ),
    "twice in one statement": (
        "INSERT INTO accounts (id, name) VALUES (2, 'b'), (2, 'c')",
        None,
        "23505",
        r"\(id\)=\(2\)",
    ),
    "too long a row": (
        "INSERT INTO notes VALUES (2, 'b', ?)",
        ("x" * row_bytes_max,),
        "54000",
        f'"notes".*{row_bytes_max}',
    ),
    "too long a key": (
        "INSERT INTO notes VALUES (2, ?, '')",
        ("x" * key_bytes_max,),
        "54000",
        f"{key_bytes_max}",
    ),
    "NUL": ("UPDATE notes SET x = ?", ("a\0b",), "22021", "column x"),
    "lone surrogate": ("UPDATE notes SET x = ?", ("\ud800",), "22021", "parameter 1|column x"),
    "no value": ("UPDATE notes SET x = ?", (object(),), "42804", "object"),
    "parentheses": ("SELECT " + "(" * 300 + "1" + ")" * 300, None, "54001", r"\d+ deep"),
    "a long sum": ("SELECT 1" + " + 1" * 20_000, None, "54001", "1,000 operators"),
    "NOT NOT": ("SELECT " + "NOT " * 5000 + "true", None, "54001", r"\d+ deep"),
    "17 MB": ("SELECT '" + "x" * 17_000_000 + "'", None, "54001", "16777216 bytes"),
    "nothing": (" -- not a word", None, "42601", "empty"),
    "two statements": ("SELECT 1; SELECT 2", None, "42601", "one by one"),
    "no end": ("SELECT 'abc", None, "42601", "no end"),
    "typing error": ("SELEC 1", None, "42601", "Did you mean SELECT"),
    "files": ("SELECT * FROM '/etc/passwd'", None, "42601", "/etc/passwd"),
    "functions of DuckDB": ("SELECT read_text('/etc/passwd')", None, "42883", "read_text"),
    "no such option": ("SET lock_time = 1", None, "42704", "lock_timeout"),
    "no duration": ("SET lock_timeout = 'soon'", None, "22023", "soon"),
}


def state(connection: herdpy.Connection) -> list[Any]:
    return [
        connection.execute(f"SELECT * FROM {name} ORDER BY id").fetchall()
        for name in ("accounts", "notes")
    ]


@pytest.mark.parametrize("what", STATEMENTS)
def test_a_mistake_is_named_and_changes_nothing(connection: herdpy.Connection, what: str) -> None:
    text, parameters, sqlstate, words = STATEMENTS[what]
    before = state(connection)
    for autocommit in (True, False):
        connection.autocommit = autocommit
        with pytest.raises(herdpy.Error, match=f"(?is){words}") as caught:
            connection.execute(text, parameters)
        assert caught.value.sqlstate == sqlstate
        assert caught.value.retry is herdpy.Retry.NEVER
        assert len(str(caught.value)) < 1000, "a message is read by people"
        assert state(connection) == before
        connection.commit()
        assert state(connection) == before


@pytest.mark.parametrize(
    "rows",
    [
        [(2, "b"), (1, "c")],
        [(2, "b"), (3, None)],
        [(2, "b"), (3, "123456")],
        [(2, "b"), (3,)],
        [(2, "b"), 3],
        [(2, "b"), ("x", "c")],
        [(2, "b"), (2, "c")],
    ],
)
def test_executemany_with_a_bad_row_does_nothing(
    connection: herdpy.Connection, rows: list[Any]
) -> None:
    before = state(connection)
    for autocommit in (True, False):
        connection.autocommit = autocommit
        with pytest.raises(herdpy.Error):
            connection.executemany(INSERT, rows)
        for name in (None, "123456"):
            with pytest.raises(herdpy.Error):
                connection.executemany(
                    "UPDATE accounts SET name = ? WHERE id = ?", [("b", 1), (name, 1)]
                )
        assert state(connection) == before
        connection.commit()
        assert state(connection) == before


# --- directories -------------------------------------------------------------------------------


LONE = "a\ud800"
CALLS: dict[str, tuple[Callable[[herdpy.Connection], object], str, str]] = {
    # what: the call, SQLSTATE, words of the message
    "no text": (lambda c: c.execute(5), "22023", "the statement: expected text, found int"),  # type: ignore[arg-type]
    "no text, parameters": (lambda c: c.execute(["a"], [1]), "22023", "found list"),  # type: ignore[arg-type]
    "surrogate": (lambda c: c.execute(f"SELECT '{LONE}'"), "22021", "statement: lone.* 10"),
    "surrogate, many": (lambda c: c.executemany(f"SELECT '{LONE}'", [()]), "22021", "lone"),
    "ingest: table": (lambda c: c.ingest(5, [{"id": 1}]), "22023", "ingest: table: .*int"),  # type: ignore[arg-type]
    "ingest: lone": (lambda c: c.ingest(LONE, [{"id": 1}]), "22021", "ingest: table: lone"),
    "ingest: mode": (lambda c: c.ingest("notes", [], mode=5), "22023", "ingest: mode: .*int"),  # type: ignore[arg-type]
    "staging: table": (lambda c: c.begin_staging(LONE), "22021", "begin_staging: table: lone"),
    "staging: operation": (lambda c: c.begin_staging("notes", operation=7), "22023", "found int"),  # type: ignore[arg-type]
    "staging: job": (lambda c: c.begin_staging("notes", job=LONE), "22021", "job: lone"),
    "staging: key": (lambda c: c.begin_staging("notes", key_columns="id"), "22023", "a list.*'id'"),
    "staging: keys": (lambda c: c.begin_staging("notes", key_columns=[3]), "22023", "found int"),  # type: ignore[list-item]
    "stage": (lambda c: c.stage("j", LONE), "22021", "stage: task: lone"),
    "commit: job": (lambda c: c.commit_staging(5, []), "22023", "commit_staging: job: .*int"),  # type: ignore[arg-type]
    "commit: token": (lambda c: c.commit_staging("j", [3]), "22023", "stages of job 'j', found 3"),  # type: ignore[list-item]
    "abort": (lambda c: c.abort_staging(LONE), "22021", "abort_staging: job: lone"),
    "position": (lambda c: c.commit_position(LONE), "22021", "commit_position: job: lone"),
    "lease": (lambda c: c.lease("5"), "22023", "lease: expected seconds, found str"),  # type: ignore[arg-type]
    "lease: long": (lambda c: c.lease(10**400), "22023", "lease: expected 1 to .*found inf"),
    "release": (lambda c: c.release_lease(5), "22023", "release_lease: expected text"),  # type: ignore[arg-type]
    "renew": (lambda c: c.renew_lease(LONE), "22021", "renew_lease: lone"),
    "partitions: table": (lambda c: c.partitions(5, 1), "22023", "partitions: table: .*int"),  # type: ignore[arg-type]
    "partitions: many": (lambda c: c.partitions("notes", 10**30), "22023", "whole number of 1"),
    "partitions: part": (lambda c: c.partitions("notes", 2.0), "22023", "whole number.*2.0"),  # type: ignore[arg-type]
    "partitions: lease": (lambda c: c.partitions("notes", 2, lease=5), "22023", "lease: .*int"),  # type: ignore[arg-type]
    "part": (lambda c: c.read_partition("notes"), "22023", r"one of partitions\(\), found 'notes'"),  # type: ignore[arg-type]
    "part: columns": (lambda c: _part(c, columns=[3]), "22023", "columns: expected text"),
    "part: column": (lambda c: _part(c, columns="id"), "22023", "columns: expected a list"),
    "part: where": (lambda c: _part(c, where=LONE), "22021", "where: lone"),
    "part: rows": (lambda c: _part(c, rows=0), "22023", "rows of a batch: .*1 or more, found 0"),
    "durability": (lambda c: c.transaction(5), "22023", "durability: expected text"),  # type: ignore[arg-type]
}


def _part(connection: herdpy.Connection, **options: Any) -> object:
    return connection.read_partition(connection.partitions("notes", 1)[0], **options)


@pytest.mark.parametrize("what", CALLS)
def test_what_no_transport_can_carry(connection: herdpy.Connection, what: str) -> None:
    """The driver says so itself: a server would end the connection."""
    call, sqlstate, words = CALLS[what]
    with pytest.raises(herdpy.Error) as caught:
        call(connection)
    assert (caught.value.sqlstate, bool(re.search(words, str(caught.value)))) == (sqlstate, True)
    assert connection.execute("SELECT count(*) FROM notes").fetchone() == (1,)


def test_a_directory_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(herdpy.OperationalError, match=r"no herdpy database.*letter\.txt") as caught:
        herdpy.connect(tmp_path)
    assert caught.value.sqlstate == "58P01"
    assert os.listdir(tmp_path) == ["letter.txt"]


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    herdpy.connect(tmp_path).close()
    (tmp_path / "FORMAT").write_text("herdpy 4\n")
    with pytest.raises(herdpy.NotSupportedError, match=r"format 4.*up to 3"):
        herdpy.connect(tmp_path)


@pytest.mark.parametrize("text", ["", "herdpy", "sqlite 1\n", "herdpy one\n"])
def test_a_damaged_format_file_is_refused(tmp_path: Path, text: str) -> None:
    herdpy.connect(tmp_path).close()
    (tmp_path / "FORMAT").write_text(text)
    with pytest.raises(herdpy.Error, match="FORMAT") as caught:
        herdpy.connect(tmp_path)
    assert caught.value.sqlstate == "XX001"


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(herdpy.OperationalError, match="file"):
        herdpy.connect(path)
    with pytest.raises(herdpy.OperationalError, match="file"):
        herdpy.connect(path / "db")
    assert path.read_text() == ""


def test_a_missing_parent_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(herdpy.OperationalError) as caught:
        herdpy.connect(tmp_path / "a" / "b")
    assert caught.value.sqlstate == "58P01"
    assert not os.listdir(tmp_path)


def test_a_second_process_is_told_who_has_it(tmp_path: Path) -> None:
    code = "import herdpy, sys; herdpy.connect(sys.argv[1])"
    with herdpy.connect(tmp_path):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
        )
    assert done.returncode == 1
    assert f"pid {os.getpid()}" in done.stderr
    assert "55006" in done.stderr
    assert "Close it there first" in done.stderr
    assert "herd://" in done.stderr
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert done.returncode == 0


def test_other_options_are_refused_and_name_both(tmp_path: Path) -> None:
    with herdpy.connect(tmp_path, durability="os"):
        with pytest.raises(herdpy.ProgrammingError, match=r"durability='os'.*'sync'"):
            herdpy.connect(tmp_path)
        herdpy.connect(tmp_path, durability="os", lock_timeout_s=1.0).close()


@pytest.mark.sync_face("herdpy.aio has no sql()")
def test_use_after_close(connection: herdpy.Connection) -> None:
    with herdpy.connect(":memory:") as other:
        cursor = other.execute("SELECT 1")
        box = other.sql("SELECT 2")
    for use in (cursor.fetchone, cursor.fetch_arrow_table, box.fetchall, other.cursor, other.sql):
        with pytest.raises(herdpy.InterfaceError, match="closed"):
            use(*(["SELECT 1"] if use == other.sql else []))
    closed = connection.execute("SELECT 1")
    closed.close()
    with pytest.raises(herdpy.InterfaceError, match="cursor is closed"):
        closed.fetchone()


# --- many open results -------------------------------------------------------------------------


@pytest.mark.sync_face("reaches into the connection")
def test_ten_thousand_open_cursors(local_connection: herdpy.Connection) -> None:
    connection = local_connection
    connection.executemany(
        "INSERT INTO notes VALUES (?, ?, ?)", [(i, "", "") for i in range(10, 3000)]
    )
    rows = [connection.execute("SELECT id FROM notes WHERE id >= ?", (n,)) for n in range(9_950)]
    vector = "SELECT id, sum(id) OVER (ORDER BY id) FROM notes"
    shared = connection._claim._shared
    assert shared.database is not None
    limit = shared.database.config.vector_results_max
    open_results = [connection.execute(vector) for _ in range(limit)]
    with pytest.raises(herdpy.OperationalError, match=str(limit)) as caught:
        connection.execute(vector)
    assert caught.value.sqlstate == "53200"
    assert len(rows) + len(open_results) < 10_000
    rows += [connection.execute("SELECT id FROM notes WHERE id >= 5") for _ in range(50)]
    assert rows[20].fetchone() == (20,)
    open_results[0].close()
    assert connection.execute(vector).fetchone() == (1, 1)
    assert len(shared.database.tablespace.registry) <= len(rows) + limit + 1
    for cursor in (*rows, *open_results):
        cursor.close()


def test_memory_is_a_private_engine_with_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    disks: list[Any] = []
    make = local.MemoryDisk
    monkeypatch.setattr(local, "MemoryDisk", lambda: disks.append(make()) or disks[-1])
    with herdpy.connect(":memory:") as one, herdpy.connect(":memory:") as other:
        one.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        one.commit()
        with pytest.raises(herdpy.ProgrammingError):
            other.execute("SELECT * FROM t")
    assert {"FORMAT", "LOCK", "default"} <= set(disks[0].list(""))
    assert "MANIFEST" in disks[0].list("default")
    assert disks[0].list("default/log")


def test_the_open_results_of_a_server_have_a_limit(server: RunningServer) -> None:
    with herdpy.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        connection.executemany("INSERT INTO t VALUES (?)", [(i,) for i in range(2000)])
        cursors = [connection.execute("SELECT id FROM t") for _ in range(RESULTS_MAX)]
        with pytest.raises(herdpy.OperationalError, match="results of this connection") as caught:
            connection.execute("SELECT id FROM t")
        assert caught.value.sqlstate == "53400"
        assert connection.execute("SELECT id FROM t WHERE id = 1").fetchall() == [(1,)]
        cursors[3].close()
        assert len(connection.execute("SELECT id FROM t").fetchall()) == 2000
        assert len(cursors[5].fetchall()) == 2000
