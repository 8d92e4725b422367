"""Damage, full disks, signals, descriptors: findings D and what newcomers met of them (N4, N5)."""

import errno
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from struct import unpack_from
from typing import Any

import pytest

import herdpy

ROWS = 12_000


def filled(path: Path, *, has_checkpoint: bool) -> int:
    """Make a database with several log files; return how many rows it has."""
    with herdpy.connect(str(path), autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, p TEXT)")
        for start in range(0, ROWS, 1000):
            batch = [(number, "x" * 200) for number in range(start, start + 1000)]
            connection.executemany("INSERT INTO t VALUES (?, ?)", batch)
        if has_checkpoint:
            connection.checkpoint()
            batch = [(10**6 + number, "y") for number in range(1000)]
            connection.executemany("INSERT INTO t VALUES (?, ?)", batch)
    return ROWS + 1000 * has_checkpoint


def frame_ends(manifest: bytes) -> list[int]:
    start = 16 if manifest[8] == 1 else 32
    ends, offset = [start], start
    while offset + 12 <= len(manifest):
        offset += 12 + unpack_from("<I", manifest, offset + 4)[0]
        ends.append(offset)
    return ends


def digest(path: Path) -> dict[str, bytes]:
    files = (file for file in path.rglob("*") if file.is_file() and file.name != "LOCK")
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def found_in(path: Path) -> int | str:
    """Return how many rows there are, or the SQLSTATE of the error."""
    try:
        with herdpy.connect(str(path), autocommit=True) as connection:
            return connection.execute("SELECT count(*) FROM t").fetchall()[0][0]
    except herdpy.Error as error:
        return str(error.sqlstate)


@pytest.mark.finding("D1")
@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_a_manifest_cut_at_a_frame_is_damage_and_nothing_is_removed(
    tmp_path: Path, *, has_checkpoint: bool
) -> None:
    whole = tmp_path / "whole"
    row_count = filled(whole, has_checkpoint=has_checkpoint)
    manifest = (whole / "default/MANIFEST").read_bytes()
    for cut in frame_ends(manifest):
        copy = tmp_path / f"cut{cut}"
        shutil.copytree(whole, copy)
        (copy / "default/MANIFEST").write_bytes(manifest[:cut])
        before = digest(copy)
        found = found_in(copy)
        assert found in (row_count, "XX001"), f"cut at {cut}"
        if found == "XX001":
            assert digest(copy) == before, f"cut at {cut}: files were changed"
            (copy / "default/MANIFEST").write_bytes(manifest)
            assert found_in(copy) == row_count, f"cut at {cut}: the right manifest came too late"


@pytest.mark.finding("D1")
def test_an_older_manifest_put_back_is_damage_and_the_doctor_says_so(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with herdpy.connect(str(path), autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, p TEXT)")
        older = (path / "default/MANIFEST").read_bytes()
    filled_rows = [(number, "x" * 200) for number in range(6000)]
    with herdpy.connect(str(path), autocommit=True) as connection:
        for start in range(0, 6000, 1000):
            connection.executemany("INSERT INTO t VALUES (?, ?)", filled_rows[start : start + 1000])
    (path / "default/MANIFEST").write_bytes(older)
    before = digest(path)
    command = [sys.executable, "-m", "herdpy.cli", "doctor", str(path)]
    doctor = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "MANIFEST" in doctor.stdout + doctor.stderr, doctor.stdout
    assert doctor.returncode != 0
    assert found_in(path) == "XX001"
    assert digest(path) == before


class SmallDisk:
    """A directory whose files may have so many bytes together; more is ENOSPC, as at write()."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes_max = 1 << 60
        self._directory = directory
        write, allocate = os.pwrite, os.posix_fallocate

        def pwrite(descriptor: int, data: Any, offset: int) -> int:
            self._check(descriptor, offset + len(data))
            return write(descriptor, data, offset)

        def posix_fallocate(descriptor: int, offset: int, length: int) -> None:
            self._check(descriptor, offset + length)
            allocate(descriptor, offset, length)

        monkeypatch.setattr(os, "pwrite", pwrite)
        monkeypatch.setattr(os, "posix_fallocate", posix_fallocate)

    @property
    def free(self) -> int:
        return self.bytes_max - self.used()

    def used(self) -> int:
        return sum(file.stat().st_size for file in self._directory.rglob("*") if file.is_file())

    def _check(self, descriptor: int, end: int) -> None:
        growth = end - os.fstat(descriptor).st_size
        if growth > 0 and self.used() + growth > self.bytes_max:
            raise OSError(errno.ENOSPC, "No space left on device")


def grown(path: Path) -> "herdpy.Connection":
    """Return a connection to a database whose log files have grown to 4 MiB, without spares."""
    connection = herdpy.connect(str(path), autocommit=True)
    connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, p TEXT)")
    connection.execute("CREATE TABLE other (id BIGINT PRIMARY KEY, p TEXT)")
    connection.execute("INSERT INTO other VALUES (1, 'x')")
    log, count = path / "default/log", 0
    while not any(file.stat().st_size == 4 << 20 for file in log.iterdir()):
        count += 1
        connection.execute("UPSERT INTO t VALUES (?, ?)", (count % 50, "x" * 20_000))
        if count % 40 == 0:
            connection.checkpoint()
    for file in log.glob("spare*"):
        file.unlink()
    return connection


def fill(connection: "herdpy.Connection") -> str:
    """Write until it fails; return the SQLSTATE."""
    for number in range(2000):
        try:
            connection.execute("UPSERT INTO t VALUES (?, ?)", (number % 50, "y" * 20_000))
        except herdpy.Error as error:
            return str(error.sqlstate)
    return "it never fails"


@pytest.mark.finding("D3")
def test_the_log_uses_the_room_that_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SmallDisk(tmp_path, monkeypatch)
    connection = grown(tmp_path / "db")
    disk.bytes_max = disk.used() + 3 * 1024 * 1024
    assert fill(connection) == "53100"
    assert disk.free < 1024 * 1024
    disk.bytes_max = 1 << 60
    connection.close()


@pytest.mark.finding("D3")
def test_what_frees_space_works_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SmallDisk(tmp_path, monkeypatch)
    connection = grown(tmp_path / "db")
    other = herdpy.connect(str(tmp_path / "db"))
    other.execute("INSERT INTO other VALUES (2, 'y')")
    disk.bytes_max = disk.used() + 64 * 1024
    assert fill(connection) == "53100"
    failed: list[str] = []

    def run(what: str, step: Any) -> None:
        try:
            step()
        except herdpy.Error as error:
            failed.append(f"{what}: {error}")

    run("COMMIT", other.commit)
    run("DELETE", lambda: connection.execute("DELETE FROM t WHERE id < 25"))
    run("TRUNCATE", lambda: connection.execute("TRUNCATE TABLE t"))
    run("checkpoint", connection.checkpoint)
    run("DROP", lambda: connection.execute("DROP TABLE t"))
    assert failed == []
    assert connection.execute("SELECT count(*) FROM other").fetchall() == [(2,)]
    disk.bytes_max = 1 << 60
    connection.execute("INSERT INTO other VALUES (3, 'z')")
    other.close()
    connection.close()


def python(program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


_INTERRUPTED = """
import os, resource, signal, threading, time
import herdpy
resource.setrlimit(resource.RLIMIT_CPU, (30, 30))  # a query that was not interrupted ends here
connection = herdpy.connect(":memory:", autocommit=True)
connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
connection.executemany("INSERT INTO t VALUES (?, ?)", [(n, n) for n in range(20000)])
connection.execute("SELECT v, count(*) FROM t GROUP BY v").fetchall()
begun = time.process_time()
def interrupt():
    while time.process_time() < begun + 0.5:  # until the query has worked for so long
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
try:
    connection.execute("SELECT count(*) FROM t a, t b, t c WHERE a.v + b.v + c.v > 5").fetchall()
except BaseException as error:
    print("raised", type(error).__name__, flush=True)
print("then", connection.execute("SELECT count(*) FROM t").fetchall(), flush=True)
connection.close()
"""


@pytest.mark.finding("D4")
def test_an_interrupt_of_a_vector_query_is_keyboardinterrupt() -> None:
    child = python(_INTERRUPTED)
    assert "raised KeyboardInterrupt" in child.stdout, child.stdout + child.stderr[-2000:]
    assert "then [(20000,)]" in child.stdout


_NO_DESCRIPTORS = """
import os, resource, sys
import herdpy
path, what = sys.argv[1:]
connection = herdpy.connect(path, autocommit=True)
connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
connection.executemany("INSERT INTO t VALUES (?, ?)", [(n, n) for n in range(20000)])
steps = {
    "vector": lambda: connection.execute("SELECT v, count(*) FROM t GROUP BY v").fetchall(),
    "arrow": lambda: connection.execute("SELECT * FROM t").fetch_arrow_table(),
    "dump": lambda: connection.dump(path + ".dump"),
    "ingest": lambda: connection.ingest("t", [{"id": -1, "v": 1}]),
    "user": lambda: connection.execute("CREATE USER u PASSWORD 'abcdefghij'"),
    "checkpoint": connection.checkpoint,
}
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
try:
    steps[what]()
    told = "nothing"
except herdpy.Error as error:
    told = error.sqlstate
except BaseException as error:
    told = repr(error)
for each in held:
    os.close(each)
print("told", told)
steps[what]()
print("again done")
connection.close()
"""


@pytest.mark.finding("D6")
@pytest.mark.parametrize("what", ["vector", "arrow", "dump", "ingest", "user", "checkpoint"])
def test_no_descriptor_left_is_an_error_of_ours(tmp_path: Path, what: str) -> None:
    child = python(_NO_DESCRIPTORS, str(tmp_path / "db"), what)
    told = child.stdout.splitlines()
    assert told == ["told 53000", "again done"], child.stderr[-2000:]


_LEFT_OPEN = """
import sys
import herdpy
if sys.argv[1] == "pool":
    pool = herdpy.Pool(sys.argv[2])
    with pool.connection() as connection:
        connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
        connection.execute("SELECT v, count(*) FROM t GROUP BY v").fetchall()
else:
    connection = herdpy.connect(sys.argv[2], autocommit=True)
    connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
    connection.executemany("INSERT INTO t VALUES (?, ?)", [(n, n) for n in range(2000)])
    result = connection.execute("SELECT v, count(*) FROM t GROUP BY v")
    result.fetchone()
"""


@pytest.mark.finding("D8")
def test_a_connection_left_open_says_nothing_at_exit(tmp_path: Path) -> None:
    child = python(_LEFT_OPEN, "connection", str(tmp_path / "db"))
    assert child.returncode == 0
    assert "leaked" not in child.stderr + child.stdout, child.stderr


@pytest.mark.finding("N4")
def test_a_pool_of_a_module_says_nothing_at_exit(tmp_path: Path) -> None:
    child = python(_LEFT_OPEN, "pool", str(tmp_path / "db"))
    assert child.returncode == 0
    assert "leaked" not in child.stderr + child.stdout, child.stderr


@pytest.mark.finding("D9")
def test_a_directory_among_the_segments_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "db"
    row_count = filled(path, has_checkpoint=True)
    folder = path / "default/segments"
    for name in ("mine", "00000099.segment"):
        (folder / name).mkdir()
        (folder / name / "note").write_text("keep")
    assert found_in(path) == row_count
    with herdpy.connect(str(path), autocommit=True) as connection:
        connection.execute("DELETE FROM t WHERE id < 100")
        connection.checkpoint()
    assert found_in(path) == row_count - 100
    for name in ("mine", "00000099.segment"):
        assert (folder / name / "note").read_text() == "keep"


@pytest.mark.finding("D10")
def test_the_page_of_errors_names_settings_as_set_knows_them() -> None:
    page = Path(herdpy.__file__).parent.parent / "docs/reference/errors.md"
    names = set(re.findall(r"\b\w+_timeout\w*", page.read_text()))
    assert names
    unknown: list[str] = []
    with herdpy.connect(":memory:", autocommit=True) as connection:
        for name in sorted(names):
            try:
                connection.execute(f"SHOW {name}")
            except herdpy.Error:
                unknown.append(name)
    assert unknown == []


@pytest.mark.finding("N5")
def test_a_directory_of_something_else_is_refused_without_advice_to_chmod_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "letters.txt").write_text("mine")
    (tmp_path / "letters.txt").chmod(0o644)
    refused = ""
    try:
        herdpy.connect(str(tmp_path)).close()
    except herdpy.Error as error:
        refused = str(error)
    assert "is no herdpy database" in refused
    assert "chmod" not in caplog.text


# --- D2 -------------------------------------------------------------------------------------------


def pages_of(segment: bytes) -> list[tuple[int, int]]:
    """Return (offset, length) of the pages in a segment."""
    found, offset = [], 64
    while offset < len(segment):
        length = 64
        if segment[offset : offset + 4] == b"HDPG":
            length = unpack_from("<I", segment, offset + 12)[0]
            found.append((offset, length))
        offset += length
    return found


def of_two_tables(path: Path, factor: int = 7) -> Path:
    """Make tables t and u, with pages of equal length in one segment; return the segment."""
    with herdpy.connect(str(path), autocommit=True) as connection:
        for table, sign in (("t", 1), ("u", -1)):
            connection.execute(f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, v BIGINT)")
            rows = [(number, sign * number * factor) for number in range(16_384)]
            connection.executemany(f"INSERT INTO {table} VALUES (?, ?)", rows)
        connection.checkpoint()
    return path / "default/segments/00000001.segment"


def answers(path: Path, queries: list[str]) -> list[Any]:
    """Return the rows of each query, or the SQLSTATE that it, or opening, fails with."""
    try:
        with herdpy.connect(str(path), autocommit=True) as connection:
            found: list[Any] = []
            for query in queries:
                try:
                    found.append(connection.execute(query).fetchall())
                except herdpy.Error as error:
                    found.append(error.sqlstate)
            return found
    except herdpy.Error as error:
        return [error.sqlstate] * len(queries)


QUERIES = [
    "SELECT v FROM t WHERE id = 5",
    "SELECT count(*) FROM t WHERE id < 4096",
    "SELECT count(*), sum(v) FROM t WHERE id BETWEEN 100 AND 200",
    "SELECT id FROM t ORDER BY id LIMIT 3",
    "SELECT count(*) FROM t WHERE v = 35",
    "SELECT v FROM u WHERE id = 5",
    "SELECT sum(v) FROM u",
    "INSERT INTO t VALUES (5, 0)",
]


@pytest.mark.finding("D2")
def test_pages_in_each_others_place_are_not_believed(tmp_path: Path) -> None:
    segment = of_two_tables(tmp_path / "data")
    data = bytearray(segment.read_bytes())
    pages = pages_of(data)
    first, second = next(
        (one, two) for one in pages for two in pages if one < two and one[1] == two[1]
    )
    length = first[1]
    kept = bytes(data[first[0] :][:length])
    data[first[0] : first[0] + length] = data[second[0] :][:length]
    data[second[0] : second[0] + length] = kept
    whole = answers(tmp_path / "data", QUERIES)
    segment.write_bytes(data)
    found = answers(tmp_path / "data", QUERIES)
    for query, right, answer in zip(QUERIES, whole, found, strict=True):
        assert answer in (right, "XX001"), query
    assert "XX001" in found


@pytest.mark.finding("D2")
def test_a_segment_of_another_database_is_not_believed(tmp_path: Path) -> None:
    mine, other = (of_two_tables(tmp_path / name, n) for name, n in (("mine", 7), ("other", 9)))
    assert len(mine.read_bytes()) == len(other.read_bytes())
    mine.write_bytes(other.read_bytes())
    assert answers(tmp_path / "mine", QUERIES[:-1]) == ["XX001"] * (len(QUERIES) - 1)


# --- a file is believed only in its place ---------------------------------------------------------


_SECOND = """
import sys
import herdpy
try:
    herdpy.connect(sys.argv[1]).close()
    print("let in")
except herdpy.Error as error:
    print(error.sqlstate)
"""


@pytest.mark.finding("D7")
def test_removing_the_lock_of_an_open_database_lets_no_second_process_in(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with herdpy.connect(str(path), autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        (path / "LOCK").unlink()
        assert python(_SECOND, str(path)).stdout.split() == ["55006"]
        connection.execute("INSERT INTO t VALUES (1)")
    assert found_in(path) == 1


_KILLED = """
import os, sys
import herdpy
connection = herdpy.connect(sys.argv[1], autocommit=True)
connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
for number in range(int(sys.argv[2])):
    connection.execute("INSERT INTO t VALUES (?)", (number,))
os._exit(0)
"""


@pytest.mark.finding("D2")
@pytest.mark.parametrize("name", ["MANIFEST", "log/00000001.log"])
def test_a_log_or_manifest_of_another_database_is_not_believed(tmp_path: Path, name: str) -> None:
    """Both were killed, so that nothing says how long their logs are."""
    for which, count in (("mine", "10"), ("other", "20")):
        python(_KILLED, str(tmp_path / which), count)
    shutil.copyfile(tmp_path / "other/default" / name, tmp_path / "mine/default" / name)
    before = digest(tmp_path / "mine")
    assert found_in(tmp_path / "mine") == "XX001"
    assert digest(tmp_path / "mine") == before


@pytest.mark.finding("D9")
def test_a_directory_in_the_place_of_a_file_is_named(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    filled(whole, has_checkpoint=True)
    segment = min((whole / "default/segments").iterdir()).relative_to(whole)
    for name in ("FORMAT", "LOCK", "default/MANIFEST", str(segment)):
        copy = tmp_path / name.replace("/", "-")
        shutil.copytree(whole, copy)
        (copy / name).unlink()
        (copy / name).mkdir()
        said = "it opens"
        try:
            herdpy.connect(str(copy)).close()
        except herdpy.Error as error:
            said = f"{error.sqlstate} {error}"
        assert said.startswith("XX001"), f"{name}: {said}"
        assert f"{name} is a directory" in said, said


_FORGING = """
import os, sys
from struct import pack, unpack_from
import google_crc32c
import herdpy
path = sys.argv[1]
connection = herdpy.connect(path, autocommit=True)
connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, d BYTEA)")
connection.execute("INSERT INTO t VALUES (1, ?)", (b"mine",))
log = open(path + "/default/log/00000001.log", "rb").read()
manifest = open(path + "/default/MANIFEST", "rb").read()
version, = unpack_from("<H", log, 8)
at = manifest.index(b"\\xc4\\x10") + 2
frames = [n for n in range(0, 9000, 8) if log[n : n + 8] == log[:8]]
last = max(unpack_from("<Q", log, n + 48)[0] for n in frames)
# As one could make it who has read every file: only where it will stand is not to be known.
header = log[:12] + pack("<I", 1) + log[16:48] + pack("<QQI", last + 3, last + 2, 8)
payload = pack("<I", 1) + b"." + bytes(3)
seed = b"" if version == 1 else manifest[at : at + 16] + bytes(8)
frame = header + pack("<I", google_crc32c.value(seed + header + payload)) + payload
connection.execute("INSERT INTO t VALUES (2, ?)", ((frame + b".") * 8,))
os._exit(0)
"""


@pytest.mark.finding("E15")
def test_a_row_that_looks_like_a_later_frame_makes_no_torn_end_damage(tmp_path: Path) -> None:
    path = tmp_path / "db"
    child = python(_FORGING, str(path))
    assert child.stderr == ""
    file = path / "default/log/00000001.log"
    log = bytearray(file.read_bytes())
    offset = 0
    while b"mine" not in log[offset : offset + 72 + unpack_from("<I", log, offset + 64)[0]]:
        offset += 72 + unpack_from("<I", log, offset + 64)[0]
    offset += 72 + unpack_from("<I", log, offset + 64)[0]
    assert log[offset : offset + 8] == log[:8]
    log[offset : offset + 72] = bytes(72)  # the power failed before the beginning was on the disk
    file.write_bytes(log)
    assert found_in(path) == 1
