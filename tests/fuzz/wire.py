"""`python -m tests.fuzz.wire --runs 1000000 --seed 7`: broken messages to server and client.

Half of the messages go to the server's connections, which serve a real bookie on a real disk, half
to the client's. Nothing may raise, resident memory may grow by 64 MB at most, and a peer that has
not shown itself to be one of this protocol may cost 1 MiB at most. The same seed sends the same
bytes in the same pieces. Exit code 1 and the seed when something is found.
"""

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from bookie.client.connection import BookieConnection, Pending
from bookie.config import BookieConfig, ClientConfig
from bookie.ledger.types import BookieId, Status
from bookie.proto import v3
from bookie.runtime.os_clock import OsClock
from bookie.runtime.os_disk import OsDisk
from bookie.runtime.os_executors import new_executor
from bookie.runtime.os_rng import OsRng
from bookie.server.bookie import Bookie
from bookie.server.metrics import ServerMetrics
from bookie.server.storage.memory_index import MemoryIndex
from bookie.server.wire.connection import PREAUTH_BYTES_MAX, Connection
from bookie.server.wire.dispatch_v2 import DispatcherV2
from bookie.server.wire.dispatch_v3 import DispatcherV3
from bookie.server.wire.hub import Hub
from tests.fixtures.seed_runner import progress
from tests.fuzz.messages import Messages

GROWTH_BYTES_MAX = 64 << 20
_TURN = 64
"""Messages between two turns of the loop."""
_MESSAGES_PER_PEER = 200
_FLOOD_EVERY = 5000
_OPEN_REQUESTS = 16
"""Of the client, when a connection begins; most answers are to txn ids beyond."""
_CONFIG = BookieConfig(
    journal_bytes_max=8 << 20,
    journal_preallocation_bytes=1 << 20,
    write_cache_bytes_max=4 << 20,
    read_cache_bytes_max=4 << 20,
    entry_log_bytes_max=8 << 20,
    is_journal_synced=False,
)


class FindingError(Exception):
    """What the run was for."""


class Wire(asyncio.Transport):
    """A transport without a socket: what is written is counted and forgotten."""

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._loop = loop
        self._protocol = protocol
        self._is_closing = False
        self.byte_count = 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("fuzz", 0) if name == "peername" else default

    def is_closing(self) -> bool:
        return self._is_closing

    def write(self, data: Any) -> None:
        self.byte_count += len(data)

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.byte_count += len(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self._protocol.connection_lost, None)


@dataclass
class Outcome:
    """What a run saw."""

    messages: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    growth_bytes: int = 0
    preauth_bytes: int = 0
    counts: dict[str, int] = field(default_factory=dict)


class _ServerSide:
    """The server's end of one peer after the other."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._dispatchers = DispatcherV3(hub), DispatcherV2(hub)
        self._connection: Connection | None = None
        self._left = 0
        self.preauth_bytes = 0

    async def prepare(self) -> None:
        """Connect anew where that is due."""
        connection = self._connection
        self._left -= 1
        if connection is None or not connection.is_open or self._left <= 0:
            self.end()
            connection = self._connection = Connection(self._hub, *self._dispatchers)
            connection.connection_made(Wire(self._hub.loop, connection))
            self._left = _MESSAGES_PER_PEER

    def feed(self, data: bytes) -> None:
        assert self._connection is not None
        self._connection.data_received(data)

    def flood(self, rng: random.Random) -> None:
        """Be a new peer that announces a long message and sends it: never an add."""
        connection = Connection(self._hub, *self._dispatchers)
        connection.connection_made(Wire(self._hub.loop, connection))
        length = rng.choice((1_000_000, 1 << 20, 5 << 20, rng.randrange(1 << 23)))
        data = length.to_bytes(4, "big") + rng.choice(
            (b"", b"\x0a\x06\x08\x03\x10\x01", b"\x02\x02")
        )
        for _ in range(40):
            connection.data_received(data)
            if not connection.is_open or connection._frame_count:
                break
            held = connection.held_byte_count
            self.preauth_bytes = max(self.preauth_bytes, held)
            if held > PREAUTH_BYTES_MAX:
                raise FindingError(f"a new peer made the server hold {held} bytes")
            data = rng.randbytes(1 << 16)
        connection.abort()

    def end(self) -> None:
        if self._connection is not None:
            self._connection.abort()


class _Owner:
    """What the client's connection asks of its channels."""

    def address_of(self, bookie: BookieId) -> tuple[str, int] | None:
        return "fuzz", 1

    def flush_later(self, connection: BookieConnection) -> None:
        pass

    def began(self, thing: object) -> None:
        pass

    def ended(self, thing: object) -> None:
        pass


class _Loop:
    """The real loop, but for connections: those are Wires."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.protocol: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    async def create_connection(self, factory: Callable[[], Any], host: str, port: int) -> Any:
        self.protocol = factory()
        transport = Wire(self._loop, self.protocol)
        self.protocol.connection_made(transport)
        return transport, self.protocol


class _ClientSide:
    """The client's end of one bookie after the other; requests wait for answers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Any = _Loop(loop)
        self._config = ClientConfig()
        self._connection: BookieConnection | None = None
        self._left = 0
        self.answer_count = 0

    async def prepare(self) -> None:
        """Connect anew where that is due, and ask for what may be answered."""
        connection = self._connection
        self._left -= 1
        if connection is not None and connection._is_ready and self._left > 0:
            return
        self.end()
        connection = self._connection = BookieConnection(
            BookieId("b:1"), _Owner(), self._config, self._loop, None
        )
        for txn_id in range(1, _OPEN_REQUESTS):
            operation = v3.Operation.ADD_ENTRY if txn_id % 2 else v3.Operation.READ_ENTRY
            table = connection.adds if txn_id % 2 else connection.reads
            pending = Pending(1e18, 0.0, operation, self._on_answer)
            connection.request(table, txn_id, pending, b"")
        while not connection._is_ready:  # noqa: ASYNC110 - it is, a few turns later
            await asyncio.sleep(0)
        self._left = _MESSAGES_PER_PEER

    def feed(self, data: bytes) -> None:
        self._loop.protocol.data_received(data)

    def _on_answer(self, bookie: BookieId, answer: Any) -> None:
        self.answer_count += not isinstance(answer, Status)

    def end(self) -> None:
        if self._connection is not None:
            self._connection.close()


def resident_bytes() -> int:
    """Return what this process holds in memory now; 0 where /proc does not tell."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return 0
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def run(
    seed: int, count: int, folder: Path, progress: Callable[[int], None] = lambda _: None
) -> Outcome:
    """Send `count` messages; FindingError, or whatever was raised."""
    loop = asyncio.get_running_loop()
    unhandled: list[str] = []
    loop.set_exception_handler(lambda _, context: unhandled.append(str(context)))
    index = MemoryIndex()
    executors = [new_executor(name) for name in ("journal", "storage")]
    bookie = await Bookie.open(
        OsDisk(folder), index, OsClock(), OsRng(), _CONFIG,
        journal_executor=executors[0], storage_executor=executors[1],
    )  # fmt: skip
    hub = Hub(bookie, _CONFIG, OsClock(), loop, ServerMetrics())
    server, old_server, client = _ServerSide(hub), _ServerSide(hub), _ClientSide(loop)
    # Of four messages two go to a client, one each to servers that are spoken to in v3 and v2.
    turns = (
        (client, Messages.answers(seed)),
        (server, Messages.requests(seed + 1, 3)),
        (client, Messages.answers(seed + 2)),
        (old_server, Messages.requests(seed + 3, 2)),
    )
    rng = random.Random(seed + 4)
    outcome = Outcome()
    settled_bytes = 0
    began, cpu_began = time.perf_counter(), time.process_time()
    try:
        for number in range(count):
            side, source = turns[number & 3]
            data = source.next()
            await side.prepare()
            if rng.random() < 0.2 and len(data) > 1:
                cut = rng.randrange(1, len(data))
                side.feed(data[:cut])
                data = data[cut:]
            side.feed(data)
            if number % _FLOOD_EVERY == 0:
                server.flood(rng)
            if number % _TURN == 0:
                await asyncio.sleep(0)
                while hub.requests > 20_000:  # noqa: ASYNC110 - lets the journal keep up
                    await asyncio.sleep(0.001)
                if unhandled:
                    raise FindingError(f"an exception that was not handled: {unhandled[0]}")
                progress(number)
            if number == count // 5:
                settled_bytes = resident_bytes()  # caches are full, pools are warm
        outcome.seconds = time.perf_counter() - began
        outcome.cpu_s = time.process_time() - cpu_began
        outcome.growth_bytes = resident_bytes() - settled_bytes
    finally:
        for end in (server, old_server, client):
            end.end()
        await asyncio.sleep(0)
        await bookie.close()
        index.close()
        for executor in executors:
            executor.shutdown()
    await asyncio.sleep(0)
    if unhandled:
        raise FindingError(f"an exception that was not handled: {unhandled[0]}")
    if hub.requests or hub.receive_bytes or hub.connections:
        raise FindingError(
            f"left behind: {hub.requests} requests, {hub.receive_bytes} bytes, "
            f"{len(hub.connections)} connections"
        )
    if outcome.growth_bytes > GROWTH_BYTES_MAX:
        raise FindingError(f"resident memory grew by {outcome.growth_bytes} bytes")
    outcome.messages = count
    outcome.preauth_bytes = server.preauth_bytes
    outcome.counts = {
        "adds": hub.metrics.add.success_count,
        "reads": hub.metrics.read.success_count,
        "refusals": hub.metrics.add.failure_count + hub.metrics.read.failure_count,
        "connections closed": hub.metrics.frames_malformed,
        "answers to the client": client.answer_count,
    }
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200_000, help="messages")
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(2**32)
    print(f"fuzz-wire: seed {seed}, {arguments.runs} messages", flush=True)
    with tempfile.TemporaryDirectory() as folder, progress(Console()) as bar:
        task = bar.add_task("messages", total=arguments.runs)
        try:
            outcome = asyncio.run(
                run(
                    seed,
                    arguments.runs,
                    Path(folder),
                    lambda done: bar.update(task, completed=done),
                )
            )
        except Exception as error:
            bar.stop()
            print(f"FOUND with --seed {seed}: {type(error).__name__}: {error}")
            raise
    what = ", ".join(f"{value} {name}" for name, value in outcome.counts.items())
    print(
        f"{outcome.messages} messages in {outcome.seconds:.1f} s "
        f"({outcome.messages / outcome.seconds:.0f}/s; {outcome.messages / outcome.cpu_s:.0f} in a "
        f"second of CPU): {what}; "
        f"memory grew by {outcome.growth_bytes / 2**20:.1f} MB, "
        f"a new peer cost {outcome.preauth_bytes} bytes at most"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
