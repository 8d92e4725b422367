"""(c) One ensemble of both kinds, kills on both sides, and entries on one bookie only."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from bookie.client.client import LedgerClient
from bookie.client.interfaces import ReadReply
from bookie.ledger.codec import EntryDigest, master_key
from bookie.ledger.types import BookieId, DigestType, Status
from tests.fixtures.bookie_processes import (
    OurBookie,
    client_of,
    in_loop,
    our_bookies,
    registered,
)
from tests.interop.apache import ApacheBookie, Program, Release, apache_bookies, run_program
from tests.interop.conftest import World
from tests.interop.test_b_ours_on_apache import add_all, payload


@pytest.fixture
def mixed(world: World, current: Release, tmp_path: Any) -> Iterator[
    tuple[list[OurBookie], list[ApacheBookie]]
]:  # fmt: skip
    """Four of ours and four of Apache's; two of them may be killed by the test."""
    hosts, root = world.cluster.zookeeper, world.cluster.root
    with (
        our_bookies(world.cluster, tmp_path, 4) as ours,
        apache_bookies(current, hosts, tmp_path, 4, root=root) as theirs,
    ):
        registered(world.cluster, theirs)
        yield ours, theirs
        for bookie in ours:
            bookie.kill()


def test_kills_on_both_sides_under_apaches_writer(
    world: World, current: Release, mixed: tuple[list[OurBookie], list[ApacheBookie]]
) -> None:
    ours, theirs = mixed
    uri = world.cluster.uri
    with Program(
        current, "Writer", uri=uri, ensemble=5, write_quorum=3, ack_quorum=2,
        count=600, pace_ms=5, window=50,
    ) as writer:  # fmt: skip
        ledger = writer.until("ledger")
        members = set(in_loop(lambda: _members(world, ledger)))
        writer.until("added", value=100)
        _kill_one(ours, members)
        writer.until("added", value=300)
        _kill_one(theirs, set(in_loop(lambda: _members(world, ledger))))
        lines = writer.finish()
    assert not [line for line in lines if "error" in line], lines[-5:]
    assert lines[-1] == {"closed": 599, "length": 60_000}
    _check_whole(world, current, ledger, 600)


def test_kills_on_both_sides_under_our_writer(
    world: World, current: Release, mixed: tuple[list[OurBookie], list[ApacheBookie]]
) -> None:
    ours, theirs = mixed

    async def case() -> int:
        async with client_of(world.cluster) as client:
            writer = await client.create_ledger(5, 3, 2)
            for number in range(600):
                if number == 100:
                    _kill_one(ours, set(writer.metadata.last_segment.ensemble))
                if number == 300:
                    _kill_one(theirs, set(writer.metadata.last_segment.ensemble))
                await writer.add(payload(number))
            await writer.close()
            return writer.ledger_id

    _check_whole(world, current, in_loop(case), 600)


@pytest.mark.parametrize("recoverer", ["ours", "theirs"])
@pytest.mark.parametrize("keeper", ["ours", "theirs"])
def test_last_entries_on_one_bookie_only_are_recovered_to_the_ack_quorum(
    world: World,
    current: Release,
    mixed: tuple[list[OurBookie], list[ApacheBookie]],
    keeper: str,
    recoverer: str,
) -> None:
    """Entries 10 and 11 lie on one bookie beyond the LAC; recovery finds and re-adds them.

    That bookie is the second to be asked for entry 10, the first for entry 11: with two denials
    before it, Apache's recovery would rightly take them for absent (Qw - Qa + 1 = 2).
    """
    _, theirs = mixed
    their_ids = {bookie.bookie_id for bookie in theirs}

    async def leave_open() -> tuple[int, BookieId]:
        async with client_of(world.cluster) as client:
            while True:
                writer = await client.create_ledger(3, 3, 2)
                await add_all(writer, 10)
                segments = writer.metadata.segments
                holder = segments[0].ensemble[2]
                # A bookie killed just now may still be registered, and two others have acknowledged
                # before the writer finds out: only one that has the last entry is there.
                if (
                    (holder in their_ids) == (keeper == "theirs")
                    and await _has(client, holder, writer.ledger_id, 9)
                    and len(segments) == 1
                    and not writer.missing_bookies
                ):
                    break
                await writer.close()
            length = 1000
            digest = EntryDigest.of(DigestType.CRC32C, b"")
            for number in (10, 11):
                length += 100
                packet = digest.seal(writer.ledger_id, number, 8, length, payload(number))
                await _add_to(client, holder, writer.ledger_id, number, packet)
            await writer.abandon()
            return writer.ledger_id, holder

    ledger, _ = in_loop(leave_open)
    if recoverer == "theirs":
        opened = run_program(current, "Reader", uri=world.cluster.uri, ledger=ledger, recover=1)[0]
        assert (opened["lac"], opened["length"]) == (11, 1200)
    else:

        async def recover() -> None:
            async with client_of(world.cluster) as client:
                metadata = await client.recover(ledger)
                assert (metadata.last_entry_id, metadata.length) == (11, 1200)

        in_loop(recover)
    held = in_loop(lambda: _holders(world, ledger, (10, 11)))
    assert all(count >= 2 for count in held.values()), held
    _check_whole(world, current, ledger, 12)


async def _add_to(
    client: LedgerClient, bookie: BookieId, ledger: int, entry: int, packet: bytes
) -> None:
    done: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
    client.services.channels.add(
        (bookie,), ledger, entry, master_key(b""), packet, lambda _, status: done.set_result(status)
    )
    assert await done is Status.OK


async def _holders(world: World, ledger: int, entries: tuple[int, ...]) -> dict[int, int]:
    """Return on how many bookies of its ensemble each entry lies."""
    async with client_of(world.cluster) as client:
        metadata = await client.metadata(ledger)
        held = dict.fromkeys(entries, 0)
        for entry in entries:
            for bookie in metadata.segment_of(entry).ensemble:
                held[entry] += await _has(client, bookie, ledger, entry)
        return held


async def _has(client: LedgerClient, bookie: BookieId, ledger: int, entry: int) -> bool:
    done: asyncio.Future[ReadReply] = asyncio.get_running_loop().create_future()
    client.services.channels.read(bookie, ledger, entry, done.set_result)
    return (await done).status is Status.OK


async def _members(world: World, ledger: int) -> tuple[BookieId, ...]:
    async with client_of(world.cluster) as client:
        return (await client.metadata(ledger)).last_segment.ensemble


def _kill_one(bookies: list[Any], members: set[BookieId]) -> None:
    victim = next(b for b in bookies if b.bookie_id in members)
    victim.kill()


def _check_whole(world: World, current: Release, ledger: int, count: int) -> None:
    """Both clients read the same entries, each of them what was written."""
    read = run_program(current, "Reader", uri=world.cluster.uri, ledger=ledger)[1]
    assert read == {"read": count, "bytes": count * 100, "wrong": 0}

    async def ours() -> None:
        async with client_of(world.cluster) as client:
            reader = await client.open(ledger)
            assert reader.lac == count - 1
            entries = await reader.read(0, reader.lac)
            assert [bytes(e.payload) for e in entries] == [payload(n) for n in range(count)]

    in_loop(ours)
