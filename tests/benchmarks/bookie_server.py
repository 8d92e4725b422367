"""CPU of the bookie's server side for one add: bytes in, dispatch, answer out, over loopback.

The bookie behind it answers all adds of half a millisecond at once and stores nothing, so journal
and storage are not in the figures. The client is a process of its own; uvloop on both sides. CPU
is that of the whole server process, system calls included.
"""

import argparse
import asyncio
import multiprocessing
import statistics
import time
from struct import pack
from typing import Any

import uvloop

from bookie.config import BookieConfig
from bookie.ledger.types import Status
from bookie.proto import v3
from bookie.runtime.os_clock import OsClock
from bookie.server.wire.server import BookieServer
from tests.benchmarks.harness import Bench

KEY = bytes(20)
REPLY_BYTES = len(v3.encode_add_response(1000, Status.OK, 1, 1))
GROUP_S = 0.0005
BARS_US = {(1024, 256): 30.0}


class Forgetful:
    """Answers adds in groups, as a journal does, and keeps nothing."""

    is_read_only = False

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[Any] = []

    def add(self, packet: Any, master_key: bytes, on_done: Any, **_: Any) -> None:
        if not self._waiting:
            self._loop.call_later(GROUP_S, self._answer)
        self._waiting.append(on_done)

    def _answer(self) -> None:
        waiting, self._waiting = self._waiting, []
        for on_done in waiting:
            on_done(Status.OK)


class Adder(asyncio.Protocol):
    """Keeps `depth` adds under way until `count` were answered."""

    def __init__(self, frames: list[bytes], count: int, depth: int) -> None:
        self._frames = frames
        self._count = count
        self._depth = depth
        self._sent = self._received_bytes = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._fill()

    def data_received(self, data: bytes) -> None:
        self._received_bytes += len(data)
        if self._received_bytes >= self._count * REPLY_BYTES:
            self.done.set_result(None)
        else:
            self._fill()

    def _fill(self) -> None:
        free = self._depth - (self._sent - self._received_bytes // REPLY_BYTES)
        free = min(free, self._count - self._sent)
        if free > self._depth // 2 or free == self._count - self._sent:
            frames = self._frames
            numbers = range(self._sent, self._sent + free)
            self.transport.write(b"".join([frames[n % len(frames)] for n in numbers]))
            self._sent += free


def client(port: int, size: int, count: int, depth: int) -> None:
    async def run() -> None:
        packet = pack(">qqqq", 1, 1, 0, size) + bytes(4 + size)
        frames = [v3.encode_add_request(1000 + n, 1, 1, KEY, packet) for n in range(64)]
        loop = asyncio.get_running_loop()
        _, adder = await loop.create_connection(
            lambda: Adder(frames, count, depth), "127.0.0.1", port
        )
        await adder.done
        adder.transport.close()

    uvloop.run(run())


async def measure(size: int, depth: int, count: int) -> float:
    """Return the CPU of one add in µs."""
    loop = asyncio.get_running_loop()
    server = BookieServer(Forgetful(loop), BookieConfig(port=0), OsClock())  # type: ignore[arg-type]
    port = await server.start()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=client, args=(port, size, count, depth))
    process.start()
    while not server.connection_count:  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0.001)
    before_s = time.process_time()
    while server.connection_count:  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0.05)
    used_s = time.process_time() - before_s
    process.join()
    await server.close()
    assert server.metrics.add.success_count == count
    return used_s / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    bench = Bench("bookie-server", options.rounds)
    for size, depth, count in (
        (100, 256, 60_000),
        (1024, 256, 60_000),
        (1024, 16, 20_000),
        (1024, 1, 1_000),
        (64 * 1024, 16, 4_000),
    ):
        figures = [uvloop.run(measure(size, depth, count)) for _ in range(options.rounds)]
        bench.add(
            f"CPU of an add, {size:,} B, {depth} under way",
            "µs",
            statistics.median(figures),
            None,
            None,
            BARS_US.get((size, depth)),
        )
    print(f"written: {bench.write()}")


if __name__ == "__main__":
    main()
