"""herdpy backup, restore, dump and doctor as processes, on a directory and on a server."""

from pathlib import Path

import pytest

import herdpy
from tests.fixtures.servers import PATH, running_server
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
    for arguments in ((source,), (source, "-")):
        assert ok("dump", *arguments).splitlines()[1:] == script.read_text().splitlines()[1:]
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


def test_all_tablespaces(tmp_path: Path) -> None:
    source, folder = str(tmp_path / "data"), tmp_path / "set"
    fill(source)
    with herdpy.connect(source, autocommit=True) as connection:
        connection.execute("CREATE TABLESPACE sales WITH (connections_max = 7)")
    with herdpy.connect(source, tablespace="sales", autocommit=True) as connection:
        connection.execute("CREATE TABLE u (id BIGINT PRIMARY KEY)")
        connection.execute("INSERT INTO u VALUES (1)")
    assert "verified" in ok("backup", "--all", source, folder)
    assert "restored" in ok("restore", folder, tmp_path / "new")
    assert len(rows(tmp_path / "new")) == 500
    said = ok("restore", folder, tmp_path / "one", "--tablespace", "sales")
    assert said.startswith("restored tablespace sales of ")
    for directory, options in ((tmp_path / "new", {"tablespace": "sales"}), (tmp_path / "one", {})):
        with herdpy.connect(directory, **options) as connection:
            assert connection.execute("SELECT * FROM u").fetchall() == [(1,)]
    said = ok("doctor", tmp_path / "new")
    assert "no damage" in said
    assert "tablespace default in default/: 1 tables, 0 roles, 0 rights" in said
    assert "1 tables, 0 roles, 0 rights, connections_max 7" in said
    for arguments, code in [
        (("dump", "--all", source, "--tablespace", "sales"), "22023"),
        (("backup", source, "-"), "22023"),
        (("dump", "--all", "--salvage", source), "22023"),
        (("backup", "--all", source, str(folder)), "58P02"),
        (("backup", "--all", source, str(tmp_path / "x"), "--tablespace", "sales"), "22023"),
        (("restore", str(folder), str(tmp_path / "new")), "0A000"),
        (("restore", str(folder), str(tmp_path / "x"), "--replace"), "0A000"),
        (("restore", str(folder), str(tmp_path / "x"), "--tablespace", "stock"), "3D000"),
    ]:
        found = run(*arguments)
        assert (found.returncode, found.stdout) == (1, ""), found
        assert f"({code})" in found.stderr
    ok("backup", "--all", source, folder, "--overwrite")
    victim = max(folder.glob("*.backup"), key=lambda path: path.stat().st_size)
    data = bytearray(victim.read_bytes())
    data[-200] ^= 1
    victim.write_bytes(data)
    found = run("restore", str(folder), str(tmp_path / "x"))
    assert found.returncode == 1
    assert f'{victim.name} of tablespace "default" at offset' in " ".join(found.stderr.split())
    ok("restore", folder, tmp_path / "y", "--tablespace", "sales")


def test_all_tablespaces_of_a_server(tmp_path: Path) -> None:
    with running_server() as server:
        url = server.url.removesuffix(PATH)
        fill(url)
        with herdpy.connect(url, autocommit=True) as connection:
            connection.execute("CREATE TABLESPACE sales WITH (connections_max = 7)")
        ok("backup", "--all", url, tmp_path / "set")
        found = run("backup", "--all", f"{url}/sales", str(tmp_path / "x"))
        assert (found.returncode, found.stdout) == (1, "")
        assert "(42501)" in found.stderr
        assert not (tmp_path / "x").exists()
    ok("restore", tmp_path / "set", tmp_path / "new")
    assert len(rows(tmp_path / "new")) == 500
    with herdpy.connect(tmp_path / "new", tablespace="sales") as connection:
        text = "SELECT tablespace, connections_max FROM systablespaces"
        assert connection.execute(text).fetchall() == [("sales", 7)]


def test_a_dump_of_all_can_be_read_in_again(tmp_path: Path) -> None:
    """With names, limits, users, rights and rows; and the dump of what comes of it is the same."""
    source, script = str(tmp_path / "data"), tmp_path / "all.sql"
    fill(source)
    with herdpy.connect(source, autocommit=True) as connection:
        connection.execute("CREATE USER boss PASSWORD 'a password of boss' SUPERUSER")
        connection.execute("CREATE TABLESPACE sales WITH (connections_max = 7)")
        connection.execute(
            'CREATE TABLESPACE "it\'s; a ""b""" '
            "WITH (memory_bytes_max = '64MB', disk_bytes_max = '2MB')"
        )
    for name in ("sales", 'it\'s; a "b"'):
        with herdpy.connect(source, tablespace=name, autocommit=True) as connection:
            connection.execute("CREATE TABLE u (id BIGINT PRIMARY KEY, s TEXT)")
            connection.execute("INSERT INTO u VALUES (1, ?)", (f".tablespace x\n.{name}\n.quit\n",))
            connection.execute("CREATE USER bob PASSWORD 'a password of bob'")
            connection.execute("GRANT SELECT, DELETE ON u TO bob WITH GRANT OPTION")
    ok("dump", "--all", source, script)
    ok("shell", tmp_path / "new", "-f", script)
    without_positions = [
        line for line in script.read_text().splitlines() if not line.startswith("-- herdpy")
    ]
    again = ok("dump", "--all", tmp_path / "new").splitlines()
    assert [line for line in again if not line.startswith("-- herdpy")] == without_positions
    assert len(rows(tmp_path / "new")) == 500
    with herdpy.connect(tmp_path / "new") as connection:
        text = (
            "SELECT tablespace, connections_max, memory_bytes_max, disk_bytes_max "
            "FROM systablespaces ORDER BY 1"
        )
        assert connection.execute(text).fetchall() == [
            ("default", None, None, None),
            ('it\'s; a "b"', None, 2**26, 2**21),
            ("sales", 7, None, None),
        ]
    with herdpy.connect(tmp_path / "new", tablespace='it\'s; a "b"') as connection:
        grants = connection.execute(
            "SELECT grantee, privilege, is_grantable FROM sysgrants WHERE object_name = 'u'"
        ).fetchall()
        assert ("bob", "select", True) in [(g, p.lower(), w) for g, p, w in grants]
        assert connection.execute("SELECT s FROM u").fetchall() == [
            ('.tablespace x\n.it\'s; a "b"\n.quit\n',)
        ]
    said = ok("doctor", tmp_path / "new")
    assert "1 tables, 1 roles, 2 rights, connections_max 7" in said


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
