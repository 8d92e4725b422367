"""A small run of `make fuzz-wire`, and what a new peer may cost, to the byte."""

import asyncio
import tracemalloc
from pathlib import Path
from struct import pack

import pytest

from bookie.runtime.os_clock import OsClock
from bookie.server.metrics import ServerMetrics
from bookie.server.wire.connection import PREAUTH_BYTES_MAX, Connection
from bookie.server.wire.dispatch_v2 import DispatcherV2
from bookie.server.wire.dispatch_v3 import DispatcherV3
from bookie.server.wire.hub import Hub
from bookie.server.wire.message_header import HEADER_BYTES_MAX, is_add_header
from tests.fixtures.bookies import CONFIG, KEY, add, running_bookie
from tests.fuzz.wire import Wire, run


def test_broken_messages_break_nothing(seed: int, tmp_path: Path) -> None:
    outcome = asyncio.run(run(seed, 4000, tmp_path))
    assert outcome.messages == 4000
    assert min(outcome.counts.values()) > 0, outcome.counts


HEADS = {
    "nothing but a length": b"",
    "zeros": bytes(64),
    "a read": bytes.fromhex("0a06080310011802"),
    "version 2 in a v3 header": bytes.fromhex("0a06080210021802"),
    "a v2 read": bytes.fromhex("02020000"),
    "a header of 30 bytes": bytes.fromhex("0a1e") + bytes(60),
}


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("announced", [PREAUTH_BYTES_MAX, 4 << 20, 5 * 1024 * 1024 - 4, 2**31 - 1])
def test_a_new_peer_costs_one_mebibyte_at_most(name: str, announced: int) -> None:
    async def main() -> int:
        async with running_bookie() as running:
            loop = asyncio.get_running_loop()
            hub = Hub(running.bookie, CONFIG, OsClock(), loop, ServerMetrics())
            connection = Connection(hub, DispatcherV3(hub), DispatcherV2(hub))
            connection.connection_made(Wire(loop, connection))
            chunk = bytes(16_384)
            tracemalloc.start()
            try:
                connection.data_received(pack(">I", announced) + HEADS[name])
                for _ in range(300):
                    if connection.is_open:
                        connection.data_received(chunk)
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
                connection.abort()

    assert asyncio.run(main()) < PREAUTH_BYTES_MAX


def test_many_small_messages_of_a_new_peer_are_not_all_cut_out() -> None:
    async def main() -> int:
        async with running_bookie() as running:
            loop = asyncio.get_running_loop()
            hub = Hub(running.bookie, CONFIG, OsClock(), loop, ServerMetrics())
            connection = Connection(hub, DispatcherV3(hub), DispatcherV2(hub))
            connection.connection_made(Wire(loop, connection))
            data = bytes(256 * 1024)  # 65,536 messages of no bytes
            tracemalloc.start()
            try:
                connection.data_received(data)
                assert not connection.is_open
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

    assert asyncio.run(main()) < PREAUTH_BYTES_MAX


def test_an_announced_size_is_not_allocated() -> None:
    """Also for an add, of which the head is good: memory follows what arrives."""

    async def main() -> int:
        async with running_bookie() as running:
            loop = asyncio.get_running_loop()
            hub = Hub(running.bookie, CONFIG, OsClock(), loop, ServerMetrics())
            connection = Connection(hub, DispatcherV3(hub), DispatcherV2(hub))
            connection.connection_made(Wire(loop, connection))
            head = add(1, 7, 0)[4:60]
            tracemalloc.start()
            try:
                connection.data_received(pack(">i", 5 << 20) + head)
                connection.data_received(bytes(1000))
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
                connection.abort()

    assert asyncio.run(main()) < 64_000


def test_heads_of_adds() -> None:
    longest = add(2**64 - 1, 2**62, 2**62, priority=100)[4 : HEADER_BYTES_MAX + 4]
    for head in (add(1, 7, 0)[4:HEADER_BYTES_MAX], longest, b"\x02\x01\x00\x00" + KEY):
        assert is_add_header(head)
    for head in HEADS.values():
        assert not is_add_header(head)
