"""What a service manager is told: sd_notify's protocol, one datagram a word, if it asks for it."""

import contextlib
import os
import socket

VARIABLE = "NOTIFY_SOCKET"


def notify(*lines: str) -> None:
    """Send lines such as READY=1 to the socket that the environment names; never fails."""
    address = os.environ.get(VARIABLE, "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = f"\0{address[1:]}"  # of Linux's abstract names
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        sender.connect(address)
        sender.send("\n".join(lines).encode())
