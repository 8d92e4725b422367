"""Our client as a process that does what lines on standard input say: Bench.java's counterpart.

`python -m tests.benchmarks.ledger_client HOSTS ROOT`; the commands and their answers are those of
tests/interop/java/Bench.java, and beside them "records SIZE COUNT": append_many of COUNT records,
and "paced SIZE RATE SECONDS": RATE adds a second.
"""

import asyncio
import json
import os
import sys
import time
from typing import Any

from bookie.admin.world import Cluster
from bookie.client.client import LedgerClient
from bookie.client.writer import LedgerWriter
from bookie.config import ClientConfig
from bookie.errors import BookieError
from bookie.runtime.os_executors import run

ENSEMBLE, WRITE_QUORUM, ACK_QUORUM = 3, 3, 2
RECORDS_AT_ONCE = 1000
BATCHES_AT_ONCE = 8
PACE_S = 0.005
PENDING_MAX = 1900
"""Adds under way of a paced writer: the client takes some more."""


def say(**values: object) -> None:
    print(json.dumps(values), flush=True)


def cpu_s() -> float:
    used = os.times()
    return used.user + used.system


class Adder:
    """Keeps `window` adds under way until `count` are done."""

    def __init__(self, writer: LedgerWriter, data: bytes, count: int, window: int) -> None:
        self._writer = writer
        self._data = data
        self._left = count
        self._window = window
        self._under_way = 0
        self.taken: list[float] = []
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        self._more()
        await self._done

    def _more(self) -> None:
        while self._left and self._under_way < self._window:
            self._left -= 1
            self._under_way += 1
            start = time.perf_counter()
            self._writer.add_nowait(
                self._data, lambda entry, error, start=start: self._on_added(error, start)
            )

    def _on_added(self, error: BookieError | None, start: float) -> None:
        self._under_way -= 1
        self.taken.append(time.perf_counter() - start)
        if error is not None:
            if not self._done.done():
                self._done.set_exception(error)
            return
        if self._left:
            self._more()
        elif not self._under_way:
            self._done.set_result(None)


class Bench:
    """See the module."""

    def __init__(self, client: LedgerClient) -> None:
        self._client = client

    async def _create(self) -> LedgerWriter:
        return await self._client.create_ledger(ENSEMBLE, WRITE_QUORUM, ACK_QUORUM)

    async def add(self, size: int, count: int, window: int) -> None:
        writer = await self._create()
        adder = Adder(writer, b"x" * size, count, window)
        cpu, start = cpu_s(), time.perf_counter()
        await adder.run()
        seconds, cpu = time.perf_counter() - start, cpu_s() - cpu
        await writer.close()
        await self._client.delete(writer.ledger_id)
        report(adder.taken, seconds, cpu)

    async def paced(self, size: int, rate: int, seconds: int) -> None:
        """Add `rate` entries a second while there is room; late ones count from their time."""
        writer = await self._create()
        data = b"x" * size
        taken: list[float] = []
        failed: list[BookieError] = []
        done, room = asyncio.Event(), asyncio.Event()
        cpu, start = cpu_s(), time.perf_counter()
        count = rate * seconds
        for begun in range(count):
            due = start + begun / rate
            if (wait := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            if writer.pending_count >= PENDING_MAX:
                room.clear()
                await room.wait()

            def on_added(_: int, error: BookieError | None, due: float = due) -> None:
                room.set()
                taken.append(time.perf_counter() - due)
                if error is not None:
                    failed.append(error)
                if len(taken) == count:
                    done.set()

            writer.add_nowait(data, on_added)
        await done.wait()
        await writer.close()
        if failed:
            raise failed[0]
        seconds_taken = time.perf_counter() - start
        cpu = cpu_s() - cpu
        await self._client.delete(writer.ledger_id)
        report(taken, seconds_taken, cpu)

    async def records(self, size: int, count: int) -> None:
        writer = await self._create()
        batch = [b"x" * size] * RECORDS_AT_ONCE
        batches = iter(range(count // RECORDS_AT_ONCE))
        taken: list[float] = []

        async def work() -> None:
            for _ in batches:
                begun = time.perf_counter()
                await writer.append_many(batch)
                taken.append(time.perf_counter() - begun)

        cpu, start = cpu_s(), time.perf_counter()
        await asyncio.gather(*(work() for _ in range(BATCHES_AT_ONCE)))
        seconds, cpu = time.perf_counter() - start, cpu_s() - cpu
        await writer.close()
        await self._client.delete(writer.ledger_id)
        report(taken, seconds, cpu, count // RECORDS_AT_ONCE * RECORDS_AT_ONCE)

    async def tail(self, size: int, count: int) -> None:
        """As Bench.java's: a paced writer, a reader that follows by long polls."""
        writer = await self._create()
        data = b"x" * size
        begun = [0.0] * (count + 1)
        taken: list[float] = []
        await writer.add(data)

        async def follow() -> None:
            reader = await self._client.open(writer.ledger_id, recover=False)
            while len(taken) < count:
                news = await reader.read_next(len(taken), 1.0)
                if news.entry is not None:
                    taken.append(time.perf_counter() - begun[len(taken) + 1])
            await reader.close()

        reading = asyncio.create_task(follow())
        for number in range(1, count + 1):
            await asyncio.sleep(PACE_S)
            begun[number] = time.perf_counter()
            await writer.add(data)
        await reading
        await writer.close()
        await self._client.delete(writer.ledger_id)
        report(taken, 1, 0)

    async def left(self, size: int, count: int) -> None:
        writer = await self._create()
        await Adder(writer, b"x" * size, count, 1000).run()
        await writer.abandon()
        say(ledger=writer.ledger_id)

    async def recover(self, ledger_id: int) -> None:
        start = time.perf_counter()
        metadata = await self._client.recover(ledger_id)
        say(seconds=time.perf_counter() - start, last=metadata.last_entry_id)
        await self._client.delete(ledger_id)


def report(taken: list[float], seconds: float, cpu: float, adds: int | None = None) -> None:
    taken.sort()
    adds = adds or len(taken)
    say(
        seconds=seconds,
        adds_per_s=adds / seconds,
        p50_ms=taken[len(taken) // 2] * 1e3,
        p99_ms=taken[len(taken) * 99 // 100] * 1e3,
        cpu_us_per_add=cpu * 1e6 / adds,
    )


async def main(hosts: str, root: str) -> None:
    loop = asyncio.get_running_loop()
    async with Cluster(hosts, root).client(ClientConfig()) as client:
        bench = Bench(client)
        say(ready=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            name, *words = line.split()
            if name == "end":
                break
            command: Any = getattr(bench, name)
            await command(*map(int, words))


if __name__ == "__main__":
    run(main(sys.argv[1], sys.argv[2]))
