"""Cluster operations: ledgers, bookies and their space, and whether one bookie works.

One JSON model behind commands and HTTP, beside bookie/lifecycle/operations.py and
bookie/autorecovery/operations.py. Used on one asyncio loop.
"""

import asyncio
import base64
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from bookie.client.client import LedgerClient
from bookie.client.interfaces import BookieInfo
from bookie.errors import (
    BookieError,
    IncorrectParameterError,
    MetadataFormatError,
    NoSuchLedgerMetadataError,
)
from bookie.ledger.placement import Placement, RandomPlacement
from bookie.ledger.types import BookieId, DigestType, LedgerMetadata, Status
from bookie.metadata.bookies import BookieDirectory, Mode
from bookie.metadata.interfaces import VersionedStore
from bookie.metadata.ledgers import LedgerManager
from bookie.runtime.interfaces import Clock, Rng, Tls

Json = dict[str, Any]
LISTED_MAX = 100_000
PAGE_LEDGERS = 10_000
PAGE_METADATA = 100
READ_ENTRIES_MAX = 1000
READ_BYTES_MAX = 8 * 1024 * 1024
_READ_AT_ONCE = 8
_SANITY_ENTRIES = 10


@dataclass(frozen=True, slots=True)
class ClusterOperations:
    """See the module. tls: what its clients ask bookies for TLS with; None: in clear."""

    store: VersionedStore
    root: str
    rng: Rng
    clock: Clock
    tls: Tls | None = None

    @asynccontextmanager
    async def client(self, placement: Placement | None = None) -> AsyncGenerator[LedgerClient]:
        """Open a ledger client over the session that there is."""
        client = await LedgerClient.connect(
            self.store, root=self.root, rng=self.rng, clock=self.clock, tls=self.tls,
            placement=placement,
        )  # fmt: skip
        try:
            yield client
        finally:
            await client.close()

    @property
    def ledgers(self) -> LedgerManager:
        return LedgerManager(self.store, self.root, self.rng, self.clock)

    # --- ledgers ----------------------------------------------------------------------------------

    async def ledger_list(
        self, page: int | None, *, with_metadata: bool
    ) -> Mapping[int, Json | None]:
        """Return ledger ids with their rows (or None), one page from 1 on, or all.

        Complete or refused: IncorrectParameterError when all are more than an answer may hold.
        """
        size = PAGE_METADATA if with_metadata else PAGE_LEDGERS
        first, end = (0, size if with_metadata else LISTED_MAX)
        if page is not None:
            if page < 1:
                raise IncorrectParameterError("page: expected 1 or more, found 0")
            first, end = (page - 1) * size, page * size
        number = 0
        wanted: list[int] = []
        async for ledger_id in self.ledgers.ledger_ids():
            if number >= end:
                if page is None:
                    raise IncorrectParameterError(
                        f"page: expected one, as there are more than {end} ledgers, found none; "
                        f"ask for page=1, 2, … of {size} ledgers each"
                    )
                break
            if number >= first:
                wanted.append(ledger_id)
            number += 1
        if not with_metadata:
            return dict.fromkeys(wanted)
        rows = await asyncio.gather(*map(self.ledger_row, wanted))
        return {number: row for number, row in zip(wanted, rows, strict=True) if row is not None}

    async def ledger_row(self, ledger_id: int) -> Json | None:
        """Return one row of the list; None: it was deleted since it was listed."""
        try:
            return ledger_row((await self.ledgers.read(ledger_id))[0])
        except NoSuchLedgerMetadataError:
            return None
        except MetadataFormatError as error:
            return {"ledger_id": ledger_id, "state": "DAMAGED", "reason": str(error)}

    async def ledger_metadata(self, ledger_id: int) -> Json:
        """Return all of a ledger's metadata but its password. NoSuchLedgerMetadataError."""
        found, version = await self.ledgers.read(ledger_id)
        return ledger_row(found) | {
            "format_version": found.format_version,
            "version": version,
            "ctime_ms": found.ctime_ms,
            "custom": {name: bytes(value) for name, value in found.custom.items()},
            "segments": [
                {"first_entry_id": segment.first_entry_id, "ensemble": list(segment.ensemble)}
                for segment in found.segments
            ],
        }

    async def read_entries(self, ledger_id: int, first: int, last: int | None) -> dict[int, bytes]:
        """Return the payloads of entries up to `last` (None: the last confirmed one).

        Complete or refused: IncorrectParameterError when they are more than an answer may hold.
        """
        async with self.client() as client:
            metadata = await client.metadata(ledger_id)
            reader = await client.open(ledger_id, metadata.password or b"", recover=False)
            try:
                end = reader.lac if last is None else min(last, reader.lac)
                if end - first >= READ_ENTRIES_MAX:
                    raise IncorrectParameterError(
                        f"ledger {ledger_id}: expected at most {READ_ENTRIES_MAX} entries, found "
                        f"{first} to {end}; ask for end_entry_id={first + READ_ENTRIES_MAX - 1}"
                    )
                found: dict[int, bytes] = {}
                byte_count = 0
                for start in range(first, end + 1, _READ_AT_ONCE):
                    for entry in await reader.read(start, min(end, start + _READ_AT_ONCE - 1)):
                        byte_count += len(entry.payload)
                        if byte_count > READ_BYTES_MAX:
                            raise IncorrectParameterError(
                                f"ledger {ledger_id}: expected at most {READ_BYTES_MAX} bytes of "
                                f"entries, found more from entry {entry.entry_id} on; ask for "
                                "fewer, or use `bookie ledger read`"
                            )
                        found[entry.entry_id] = bytes(entry.payload)
                return found
            finally:
                await reader.close()

    async def delete_ledger(self, ledger_id: int) -> Json:
        """Delete a ledger for ever. NoSuchLedgerMetadataError: deleting itself would not tell."""
        try:
            await self.ledgers.read(ledger_id)
        except MetadataFormatError:
            pass  # damaged: it can be deleted
        await self.ledgers.delete(ledger_id)
        return {"deleted": ledger_id}

    # --- bookies ----------------------------------------------------------------------------------

    async def bookies(self) -> list[Json]:
        """Return the registered bookies by id, each with its address."""
        async with self.client() as client:
            directory = client.bookies
            return [bookie_row(directory, bookie_id) for bookie_id in sorted(directory.registered)]

    async def bookie_infos(self) -> list[Json]:
        """Return the registered bookies by id, each with its space, or why it did not answer."""
        async with self.client() as client:
            directory = client.bookies
            ids = sorted(directory.registered)
            # All at once: those that hang cost one time-out together.
            answers = await asyncio.gather(*(_ask(client, bookie_id) for bookie_id in ids))
            return [
                bookie_row(directory, bookie_id)
                | {
                    "answer": found.status.name,
                    "total_bytes": found.total_bytes if found.status is Status.OK else None,
                    "free_bytes": found.free_bytes if found.status is Status.OK else None,
                }
                for bookie_id, found in zip(ids, answers, strict=True)
            ]

    async def sanity(self, bookie_id: BookieId) -> Json:
        """Write a ledger to one bookie alone, read it back, delete it; return how that went."""
        payload = b"bookie sanity"
        try:
            async with self.client(_Alone(self.rng, bookie_id)) as client:
                await client.bookies.refresh()
                writer = await client.create_ledger(1, 1, 1, DigestType.CRC32C, b"")
                try:
                    await asyncio.gather(*(writer.add(payload) for _ in range(_SANITY_ENTRIES)))
                    await writer.close()
                    reader = await client.open(writer.ledger_id, b"", recover=False)
                    try:
                        entries = await reader.read(0, _SANITY_ENTRIES - 1)
                    finally:
                        await reader.close()
                finally:
                    await client.delete(writer.ledger_id)
        except BookieError as error:
            return {"passed": False, "reason": str(error)}
        return {"passed": [bytes(e.payload) for e in entries] == [payload] * _SANITY_ENTRIES}


class _Alone(RandomPlacement):
    """Chooses one bookie and no other."""

    def __init__(self, rng: Rng, bookie_id: BookieId) -> None:
        super().__init__(rng)
        self._bookie_id = bookie_id

    def choose(
        self, count: int, writable: Sequence[BookieId], exclude: Iterable[BookieId] = ()
    ) -> tuple[BookieId, ...]:
        return super().choose(count, [one for one in writable if one == self._bookie_id], exclude)


def _ask(client: LedgerClient, bookie_id: BookieId) -> "asyncio.Future[BookieInfo]":
    answered: asyncio.Future[BookieInfo] = asyncio.get_running_loop().create_future()
    client.services.channels.info(bookie_id, answered.set_result)
    return answered


def bookie_row(directory: BookieDirectory, bookie_id: BookieId) -> Json:
    """Return how a bookie is registered, and where it listens."""
    mode = directory.mode_of(bookie_id)
    address = None if mode is Mode.AWAY else directory.address_of(bookie_id)
    return {
        "bookie_id": bookie_id,
        "state": mode.value,
        "address": None if address is None else f"{address[0]}:{address[1]}",
    }


def ledger_row(found: LedgerMetadata) -> Json:
    """Return one row of a list of ledgers; the password stays in the metadata."""
    digest = found.digest_type
    return {
        "ledger_id": found.ledger_id,
        "state": found.state.name,
        "last_entry_id": found.last_entry_id if found.is_closed else None,
        "length": found.length if found.is_closed else None,
        "ensemble_size": found.ensemble_size,
        "write_quorum_size": found.write_quorum_size,
        "ack_quorum_size": found.ack_quorum_size,
        "digest": None if digest is None else digest.name,
    }


def json_value(value: object) -> object:
    """Return what json is to say for a value that it does not know: bytes are base64."""
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode("ascii")
    return str(value)
