"""LedgerWriter, the runner: windows, callbacks, timers, metadata with lost answers, clean-up."""

import asyncio
from typing import Any

import pytest

from bookie.client.writer import LedgerWriter
from bookie.config import ClientConfig
from bookie.errors import BookieError, MetadataVersionError
from bookie.ledger.codec import header_of
from bookie.ledger.types import EntryId
from tests.fixtures.ledger_bookies import (
    FirstPlacement,
    LedgerShelf,
    MemoryBookies,
    digest_of,
    ledger,
)


class World:
    """Bookies, metadata, and a writer on one ledger."""

    def __init__(
        self,
        bookies: int = 3,
        quorums: tuple[int, int, int] = (3, 3, 2),
        config: ClientConfig | None = None,
        **options: Any,
    ) -> None:
        self.bookies = MemoryBookies(bookies)
        self.shelf = LedgerShelf()
        metadata = ledger(*quorums)
        version = self.shelf.put(metadata)
        self.writer = LedgerWriter(
            self.bookies,
            self.shelf,
            self.bookies,
            FirstPlacement(),
            metadata,
            version,
            digest_of(metadata),
            config or ClientConfig(),
            **options,
        )


def test_entries_are_numbered_stored_and_acknowledged() -> None:
    async def main() -> None:
        world = World()
        ids = await asyncio.gather(*(world.writer.add(b"x" * 100) for _ in range(50)))
        assert list(ids) == list(range(50))
        assert world.writer.lac == 49
        assert world.writer.length == 5000
        for number in (1, 2, 3):
            assert sorted(world.bookies[number].entries_of(7)) == list(range(50))
        await world.writer.close()
        closed = world.shelf[7]
        assert closed.is_closed
        assert (closed.last_entry_id, closed.length) == (49, 5000)
        assert world.bookies.subscriber_count == 0

    asyncio.run(main())


def test_a_packet_carries_the_lac_of_its_moment_and_the_running_length() -> None:
    async def main() -> None:
        world = World()
        await world.writer.add(b"12345")
        await world.writer.add(b"123")
        second = header_of(world.bookies[1].entries_of(7)[1])
        assert (second.entry_id, second.lac, second.length) == (1, 0, 8)
        await world.writer.close()

    asyncio.run(main())


def test_a_failed_bookie_is_replaced_and_every_entry_still_has_its_quorum() -> None:
    async def main() -> None:
        world = World(bookies=4)
        await world.writer.add(b"a")
        world.bookies[2].is_down = True
        ids = await asyncio.gather(*(world.writer.add(b"b") for _ in range(10)))
        assert list(ids) == list(range(1, 11))
        await world.writer.close()
        assert [s.ensemble for s in world.shelf[7].segments][-1] == ("b1", "b4", "b3")

    asyncio.run(main())


def test_close_never_writes_over_an_end_that_another_wrote() -> None:
    async def main() -> None:
        world = World(bookies=5)
        await world.writer.add(b"a")
        await world.writer.add(b"b")
        recovered = world.shelf[7].closed(EntryId(0), 1)
        world.shelf.put(recovered)
        world.bookies[2].is_down = world.bookies[3].is_down = True
        with pytest.raises(BookieError):
            await world.writer.add(b"c")  # the change of ensemble meets CLOSED
        with pytest.raises(MetadataVersionError):
            await world.writer.close()
        assert world.shelf[7] == recovered

    asyncio.run(main())
