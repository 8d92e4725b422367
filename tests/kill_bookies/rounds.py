"""What befalls a cluster in one round; each function plays one and returns its evidence as JSON.

BrokenPromiseError: something acknowledged is lost, a copy is missing, a writer was disturbed, or
what should have happened did not.
"""

import asyncio
import random
import shutil
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bookie.admin.world import Cluster
from bookie.ledger.types import BookieId, Status
from bookie.lifecycle.states import LifecycleState
from tests.fixtures.bookie_processes import in_loop
from tests.kill_bookies.world import (
    RECOVERY_SETTINGS,
    BrokenPromiseError,
    Load,
    World,
    check_copy,
    opened,
    processes,
)

Evidence = dict[str, Any]
SHAPES = ((3, 3, 2), (4, 3, 2), (3, 2, 2))
"""Ensemble, write quorum, ack quorum."""
_ADDS_BEFORE = 100
_DENIALS = (Status.NO_ENTRY, Status.NO_LEDGER)
_DISK_SETTINGS = ("flush_interval_s=0.3", "entry_log_bytes_max=65536", "journal_bytes_max=1048576")


def kill(cluster: Cluster, folder: Path, rng: random.Random, ledgers: int) -> Evidence:
    """Kill a member of a ledger that is being written; its disk does not come back."""
    beside = rng.randrange(1, 7)

    async def play(world: World) -> Evidence:
        open_count = await world.write_ledgers(ledgers, SHAPES)
        load = await world.start_load(rng.choice(SHAPES), _ADDS_BEFORE)
        victim = rng.choice(load.writer.metadata.last_segment.ensemble)
        named = await world.naming([victim])
        begun_s = time.monotonic()
        world.bookies[victim].kill()
        world.bookies[victim].wipe()
        await world.until_away(victim)
        away_s = time.monotonic() - begun_s
        await world.until_replicated([victim])
        return {
            "autorecovery_beside": beside,
            "ledgers": len(world.written),
            "open": open_count + 1,
            "ledgers_of_the_victim": len(named),
            "deregistered_s": round(away_s, 2),
            "replicated_s": round(time.monotonic() - begun_s, 2),
            **await _finish(world, begun_s),
        }

    with processes(cluster, folder, 6, beside) as bookies:
        return in_loop(lambda: _in_world(cluster, bookies, rng, play))


def drain(cluster: Cluster, folder: Path, rng: random.Random, ledgers: int) -> Evidence:
    """Drain three of six bookies at once under load; then delete their disks."""
    beside = rng.randrange(3, 7)
    is_one_killed = rng.random() < 0.3

    async def play(world: World) -> Evidence:
        # What one bookie alone may have acknowledged of an open ledger cannot be done without it.
        smallest = (2, 2, 2) if is_one_killed else (2, 2, 1)
        open_count = await world.write_ledgers(ledgers, ((3, 3, 2), (3, 2, 2), smallest))
        loads = [await world.start_load((3, 3, 2), _ADDS_BEFORE) for _ in range(2)]
        leaving = rng.sample(sorted(world.bookies), 3)
        named = await world.naming(leaving)
        begun_s = time.monotonic()
        await asyncio.gather(*(world.command("bookies", "drain", one) for one in leaving))
        if is_one_killed:
            world.bookies[leaving[0]].kill()
        drained_s = await _until_drained(world, leaving, begun_s)
        still_named = await world.naming(leaving)
        if still_named:
            raise BrokenPromiseError(f"Drained, and ledgers name them: {still_named}")
        for bookie_id in leaving:
            world.bookies[bookie_id].kill()
            world.bookies[bookie_id].wipe()
        for bookie_id in leaving:
            await world.until_away(bookie_id)
            await world.command("bookies", "remove", "--yes", bookie_id)
        for load in loads:
            await _more(world, load)
        return {
            "autorecovery_beside": beside,
            "is_one_killed": is_one_killed,
            "ledgers": len(world.written),
            "open": open_count + len(loads),
            "ledgers_of_the_leaving": len(named),
            "drained_s": drained_s,
            **await _finish(world, begun_s),
        }

    with processes(cluster, folder, 6, beside) as bookies:
        return in_loop(lambda: _in_world(cluster, bookies, rng, play))


async def _until_drained(
    world: World, leaving: list[BookieId], begun_s: float
) -> dict[BookieId, float]:
    """Wait until all are Drained; return when each was."""
    drained_s: dict[BookieId, float] = {}

    async def are_drained() -> bool:
        for bookie_id in leaving:
            status = await world.operations.status(bookie_id)
            if status["lifecycle"] == LifecycleState.DRAINING_FAILED.value:
                raise BrokenPromiseError(f"{bookie_id}: the drain failed: {status}")
            if status["lifecycle"] == LifecycleState.DRAINED.value:
                drained_s.setdefault(bookie_id, round(time.monotonic() - begun_s, 2))
        return len(drained_s) == len(leaving)

    async def state() -> str:
        return str(await world.operations.statuses())

    await world.until(are_drained, state)
    return drained_s


def disk(cluster: Cluster, folder: Path, rng: random.Random, ledgers: int) -> Evidence:
    """Remove one of a bookie's ledger directories; its entries are unreadable, never denied."""
    count = 5
    is_running = rng.random() < 0.5
    is_replaced = rng.random() < 0.5

    async def play(world: World) -> Evidence:
        open_count = await world.write_ledgers(ledgers, SHAPES)
        load = await world.start_load((3, 3, 2), _ADDS_BEFORE)
        # A CLOSED ledger that the victim has in every directory; the others may be in one.
        # One bookie is none of its members, to take the copies.
        everywhere = await world.start_load((count - 1, count - 1, count - 1), _ADDS_BEFORE)
        both = [one.writer.metadata.last_segment.ensemble for one in (load, everywhere)]
        victim = rng.choice([one for one in both[0] if one in both[1]])
        bookie = world.bookies[victim]
        lost = rng.choice([Path(f"{bookie.directory}-{place}") for place in range(2)])
        await _until_flushed(world, lost)
        await world.end(everywhere)
        lost_bytes = _bytes_of(lost)
        # Kept off until what it answers was seen: else it is copied away meanwhile.
        await world.command("replication", "disable")
        begun_s = time.monotonic()
        if is_running:
            shutil.rmtree(lost)
            bookie.kill()
        else:
            bookie.kill()
            shutil.rmtree(lost)
        bookie.start()
        code, printed = await asyncio.to_thread(bookie.wait_end)
        if code != 1 or str(lost) not in printed:
            raise BrokenPromiseError(f"started without {lost}: exit {code}\n{printed}")
        if not is_replaced:
            position = bookie.options.index(str(lost))
            bookie.options = (
                *bookie.options[: position - 1], *bookie.options[position + 1 :]
            )  # fmt: skip
        bookie.start("--lost-ledgers", str(lost))
        await world.until_serving(bookie)
        answers = await _answers_of(world, victim)
        denied = [(*place, status.name) for place, status in answers if status in _DENIALS]
        if denied:
            raise BrokenPromiseError(f"{victim} denies what it had: {denied[:10]}")
        counts = Counter(status.name for _, status in answers)
        if not counts[Status.IO_ERROR.name]:
            raise BrokenPromiseError(f"nothing was on {lost}, {lost_bytes} bytes: {counts}")
        await world.recover_abandoned()
        await world.command("replication", "enable")
        await _until_restored(world, victim)
        restored_s = time.monotonic() - begun_s
        # The ledger that was open all the time is among the CLOSED ones only now.
        await _end_writers(world)
        await _until_restored(world, victim)
        return {
            "is_running_when_removed": is_running,
            "is_replaced": is_replaced,
            "ledgers": len(world.written),
            "open": open_count + 1,
            "lost_bytes": lost_bytes,
            "answers_of_the_victim": dict(counts),
            "restored_s": round(restored_s, 2),
            **await _checked(world, begun_s),
        }

    recovery = (*RECOVERY_SETTINGS, "ledger_check_interval_s=2", "entry_check_interval_s=2")
    with processes(
        cluster, folder, count, count, recovery, _DISK_SETTINGS, ledger_directories=2
    ) as bookies:
        return in_loop(lambda: _in_world(cluster, bookies, rng, play))


def _bytes_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


async def _until_flushed(world: World, directory: Path) -> None:
    """Wait until the directory has an entry log; a kill then finds little in the journal."""

    async def has_log() -> bool:
        return _bytes_of(directory) > 65536

    async def state() -> str:
        return f"{directory} has {_bytes_of(directory)} bytes"

    await world.until(has_log, state)


async def _answers_of(world: World, bookie_id: BookieId) -> list[tuple[tuple[int, int], Status]]:
    """Ask a bookie for every entry of CLOSED ledgers that it should have."""
    found: list[tuple[tuple[int, int], Status]] = []
    for metadata in await world.metadata():
        for number, bookie, reply in await world.replicas(metadata):
            if bookie == bookie_id:
                found.append(((metadata.ledger_id, number), reply.status))
    return found


async def _until_restored(world: World, victim: BookieId) -> None:
    """Wait until every copy of every CLOSED ledger is there, and no task is left."""
    left: list[str] = []

    async def is_restored() -> bool:
        left.clear()
        for metadata in await world.metadata():
            for number, bookie, reply in await world.replicas(metadata):
                try:
                    check_copy(metadata.ledger_id, number, bookie, reply)
                except BrokenPromiseError as error:
                    left.append(str(error))
        return not left

    async def state() -> str:
        return f"{len(left)} copies are missing since {victim} lost a disk: {left[:10]}"

    await world.until(is_restored, state)
    await world.until_replicated([])


async def _in_world(
    cluster: Cluster, bookies: dict[BookieId, Any], rng: random.Random, play: Any
) -> Evidence:
    async with opened(cluster, bookies, rng) as world:
        return await play(world)


async def _more(world: World, load: Load) -> None:
    """Wait for adds that begin now."""
    wanted = load.written.acknowledged + _ADDS_BEFORE

    async def has_more() -> bool:
        return load.written.acknowledged >= wanted or bool(load.failures)

    async def state() -> str:
        return f"a writer has {load.written.acknowledged} of {wanted} adds"

    await world.until(has_more, state)


async def _finish(world: World, fault_s: float) -> Evidence:
    """End the writers and check everything; return what both found."""
    await _end_writers(world)
    return await _checked(world, fault_s)


async def _end_writers(world: World) -> None:
    for load in world.loads:
        await _more(world, load)
        await load.end()


async def _checked(world: World, fault_s: float) -> Evidence:
    """Check everything; return what was found and what the ended writers tell."""
    acknowledged = sum(one.acknowledged for one in world.written)
    checked = await world.check_whole()
    return {
        "acknowledged": acknowledged,
        "lost": 0,  # check_whole() raises otherwise
        "checked": asdict(checked),
        "writers": [load.told(fault_s) for load in world.loads],
    }


ROUNDS = {"kill": kill, "drain": drain, "disk": disk}
