"""The blocking API: calls from threads, an end without anything left behind."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from bookie.client.blocking import BlockingLedgerClient, LoopThread
from bookie.errors import (
    ClientClosedError,
    IllegalOperationError,
    IncorrectParameterError,
    NoSuchLedgerMetadataError,
    UnauthorizedAccessError,
)
from bookie.metadata.memory import MemoryStore
from bookie.runtime.drivers import ThreadDriver
from bookie.runtime.os_clock import OsClock
from bookie.runtime.os_rng import OsRng
from tests.fixtures.interrupts import LineInterrupter
from tests.fixtures.ledger_cluster import ledger_cluster


def with_client(body: Callable[[BlockingLedgerClient], None]) -> None:
    """Run the bookies on the client's own loop, and body in this thread."""
    holders: dict[str, object] = {}

    async def open_store() -> MemoryStore:
        holders["cluster"] = manager = ledger_cluster(3)
        cluster = await manager.__aenter__()
        return MemoryStore(cluster.store_server)

    client = BlockingLedgerClient.connect(
        open_store, driver=ThreadDriver(), rng=OsRng(), clock=OsClock()
    )
    try:
        body(client)
    finally:

        async def end() -> None:
            await holders["cluster"].__aexit__(None, None, None)
            for _ in range(5):
                await asyncio.sleep(0)

        client._thread.call(end())
        client.close()
        client.close()
    with pytest.raises(ClientClosedError):
        client.delete(1)


def test_write_recover_read_tail_delete() -> None:
    def body(client: BlockingLedgerClient) -> None:
        writer = client.create_ledger(password=b"p")
        assert [writer.add(b"%d" % n) for n in range(300)] == list(range(300))
        writer.write_lac()
        open_reader = client.open(writer.ledger_id, b"p", recover=False)
        assert open_reader.read_last_confirmed() == 299
        assert open_reader.read_next(7).entry.payload == b"7"
        with pytest.raises(UnauthorizedAccessError):
            client.open(writer.ledger_id, b"q")
        seen: list[tuple[int, int]] = []
        reader = client.open(
            writer.ledger_id, b"p", on_progress=lambda *progress: seen.append(progress)
        )
        assert (reader.lac, reader.is_closed) == (299, True)
        assert [e.entry_id for e in reader.entries(0, 299)] == list(range(300))
        with pytest.raises(IncorrectParameterError):
            reader.entries(0, 300)
        assert [e.entry_id for e in reader.tail(290)] == list(range(290, 300))
        assert [e.entry_id for e in reader.read_unconfirmed(3, 4)] == [3, 4]
        assert reader.metadata == client.metadata(writer.ledger_id)
        assert client.recover(writer.ledger_id, b"p").length == reader.length
        assert list(client.ledger_ids()) == [writer.ledger_id]
        writer.abandon()
        reader.close()
        open_reader.close()
        client.delete(writer.ledger_id)
        with pytest.raises(NoSuchLedgerMetadataError):
            client.metadata(writer.ledger_id)

    with_client(body)


def test_several_threads_write_one_ledger() -> None:
    def body(client: BlockingLedgerClient) -> None:
        writer = client.create_ledger()
        ids: list[int] = []
        threads = [
            threading.Thread(target=lambda: ids.extend(writer.add(b"x") for _ in range(50)))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(ids) == list(range(200))
        positions = writer.append_many([b"r"] * 10)
        assert len(positions) == 10
        writer.force()
        writer.close()

    with_client(body)


def test_a_tail_given_up_leaves_nothing_behind() -> None:
    def body(client: BlockingLedgerClient) -> None:
        writer = client.create_ledger()
        for n in range(5):
            writer.add(b"%d" % n)
        with_reader = client.open(writer.ledger_id, recover=False)
        tail = with_reader.tail()
        assert next(tail).payload == b"0"
        tail.close()
        writer.close()

    with_client(body)


def test_a_call_under_way_ends_with_the_thread() -> None:
    thread = LoopThread(ThreadDriver())
    begun = threading.Event()
    ended: list[Exception] = []

    async def wait_for_nothing() -> None:
        begun.set()
        await asyncio.Event().wait()

    def call() -> None:
        try:
            thread.call(wait_for_nothing())
        except ClientClosedError as error:
            ended.append(error)

    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    begun.wait()
    thread.close()
    caller.join(60)
    assert len(ended) == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_ctrl_c_at_any_line_of_a_call_leaves_the_thread_as_it_was() -> None:
    """One that comes before the loop has the coroutine leaves it where it was made."""
    thread = LoopThread(ThreadDriver())

    async def answer() -> int:
        await asyncio.sleep(0)
        return 1

    number, where = 0, "begun"
    while where:
        number += 1
        with LineInterrupter(number) as interrupter, suppress(KeyboardInterrupt):
            assert thread.call(answer()) == 1
        where = interrupter.where
        assert thread.call(answer()) == 1  # and what was cancelled before it has ended
        assert not thread._waiting
    assert number > 10
    thread.close()


def test_a_callback_cannot_call_the_client_that_calls_it() -> None:
    thread = LoopThread(ThreadDriver())

    async def call_and_close() -> None:
        with pytest.raises(IllegalOperationError, match="wait for itself"):
            thread.call(asyncio.sleep(0))
        with pytest.raises(IllegalOperationError):
            thread.close()

    thread.call(call_and_close())
    thread.close()


def test_a_store_that_cannot_be_opened() -> None:
    async def open_store() -> MemoryStore:
        raise OSError("no such place")

    with pytest.raises(OSError, match="no such place"):
        BlockingLedgerClient.connect(
            open_store, driver=ThreadDriver(), rng=OsRng(), clock=OsClock()
        )
