"""Findings of a newcomer: what programs for sqlite3 and psycopg do, and CSV of the shell."""

import importlib.util
import re
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import herdpy

# --- attributes of other drivers ------------------------------------------------------------------


def refusal(owner: Any, name: str) -> str:
    """Return what setting an attribute is answered with; "" when nothing is said."""
    try:
        setattr(owner, name, None)
    except AttributeError as error:
        return str(error)
    return ""


@pytest.mark.finding("N7")
@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("row_factory", "fetch_arrow_table"),
        ("text_factory", "TEXT"),
        ("total_changes", "rowcount"),
        ("autocomit", "autocommit"),
        ("something", "something"),
    ],
)
def test_an_attribute_that_has_no_effect_is_refused(name: str, hint: str) -> None:
    with herdpy.connect() as conn:
        found = refusal(conn, name)
        assert name in found
        assert hint in found
        assert not hasattr(conn, name)
        conn.autocommit = True  # its own goes on
        assert conn.autocommit


@pytest.mark.finding("N7")
def test_cursors_refuse_attributes() -> None:
    with herdpy.connect() as conn:
        cursor = conn.cursor()
        cursor.arraysize = 7
        assert "cursor.description" in refusal(cursor, "row_factory")
        assert "something" in refusal(cursor, "something")


@pytest.mark.finding("N7")
def test_pools_refuse_attributes() -> None:
    pool = herdpy.Pool(":memory:")
    assert "connections_max" in refusal(pool, "connections_max")
    pool.close()


# --- close ----------------------------------------------------------------------------------------


@pytest.mark.finding("N8")
def test_close_may_be_called_again() -> None:
    conn = herdpy.connect()
    conn.close()
    found = ""
    try:
        conn.close()
    except herdpy.Error as error:
        found = str(error)
    assert found == ""
    with pytest.raises(herdpy.InterfaceError):
        conn.execute("SELECT 1")


# --- CSV ------------------------------------------------------------------------------------------

TYPED = (
    "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT, d DECIMAL(8, 2), x DOUBLE, b BYTEA, "
    "o BOOLEAN, w TIMESTAMP, z TIMESTAMPTZ, day DATE)"
)
TYPED_ROWS = [
    (1, None, None, None, None, None, None, None, None),
    (2, "", Decimal("1.50"), -0.0, b"", False, datetime(2024, 2, 29, 1, 2, 3), None, None),
    (3, 'a "b", c', Decimal("-7.25"), 1e300, b"\x00\xff", True, None, None, date(2000, 1, 1)),
    (4, "two\nlines\r\nand \ttabs", None, 0.1, b'"', None, None, datetime.now(UTC), None),
    (5, "NULL", None, float("inf"), None, None, None, None, None),
    (6, "\\.", None, None, None, None, None, None, None),
]


def shell(directory: Path, *commands: str, mode: str = "csv") -> tuple[int, str, str]:
    """Run the shell with -c; return its exit code, output and errors."""
    options = [option for command in commands for option in ("-c", command)]
    command = [sys.executable, "-m", "herdpy.cli", "shell", str(directory), "--mode", mode]
    done = subprocess.run([*command, *options], capture_output=True, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.finding("N6")
def test_csv_tells_null_from_an_empty_text(tmp_path: Path) -> None:
    query = "SELECT 1 AS a, NULL AS b, '' AS c, 'x,y' AS d, 'q\"' AS e"
    assert shell(tmp_path / "db", query)[1] == 'a,b,c,d,e\n1,,"","x,y","q"""\n'


@pytest.mark.finding("N6")
def test_csv_goes_out_and_comes_back_as_it_was(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    for directory in (before, after):
        with herdpy.connect(directory, autocommit=True) as conn:
            conn.execute(TYPED)
            if directory is before:
                conn.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", TYPED_ROWS)
    file = tmp_path / "out of it.csv"
    file.write_bytes(shell(before, "SELECT * FROM t ORDER BY id")[1].encode())
    code, _, errors = shell(after, f'.import "{file}" t')
    assert (code, errors) == (0, "")
    with herdpy.connect(after) as conn:
        found = conn.execute("SELECT * FROM t ORDER BY id").fetchall()
    assert list(map(repr, found)) == list(map(repr, TYPED_ROWS))


BAD = {
    "type": ("id,v\n1,a\n2,b\nthree,c\n", "in.csv: line 4: ", "22P02"),
    "width": ("id,v\n1,a\n2\n", "in.csv: line 3: expected 2 fields, found 1", "22P04"),
    "quote": ('id,v\n1,"a\nb"\n2,"c\n3,d\n', "in.csv: line 4: a quote", "22P04"),
    "column": ("id,w\n1,a\n", "in.csv: line 1: ", "42703"),
    "key": ("id,v\n1,a\n1,b\n", "duplicate key", "23505"),
    "nothing": ("", "in.csv: line 1: ", "22P04"),
}


@pytest.mark.finding("N6")
@pytest.mark.parametrize(("text", "said", "sqlstate"), BAD.values(), ids=BAD.keys())
def test_an_import_is_whole_or_nothing_and_says_where(
    tmp_path: Path, text: str, said: str, sqlstate: str
) -> None:
    file = tmp_path / "in.csv"
    file.write_text(text)
    command = "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)"
    code, _, errors = shell(tmp_path / "db", command, f".import {file} t", mode="box")
    joined = "".join(errors.split())
    assert code == 1
    assert "".join(said.split()) in joined
    assert sqlstate in joined
    assert shell(tmp_path / "db", "SELECT count(*) AS n FROM t")[1] == "n\n0\n"


@pytest.mark.finding("N6")
def test_columns_by_name_and_line_ends_of_windows(tmp_path: Path) -> None:
    file = tmp_path / "in.csv"
    file.write_bytes('\ufeffv,ID\r\n,1\r\n"",2\r\n'.encode())
    shell(tmp_path / "db", "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT, n INTEGER DEFAULT 7)")
    assert shell(tmp_path / "db", f".import {file} t", "SELECT * FROM t", mode="csv")[1] == (
        'id,v,n\n1,,7\n2,"",7\n'
    )


@pytest.mark.finding("N2")
def test_the_rescue_that_the_doctor_advises_saves_what_is_whole(tmp_path: Path) -> None:
    path, saved = tmp_path / "db", tmp_path / "saved.sql"
    with herdpy.connect(str(path), autocommit=True) as connection:
        for name in ("a", "b"):
            connection.execute(f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, v TEXT)")
            rows = [(number, f"row {number}") for number in range(18_000)]
            connection.executemany(f"INSERT INTO {name} VALUES (?, ?)", rows)
        connection.checkpoint()
    segment = next((path / "default/segments").iterdir())
    data = bytearray(segment.read_bytes())
    data[len(data) // 4] ^= 1
    segment.write_bytes(data)

    def command(*words: str) -> "subprocess.CompletedProcess[str]":
        line = [sys.executable, "-m", "herdpy.cli", *words]
        return subprocess.run(line, capture_output=True, text=True, check=False)

    advised = re.findall(r"`herdpy (dump[^`]*)`", command("doctor", str(path)).stdout)
    assert advised
    rescue = command(*advised[0].split(), str(path), str(saved))
    assert rescue.returncode == 1
    assert saved.exists(), rescue.stderr
    assert re.search(rf"{segment.name} at offset \d+", rescue.stdout + rescue.stderr)
    assert command("shell", str(tmp_path / "new"), "-f", str(saved)).returncode == 0
    with herdpy.connect(str(tmp_path / "new")) as connection:
        counts = [
            connection.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0] for name in "ab"
        ]
    assert sorted(counts)[1] == 18_000
    assert 0 < sorted(counts)[0] < 18_000
    said = re.findall(r"^(\w+): ([\d,]+) rows", rescue.stdout, re.MULTILINE)
    assert said == [(name, f"{count:,}") for name, count in zip("ab", counts, strict=True)]


# --- what a result and the package show -----------------------------------------------------------


@pytest.mark.finding("N11")
def test_a_wide_result_says_how_many_columns_it_leaves_out() -> None:
    with herdpy.connect() as conn:
        names = ", ".join(f"{number} AS column_{number}" for number in range(30))
        *_, below, count = str(conn.sql(f"SELECT {names}")).splitlines()
    assert count == "1 row"
    assert "of 30 columns" in below


@pytest.mark.finding("N10")
def test_the_types_of_the_connector_are_for_programs() -> None:
    spec = importlib.util.find_spec("pyspark_herdpy")
    assert spec is not None
    assert (Path(str(spec.origin)).parent / "py.typed").exists()
