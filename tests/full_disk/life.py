"""A database's whole life on a small file system: filled, refused, killed, freed, full again.

What was acknowledged is counted by the clients, beside the database. Each step looks at all of it:
every acknowledged row is there, no refused one is, no file is left that is of no use, and the disk
stops being full by itself as soon as there is room.
"""

import gc
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

import herdpy
from bookie.runtime.os_disk import OsDisk
from bookie.runtime.os_rng import OsRng
from herdpy.driver.doctor import examine
from herdpy.driver.staging import StageToken
from herdpy.errors import DiskFullError
from herdpy.storage.manifest import Manifest
from herdpy.storage.segment import segment_name
from tests.crash.kill import BrokenPromiseError
from tests.crash.kill_server import start
from tests.fixtures.ports import own_port

_PATIENCE_S = 20.0
_STREAM = 10_000_000
_FULL = "53100"
_CLIENTS = 4
_REFUSALS = 4
"""So many, one behind the other and some time apart, say that it is full for now."""


class Row(NamedTuple):
    """One line of the picture."""

    step: str
    acknowledged: int
    refused: int
    free_bytes: int
    seconds: float


def text_of(number: int) -> str:
    """Return the row's text, from 20 to some 8,000 characters."""
    return f"{number:010}" * random.Random(number).choice((2, 20, 20, 100, 800))


def expect(is_so: bool, problem: str) -> None:
    if not is_so:
        raise BrokenPromiseError(problem)


def refuses(step: Callable[[], object], what: str) -> None:
    """Expect 53100, which a client may repeat."""
    try:
        step()
    except herdpy.Error as error:
        expect(error.sqlstate == _FULL, f"{what}: expected 53100, found {error}")
        expect(error.retry is herdpy.Retry.SAFE, f"{what}: 53100 is not SAFE")
        return
    raise BrokenPromiseError(f"{what} was not refused on a full disk")


def write_until_full(
    connection: herdpy.Connection, first: int, on_row: Callable[[int], object]
) -> int:
    """Insert rows, singly and many at a time, until maintenance finds no room; count refusals."""
    number, refusals, in_a_row = first, 0, 0
    while in_a_row < _REFUSALS:
        count = 1 if number % 3 else 20
        rows = [(each, text_of(each)) for each in range(number, number + count)]
        try:
            connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
        except herdpy.Error as error:
            expect(error.sqlstate == _FULL, f"expected 53100, found {error}")
            refusals += 1
            in_a_row += 1
            time.sleep(0.3)  # maintenance may find some room
            continue
        in_a_row = 0
        for each, _ in rows:
            on_row(each)
        number += count
    return refusals


def work(directory: str, first: int) -> None:
    """Fill the disk in this process, say which rows are committed, and wait to be killed."""
    with closing(herdpy.connect(directory, autocommit=True)) as connection:
        count = write_until_full(connection, first, lambda row: print(row, flush=True))
        print("full", count, flush=True)
        sys.stdin.read()


class Life:
    """One database on the file system mounted at `folder`, of size_mib."""

    def __init__(self, folder: Path, size_mib: int, say: Callable[[str], object]) -> None:
        self.rows: list[Row] = []
        self._folder = folder
        self._size_mib = size_mib
        self._say = say
        self._path = folder / "db"
        self._disk = OsDisk(folder)
        self._there: set[int] = set()
        self._refused = 0
        self._stream = 0
        self._begun_s = time.monotonic()

    def run(self) -> None:
        with closing(self._connect()) as connection:
            connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
            connection.execute("CREATE TABLE other (id BIGINT PRIMARY KEY, v TEXT)")
        self._embedded()
        self._killed()
        self._freed("DELETE")
        self._ballast()
        self._served()
        self._staged()
        self._backup()
        with closing(self._connect()) as connection:
            connection.execute("DROP TABLE t")
            connection.execute("DROP TABLE other")
            connection.checkpoint()
            self._wait_for_room(connection, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
        self._there.clear()
        self._note("emptied")

    # --- steps -----------------------------------------------------------------------------------

    def _embedded(self) -> None:
        with closing(self._connect()) as connection, closing(self._connect()) as other:
            other.execute("BEGIN")
            other.execute("INSERT INTO other VALUES (1, 'begun before')")
            self._refused += write_until_full(connection, self._next(), self._there.add)
            refuses(lambda: connection.execute("UPDATE t SET v = v || 'y'"), "UPDATE of all rows")
            other.commit()
            found = connection.execute("SELECT v FROM other WHERE id = 1").fetchall()
            expect(found == [("begun before",)], "a COMMIT on a full disk is lost")
            self._check(connection)
        self._note("full, embedded")
        with closing(self._connect()) as connection:  # closed and opened while it is full
            self._refused += write_until_full(connection, self._next(), self._there.add)
            self._check(connection)

    def _killed(self) -> None:
        """Fill it again behind some DELETEs, in a process that is killed then."""
        self._delete(lambda row: row % 4 == 0, "id % 4 = 0")
        command = [sys.executable, "-m", "tests.full_disk", "--work", str(self._path)]
        child = subprocess.Popen(
            [*command, str(self._next())], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        with child:
            assert child.stdout is not None
            for line in child.stdout:
                if line.startswith("full"):
                    self._refused += int(line.split()[1])
                    break
                self._there.add(int(line))
            child.kill()
        with closing(self._connect()) as connection:
            self._check(connection)
        self._note("killed while full")

    def _freed(self, what: str) -> None:
        self._delete(lambda row: row % 2 == 0, "id % 2 = 0")
        with closing(self._connect()) as connection:
            self._wait_for_room(connection, "INSERT INTO other VALUES (3, 'freed')")
            connection.execute("DELETE FROM other")
            self._check(connection)
        self._note(f"freed by {what}")

    def _ballast(self) -> None:
        """Let another program take all there is."""
        ballast = self._folder / "ballast"
        with closing(self._connect()) as connection:
            self._take_all(ballast)
            self._wait_until(lambda: self._is_refused(connection), "a full disk refuses nothing")
            gone = min(self._there, default=0)
            connection.execute("DELETE FROM t WHERE id = ?", (gone,))
            self._there.discard(gone)
            connection.checkpoint()
            self._check(connection)
        with closing(self._connect()) as connection:
            self._check(connection)
            ballast.unlink()
            self._wait_for_room(connection, "INSERT INTO other VALUES (5, 'room')")
            connection.execute("TRUNCATE TABLE other")
        self._note("another program, come and gone")

    def _served(self) -> None:
        """Fill it by clients of a server, which is killed and started again meanwhile."""
        with self._server() as (server, url):
            clients = [threading.Thread(target=self._client, args=(url,)) for _ in range(_CLIENTS)]
            for client in clients:
                client.start()
            for client in clients:
                client.join()
            server.kill()
            server.wait()
        with self._server() as (_, url), closing(self._connect(url)) as connection:
            self._check(connection)
            self._refused += write_until_full(connection, self._next(), self._there.add)
            text = "SELECT count(*) FROM sysdisks WHERE is_full AND refused > 0"
            self._wait_until(lambda: _count(connection, text) == 1, "sysdisks shows no full disk")
            self._check(connection)
        self._note("full, served, killed")

    def _client(self, url: str) -> None:
        mine: list[int] = []
        with closing(self._connect(url)) as connection:
            refused = write_until_full(connection, self._next(), mine.append)
        self._there.update(mine)  # one step each: no other thread reads before they have ended
        self._refused += refused

    def _staged(self) -> None:
        self._delete(lambda row: row % 3 == 0, "id % 3 = 0")
        batch = pa.table({"id": list(range(2_000)), "v": [text_of(n) for n in range(2_000)]})
        with self._server() as (_, url), closing(self._connect(url)) as connection:
            connection.execute("TRUNCATE TABLE other")
            self._wait_for_room(connection, "INSERT INTO other VALUES (-1, 'x')")
            job = connection.begin_staging("other", job="small")
            tokens: list[StageToken] = []

            def is_staged() -> bool:
                # The checkpoint behind the DELETEs may just have a part of the reserve.
                with suppress(DiskFullError), connection.stage(job, 0) as stage:
                    stage.add(batch.slice(0, 10))
                    tokens.append(stage.finish())
                return bool(tokens)

            self._wait_until(is_staged, "ten rows are not staged")
            large = connection.begin_staging("other", operation="upsert", job="large")
            with suppress(herdpy.OperationalError), connection.stage(large, 0) as stage:
                for _ in range(self._size_mib * 4):
                    stage.add(batch)
            connection.commit_staging(job, tokens)
            connection.abort_staging(large)
            found = connection.execute("SELECT count(*) FROM other").fetchall()
            expect(found == [(11,)], f"a staged commit on a full disk: {found}")
            self._wait_for_room(connection, "INSERT INTO other VALUES (-2, 'x')")
            self._check(connection)
        self._note("staged and given up")

    def _backup(self) -> None:
        target = self._folder / "backup"
        with closing(self._connect()) as connection:
            self._refused += write_until_full(connection, self._next(), self._there.add)
            refuses(lambda: connection.backup(target), "a backup to the same disk")
            expect(not target.exists(), "half a backup")
            expect(not Path(f"{target}.part").exists(), "a part of a backup is left")
            connection.execute("TRUNCATE TABLE t")
            self._there.clear()
            self._wait_for_room(connection, "INSERT INTO t VALUES (-1, 'x')")
            connection.execute("DELETE FROM t")

            def is_backed_up() -> bool:
                with suppress(DiskFullError):  # until what was truncated is gone
                    connection.backup(target)
                return target.exists()

            self._wait_until(is_backed_up, "no backup of an emptied table")
            target.unlink()
            self._refused += write_until_full(connection, self._next(), self._there.add)
            self._check(connection)
        self._note("backups, full again")

    # --- tools -----------------------------------------------------------------------------------

    def _connect(self, url: str | None = None) -> herdpy.Connection:
        return herdpy.connect(url or self._path, autocommit=True)

    def _next(self) -> int:
        self._stream += 1
        return self._stream * _STREAM

    @contextmanager
    def _server(self) -> "Iterator[tuple[subprocess.Popen[bytes], str]]":
        port = own_port()
        server = start(str(self._path), port)
        try:
            yield server, f"herd://127.0.0.1:{port}/default?retry_timeout_s=0"
        finally:
            server.terminate()
            server.communicate()

    def _delete(self, is_gone: Callable[[int], bool], condition: str) -> None:
        """Delete rows of t, a few at a time, as what is left of the reserve allows."""
        gone = sorted(row for row in self._there if is_gone(row))
        with closing(self._connect()) as connection:
            for low in range(0, len(gone), 200):
                part = gone[low : low + 200]
                place = (part[0], part[-1])
                text = f"DELETE FROM t WHERE id BETWEEN ? AND ? AND {condition}"
                self._wait_until(lambda p=place, t=text: _works(connection, t, p), "no DELETE")
        self._there.difference_update(gone)

    def _take_all(self, path: Path) -> None:
        with path.open("wb", buffering=0) as file:
            for size in (1024 * 1024, 4096):
                with suppress(OSError):
                    while True:
                        file.write(bytes(size))

    def _is_refused(self, connection: herdpy.Connection) -> bool:
        return not _works(connection, "INSERT INTO other VALUES (4, 'x') ON CONFLICT DO NOTHING")

    def _wait_for_room(self, connection: herdpy.Connection, text: str) -> None:
        try:
            self._wait_until(lambda: _works(connection, text), f"no room for {text!r}")
        except BrokenPromiseError as error:
            state = connection.execute("SELECT * FROM sysdisks").fetchall()
            files = {
                str(path.relative_to(self._folder)): path.stat().st_size
                for path in sorted(self._folder.rglob("*"))
                if path.is_file()
            }
            raise BrokenPromiseError(f"{error}: {state}, {files}") from error

    def _wait_until(self, is_so: Callable[[], bool], problem: str) -> None:
        end_s = time.monotonic() + _PATIENCE_S
        while not is_so():
            if time.monotonic() > end_s:
                raise BrokenPromiseError(f"{problem}, in {_PATIENCE_S:g} s")
            time.sleep(0.2)

    def _check(self, connection: herdpy.Connection) -> None:
        found = dict(connection.execute("SELECT id, v FROM t").fetchall())
        lost, extra = self._there - found.keys(), found.keys() - self._there
        expect(not lost, f"{len(lost)} acknowledged rows are lost: {sorted(lost)[:5]}")
        expect(not extra, f"{len(extra)} rows that were not acknowledged: {sorted(extra)[:5]}")
        wrong = [number for number, text in found.items() if text != text_of(number)]
        expect(not wrong, f"rows with another text: {wrong[:5]}")

    def _note(self, step: str) -> None:
        """Look at the files while the database is closed, and note where it stands."""
        report = examine(self._path)
        expect(not report.damages, f"the doctor: {report.damages[:3]}")
        gc.collect()  # the doctor's mappings, which keep files that are removed on the disk
        disk = OsDisk(self._path)
        manifest = Manifest.load(disk, "default/MANIFEST", OsRng())
        listed = {segment_name(number) for number in manifest.state.segments}
        manifest.close()
        left = set(disk.list("default/segments")) - listed
        if step.startswith(("freed", "another", "emptied")):  # it was closed, and not killed
            expect(not left, f"segments that are of no use: {sorted(left)}")
            expect(not disk.exists("default/MANIFEST.new"), "half a manifest is left")
            expect(not disk.list("default/temp"), "files of queries are left")
        total, free = self._disk.space()
        if step == "emptied":
            expect(free > total // 2, f"{free:,} of {total:,} bytes are free, and all is gone")
        seconds = time.monotonic() - self._begun_s
        self.rows.append(Row(step, len(self._there), self._refused, free, seconds))
        self._say(f"{self._size_mib} MiB: {step}: {len(self._there)} rows, {free:,} bytes free")


def _count(connection: herdpy.Connection, text: str) -> int:
    return connection.execute(text).fetchall()[0][0]


def _works(connection: herdpy.Connection, text: str, parameters: Any = None) -> bool:
    """Run a statement; False: the disk is full."""
    try:
        connection.execute(text, parameters)
    except herdpy.Error as error:
        expect(error.sqlstate == _FULL, f"{text}: expected 53100, found {error}")
        return False
    return True
