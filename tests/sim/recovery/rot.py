"""Damage at rest: an entry of one bookie rots, and its scrub, or a read of it, has it mended.

Until then the bookie answers with an error: it neither denies the entry nor gives something else.
Another bookie of the write set may answer what is not the entry meanwhile, as one does whose memory
is bad: such a copy must not be taken.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from bookie.errors import BookieError
from bookie.ledger.codec import EntryDigest
from bookie.ledger.statuses import NEGATIVES
from bookie.ledger.types import Status
from bookie.runtime.interfaces import BytesLike
from bookie.server.storage.entry_log import path_of, split_location
from tests.sim.ledger.checkers import CheckError
from tests.sim.ledger.world import PASSWORD, ClientHost, Ledger
from tests.sim.recovery.hosts import RecoveryBookieHost
from tests.sim.recovery.plan import Rot
from tests.sim.recovery.reads import read_from
from tests.sim.recovery.world import RecoveryWorld

_CANDIDATES_S_MAX = 1.2
_MENDED_S_MAX = 30.0


class _Copy(NamedTuple):
    """One bookie's copy of one entry."""

    ledger: Ledger
    entry_id: int
    host: RecoveryBookieHost

    @property
    def ids(self) -> tuple[int, int]:
        assert self.ledger.history.ledger_id is not None
        return self.ledger.history.ledger_id, self.entry_id


async def rot(world: RecoveryWorld, plan: Rot) -> None:
    """Damage a copy and see it mended; CheckError when it is not, or worse."""
    await asyncio.sleep(plan.start_s)
    deadline = world.loop.time() + _CANDIDATES_S_MAX
    while not (copies := _flushed_copies(world)):
        if world.loop.time() > deadline or not world.is_rough:
            return
        await asyncio.sleep(0.05)
    copy = world.rng.choice(copies)
    _damage(world, copy)
    if plan.is_other_garbled:
        _garble(world, copy)
    reader = world.new_client("rot")
    await world.act(reader.node, _watch(world, copy, reader, will_scrub=plan.will_scrub))
    await world.act(reader.node, reader.close())


def _flushed_copies(world: RecoveryWorld) -> list[_Copy]:
    """Return the copies in entry logs that metadata counts on; of the widest write sets only."""
    found: list[tuple[int, _Copy]] = []
    for ledger in world.kept_ledgers():
        metadata = world.metadata_of(ledger)
        if ledger.plan.digest == "DUMMY":
            continue
        for entry_id in ledger.history.acknowledged:
            for host in world.hosts:
                if (
                    host.is_up
                    and world.counts_on(ledger, host.bookie_id, entry_id)
                    and host.index.get(metadata.ledger_id, entry_id) is not None
                ):
                    copy = _Copy(ledger, entry_id, host)
                    found.append((metadata.write_quorum_size, copy))
    widest = max((width for width, _ in found), default=0)
    return [copy for width, copy in found if width == widest]


def _damage(world: RecoveryWorld, copy: _Copy) -> None:
    """Flip a bit of the copy in its entry log."""
    service = copy.host.service
    location = copy.host.index.get(*copy.ids)
    assert service is not None
    assert location is not None
    number, offset = split_location(location)
    logs = service.bookie._storage.logs
    place = logs._places[number]
    path = path_of(number, place.suffix)
    place.directory.disk.flip(path, offset + world.rng.randrange(16), 1 << world.rng.randrange(8))  # type: ignore[attr-defined]
    world.say(f"--- entry {copy.ids} rots on {copy.host.name}")
    world.happen("entry rots")


def _garble(world: RecoveryWorld, copy: _Copy) -> None:
    """Let another bookie of the write set answer what is not the entry, while faults last."""
    others = [
        host
        for host in world.hosts
        if host is not copy.host
        and host.service is not None
        and world.counts_on(copy.ledger, host.bookie_id, copy.entry_id)
    ]
    if len(others) < 2:
        return
    host = world.rng.choice(others)
    assert host.service is not None
    storage = host.service.bookie._storage
    right = storage.read
    world.say(f"--- {host.name} answers something else for entry {copy.ids}")
    world.happen("bookie answers a damaged entry")

    def read(ledger_id: int, entry_id: int, on_done: Callable[[Status, BytesLike], None]) -> None:
        def tell(status: Status, packet: BytesLike) -> None:
            if (ledger_id, entry_id) == copy.ids and status is Status.OK and world.is_rough:
                packet = bytes(packet[:-1]) + bytes([packet[-1] ^ 1])
            on_done(status, packet)

        right(ledger_id, entry_id, tell)

    storage.read = read  # type: ignore[method-assign]


async def _watch(
    world: RecoveryWorld, copy: _Copy, reader: ClientHost, *, will_scrub: bool
) -> None:
    """Ask the bookie for its copy until it is mended, or metadata no longer counts on it."""
    client = await reader.connect()
    metadata = world.metadata_of(copy.ledger)
    assert metadata.digest_type is not None
    digest = EntryDigest.of(metadata.digest_type, PASSWORD)
    bookie_id = copy.host.bookie_id
    since = world.loop.time()
    while True:
        if will_scrub or not world.is_rough:  # a read has it mended once in a while only
            await _scrub(copy.host)
        if not _is_owed(world, copy):
            return
        reply = await read_from(client, bookie_id, *copy.ids)
        where = f"{bookie_id} has a damaged copy of entry {copy.ids}, and answers"
        if reply.status is Status.OK:
            try:
                entry = digest.open(reply.body, *copy.ids)
            except BookieError as error:
                raise CheckError("rot", f"{where} {error}") from error
            copy.ledger.history.read("rot", copy.entry_id, bytes(entry.payload))
            world.happen("rotten entry is whole again")
            return
        # It may have been asked for a while, until it was up.
        if reply.status in NEGATIVES and _is_owed(world, copy):
            raise CheckError("rot", f"{where} {reply.status.name}")
        if world.is_rough:
            since = world.loop.time()
        elif world.loop.time() - since > _MENDED_S_MAX:
            raise CheckError("liveness", f"{where} {reply.status.name} for {_MENDED_S_MAX} s")
        await asyncio.sleep(0.05)


def _is_owed(world: RecoveryWorld, copy: _Copy) -> bool:
    """Whether the ledger is there, and metadata counts on this copy."""
    return copy.ledger in world.kept_ledgers() and world.counts_on(
        copy.ledger, copy.host.bookie_id, copy.entry_id
    )


async def _scrub(host: RecoveryBookieHost) -> None:
    """Let the bookie go through its entries, if it is up."""
    service = host.service
    if service is None or service.scrubber is None:
        return
    passes = service.scrubber.status()["passes"]
    service.scrubber.begin()
    for _ in range(40):
        if host.service is not service or service.scrubber.status()["passes"] != passes:
            return
        await asyncio.sleep(0.05)
