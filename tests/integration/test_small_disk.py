"""A real file system that is full or read-only; needs the right to mount, else skipped aloud."""

import gc
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import herdpy

pytestmark = pytest.mark.integration


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("*** no mount: a full real disk was not tried")
    if done.returncode:
        pytest.skip(f"*** no right to mount ({done.stderr.strip()}): no full disk was tried")
    yield folder
    gc.collect()  # the frames of an error that was caught may keep a segment mapped
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_fails_statements_and_the_database_lives(small: Path) -> None:
    ballast = small / "ballast"
    count = 0

    def fill(connection: herdpy.Connection) -> None:
        nonlocal count
        while True:
            connection.execute(
                "INSERT INTO t VALUES (?, ?)", (count, f"{count:08}".encode() * 20_000)
            )
            count += 1

    with herdpy.connect(small / "db", autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BYTEA)")
        ballast.write_bytes(bytes(4 * 1024 * 1024))
        with pytest.raises(herdpy.OperationalError) as caught:
            fill(connection)
        assert caught.value.sqlstate == "53100"
        assert caught.value.retry is herdpy.Retry.SAFE
        assert count > 3
        rows = [row[0] for row in connection.execute("SELECT id FROM t WHERE id >= 0 ORDER BY id")]
        assert rows == list(range(count))
        ballast.unlink()
        connection.execute("INSERT INTO t VALUES (-1, NULL)")
    with herdpy.connect(small / "db") as connection:
        rows = [row[0] for row in connection.execute("SELECT id FROM t WHERE id >= -1 ORDER BY id")]
        assert rows == list(range(-1, count))


def test_a_read_only_file_system_is_refused_and_unchanged(small: Path) -> None:
    with herdpy.connect(small / "db", autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    before = {path: path.read_bytes() for path in sorted(small.rglob("*")) if path.is_file()}
    subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
    for name in ("db", "new"):
        with pytest.raises(herdpy.OperationalError, match="ead-only") as caught:
            herdpy.connect(small / name)
        assert caught.value.sqlstate in ("25006", "58030")
    after = {path: path.read_bytes() for path in sorted(small.rglob("*")) if path.is_file()}
    assert after == before
    subprocess.run(["mount", "-o", "remount,rw", str(small)], check=True)
    herdpy.connect(small / "db").close()
