"""Waits for sockets without a loop."""

import socket

import pytest

from bookie.runtime.os_sockets import wait_ready


def test_a_wait_tells_what_is_ready() -> None:
    here, there = socket.socketpair()
    with here, there:
        assert wait_ready([here, there], [], 0.001) == ([], [])
        assert wait_ready([here], [there], None) == ([], [there])
        there.send(b"x")
        assert wait_ready([there, here], [], 60.0) == ([here], [])
        here.recv(1)
        there.close()
        assert wait_ready([here], [], None) == ([here], []), "its end is to be read"


def test_a_wait_for_a_socket_that_was_closed_is_refused() -> None:
    here, there = socket.socketpair()
    here.close()
    with there, pytest.raises(ValueError, match="negative"):
        wait_ready([here], [], None)
