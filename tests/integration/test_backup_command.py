"""herdpy backup, restore, dump and doctor as processes, on a directory and on a server."""

from pathlib import Path

import pytest

import herdpy
from tests.fixtures.servers import running_server
from tests.integration.test_command import run

pytestmark = pytest.mark.integration


def fill(target: "str | Path") -> None:
    with herdpy.connect(target) as connection:
        connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, s TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(i, f"row {i}") for i in range(500)])
        connection.commit()


def rows(directory: Path) -> list[tuple[object, ...]]:
    with herdpy.connect(directory) as connection:
        return connection.execute("SELECT * FROM t ORDER BY id").fetchall()


def ok(*arguments: object) -> str:
    found = run(*map(str, arguments))
    assert (found.returncode, found.stderr) == (0, ""), found
    return found.stdout


def test_a_directory(tmp_path: Path) -> None:
    source = str(tmp_path / "data")
    fill(source)
    file, script = tmp_path / "a.backup", tmp_path / "a.sql"
    assert "verified" in ok("backup", source, file)
    ok("restore", file, tmp_path / "copy")
    ok("dump", source, script)
    ok("shell", tmp_path / "again", "-f", script)
    expected = [(i, f"row {i}") for i in range(500)]
    assert rows(tmp_path / "copy") == rows(tmp_path / "again") == expected
    assert ok("dump", source).splitlines()[1:] == script.read_text().splitlines()[1:]
    assert "no damage" in ok("doctor", tmp_path / "copy")
    for arguments, code in [
        (("backup", source, str(file)), "58P02"),
        (("restore", str(file), str(tmp_path / "copy")), "42P04"),
        (("backup", str(tmp_path / "nothing"), str(tmp_path / "b")), "58P01"),
        (("doctor", str(tmp_path / "nothing")), "58P01"),
    ]:
        found = run(*arguments)
        assert (found.returncode, found.stdout) == (1, ""), found
        assert f"({code})" in found.stderr
    ok("restore", file, tmp_path / "copy", "--replace")


def test_a_server(tmp_path: Path) -> None:
    with running_server() as server:
        fill(server.url)
        ok("backup", server.url, tmp_path / "a")
        found = run("backup", server.url, str(tmp_path / "a"))
        assert (found.returncode, found.stdout) == (1, "")
        assert ok("dump", server.url).count("\n  (") == 500
    ok("restore", tmp_path / "a", tmp_path / "copy")
    assert len(rows(tmp_path / "copy")) == 500


def test_damage_ends_with_one_and_the_directory_stays_as_it_is(tmp_path: Path) -> None:
    fill(tmp_path / "data")
    with herdpy.connect(tmp_path / "data") as connection:
        connection.checkpoint()
        found = run("doctor", str(tmp_path / "data"))
        assert found.returncode == 1
        assert "is open in another process" in found.stderr
    segment = next((tmp_path / "data").rglob("*.segment"))
    data = bytearray(segment.read_bytes())
    data[200] ^= 1
    segment.write_bytes(data)
    found = run("doctor", str(tmp_path / "data"))
    assert found.returncode == 1
    assert f"damage: damaged page in default/segments/{segment.name} at offset" in found.stdout
    assert segment.read_bytes() == data
    found = run("backup", str(tmp_path / "data"), str(tmp_path / "a"))
    assert found.returncode == 1
    assert not (tmp_path / "a").exists()
