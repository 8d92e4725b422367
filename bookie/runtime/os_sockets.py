"""Socket options that asyncio does not set by itself."""

import asyncio
import os
import socket


def keep_alive(transport: asyncio.BaseTransport) -> None:
    """Let TCP notice a peer whose machine is gone; does nothing where there is no socket."""
    own = transport.get_extra_info("socket")
    if own is None:
        return
    # By a duplicate: what uvloop hands out takes no options.
    try:
        with socket.socket(fileno=os.dup(own.fileno())) as duplicate:
            duplicate.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    except OSError:
        return  # the peer is gone already
