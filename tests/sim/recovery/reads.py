"""Reads of one bookie, which the checkers ask for what it has."""

import asyncio

from bookie.client.client import LedgerClient
from bookie.client.interfaces import ReadReply
from bookie.ledger.types import BookieId, Status


async def read_from(
    client: LedgerClient, bookie_id: str, ledger_id: int, entry_id: int
) -> ReadReply:
    """Ask one bookie; again while it cannot be reached."""
    tries_left = 20
    while True:
        tries_left -= 1
        answered: asyncio.Future[ReadReply] = asyncio.get_running_loop().create_future()
        channels = client.services.channels
        channels.read(BookieId(bookie_id), ledger_id, entry_id, answered.set_result)
        reply = await answered
        if reply.status not in (Status.UNAVAILABLE, Status.TIMED_OUT) or not tries_left:
            return reply
        await asyncio.sleep(0.1)
