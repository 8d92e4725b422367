"""Copies of one node: one budget of memory, one DuckDB, one housekeeper, and all given back."""

import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from bookie.runtime.drivers import ThreadDriver
from bookie.runtime.memory_disk import MemoryDisk
from bookie.runtime.os_clock import OsClock
from bookie.runtime.os_rng import OsRng
from herdpy.config import Config
from herdpy.engine.closing import run_all
from herdpy.engine.database import Database
from herdpy.engine.housekeeper import Housekeeper
from herdpy.engine.instance import Instance
from herdpy.engine.limit_rows import MEMORY_OF_TABLESPACE
from herdpy.engine.resources import Resources, Tenant
from herdpy.engine.session.session import Session
from herdpy.errors import Error, MemoryLimitError, Retry
from herdpy.model.settings import Settings
from tests.fixtures.engines import Background, rows, run

MIB = 1024 * 1024
CONFIG = Config(
    memory_bytes_max=64 * MIB,
    log_file_bytes_first=8192,
    disk_reserve_bytes=0,
    vector_threads=1,
    vector_rows_min=0,
    plan_cache_entries_max=20,
)
BIG = "SELECT id, sum(id) OVER (ORDER BY id) FROM t"


class Node:
    """Resources, and copies that are opened and closed one by one."""

    def __init__(self, config: Config, *, is_threaded: bool) -> None:
        self.config = config
        self.driver = ThreadDriver()
        self.resources = Resources(
            clock=OsClock(),
            driver=self.driver,
            config=config,
            where="/data",
            title="the node",
            is_threaded=is_threaded,
        )
        self.tenants: dict[str, Tenant] = {}
        self.disks: dict[str, MemoryDisk] = {}
        self.open_: dict[str, Database] = {}

    def carry(self, *names: str) -> None:
        for name in names:
            self.tenants[name] = self.resources.carry(name.encode().hex(), name)
            self.disks[name] = MemoryDisk()

    def open(self, name: str) -> Database:
        found = self.open_[name] = Instance(
            disk=self.disks[name],
            clock=OsClock(),
            rng=OsRng(),
            driver=self.driver,
            config=self.config,
            where=f"/data/{name}",
            tenant=self.tenants[name],
        ).start()
        return found

    def close(self) -> None:
        for each in self.open_.values():
            each.close()
        run_all(self.resources.closing_steps())

    @property
    def used(self) -> int:
        """What all have, with what is measured."""
        self.resources.memory.governor.settle()
        return self.resources.memory.bytes_used


@contextmanager
def node_of(*names: str, config: Config = CONFIG, is_threaded: bool = False) -> Generator[Node]:
    node = Node(config, is_threaded=is_threaded)
    node.carry(*names)
    try:
        for name in names:
            node.open(name)
        yield node
    finally:
        node.close()


@pytest.fixture
def memory_bytes_max() -> int:
    return CONFIG.memory_bytes_max


@pytest.fixture
def node(memory_bytes_max: int) -> Iterator[Node]:
    config = replace(CONFIG, memory_bytes_max=memory_bytes_max)
    with node_of("sales", "more", config=config) as found:
        for database in found.open_.values():
            filled(database)
        yield found


def session(database: Database, user: str | None = None, *, autocommit: bool = False) -> Session:
    return database.session(Settings(), autocommit=autocommit, user=user)


def test_what_copies_hold_is_one_sum_with_one_bound(node: Node) -> None:
    account = node.resources.memory
    before = node.used
    assert before == sum(each.memory.account.bytes_used for each in node.open_.values()) > 0
    held = [each.memory.transactions.reserve("a transaction") for each in node.open_.values()]
    assert all(each.grow_to(10 * MIB) for each in held)
    assert node.used == before + 20 * MIB
    assert account.bytes_max == CONFIG.memory_bytes_max
    rest = node.open_["more"].memory.statements.reserve("a statement")
    assert not rest.grow_to(CONFIG.memory_bytes_max - before - 20 * MIB + 1)
    for each in held:
        each.close()
    assert node.used == before


def test_one_is_refused_at_its_share_and_the_other_goes_on(node: Node) -> None:
    sales, more = node.open_["sales"], node.open_["more"]
    for kind in (sales.memory.caches, sales.memory.versions):
        kind.bytes_max = None
    abuse = sales.memory.caches.reserve("an abuse")
    step = 0
    while abuse.grow_to(abuse.byte_count + MIB):
        step += 1
        assert step < 100, "no share holds it up"
    share = int(0.75 * CONFIG.memory_bytes_max)
    assert share - 2 * MIB < sales.memory.account.bytes_used <= share
    message = str(abuse.refusal("it", "wait"))
    assert "sales holds" in message
    assert f"of the {share:,} that it may" in message
    held_up = session(sales)
    for number in range(20):  # it has room in pages alone
        run(held_up, "INSERT INTO t VALUES (?, ?)", 10_000 + number, "y" * 200_000)
        assert sales.memory.account.bytes_used <= share
    assert sales.tablespace.state.staged.stages
    with pytest.raises(MemoryLimitError, match="sales holds"):
        run(held_up, f"SELECT 1 IN ({', '.join(map(str, range(40_000)))})")
    going_on = session(more)
    for number in range(20):
        run(going_on, "INSERT INTO t VALUES (?, ?)", 10_000 + number, "y" * 200_000)
    going_on.commit()
    assert rows(going_on, "SELECT count(*) FROM t WHERE id >= 10000") == [(20,)]
    assert not more.tablespace.state.staged.stages
    held_up.commit()
    assert rows(held_up, "SELECT count(*) FROM t WHERE id >= 10000") == [(20,)]
    abuse.close()


def test_what_all_hold_is_refused_by_the_node(node: Node) -> None:
    assert node.used > 0  # memtables are measured
    for name in ("sales", "more"):
        caches = node.open_[name].memory.caches
        caches.bytes_max = None
        held = caches.reserve("an abuse")
        while held.grow_to(held.byte_count + MIB):
            pass
    assert node.used <= CONFIG.memory_bytes_max
    assert "the node holds" in str(held.refusal("it", "wait"))


def test_one_that_is_alone_has_all_and_shares_follow() -> None:
    with node_of("sales") as node:
        account = node.open_["sales"].memory.account
        assert account.bytes_max == CONFIG.memory_bytes_max
        node.carry("more")
        assert account.bytes_max == int(0.75 * CONFIG.memory_bytes_max)
        more = node.open("more")
        assert more.memory.account.bytes_max == int(0.75 * CONFIG.memory_bytes_max)
        more.close()  # it is opened again
        assert account.bytes_max == int(0.75 * CONFIG.memory_bytes_max)
        node.resources.forget(node.tenants["more"])
        assert account.bytes_max == CONFIG.memory_bytes_max


def test_all_is_given_back_at_the_close_of_one(node: Node) -> None:
    sales, more = node.open_["sales"], node.open_["more"]
    open_ones = {each: session(each, autocommit=True) for each in (sales, more)}
    results = {each: open_ones[each].execute(BIG).rows() for each in (sales, more)}
    for each in results.values():
        next(each)
    engine = sales.vector_of(None)
    assert more.vector_of(None) is engine
    busy = session(sales)
    run(busy, "INSERT INTO t VALUES (9999, 'open')")
    plan_text = "SELECT v FROM t WHERE id = ?"
    for each, one in open_ones.items():
        assert rows(one, plan_text, 1) == [("x" * 50,)], each.where
    assert len(sales.plans) > 2
    assert node.resources.results.used == 2
    assert node.used > (held := more.memory.account.bytes_used) > 0
    plans_of_more = len(more.plans)

    sales.close()

    assert node.used == held
    assert list(node.resources.memory.children["tablespaces"].children) == ["more"]
    assert sales.memory.account.parent is None
    assert not sales.memory.transactions.reservations
    assert node.resources.results.used == 1
    assert len(engine._results) == 1
    assert (len(sales.plans), len(more.plans)) == (0, plans_of_more)
    assert len(node.resources.plan_room._kept) == plans_of_more
    with pytest.raises(Error) as caught:
        list(results[sales])
    assert (caught.value.sqlstate, caught.value.retry) == ("57P01", Retry.SAFE)
    assert len(list(results[more])) == 2_999
    assert more.vector_of(None) is engine

    again = node.open("sales")
    assert again.vector_of(None) is engine
    one = session(again, autocommit=True)
    assert rows(one, "SELECT count(*) FROM t") == [(3_000,)]
    assert sum(1 for _ in one.execute(BIG).rows()) == 3_000
    ids = {each.id for each in (*open_ones.values(), busy)}
    assert one.id not in ids, "a session of the node has the number of another one"


def filled(database: Database) -> None:
    one = session(database, autocommit=True)
    run(one, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
    one.execute_many("INSERT INTO t VALUES (?, ?)", [(n, "x" * 50) for n in range(3_000)])
    one.close()


@pytest.mark.parametrize("memory_bytes_max", [256 * MIB])
def test_users_of_one_name_have_each_their_tablespace_s_duckdb(node: Node) -> None:
    engines: dict[str, Any] = {}
    for name, database in node.open_.items():
        root = session(database, autocommit=True)
        run(root, "CREATE USER ann")
        run(root, "GRANT SELECT ON t TO ann")
        run(root, "ALTER ROLE ann SET MAXIMUM query_memory = '20MB'")
        ann = session(database, "ann", autocommit=True)
        assert ann.identity is not None
        assert ann.identity.id == 1
        list(ann.execute(BIG).rows())
        engines[name] = database.vector_of(ann.identity)
    assert engines["sales"] is not engines["more"]
    unread = ann.execute(BIG).rows()
    next(unread)
    node.open_["sales"].close()
    vectors = node.resources.vectors
    assert [each.engine for each in vectors._own.values()] == [engines["more"]]
    assert vectors._retired == []
    assert engines["sales"]._is_closed
    assert len(list(unread)) == 2_999


def test_limits_and_accounts_that_are_shown_are_the_node_s(node: Node) -> None:
    sales, more = node.open_["sales"], node.open_["more"]
    held = more.memory.transactions.reserve("a transaction")
    assert held.grow_to(5 * MIB)
    unread = session(more, autocommit=True).execute(BIG).rows()
    next(unread)
    total = node.used
    shown = {row.name: row for row in sales.limits.limits()}
    assert shown["memory"].share == CONFIG.memory_bytes_max
    assert shown["memory"].used == total
    assert shown[MEMORY_OF_TABLESPACE].share == int(0.75 * CONFIG.memory_bytes_max)
    assert shown[MEMORY_OF_TABLESPACE].used == sales.memory.account.bytes_used < total
    assert shown["memory_transactions"].used == 0
    assert (shown["vector_results"].used, shown["vector_results"].share) == (1, 32)
    assert shown["vector_bytes_max"].share == CONFIG.vector_bytes_max
    one = session(sales)
    accounts = dict(rows(one, "SELECT account, bytes_max FROM sysmemory"))
    assert accounts["node"] == CONFIG.memory_bytes_max
    assert accounts["sales"] == int(0.75 * CONFIG.memory_bytes_max)
    assert {name.partition("/")[0] for name in accounts} == {"node", "sales"}
    held.close()


def test_what_duckdb_has_refused_of_all_is_shown_by_each(node: Node) -> None:
    node.resources.vectors.shared()._on_refused("vector_bytes_max")
    for database in node.open_.values():
        shown = {row.name: row.refused for row in database.limits.limits()}
        assert shown["vector_bytes_max"] == 1


def test_memtables_of_all_have_one_share() -> None:
    config = Config(
        memory_bytes_max=16 * MIB,
        memtable_share=0.05,
        log_file_bytes_first=8192,
        disk_reserve_bytes=0,
    )
    share = config.memtable_bytes_max
    with node_of("sales", "more", config=config) as node:
        ones = {name: session(each, autocommit=True) for name, each in node.open_.items()}
        for one in ones.values():
            run(one, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
        sales, more = node.open_["sales"], node.open_["more"]
        for number in range(45):
            run(ones["sales"], "INSERT INTO t VALUES (?, ?)", number, "x" * 10_000)
        for number in range(60):
            run(ones["more"], "INSERT INTO t VALUES (?, ?)", number, "x" * 10_000)
        sizes = [each.tablespace.memtable_bytes() for each in (sales, more)]
        assert max(sizes) <= int(0.75 * share) < share < sum(sizes)
        sales.run_maintenance_once()
        assert sales.tablespace.memtable_bytes() == sizes[0]
        more.run_maintenance_once()  # which has more
        assert more.tablespace.memtable_bytes() == 0
        for number in range(45, 80):
            run(ones["sales"], "INSERT INTO t VALUES (?, ?)", number, "x" * 10_000)
        large = sales.tablespace.memtable_bytes()
        assert int(0.75 * share) < large < share  # more than one may of what is for two
        sales.run_maintenance_once()
        assert sales.tablespace.memtable_bytes() == 0


def test_copies_share_their_threads() -> None:
    before = threading.active_count()
    names = [f"t{number}" for number in range(20)]
    with node_of(*names, is_threaded=True) as node:
        for name in names:
            one = session(node.open_[name], autocommit=True)
            run(one, "CREATE TABLE t (id BIGINT PRIMARY KEY)")
            run(one, "INSERT INTO t VALUES (1)")
        assert threading.active_count() - before <= 5
        for name in names[1:]:
            node.open_[name].close()
        assert list(node.resources.housekeeper._open) == [node.open_["t0"].instance]
    assert threading.active_count() == before


class WatchedMutex:
    """Tells when another thread than the housekeeper asks for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.asked = threading.Event()

    def __enter__(self) -> None:
        if threading.current_thread().name != "herdpy-maintenance":
            self.asked.set()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_a_close_waits_for_the_housekeeper_s_round_of_it_alone() -> None:
    with node_of("sales", "more", is_threaded=True) as node:
        sales = node.open_["sales"]
        looking = sales.instance._looking = WatchedMutex()  # type: ignore[assignment]
        begun, go = threading.Event(), threading.Event()
        order: list[str] = []
        sales.holders.append(lambda: order.append("files are let go of"))

        def round_() -> None:
            begun.set()
            assert go.wait(20)
            order.append("a round ends")

        sales.look_after = round_  # type: ignore[method-assign]
        node.resources.housekeeper.wake()
        assert begun.wait(20)
        node.open_["more"].close()
        with Background() as background:
            background.start(sales.close)
            is_waiting, before = looking.asked.wait(20), order.copy()
            go.set()
        assert (is_waiting, before) == (True, [])
        assert order[:2] == ["a round ends", "files are let go of"]


class Room:
    """Something to look after that stops on purpose."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.looked = threading.Event()

    def look_after(self) -> None:
        self.looked.set()
        if self.error is not None:
            raise self.error


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_housekeeper_that_ended_is_there_again_with_the_next_copy() -> None:
    driver = ThreadDriver()
    housekeeper = Housekeeper(driver)
    bad, good = Room(GeneratorExit("of a thread")), Room()
    try:
        housekeeper.add(bad)
        housekeeper.wake()
        assert bad.looked.wait(20)
        worker = housekeeper._worker
        assert worker is not None
        assert worker.join(20)
        housekeeper.remove(bad)
        housekeeper.add(good)
        housekeeper.wake()
        assert good.looked.wait(20)
    finally:
        housekeeper.close()


def test_a_copy_that_does_not_open_leaves_nothing(node: Node) -> None:
    sales, before = node.open_["sales"], node.used
    sales.close()
    manifest = node.disks["sales"].read("default/MANIFEST")
    node.disks["sales"].unlink("default/MANIFEST")
    with pytest.raises(Error):
        node.open("sales")
    assert list(node.resources.memory.children["tablespaces"].children) == ["more"]
    assert node.used < before
    node.disks["sales"].open("default/MANIFEST", create=True).write_at(0, manifest)
    assert rows(session(node.open("sales")), "SELECT count(*) FROM t") == [(3_000,)]
