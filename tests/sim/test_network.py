"""Connections in memory: ordered bytes in any pieces, and every way to lose them."""

import asyncio

import pytest

from tests.sim.loop import SimulatedLoop


class Recorder(asyncio.Protocol):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.pieces = 0
        self.log: list[str] = []
        self.lost: list[Exception | None] = []
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.received += data
        self.pieces += 1

    def eof_received(self):
        self.log.append("eof")

    def pause_writing(self):
        self.log.append("pause")

    def resume_writing(self):
        self.log.append("resume")

    def connection_lost(self, exc):
        self.lost.append(exc)


class World:
    """A server on node "s" and clients on node "c"."""

    def __init__(self, seed: int = 1) -> None:
        self.loop = SimulatedLoop(seed)
        self.network = self.loop.network
        self.server_node = self.loop.add_node("s")
        self.client_node = self.loop.add_node("c")
        self.accepted: list[Recorder] = []
        self.server_node.create_task(self._serve())
        self.loop.run_for(0.001)

    async def _serve(self) -> None:
        await self.loop.create_server(self._accept, "s", 3181)

    def _accept(self) -> Recorder:
        self.accepted.append(Recorder())
        return self.accepted[-1]

    def connect(self) -> Recorder:
        coroutine = self.loop.create_connection(Recorder, "s", 3181)
        task = self.client_node.create_task(coroutine)
        return self.loop.run_until_complete(task)[1]


@pytest.fixture
def world():
    world = World()
    yield world
    world.loop.check_tasks()
    world.loop.close()


def test_bytes_arrive_in_order_in_pieces_of_any_size(world):
    world.network.split_chance = 0.9
    client = world.connect()
    sent = b""
    for number in range(50):
        client.transport.write(b"%d," % number)
        sent += b"%d," % number
        world.loop.run_for(0.000_05)
    world.loop.run_for(1.0)
    server = world.accepted[0]
    assert server.received == sent
    assert server.pieces > 5
    server.transport.write(b"answer")
    world.loop.run_for(1.0)
    assert client.received == b"answer"
    assert client.transport.get_extra_info("peername") == ("s", 3181)


def test_connections_overtake_each_other(world):
    clients = [world.connect() for _ in range(8)]
    order = []
    for number, server in enumerate(world.accepted):
        server.data_received = lambda data, number=number: order.append(number)
    for client in clients:
        client.transport.write(b"x")
    world.loop.run_for(1.0)
    assert sorted(order) == list(range(8))
    assert order != list(range(8))


def test_a_port_without_listener_refuses(world):
    async def main():
        with pytest.raises(ConnectionRefusedError):
            await world.loop.create_connection(Recorder, "s", 1)

    world.loop.run_until_complete(world.client_node.create_task(main()))


def test_so_many_connections_are_refused_as_the_link_says(world):
    world.network.link("c", "s").refusal_count = 1
    with pytest.raises(ConnectionRefusedError):
        world.connect()
    assert world.connect().transport is not None


def test_close_flushes_and_both_sides_hear_of_it_once(world):
    client = world.connect()
    client.transport.write(b"last words")
    client.transport.close()
    client.transport.write(b"not any more")
    world.loop.run_for(1.0)
    server = world.accepted[0]
    assert server.received == b"last words"
    assert server.log == ["eof"]
    assert server.lost == [None]
    assert client.lost == [None]
    assert client.transport.is_closing()


def test_abort_resets_the_peer(world):
    client = world.connect()
    client.transport.abort()
    world.loop.run_for(1.0)
    assert client.lost == [None]
    assert isinstance(world.accepted[0].lost[0], ConnectionResetError)


def test_a_cut_lets_only_a_first_part_through():
    lengths = set()
    for seed in range(20):
        world = World(seed)
        client = world.connect()
        client.transport.write(bytes(range(100)))
        world.network.cut(client.transport)
        world.loop.run_for(1.0)
        server = world.accepted[0]
        assert bytes(range(100)).startswith(bytes(server.received))
        lengths.add(len(server.received))
        assert len(server.lost) == len(client.lost) == 1
        world.loop.close()
    assert len(lengths) > 5


def test_a_silent_cut_hangs(world):
    client = world.connect()
    world.network.cut(client.transport, is_silent=True)
    client.transport.write(b"x")
    world.accepted[0].transport.write(b"y")
    world.loop.run_for(10.0)
    assert client.received == b""
    assert client.lost == []
    client.transport.abort()


def test_a_one_way_partition_holds_bytes_until_it_ends(world):
    client = world.connect()
    server = world.accepted[0]
    world.network.block("c", "s")
    client.transport.write(b"question")
    server.transport.write(b"news")
    world.loop.run_for(5.0)
    assert client.received == b"news"
    assert server.received == b""
    world.network.open("c", "s")
    world.loop.run_for(1.0)
    assert server.received == b"question"


def test_a_slow_link_is_slow(world):
    client = world.connect()
    world.network.link("c", "s").delay_s = 2.0
    client.transport.write(b"x")
    world.loop.run_for(1.9)
    assert world.accepted[0].received == b""
    world.loop.run_for(0.2)
    assert world.accepted[0].received == b"x"


def test_flow_control_pauses_and_resumes_the_writer(world):
    client = world.connect()
    server = world.accepted[0]
    server.transport.pause_reading()
    client.transport.set_write_buffer_limits(high=100, low=10)
    client.transport.write(bytes(90))
    assert client.log == []
    client.transport.write(bytes(90))
    assert client.log == ["pause"]
    world.loop.run_for(1.0)
    assert client.log == ["pause"]
    server.transport.resume_reading()
    world.loop.run_for(1.0)
    assert client.log == ["pause", "resume"]
    assert len(server.received) == 180


def test_a_crashed_node_is_reset_or_falls_silent():
    outcomes = set()
    for seed in range(30):
        world = World(seed)
        world.network.silent_death_chance = 0.5
        client = world.connect()
        server = world.accepted[0]
        world.loop.crash(world.server_node)
        world.loop.run_for(10.0)
        assert server.lost == []  # the dead hear nothing
        outcomes.add(len(client.lost))
        world.server_node = world.loop.add_node("s")  # the port is free again
        world.server_node.create_task(world._serve())
        world.loop.run_for(1.0)
        client.transport.write(b"are you there?")
        world.loop.run_for(1.0)
        assert len(client.lost) == 1  # the next life knows nothing of the connection
        assert world.connect().transport is not None
        world.loop.close()
    assert outcomes == {0, 1}


class Buffered(asyncio.BufferedProtocol):
    """Receives into seven bytes at a time."""

    def __init__(self) -> None:
        self.buffer = bytearray(7)
        self.received = b""

    def get_buffer(self, sizehint):
        return self.buffer

    def buffer_updated(self, nbytes):
        self.received += bytes(self.buffer[:nbytes])


def test_buffered_protocols_are_served(world):
    async def main():
        await world.loop.create_server(Buffered, "s", 4000)

    world.loop.run_until_complete(world.server_node.create_task(main()))
    accepted = Buffered()
    world.network.servers["s", 4000].factory = lambda: accepted
    coroutine = world.loop.create_connection(Recorder, "s", 4000)
    _, client = world.loop.run_until_complete(world.client_node.create_task(coroutine))
    client.transport.write(b"more than seven bytes")
    world.loop.run_for(1.0)
    assert accepted.received == b"more than seven bytes"


def test_streams_work(world):
    async def main():
        reader, writer = await asyncio.open_connection("s", 3181)
        writer.write(b"hello")
        await writer.drain()
        await asyncio.sleep(0.1)
        world.accepted[0].transport.write(b"line\n")
        assert await reader.readline() == b"line\n"
        writer.close()
        await writer.wait_closed()

    world.loop.run_until_complete(world.client_node.create_task(main()))
    assert world.accepted[0].received == b"hello"
