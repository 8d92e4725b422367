"""A peer whose machine is gone is noticed by TCP, on the server's side as on the client's."""

import asyncio
import os
import socket
from contextlib import closing
from typing import Any

import pytest
import uvloop

import herdpy
from bookie.runtime.os_sockets import QUICK, USUAL, KeepAlive
from tests.fixtures.servers import running_server


def options(descriptor: int) -> tuple[int, int, int]:
    with socket.socket(fileno=os.dup(descriptor)) as same:
        return (
            same.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
            same.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
            same.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
        )


def expected_of(keep: KeepAlive) -> tuple[int, int, int]:
    return 1, keep.idle_s, keep.gone_s * 1000


needs_options = pytest.mark.skipif(
    not hasattr(socket, "TCP_USER_TIMEOUT"), reason="a system that cannot say when"
)


@needs_options
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_served_connection_is_asked_whether_its_client_is_there(new_loop: Any) -> None:
    expected = expected_of(USUAL)
    with (
        running_server(new_loop=new_loop) as server,
        closing(herdpy.connect(server.url)) as connection,
    ):
        stream = connection._session._session._stream  # type: ignore[attr-defined]
        assert options(stream._socket.fileno()) == expected
        (served,) = server.server._hub.connections
        assert served._transport is not None
        assert options(served._transport.get_extra_info("socket").fileno()) == expected


@needs_options
@pytest.mark.parametrize("is_cluster", [False, True])
def test_a_leader_that_is_gone_is_noticed_sooner(is_cluster: bool) -> None:
    expected = expected_of(QUICK if is_cluster else USUAL)
    with running_server() as server:
        url = (
            server.url.replace(f":{server.port}", f":{server.port},127.0.0.1:1")
            if is_cluster
            else server.url
        )
        with herdpy.connect(url) as blocking:
            stream = blocking._session._session._stream  # type: ignore[attr-defined]
            assert options(stream._socket.fileno()) == expected

        async def look() -> None:
            async with herdpy.aio.connect(url) as conn:
                stream = conn.blocking._session._session._stream  # type: ignore[attr-defined]
                found = stream._transport.get_extra_info("socket")
                assert options(found.fileno()) == expected

        asyncio.run(look())
