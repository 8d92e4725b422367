"""A peer whose machine is gone is noticed by TCP, on the server's side as on the client's."""

import asyncio
import os
import socket
from contextlib import closing
from typing import Any

import pytest
import uvloop

import herdpy
from bookie.runtime.os_sockets import GONE_S, IDLE_S
from tests.fixtures.servers import running_server


def options(descriptor: int) -> tuple[int, int, int]:
    with socket.socket(fileno=os.dup(descriptor)) as same:
        return (
            same.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
            same.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
            same.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
        )


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="a system that cannot say when")
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_served_connection_is_asked_whether_its_client_is_there(new_loop: Any) -> None:
    expected = (1, IDLE_S, GONE_S * 1000)
    with (
        running_server(new_loop=new_loop) as server,
        closing(herdpy.connect(server.url)) as connection,
    ):
        stream = connection._session._session._stream  # type: ignore[attr-defined]
        assert options(stream._socket.fileno()) == expected
        (served,) = server.server._hub.connections
        assert served._transport is not None
        assert options(served._transport.get_extra_info("socket").fileno()) == expected
