"""The contract of Channels: the client's own over real bookies, and the bookies in memory."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bookie.client.interfaces import BookieInfo, Channels, LacReply, ReadReply
from bookie.config import ClientConfig
from bookie.ledger.codec import EntryDigest, header_of, master_key
from bookie.ledger.types import BookieId, DigestType, Status
from bookie.proto import availability
from tests.fixtures.ledger_bookies import MemoryBookies
from tests.fixtures.ledger_cluster import LedgerCluster, simulate_cluster
from tests.sim.loop import SimulatedLoop

KEY = master_key(b"secret")
OTHER_KEY = master_key(b"other")
DIGEST = EntryDigest.of(DigestType.CRC32C, b"secret")
CONFIG = ClientConfig(add_timeout_s=2.0, read_timeout_s=2.0)


class Asker:
    """Channels as coroutines, one bookie each; insists on one answer, and not within the call."""

    def __init__(self, channels: Channels, bookies: list[BookieId]) -> None:
        self.channels = channels
        self.bookies = bookies

    async def _ask(self, begin: Callable[[Callable[..., None]], None], count: int = 1) -> list[Any]:
        answers: list[Any] = []
        done = asyncio.get_running_loop().create_future()

        def on_done(*answer: Any) -> None:
            assert len(answers) < count, "answered twice"
            answers.append(answer if len(answer) > 1 else answer[0])
            if len(answers) == count:
                done.set_result(None)

        begin(on_done)
        assert not answers, "answered from within the call"
        await done
        await asyncio.sleep(0.01)
        return answers

    async def add(
        self, entry_id: int, lac: int = -1, *, key: bytes = KEY, **options: Any
    ) -> dict[str, Status]:
        packet = DIGEST.seal(7, entry_id, lac, 5 * (entry_id + 1), b"hello")
        answers = await self._ask(
            lambda on_done: self.channels.add(
                tuple(self.bookies), 7, entry_id, key, packet, on_done, **options
            ),
            len(self.bookies),
        )
        return dict(answers)

    async def read(self, entry_id: int, ledger_id: int = 7, **options: Any) -> ReadReply:
        bookie = self.bookies[0]
        [reply] = await self._ask(
            lambda on_done: self.channels.read(bookie, ledger_id, entry_id, on_done, **options)
        )
        return reply

    async def read_lac(self, ledger_id: int = 7) -> LacReply:
        bookie = self.bookies[0]
        [reply] = await self._ask(lambda d: self.channels.read_lac(bookie, ledger_id, d))
        return reply

    async def write_lac(self, lac: int, key: bytes = KEY) -> Status:
        bookie, packet = self.bookies[0], DIGEST.seal_lac(7, lac)
        [status] = await self._ask(
            lambda d: self.channels.write_lac(bookie, 7, key, lac, packet, d)
        )
        return status


Body = Callable[[Asker], Awaitable[None]]


def on_real_bookies(body: Body) -> None:
    async def on_cluster(cluster: LedgerCluster) -> None:
        client = await cluster.client(CONFIG)
        await body(Asker(client.services.channels, [BookieId(b) for b in sorted(cluster.bookies)]))

    simulate_cluster(on_cluster, 2)


def on_memory_bookies(body: Body) -> None:
    async def main() -> None:
        bookies = MemoryBookies(2)
        await body(Asker(bookies, list(bookies.all)))

    loop = SimulatedLoop(1)
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


@pytest.fixture(params=[on_real_bookies, on_memory_bookies])
def run(request: pytest.FixtureRequest) -> Callable[[Body], None]:
    return request.param


def test_add_answers_once_for_each_bookie(run: Callable[[Body], None]) -> None:
    async def body(ask: Asker) -> None:
        assert await ask.add(0) == dict.fromkeys(ask.bookies, Status.OK)
        assert await ask.add(0) == dict.fromkeys(ask.bookies, Status.OK)  # again: written over
        assert await ask.add(5, is_deferred_sync=True) == dict.fromkeys(ask.bookies, Status.OK)

    run(body)


def test_another_master_key_is_unauthorized(run: Callable[[Body], None]) -> None:
    async def body(ask: Asker) -> None:
        await ask.add(0)
        assert set((await ask.add(1, key=OTHER_KEY)).values()) == {Status.UNAUTHORIZED}
        assert (await ask.read(0, fence_key=OTHER_KEY)).status is Status.UNAUTHORIZED
        assert await ask.write_lac(0, OTHER_KEY) is Status.UNAUTHORIZED

    run(body)


def test_reads(run: Callable[[Body], None]) -> None:
    async def body(ask: Asker) -> None:
        assert (await ask.read(0)).status is Status.NO_LEDGER
        await ask.add(0)
        await ask.add(1, 0)
        reply = await ask.read(0)
        assert reply.status is Status.OK
        assert DIGEST.open(reply.body, 7, 0).payload == b"hello"
        assert reply.max_lac == 0
        assert header_of((await ask.read(-1)).body).entry_id == 1
        assert (await ask.read(2)).status is Status.NO_ENTRY
        assert (await ask.read(0, ledger_id=8)).status is Status.NO_LEDGER

    run(body)


def test_a_fence_refuses_adds_and_lets_recovery_adds_pass(run: Callable[[Body], None]) -> None:
    async def body(ask: Asker) -> None:
        await ask.add(0)
        reply = await ask.read(-1, fence_key=KEY)
        assert reply.status is Status.OK
        assert header_of(reply.body).entry_id == 0
        answers = await ask.add(1)
        assert answers[ask.bookies[0]] is Status.FENCED
        assert answers[ask.bookies[1]] is Status.OK
        answers = await ask.add(1, is_recovery=True)
        assert set(answers.values()) == {Status.OK}

    run(body)


def test_g14_a_fence_makes_the_ledger(run: Callable[[Body], None]) -> None:
    async def body(ask: Asker) -> None:
        assert (await ask.read(-1, fence_key=KEY)).status is Status.NO_ENTRY
        assert (await ask.read(3, fence_key=KEY)).status is Status.NO_ENTRY
        assert (await ask.read(-1)).status is Status.NO_ENTRY
        assert (await ask.add(0))[ask.bookies[0]] is Status.FENCED

    run(body)


def test_lac_writes_and_reads(run: Callable[[Body], None]) -> None:
    async def body(ask: Asker) -> None:
        assert (await ask.read_lac()).status is Status.NO_ENTRY
        await ask.add(0)
        reply = await ask.read_lac()
        assert (reply.status, bytes(reply.lac_body)) == (Status.OK, b"")
        assert header_of(reply.last_entry_body).entry_id == 0
        assert await ask.write_lac(0) is Status.OK
        assert DIGEST.open_lac((await ask.read_lac()).lac_body, 7) == 0
        assert (await ask.read(0)).max_lac == 0

    run(body)


def test_a_long_poll_waits_for_the_lac(run: Callable[[Body], None]) -> None:
    async def body(ask: Asker) -> None:
        await ask.add(0)
        poll = asyncio.ensure_future(
            ask.read(-1, previous_lac=-1, wait_ms=10_000, is_piggyback=True)
        )
        await asyncio.sleep(1)
        assert not poll.done()
        await ask.add(1, 0)
        reply = await poll
        assert (reply.status, reply.entry_id, reply.max_lac) == (Status.OK, 0, 0)
        assert DIGEST.open(reply.body, 7, 0).payload == b"hello"

    run(body)


def test_a_long_poll_ends_without_news(run: Callable[[Body], None]) -> None:
    async def body(ask: Asker) -> None:
        await ask.add(0)
        reply = await ask.read(-1, previous_lac=-1, wait_ms=500, is_piggyback=True)
        assert (reply.status, reply.entry_id, bytes(reply.body)) == (Status.OK, -1, b"")
        assert reply.max_lac == -1

    run(body)


def test_a_fence_wakes_long_polls(run: Callable[[Body], None]) -> None:
    async def body(ask: Asker) -> None:
        await ask.add(0)
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        poll = asyncio.ensure_future(
            ask.read(-1, previous_lac=-1, wait_ms=10_000, is_piggyback=True)
        )
        await asyncio.sleep(0.1)
        await ask.read(-1, fence_key=KEY)
        assert (await poll).status is Status.OK
        assert loop.time() - began_at < 5

    run(body)


def test_force_info_and_the_list_of_entries(run: Callable[[Body], None]) -> None:
    async def body(ask: Asker) -> None:
        channels, bookie = ask.channels, ask.bookies[0]
        await ask.add(0)
        await ask.add(2)
        assert await ask._ask(lambda d: channels.force(bookie, 7, d)) == [Status.OK]
        assert await ask._ask(lambda d: channels.force(bookie, 99, d)) == [Status.OK]
        [info] = await ask._ask(lambda d: channels.info(bookie, d))
        assert isinstance(info, BookieInfo)
        assert info.status is Status.OK
        assert info.total_bytes >= info.free_bytes > 0
        [(status, data)] = await ask._ask(lambda d: channels.list_entries(bookie, 7, d))
        assert status is Status.OK
        held = availability.decode(bytes(data))
        assert [entry_id for entry_id in range(5) if entry_id in held] == [0, 2]
        [(status, _)] = await ask._ask(lambda d: channels.list_entries(bookie, 99, d))
        assert status is Status.NO_LEDGER

    run(body)


def test_a_bookie_that_is_not_registered_is_unavailable(run: Callable[[Body], None]) -> None:
    async def body(ask: Asker) -> None:
        ask.bookies = [BookieId("nobody")]
        assert await ask.add(0) == {"nobody": Status.UNAVAILABLE}
        assert (await ask.read(0)).status is Status.UNAVAILABLE
        assert (await ask.read_lac()).status is Status.UNAVAILABLE
        assert await ask.write_lac(0) is Status.UNAVAILABLE

    run(body)
