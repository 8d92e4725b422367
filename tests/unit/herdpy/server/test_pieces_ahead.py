"""Pieces of results that are made while the last one is on its way: few for each peer."""

import asyncio
from typing import Any

from herdpy.proto.messages import (
    MAGIC,
    VERSION,
    Arrow,
    Execute,
    Fetch,
    Hello,
    Rows,
    decode_to_driver,
    encode_frame,
)
from herdpy.server.connection import ServerConnection
from tests.fixtures.held_transport import HeldTransport
from tests.fixtures.servers import RunningServer, running_server
from tests.unit.herdpy.server.test_limits import MIB, fill, hub_of

HELLO = encode_frame(Hello(MAGIC, VERSION, VERSION, "test", "default", autocommit=True))


def opened(server: RunningServer, fetches: list[Fetch]) -> tuple[HeldTransport, ServerConnection]:
    async def begin() -> tuple[HeldTransport, ServerConnection]:
        connection = server.server._connection()
        transport = HeldTransport(connection, "test")
        connection.connection_made(transport)
        requests = [Execute(1, "SELECT id, v FROM t", None), *fetches]
        connection.data_received(HELLO)
        connection.data_received(b"".join(map(encode_frame, requests)))
        return transport, connection

    return server.call(begin)


def test_a_few_pieces_are_made_ahead_for_a_peer_that_takes_none() -> None:
    with running_server() as server:
        fill(server, 8000, "x" * 1000)
        fetches = [Fetch(n, 1, 1000, is_arrow=False) for n in range(2, 9)]
        transport, connection = opened(server, fetches)
        while not connection._is_held:
            server.call(lambda: asyncio.sleep(0))
        waiting = transport.get_write_buffer_size()
        assert 4 * MIB < waiting < 6 * MIB  # a piece has about one
        assert waiting < hub_of(server).stalled.byte_count <= waiting + 4 * MIB

        async def take() -> list[int]:
            found: list[int] = []
            while len(found) < len(fetches):
                frame = await transport.next()
                assert frame is not None
                message = decode_to_driver(frame[4:])
                if isinstance(message, Rows):
                    found.append(message.request)
            return found

        assert server.call(take) == list(range(2, 9))

        async def end() -> None:
            transport.abort()
            connection.connection_lost(None)

        server.call(end)
        assert hub_of(server).stalled.byte_count == 0


def test_what_is_asked_for_behind_the_end_is_empty() -> None:
    with running_server() as server:
        fill(server, 2000)
        fetches = [Fetch(n, 1, 5000, is_arrow=n > 3) for n in (2, 3, 4)]
        transport, connection = opened(server, fetches)

        async def take() -> dict[int, Any]:
            found: dict[int, Any] = {}
            while len(found) < len(fetches):
                frame = await transport.next()
                assert frame is not None
                message = decode_to_driver(frame[4:])
                if isinstance(message, Rows | Arrow):
                    found[message.request] = message
            transport.abort()
            connection.connection_lost(None)
            return found

        found = server.call(take)
        assert [message.is_last for message in found.values()] == [True, True, True]
        assert bytes(found[3].rows) == b"\x90"
        assert found[4].data == b""
