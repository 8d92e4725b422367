"""What messages of herdpy.proto cost: large ones are read, and made, by workers.

Reading takes much more memory than a message's bytes, for a moment, which counts as received. The
workers are those of transactions: a caller that waits here may hold locks. On the server's loop.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from google.protobuf.message import DecodeError

from herdpy.errors import ProtocolError
from herdpy.proto.messages import HELLO_BYTES_MAX
from herdpy.server.limits import Account

if TYPE_CHECKING:
    from herdpy.server.hub import Hub

T = TypeVar("T")
_SMALL_BYTES_MAX = 16 * 1024
"""What is read or made in a few milliseconds at most."""
_READ_FACTOR = 25
"""Bytes of memory that reading a message takes at most for each of its own: all empty values."""


async def converted(
    hub: "Hub",
    data: bytes,
    convert: Callable[[bytes], T],
    account_of: Callable[[], Account],
    *,
    is_heavy: bool = False,
) -> T:
    """Return what a message is good for; ProtocolError; OperationalError 53200.

    account_of: returns what counts it, if it is large.

    is_heavy: it is a worker's, whatever its size.
    """

    def run() -> T:
        try:
            return convert(data)
        except DecodeError:
            raise ProtocolError("a malformed message") from None

    if len(data) <= _SMALL_BYTES_MAX and not is_heavy:
        return run()
    byte_count = _READ_FACTOR * len(data)
    account = account_of()
    full = account.take(byte_count)
    if full is not None:
        raise hub.too_much_received(full)
    try:
        return await hub.workers.submit(run, is_urgent=True)
    finally:
        account.give(byte_count)


def check_unauthenticated(data: bytes) -> None:
    """Raise ProtocolError for a message that is too large for who has not logged in."""
    if len(data) > HELLO_BYTES_MAX:
        raise ProtocolError(
            f"a message of {len(data):,} bytes before the login: expected at most "
            f"{HELLO_BYTES_MAX:,}"
        )


async def made(hub: "Hub", byte_count: int, make: Callable[[], T]) -> T:
    """Return what becomes of an answer of so many bytes."""
    if byte_count <= _SMALL_BYTES_MAX:
        return make()
    return await hub.workers.submit(make, is_urgent=True)
