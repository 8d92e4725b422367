"""herdpy.aio: the same calls as the blocking driver, awaited, over every transport."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from herdpy import aio
from herdpy.errors import (
    InterfaceError,
    OperationalError,
    ProgrammingError,
    QueryCanceledError,
    Retry,
)
from herdpy.proto.messages import Commit
from tests.fixtures.frame_proxy import Fate, FrameProxy
from tests.fixtures.servers import RunningServer

pytestmark = pytest.mark.sync_face


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


def test_statements_rows_and_transactions(target: str) -> None:
    async def main() -> None:
        async with aio.connect(target) as conn:
            await conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
            made = await conn.executemany("INSERT INTO t VALUES (?, 'x')", [(n,) for n in range(9)])
            assert made.rowcount == 9
            await conn.commit()
            await conn.execute("DELETE FROM t")
            assert conn.in_transaction
            await conn.rollback()
            cursor = await conn.execute("SELECT id, v FROM t WHERE id < ? ORDER BY id", (4,))
            assert cursor.description is not None
            assert [column[0] for column in cursor.description] == ["id", "v"]
            assert await cursor.fetchone() == (0, "x")
            assert await cursor.fetchmany(2) == [(1, "x"), (2, "x")]
            assert await cursor.fetchall() == [(3, "x")]
            assert await cursor.fetchone() is None
            async with await conn.cursor() as other:
                cursor.arraysize = 3
                assert cursor.arraysize == 3
                await other.execute("SELECT id FROM t ORDER BY id")
                assert [row[0] async for row in other] == list(range(9))
            table = await (await conn.execute("SELECT id FROM t")).fetch_arrow_table()
            assert table.num_rows == 9
            assert await conn.ingest("t", [{"id": 100, "v": "y"}]) == 1
            await conn.commit()
            await conn.checkpoint()

    run(main())


def test_blocks(target: str) -> None:
    async def main() -> None:
        conn = await aio.connect(target, autocommit=True)
        await conn.execute("CREATE TABLE t (id BIGINT)")
        async with conn.transaction():
            await conn.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(ZeroDivisionError):
            await broken(conn)
        assert await (await conn.execute("SELECT id FROM t")).fetchall() == [(1,)]
        await conn.set_autocommit(False)
        assert not conn.autocommit
        await conn.close()
        with pytest.raises((InterfaceError, RuntimeError)):
            await conn.execute("SELECT 1")

    async def broken(conn: aio.AsyncConnection) -> None:
        async with conn.transaction():
            await conn.execute("INSERT INTO t VALUES (2)")
            raise ZeroDivisionError

    run(main())


def test_errors_are_the_same(target: str) -> None:
    async def main() -> None:
        async with aio.connect(target, autocommit=True) as conn:
            with pytest.raises(ProgrammingError) as caught:
                await conn.execute("SELECT * FROM missing")
            assert caught.value.sqlstate == "42P01"
        with pytest.raises(InterfaceError, match="unknown option"):
            await aio.connect("herd://localhost/?nonsense=1")
        with pytest.raises(OperationalError, match="cannot be reached"):
            await aio.connect("herd://127.0.0.1:1")

    run(main())


def test_connections_run_side_by_side(target: str, server: RunningServer) -> None:
    async def main() -> None:
        async with (
            aio.connect(server.url, autocommit=True) as a,
            aio.connect(server.url) as b,
        ):
            await a.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
            await a.execute("INSERT INTO t VALUES (1, 0)")
            await b.execute("UPDATE t SET v = v + 1")  # holds the row
            waiting = asyncio.create_task(a.execute("UPDATE t SET v = v + 1"))
            await asyncio.sleep(0)
            assert not waiting.done()
            await b.commit()
            assert (await waiting).rowcount == 1
            assert await (await a.execute("SELECT v FROM t")).fetchall() == [(2,)]

    run(main())


def test_a_cancelled_task_cancels_its_statement(target: str) -> None:
    async def main() -> None:
        async with aio.connect(target, autocommit=True) as conn:
            await conn.execute("CREATE TABLE n (id BIGINT PRIMARY KEY)")
            await conn.executemany("INSERT INTO n VALUES (?)", [(n,) for n in range(3000)])
            endless = "SELECT count(*) FROM n a, n b, n c WHERE a.id + b.id + c.id = -1"
            begun = asyncio.Event()

            async def ask() -> None:
                begun.set()
                await (await conn.execute(endless)).fetchall()

            task = asyncio.create_task(ask())
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await (await conn.execute("SELECT 1")).fetchall() == [(1,)]  # it goes on
            task = asyncio.create_task(ask())
            while not task.done():
                conn.cancel()
                await asyncio.sleep(0.001)
            with pytest.raises(QueryCanceledError):
                await task

    run(main())


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.UNANSWERED])
def test_lost_answers_are_settled(server: RunningServer, fate: Fate) -> None:
    async def main(url: str) -> None:
        async with aio.connect(url) as conn:
            await conn.execute("CREATE TABLE t (id BIGINT)")
            await conn.commit()
            await conn.execute("INSERT INTO t VALUES (1)")
            proxy.fates.append((Commit, fate))
            if fate is Fate.UNANSWERED:
                await conn.commit()
            else:
                with pytest.raises(OperationalError) as caught:
                    await conn.commit()
                assert caught.value.retry is Retry.SAFE
            rows = await (await conn.execute("SELECT id FROM t")).fetchall()
            assert rows == ([(1,)] if fate is Fate.UNANSWERED else [])

    with FrameProxy(server.port) as proxy:
        run(main(proxy.url))
