"""What `herdpy serve` asks of its system: room for sockets, word to a service manager.

The limit of open files is 1,024 on many systems: what a process may have (the soft limit) is raised
as far as its owner allows (the hard one). A service manager that asks for it is told by sd_notify's
protocol, one datagram a word.
"""

import contextlib
import logging
import os
import resource
import socket

from bookie.runtime.http import CONNECTIONS_MAX as PAGES_MAX
from herdpy.config import ServerConfig

_log = logging.getLogger(__name__)
_OTHERS = 1_000
"""Segments, log, spill and libraries, about."""


def make_room(config: ServerConfig) -> None:
    """Raise the limit of open files to what the server's settings need; warn if that fails."""
    needed = config.connections_max + config.logins_max + PAGES_MAX + _OTHERS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    wanted = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        wanted = soft
    if wanted < needed:
        _log.warning(
            "the system allows %d open files, the settings need about %d: connections beyond are "
            "not accepted; raise it (ulimit -n, LimitNOFILE=), or lower connections_max",
            wanted,
            needed,
        )


def notify(*lines: str) -> None:
    """Send lines such as READY=1 to the socket that the environment names; never fails."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = f"\0{address[1:]}"  # of Linux's abstract names
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        sender.connect(address)
        sender.send("\n".join(lines).encode())
