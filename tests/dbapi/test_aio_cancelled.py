"""A task of herdpy.aio that is cancelled, at every one of its awaits in turn.

Whatever it was about to do happens or does not, the connection goes on, and no transaction stays
open behind a block that was not entered.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from typing import Any

import pytest

import herdpy
from herdpy import aio

pytestmark = pytest.mark.sync_face


class CancelledAt:
    """Awaits a coroutine, and cancels the task at its awaits with these numbers, from 1."""

    def __init__(self, coroutine: Coroutine[Any, Any, None], *numbers: int) -> None:
        self._coroutine = coroutine
        self._numbers = numbers
        self.count = 0

    def __await__(self) -> Generator[Any, Any, None]:
        task = asyncio.current_task()
        assert task is not None
        waiting = self._coroutine.__await__()
        error: BaseException | None = None
        while True:
            try:
                awaited = waiting.send(None) if error is None else waiting.throw(error)
            except StopIteration:
                return
            self.count += 1
            if self.count in self._numbers:
                task.cancel()
            error = None
            try:
                yield awaited
            except BaseException as caught:
                error = caught


async def cancel_everywhere(
    work: Callable[[], Coroutine[Any, Any, None]],
    check: Callable[[], Awaitable[None]],
    *,
    is_twice: bool,
) -> None:
    """Do some work again and again, cancelled at one await after another (and the next)."""
    number = 0
    while True:
        number += 1
        cancelled = CancelledAt(work(), *range(number, number + 1 + is_twice))

        async def task(cancelled: CancelledAt = cancelled) -> None:
            await cancelled

        [outcome] = await asyncio.gather(asyncio.create_task(task()), return_exceptions=True)
        await check()
        if cancelled.count < number:
            assert outcome is None
            return
        assert outcome is None or isinstance(outcome, asyncio.CancelledError), outcome


@pytest.mark.parametrize("is_twice", [False, True])
def test_blocks(target: str, *, is_twice: bool) -> None:
    async def main() -> None:
        async with aio.connect(target, autocommit=True) as conn:
            await conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
            numbers = iter(range(1_000_000))

            async def work() -> None:
                number = next(numbers)
                async with conn.transaction():
                    await conn.execute("INSERT INTO t VALUES (?, 1)", (number,))
                    await conn.execute("INSERT INTO t VALUES (?, -1)", (-1 - number,))
                async with conn.pipeline() as pipe:
                    await pipe.execute("UPDATE t SET v = 7 WHERE id = ?", (number,))
                    await pipe.execute("UPDATE t SET v = -7 WHERE id = ?", (-1 - number,))

            async def check() -> None:
                # Who is cancelled twice does not wait for the ROLLBACK; the next call does.
                assert is_twice or not conn.in_transaction
                found = await (await conn.execute("SELECT sum(v), count(*) FROM t")).fetchone()
                assert not conn.in_transaction
                assert found is not None
                assert found[0] in (0, None)
                assert found[1] % 2 == 0

            await cancel_everywhere(work, check, is_twice=is_twice)

    asyncio.run(main())


def test_a_block_that_is_given_up_is_rolled_back_behind_what_runs() -> None:
    """The task is cancelled again while its ROLLBACK waits for the connection's thread."""

    async def main() -> None:
        async with aio.connect(":memory:", autocommit=True) as conn:
            gate = threading.Event()
            entering = asyncio.create_task(conn.transaction().__aenter__())
            behind = asyncio.create_task(conn.run(gate.wait))
            await asyncio.sleep(0)
            while conn.blocking.block is None:
                pass
            entering.cancel()
            await asyncio.sleep(0)  # it hears of that, and asks for the ROLLBACK
            await asyncio.sleep(0)
            entering.cancel()
            with pytest.raises(asyncio.CancelledError):
                await entering
            gate.set()
            assert await behind
            await conn.execute("SELECT 1")
            assert not conn.in_transaction

    asyncio.run(main())


@pytest.mark.parametrize("is_twice", [False, True])
def test_blocks_in_blocks(target: str, *, is_twice: bool) -> None:
    async def main() -> None:
        async with aio.connect(target, autocommit=True) as conn:
            await conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
            numbers = iter(range(1_000_000))

            async def work() -> None:
                number = 10 * next(numbers)
                async with conn.transaction():
                    await conn.execute("INSERT INTO t VALUES (?, 0)", (number,))
                    async with conn.transaction():
                        await conn.execute("INSERT INTO t VALUES (?, 1)", (number + 1,))
                        await conn.execute("INSERT INTO t VALUES (?, -1)", (number + 2,))
                    with suppress(ZeroDivisionError):
                        async with conn.transaction():
                            await conn.execute("INSERT INTO t VALUES (?, 7)", (number + 3,))
                            raise ZeroDivisionError

            async def check() -> None:
                assert is_twice or not conn.in_transaction
                found = await (await conn.execute("SELECT sum(v), count(*) FROM t")).fetchone()
                assert not conn.in_transaction
                assert found is not None
                assert found[0] in (0, None)
                assert found[1] % 3 == 0

            await cancel_everywhere(work, check, is_twice=is_twice)

    asyncio.run(main())


@pytest.mark.parametrize("is_twice", [False, True])
def test_results(target: str, *, is_twice: bool) -> None:
    async def main() -> None:
        async with aio.connect(target, autocommit=True) as conn:
            await conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
            rows = [(number, "x" * 100) for number in range(5000)]
            await conn.executemany("INSERT INTO t VALUES (?, ?)", rows)

            async def work() -> None:
                cursor = await conn.execute("SELECT id, v FROM t ORDER BY id")
                found: list[Any] = []
                # On, behind a cancelled call: all of the rest, or an error.
                try:
                    while some := await cursor.fetchmany(1000):
                        found += some
                except asyncio.CancelledError:
                    with suppress(herdpy.Error):
                        while some := await cursor.fetchmany(1000):
                            found += some
                        assert found == rows
                    raise
                assert found == rows
                cursor = await conn.execute("SELECT id, v FROM t ORDER BY id")
                reader = await cursor.fetch_record_batch(1000)
                count = 0
                try:
                    count += (await anext(reader)).num_rows
                    count += (await reader.read_all()).num_rows
                except asyncio.CancelledError:
                    with suppress(herdpy.Error):
                        assert count + (await reader.read_all()).num_rows == len(rows)
                    raise
                assert count == len(rows)
                table = await (await conn.execute("SELECT id, v FROM t")).fetch_arrow_table()
                assert table.num_rows == 5000

            async def check() -> None:
                assert await (await conn.execute("SELECT count(*) FROM t")).fetchall() == [(5000,)]

            await cancel_everywhere(work, check, is_twice=is_twice)

    asyncio.run(main())


def test_a_block_that_a_thread_has_begun_is_given_up() -> None:
    async def main() -> None:
        async with aio.connect(autocommit=True) as conn:
            entering = asyncio.create_task(conn.transaction().__aenter__())
            await asyncio.sleep(0)
            while not conn.in_transaction:
                pass  # the loop does not turn before the thread has begun it
            entering.cancel()
            with pytest.raises(asyncio.CancelledError):
                await entering
            assert not conn.in_transaction

    asyncio.run(main())
