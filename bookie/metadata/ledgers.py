"""LedgerManager: the metadata of ledgers in the store; create, read, compare-and-set, delete, list.

A lost answer is decided by content (ADR 0009): after a create by the creator token, after a
write by the bytes at the next version. When the store stays silent for `patience_s` the caller
gets MetadataStoreError (UNKNOWN). Source: Apache BookKeeper's AbstractZkLedgerManager.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

from bookie.errors import (
    BadVersionError,
    IllegalOperationError,
    IncorrectParameterError,
    LedgerExistsError,
    MetadataVersionError,
    NodeExistsError,
    NoNodeError,
    NoSuchLedgerMetadataError,
    NotEmptyError,
    StoreError,
)
from bookie.ledger import metadata_codec
from bookie.ledger.types import LedgerId, LedgerMetadata
from bookie.metadata.cluster import read_layout
from bookie.metadata.ids import LedgerIds
from bookie.metadata.interfaces import Check, Stat, VersionedStore, Watch, Write
from bookie.metadata.ledger_paths import (
    Layout,
    Shape,
    is_part,
    ledger_id_of,
    ledger_path,
    shapes_of,
)
from bookie.metadata.paths import join, parent_of
from bookie.metadata.patience import BROKEN, PATIENCE_S, Patience, ask
from bookie.runtime.interfaces import Clock, Rng


class LedgerManager:
    """See the module. Any number of managers may work on one root; used from its loop's thread."""

    def __init__(
        self,
        store: VersionedStore,
        root: str,
        rng: Rng,
        clock: Clock,
        *,
        layout: Layout | None = None,
        patience_s: float = PATIENCE_S,
        is_ctime_stored: bool = False,
    ) -> None:
        """Work on the cluster at root.

        layout: None takes that of the cluster at the first call. is_ctime_stored: write the time of
        creation into the metadata; else it is that of the node.
        """
        self._store = store
        self._root = root
        self._rng = rng
        self._clock = clock
        self._layout = layout
        self._patience_s = patience_s
        self._is_ctime_stored = is_ctime_stored
        self._ids: LedgerIds | None = None

    async def create(
        self, metadata: LedgerMetadata, ledger_id: int | None = None
    ) -> tuple[LedgerMetadata, int]:
        """Store a new ledger's metadata; return it with its id and token, and its version.

        ledger_id: None takes a fresh one; metadata.ledger_id is not looked at. Errors:
        LedgerExistsError (only for a given id), LedgerIdOverflowError, MetadataStoreError.
        """
        layout = await self._known_layout()
        token = int.from_bytes(self._rng.randbytes(8), "big") >> 1 or 1
        metadata = replace(metadata, creator_token=token)
        if self._is_ctime_stored:
            now_ms = self._clock.wall_us() // 1000
            metadata = replace(metadata, ctime_ms=now_ms, is_ctime_stored=True)
        while True:
            chosen = await self._new_id(layout) if ledger_id is None else ledger_id
            metadata = replace(metadata, ledger_id=LedgerId(chosen))
            try:
                return metadata, await self._create(
                    ledger_path(self._root, layout, chosen), metadata
                )
            except LedgerExistsError:
                if ledger_id is not None:
                    raise  # a fresh id can be taken too: by a client that chose it

    async def read(self, ledger_id: int) -> tuple[LedgerMetadata, int]:
        """Return metadata and version.

        Errors: NoSuchLedgerMetadataError (also for an id that the layout cannot say),
        MetadataFormatError, MetadataStoreError.
        """
        layout = await self._known_layout()
        try:
            path = ledger_path(self._root, layout, ledger_id)
        except IncorrectParameterError as error:
            raise NoSuchLedgerMetadataError(str(error)) from error
        try:
            data, stat = await ask(self._store, self._patience_s, lambda: self._store.read(path))
        except NoNodeError:
            raise _missing(ledger_id, path) from None
        found = metadata_codec.decode(LedgerId(ledger_id), data, stat.ctime_ms)
        return found, stat.version

    async def write(
        self, metadata: LedgerMetadata, version: int, guards: Sequence[Check] = ()
    ) -> int:
        """Replace the metadata that has this version; return the new version.

        guards: what has to hold as well; their BadVersionError or NoNodeError is raised as it is.

        Errors: MetadataVersionError (read and decide again; also when ours was written and then
        changed by another), NoSuchLedgerMetadataError, MetadataStoreError.
        """
        ledger_id = metadata.ledger_id
        path = ledger_path(self._root, await self._known_layout(), ledger_id)
        # Only a create carries the token (Apache's updates write 0).
        data = metadata_codec.encode(replace(metadata, creator_token=0))
        guarded = [guard.path for guard in guards]
        patience = Patience(self._store, self._patience_s)
        is_lost = False
        """True once an answer was lost: from then on a conflict may be with ourselves."""
        while True:
            try:
                # Again at the same version, if need be: it is done once at most.
                if not guards:
                    return (await self._store.write(path, data, version)).version
                await self._store.multi([*guards, Write(path, data, version)])
                return version + 1
            except BadVersionError as error:
                if error.path in guarded:
                    raise
                if is_lost and await self._landed(ledger_id, path, data, version):
                    return version + 1
                raise MetadataVersionError(
                    f"ledger {ledger_id}: expected its metadata at version {version}, found it "
                    "changed; read it and decide again"
                ) from error
            except NoNodeError as error:
                if error.path in guarded:
                    raise
                raise _missing(ledger_id, path) from None
            except BROKEN as error:
                is_lost = True
                await patience.again(error)

    async def delete(self, ledger_id: int) -> None:
        """Forget a ledger, whatever its version; its bookies collect the entries later.

        A ledger that is not there is success.
        """
        path = ledger_path(self._root, await self._known_layout(), ledger_id)
        try:
            await ask(self._store, self._patience_s, lambda: self._store.delete(path))
        except NoNodeError:
            pass  # never there, or deleted before: by us, if the answer was lost
        parent = parent_of(path)
        while parent != self._root:
            try:
                await self._store.delete(parent)
            except NotEmptyError:
                return
            except NoNodeError:
                pass
            except StoreError:
                return  # an empty directory more does no harm
            parent = parent_of(parent)

    async def ledger_ids(self) -> AsyncIterator[int]:
        """Yield the ids of all ledgers, ascending.

        Every ledger that was created before the call and not deleted is there, so that garbage
        collection may go by it; those created or deleted meanwhile may be. An error ends the
        iteration: what was not yielded is then not known to be gone.
        """
        layout = await self._known_layout()
        await ask(self._store, self._patience_s, lambda: self._store.sync(self._root))
        for shape in shapes_of(layout):
            async for ledger_id in self._walk(self._root, (), shape):
                yield ledger_id

    async def fresh_id(self) -> int:
        """Return an id that no other client gets, and which is used up by this.

        Greater than every id that was generated before. Errors: as create().
        """
        return await self._new_id(await self._known_layout())

    def watch(self, ledger_id: int, callback: Callable[[], None]) -> Watch:
        """Call back after each change of the ledger's metadata; the caller reads."""
        if self._layout is None:
            raise IllegalOperationError(
                f"ledger {ledger_id}: read it before watching it, its layout is not known yet"
            )
        return self._store.watch(ledger_path(self._root, self._layout, ledger_id), callback)

    async def _known_layout(self) -> Layout:
        if self._layout is None:
            self._layout = await read_layout(self._store, self._root, self._patience_s)
        return self._layout

    async def _new_id(self, layout: Layout) -> int:
        if self._ids is None:
            self._ids = LedgerIds(self._store, self._root, layout, self._patience_s)
        return await self._ids.generate()

    async def _create(self, path: str, metadata: LedgerMetadata) -> int:
        data = metadata_codec.encode(metadata)
        patience = Patience(self._store, self._patience_s)
        is_lost = False
        while True:
            try:
                await self._store.create(path, data, make_parents=True)
                return 0
            except NodeExistsError as error:
                stat = await self._created_by_us(path, metadata) if is_lost else None
                if stat is None:
                    raise LedgerExistsError(
                        f"ledger {metadata.ledger_id}: expected no metadata, found some at {path}"
                    ) from error
                return stat.version
            except BROKEN as error:
                is_lost = True
                await patience.again(error)

    async def _created_by_us(self, path: str, metadata: LedgerMetadata) -> Stat | None:
        """Return the node's Stat if its token is ours: then the lost create was done."""

        async def question() -> tuple[bytes, Stat]:
            await self._store.sync(path)
            return await self._store.read(path)

        try:
            data, stat = await ask(self._store, self._patience_s, question)
        except NoNodeError:
            return None
        found = metadata_codec.decode(metadata.ledger_id, data, stat.ctime_ms)
        return stat if found.creator_token == metadata.creator_token else None

    async def _landed(self, ledger_id: int, path: str, data: bytes, version: int) -> bool:
        try:
            return await ask(
                self._store, self._patience_s, lambda: self._has_landed(path, data, version)
            )
        except NoNodeError:
            raise _missing(ledger_id, path) from None

    async def _has_landed(self, path: str, data: bytes, version: int) -> bool:
        """Tell whether a write of data at version, its answer lost, was done and still stands."""
        await self._store.sync(path)
        found, stat = await self._store.read(path)
        return stat.version == version + 1 and found == data

    async def _walk(self, path: str, parts: tuple[str, ...], shape: Shape) -> AsyncIterator[int]:
        try:
            names = await self._names(path)
        except NoNodeError:
            return  # the last ledger below was deleted, and the empty directory with it
        depth = len(parts)
        is_last = depth == len(shape.widths) - 1
        for name in names:
            if is_last:
                ledger_id = ledger_id_of((*parts, name), shape)
                if ledger_id is not None:
                    yield ledger_id
            elif is_part(name, shape.widths[depth]):
                async for ledger_id in self._walk(join(path, name), (*parts, name), shape):
                    yield ledger_id

    async def _names(self, path: str) -> list[str]:
        """Return the children; asked again after a broken connection, not of a server behind."""
        is_again = False

        async def question() -> list[str]:
            nonlocal is_again
            if is_again:
                await self._store.sync(self._root)
            is_again = True
            return await self._store.children(path)

        return await ask(self._store, self._patience_s, question)


def _missing(ledger_id: int, path: str) -> NoSuchLedgerMetadataError:
    return NoSuchLedgerMetadataError(
        f"ledger {ledger_id}: expected its metadata at {path}, found none: it was never created, "
        "or was deleted"
    )
