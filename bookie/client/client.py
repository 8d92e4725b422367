"""LedgerClient: creates, opens, recovers, deletes and lists ledgers.

    client = await LedgerClient.connect(store, rng=OsRng(), clock=OsClock())
    writer = await client.create_ledger(3, 3, 2, password=b"secret")
    await writer.add(b"hello")
    await writer.close()
    reader = await client.open(writer.ledger_id, b"secret")
    entries = await reader.read(0, reader.lac)
    await client.close()

One event loop; no other thread may call (bookie/client/blocking.py is for threads). The store is
the caller's, who closes it after the client. Errors are those of bookie/errors.py; `retry` of each
says what may be done again.
"""

from collections.abc import AsyncIterator, Mapping

from bookie.client.channels import AsyncioChannels
from bookie.client.health import BookieHealth
from bookie.client.read_runners import query_lac
from bookie.client.reader import LedgerReader
from bookie.client.recovery import OnProgress, RecoveryRunner
from bookie.client.services import OnDamage, Services
from bookie.client.writer import LedgerWriter
from bookie.config import ClientConfig
from bookie.errors import (
    ClientClosedError,
    IncorrectParameterError,
    NoSuchLedgerMetadataError,
    NotEnoughBookiesError,
    UnauthorizedAccessError,
)
from bookie.ledger.codec import EntryDigest, master_key
from bookie.ledger.distribution import check_quorums
from bookie.ledger.placement import Placement, RackAwarePlacement, RandomPlacement
from bookie.ledger.types import (
    BookieId,
    DigestType,
    EntryId,
    LedgerId,
    LedgerMetadata,
    Segment,
)
from bookie.metadata.bookies import BookieDirectory
from bookie.metadata.cluster import DEFAULT_ROOT
from bookie.metadata.interfaces import VersionedStore
from bookie.metadata.ledgers import LedgerManager
from bookie.runtime.interfaces import Clock, Rng, Tls


class LedgerClient:
    """See the module. Made by connect(); the owner awaits close()."""

    def __init__(self, store: VersionedStore, root: str, services: Services) -> None:
        self._store = store
        self._root = root
        self._services = services
        self._readers: dict[LedgerReader, None] = {}
        """Those that watch: of ledgers that are not CLOSED."""
        self._is_closed = False

    @staticmethod
    async def connect(
        store: VersionedStore,
        *,
        rng: Rng,
        clock: Clock,
        config: ClientConfig | None = None,
        root: str = DEFAULT_ROOT,
        placement: Placement | None = None,
        locations: Mapping[BookieId, str] | None = None,
        tls: Tls | None = None,
        on_damage: OnDamage | None = None,
    ) -> "LedgerClient":
        """Read the list of bookies and return a client of the cluster at `root`.

        locations: the rack ("/rack" or "/region/rack") of each bookie. placement: None spreads
        ensembles over racks when locations are given, and else draws at random. tls: ask every
        bookie for TLS with this context, and say nothing in clear to one that refuses it.
        on_damage is told of each damaged replica that a read met. Errors: MetadataStoreError when
        the store does not answer for half a minute, IncorrectParameterError when the configuration
        requires TLS and none is given.
        """
        config = config or ClientConfig()
        if config.is_tls_required and tls is None:
            raise IncorrectParameterError(
                "is_tls_required: expected a TLS context for the bookies (tls), found none"
            )
        bookies = BookieDirectory(store, root, locations)
        try:
            await bookies.start()
        except BaseException:
            await bookies.close()  # the store, and with it what was watched there, lives on
            raise
        channels = AsyncioChannels(bookies, config, tls=tls)
        bookies.on_change(channels.follow_moves)
        if placement is None and locations:
            placement = RackAwarePlacement(rng, bookies.location_of)
        services = Services(
            channels=channels,
            ledgers=LedgerManager(store, root, rng, clock),
            bookies=bookies,
            placement=placement or RandomPlacement(rng),
            health=BookieHealth(bookies),
            config=config,
            on_damage=on_damage,
        )
        return LedgerClient(store, root, services)

    @property
    def bookies(self) -> BookieDirectory:
        """The registered bookies, as far as is known."""
        return self._services.bookies

    @property
    def services(self) -> Services:
        """The parts, for tools that talk to single bookies."""
        return self._services

    # --- ledgers ----------------------------------------------------------------------------------

    async def create_ledger(
        self,
        ensemble_size: int = 3,
        write_quorum_size: int = 3,
        ack_quorum_size: int = 2,
        digest_type: DigestType = DigestType.CRC32C,
        password: bytes = b"",
        *,
        ledger_id: int | None = None,
        custom: Mapping[str, bytes] | None = None,
        is_deferred_sync: bool = False,
        are_ids_given: bool = False,
    ) -> LedgerWriter:
        """Create a ledger on bookies drawn from those that take writes, and return its writer.

        Errors: NotEnoughBookiesError; LedgerExistsError for a given ledger_id.
        """
        self._check_open()
        check_quorums(ensemble_size, write_quorum_size, ack_quorum_size)
        ensemble = await self._choose(ensemble_size)
        services = self._services
        metadata, version = await services.ledgers.create(
            LedgerMetadata(
                ledger_id=LedgerId(-1 if ledger_id is None else ledger_id),
                ensemble_size=ensemble_size,
                write_quorum_size=write_quorum_size,
                ack_quorum_size=ack_quorum_size,
                segments=(Segment(EntryId(0), ensemble),),
                digest_type=digest_type,
                password=password,
                custom=dict(custom or {}),
            ),
            ledger_id,
        )
        self._check_open()
        return LedgerWriter(
            services.channels,
            services.ledgers,
            services.bookies,
            services.placement,
            metadata,
            version,
            EntryDigest.of(digest_type, password),
            services.config,
            is_deferred_sync=is_deferred_sync,
            are_ids_given=are_ids_given,
        )

    async def _choose(self, count: int) -> tuple[BookieId, ...]:
        services = self._services
        try:
            return services.placement.choose(count, services.bookies.writable)
        except NotEnoughBookiesError:
            # The list may be behind: bookies that have just registered count.
            await services.bookies.refresh()
            return services.placement.choose(count, services.bookies.writable)

    async def open(
        self,
        ledger_id: int,
        password: bytes = b"",
        *,
        recover: bool = True,
        digest_type: DigestType | None = None,
        on_progress: OnProgress | None = None,
    ) -> LedgerReader:
        """Open a ledger for reading.

        recover: fence out its writer and close it first, if it is not CLOSED; else it may be
        written on, and the reader follows it. digest_type counts only for metadata so old that it
        does not say. Errors: NoSuchLedgerMetadataError, UnauthorizedAccessError (wrong password),
        and those of recovery or of reading the LAC.
        """
        metadata, version = await self._read_metadata(ledger_id)
        digest = self._digest(metadata, password, digest_type)
        if recover:
            metadata, version = await self._recover(
                metadata, version, password, digest, on_progress
            )
        lac = metadata.last_entry_id
        if not metadata.is_closed:
            lac = EntryId(await query_lac(self._services, metadata, digest))
        self._check_open()
        reader = LedgerReader(self._services, metadata, version, digest, lac)
        if not reader.is_closed:
            self._readers[reader] = None
            reader.on_settled = lambda: self._readers.pop(reader, None)
            reader.follow()
        return reader

    async def recover(
        self,
        ledger_id: int,
        password: bytes = b"",
        on_progress: OnProgress | None = None,
        *,
        digest_type: DigestType | None = None,
    ) -> LedgerMetadata:
        """Fence out the writer, close the ledger where it ends, and return its metadata.

        A CLOSED ledger is left as it is. on_progress(recovered entries, last one) is called as
        entries are re-added. Errors: as RecoveryRunner.run().
        """
        metadata, version = await self._read_metadata(ledger_id)
        digest = self._digest(metadata, password, digest_type)
        metadata, _ = await self._recover(metadata, version, password, digest, on_progress)
        return metadata

    async def _recover(
        self,
        metadata: LedgerMetadata,
        version: int,
        password: bytes,
        digest: EntryDigest,
        on_progress: OnProgress | None,
    ) -> tuple[LedgerMetadata, int]:
        if metadata.is_closed:
            return metadata, version
        runner = RecoveryRunner(self._services, master_key(password), digest, on_progress)
        return await runner.run(metadata, version)

    def _digest(
        self, metadata: LedgerMetadata, password: bytes, digest_type: DigestType | None
    ) -> EntryDigest:
        if metadata.password is not None and metadata.password != password:
            raise UnauthorizedAccessError(
                f"ledger {metadata.ledger_id}: the password is not that of its creator"
            )
        # As Apache's client: the metadata says the type; CRC32 where nothing was said.
        found = metadata.digest_type or digest_type or DigestType.CRC32
        return EntryDigest.of(found, password)

    async def delete(self, ledger_id: int) -> None:
        """Delete a ledger; one that is not there is deleted. Bookies free its space later."""
        self._check_open()
        await self._services.ledgers.delete(ledger_id)

    async def metadata(self, ledger_id: int) -> LedgerMetadata:
        """Return what the store knows of a ledger; NoSuchLedgerMetadataError."""
        return (await self._read_metadata(ledger_id))[0]

    def ledger_ids(self) -> AsyncIterator[int]:
        """Yield the ids of all ledgers, ascending."""
        self._check_open()
        return self._services.ledgers.ledger_ids()

    async def _read_metadata(self, ledger_id: int) -> tuple[LedgerMetadata, int]:
        self._check_open()
        ledgers = self._services.ledgers
        try:
            return await ledgers.read(ledger_id)
        except NoSuchLedgerMetadataError:
            # The server that answered may be behind one that told our caller of the ledger.
            await self._store.sync(self._root)
            return await ledgers.read(ledger_id)

    # --- the end ----------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosedError("the ledger client was closed")

    async def close(self) -> None:
        """Close readers and connections; what is under way fails with ClientClosedError.

        Writers are their owners' to close before. Idempotent.
        """
        if self._is_closed:
            return
        self._is_closed = True
        for reader in list(self._readers):
            await reader.close()
        self._services.health.close()
        channels = self._services.channels
        assert isinstance(channels, AsyncioChannels)
        await channels.close()
        await self._services.bookies.close()
