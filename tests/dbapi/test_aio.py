"""herdpy.aio: the same calls as the blocking driver, awaited, over every transport."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Coroutine
from importlib.util import find_spec
from typing import Any

import pytest

from herdpy import aio
from herdpy.aio import runners
from herdpy.errors import (
    InterfaceError,
    OperationalError,
    ProgrammingError,
    QueryCanceledError,
    Retry,
)
from herdpy.proto.messages import Commit, Execute
from tests.fixtures.frame_proxy import Fate, FrameProxy
from tests.fixtures.servers import RunningServer

pytestmark = pytest.mark.sync_face
on_the_loop = pytest.mark.skipif(
    find_spec("greenlet") is None, reason="without greenlet, the extra aio, it runs in a thread"
)


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


def test_statements_rows_and_transactions(target: str) -> None:
    async def main() -> None:
        async with aio.connect(target) as conn:
            await conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
            made = await conn.executemany("INSERT INTO t VALUES (?, 'x')", [(n,) for n in range(9)])
            assert made.rowcount == 9
            await conn.commit()
            script = "SELECT 1; SELECT count(*) FROM t"
            assert await (await conn.executescript(script)).fetchall() == [(9,)]
            cursor = await conn.cursor()
            assert await (await cursor.executescript(script)).fetchall() == [(9,)]
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


# --- on the loop, and in threads -----------------------------------------------------------------


@on_the_loop
def test_over_the_network_no_thread_is_made(server: RunningServer) -> None:
    async def main() -> None:
        async with aio.connect(server.url) as a, aio.connect(server.url) as b:
            found = await asyncio.gather(a.execute("SELECT 1"), b.execute("SELECT 2"))
            assert [await each.fetchall() for each in found] == [[(1,)], [(2,)]]
            names = [each.name for each in threading.enumerate()]
            assert not [name for name in names if name.startswith(("herdpy-aio", "asyncio"))]

    run(main())


def test_without_greenlet_it_has_a_thread(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runners, "find_spec", lambda name: None)

    async def main() -> None:
        async with aio.connect(server.url, autocommit=True) as conn:
            assert await (await conn.execute("SELECT 1")).fetchall() == [(1,)]
            assert any(each.name.startswith("herdpy-aio") for each in threading.enumerate())

    run(main())


def test_without_greenlet_it_can_be_imported(server: RunningServer) -> None:
    program = """
import sys
sys.modules["greenlet"] = None  # as if it were not installed
import asyncio
from herdpy import aio

async def main():
    async with aio.connect(sys.argv[1]) as conn:
        print(await (await conn.execute("SELECT 1")).fetchall())

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program, server.url], capture_output=True, text=True, check=False
    )
    assert done.stdout == "[(1,)]\n", done.stderr


def test_a_call_that_waits_for_its_turn_can_be_cancelled(server: RunningServer) -> None:
    async def main() -> None:
        async with (
            aio.connect(server.url, autocommit=True) as a,
            aio.connect(server.url) as b,
        ):
            await a.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
            await a.execute("INSERT INTO t VALUES (1, 0)")
            await b.execute("UPDATE t SET v = v + 1")  # holds the row
            first = asyncio.create_task(a.execute("UPDATE t SET v = v + 1"))
            second = asyncio.create_task(a.execute("INSERT INTO t VALUES (2, 0)"))
            await asyncio.sleep(0)
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
            await b.commit()
            await first
            assert await (await a.execute("SELECT v FROM t")).fetchall() == [(2,)]

    run(main())


def test_an_impatient_cancel_ends_the_connection_and_the_next_call_has_another(
    server: RunningServer,
) -> None:
    async def main(url: str) -> None:
        async with aio.connect(url, autocommit=True) as conn:
            await conn.execute("CREATE TABLE t (id BIGINT)")
            proxy.fates.append((Execute, Fate.UNANSWERED))
            task = asyncio.create_task(conn.execute("INSERT INTO t VALUES (1)"))
            while proxy.fates and not task.done():
                await asyncio.sleep(0)
                for _ in range(2):
                    task.cancel()
                    await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await (await conn.execute("SELECT 1")).fetchall() == [(1,)]

    with FrameProxy(server.port) as proxy:
        run(main(proxy.url))


@on_the_loop
def test_a_loop_that_ends_in_the_middle_leaves_nothing(server: RunningServer) -> None:
    async def main() -> None:
        conn = await aio.connect(server.url, autocommit=True)
        await conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        await conn.execute("BEGIN")
        await conn.execute("INSERT INTO t VALUES (1)")
        other = await aio.connect(server.url)
        waiting.append(asyncio.create_task(other.execute("INSERT INTO t VALUES (1)")))
        connections.extend((conn, other))
        await asyncio.sleep(0)

    waiting: list[asyncio.Task[Any]] = []
    connections: list[aio.AsyncConnection] = []
    run(main())
    assert waiting[0].cancelled()
    with pytest.raises(OperationalError, match="has ended"):
        connections[0].blocking.live_session().execute("SELECT 1")


@on_the_loop
def test_a_connection_belongs_to_its_loop(server: RunningServer) -> None:
    async def main() -> None:
        async with aio.connect(server.url) as conn:

            async def use() -> None:
                await conn.execute("SELECT 1")

            with pytest.raises(InterfaceError, match="another loop"):
                await asyncio.to_thread(asyncio.run, use())
            assert await (await conn.execute("SELECT 1")).fetchall() == [(1,)]

    run(main())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # 3.12, of threads
def test_a_forked_child_holds_no_connection(server: RunningServer) -> None:
    """The server sees that its parent has closed it, while the child lives on."""

    async def main() -> None:
        conn = await aio.connect(server.url, autocommit=True)
        await conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        await conn.execute("BEGIN")
        await conn.execute("INSERT INTO t VALUES (1)")
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(writing)
            os.read(reading, 1)  # until the parent ends the pipe
            os._exit(0)
        os.close(reading)
        try:
            await conn.close()
            # The key is free.
            async with aio.connect(server.url, autocommit=True, lock_timeout_s=60) as other:
                assert (await other.execute("INSERT INTO t VALUES (1)")).rowcount == 1
        finally:
            os.close(writing)
            os.waitpid(child, 0)  # noqa: ASYNC222 - it ends with the pipe

    run(main())


def test_a_close_that_is_cancelled_holds_up_nobody(target: str) -> None:
    async def main() -> None:
        conn = await aio.connect(target, autocommit=True)
        await conn.execute("CREATE TABLE n (id BIGINT PRIMARY KEY)")
        await conn.executemany("INSERT INTO n VALUES (?)", [(n,) for n in range(3000)])
        endless = "SELECT count(*) FROM n a, n b, n c WHERE a.id + b.id + c.id = -1"
        running = asyncio.create_task(conn.execute(endless))
        await asyncio.sleep(0)
        closing = asyncio.create_task(conn.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await conn.close()

    run(main())


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("herd://", "expected herd://host"),
        ("herd://h:99999", "is no URL"),
        ("herd://h/?connect_timeout_s=0", "expected seconds"),
        ("herd+grpc://h/?nonsense=1", "unknown option"),
    ],
)
def test_urls_that_are_of_no_use(url: str, words: str) -> None:
    async def main() -> None:
        with pytest.raises(InterfaceError, match=words):
            await aio.connect(url)

    run(main())


# --- Arrow, whose readers switch below frames of pyarrow's ---------------------------------------

ROWS = 6000


async def filled(url: str) -> aio.AsyncConnection:
    conn = await aio.connect(url, autocommit=True)
    await conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
    await conn.executemany("INSERT INTO t VALUES (?, ?)", [(n, "x" * 100) for n in range(ROWS)])
    return conn


async def reader_of(conn: aio.AsyncConnection) -> aio.AsyncBatches:
    cursor = await conn.execute("SELECT id, v FROM t ORDER BY id")
    return await cursor.fetch_record_batch(500)


def test_readers_of_many_tasks_side_by_side(server: RunningServer) -> None:
    async def read() -> list[int]:
        async with aio.connect(server.url) as conn:
            return [n for batch in [each async for each in await reader_of(conn)]
                    for n in batch.column("id").to_pylist()]  # fmt: skip

    async def main() -> None:
        async with await filled(server.url):
            for found in await asyncio.gather(*(read() for _ in range(6))):
                assert found == list(range(ROWS))

    run(main())


def test_a_reader_that_another_thread_collects(server: RunningServer) -> None:
    async def main() -> None:
        async with await filled(server.url) as conn:
            held = [await reader_of(conn)]
            assert (await anext(held[0])).num_rows == 500
            thread = threading.Thread(target=held.clear)
            thread.start()
            thread.join()
            assert (await (await reader_of(conn)).read_all()).num_rows == ROWS

    run(main())


@on_the_loop
def test_a_result_that_was_cancelled_while_it_was_read_has_no_end(server: RunningServer) -> None:
    async def main() -> None:
        async with await filled(server.url) as conn:
            # Many pieces, of which one is asked for ahead.
            cursor = await conn.execute("SELECT id, repeat(v, 20) FROM t")
            held.append(await cursor.fetch_record_batch(500))
            reading = asyncio.create_task(held[0].read_all())
            await asyncio.sleep(0)
            assert reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            with pytest.raises(ProgrammingError, match="cancelled"):
                await held[0].read_all()

    held: list[aio.AsyncBatches] = []
    run(main())
    with pytest.raises(ProgrammingError, match="failed"):  # and no end
        held[0]._reader.read_next_batch()


# --- the pool ------------------------------------------------------------------------------------


def test_who_waits_for_a_connection_can_be_cancelled(server: RunningServer) -> None:
    async def main() -> None:
        async with aio.Pool(server.url, connections_max=1) as pool:

            async def use(number: int) -> None:
                async with pool.connection() as conn:
                    await (await conn.execute("SELECT 1")).fetchall()
                    order.append(number)

            order: list[int] = []
            async with pool.connection():
                tasks = [asyncio.create_task(use(number)) for number in range(4)]
                while pool.waiting_count < 4:  # noqa: ASYNC110 - they begin in the next turns
                    await asyncio.sleep(0)
                tasks[1].cancel()
                with pytest.raises(asyncio.CancelledError):
                    await tasks[1]
                assert pool.waiting_count == 3
            # The first has its connection now, and does not know it yet.
            assert pool.waiting_count == 2
            tasks[0].cancel()
            found = await asyncio.gather(*tasks, return_exceptions=True)
            assert [isinstance(each, asyncio.CancelledError) for each in found] == [
                True, True, False, False,
            ]  # fmt: skip
            assert order == [2, 3]
            assert pool.connection_count == 1

    run(main())


def test_a_cancelled_block_rolls_back(server: RunningServer) -> None:
    async def main() -> None:
        async with aio.Pool(server.url, connections_max=1) as pool:
            async with pool.connection() as conn:
                await conn.execute("CREATE TABLE t (id BIGINT)")
            inside = asyncio.Event()

            async def block() -> None:
                async with pool.connection() as conn:
                    await conn.execute("INSERT INTO t VALUES (1)")
                    inside.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(block())
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with pool.connection() as conn:
                assert await (await conn.execute("SELECT count(*) FROM t")).fetchall() == [(0,)]
            assert pool.connection_count == 1

    run(main())
