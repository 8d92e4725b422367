"""What clients do with a ledger: write, recover, read, tail; each tells its history what it saw."""

import asyncio

from bookie.client.reader import LedgerReader
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
from bookie.ledger.types import DigestType, LedgerId
from bookie.metadata.ledger_paths import Layout, ledger_path
from tests.sim.ledger.checkers import CheckError
from tests.sim.ledger.world import PASSWORD, ROOT, ClientHost, Ledger, World

PATIENCE_S = 10.0
"""Of the checker of liveness: after the faults everything succeeds within so long."""


class Patience:
    """Ends the tries of one operation, PATIENCE_S after the faults."""

    def __init__(self, world: World, what: str) -> None:
        self._world = world
        self._what = what
        self._calm_since: float | None = None

    async def again(self, error: BookieError) -> None:
        """Wait a moment before the next try; a finding when there were tries enough."""
        world = self._world
        world.say(f"{self._what}: {type(error).__name__}: {error}")
        if not world.is_rough:
            if self._calm_since is None:
                self._calm_since = world.loop.time()
            if world.loop.time() > self._calm_since + PATIENCE_S:
                raise CheckError(
                    "liveness", f"{self._what}: not {PATIENCE_S} s after the faults: {error!r}"
                ) from error
        await asyncio.sleep(0.01 + 0.05 * world.draw())


def _payload(ledger: Ledger, number: int) -> bytes:
    """Return the payload of entry `number`: says so, then noise of a random length."""
    world = ledger.world
    extra = int(world.draw() * ledger.plan.payload_bytes_max)
    return b"%d:" % number + world.rng.randbytes(extra)


async def create(ledger: Ledger, host: ClientHost) -> "Writing":
    """Create the ledger; tries again while the world is rough."""
    plan, world = ledger.plan, ledger.world
    client = await host.connect()
    patience = Patience(world, f"{host.name}: create")
    while True:
        try:
            writer = await client.create_ledger(
                plan.ensemble_size,
                plan.write_quorum_size,
                plan.ack_quorum_size,
                DigestType[plan.digest],
                PASSWORD,
                is_deferred_sync=plan.is_deferred,
            )
            break
        except BookieError as error:
            await patience.again(error)
    path = ledger_path(ROOT, Layout.HIERARCHICAL, LedgerId(writer.ledger_id))
    world.created(ledger, writer.ledger_id, path)
    host.before_close.append(writer.abandon)
    return Writing(ledger, host, writer)


class Writing:
    """One writer's work on one ledger."""

    def __init__(self, ledger: Ledger, host: ClientHost, writer: LedgerWriter) -> None:
        self.ledger = ledger
        self.host = host
        self.writer = writer
        self.error: BaseException | None = None
        self.ack_count = 0

    async def run(self) -> None:
        """Write all entries of the plan, `window` at a time, until an error; then maybe close."""
        plan, world = self.ledger.plan, self.ledger.world
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
        history = self.ledger.history
        payload = _payload(self.ledger, len(history.payloads))
        number = history.submitted(payload)
        try:
            entry_id = await self.writer.add(payload)
        except BookieError as error:
            self._failed(error)
        else:
            if not self.ledger.plan.is_deferred:
                history.acked(number, entry_id)
            self.ack_count += 1
            history.lac_seen(self.host.name, self.writer.lac)
        finally:
            slots.release()

    def _failed(self, error: BookieError) -> None:
        if self.error is None:
            self.error = error
            happen = self.ledger.world.happen
            self.ledger.world.say(f"{self.host.name}: add: {type(error).__name__}: {error}")
            if isinstance(error, (LedgerFencedError, LedgerClosedError)):
                happen("fencing of a live writer")
            elif isinstance(error, NotEnoughBookiesError):
                happen("writer without enough bookies")
            else:
                happen("writer failed otherwise")

    async def _force(self) -> None:
        try:
            await self.writer.force()
        except BookieError as error:
            self._failed(error)
            return
        history = self.ledger.history
        self.ledger.world.happen("force")
        for number in range(self.writer.lac + 1):
            history.acked(number, number)
        history.lac_seen(self.host.name, self.writer.lac)

    async def _close(self) -> None:
        happen = self.ledger.world.happen
        try:
            await self.writer.close()
        except BookieError as error:
            self.ledger.world.say(f"{self.host.name}: close: {type(error).__name__}: {error}")
            if isinstance(error, (LedgerFencedError, MetadataVersionError)):
                happen("close lost against recovery")
        else:
            happen("close by the writer")
            history = self.ledger.history
            history.closed(self.host.name, self.writer.lac, self.writer.length)


async def recover(ledger: Ledger, host: ClientHost) -> LedgerReader:
    """Open with recovery until it succeeds; tell where the ledger ends."""
    world, history = ledger.world, ledger.history
    client = await host.connect()
    assert history.ledger_id is not None
    patience = Patience(world, f"{host.name}: recover")
    while True:
        try:
            was_closed = history.end is not None
            reader = await client.open(history.ledger_id, PASSWORD, recover=True)
            break
        except BookieError as error:
            world.happen("recovery tried again")
            await patience.again(error)
    if not was_closed:
        world.happen("recovery")
    for bookie in world.hosts:
        bookie.fences_pending.pop(history.ledger_id, None)
    assert reader.length is not None
    history.closed(host.name, reader.lac, reader.length)
    return reader


async def recover_and_read(ledger: Ledger, host: ClientHost) -> None:
    """Recover, then read every entry; tries again as long as the world is rough."""
    reader = await recover(ledger, host)
    if reader.lac < 0:
        return
    patience = Patience(ledger.world, f"{host.name}: read")
    while True:
        try:
            entries = await reader.read(0, reader.lac)
            break
        except (NoSuchEntryError, NoSuchLedgerError, DigestMismatchError) as error:
            raise CheckError("durability", f"{host.name}: {error!r}") from error
        except BookieError as error:
            await patience.again(error)
    found = [(entry.entry_id, bytes(entry.payload)) for entry in entries]
    ledger.history.read_all(host.name, found, reader.lac)


async def tail(ledger: Ledger, host: ClientHost) -> None:
    """Follow the ledger from its beginning until it is closed."""
    history = ledger.history
    client = await host.connect()
    assert history.ledger_id is not None
    patience = Patience(ledger.world, f"{host.name}: tail")
    expected = 0
    attempt = 0
    while True:
        attempt += 1
        name = f"{host.name}.{attempt}"
        try:
            reader = await client.open(history.ledger_id, PASSWORD, recover=False)
            history.lac_seen(name, reader.lac)
            async for entry in reader.tail(expected):
                history.lac_seen(name, reader.lac)
                if entry.entry_id != expected:
                    raise CheckError(
                        "reading", f"{name}: expected entry {expected}, found {entry.entry_id}"
                    )
                if entry.entry_id > reader.lac:
                    raise CheckError("lac", f"{name}: entry {expected} is beyond {reader.lac}")
                history.read(name, entry.entry_id, bytes(entry.payload))
                expected += 1
            break
        except BookieError as error:
            await patience.again(error)
    ledger.world.happen("tail to the end")
    if history.end is None or expected != history.end[0] + 1:
        raise CheckError(
            "reading", f"{host.name} ended at {expected - 1}, the end is {history.end}"
        )
