"""The connections against a raw server: matching, silence, garbage, limits, the end."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from bookie.client.channels import AsyncioChannels
from bookie.client.interfaces import BookieInfo, LacReply, ReadReply
from bookie.config import ClientConfig
from bookie.ledger.types import BookieId, Status
from bookie.proto import v3
from bookie.runtime.frames import FrameSplitter
from tests.sim.loop import SimulatedLoop

KEY = b"k" * 20
B1, B2 = BookieId("b1"), BookieId("b2")


class RawServer:
    """Accepts, parses requests, and does nothing by itself."""

    def __init__(self) -> None:
        self.requests: list[v3.Request] = []
        self.chunks: list[int] = []
        self.connection_count = 0
        self.is_closed = False
        self.transports: list[asyncio.Transport] = []
        self.on_request: Callable[[asyncio.Transport, v3.Request], None] | None = None
        self.arrived = asyncio.Event()
        self.accepted = asyncio.Event()

    async def start(self) -> tuple[str, int]:
        server = self

        class Accepted(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                transport = cast(asyncio.Transport, transport)
                self.transport = transport
                self.splitter = FrameSplitter(1 << 26)
                server.connection_count += 1
                server.accepted.set()
                if server.is_closed:
                    transport.abort()
                server.transports.append(transport)

            def data_received(self, data: bytes) -> None:
                server.chunks.append(len(data))
                for frame in self.splitter.feed(data):
                    request = v3.parse_request(frame)
                    server.requests.append(request)
                    if server.on_request is not None:
                        server.on_request(self.transport, request)
                server.arrived.set()

        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(Accepted, "127.0.0.1", 0)
        return self.server.sockets[0].getsockname()[:2]

    async def wait_for(self, count: int) -> None:
        while len(self.requests) < count:
            self.arrived.clear()
            await self.arrived.wait()

    async def close(self) -> None:
        self.server.close()
        self.is_closed = True
        for transport in self.transports:
            transport.abort()
        await self.server.wait_closed()
        for _ in range(5):  # what is being accepted, and what was aborted, ends in a few turns
            await asyncio.sleep(0)


class Addresses:
    def __init__(self, **addresses: tuple[str, int]) -> None:
        self.addresses = addresses

    def address_of(self, bookie_id: BookieId) -> tuple[str, int] | None:
        return self.addresses.get(bookie_id)


class Collected(list):
    """Answers, and a way to wait for a number of them."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = asyncio.Event()

    def __call__(self, *answer: object) -> None:
        self.append(answer if len(answer) > 1 else answer[0])
        self._changed.set()

    async def wait_for(self, count: int) -> None:
        while len(self) < count:
            self._changed.clear()
            await self._changed.wait()


Body = Callable[[RawServer, AsyncioChannels], Awaitable[None]]


async def serve(body: Body, config: ClientConfig) -> None:
    server = RawServer()
    address = await server.start()
    channels = AsyncioChannels(Addresses(b1=address, b2=address), config)
    try:
        await body(server, channels)
    finally:
        await channels.close()
        await server.close()


def with_server(
    body: Body,
    config: ClientConfig | None = None,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> None:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(serve(body, config or ClientConfig()))


def simulate(body: Body, config: ClientConfig) -> None:
    """Run where time is virtual: a bookie is silent on purpose, not because all are slow."""
    loop = SimulatedLoop(1)
    try:
        loop.run_until_complete(serve(body, config))
    finally:
        loop.close()


def answer_add(transport: asyncio.Transport, request: v3.Request) -> None:
    assert isinstance(request, v3.AddRequest)
    frame = v3.encode_add_response(request.txn_id, Status.OK, request.ledger_id, request.entry_id)
    transport.write(frame)


def test_a_loop_of_uvloop_serves_as_well() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def body(server: RawServer, channels: AsyncioChannels) -> None:
        server.on_request = answer_add
        done = Collected()
        channels.add((B1, B2), 7, 0, KEY, b"packet", done)
        await done.wait_for(2)
        assert sorted(done) == [(B1, Status.OK), (B2, Status.OK)]

    with_server(body, loop_factory=uvloop.new_event_loop)


def test_an_entry_for_two_bookies_has_one_txn_id_and_two_answers() -> None:
    async def body(server: RawServer, channels: AsyncioChannels) -> None:
        server.on_request = answer_add
        done = Collected()
        channels.add((B1, B2), 7, 0, KEY, b"packet", done)
        assert not done, "never from within the call"
        await done.wait_for(2)
        assert sorted(done) == [(B1, Status.OK), (B2, Status.OK)]
        first, second = server.requests
        assert first.txn_id == second.txn_id
        assert isinstance(first, v3.AddRequest)
        assert bytes(first.packet) == b"packet"
        assert server.connection_count == 2

    with_server(body)


def test_requests_of_one_turn_leave_in_one_piece() -> None:
    async def body(server: RawServer, channels: AsyncioChannels) -> None:
        server.on_request = answer_add
        done = Collected()
        channels.add((B1,), 7, 0, KEY, b"packet", done)
        await done.wait_for(1)
        server.chunks.clear()
        for entry_id in range(1, 51):
            channels.add((B1,), 7, entry_id, KEY, b"packet", done)
        await done.wait_for(51)
        assert len(server.chunks) == 1

    with_server(body)


def test_answers_in_any_order_find_their_request() -> None:
    async def body(server: RawServer, channels: AsyncioChannels) -> None:
        done = Collected()
        for entry_id in range(3):
            channels.read(B1, 7, entry_id, done)
        await server.wait_for(3)
        for request in reversed(server.requests):
            assert isinstance(request, v3.ReadRequest)
            body = b"body %d" % request.entry_id
            frame = v3.encode_read_response(
                request.txn_id, Status.OK, 7, request.entry_id, body, max_lac=9
            )
            server.transports[0].write(frame)
        await done.wait_for(3)
        assert [(r.entry_id, bytes(r.body), r.max_lac) for r in done] == [
            (2, b"body 2", 9), (1, b"body 1", 9), (0, b"body 0", 9)
        ]  # fmt: skip

    with_server(body)


def test_unknown_txn_ids_and_wrong_operations_are_ignored() -> None:
    async def body(server: RawServer, channels: AsyncioChannels) -> None:
        done = Collected()
        channels.read(B1, 7, 0, done)
        await server.wait_for(1)
        txn_id = server.requests[0].txn_id
        transport = server.transports[0]
        transport.write(v3.encode_read_response(txn_id + 1, Status.OK, 7, 0, b"another's"))
        transport.write(v3.encode_add_response(txn_id, Status.OK, 7, 0))
        transport.write(v3.encode_bare_response(3, txn_id, Status.OK))
        transport.write(v3.encode_read_response(txn_id, Status.NO_ENTRY, 7, 0))
        transport.write(v3.encode_read_response(txn_id, Status.OK, 7, 0, b"twice"))
        await done.wait_for(1)
        # A later request shows that the second answer to the first one was passed over.
        channels.read(B1, 7, 1, done)
        await server.wait_for(2)
        again = server.requests[1].txn_id
        transport.write(v3.encode_read_response(again, Status.OK, 7, 1, b"x"))
        await done.wait_for(2)
        assert [reply.status for reply in done] == [Status.NO_ENTRY, Status.OK]

    with_server(body)


def test_every_other_operation_is_asked_and_answered() -> None:
    async def body(server: RawServer, channels: AsyncioChannels) -> None:
        def answer(transport: asyncio.Transport, request: v3.Request) -> None:
            txn_id = request.txn_id
            match request:
                case v3.ReadLacRequest():
                    frame = v3.encode_read_lac_response(txn_id, Status.OK, 7, b"lac", b"entry")
                case v3.WriteLacRequest():
                    frame = v3.encode_write_lac_response(txn_id, Status.OK, 7)
                case v3.ForceRequest():
                    frame = v3.encode_force_response(txn_id, Status.OK, 7)
                case v3.InfoRequest():
                    frame = v3.encode_info_response(txn_id, Status.OK, 100, 40)
                case _:
                    frame = v3.encode_list_entries_response(txn_id, Status.OK, 7, b"list")
            transport.write(frame)

        server.on_request = answer
        done = Collected()
        channels.read_lac(B1, 7, done)
        channels.write_lac(B1, 7, KEY, 3, b"lac", done)
        channels.force(B1, 7, done)
        channels.info(B1, done)
        channels.list_entries(B1, 7, done)
        await done.wait_for(5)
        assert done == [
            LacReply(Status.OK, b"lac", b"entry"), Status.OK, Status.OK,
            BookieInfo(Status.OK, 100, 40), (Status.OK, b"list"),
        ]  # fmt: skip

    with_server(body)


def test_a_long_poll_outlives_the_read_timeout_and_a_read_does_not() -> None:
    async def body(server: RawServer, channels: AsyncioChannels) -> None:
        def answer_adds(transport: asyncio.Transport, request: v3.Request) -> None:
            if isinstance(request, v3.AddRequest):
                answer_add(transport, request)

        server.on_request = answer_adds
        polled, read, added = Collected(), Collected(), Collected()
        wait_ms = 100_000
        channels.read(
            B1, 7, -1, polled, previous_lac=3, wait_ms=wait_ms, is_piggyback=True
        )  # fmt: skip
        await server.wait_for(1)
        channels.read(B1, 7, 4, read)
        await server.wait_for(2)
        # The bookie lives: one silent request does not break the connection.
        channels.add((B1,), 7, 0, KEY, b"packet", added)
        await read.wait_for(1)
        assert read[0].status == Status.TIMED_OUT
        assert not polled
        poll = server.requests[0]
        assert isinstance(poll, v3.ReadRequest)
        assert (poll.previous_lac, poll.wait_ms, poll.is_piggyback) == (3, wait_ms, True)

    simulate(body, ClientConfig(read_timeout_s=0.3))


def test_a_connection_without_a_word_is_replaced_after_one_time_out() -> None:
    """However long it was idle before the request that was not answered."""

    async def body(server: RawServer, channels: AsyncioChannels) -> None:
        server.on_request = answer_add
        done = Collected()
        channels.add((B1,), 7, 0, KEY, b"packet", done)
        await done.wait_for(1)
        server.on_request = None
        await asyncio.sleep(10)
        channels.add((B1,), 7, 1, KEY, b"packet", done)
        await done.wait_for(2)
        assert done[1] == (B1, Status.TIMED_OUT)
        server.on_request = answer_add
        while done[-1] != (B1, Status.OK):
            channels.add((B1,), 7, 2, KEY, b"packet", done)
            await done.wait_for(len(done) + 1)
            await asyncio.sleep(0.01)
        assert server.connection_count == 2

    simulate(body, ClientConfig(add_timeout_s=0.05))


def test_a_hung_bookie_times_out_and_its_connection_is_replaced() -> None:
    async def body(server: RawServer, channels: AsyncioChannels) -> None:
        done = Collected()
        channels.add((B1,), 7, 0, KEY, b"packet", done)
        await done.wait_for(1)
        assert done == [(B1, Status.TIMED_OUT)]

        def answer_second(transport: asyncio.Transport, request: v3.Request) -> None:
            if transport is not server.transports[0]:
                answer_add(transport, request)

        server.on_request = answer_second
        while (B1, Status.OK) not in done:
            channels.add((B1,), 7, 1, KEY, b"packet", done)
            await done.wait_for(len(done) + 1)
            await asyncio.sleep(0.01)
        assert server.connection_count == 2

    simulate(body, ClientConfig(add_timeout_s=0.05))


def test_garbage_closes_the_connection_and_answers_the_requests() -> None:
    async def body(server: RawServer, channels: AsyncioChannels) -> None:
        for garbage in (b"\x00\x00\x00\x04junk", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"):
            done = Collected()
            while not server.requests or server.transports[-1].is_closing():
                channels.read(B1, 7, 0, done)
                await asyncio.sleep(0.01)
            server.transports[-1].write(garbage)
            await done.wait_for(len(done) + 1)
            assert done[-1].status == Status.UNAVAILABLE
            server.requests.clear()

    with_server(body)


@pytest.mark.parametrize("cut", [1, 3, 5, -1])
def test_an_answer_that_is_cut_off_is_no_answer(cut: int) -> None:
    async def body(server: RawServer, channels: AsyncioChannels) -> None:
        def answer_half(transport: asyncio.Transport, request: v3.Request) -> None:
            assert isinstance(request, v3.AddRequest)
            ids = (request.txn_id, Status.OK, request.ledger_id, request.entry_id)
            transport.write(v3.encode_add_response(*ids)[:cut])
            transport.close()

        server.on_request = answer_half
        done = Collected()
        channels.add((B1,), 7, 0, KEY, b"packet", done)
        await done.wait_for(1)
        assert done == [(B1, Status.UNAVAILABLE)]

    with_server(body)


def test_a_bookie_without_address_or_listener_is_unavailable() -> None:
    async def main() -> None:
        server = RawServer()
        address = await server.start()
        await server.close()
        channels = AsyncioChannels(Addresses(b1=address), ClientConfig())
        done = Collected()
        channels.add((B1, B2), 7, 0, KEY, b"packet", done)
        assert not done
        await done.wait_for(2)
        assert sorted(done) == [(B1, Status.UNAVAILABLE), (B2, Status.UNAVAILABLE)]
        # In the pause after a failed try the answer comes without one.
        channels.read(B1, 7, 0, done)
        await done.wait_for(3)
        assert done[2].status == Status.UNAVAILABLE
        await channels.close()

    asyncio.run(main())


def test_it_connects_again_after_the_bookie_restarted() -> None:
    async def body(server: RawServer, channels: AsyncioChannels) -> None:
        server.on_request = answer_add
        done = Collected()
        channels.add((B1,), 7, 0, KEY, b"packet", done)
        await done.wait_for(1)
        server.transports[0].abort()
        while server.connection_count < 2 or done[-1] != (B1, Status.OK):
            channels.add((B1,), 7, 1, KEY, b"packet", done)
            await done.wait_for(len(done) + 1)
            await asyncio.sleep(0.01)

    with_server(body)


def test_a_bookie_that_does_not_read_costs_bounded_memory() -> None:
    async def body(server: RawServer, channels: AsyncioChannels) -> None:
        done = Collected()
        channels.read(B1, 7, 0, done)
        await server.wait_for(1)
        server.transports[0].pause_reading()
        its_socket = server.transports[0].get_extra_info("socket")
        its_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        packet = b"x" * 60_000
        for entry_id in range(1000):
            channels.add((B1,), 7, entry_id, KEY, packet, done)
            await asyncio.sleep(0)
            if done:
                break
        assert done[0] == (B1, Status.TOO_MANY_REQUESTS)
        # 256 KiB here; what the kernel's two socket buffers take comes on top.
        assert entry_id < 300

    with_server(body, ClientConfig(channel_bytes_max=256 * 1024))


def test_as_many_requests_as_may_be_under_way() -> None:
    async def body(server: RawServer, channels: AsyncioChannels) -> None:
        done = Collected()
        for entry_id in range(17):
            channels.read(B1, 7, entry_id, done)
        await done.wait_for(1)
        assert [reply.status for reply in done] == [Status.TOO_MANY_REQUESTS]

    with_server(body, ClientConfig(channel_requests_max=16))


def test_close_answers_everything_and_what_comes_later() -> None:
    async def body(server: RawServer, channels: AsyncioChannels) -> None:
        done = Collected()
        channels.add((B1, B2), 7, 0, KEY, b"packet", done)
        await server.wait_for(2)
        await channels.close()
        assert sorted(done) == [(B1, Status.CLIENT_CLOSED), (B2, Status.CLIENT_CLOSED)]
        channels.add((B1,), 7, 0, KEY, b"packet", done)
        channels.read(BookieId("b3"), 7, 0, done)
        await done.wait_for(4)
        assert done[2] == (B1, Status.CLIENT_CLOSED)
        assert done[3].status == Status.CLIENT_CLOSED
        await channels.close()

    with_server(body)


def open_sockets() -> set[str]:
    links: set[str] = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            links.add(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue  # that of the listing itself
    return {link for link in links if link.startswith("socket:")}


def test_close_waits_for_the_end_of_every_socket() -> None:
    async def body(server: RawServer, channels: AsyncioChannels) -> None:
        before = open_sockets()
        done = Collected()
        channels.add((B1, B2), 7, 0, KEY, b"packet", done)
        await server.wait_for(2)
        filenos = [t.get_extra_info("socket").fileno() for t in server.transports]
        accepted = {os.readlink(f"/proc/self/fd/{fileno}") for fileno in filenos}
        ours = open_sockets() - before - accepted
        assert len(ours) == 2
        await channels.close()
        assert not ours & open_sockets()

    with_server(body)


def test_close_while_connecting() -> None:
    async def body(server: RawServer, channels: AsyncioChannels) -> None:
        done = Collected()
        channels.read(B1, 7, 0, done)
        await asyncio.sleep(0)
        await channels.close()
        assert [reply.status for reply in done] == [Status.CLIENT_CLOSED]
        await server.accepted.wait()

    with_server(body)


def test_a_bookie_that_moved_is_found_at_its_new_place() -> None:
    async def main() -> None:
        old, new = RawServer(), RawServer()
        old.on_request = new.on_request = answer_add
        addresses = Addresses(b1=await old.start())
        channels = AsyncioChannels(addresses, ClientConfig())
        done = Collected()
        channels.add((B1,), 7, 0, KEY, b"packet", done)
        await done.wait_for(1)
        addresses.addresses["b1"] = await new.start()
        channels.follow_moves()
        channels.add((B1,), 7, 1, KEY, b"packet", done)
        await done.wait_for(2)
        assert done[1] == (B1, Status.OK)
        assert (len(old.requests), len(new.requests)) == (1, 1)
        await channels.close()
        await old.close()
        await new.close()

    asyncio.run(main())


def test_a_move_is_followed_while_what_it_broke_is_asked_of_others() -> None:
    async def main() -> None:
        server = RawServer()
        address = await server.start()
        addresses = Addresses(b1=address, b2=address)
        channels = AsyncioChannels(addresses, ClientConfig())
        done = Collected()

        def ask_another(reply: ReadReply) -> None:
            done(reply)
            channels.read(BookieId("b3"), 7, 0, done)

        channels.read(B1, 7, 0, ask_another)
        channels.read(B2, 7, 0, done)
        await server.wait_for(2)
        addresses.addresses = dict.fromkeys(("b1", "b2"), ("127.0.0.1", 1))
        channels.follow_moves()
        await done.wait_for(3)
        assert [reply.status for reply in done] == [Status.UNAVAILABLE] * 3
        await channels.close()
        await server.close()

    asyncio.run(main())


def test_several_connections_to_one_bookie_share_its_ledgers() -> None:
    async def body(server: RawServer, channels: AsyncioChannels) -> None:
        server.on_request = answer_add
        done = Collected()
        for ledger_id in range(6):
            channels.add((B1,), ledger_id, 0, KEY, b"packet", done)
        await done.wait_for(6)
        assert server.connection_count == 3
        assert set(done) == {(B1, Status.OK)}

    with_server(body, ClientConfig(connections_per_bookie=3))
