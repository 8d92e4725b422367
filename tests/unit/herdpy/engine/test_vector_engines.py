"""DuckDB for users with limits: their memory and their disk hold, beside others'."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bookie.runtime.drivers import ThreadDriver
from bookie.runtime.memory_disk import MemoryDisk
from bookie.runtime.os_clock import OsClock
from bookie.runtime.os_rng import OsRng
from herdpy.config import Config
from herdpy.engine.database import Database
from herdpy.engine.instance import Instance
from herdpy.engine.session.session import Session
from herdpy.engine.vector_engines import Bounds, TablespaceVectors, VectorEngines
from herdpy.errors import Error, MemoryLimitError
from herdpy.model.access import User
from herdpy.model.role_settings import QUERY_MEMORY, TEMP_FILE_LIMIT
from herdpy.model.settings import Settings
from tests.sim.clock import SimulatedClock

MIB = 1024 * 1024
SORT = "SELECT a.id * 1000 + b.id AS n, repeat('x', 40) FROM t AS a, t AS b ORDER BY 1 DESC"
ROWS = 1_500


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    (tmp_path / "temp").mkdir()  # as in a directory that was made
    config = Config(memory_bytes_max=512 * MIB, vector_threads=1)
    opened = Instance(
        disk=MemoryDisk(),
        clock=OsClock(),
        rng=OsRng(),
        driver=ThreadDriver(),
        config=config,
        temp_directory=str(tmp_path / "temp"),
        is_threaded=False,
    ).start()
    root = session_of(opened)
    run(root, "CREATE TABLE t (id BIGINT PRIMARY KEY)")
    root.execute_many("INSERT INTO t VALUES (?)", [(n,) for n in range(ROWS)])
    for name in ("ann", "eve"):
        run(root, f"CREATE USER {name}", f"GRANT SELECT ON t TO {name}")
    yield opened
    opened.close()


def session_of(database: Database, user: str | None = None) -> Session:
    return database.session(Settings(), autocommit=True, user=user)


def run(session: Session, *texts: str) -> int:
    """Run statements; return how many rows the last has."""
    count = 0
    for text in texts:
        result = session.execute(text)
        count = 0 if result.columns is None else sum(1 for _ in result.rows())
    return count


def sqlstate(session: Session, text: str) -> str:
    with pytest.raises(Error) as caught:
        run(session, text)
    return caught.value.sqlstate


@pytest.mark.long
def test_spilling_of_a_user_has_a_limit(database: Database) -> None:
    root, ann, eve = (session_of(database, name) for name in (None, "ann", "eve"))
    run(root, "ALTER ROLE ann SET MAXIMUM query_memory = '30MB'")
    assert run(ann, SORT) == ROWS**2
    run(root, "ALTER ROLE ann SET MAXIMUM temp_file_limit = '1MB'")
    for _ in range(3):
        assert sqlstate(ann, SORT) == "53200"
    limits = {row.name: row for row in database.limits.limits() if row.user == "ann"}
    assert [limits[name].share for name in (QUERY_MEMORY, TEMP_FILE_LIMIT)] == [30 * MIB, MIB]
    assert all(row.used <= row.share for row in limits.values())
    run(root, "ALTER ROLE ann SET MAXIMUM temp_file_limit = 0")
    assert sqlstate(ann, SORT) == "53200"
    assert run(eve, SORT) == ROWS**2
    assert run(ann, "SELECT count(*) FROM t GROUP BY id % 3") == 3
    run(root, "ALTER ROLE ann RESET MAXIMUM ALL")
    assert run(ann, SORT) == ROWS**2


def test_results_that_are_open_go_on_when_limits_change(database: Database) -> None:
    root, ann, eve = (session_of(database, name) for name in (None, "ann", "eve"))
    query = "SELECT id, sum(id) OVER (ORDER BY id) FROM t"
    opened = [eve.execute(query), ann.execute(query)]
    for size in ("20MB", "40MB"):
        run(root, f"ALTER ROLE ann SET MAXIMUM query_memory = '{size}'")
        opened.append(ann.execute(query))
        assert database.vectors.memory_of(ann.identity or User("", 0)) == int(size[:2]) * MIB
    assert [sum(1 for _ in each.rows()) for each in opened] == [ROWS] * 4


def test_a_tablespace_s_limit_holds_for_its_queries(database: Database) -> None:
    root = session_of(database)
    run(root, "CREATE TABLESPACE sales WITH (memory_bytes_max = '40MB')")
    sales = database.instance.tablespaces.database("sales")
    tenant = session_of(sales)
    run(tenant, "CREATE TABLE t (id BIGINT PRIMARY KEY)")
    tenant.execute_many("INSERT INTO t VALUES (?)", [(n,) for n in range(ROWS)])
    groups = "SELECT count(*) FROM (SELECT a.id * 2000 + b.id, count(*) FROM t a, t b GROUP BY 1) q"
    assert sales.vector_of(None)._memory_bytes == 16 * MIB
    assert sales.vector_of(None) is not database.vector_of(None)
    run(root, "ALTER TABLESPACE sales SET (disk_bytes_max = '1MB')")  # it may spill no more either
    assert sqlstate(tenant, groups) == "53200"
    growing = """WITH RECURSIVE r AS (SELECT id FROM t UNION ALL
        SELECT r.id FROM r, (VALUES (1), (2)) AS v (x)) SELECT count(*) FROM r"""
    assert sqlstate(tenant, growing) == "53200"  # it has no end
    assert run(root, groups) == 1
    run(root, "ALTER TABLESPACE sales RESET (disk_bytes_max)")
    limits = {row.name: row for row in sales.limits.limits()}
    assert limits["vector_bytes_max"].share == 16 * MIB
    assert limits["vector_spill_bytes_max"].refused + limits["vector_bytes_max"].refused >= 1
    result = tenant.execute("SELECT id, sum(id) OVER (ORDER BY id) FROM t")
    next(result.rows())
    shown = "SELECT memory_bytes FROM systablespaces WHERE tablespace = 'sales'"
    ((memory,),) = root.execute(shown).rows()
    assert memory == sales.memory.bytes_held() + sales.vectors.usage()[0]
    assert sales.vectors.usage()[0] > 0
    result.close()
    run(root, "ALTER TABLESPACE sales RESET (memory_bytes_max)")
    assert sales.vector_of(None) is database.vector_of(None)


def test_what_a_tablespace_s_queries_spill_is_its_disk(database: Database) -> None:
    root = session_of(database)
    limits = "memory_bytes_max = '75MB', disk_bytes_max = '400MB'"
    run(root, f"CREATE TABLESPACE sales WITH ({limits})")
    sales = database.instance.tablespaces.database("sales")
    tenant = session_of(sales)
    run(tenant, "CREATE TABLE t (id BIGINT PRIMARY KEY)")
    tenant.execute_many("INSERT INTO t VALUES (?)", [(n,) for n in range(ROWS)])
    before = sales.replica.disk_bytes()
    result = tenant.execute(SORT)
    next(result.rows())
    assert sales.replica.disk_bytes() > before + MIB
    run(root, "ALTER TABLESPACE sales SET (disk_bytes_max = '2MB')")
    assert sqlstate(tenant, "INSERT INTO t SELECT id + 2000 FROM t") == "53100"
    result.close()
    assert sales.replica.disk_bytes() < before + MIB
    run(tenant, "INSERT INTO t SELECT id + 2000 FROM t")


class World:
    """Engines that nothing runs on."""

    def __init__(self) -> None:
        self.clock = SimulatedClock()
        config = Config(memory_bytes_max=500 * MIB, vector_threads=1)
        self.half = config.vector_bytes_max // 2
        self.engines = VectorEngines(config, self.clock, None)
        self.space = TablespaceVectors(self.engines, "default", lambda _user, _limit: None)

    def of(self, number: int, **sizes: int) -> Any:
        return self.space.of(User(f"user {number}", number), sizes)


def test_users_with_limits_have_half_of_the_memory_together() -> None:
    world = World()
    shared = world.space.of(None, {})
    assert world.of(9) is shared
    first = world.of(1, **{QUERY_MEMORY: 80 * MIB})
    assert world.of(1, **{QUERY_MEMORY: 80 * MIB}) is first
    second = world.of(2, **{TEMP_FILE_LIMIT: MIB})
    assert [world.space.memory_of(User(f"user {n}", n)) for n in (1, 2)] == [
        80 * MIB,
        world.half - 80 * MIB,
    ]
    with pytest.raises(MemoryLimitError):
        world.of(3, **{QUERY_MEMORY: 16 * MIB})
    other = world.space.of(None, {})
    assert other is not shared
    assert other._memory_bytes == world.half
    world.clock.advance(10)
    third = world.of(3, **{QUERY_MEMORY: 16 * MIB})  # in the place of one that nothing runs on
    assert third not in (first, second)
    assert world.space.memory_of(User("user 1", 1)) == 0
    for step in world.engines.closing_steps():
        step()


def test_users_with_limits_have_half_of_their_tablespace_s_memory() -> None:
    world = World()
    ann = User("ann", 1)
    world.space.bounds = Bounds(60 * MIB)
    of_all = world.space.of(None, {})
    assert of_all is world.of(9)
    assert of_all._memory_bytes == 60 * MIB
    assert world.space.of(ann, {QUERY_MEMORY: 14 * MIB})._memory_bytes == 14 * MIB
    assert world.space.of(User("eve", 2), {TEMP_FILE_LIMIT: MIB})._memory_bytes == 16 * MIB
    assert world.space.of(None, {})._memory_bytes == 30 * MIB
    with pytest.raises(MemoryLimitError):
        world.space.of(User("bob", 3), {QUERY_MEMORY: 14 * MIB})
    world.space.bounds = Bounds(32 * MIB)  # from now on
    assert world.space.of(None, {})._memory_bytes == 16 * MIB
    other = TablespaceVectors(world.engines, "another", lambda _user, _limit: None)
    other.bounds = Bounds(512 * MIB)
    left = world.half - sum(each.memory_bytes for each in world.engines._own.values())
    assert other.of(None, {})._memory_bytes == left
    for step in world.engines.closing_steps():
        step()
