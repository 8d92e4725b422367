"""What clients do in a seed: write, recover, tail, read; each tells the history what it saw."""

import asyncio
from typing import TYPE_CHECKING

from bookie.client.writer import LedgerWriter
from bookie.errors import (
    BookieError,
    DigestMismatchError,
    LedgerClosedError,
    LedgerFencedError,
    MetadataVersionError,
    NoSuchEntryError,
    NoSuchLedgerError,
    NotEnoughBookiesError,
)
from bookie.ledger.types import DigestType
from tests.sim.ledger.checkers import CheckError
from tests.sim.ledger.world import PASSWORD, ClientHost, World

if TYPE_CHECKING:
    from bookie.client.reader import LedgerReader

_PATIENCE_S = 10.0


def payload_of(world: World, number: int) -> bytes:
    """Return the payload of entry `number`: says so, then noise of a random length."""
    extra = int(world.draw() * world.plan.payload_bytes_max)
    return b"%d:" % number + world.rng.randbytes(extra)


async def create(world: World, host: ClientHost) -> LedgerWriter:
    """Create the ledger of the seed; tries again while the world is rough."""
    plan = world.plan
    client = await host.connect()
    while True:
        try:
            writer = await client.create_ledger(
                plan.ensemble_size,
                plan.write_quorum_size,
                plan.ack_quorum_size,
                DigestType[plan.digest],
                PASSWORD,
                **({"is_deferred_sync": True} if plan.is_deferred else {}),
            )
        except BookieError as error:
            world.say(f"{host.name}: create: {type(error).__name__}: {error}")
            await asyncio.sleep(0.02)
            continue
        return writer


class Writing:
    """One writer's work on one ledger."""

    def __init__(self, world: World, host: ClientHost, writer: LedgerWriter) -> None:
        self.world = world
        self.host = host
        self.writer = writer
        self.error: BaseException | None = None
        self.ack_count = 0

    async def run(self) -> None:
        """Write all entries of the plan, `window` at a time, until an error; then maybe close."""
        world, plan = self.world, self.world.plan
        slots = asyncio.Semaphore(plan.window)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(plan.entry_count):
                    await slots.acquire()
                    if self.error is not None:
                        break
                    if plan.pause_s:
                        await asyncio.sleep(plan.pause_s * 2 * world.draw())
                    group.create_task(self._add(slots))
                    await asyncio.sleep(0)
        except* CheckError as group_error:
            raise group_error.exceptions[0] from None
        if plan.is_deferred and self.error is None:
            await self._force()
        if plan.will_close:
            await self._close()

    async def _add(self, slots: asyncio.Semaphore) -> None:
        world, history = self.world, self.world.history
        payload = payload_of(world, len(history.payloads))
        number = history.submitted(payload)
        try:
            entry_id = await self.writer.add(payload)
        except BookieError as error:
            self._failed(error)
        else:
            if not world.plan.is_deferred:
                history.acked(number, entry_id)
            self.ack_count += 1
            history.lac_seen(self.host.name, self.writer.lac)
        finally:
            slots.release()

    def _failed(self, error: BookieError) -> None:
        if self.error is None:
            self.error = error
            self.world.say(f"{self.host.name}: add: {type(error).__name__}: {error}")
            if isinstance(error, (LedgerFencedError, LedgerClosedError)):
                self.world.history.happen("fencing of a live writer")
            elif isinstance(error, NotEnoughBookiesError):
                self.world.history.happen("writer without enough bookies")
            else:
                self.world.history.happen("writer failed otherwise")

    async def _force(self) -> None:
        try:
            await self.writer.force()
        except BookieError as error:
            self._failed(error)
            return
        history = self.world.history
        history.happen("force")
        for number in range(self.writer.lac + 1):
            history.acked(number, number)
        history.lac_seen(self.host.name, self.writer.lac)

    async def _close(self) -> None:
        history = self.world.history
        try:
            await self.writer.close()
        except BookieError as error:
            self.world.say(f"{self.host.name}: close: {type(error).__name__}: {error}")
            if isinstance(error, (LedgerFencedError, MetadataVersionError)):
                history.happen("close lost against recovery")
        else:
            history.happen("close by the writer")
            history.closed(self.host.name, self.writer.lac, self.writer.length)


async def recover(world: World, host: ClientHost) -> "LedgerReader":
    """Open with recovery until it succeeds; tell where the ledger ends and read all of it."""
    history = world.history
    client = await host.connect()
    assert history.ledger_id is not None
    calm_since: float | None = None
    while True:
        if not world.is_rough and calm_since is None:
            calm_since = world.loop.time()
        try:
            was_closed = history.end is not None
            reader = await client.open(history.ledger_id, PASSWORD, recover=True)
            break
        except BookieError as error:
            world.say(f"{host.name}: recover: {type(error).__name__}: {error}")
            history.happen("recovery tried again")
            if calm_since is not None and world.loop.time() > calm_since + _PATIENCE_S:
                raise CheckError(
                    "liveness",
                    f"{host.name}: no recovery {_PATIENCE_S} s after the faults: {error!r}",
                ) from error
        await asyncio.sleep(0.01 + 0.05 * world.draw())
    if not was_closed:
        history.happen("recovery")
    for bookie in world.hosts:
        bookie.fence_pending = False
    history.closed(host.name, reader.lac, reader.length)
    return reader


async def recover_and_read(world: World, host: ClientHost) -> None:
    """Recover, then read every entry; tries again as long as the world is rough."""
    reader = await recover(world, host)
    if reader.lac < 0:
        return
    calm_since: float | None = None
    while True:
        if not world.is_rough and calm_since is None:
            calm_since = world.loop.time()
        try:
            entries = await reader.read(0, reader.lac)
            break
        except BookieError as error:
            world.say(f"{host.name}: read: {type(error).__name__}: {error}")
            if isinstance(error, (NoSuchEntryError, NoSuchLedgerError, DigestMismatchError)):
                raise CheckError("durability", f"{host.name}: {error!r}") from error
            if calm_since is not None and world.loop.time() > calm_since + _PATIENCE_S:
                raise CheckError(
                    "liveness", f"{host.name}: not read {_PATIENCE_S} s after the faults: {error!r}"
                ) from error
        await asyncio.sleep(0.05)
    found = [(entry.entry_id, bytes(entry.payload)) for entry in entries]
    world.history.read_all(host.name, found, 0)


async def tail(world: World, host: ClientHost) -> None:
    """Follow the ledger from its beginning until it is closed."""
    history = world.history
    client = await host.connect()
    assert history.ledger_id is not None
    expected = 0
    attempt = 0
    while True:
        attempt += 1
        who = f"{host.name}.{attempt}"
        try:
            reader = await client.open(history.ledger_id, PASSWORD, recover=False)
            history.lac_seen(who, reader.lac)
            async for entry in reader.tail(expected):
                history.lac_seen(who, reader.lac)
                if entry.entry_id != expected:
                    raise CheckError(
                        "reading", f"{who}: expected entry {expected}, found {entry.entry_id}"
                    )
                if entry.entry_id > reader.lac:
                    raise CheckError("lac", f"{who}: entry {expected} is beyond {reader.lac}")
                history.read(who, entry.entry_id, bytes(entry.payload))
                expected += 1
        except BookieError as error:
            world.say(f"{who}: tail: {type(error).__name__}: {error}")
            await asyncio.sleep(0.02)
            continue
        break
    history.happen("tail to the end")
    if history.end is None or expected != history.end[0] + 1:
        raise CheckError(
            "reading", f"{host.name} ended at {expected - 1}, the end is {history.end}"
        )
