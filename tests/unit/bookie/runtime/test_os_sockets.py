"""Waits for sockets without a loop, and sockets that a library holds."""

import os
import socket

import pytest

from bookie.runtime.os_sockets import accepted_from, open_sockets, shut_down, wait_ready


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


def test_accepted_sockets_are_found_and_shut_down_under_their_holder() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client, server.accept()[0] as own:
            inode = os.fstat(own.fileno()).st_ino
            opened = open_sockets()
            assert opened[inode] == own.fileno()
            found = {each: accepted_from(fd, each, port) for each, fd in opened.items()}
            assert found[inode] == client.getsockname()
            assert [each for each, peer in found.items() if peer is not None] == [inode]
            shut_down(server.fileno(), inode)  # another socket has the descriptor
            own.sendall(b"x")
            shut_down(own.fileno(), inode)
            assert (client.recv(10), client.recv(10), own.recv(10)) == (b"x", b"", b"")
        assert accepted_from(own.fileno(), inode, port) is None
        shut_down(-1, inode)
