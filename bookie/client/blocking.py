"""A blocking API of the ledger client: its own event loop in a thread of its own.

Contract: each call waits for the coroutine of the same name in bookie/client/client.py, reader.py
or writer.py and gives its value or error. Any thread may call, several at once. An interrupt
(Ctrl-C) ends the wait and cancels the call; what it had begun may happen. close() ends the thread
and, with ClientClosedError, the calls under way. Callbacks run in the loop's thread, which would
wait for itself: what they call here raises IllegalOperationError.
"""

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Generic, TypeVar

from bookie.client.client import DEFAULT_ROOT, LedgerClient
from bookie.client.interfaces import BytesLike
from bookie.client.reader import LedgerReader, News
from bookie.client.recovery import OnProgress
from bookie.client.writer import LedgerWriter
from bookie.config import ClientConfig
from bookie.errors import BookieError, ClientClosedError, IllegalOperationError
from bookie.ledger.codec import Entry
from bookie.ledger.record_frame import RecordPositions
from bookie.ledger.types import DigestType, LedgerMetadata
from bookie.metadata.interfaces import VersionedStore
from bookie.runtime.interfaces import Clock, Driver, Rng
from bookie.runtime.os_executors import new_loop
from bookie.runtime.ticket import Ticket

T = TypeVar("T")
_ITEMS_MAX = 256
"""Entries or ids handed from the loop's thread to the caller's at once."""


class _Call(Generic[T]):
    """A coroutine that a thread waits for. begin() and cancel() on the loop, end() behind it."""

    def __init__(
        self, coroutine: Coroutine[Any, Any, T], waiting: "dict[_Call[Any], None]"
    ) -> None:
        """Be among `waiting` until it has ended."""
        self.ticket: Ticket[T] = Ticket()
        self._coroutine = coroutine
        self._task: asyncio.Task[T] | None = None
        self._waiting = waiting
        waiting[self] = None

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._task = loop.create_task(self._coroutine)
        self._task.add_done_callback(self._take_end)

    def _take_end(self, task: asyncio.Task[T]) -> None:
        self._waiting.pop(self, None)
        if task.cancelled():
            self._fail()
        elif (error := task.exception()) is not None:
            self.ticket.fail(error)
        else:
            self.ticket.complete(task.result())

    def cancel(self) -> None:
        if self._task is None:  # an interrupt came before it was to begin
            self.end()
        else:
            self._task.cancel()

    def end(self) -> None:
        """End the wait for what does not run. Repeatable."""
        self._waiting.pop(self, None)
        if self._task is None:
            self._coroutine.close()
        self._fail()

    def _fail(self) -> None:
        self.ticket.fail(ClientClosedError("the client was closed during the call"))


class LoopThread:
    """An event loop that runs in a thread of its own until close()."""

    def __init__(
        self,
        driver: Driver,
        name: str = "bookie-client",
        around: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """`around` is entered in the thread, for as long as the loop runs."""
        self._loop = new_loop()
        self._around = around
        self._is_closed = False
        self._driver = driver
        self._waiting: dict[_Call[Any], None] = {}
        """Calls under way: _end() ends those that came too late for _finish()."""
        self._worker = driver.spawn(name, self._run)

    def _run(self) -> None:
        with self._around():
            self._loop.run_forever()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for it."""
        try:
            self.check_caller()
            if self._is_closed:
                raise ClientClosedError("the ledger client was closed")
        except BookieError:
            coroutine.close()
            raise
        return self._call(coroutine)

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Wait for a Ticket, which an interrupt at any place leaves usable for the loop's thread.

        A lock that it holds for a moment, as that of concurrent.futures, might stay taken.
        """
        call = _Call(coroutine, self._waiting)
        try:
            try:
                self._loop.call_soon_threadsafe(call.begin, self._loop)
            except RuntimeError:  # the loop was closed just now
                call.end()
            if self._loop.is_closed():
                call.end()  # _end() may not have seen it
            self._driver.wait(call.ticket)
        except BaseException:
            with suppress(RuntimeError):  # the loop was closed
                self._loop.call_soon_threadsafe(call.cancel)
            raise
        return call.ticket.result()

    def post(self, function: Callable[[], object]) -> None:
        """Have a function called on the loop soon; in the order of the calls. Any thread."""
        if self._is_closed:
            raise ClientClosedError("the ledger client was closed")
        self._loop.call_soon_threadsafe(function)

    def check_caller(self) -> None:
        """IllegalOperationError in the loop's own thread."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            return
        if running is self._loop:
            raise IllegalOperationError(
                "a blocking ledger client was called from one of its own callbacks, which would "
                "wait for itself: call it from another thread"
            )

    def close(self) -> None:
        """End the calls under way, stop the loop and wait for its thread; idempotent."""
        self.check_caller()
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._call(self._finish())
        finally:
            self._end()

    def abandon(self) -> None:
        """Stop the loop where it is, for a process that ends: executors take no jobs any more."""
        self._is_closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._worker.join()

    async def _finish(self) -> None:
        """End what callers, the store or others have begun on the loop, as asyncio.run() does."""
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._loop.shutdown_asyncgens()
        await self._loop.shutdown_default_executor()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._worker.join()
        self._loop.close()
        for call in list(self._waiting):
            call.end()


class BlockingWriter:
    """LedgerWriter for threads. Entries of one thread keep its order."""

    def __init__(self, thread: LoopThread, writer: LedgerWriter) -> None:
        self._thread = thread
        self._writer = writer

    @property
    def ledger_id(self) -> int:
        return self._writer.ledger_id

    @property
    def lac(self) -> int:
        return self._writer.lac

    def add(self, payload: BytesLike, entry_id: int | None = None) -> int:
        return self._thread.call(self._writer.add(payload, entry_id))

    def append_many(self, records: Sequence[BytesLike]) -> RecordPositions:
        return self._thread.call(self._writer.append_many(records))

    def force(self) -> None:
        self._thread.call(self._writer.force())

    def write_lac(self) -> None:
        self._thread.call(self._writer.write_lac())

    def close(self) -> None:
        self._thread.call(self._writer.close())

    def abandon(self) -> None:
        self._thread.call(self._writer.abandon())


class BlockingReader:
    """LedgerReader for threads."""

    def __init__(self, thread: LoopThread, reader: LedgerReader) -> None:
        self._thread = thread
        self._reader = reader

    @property
    def ledger_id(self) -> int:
        return self._reader.ledger_id

    @property
    def metadata(self) -> LedgerMetadata:
        return self._reader.metadata

    @property
    def lac(self) -> int:
        return self._reader.lac

    @property
    def length(self) -> int | None:
        return self._reader.length

    @property
    def is_closed(self) -> bool:
        return self._reader.is_closed

    def read(self, first: int, last: int) -> list[Entry]:
        return self._thread.call(self._reader.read(first, last))

    def read_unconfirmed(self, first: int, last: int) -> list[Entry]:
        return self._thread.call(self._reader.read_unconfirmed(first, last))

    def entries(self, first: int, last: int) -> Iterator[Entry]:
        return _iterate(self._thread, self._reader.entries(first, last), _ITEMS_MAX)

    def read_last_confirmed(self) -> int:
        return self._thread.call(self._reader.read_last_confirmed())

    def read_next(
        self, entry_id: int, wait_s: float | None = None, *, is_parallel: bool = False
    ) -> News:
        return self._thread.call(self._reader.read_next(entry_id, wait_s, is_parallel=is_parallel))

    def tail(self, first: int = 0, *, is_parallel: bool = False) -> Iterator[Entry]:
        return _iterate(self._thread, self._reader.tail(first, is_parallel=is_parallel), 1)

    def close(self) -> None:
        self._thread.call(self._reader.close())


class BlockingLedgerClient:
    """LedgerClient for threads; made by connect(), ended by close() or a `with` block."""

    def __init__(self, thread: LoopThread, store: VersionedStore, client: LedgerClient) -> None:
        self._thread = thread
        self._store = store
        self._client = client
        self._is_closed = False

    @staticmethod
    def connect(
        open_store: Callable[[], Awaitable[VersionedStore]],
        *,
        driver: Driver,
        rng: Rng,
        clock: Clock,
        config: ClientConfig | None = None,
        root: str = DEFAULT_ROOT,
        **more: Any,
    ) -> "BlockingLedgerClient":
        """Start the thread, open the store on its loop and connect; close() closes both.

        `more`: the other arguments of LedgerClient.connect(): locations, tls, on_damage, placement.
        """
        thread = LoopThread(driver)

        async def connect() -> BlockingLedgerClient:
            store = await open_store()
            try:
                client = await LedgerClient.connect(
                    store, rng=rng, clock=clock, config=config, root=root, **more
                )
            except BaseException:
                await store.close()
                raise
            return BlockingLedgerClient(thread, store, client)

        try:
            return thread.call(connect())
        except BaseException:
            thread.close()
            raise

    def create_ledger(
        self,
        ensemble_size: int = 3,
        write_quorum_size: int = 3,
        ack_quorum_size: int = 2,
        digest_type: DigestType = DigestType.CRC32C,
        password: bytes = b"",
        *,
        ledger_id: int | None = None,
        custom: Mapping[str, bytes] | None = None,
        is_deferred_sync: bool = False,
        are_ids_given: bool = False,
    ) -> BlockingWriter:
        writer = self._thread.call(
            self._client.create_ledger(
                ensemble_size,
                write_quorum_size,
                ack_quorum_size,
                digest_type,
                password,
                ledger_id=ledger_id,
                custom=custom,
                is_deferred_sync=is_deferred_sync,
                are_ids_given=are_ids_given,
            )
        )
        return BlockingWriter(self._thread, writer)

    def open(
        self,
        ledger_id: int,
        password: bytes = b"",
        *,
        recover: bool = True,
        digest_type: DigestType | None = None,
        on_progress: OnProgress | None = None,
    ) -> BlockingReader:
        """Open as LedgerClient.open(); on_progress is called in the loop's thread."""
        reader = self._thread.call(
            self._client.open(
                ledger_id,
                password,
                recover=recover,
                digest_type=digest_type,
                on_progress=on_progress,
            )
        )
        return BlockingReader(self._thread, reader)

    def recover(
        self,
        ledger_id: int,
        password: bytes = b"",
        on_progress: OnProgress | None = None,
        *,
        digest_type: DigestType | None = None,
    ) -> LedgerMetadata:
        return self._thread.call(
            self._client.recover(ledger_id, password, on_progress, digest_type=digest_type)
        )

    def delete(self, ledger_id: int) -> None:
        self._thread.call(self._client.delete(ledger_id))

    def metadata(self, ledger_id: int) -> LedgerMetadata:
        return self._thread.call(self._client.metadata(ledger_id))

    def ledger_ids(self) -> Iterator[int]:
        return _iterate(self._thread, self._client.ledger_ids(), _ITEMS_MAX)

    def close(self) -> None:
        """Close the client, the store and the thread; idempotent."""
        self._thread.check_caller()
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._thread.call(self._close())
        finally:
            self._thread.close()

    async def _close(self) -> None:
        try:
            await self._client.close()
        finally:
            await self._store.close()

    def __enter__(self) -> "BlockingLedgerClient":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _iterate(thread: LoopThread, items: AsyncIterator[T], batch_max: int) -> Iterator[T]:
    """Yield what an asynchronous generator yields, fetched in batches of at most batch_max."""

    async def some() -> list[T]:
        batch: list[T] = []
        async for item in items:
            batch.append(item)
            if len(batch) >= batch_max:
                break
        return batch

    async def end() -> None:
        close = getattr(items, "aclose", None)
        if close is not None:
            await close()

    try:
        while batch := thread.call(some()):
            yield from batch
    finally:
        try:
            thread.call(end())
        except (ClientClosedError, IllegalOperationError):
            # Its loop has ended, and the generator with it; or garbage is collected in the loop's
            # thread, and the loop ends the generator by itself.
            pass
