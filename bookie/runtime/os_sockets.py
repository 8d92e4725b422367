"""Sockets beyond asyncio: options, waits of a thread without a loop, those that a library holds."""

import asyncio
import os
import select
import socket
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple, Protocol, TypeVar

_DESCRIPTORS = "/dev/fd"


class KeepAlive(NamedTuple):
    """How TCP looks after a peer whose machine may be gone."""

    idle_s: int
    """How long a connection may say nothing before its peer's machine is asked."""
    interval_s: int
    probes: int

    @property
    def gone_s(self) -> int:
        """After so long a peer whose machine is gone is noticed, whichever side waits."""
        return self.idle_s + self.interval_s * self.probes


USUAL = KeepAlive(60, 20, 3)
QUICK = KeepAlive(5, 3, 3)
"""Where another machine can take the peer's place."""


def set_keep_alive(own: socket.socket, keep: KeepAlive = USUAL) -> None:
    """Let TCP notice a peer whose machine is gone, in keep.gone_s where the system can say when."""
    own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", keep.idle_s),
        ("TCP_KEEPINTVL", keep.interval_s),
        ("TCP_KEEPCNT", keep.probes),
        (
            "TCP_USER_TIMEOUT",
            keep.gone_s * 1000,
        ),  # of bytes sent that the peer does not acknowledge
    ):
        option = getattr(socket, name, None)
        if option is not None:
            own.setsockopt(socket.IPPROTO_TCP, option, value)


def keep_alive(transport: asyncio.BaseTransport, keep: KeepAlive = USUAL) -> None:
    """As set_keep_alive(), for a transport; does nothing where there is no socket."""
    own = transport.get_extra_info("socket")
    if own is None:
        return
    # By a duplicate: what uvloop hands out takes no options.
    try:
        with socket.socket(fileno=os.dup(own.fileno())) as duplicate:
            set_keep_alive(duplicate, keep)
    except OSError:
        return  # the peer is gone already


def has_hung_up(transport: asyncio.BaseTransport) -> bool:
    """Tell whether a transport's peer has closed, though what it sent before has not been read.

    Only Linux says so of a peer that closed in order; False where there is no socket.
    """
    own = transport.get_extra_info("socket")
    if own is None or own.fileno() < 0:
        return False
    poller = select.poll()
    poller.register(own.fileno(), getattr(select, "POLLRDHUP", 0))  # errors are told in any case
    return bool(poller.poll(0))


class Polled(Protocol):
    """What has a descriptor that can be polled."""

    def fileno(self) -> int: ...


S = TypeVar("S", bound=Polled)


def wait_ready(
    readers: Sequence[S], writers: Sequence[S], timeout_s: float | None
) -> tuple[list[S], list[S]]:
    """Wait until some can be read or written, at most timeout_s (None: for ever); return which.

    ValueError: one was closed before. A socket is in one of the two.
    """
    poller = select.poll()
    for reader in readers:
        poller.register(reader.fileno(), select.POLLIN)
    for writer in writers:
        poller.register(writer.fileno(), select.POLLOUT)
    ready = {number for number, _ in poller.poll(None if timeout_s is None else timeout_s * 1000)}
    return (
        [reader for reader in readers if reader.fileno() in ready],
        [writer for writer in writers if writer.fileno() in ready],
    )


def open_sockets() -> dict[int, int]:
    """Return the descriptors of all sockets of this process, by the sockets' own numbers (inodes).

    Empty where the system does not list them. Some milliseconds for a thousand.
    """
    found: dict[int, int] = {}
    try:
        names = os.listdir(_DESCRIPTORS)  # noqa: PTH208 - a Path for each of thousands
    except OSError:
        return found
    for name in names:
        try:
            status = os.fstat(int(name))
        except (OSError, ValueError):  # closed meanwhile
            continue
        if stat.S_ISSOCK(status.st_mode):
            found[status.st_ino] = int(name)
    return found


def accepted_from(descriptor: int, inode: int, port: int) -> tuple[str, int] | None:
    """Return the peer of a connection that a port of this process has accepted; None: it is none.

    `inode` says which socket is meant: another one may have the descriptor by now.
    """
    with _duplicate(descriptor, inode) as own:
        if own is None or own.family not in (socket.AF_INET, socket.AF_INET6):
            return None
        try:
            is_it = own.getsockname()[1] == port
            return own.getpeername()[:2] if is_it else None
        except OSError:
            return None


def shut_down(descriptor: int, inode: int) -> None:
    """End a connection that a library of this process holds: the library reads its end."""
    with _duplicate(descriptor, inode) as own:
        if own is not None:
            with suppress(OSError):
                own.shutdown(socket.SHUT_RDWR)


@contextmanager
def _duplicate(descriptor: int, inode: int) -> Generator[socket.socket | None]:
    """Give another handle of a socket; None: it is closed."""
    try:
        copy = os.dup(descriptor)
    except OSError:
        yield None
        return
    if os.fstat(copy).st_ino != inode:
        os.close(copy)
        yield None
        return
    with socket.socket(fileno=copy) as own:
        yield own
