"""Registration: one bookie's ephemeral node, kept in the store for as long as the bookie lives.

A bookie stands in `available` while it takes writes, in `available/readonly` while it does not; on
a change the new node is made before the old one goes, so that no client ever misses it. The node
lives with the store's session: while that is SUSPENDED the bookie serves on and its registration is
UNSURE; when it was lost the bookie registers again with the next one. A node of another session is
waited for, as long as a session that just died may linger; then this bookie REFUSES: another bookie
serves under its name, and it must stop. So it does where the store holds another cluster by now: it
has entries of other ledgers under the ids given out there. Source: Apache BookKeeper's
ZKRegistrationManager.
"""

import asyncio
import logging
from collections.abc import Callable
from enum import Enum

from bookie.errors import (
    BadVersionError,
    BookieError,
    BookieStartError,
    ClientClosedError,
    MetadataStoreError,
    NodeExistsError,
    NoNodeError,
    StoreAccessError,
    StoreError,
)
from bookie.ledger.types import BookieId, parse_bookie_id
from bookie.metadata.interfaces import SessionState, Stat, VersionedStore, Watch
from bookie.metadata.ledger_paths import AVAILABLE, INSTANCE_ID, READ_ONLY
from bookie.metadata.paths import join
from bookie.metadata.patience import BROKEN
from bookie.metadata.service_info import ServiceInfo
from bookie.metadata.watches import call_safely

_log = logging.getLogger(__name__)

_PAUSE_S = 0.1
_DENIED_PAUSE_S = 5.0
_ANSWER_WAIT_S = 30.0


class RegistrationState(Enum):
    """What is known of the bookie's node."""

    REGISTERING = "registering"
    """There is none yet, or no longer; it is being made."""
    REGISTERED = "registered"
    UNSURE = "unsure"
    """The store does not answer, or its ACLs do not let this session in: the node lives as long as
    the session does."""
    REFUSED = "refused"
    """Another holds the id, or the store will not have it: `error` says why. Final."""
    CLOSED = "closed"


class Registration:
    """See the module. start() once, close() at the end; used from its loop's thread only."""

    def __init__(
        self,
        store: VersionedStore,
        root: str,
        bookie_id: BookieId,
        info: ServiceInfo,
        *,
        owner_wait_s: float = 15.0,
        instance_id: str | None = None,
    ) -> None:
        """owner_wait_s: how long another session may hold the id; more than its time-out.

        (The store ends a session a little after its time-out, by clock ticks of its own.)
        instance_id: of the cluster that the bookie belongs to; None: it has none, any will do.
        """
        self._store = store
        self._bookie_id = parse_bookie_id(bookie_id)
        self._data = info.to_bytes()
        self._owner_wait_s = owner_wait_s
        self._instance_id = instance_id
        self._instance_path = join(root, INSTANCE_ID)
        self._available = join(root, AVAILABLE)
        self._read_only_parent = join(self._available, READ_ONLY)
        self._paths = {
            False: join(self._available, bookie_id),
            True: join(self._read_only_parent, bookie_id),
        }
        self._is_read_only = False
        self._was_registered = False
        self._is_denied = False
        """The store does not allow it; that was told."""
        self._settled_mode: bool | None = None
        """The mode in which it is registered, as far as known; None: it may not be."""
        self._state = RegistrationState.REGISTERING
        self._error: BookieError | None = None
        self._callbacks: list[Callable[[RegistrationState], None]] = []
        self._watches: list[Watch] = []
        self._work = asyncio.Event()
        self._news = asyncio.Event()
        """Set whenever state or mode changed: set_read_only() waits for it."""
        self._task: asyncio.Task[None] | None = None

    @property
    def state(self) -> RegistrationState:
        return self._state

    @property
    def error(self) -> BookieError | None:
        """Why it is REFUSED."""
        return self._error

    @property
    def is_read_only(self) -> bool:
        """The mode that was asked for."""
        return self._is_read_only

    def on_state(self, callback: Callable[[RegistrationState], None]) -> None:
        """Call back at each change of state. REFUSED means: stop the bookie."""
        self._callbacks.append(callback)

    async def start(self, *, is_read_only: bool = False) -> None:
        """Register.

        Errors: BookieStartError when another session keeps the id, or there is no cluster at the
        root, or another one; MetadataStoreError and SecurityError of the store.
        """
        if self._task is not None or self._state is RegistrationState.CLOSED:
            raise BookieStartError(f"bookie {self._bookie_id}: a registration starts once")
        self._is_read_only = is_read_only
        self._watches = [
            self._store.on_session(self._on_session),
            self._store.watch(self._paths[False], self._work.set),
            self._store.watch(self._paths[True], self._work.set),
        ]
        self._work.set()
        self._task = asyncio.get_running_loop().create_task(self._keep())
        limit_s = self._owner_wait_s + _ANSWER_WAIT_S
        try:
            async with asyncio.timeout(limit_s):
                while self._state in (RegistrationState.REGISTERING, RegistrationState.UNSURE):
                    await self._next_news()
        except TimeoutError:
            await self.close()
            raise MetadataStoreError(
                f"bookie {self._bookie_id}: not registered after {limit_s:g} s: the metadata store "
                "does not answer"
            ) from None
        if self._error is not None:
            error = self._error
            await self.close()
            raise error

    async def set_read_only(self, is_read_only: bool) -> None:
        """Change the mode. Returns when the store has it, or at once when it does not answer.

        In the latter case the change follows when the store is back.
        """
        self._is_read_only = is_read_only
        self._work.set()
        while (
            self._settled_mode is not self._is_read_only
            and self._store.state is SessionState.CONNECTED
            and self._state in (RegistrationState.REGISTERING, RegistrationState.REGISTERED)
        ):
            await self._next_news()

    async def close(self) -> None:
        """Remove our nodes, if the store answers (else they go with the session); idempotent."""
        if self._state is RegistrationState.CLOSED:
            return
        self._set_state(RegistrationState.CLOSED)
        for watch in self._watches:
            watch.close()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if task is None:
            return
        for path in self._paths.values():
            try:
                stat = await self._store.exists(path)
                if stat is not None and stat.ephemeral_owner == self._store.session_id:
                    await self._store.delete(path, stat.version)
            except (StoreError, ClientClosedError):
                pass  # it goes with the session

    # --- the task that keeps it ------------------------------------------------------------------

    async def _keep(self) -> None:
        try:
            while True:
                await self._work.wait()
                self._work.clear()
                await self._settle()
        except BookieError as error:
            self._refuse(error)
        except Exception as error:  # noqa: BLE001 - a task must not die in silence
            self._refuse(BookieStartError(f"bookie {self._bookie_id}: {error!r}"))
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a bookie's registration failed", "exception": error}
            )

    async def _settle(self) -> None:
        """Make the store have one node, ours, in the mode that is asked for now."""
        while True:
            if self._store.state is not SessionState.CONNECTED:
                return  # CONNECTED sets to work again
            mode = self._is_read_only
            try:
                await self._own(mode)
                await self._drop(not mode)
            except (*BROKEN, NoNodeError, BadVersionError):
                # The connection broke, or the session ended between two questions. State changes
                # are told later than errors.
                await asyncio.sleep(_PAUSE_S)
                continue
            except StoreAccessError as error:
                if not self._was_registered:
                    raise  # a start says at once that its login is missing
                await self._wait_for_access(error)
                continue
            if mode is self._is_read_only:
                break
        self._is_denied = False
        if self._store.state is SessionState.CONNECTED:
            self._settled_mode = mode
            self._was_registered = True
            self._set_state(RegistrationState.REGISTERED)
            self._news.set()

    async def _wait_for_access(self, error: StoreAccessError) -> None:
        """Wait a while: whoever secured the cluster can let this session in again.

        To stop would take from readers, too, what this bookie has.
        """
        if not self._is_denied:
            self._is_denied = True
            _log.error(
                "bookie %s serves on, but cannot register itself: %s", self._bookie_id, error
            )
        self._set_state(RegistrationState.UNSURE)
        await asyncio.sleep(_DENIED_PAUSE_S)

    async def _own(self, mode: bool) -> None:
        """Make the node of a mode, or find that it is there and ours."""
        await self._wait_for_owner(self._paths[not mode])
        path = self._paths[mode]
        while True:
            await self._wait_for_owner(path)
            stat = await self._ours(path)
            if stat is not None:
                if (await self._store.read(path))[0] != self._data:
                    await self._store.write(path, self._data, stat.version)
                return
            if self._settled_mode is mode:  # it was there, and an operator removed it
                self._settled_mode = None
                self._set_state(RegistrationState.REGISTERING)
            await self._expect_cluster()
            try:
                await self._store.create(path, self._data, is_ephemeral=True)
                return
            except NodeExistsError:
                continue  # ours, by a create whose answer was lost, or another's: look again
            except NoNodeError:
                await self._make_read_only_parent()

    async def _drop(self, mode: bool) -> None:
        """Remove our node of the other mode."""
        path = self._paths[mode]
        if await self._ours(path) is None:
            return
        try:
            await self._store.delete(path)
        except NoNodeError:
            pass

    async def _ours(self, path: str) -> Stat | None:
        stat = await self._store.exists(path)
        is_ours = stat is not None and stat.ephemeral_owner == self._store.session_id
        return stat if is_ours else None

    async def _wait_for_owner(self, path: str) -> None:
        """Wait until no other session has a node at path; BookieStartError when one keeps it."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._owner_wait_s
        while True:
            await self._store.sync(path)
            stat = await self._store.exists(path)
            if stat is None or stat.ephemeral_owner == self._store.session_id:
                return
            if loop.time() >= deadline:
                raise BookieStartError(
                    f"bookie {self._bookie_id}: session {stat.ephemeral_owner:#x} holds {path} for "
                    f"more than {self._owner_wait_s:g} s: another bookie runs under this id; stop "
                    "it, or give this one an id of its own"
                )
            try:
                async with asyncio.timeout_at(deadline):
                    await self._work.wait()
            except TimeoutError:
                pass
            self._work.clear()

    async def _expect_cluster(self) -> None:
        if self._instance_id is None:
            return
        try:
            found = (await self._store.read(self._instance_path))[0].decode("utf-8", "replace")
        except NoNodeError:
            found = None
        if found != self._instance_id:
            raise BookieStartError(
                f"bookie {self._bookie_id}: {self._instance_path}: expected the cluster "
                f"{self._instance_id}, found {found}: the metadata was lost or formatted anew; "
                "restore it, or start the bookie with an empty directory"
            )

    async def _make_read_only_parent(self) -> None:
        if await self._store.exists(self._available) is None:
            raise BookieStartError(
                f"{self._available}: expected the place where bookies register, found none; run "
                "`bookie format` first"
            )
        try:
            await self._store.create(self._read_only_parent)
        except NodeExistsError:
            pass

    # --- states ----------------------------------------------------------------------------------

    def _on_session(self, state: SessionState) -> None:
        if self._state in (RegistrationState.REFUSED, RegistrationState.CLOSED):
            return
        if state is SessionState.SUSPENDED:
            self._set_state(RegistrationState.UNSURE)
        elif state is SessionState.LOST:
            self._settled_mode = None
            self._set_state(RegistrationState.REGISTERING)
        else:
            self._work.set()

    def _refuse(self, error: BookieError) -> None:
        if self._state is not RegistrationState.CLOSED:
            self._error = error
            self._set_state(RegistrationState.REFUSED)

    def _set_state(self, state: RegistrationState) -> None:
        if state is self._state:
            return
        self._state = state
        self._news.set()
        for callback in list(self._callbacks):
            call_safely(lambda callback=callback: callback(state))

    async def _next_news(self) -> None:
        self._news.clear()
        await self._news.wait()
