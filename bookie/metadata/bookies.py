"""BookieDirectory: which bookies are registered, writable or read-only, and where they listen.

Follows `available` and `available/readonly` by standing watches. While the store cannot be asked
the last answer stands; an address stays known after its bookie has gone, because a bookie whose
session was lost still serves. Lists may be some time behind the truth: a client that connects finds
out.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from enum import Enum

from bookie.errors import (
    BookieError,
    ClientClosedError,
    CorruptFileError,
    IllegalOperationError,
    IncorrectParameterError,
    MetadataStoreError,
    NoNodeError,
    StoreAccessError,
)
from bookie.ledger.types import BookieId, parse_bookie_id
from bookie.metadata.interfaces import (
    Check,
    Create,
    Delete,
    Operation,
    VersionedStore,
    Watch,
)
from bookie.metadata.ledger_paths import AVAILABLE, COOKIES, READ_ONLY, STATE
from bookie.metadata.paths import join
from bookie.metadata.patience import PATIENCE_S, ask
from bookie.metadata.service_info import ServiceInfo
from bookie.metadata.watches import Callbacks

_log = logging.getLogger(__name__)

_DENIED_PAUSE_S = 10.0
DEFAULT_LOCATION = "/default-rack"


class Mode(Enum):
    """How a bookie is registered."""

    WRITABLE = "writable"
    READ_ONLY = "read-only"
    AWAY = "away"


class BookieDirectory:
    """See the module. Used from its loop's thread only; start() before use, close() at the end."""

    def __init__(
        self,
        store: VersionedStore,
        root: str,
        locations: Mapping[BookieId, str] | None = None,
    ) -> None:
        """`locations` are network locations ("/region/rack") for rack-aware placement."""
        self._store = store
        self._writable_path = join(root, AVAILABLE)
        self._read_only_path = join(self._writable_path, READ_ONLY)
        self._cookies_path = join(root, COOKIES)
        self._locations = dict(locations or {})
        self._infos: dict[BookieId, ServiceInfo] = {}
        self._writable: tuple[BookieId, ...] = ()
        self._read_only: tuple[BookieId, ...] = ()
        self._callbacks: Callbacks[[]] = Callbacks()
        self._watches: list[Watch] = []
        self._refresh_task: asyncio.Task[None] | None = None
        self._later: asyncio.TimerHandle | None = None
        """When the lists are read again that an ACL did not allow to read."""
        self._is_denied = False
        self._is_stale = False
        self._is_closed = False
        self._reading = asyncio.Lock()
        """One reading at a time: an older answer never replaces a newer one."""

    @property
    def writable(self) -> tuple[BookieId, ...]:
        """Bookies that take new ledgers, sorted."""
        return self._writable

    @property
    def read_only(self) -> tuple[BookieId, ...]:
        """Bookies that only answer reads, sorted."""
        return self._read_only

    @property
    def registered(self) -> frozenset[BookieId]:
        """Bookies that answer reads: writable and read-only ones."""
        return frozenset((*self._writable, *self._read_only))

    def mode_of(self, bookie_id: BookieId) -> Mode:
        """Return how a bookie is registered."""
        if bookie_id in self._read_only:
            return Mode.READ_ONLY
        return Mode.WRITABLE if bookie_id in self._writable else Mode.AWAY

    def address_of(self, bookie_id: BookieId) -> tuple[str, int] | None:
        """Return the last known (host, port); None: never seen, or it published no address."""
        info = self._infos.get(bookie_id)
        return None if info is None else info.address

    def info_of(self, bookie_id: BookieId) -> ServiceInfo | None:
        return self._infos.get(bookie_id)

    def location_of(self, bookie_id: BookieId) -> str:
        """Return the bookie's network location."""
        return self._locations.get(bookie_id, DEFAULT_LOCATION)

    async def active_check(self, bookie_id: BookieId) -> Check | None:
        """Return what holds in a multi while the bookie stays Active; None: it is not Active.

        The begin and the end of a drain write the cookie, a removal deletes it.
        """
        path = join(self._cookies_path, bookie_id)

        async def question() -> Check | None:
            cookie = await self._store.exists(path)
            if cookie is None or await self._store.exists(join(path, STATE)) is not None:
                return None
            return Check(path, cookie.version)

        return await ask(self._store, PATIENCE_S, question)

    async def start(self) -> None:
        """Read the lists; MetadataStoreError when the store does not answer for half a minute."""
        if self._watches or self._is_closed:
            raise ClientClosedError("a bookie directory starts once")
        # Watches first: what changes after the reading is told.
        self._watches = [
            self._store.watch_children(self._writable_path, self._on_change),
            self._store.watch_children(self._read_only_path, self._on_change),
        ]
        await self._read_lists()

    async def refresh(self) -> None:
        """Read the lists again, everything that was answered before seen."""
        await ask(self._store, PATIENCE_S, lambda: self._store.sync(self._writable_path))
        await self._read_lists()

    async def catch_up(self) -> None:
        """Wait until what was answered before is in the lists; reads nothing unless it changed.

        The store tells of a change before it answers what was asked after it.
        """
        await ask(self._store, PATIENCE_S, lambda: self._store.sync(self._writable_path))
        while (task := self._refresh_task) is not None:
            await asyncio.wait([task])

    async def all_known(self) -> tuple[BookieId, ...]:
        """Return every bookie that ever registered here and was not removed: those with cookies."""
        try:
            names = await ask(
                self._store, PATIENCE_S, lambda: self._store.children(self._cookies_path)
            )
        except NoNodeError:
            names = []
        return tuple(BookieId(name) for name in names)

    def on_change(self, callback: Callable[[], None]) -> Watch:
        """Call back after each change of a list or an address; the caller reads the properties."""
        return self._callbacks.add(callback)

    async def close(self) -> None:
        """Stop following; no callback comes any more. Idempotent."""
        self._is_closed = True
        self._callbacks.clear()
        for watch in self._watches:
            watch.close()
        if self._later is not None:
            self._later.cancel()
        task, self._refresh_task = self._refresh_task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _on_change(self) -> None:
        self._is_stale = True
        if self._refresh_task is None and not self._is_closed:
            self._refresh_task = asyncio.get_running_loop().create_task(self._follow())

    async def _follow(self) -> None:
        try:
            while self._is_stale:
                self._is_stale = False
                await self._read_lists()
        except MetadataStoreError:
            pass  # the watches call again when the store is back
        except ClientClosedError:
            pass  # the store was closed first
        except StoreAccessError as error:
            self._look_later(error)
        except BookieError as error:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "the list of bookies could not be read", "exception": error}
            )
        finally:
            self._refresh_task = None
            if self._is_stale:
                self._on_change()

    def _look_later(self, error: StoreAccessError) -> None:
        """Keep what is known: whoever secured the cluster can let this session in again."""
        if not self._is_denied:
            self._is_denied = True
            _log.error("the list of bookies cannot be read, the last one stays in use: %s", error)
        if self._later is None and not self._is_closed:
            loop = asyncio.get_running_loop()
            self._later = loop.call_later(_DENIED_PAUSE_S, self._look_again)

    def _look_again(self) -> None:
        self._later = None
        self._on_change()

    async def _read_lists(self) -> None:
        async with self._reading:
            await self._read_both()

    async def _read_both(self) -> None:
        # A bookie that changes its mode is in both lists for a moment. The one that is read first
        # may miss it, the other then has it.
        writable_infos = await self._read_list(self._writable_path)
        read_only_infos = await self._read_list(self._read_only_path)
        before = self._writable, self._read_only, dict(self._infos)
        self._is_denied = False
        self._infos |= writable_infos | read_only_infos
        self._read_only = tuple(sorted(read_only_infos))
        self._writable = tuple(sorted(b for b in writable_infos if b not in read_only_infos))
        if before != (self._writable, self._read_only, self._infos) and not self._is_closed:
            self._callbacks.call()

    async def _read_list(self, path: str) -> dict[BookieId, ServiceInfo]:
        try:
            names = await ask(self._store, PATIENCE_S, lambda: self._store.children(path))
        except NoNodeError:
            return {}
        found: dict[BookieId, ServiceInfo] = {}
        for name in names:
            try:
                bookie_id = parse_bookie_id(name)
            except IncorrectParameterError:
                continue  # "readonly" itself, or a name that no ledger's metadata may have
            info = await self._read_info(join(path, name), bookie_id)
            if info is not None:
                found[bookie_id] = info
        return found

    async def _read_info(self, path: str, bookie_id: BookieId) -> ServiceInfo | None:
        try:
            data, _ = await ask(self._store, PATIENCE_S, lambda: self._store.read(path))
        except NoNodeError:
            return None  # deregistered since the list was read
        except StoreAccessError as error:
            # Of one bookie that has another login; the others are there all the same.
            _log.error("bookie %s: its registration cannot be read: %s", bookie_id, error)
            return self._infos.get(bookie_id)
        try:
            return ServiceInfo.from_bytes(data, bookie_id)
        except CorruptFileError:
            # It is registered, and no client can connect to it: as with Apache's client.
            return ServiceInfo(())


async def absence(store: VersionedStore, root: str, bookie_id: BookieId) -> list[Operation]:
    """Return what makes a multi fail with NodeExistsError while a bookie is registered.

    The store has no check of absence: a create that fails where there is a node.
    """
    paths = await registration_paths(store, root, bookie_id)
    return [operation for path in paths for operation in (Create(path), Delete(path))]


async def registration_paths(store: VersionedStore, root: str, bookie_id: BookieId) -> list[str]:
    """Return where a bookie may be registered: below those parents that there are."""
    available = join(root, AVAILABLE)
    parents = available, join(available, READ_ONLY)

    async def question() -> list[str]:
        return [
            join(parent, bookie_id) for parent in parents if await store.exists(parent) is not None
        ]

    return await ask(store, PATIENCE_S, question)


def still_registered(bookie_id: BookieId) -> IllegalOperationError:
    """Return the error for a bookie that has to be stopped first."""
    return IllegalOperationError(
        f"bookie {bookie_id}: expected a stopped bookie, found it registered; stop it "
        "first (a killed one stays registered until its session has timed out)"
    )


async def read_modes(store: VersionedStore, root: str) -> dict[BookieId, Mode]:
    """Return how each registered bookie is registered, read after a sync(). MetadataStoreError."""
    directory = BookieDirectory(store, root)
    try:
        await directory.start()
        await directory.refresh()
        return {found: directory.mode_of(found) for found in sorted(directory.registered)}
    finally:
        await directory.close()
