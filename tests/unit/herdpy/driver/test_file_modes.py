"""Files of a database are their owner's only; what others reach is told and left as it is."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import herdpy
from herdpy.driver.doctor import examine


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    old = os.umask(request.param)
    yield request.param
    os.umask(old)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def fill(path: Path) -> None:
    with herdpy.connect(path, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
        connection.execute("CREATE USER ann PASSWORD 'something long'")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(i, "x" * 50) for i in range(500)])
        connection.checkpoint()


def test_all_that_is_made_is_the_owners(tmp_path: Path, umask: int) -> None:
    fill(tmp_path / "data")
    with herdpy.connect(tmp_path / "data") as connection:
        connection.backup(tmp_path / "backup")
        connection.backup_all(tmp_path / "set")
        connection.dump(tmp_path / "dump")
    herdpy.restore(tmp_path / "backup", tmp_path / "restored")
    found = sorted(tmp_path.rglob("*"))
    assert {path.name for path in found} >= {"MANIFEST", "FORMAT", "LOCK", "log", "temp", "dump"}
    assert any(path.suffix == ".segment" for path in found)
    wrong = [(str(p), oct(mode(p))) for p in found if mode(p) != (0o700 if p.is_dir() else 0o600)]
    assert wrong == [], f"umask {umask:o}"


def test_a_part_of_a_backup_that_somebody_prepared_is_not_written(tmp_path: Path) -> None:
    """Where others may make files, as in /tmp, they could have linked it to one of ours."""
    (tmp_path / "precious").write_text("mine")
    fill(tmp_path / "data")
    with herdpy.connect(tmp_path / "data") as connection:
        for name in ("backup", "dump"):
            (tmp_path / f"{name}.part").symlink_to(tmp_path / "precious")
            getattr(connection, name)(tmp_path / name)
            assert (tmp_path / "precious").read_text() == "mine"
            assert not (tmp_path / name).is_symlink()
            assert mode(tmp_path / name) == 0o600


def test_what_others_reach_is_told_and_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "data"
    fill(data)
    assert examine(data).notes == []
    (data / "default" / "MANIFEST").chmod(0o644)
    assert examine(data).notes == []  # no other user gets as far as there
    (data / "default").chmod(0o755)
    (data / "default" / "segments").chmod(0o770)
    [note] = examine(data).notes
    assert note == (
        "default/MANIFEST and 1 more can be read or changed by other users of this machine "
        f"(mode 0644): chmod -R go-rwx {data}"
    )
    caplog.set_level(logging.WARNING)
    herdpy.connect(data).close()
    assert [r.getMessage() for r in caplog.records] == [note.replace(" and 1 more", "")]
    assert mode(data / "default" / "MANIFEST") == 0o644


def test_the_doctor_says_nothing_of_modes_where_there_is_no_database(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "letter.txt").write_text("dear all")
    (tmp_path / "letter.txt").chmod(0o644)
    report = examine(tmp_path)
    assert report.damages == ["FORMAT is missing: this is no database, or half of one"]
    assert report.notes == ["letter.txt is no file of a database"]


def test_the_doctor_leaves_the_owner_in_the_lock(tmp_path: Path) -> None:
    fill(tmp_path / "data")
    lock = tmp_path / "data" / "LOCK"
    lock.write_text("pid 1, somebody")
    before = lock.stat()
    examine(tmp_path / "data")
    assert lock.read_text() == "pid 1, somebody"
    assert lock.stat().st_mtime_ns == before.st_mtime_ns
    with herdpy.connect(tmp_path / "data"), pytest.raises(herdpy.OperationalError) as caught:
        examine(tmp_path / "data")
    assert caught.value.sqlstate == "55006"
