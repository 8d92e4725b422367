"""Tablespaces of one directory: made, changed and removed wholly or not at all, each its own."""

import errno
import gc
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from bookie.runtime.drivers import Mutex, ThreadDriver
from bookie.runtime.interfaces import Disk
from bookie.runtime.memory_disk import MemoryDisk
from bookie.runtime.os_clock import OsClock
from bookie.runtime.os_disk import OsDisk
from bookie.runtime.os_rng import OsRng
from herdpy.config import Config
from herdpy.engine.closing import run_all
from herdpy.engine.instance import Instance
from herdpy.engine.maintenance.directory import UNFINISHED
from herdpy.engine.maintenance.doctor import examine
from herdpy.engine.maintenance.quiet import QuietWatch
from herdpy.engine.maintenance.salvage import Salvage
from herdpy.engine.session.session import Session
from herdpy.engine.state.catalog import Catalog
from herdpy.engine.state.page_adoption import FEW_ROWS
from herdpy.engine.state.state import State
from herdpy.errors import CorruptionError, Error, NotSupportedError, OperationalError, Retry
from herdpy.model.durability import Durability
from herdpy.model.lsn import Lsn
from herdpy.model.settings import Settings
from herdpy.storage.tablespace_list import (
    MAKING,
    STAGED,
    TABLESPACES,
    TablespaceEntry,
    TablespaceLimits,
    TablespaceList,
    read_list,
    stage_list,
    take_list,
)
from tests.fixtures.backups import backed_up, restored
from tests.fixtures.engines import Background, rows, run
from tests.fixtures.interrupts import LineInterrupter
from tests.sim.clock import SimulatedClock
from tests.sim.disk import SimulatedCrash, SimulatedDisk

CONFIG = Config(log_file_bytes_first=8192, disk_reserve_bytes=0)


def opened(disk: Disk, *, is_threaded: bool = False, config: Config = CONFIG) -> Instance:
    found = Instance(
        disk=disk,
        clock=OsClock(),
        rng=OsRng(),
        driver=ThreadDriver(),
        config=config,
        is_threaded=is_threaded,
    )
    found.start()
    return found


@contextmanager
def instance(
    disk: Disk, *, is_threaded: bool = False, config: Config = CONFIG
) -> Generator[Instance]:
    found = opened(disk, is_threaded=is_threaded, config=config)
    try:
        yield found
    finally:
        found.close()


def session(found: Instance, name: str = "default", user: str | None = None) -> Session:
    return found.tablespaces.database(name).session(Settings(), autocommit=True, user=user)


def do(found: Instance, text: str, name: str = "default") -> None:
    one = session(found, name)
    try:
        run(one, text)
    finally:
        one.close()


def names(found: Instance) -> list[str]:
    return [state.entry.name for state in found.tablespaces.states()]


def folders(disk: Disk) -> list[str]:
    return [name for name in disk.list("") if len(name) == 32]


def test_tables_and_names_are_each_tablespace_s_own() -> None:
    disk = MemoryDisk()
    with instance(disk) as found:
        do(found, "CREATE TABLESPACE sales")
        for name in ("default", "sales"):
            do(found, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)", name)
            do(found, f"INSERT INTO t VALUES (1, '{name}')", name)
        text = "SELECT v FROM t WHERE id = 1"
        for name in ("default", "sales", "default", "sales"):  # also by plans that came before
            assert rows(session(found, name), text) == [(name,)]
    with instance(disk) as found:
        assert names(found) == ["default", "sales"]
        assert rows(session(found, "sales"), "SELECT v, count(*) FROM t GROUP BY v") == [
            ("sales", 1)
        ]


def test_a_plan_of_another_tablespace_is_never_taken() -> None:
    """Their tables have one id and their catalogs one version."""
    with instance(MemoryDisk()) as found:
        do(found, "CREATE TABLESPACE sales")
        do(found, "CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT)")
        do(found, "CREATE TABLE t (id BIGINT PRIMARY KEY, b TEXT, a TEXT)", "sales")
        do(found, "INSERT INTO t VALUES (1, 7)")
        do(found, "INSERT INTO t VALUES (1, 'x', 'y')", "sales")
        one, two = session(found), session(found, "sales")
        versions = {each.tablespace.state.catalog.version for each in (one, two)}
        assert len(versions) == 1
        for _ in range(3):
            assert rows(one, "SELECT a FROM t WHERE id = ?", 1) == [(7,)]
            assert rows(two, "SELECT a FROM t WHERE id = ?", 1) == [("y",)]


def test_plans_of_all_share_one_room() -> None:
    with instance(MemoryDisk()) as found:
        do(found, "CREATE TABLESPACE sales")
        room = found.plan_room
        room._entries_max = 3
        sessions = session(found), session(found, "sales")
        for number in range(4):
            for each in sessions:
                rows(each, f"SELECT {number}")
        caches = [each.plans for each in found.tablespaces.databases()]
        assert sum(map(len, caches)) == 3
        assert sum(len(cache.latest) for cache in caches) == 3
        for each in sessions:
            each.close()
        do(found, "DROP TABLESPACE sales")
        assert len(room._kept) == len(caches[0])


def test_the_creator_s_role_is_copied() -> None:
    with instance(MemoryDisk()) as found:
        do(found, "CREATE USER ada PASSWORD 'secret of ada' SUPERUSER")
        do(found, "CREATE USER bob PASSWORD 'secret of bob'")
        ada = session(found, user="ada")
        run(ada, "CREATE TABLESPACE sales")
        run(ada, "CREATE TABLESPACE stock OWNER bob")
        here, there = found.default.login("ada"), found.tablespaces.database("sales").login("ada")
        assert here is not None
        assert there is not None
        assert there.verifier == here.verifier
        secrets = {found.tablespaces.database("sales").login_secret, found.default.login_secret}
        assert len(secrets - {None}) == 2
        assert found.tablespaces.database("sales").is_superuser("ada")
        assert found.tablespaces.database("sales").login("bob") is None
        assert found.tablespaces.database("stock").is_superuser("bob")
        assert not found.default.is_superuser("bob")
        do(found, "CREATE USER eve PASSWORD 'secret of eve'", "sales")  # gets an id of its own
        eve = found.tablespaces.database("sales").login("eve")
        assert eve is not None
        assert eve.user.id != there.user.id
        assert found.default.login("eve") is None


def test_who_may() -> None:
    with instance(MemoryDisk()) as found:
        do(found, "CREATE USER ada PASSWORD 'secret of ada' SUPERUSER")
        do(found, "CREATE USER bob PASSWORD 'secret of bob'")
        run(session(found, user="ada"), "CREATE TABLESPACE sales")
        texts = (
            "CREATE TABLESPACE other",
            "ALTER TABLESPACE sales RENAME TO other",
            "DROP TABLESPACE sales",
        )
        for text in texts:
            for asker in (session(found, user="bob"), session(found, "sales", user="ada")):
                with pytest.raises(Error) as refused:
                    run(asker, text)
                assert refused.value.sqlstate == "42501"
                asker.close()
        assert names(found) == ["default", "sales"]


@pytest.mark.parametrize(
    ("text", "sqlstate"),
    [
        ("CREATE TABLESPACE sales", "42710"),
        ("CREATE TABLESPACE default", "42710"),
        ("ALTER TABLESPACE sales RENAME TO default", "42710"),
        ("ALTER TABLESPACE missing RENAME TO other", "3D000"),
        ("ALTER TABLESPACE default SET (connections_max = 1)", "0A000"),
        ("DROP TABLESPACE missing", "3D000"),
        ("DROP TABLESPACE default", "0A000"),
        ("CREATE TABLESPACE other LOCATION '/tmp'", "0A000"),
        ("CREATE TABLESPACE other OWNER missing", "42704"),
        ("CREATE TABLESPACE other WITH (memory_bytes_max = 1)", "22023"),
        ("CREATE TABLESPACE other WITH (memory_bytes_max = '1 parsec')", "22023"),
        ("CREATE TABLESPACE other WITH (speed = 1)", "22023"),
        ("ALTER TABLESPACE sales", "42601"),
        ("SELECT * FROM sales.t", "0A000"),
        ("INSERT INTO sales.t VALUES (1)", "0A000"),
    ],
)
def test_refused(text: str, sqlstate: str) -> None:
    with instance(MemoryDisk()) as found:
        do(found, "CREATE TABLESPACE sales")
        before = found.tablespaces.listed
        with pytest.raises(Error) as refused:
            do(found, text)
        assert refused.value.sqlstate == sqlstate
        if "sales.t" in text:
            assert "tablespace=" in str(refused.value)
        assert found.tablespaces.listed == before


def test_no_part_of_a_transaction() -> None:
    with instance(MemoryDisk()) as found:
        one = session(found)
        run(one, "BEGIN")
        with pytest.raises(Error) as refused:
            run(one, "CREATE TABLESPACE sales")
        assert refused.value.sqlstate == "25001"
        run(one, "ROLLBACK")
        assert names(found) == ["default"]


def test_if_it_is_there_and_if_not() -> None:
    with instance(MemoryDisk()) as found:
        do(found, "DROP TABLESPACE IF EXISTS sales")
        for _ in range(2):
            do(found, "CREATE TABLESPACE IF NOT EXISTS sales")
        do(found, "DROP TABLESPACE IF EXISTS sales")
        assert names(found) == ["default"]


def test_what_is_used_is_not_dropped() -> None:
    disk = MemoryDisk()
    with instance(disk) as found:
        do(found, "CREATE TABLESPACE sales")
        user = session(found, "sales")
        with pytest.raises(OperationalError, match="1 sessions use it") as refused:
            do(found, "DROP TABLESPACE sales")
        assert refused.value.sqlstate == "55006"
        run(user, "CREATE TABLE t (id BIGINT)")  # it goes on
        user.close()
        do(found, "DROP TABLESPACE sales")
        assert folders(disk) == []
        with pytest.raises(OperationalError) as gone:
            found.tablespaces.database("sales")
        assert gone.value.sqlstate == "3D000"
        do(found, "CREATE TABLESPACE sales")
        assert rows(session(found, "sales"), "SELECT * FROM sysusers") == []


def test_superusers_of_default_see_and_end_the_sessions_of_all() -> None:
    with instance(MemoryDisk()) as found:
        do(found, "CREATE TABLESPACE sales")
        root, user, other = session(found), session(found, "sales"), session(found, "sales")
        shown = "SELECT id, tablespace FROM sysclients ORDER BY id"
        of_sales = [(user.id, "sales"), (other.id, "sales")]
        assert rows(root, shown) == [(root.id, "default"), *of_sales]
        assert rows(user, shown) == of_sales
        assert rows(user, "SELECT client_id, tablespace FROM sysstatements") == [(user.id, "sales")]
        for text in (f"KILL {root.id}", f"KILL STATEMENT {root.id}"):
            with pytest.raises(Error) as unknown:
                run(user, text)
            assert unknown.value.sqlstate == "42704"
        run(root, f"KILL {user.id}")
        with pytest.raises(OperationalError) as killed:
            run(user, "SELECT 1")
        assert killed.value.sqlstate == "57P01"
        run(other, "SELECT 1")


def test_a_statement_of_another_tablespace_is_killed() -> None:
    with instance(MemoryDisk(), is_threaded=True) as found:
        do(found, "CREATE TABLESPACE sales")
        do(found, "CREATE TABLE t (id BIGINT PRIMARY KEY)", "sales")
        root, holder, victim = (session(found, name) for name in ("default", "sales", "sales"))
        run(holder, "BEGIN")
        run(holder, "INSERT INTO t VALUES (1)")
        ended: list[Error] = []

        def wait() -> None:
            with pytest.raises(Error) as caught:
                run(victim, "INSERT INTO t VALUES (1)")
            ended.append(caught.value)

        thread = threading.Thread(target=wait)
        thread.start()
        shown = "SELECT id FROM sysstatements WHERE tablespace = 'sales'"
        while not (ids := rows(root, shown)):
            pass
        run(root, f"KILL STATEMENT {ids[0][0]}")
        thread.join()
        assert [error.sqlstate for error in ended] == ["57014"]
        run(holder, "ROLLBACK")


def test_what_is_used_is_dropped_with_force() -> None:
    disk = MemoryDisk()
    with instance(disk, is_threaded=True) as found:
        do(found, "CREATE TABLESPACE sales")
        do(found, "CREATE TABLE t (id BIGINT PRIMARY KEY)", "sales")
        idle, writer = session(found, "sales"), session(found, "sales")
        run(writer, "BEGIN")
        run(writer, "INSERT INTO t VALUES (1)")
        do(found, "DROP TABLESPACE sales WITH (FORCE)")
        for each in (idle, writer):
            with pytest.raises(OperationalError) as ended:
                run(each, "SELECT 1")
            assert ended.value.sqlstate == "57P01"
            each.close()
        assert names(found) == ["default"]
        assert folders(disk) == []
        do(found, "DROP TABLESPACE IF EXISTS sales WITH (FORCE)")


def test_a_forced_drop_that_has_no_effect_ends_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    with instance(MemoryDisk()) as found:
        do(found, "CREATE TABLESPACE sales")
        user = session(found, "sales")
        with monkeypatch.context() as patched:
            patched.setattr("herdpy.engine.tablespaces.stage_list", _no_room)
            with pytest.raises(Error) as full:
                do(found, "DROP TABLESPACE sales WITH (FORCE)")
            assert full.value.sqlstate == "53100"
        run(user, "CREATE TABLE t (id BIGINT)")
        session(found, "sales")


def _no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, "no space left")


def test_no_sessions_by_a_limit_of_none() -> None:
    with instance(MemoryDisk()) as found:
        do(found, "CREATE TABLESPACE sales")
        user = session(found, "sales")
        do(found, "ALTER TABLESPACE sales SET (connections_max = 0)")
        run(user, "CREATE TABLE t (id BIGINT)")  # it goes on
        with pytest.raises(OperationalError) as refused:
            session(found, "sales")
        assert refused.value.sqlstate == "53300"


def test_a_name_and_limits_change_while_it_is_used() -> None:
    disk = MemoryDisk()
    with instance(disk) as found:
        do(found, "CREATE TABLESPACE sales WITH (memory_bytes_max = '64MB')")
        user = session(found, "sales")
        run(user, "CREATE TABLE t (id BIGINT)")
        do(found, "ALTER TABLESPACE sales RENAME TO stock")
        do(found, "ALTER TABLESPACE stock SET (connections_max = 2)")
        run(user, "INSERT INTO t VALUES (1)")
        second = session(found, "stock")
        with pytest.raises(OperationalError) as full:
            session(found, "stock")
        assert full.value.sqlstate == "53300"
        text = "SELECT share, used, refused FROM syslimits"
        text += " WHERE name = 'connections_of_tablespace_max'"
        assert rows(user, text) == [(2, 2, 1)]
        assert full.value.retry is Retry.SAFE
        do(found, "ALTER TABLESPACE stock RESET (connections_max)")
        session(found, "stock")
        memory = found.tablespaces.database("stock").memory
        assert memory.account.bytes_max == 64 * 2**20
        do(found, "ALTER TABLESPACE stock SET (memory_bytes_max = '32MB')")
        assert memory.account.bytes_max == 32 * 2**20
        assert memory.account.path.endswith("/tablespaces/stock")
        second.close()
    with instance(disk) as found:
        assert names(found) == ["default", "stock"]
        entry = found.tablespaces.listed.find("stock")
        assert entry is not None
        assert entry.limits.memory_bytes_max == 32 * 2**20
        assert rows(session(found, "stock"), "SELECT id FROM t") == [(1,)]


def at_once(found: Instance, *texts: str) -> None:
    """Run statements that have all looked what there is before the first of them changes it."""
    inner, wanted = found.tablespaces.changing, threading.Semaphore(0)
    found.tablespaces.changing = CountedMutex(inner, wanted)  # type: ignore[assignment]
    with Background() as background:
        with inner:
            for text in texts:
                background.start(partial(do, found, text))
            for _ in texts:
                assert wanted.acquire(timeout=30)
        background.join()
    found.tablespaces.changing = inner


class CountedMutex:
    """A mutex that counts who wants it."""

    def __init__(self, mutex: Mutex, wanted: threading.Semaphore) -> None:
        self._mutex = mutex
        self._wanted = wanted

    def __enter__(self) -> None:
        self._wanted.release()
        self._mutex.acquire()

    def __exit__(self, *_: object) -> None:
        self._mutex.release()


def test_changes_at_once_lose_none_and_find_what_another_has_done() -> None:
    with instance(MemoryDisk()) as found:
        at_once(found, *["CREATE TABLESPACE IF NOT EXISTS sales"] * 2)
        at_once(
            found,
            "ALTER TABLESPACE sales SET (connections_max = 9)",
            "ALTER TABLESPACE sales SET (disk_bytes_max = '1GB')",
            "ALTER TABLESPACE sales SET (memory_bytes_max = '64MB')",
        )
        entry = found.tablespaces.listed.find("sales")
        assert entry is not None
        assert entry.limits == TablespaceLimits(64 * 2**20, 9, 2**30)
        at_once(found, *["DROP TABLESPACE IF EXISTS sales"] * 2)
        assert names(found) == ["default"]


def test_systablespaces() -> None:
    with instance(MemoryDisk()) as found:
        do(found, "CREATE TABLESPACE sales WITH (connections_max = 9, disk_bytes_max = '1GB')")
        do(found, "CREATE TABLESPACE stock")
        text = "SELECT tablespace, state, connections_max, disk_bytes_max, sessions"
        text += " FROM systablespaces ORDER BY tablespace"
        here, there = session(found), session(found, "sales")
        sales = ("sales", "open", 9, 2**30, 1)
        assert rows(here, text) == [
            ("default", "open", None, None, 1),
            sales,
            ("stock", "open", None, None, 0),
        ]
        assert rows(there, text) == [sales]


def test_one_s_own_tablespace_is_there_while_it_gets_another_name() -> None:
    with instance(MemoryDisk()) as found:
        do(found, "CREATE TABLESPACE sales")
        one = session(found, "sales")
        entry = found.tablespaces.database("sales").entry
        renamed = msgspec.structs.replace(entry, name="stock")
        found.tablespaces.listed = found.tablespaces.listed.with_entry(
            renamed
        )  # the first half of ALTER TABLESPACE
        assert rows(one, "SELECT tablespace FROM systablespaces") == [("stock",)]


def test_open_results_of_a_user_are_those_of_its_tablespace() -> None:
    """Another one may have a user of the same name and number."""
    with instance(MemoryDisk()) as found:
        do(found, "CREATE TABLESPACE sales")
        for name in ("default", "sales"):
            do(found, "CREATE USER ann", name)
            do(found, "ALTER ROLE ann SET MAXIMUM open_results = 3", name)
        ann = found.tablespaces.database("sales").session(Settings(), autocommit=True, user="ann")
        result = ann.execute("SELECT x, count(*) FROM (VALUES (1), (2)) AS v (x) GROUP BY x")
        text = "SELECT used FROM syslimits WHERE name = 'open_results' AND user_name = 'ann'"
        assert rows(session(found, "sales"), text) == [(1,)]
        assert rows(session(found), text) == [(0,)]
        result.close()


def test_a_list_of_many_measures_each_once() -> None:
    with instance(MemoryDisk()) as found:
        for number in range(10):
            do(found, f"CREATE TABLESPACE t{number}")
        measured: list[str] = []
        for database in found.tablespaces.databases():
            memtables = database.memory.memtables
            measure = memtables.measure
            assert measure is not None
            memtables.measure = partial(_counted, measure, measured, database.name)
        used = rows(session(found), "SELECT tablespace, memory_bytes FROM systablespaces")
        assert sorted(measured) == sorted(names(found))
        kinds = {
            each.name: each.memory.kinds()[0].bytes_used for each in found.tablespaces.databases()
        }
        of_others = sum(count for name, count in kinds.items() if name != "default")
        assert dict(used) == kinds | {"default": kinds["default"] - of_others}


def _counted(measure: Callable[[], int], measured: list[str], name: str) -> int:
    measured.append(name)
    return measure()


def test_systablespaces_shows_a_log_that_has_stopped() -> None:
    disk = SimulatedDisk(1)
    with instance(disk) as found:
        with_rows(found)
        disk.fail("sync", errno.EIO, path=f"{found.tablespaces.database('other').entry.folder}/log")
        with pytest.raises(OperationalError):
            do(found, "INSERT INTO t VALUES (2, 'x')", "other")
        shown = rows(session(found), "SELECT tablespace, state, error FROM systablespaces")
        assert shown[0] == ("default", "open", None)
        assert shown[1][:2] == ("other", "failed")
        assert "Input/output error" in shown[1][2]
        disk.heal()


def test_a_name_is_looked_up_and_a_hint_looked_for_among_a_bounded_number() -> None:
    with instance(MemoryDisk()) as found:
        do(found, "CREATE TABLESPACE sales")
        assert found.tablespaces.find("sales") is found.tablespaces.opened("sales")
        assert found.tablespaces.find("salse") is None
        with pytest.raises(OperationalError) as absent:
            found.tablespaces.opened("salse")
        assert absent.value.hint == 'Did you mean "sales"?'
        listed = found.tablespaces.listed
        for number in range(100):
            listed = listed.with_entry(TablespaceEntry(b"%16d" % number, f"name_{number:05}"))
        found.tablespaces.listed = listed
        assert found.tablespaces.find("name_00099") is None  # it is not open
        with pytest.raises(OperationalError) as near:
            found.tablespaces.opened("name_0009")  # most like names that come late
        assert near.value.hint in [f'Did you mean "name_{each:05}"?' for each in range(50)]
        found.tablespaces.listed = listed.without([b"%16d" % number for number in range(100)])


def test_the_disk_that_a_tablespace_may_have() -> None:
    with instance(MemoryDisk()) as found:
        do(found, "CREATE TABLESPACE sales WITH (disk_bytes_max = '1MB')")
        user = session(found, "sales")
        run(user, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")

        def fill() -> None:
            for number in range(100):
                run(user, "INSERT INTO t VALUES (?, ?)", number, "x" * 100_000)

        with pytest.raises(Error, match="more than the 1,048,576 that it may") as full:
            fill()
        assert full.value.sqlstate == "53100"
        do(found, "CREATE TABLE t (id BIGINT)")  # of `default`
        run(user, "DELETE FROM t")
        found.tablespaces.database("sales").run_checkpoint()
        found.tablespaces.database("sales").run_compaction()
        run(user, "INSERT INTO t VALUES (1, 'y')")
        assert rows(user, "SELECT v FROM t") == [("y",)]
        do(found, "ALTER TABLESPACE sales RESET (disk_bytes_max)")
        run(user, "INSERT INTO t VALUES (2, ?)", "x" * 900_000)


@pytest.mark.parametrize("transaction_memory_bytes", [64 * 2**10, 2**28])
def test_one_statement_does_not_pass_the_limit_of_the_disk(transaction_memory_bytes: int) -> None:
    config = Config(
        log_file_bytes_first=8192,
        disk_reserve_bytes=0,
        transaction_memory_bytes=transaction_memory_bytes,
    )
    with instance(MemoryDisk(), config=config) as found:
        do(found, "CREATE TABLESPACE sales WITH (disk_bytes_max = '1MB')")
        user = session(found, "sales")
        run(user, "CREATE TABLE g (id BIGINT PRIMARY KEY)")
        run(user, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
        user.execute_many("INSERT INTO g VALUES (?)", [(number,) for number in range(200)])
        many = "INSERT INTO t SELECT a.id * 200 + b.id, repeat('x', 500) || b.id FROM g a, g b"
        with pytest.raises(Error) as refused:
            run(user, many)
        assert refused.value.sqlstate == "53100"
        assert found.tablespaces.database("sales").replica.disk_bytes() <= 2**20  # of 20 MB
        assert rows(user, "SELECT count(*) FROM t") == [(0,)]
        found.tablespaces.database("sales").run_checkpoint()
        while found.tablespaces.database("sales").run_compaction():
            pass
        run(user, "INSERT INTO t VALUES (1, 'x')")


_MUCH = "INSERT INTO t SELECT id + ?, repeat('x', 60000) FROM g"
_WRITES: dict[str, Callable[[Session, int], object]] = {
    "INSERT SELECT": lambda user, first: run(user, _MUCH, first),
    "executemany": lambda user, first: user.execute_many(
        "INSERT INTO t VALUES (?, ?)", [(first + n, "x" * 60_000) for n in range(8)]
    ),
    "rows": lambda user, first: [
        run(user, "INSERT INTO t VALUES (?, ?)", first + n, "x" * 60_000) for n in range(8)
    ],
    "a transaction": lambda user, first: [
        run(user, "BEGIN"),
        *(run(user, "INSERT INTO t VALUES (?, ?)", first + n, "x" * 600) for n in range(800)),
        run(user, "COMMIT"),
    ],
    "UPDATE": lambda user, first: run(user, "UPDATE g SET v = repeat('x', 60000 + ?)", first),
    "ingest": lambda user, first: _ingest(user, first, 8),
    "ingest by stages": lambda user, first: _ingest(user, first, FEW_ROWS + 1),
}


def _ingest(user: Session, first: int, row_count: int) -> None:
    text = "x" * (480_000 // row_count)
    table = pa.table({"id": range(20 * first, 20 * first + row_count), "v": [text] * row_count})
    ingest = user.begin_ingest("t", "append")
    for batch in table.to_batches():
        ingest.add(batch)
    ingest.finish()


@pytest.mark.parametrize("way", _WRITES)
def test_all_that_sessions_write_at_once_counts(way: str) -> None:
    with instance(MemoryDisk()) as found:
        do(found, "CREATE TABLESPACE sales WITH (disk_bytes_max = '1MB')")
        user = session(found, "sales")
        run(user, "CREATE TABLE g (id BIGINT PRIMARY KEY, v TEXT)")
        run(user, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
        user.execute_many("INSERT INTO g VALUES (?, '')", [(number,) for number in range(8)])
        refused: list[str | None] = []

        def write(number: int) -> None:
            writer = session(found, "sales")
            try:
                _WRITES[way](writer, 1_000 * number)
            except Error as error:
                refused.append(error.sqlstate)
            finally:
                writer.close()

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert "53100" in refused
        # Each has half a megabyte to write. The first has room, unless all are in their midst.
        assert len(refused) <= 3 + (way in ("a transaction", "ingest by stages", "rows"))
        assert found.tablespaces.database("sales").replica.disk_bytes() <= 2**20
        run(user, "DELETE FROM t")
        found.tablespaces.database("sales").run_checkpoint()
        run(user, "INSERT INTO t VALUES (1, 'x')")


@pytest.mark.parametrize("kept_by", ["a snapshot", "a backup"])
def test_what_is_kept_of_deleted_pages_counts(kept_by: str) -> None:
    with instance(MemoryDisk()) as found:
        do(found, "CREATE TABLESPACE sales")
        user, reader = session(found, "sales"), session(found, "sales")
        run(user, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
        for number in range(20):
            run(user, "INSERT INTO t VALUES (?, ?)", number, OsRng().randbytes(20_000).hex())
        database = found.tablespaces.database("sales")
        database.run_checkpoint()
        full = database.replica.disk_bytes()
        run(reader, "BEGIN ISOLATION LEVEL REPEATABLE READ")
        if kept_by == "a snapshot":
            rows(reader, "SELECT id FROM t WHERE id = 1")
        backup = database.backup() if kept_by == "a backup" else None
        run(user, "DELETE FROM t")
        database.run_checkpoint()
        while database.run_compaction():
            pass
        assert not [name for name in database.replica.manifest.state.segments if name == 1]
        assert database.replica.disk_bytes() >= full
        do(found, f"ALTER TABLESPACE sales SET (disk_bytes_max = {2**20})")

        def fill() -> None:
            for _ in range(40):
                run(user, "UPSERT INTO t VALUES (1, ?)", "x" * 30_000)

        with pytest.raises(Error) as refused:
            fill()
        assert refused.value.sqlstate == "53100"
        run(reader, "ROLLBACK")
        if backup is not None:
            backup.close()
        assert database.replica.disk_bytes() < full
        database.run_checkpoint()
        run(user, "INSERT INTO t VALUES (2, 'x')")


def test_memtables_have_one_share_and_the_largest_goes_first() -> None:
    config = Config(
        log_file_bytes_first=8192,
        disk_reserve_bytes=0,
        memory_bytes_max=16 * 2**20,
        memtable_share=0.05,
    )
    with instance(MemoryDisk(), config=config) as found:
        for name, count in (("large", 60), ("small", 30)):
            do(found, f"CREATE TABLESPACE {name}")
            do(found, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)", name)
            one = session(found, name)
            for number in range(count):
                run(one, "INSERT INTO t VALUES (?, ?)", number, "x" * 10_000)
        large, small = found.tablespaces.database("large"), found.tablespaces.database("small")
        share = config.memtable_bytes_max
        sizes = [each.tablespace.memtable_bytes() for each in (large, small)]
        assert max(sizes) < share < sum(sizes)
        small.run_maintenance_once()
        assert small.tablespace.memtable_bytes() == sizes[1]
        large.run_maintenance_once()
        assert large.tablespace.memtable_bytes() == 0
        assert found.memory.bytes_max == 16 * 2**20


def test_a_quiet_tablespace_is_left_alone_until_something_happens() -> None:
    clock = SimulatedClock()
    watch = QuietWatch(clock)
    state = State(1, Lsn(1, 1, 0), Catalog(1, ()), {})

    def quiet(byte_count: int = 1, *, is_busy: bool = False) -> bool:
        return watch.is_quiet(state, byte_count, is_busy=is_busy)

    seen: list[bool] = []
    for _ in range(20):  # ten seconds, twice each
        seen.append(quiet())
        clock.advance(0.5)
    assert not any(seen[:5])
    assert seen.count(False) == 6  # one more round, and then none for half a minute
    clock.advance(30)
    assert not quiet()
    assert quiet()
    assert not quiet(2)  # something was appended
    assert not quiet(2)
    clock.advance(3)
    assert not quiet(2)
    assert quiet(2)
    assert not quiet(2, is_busy=True)
    assert not quiet(2)
    clock.advance(3)
    quiet(2)
    state = state._replace(lsn=Lsn(1, 2, 0))  # a tick of the log
    assert quiet(2)
    state = state._replace(position=2)
    assert not quiet(2)


# --- crashes -------------------------------------------------------------------------------------


def content(disk: Disk) -> dict[str, list[Any]]:
    """Return the tables of each tablespace, and check that nothing else is there."""
    with instance(disk) as found:
        shown = {
            name: rows(session(found, name), "SELECT v FROM t WHERE id = 1")
            if found.tablespaces.database(name).tablespace.state.catalog.table("t")
            else []
            for name in names(found)
        }
        assert folders(disk) == sorted(
            state.entry.folder
            for state in found.tablespaces.states()
            if state.entry.name != "default"
        )
        return shown


def crashed_at_every_step(
    prepare: Callable[[Instance], object], step: Callable[[Instance], object]
) -> list[tuple[bool, dict[str, list[Any]]]]:
    """Return, for a crash in each disk step, whether the step had returned, and what is there."""
    found: list[tuple[bool, dict[str, list[Any]]]] = []
    for number in range(1, 1000):
        for seed in range(3):
            disk = SimulatedDisk(seed)
            here = opened(disk)
            prepare(here)
            disk.crash_at = disk.step_count + number
            is_done = False
            try:
                step(here)
                is_done = True
            except SimulatedCrash:
                pass
            is_over = disk.step_count < disk.crash_at
            found.append((is_done, content(disk.crash())))
            if is_over:
                return found
    raise AssertionError("no end")


def with_rows(found: Instance) -> None:
    do(found, "CREATE TABLESPACE other")
    for name in ("default", "other"):
        do(found, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)", name)
        do(found, f"INSERT INTO t VALUES (1, '{name}')", name)


KEPT = {"default": [("default",)], "other": [("other",)]}


@pytest.mark.exhaustive
def test_a_crash_in_create_leaves_all_or_nothing() -> None:
    outcomes = crashed_at_every_step(with_rows, lambda found: do(found, "CREATE TABLESPACE sales"))
    assert len(outcomes) > 40
    for is_done, shown in outcomes:
        assert shown == {**KEPT, "sales": []} or (shown == KEPT and not is_done)
    assert {"sales" in shown for _, shown in outcomes} == {True, False}


@pytest.mark.exhaustive
def test_a_crash_in_drop_leaves_all_or_nothing() -> None:
    without = {"default": KEPT["default"]}
    outcomes = crashed_at_every_step(with_rows, lambda found: do(found, "DROP TABLESPACE other"))
    assert len(outcomes) > 30
    for is_done, shown in outcomes:
        assert shown == without or (shown == KEPT and not is_done)
    assert any(shown == KEPT for _, shown in outcomes)


@pytest.mark.exhaustive
def test_a_crash_in_alter_leaves_the_old_or_the_new() -> None:
    renamed = {"default": KEPT["default"], "third": KEPT["other"]}
    outcomes = crashed_at_every_step(
        with_rows, lambda found: do(found, "ALTER TABLESPACE other RENAME TO third")
    )
    for is_done, shown in outcomes:
        assert shown == renamed or (shown == KEPT and not is_done)
    assert any(shown == KEPT for _, shown in outcomes)


def killed_at_every_step(text: str, seeds: int) -> Generator[SimulatedDisk]:
    """Yield the disk after kill -9 in each disk step of a statement: nothing is lost yet."""
    for number in range(1, 1000):
        for seed in range(seeds):
            disk = SimulatedDisk(seed)
            here = opened(disk)
            with_rows(here)
            do(here, "CREATE USER ada")
            disk.crash_at = disk.step_count + number
            with suppress(SimulatedCrash, Error):
                do(here, text)
            yield disk.restart(is_power_lost=False)
        if disk.step_count < disk.crash_at:
            return
    raise AssertionError("no end")


CHANGES = {
    "CREATE TABLESPACE sales OWNER ada": {**KEPT, "sales": []},
    "DROP TABLESPACE other": {"default": KEPT["default"]},
    "ALTER TABLESPACE other RENAME TO third": {
        "default": KEPT["default"],
        "third": KEPT["other"],
    },
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("text", CHANGES)
def test_what_an_opening_has_found_stays_after_a_power_failure(text: str) -> None:
    """Crash seed 2064: killed between the list's rename and the sync of its name, opened again."""
    for disk in killed_at_every_step(text, 4):
        found = content(disk)
        assert content(disk.crash()) == found


@pytest.mark.exhaustive
@pytest.mark.parametrize("text", CHANGES)
def test_a_power_failure_while_it_is_opened_after_a_kill_loses_nothing(text: str) -> None:
    for killed in killed_at_every_step(text, 1):
        for number in range(1, 1000):
            disk = killed.restart(number, is_power_lost=False)
            disk.crash_at = number
            with suppress(SimulatedCrash, Error):
                opened(disk).tablespaces.open_all()
            is_over = disk.step_count < number
            assert content(disk.crash()) in (KEPT, CHANGES[text])
            if is_over:
                break


def test_a_fault_in_any_step_of_create_leaves_nothing() -> None:
    for op in ("open", "write", "sync", "make_directory", "rename", "sync_directory"):
        for skip in range(12):
            disk = SimulatedDisk(skip)
            with instance(disk) as found:
                with_rows(found)
                disk.fail(op, errno.EIO, after=skip)
                is_done = True
                try:
                    do(found, "CREATE TABLESPACE sales")
                except Error:
                    is_done = False
                assert ("sales" in names(found)) == is_done, (op, skip)
                disk.heal()
                is_known = found.tablespaces._list_failure is None
                if is_known:
                    do(found, "CREATE TABLESPACE IF NOT EXISTS sales")
                    assert len(folders(disk)) == 2
                else:
                    with pytest.raises(OperationalError) as unknown:
                        do(found, "CREATE TABLESPACE third")
                    assert unknown.value.sqlstate == "58030"
                assert rows(session(found, "other"), "SELECT v FROM t") == [("other",)]
            assert set(content(disk.crash(is_power_lost=False))) >= {"default", "other"}


@pytest.mark.parametrize("op", ["sync", "write"])
def test_a_log_that_fails_in_create_leaves_nothing_unknown(op: str) -> None:
    """Crash seed 1728."""
    failures: list[Error] = []
    for after in range(4):
        disk = SimulatedDisk(1)
        with instance(disk) as found:
            do(found, "CREATE USER ada")
            disk.fail(op, errno.EIO, after=after, path="/log/")
            before = len(failures)
            try:
                do(found, "CREATE TABLESPACE sales OWNER ada")
            except Error as failed:
                failures.append(failed)
            is_made = len(failures) == before
            assert names(found) == ["default", *["sales"] * is_made]
            assert len(folders(disk)) == is_made
            disk.heal()
            do(found, "CREATE TABLESPACE IF NOT EXISTS sales OWNER ada")
    assert {failed.sqlstate for failed in failures} == {"58030"}
    assert Retry.UNKNOWN not in {failed.retry for failed in failures}


def test_what_fails_first_in_create_is_told() -> None:
    """Crash seed 200004553: its log failed, too, as it was closed; that said 08007 of commits."""
    doubt_count = 0
    for after in range(8):
        disk = SimulatedDisk(1)
        with instance(disk) as found:
            do(found, "CREATE USER ada")
            disk.fail("rename", errno.EIO, after=1, path=TABLESPACES)  # the one that decides
            disk.fail("write", errno.EIO, after=after, path="/log/")
            with pytest.raises(OperationalError) as failed:
                do(found, "CREATE TABLESPACE sales OWNER ada")
            disk.heal()
            is_doubt = found.tablespaces._list_failure is not None
            if is_doubt and "which one the disk has is not known" not in str(failed.value):
                raise failed.value
            doubt_count += is_doubt
    assert doubt_count


def test_a_tablespace_whose_end_is_in_doubt_is_not_served() -> None:
    """What would be written to it would be gone when the directory is opened again."""
    disk = SimulatedDisk(1)
    with instance(disk) as found:
        with_rows(found)
        disk.fail("rename", errno.EIO, path=TABLESPACES)
        with pytest.raises(OperationalError) as doubt:
            do(found, "DROP TABLESPACE other")
        assert doubt.value.retry is Retry.UNKNOWN
        with pytest.raises(OperationalError) as refused:
            found.tablespaces.database("other")
        assert refused.value.sqlstate == "58030"
    assert content(disk.crash(is_power_lost=False)) == KEPT


def test_a_drop_that_finds_no_room_at_all_has_no_effect() -> None:
    disk = SimulatedDisk(1)
    with instance(disk) as found:
        with_rows(found)
        for op in ("open", "write", "sync"):
            disk.fail(op, errno.ENOSPC, path=TABLESPACES, times=1_000)
            with pytest.raises(Error) as full:
                do(found, "DROP TABLESPACE other")
            disk.heal()
            assert full.value.sqlstate == "53100"
            assert f"{TABLESPACES}.new" not in disk.list("")
            one = found.tablespaces.opened("other").session(Settings(), autocommit=True)
            assert rows(one, "SELECT v FROM t") == [("other",)]
            one.close()
        do(found, "DROP TABLESPACE other")


def test_a_drop_frees_a_full_disk() -> None:
    """What is kept for a full disk is there for it."""
    disk = SimulatedDisk(1)
    config = replace(CONFIG, disk_reserve_bytes=2 * 2**20)
    with instance(disk, config=config) as found:
        with_rows(found)
        disk.capacity_bytes = disk.used_bytes
        do(found, "DROP TABLESPACE other")
        assert folders(disk) == []
        assert read_list(disk) == found.tablespaces.listed
        assert len(found.tablespaces.listed.entries) == 1


def test_what_cannot_be_removed_keeps_nothing_else_from_being_done() -> None:
    disk = SimulatedDisk(1)
    with instance(disk) as found:
        with_rows(found)
        do(found, "CREATE TABLESPACE gone")
        left = found.tablespaces.database("gone").entry.folder
        disk.fail("unlink", errno.EIO, times=1_000, path=left)
        do(found, "DROP TABLESPACE gone")
        do(found, "CREATE TABLESPACE third")
    disk = disk.crash()
    disk.fail("unlink", errno.EIO, times=1_000, path=left)
    with instance(disk) as found:
        assert names(found) == ["default", "other", "third"]
        assert left in folders(disk)
        found.look_after()
        disk.heal()
        found.look_after()  # not yet again
        assert left in folders(disk)
        found.tablespaces._again_s = 0.0
        found.look_after()
        assert left not in folders(disk)
        assert found.tablespaces.listed.leftovers == []
    assert content(disk.crash()) == {**KEPT, "third": []}


def test_a_list_that_cannot_be_written_without_what_is_left_is_written_later() -> None:
    disk = two_on_disk()
    with instance(disk) as found:
        disk.fail("open", errno.ENOSPC, after=1, times=1_000, path=TABLESPACES)
        do(found, "DROP TABLESPACE other")
    disk = disk.crash()
    for op in ("open", "rename"):
        fresh = disk.crash()
        fresh.fail(op, errno.EIO, times=1_000, path=TABLESPACES)
        with instance(fresh) as found:
            assert [each.name for each in found.tablespaces.listed.leftovers] == ["other"]
            fresh.heal()
            do(found, "CREATE TABLESPACE third")
            assert found.tablespaces.listed.leftovers == []
            assert names(found) == ["default", "third"]


def test_all_that_is_in_the_folder_of_a_dropped_tablespace_goes(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    root = tmp_path / "db"
    root.mkdir()
    with instance(OsDisk(root)) as found:
        do(found, "CREATE TABLESPACE sales")
        folder = root / found.tablespaces.database("sales").entry.folder
        (folder / ".snapshot" / "deep").mkdir(parents=True)
        (folder / ".snapshot" / "deep" / "file").write_text("x")
        (folder / "segments" / "empty").mkdir()
        (folder / "link").symlink_to(outside)
        do(found, "DROP TABLESPACE sales")
        assert not folder.exists()
        assert found.tablespaces.listed.leftovers == []
    assert (outside / "kept").exists()


class WatchedMutex:
    """A mutex that tells when it is wanted."""

    def __init__(self, mutex: Mutex, wanted: threading.Event) -> None:
        self._mutex = mutex
        self._wanted = wanted

    def __enter__(self) -> None:
        self._wanted.set()
        self._mutex.acquire()

    def __exit__(self, *_: object) -> None:
        self._mutex.release()


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="Linux shows what is mapped")
def test_what_is_dropped_takes_no_room_on_the_disk(tmp_path: Path) -> None:
    """A file that is unlinked is there as long as it is mapped, until a collector comes by."""

    def mapped() -> list[str]:
        lines = Path("/proc/self/maps").read_text().splitlines()
        return [line for line in lines if str(tmp_path) in line]

    gc.disable()
    try:
        with instance(OsDisk(str(tmp_path))) as found:
            do(found, "CREATE TABLESPACE sales")
            one = session(found, "sales")
            run(one, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
            for number in range(3):
                run(one, "INSERT INTO t VALUES (?, 'x')", number)
                found.tablespaces.database("sales").run_checkpoint()
            assert not found.tablespaces.database("sales").run_compaction()
            assert rows(one, "SELECT v, count(*) FROM t GROUP BY v") == [("x", 3)]
            one.close()
            assert len(mapped()) == 3
            do(found, "DROP TABLESPACE sales")
            assert mapped() == []
    finally:
        gc.enable()


def test_a_drop_waits_for_the_housekeeper_s_step() -> None:
    disk = SimulatedDisk(1)
    with instance(disk) as found:
        with_rows(found)
        other = found.tablespaces.database("other")
        other.run_checkpoint()
        do(found, "INSERT INTO t VALUES (2, 'x')", "other")
        is_writing, is_dropping, may_go_on = (threading.Event() for _ in range(3))
        done: list[str] = []

        def hold(op: str, path: str) -> None:
            if path.startswith(f"{other.entry.folder}/segments/") and op == "sync":
                is_writing.set()
                may_go_on.wait()

        def checkpoint() -> None:
            other.replica._checkpoint_again_s = 0.0
            other.replica.is_over_limit = True  # one is due
            other.look_after()
            done.append("checkpoint")

        def drop() -> None:
            do(found, "DROP TABLESPACE other")
            done.append("drop")
            is_dropping.set()

        disk.latency = hold
        threads = [threading.Thread(target=each) for each in (checkpoint, drop)]
        threads[0].start()
        is_writing.wait()
        other._looking = WatchedMutex(other._looking, is_dropping)  # type: ignore[assignment]
        threads[1].start()
        is_dropping.wait()
        may_go_on.set()
        for thread in threads:
            thread.join()
        assert done == ["checkpoint", "drop"]
        assert other.retries.failed == []
        other.look_after()  # does nothing
        assert folders(disk) == []


def test_an_interrupted_drop_leaves_no_log_open() -> None:
    """What was accepted without being durable is there when the tablespace is opened again."""
    for number in range(100):
        disk = SimulatedDisk(1)
        left = [number]

        def interrupt(op: str, path: str, left: list[int] = left) -> None:
            del op, path
            left[0] -= 1
            if left[0] == -1:
                raise KeyboardInterrupt

        with instance(disk) as found:
            with_rows(found)
            keep = Settings(durability=Durability.NONE)
            one = found.tablespaces.database("other").session(keep, autocommit=True)
            run(one, "INSERT INTO t VALUES (2, 'x')")
            one.close()
            asker = session(found)
            disk.latency = interrupt
            try:
                run(asker, "DROP TABLESPACE other")
            except KeyboardInterrupt:
                pass
            disk.latency = None
            asker.close()
            if left[0] < 0 and "other" in names(found) and found.tablespaces._list_failure is None:
                two = session(found, "other")
                assert rows(two, "SELECT id FROM t ORDER BY id") == [(1,), (2,)]
                two.close()
        assert disk.open_paths == []
        if left[0] >= 0:
            return
    raise AssertionError("no end")


@pytest.mark.parametrize("within", ["/storage/manifest.py", "/maintenance/replica.py"])
def test_an_interrupted_opening_leaves_no_file_open(within: str) -> None:
    disk = two_on_disk()
    for number in range(1, 1000):
        with instance(disk) as found:
            with LineInterrupter(number, within=within) as interrupter:
                try:
                    found.tablespaces.database("other")
                except KeyboardInterrupt:
                    pass
            assert rows(session(found, "other"), "SELECT v FROM t") == [("other",)]
        assert disk.open_paths == [], interrupter.where
        if not interrupter.where:
            return
    raise AssertionError("no end")


# --- damage --------------------------------------------------------------------------------------


def two_on_disk() -> SimulatedDisk:
    disk = SimulatedDisk(1)
    with instance(disk) as found:
        with_rows(found)
    return disk


def test_damage_to_the_list_names_file_and_offset() -> None:
    disk = two_on_disk()
    data = disk.read(TABLESPACES)
    for offset in range(len(data)):
        disk.flip(TABLESPACES, offset)
        with pytest.raises(Error, match=r"TABLESPACES.*offset \d+"):
            opened(disk)
        disk.flip(TABLESPACES, offset)
    for size in range(len(data)):
        cut = MemoryDisk()
        file = cut.open(TABLESPACES, create=True)
        file.write_at(0, data[:size])
        with pytest.raises(CorruptionError, match=r"TABLESPACES at offset \d+"):
            read_list(cut)
    with instance(disk) as found:
        assert names(found) == ["default", "other"]


def test_a_list_that_is_lost_or_older_is_damage() -> None:
    disk = two_on_disk()
    newest = disk.read(TABLESPACES)
    disk.unlink(TABLESPACES)
    with pytest.raises(CorruptionError, match=r"TABLESPACES, offset 0.*does not list"):
        opened(disk)
    file = disk.open(TABLESPACES, create=True)
    file.write_at(0, newest)
    file.close()
    with instance(disk) as found:
        do(found, "CREATE TABLESPACE third")
    file = disk.open(TABLESPACES)
    file.truncate(0)
    file.write_at(0, newest)
    file.close()
    with pytest.raises(CorruptionError, match=r"TABLESPACES, offset 0.*does not list"):
        opened(disk)


def replace_list(disk: Disk, listed: TablespaceList) -> None:
    stage_list(disk, listed)
    take_list(disk)


def paths_of(disk: Disk, folder: str) -> list[str]:
    return disk.list(folder) + disk.list(f"{folder}/log")


def test_a_list_from_the_middle_of_a_create_removes_no_tablespace() -> None:
    disk = two_on_disk()
    newest = read_list(disk)
    assert newest is not None
    other = newest.find("other")
    assert other is not None
    replace_list(disk, newest.with_entry(msgspec.structs.replace(other, state=MAKING)))
    before = paths_of(disk, other.folder)
    with pytest.raises(CorruptionError, match=f"TABLESPACES, offset 0.*{other.folder}.*older"):
        opened(disk)
    assert paths_of(disk, other.folder) == before
    assert other.folder in examine(disk, "here").damages[0]
    replace_list(disk, newest)
    assert content(disk) == KEPT


def test_a_tablespace_is_finished_by_who_opens_it_if_its_maker_could_not() -> None:
    disk = SimulatedDisk(1)
    with instance(disk) as found:
        disk.fail("unlink", errno.EIO, path=UNFINISHED)
        do(found, "CREATE TABLESPACE sales")
        folder = found.tablespaces.database("sales").entry.folder
        assert UNFINISHED in disk.list(folder)
    with instance(disk) as found:
        found.tablespaces.database("sales")
        assert UNFINISHED not in disk.list(folder)


def test_a_folder_of_another_tablespace_is_damage_of_that_one_alone() -> None:
    disk = two_on_disk()
    with instance(disk) as found:
        do(found, "CREATE TABLESPACE third")
        folder = {state.entry.name: state.entry.folder for state in found.tablespaces.states()}
    for name in ("MANIFEST", "log/00000001.log"):
        data = disk.read(f"{folder['other']}/{name}")
        file = disk.open(f"{folder['third']}/{name}", create=True)
        file.truncate(0)
        file.write_at(0, data)
        file.close()
    with instance(disk) as found:
        for _ in range(2):
            with pytest.raises(CorruptionError, match="MANIFEST, offset 0"):
                found.tablespaces.database("third")
        assert rows(session(found, "other"), "SELECT v FROM t") == [("other",)]
        failed = found.tablespaces.open_all()
        assert [state.entry.name for state in failed] == ["third"]


def test_a_tablespace_that_found_a_full_disk_is_opened_later() -> None:
    disk = two_on_disk()
    with instance(disk) as found:
        disk.fail("open", errno.ENOSPC, times=10)
        assert [state.entry.name for state in found.tablespaces.open_all()] == ["other"]
        found.look_after()  # the disk is still full
        with pytest.raises(OperationalError, match="no space left"):
            found.tablespaces.opened("other")
        disk.heal()
        found.tablespaces._again_s = 0.0  # five seconds later
        found.look_after()
        assert found.tablespaces.opened("other").tablespace.failure is None
        assert rows(session(found, "other"), "SELECT v FROM t") == [("other",)]


def test_the_doctor_looks_at_all() -> None:
    disk = two_on_disk()
    with instance(disk) as found:
        for name in ("default", "other"):
            found.tablespaces.database(name).run_checkpoint()
        folder = found.tablespaces.database("other").entry.folder
    whole = examine(disk, "here")
    assert (whole.damages, whole.notes) == ([], [])
    assert (whole.table_count, whole.row_count) == (2, 2)
    names = [name for name in disk.list(f"{folder}/segments") if name.endswith(".segment")]
    for path in (f"{folder}/MANIFEST", f"{folder}/segments/{names[0]}", TABLESPACES):
        disk.flip(path, 60)
        damages = examine(disk, "here").damages
        assert damages
        assert all(path in damage for damage in damages)
        disk.flip(path, 60)
    salvaged = b"".join(Salvage.begin(disk, "here", None, "other").pieces()).decode()
    assert "'other'" in salvaged
    assert "'default'" not in salvaged
    disk.unlink(TABLESPACES)
    assert "does not list" in examine(disk, "here").damages[0]


def damage_the_list(disk: SimulatedDisk, damage: str) -> None:
    if damage == "gone":
        disk.unlink(TABLESPACES)
    else:
        disk.flip(TABLESPACES, 40)


@pytest.mark.parametrize("damage", ["gone", "bit"])
def test_without_the_list_the_tablespaces_are_read_by_their_folders(damage: str) -> None:
    disk = two_on_disk()
    with instance(disk) as found:
        for name in ("default", "other"):
            found.tablespaces.database(name).run_checkpoint()
        folder = found.tablespaces.database("other").entry.folder
    damage_the_list(disk, damage)
    report = examine(disk, "here")
    assert [TABLESPACES in each for each in report.damages] == [True]
    assert "--salvage --tablespace" in report.advice[0]
    assert (report.table_count, report.row_count, report.notes) == (2, 2, [])
    salvaged = b"".join(Salvage.begin(disk, "here", None, folder).pieces()).decode()
    assert "'other'" in salvaged
    with pytest.raises(Error) as refused:
        Salvage.begin(disk, "here", None, "other")
    assert folder in str(refused.value.hint)
    disk.flip(f"{folder}/MANIFEST", 60)
    assert any(folder in each for each in examine(disk, "here").damages)


def test_format_that_is_lost_is_said_to_be_missing() -> None:
    for lost in ([], [TABLESPACES], ["default/MANIFEST", "default/log/00000001.log"]):
        disk = two_on_disk()
        for name in ("FORMAT", *lost):
            disk.unlink(name)
        with pytest.raises(CorruptionError, match="FORMAT is missing, though there is data"):
            opened(disk)
        assert "FORMAT is missing" in examine(disk, "here").damages[0]
        assert examine(disk, "here").notes == []


def test_a_directory_that_had_others_is_replaced_by_a_backup() -> None:
    disk = SimulatedDisk(1)
    with instance(disk) as found:
        do(found, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
        do(found, "INSERT INTO t VALUES (1, 'default')")
        data = backed_up(found.default)
        do(found, "CREATE TABLESPACE sales")
        do(found, "DROP TABLESPACE sales")
        do(found, "DELETE FROM t")
    assert TABLESPACES in disk.list("")
    restored(data, disk, is_replacing=True)
    assert content(disk) == {"default": [("default",)]}
    for number in range(1, 1000):
        disk = SimulatedDisk(number)
        with instance(disk) as found:
            do(found, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
            do(found, "CREATE TABLESPACE sales")
            do(found, "DROP TABLESPACE sales")
        disk.crash_at = disk.step_count + number
        try:
            restored(data, disk, is_replacing=True)
        except SimulatedCrash:
            pass
        is_over = disk.step_count < disk.crash_at
        assert content(disk.crash()) in ({"default": []}, {"default": [("default",)]})
        if is_over:
            return
    raise AssertionError("no end")


def test_a_staged_list_that_a_crash_has_left_is_removed() -> None:
    disk = SimulatedDisk(1)
    with instance(disk) as found:
        data = backed_up(found.default)
        stage_list(disk, found.tablespaces.listed.with_entry(TablespaceEntry(b"x" * 16, "sales")))
    assert STAGED in disk.list("")
    with instance(disk):
        assert STAGED not in disk.list("")
    disk.open(STAGED, create=True).close()
    restored(data, disk, is_replacing=True)
    assert STAGED not in disk.list("")


def test_a_backup_is_of_one_and_takes_the_place_of_none() -> None:
    disk = two_on_disk()
    with instance(disk) as found:
        data = backed_up(found.tablespaces.database("other"))
    fresh = MemoryDisk()
    restored(data, fresh)
    with instance(fresh) as found:
        assert rows(session(found), "SELECT v FROM t") == [("other",)]
    with pytest.raises(NotSupportedError, match="several tablespaces"):
        restored(data, disk, is_replacing=True)
    with instance(disk) as found:
        assert rows(session(found, "other"), "SELECT v FROM t") == [("other",)]


def test_a_dump_says_the_tablespace_of_its_rights() -> None:
    with instance(MemoryDisk()) as found:
        do(found, "CREATE TABLESPACE sales")
        do(found, "CREATE USER bob", "sales")
        do(found, "GRANT SELECT ON TABLESPACE sales TO bob", "sales")
        with pytest.raises(Error):
            do(found, "GRANT SELECT ON TABLESPACE default TO bob", "sales")
        dump = found.tablespaces.database("sales").dump()
        text = b"".join(dump.pieces()).decode()
        dump.close()
        assert "ON TABLESPACE sales TO bob" in text
        asked = "SELECT object_name FROM sysgrants WHERE object_type = 'tablespace'"
        assert ("sales",) in rows(session(found, "sales"), asked)


def test_a_directory_with_default_alone_has_no_list() -> None:
    disk = SimulatedDisk(1)
    with instance(disk) as found:
        do(found, "CREATE TABLE t (id BIGINT)")
    assert TABLESPACES not in disk.list("")
    with instance(disk) as found:
        do(found, "CREATE TABLESPACE sales")
        do(found, "DROP TABLESPACE sales")
        assert rows(session(found), "SELECT * FROM t") == []
    assert read_list(disk) is not None


def test_every_step_of_closing_is_run_however_many_there_are() -> None:
    done: list[int] = []

    def step(number: int) -> None:
        done.append(number)
        if number in (0, 4_999):
            raise ValueError(number)

    with pytest.raises(ValueError, match="4999"):
        run_all([partial(step, number) for number in range(5_000)])
    assert done == list(range(5_000))


def test_many_have_few_threads() -> None:
    before = threading.active_count()
    with instance(MemoryDisk(), is_threaded=True) as found:
        for number in range(30):
            do(found, f"CREATE TABLESPACE t{number}")
        for number in range(30):
            do(found, "CREATE TABLE t (id BIGINT PRIMARY KEY)", f"t{number}")
        assert threading.active_count() - before <= 5
        assert len(found.tablespaces.databases()) == 31
