"""Damage at rest, seen from connect(): the file and the offset are named, nothing is guessed."""

import random
import re
import shutil
from pathlib import Path

import pytest

import herdpy
from bookie.runtime.os_disk import OsDisk
from herdpy.storage.manifest import Manifest
from tests.fixtures.metadata import SeededRng

ROWS = 3000
SELECT = "SELECT count(*), sum(v), count(DISTINCT s) FROM t"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed directory with pages, bitmaps and a log behind the checkpoint."""
    path = tmp_path_factory.mktemp("damage") / "db"
    with herdpy.connect(str(path), autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT, s TEXT)")
        values = [(n, n, f"text {n}") for n in range(ROWS)]
        connection.cursor().executemany("INSERT INTO t VALUES (?, ?, ?)", values)
        connection.live_session().checkpoint()
        connection.execute("UPDATE t SET v = v + 1 WHERE id < 10")
        connection.live_session().checkpoint()
        connection.execute("UPDATE t SET v = v + 1 WHERE id < 20")
        connection.execute("INSERT INTO t VALUES (-1, 0, 'behind the checkpoint')")
    return path


@pytest.fixture
def copy(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "db"))


def answer(path: Path) -> object:
    with herdpy.connect(str(path)) as connection:
        point = connection.execute("SELECT v FROM t WHERE id = 5").fetchall()
        return point, connection.execute(SELECT).fetchall()


def files(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file() and file.name != "LOCK")


def check_named(error: herdpy.Error, file: Path, *, has_offset: bool) -> None:
    assert file.name.lower() in str(error).lower()
    assert error.sqlstate
    assert not has_offset or re.search(r"offset \d+", str(error)), error


def flipped(file: Path, offset: int, bit: int) -> None:
    data = bytearray(file.read_bytes())
    data[offset] ^= 1 << bit
    file.write_bytes(data)


def start_of_log(path: Path) -> int:
    manifest = Manifest.open(OsDisk(str(path)), "default/MANIFEST", SeededRng(1))
    start = manifest.state.log_start
    manifest.close()
    assert start is not None
    return start[1]


def test_a_flipped_bit_is_named_or_harmless(sound: Path, copy: Path, seed: int) -> None:
    """Some bits do not matter: zeros behind the end of the log. Then the answer is the same."""
    rng = random.Random(seed)
    expected = answer(copy)
    log_start = start_of_log(sound)
    named: dict[str, int] = {}
    for file in files(sound):
        name = file.relative_to(sound)
        used = len(file.read_bytes().rstrip(b"\0"))
        if not used:
            continue
        # What lies in a log before its checkpoint is not read any more.
        low = log_start if file.suffix == ".log" else 0
        for offset in [low, used - 1, *(rng.randrange(low, used) for _ in range(12))]:
            shutil.rmtree(copy)
            shutil.copytree(sound, copy)
            flipped(copy / name, offset, rng.randrange(8))
            try:
                found = answer(copy)
            except herdpy.Error as error:
                check_named(error, file, has_offset=name.name != "FORMAT")
                named[file.suffix or file.name] = named.get(file.suffix or file.name, 0) + 1
            else:
                assert found == expected, (name, offset)
    print(named)
    assert {"FORMAT", "MANIFEST", ".log", ".segment"} <= named.keys()


def test_a_shortened_segment_is_named_before_it_is_mapped(sound: Path, copy: Path) -> None:
    for file in (sound / "default" / "segments").iterdir():
        shutil.rmtree(copy)
        shutil.copytree(sound, copy)
        size = file.stat().st_size
        for length in (size - 1, size // 2, 10, 0):
            target = copy / "default" / "segments" / file.name
            target.write_bytes(file.read_bytes()[:length])
            with pytest.raises(herdpy.Error, match=rf"{file.name}.*{size}.*{length}"):
                answer(copy)


@pytest.mark.parametrize("part", ["MANIFEST", "segments", "log"])
def test_a_missing_file_is_named(sound: Path, copy: Path, part: str) -> None:
    folder = copy / "default"
    victims = [folder / part] if part == "MANIFEST" else sorted((folder / part).iterdir())
    victims = [file for file in victims if not file.name.startswith("spare")]
    assert victims
    for file in victims:
        data = file.read_bytes()
        file.unlink()
        with pytest.raises(herdpy.Error, match=file.name):
            answer(copy)
        file.write_bytes(data)
    answer(copy)


def test_a_shortened_log_is_named(sound: Path, copy: Path) -> None:
    (file,) = [f for f in (copy / "default" / "log").iterdir() if not f.name.startswith("spare")]
    data = file.read_bytes()
    used = len(data.rstrip(b"\0"))
    for length in (0, used // 2, start_of_log(sound), start_of_log(sound) + 8, used, len(data) - 1):
        file.write_bytes(data[:length])
        with pytest.raises(herdpy.Error, match=rf"{file.name}.*{len(data)}.*offset {length}"):
            answer(copy)


def test_a_shortened_manifest_or_format_is_named(sound: Path, copy: Path) -> None:
    for name, length in (("FORMAT", 3), ("default/MANIFEST", 40), ("default/MANIFEST", 5)):
        shutil.rmtree(copy)
        shutil.copytree(sound, copy)
        data = (copy / name).read_bytes()
        (copy / name).write_bytes(data[:length])
        with pytest.raises(herdpy.Error, match=Path(name).name):
            answer(copy)


@pytest.mark.parametrize("kept_bytes", [0, 64, 2000, 12_000])
@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_a_log_cut_at_any_length_is_named(
    tmp_path: Path, kept_bytes: int, has_checkpoint: bool
) -> None:
    path = tmp_path / "db"
    with herdpy.connect(str(path), autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        for number in range(10):
            connection.execute("INSERT INTO t VALUES (?)", (number,))
        if has_checkpoint:
            connection.checkpoint()
        connection.execute("INSERT INTO t VALUES (10)")
    log = path / "default" / "log" / "00000001.log"
    with log.open("r+b") as file:
        file.truncate(kept_bytes)
    with pytest.raises(
        herdpy.OperationalError,
        match=rf"00000001\.log.*offset {kept_bytes}$|00000001\.log.*offset {kept_bytes} ",
    ):
        herdpy.connect(str(path))


def test_zeroes_in_a_cleanly_closed_log_are_named(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with herdpy.connect(str(path), autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        for number in range(10):
            connection.execute("INSERT INTO t VALUES (?)", (number,))
    log = path / "default" / "log" / "00000001.log"
    data = log.read_bytes()
    used = len(data.rstrip(b"\0"))
    log.write_bytes(data[: used // 2] + bytes(len(data) - used // 2))
    with pytest.raises(herdpy.OperationalError, match=r"00000001\.log.*offset \d+"):
        herdpy.connect(str(path))


def test_a_missing_format_file_is_no_new_database(copy: Path) -> None:
    (copy / "FORMAT").unlink()
    with pytest.raises(herdpy.OperationalError, match="FORMAT is missing"):
        herdpy.connect(str(copy))
    assert not (copy / "FORMAT").exists()
