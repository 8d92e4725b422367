"""ZooKeeperStore: the VersionedStore over a real ZooKeeper, by kazoo (kazoo_client.py).

kazoo has one thread here, its connection's. Answers, watch events and session states are handed
over by it in the order in which it met them, and end in one ordered queue (a Lane) on the asyncio
loop; nothing else of kazoo is touched by another thread. Nothing is retried: a request whose answer
was lost is a StoreConnectionError, and none is kept for the next connection, where it would be
done after its caller had given up on it. ADR 0009 has the reasons.
"""

import asyncio
import contextvars
import logging
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo import security
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import EventType, KazooState, ZnodeStat

from bookie import errors
from bookie.errors import (
    ClientClosedError,
    IncorrectParameterError,
    NodeExistsError,
    NoNodeError,
    StoreAccessError,
    StoreConnectionError,
    StoreTrustError,
    StoreUnreachableError,
)
from bookie.metadata.acl import OPEN, Acl, AclEntry, Readable, StoreAccess, acl_of
from bookie.metadata.interfaces import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    Operation,
    SessionState,
    Stat,
    Watch,
    Write,
)
from bookie.metadata.kazoo_client import OrderedClient, store_error
from bookie.metadata.lane import Lane, Turns
from bookie.metadata.paths import check_data, check_path, parent_of
from bookie.metadata.watches import Callbacks, call_safely
from bookie.metadata.zookeeper_login import Login
from bookie.runtime.interfaces import Tls
from bookie.runtime.os_clock import OsClock

_log = logging.getLogger(__name__)

Start = Callable[[], Any]
"""Hands a request to kazoo and returns its AsyncResult."""
Done = Callable[[Any, Exception | None], None]
"""Takes a value, or an error of kazoo; on the loop."""

_UNDER_WAY_MAX = 64
"""Requests handed to kazoo and not answered. Each leaves a byte in a socket pair, which blocks its
writer when it is full (some 270 of them)."""
_PARENT_TRIES_MAX = 20
_DENIED_PAUSE_S = 10.0
"""Until a watch is tried again that an ACL did not allow: ACLs are changed while bookies run."""
_NOT_THE_CAUSE = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)
"""What the other operations of a failed transaction get."""


class ZooKeeperStore:
    """VersionedStore: one session with a ZooKeeper ensemble, and the next when it expires.

    Made by connect(). Used from the thread of the loop that it was made on.
    """

    def __init__(
        self,
        hosts: str,
        session_timeout_s: float,
        logins: Sequence[Login] = (),
        *,
        is_secured: bool = False,
        readable: Readable = Readable(),  # noqa: B008 - immutable
        tls: Tls | None = None,
    ) -> None:
        """Use connect()."""
        self._loop = asyncio.get_running_loop()
        self._lane = Lane(contextvars.copy_context())
        self._callbacks: Callbacks[[SessionState]] = Callbacks()
        self._watches: dict[_ZooKeeperWatch, None] = {}
        self._waiting: deque[tuple[Start, Done]] = deque()
        """Requests that kazoo has not been given yet."""
        self._forgotten: deque[_ZooKeeperWatch] = deque()
        """Closed watches that kazoo may still know; the loop adds, kazoo's thread takes."""
        self._under_way_count = 0
        self._pending: dict[asyncio.Future[Any], None] = {}
        self._state = SessionState.SUSPENDED
        self._session_id = 0
        self._is_closed = False
        self._closing: asyncio.Future[None] | None = None
        self._access = StoreAccess(tuple(login.identity for login in logins), is_secured, readable)
        self._refusal = ""
        """Why ZooKeeper refused the login, as the log was told; "": it did not."""
        self._refused: asyncio.Event = asyncio.Event()
        self._failure = ""
        """Why the last try to connect has failed."""
        self._server_count = hosts.count(",") + 1
        self._untrusted: set[str] = set()
        """The servers whose certificates were not trusted, since one was connected to."""
        self._client = OrderedClient(
            hosts,
            session_timeout_s,
            logins,
            tls=tls,
            on_refused=lambda reason: self.post(partial(self._on_refused, reason)),
            is_turning=Turns(self._call_soon, OsClock().monotonic).are_within,
            on_failed=lambda *told: self.post(partial(self._on_failed, *told)),
        )
        self._client.add_listener(self._on_kazoo_state)

    @classmethod
    async def connect(
        cls,
        hosts: str,
        session_timeout_s: float = 10.0,
        *,
        connect_timeout_s: float = 15.0,
        logins: Sequence[Login] = (),
        is_secured: bool = False,
        readable: Readable = Readable(),  # noqa: B008 - immutable
        tls: Tls | None = None,
    ) -> "ZooKeeperStore":
        """Open a session with one of hosts ("host:port,host:port").

        The ensemble may shorten or lengthen session_timeout_s to its own bounds. is_secured: nodes
        that it makes are for its logins, and to be read for who is in `readable`. tls: nothing is
        said in clear; a callable is asked for each connection, in kazoo's thread. Errors:
        StoreUnreachableError after connect_timeout_s, StoreTrustError when no server shows a
        certificate that is trusted, StoreAccessError when the login is refused,
        IncorrectParameterError for is_secured without a login.
        """
        if is_secured and not logins:
            raise IncorrectParameterError(
                "nodes in ZooKeeper for the own login alone (zkEnableSecurity): expected a login "
                "(--zookeeper-login FILE, or BOOKIE_ZOOKEEPER_LOGIN), found none"
            )
        store = cls(
            hosts, session_timeout_s, logins, is_secured=is_secured, readable=readable, tls=tls
        )
        connected = store._loop.create_future()

        def note(state: SessionState) -> None:
            if state is SessionState.CONNECTED and not connected.done():
                connected.set_result(None)

        watch = store.on_session(note)
        store._client.start_async()
        refused = store._loop.create_task(store._refused.wait())
        try:
            async with asyncio.timeout(connect_timeout_s):
                await asyncio.wait([connected, refused], return_when=asyncio.FIRST_COMPLETED)
            if not connected.done():
                await store.close()
                if not store._refusal:
                    raise StoreTrustError(
                        f"expected a ZooKeeper at {hosts} whose certificate is trusted, found: "
                        f"{store._failure}; name the authority that has signed it, and the server "
                        "as its certificate does"
                    )
                raise StoreAccessError(
                    f"ZooKeeper refuses the login ({store._refusal}): expected a user and password "
                    "that its file of users has (sasl), or a scheme that it knows (digest); check "
                    "the login, and the JAAS configuration of ZooKeeper's servers"
                )
        except TimeoutError:
            await store.close()
            by = "" if tls is None else " that speaks TLS"
            last = f" (the last try: {store._failure})" if store._failure else ""
            raise StoreUnreachableError(
                f"expected a ZooKeeper{by} at {hosts}, found none in {connect_timeout_s:g} s"
                f"{last}; check the address, that it runs, and whether this port is for TLS"
            ) from None
        except BaseException:
            await store.close()
            raise
        finally:
            refused.cancel()
        watch.close()
        return store

    @property
    def session_timeout_s(self) -> float:
        return self._client.granted_timeout_s

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def state(self) -> SessionState:
        return self._state

    @property
    def access(self) -> StoreAccess:
        return self._access

    def on_session(self, callback: Callable[[SessionState], None]) -> Watch:
        return self._callbacks.add(callback)

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        is_ephemeral: bool = False,
        is_sequence: bool = False,
        make_parents: bool = False,
    ) -> str:
        check_data(path, data)
        start = partial(
            self._client.create_async,
            path,
            data,
            self._acl_of_new(path),
            ephemeral=is_ephemeral,
            sequence=is_sequence,
        )
        for _ in range(_PARENT_TRIES_MAX):
            try:
                return await self._ask(path, start)
            except NoNodeError:
                if not make_parents:
                    raise
            # Again and again: others remove empty parents meanwhile.
            await self._make(parent_of(path))
        return await self._ask(path, start)

    async def read(self, path: str) -> tuple[bytes, Stat]:
        data, stat = await self._ask(path, partial(self._client.get_async, path))
        return data, _to_stat(stat)

    async def exists(self, path: str) -> Stat | None:
        stat = await self._ask(path, partial(self._client.exists_async, path))
        return None if stat is None else _to_stat(stat)

    async def write(self, path: str, data: bytes, version: int) -> Stat:
        check_data(path, data)
        stat = await self._ask(path, partial(self._client.set_async, path, data, version))
        return _to_stat(stat)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._ask(path, partial(self._client.delete_async, path, version))

    async def children(self, path: str) -> list[str]:
        return sorted(await self._ask(path, partial(self._client.get_children_async, path)))

    async def read_acl(self, path: str) -> tuple[Acl, Stat]:
        entries, stat = await self._ask(path, partial(self._client.get_acls_async, path))
        return acl_of(AclEntry(e.id.scheme, e.id.id, e.perms) for e in entries), _to_stat(stat)

    async def write_acl(self, path: str, acl: Acl) -> Stat:
        start = partial(self._client.set_acls_async, path, _to_kazoo(acl))
        return _to_stat(await self._ask(path, start))

    async def multi(self, operations: Sequence[Operation]) -> None:
        transaction = self._client.transaction()
        for operation in operations:
            path = check_path(operation.path)
            match operation:
                case Create():
                    check_data(path, operation.data)
                    transaction.create(
                        path,
                        operation.data,
                        self._acl_of_new(path),
                        ephemeral=operation.is_ephemeral,
                        sequence=operation.is_sequence,
                    )
                case Write():
                    check_data(path, operation.data)
                    transaction.set_data(path, operation.data, operation.version)
                case Delete():
                    transaction.delete(path, operation.version)
                case Check():
                    transaction.check(path, operation.version)
        first = operations[0].path if operations else "/"
        results: list[Any] = await self._ask(first, transaction.commit_async)
        failed = [
            (operation, result)
            for operation, result in zip(operations, results, strict=False)
            if isinstance(result, Exception)
        ]
        for operation, error in failed:
            if not isinstance(error, _NOT_THE_CAUSE):
                raise store_error(error, operation.path)
        if failed:
            raise store_error(failed[0][1], failed[0][0].path)

    async def sync(self, path: str) -> None:
        await self._ask(path, partial(self._client.sync_async, path))

    def watch(self, path: str, callback: Callable[[], None]) -> Watch:
        return self._add_watch(_ZooKeeperWatch(self, path, callback, is_children=False))

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        return self._add_watch(_ZooKeeperWatch(self, path, callback, is_children=True))

    async def close(self) -> None:
        """End the session and kazoo's thread.

        Without an answer of the ensemble this takes up to the session's time-out; the ephemerals
        then go when the session expires.
        """
        if self._closing is None:
            self._closing = self._loop.create_future()
            self._end_of_requests()
            # stop() waits for the answer to the farewell, and for kazoo's thread.
            stopper = self._client.handler.spawn(self._stop)
            try:
                await asyncio.shield(self._closing)
            finally:
                if self._closing.done():
                    stopper.join()
        else:
            await asyncio.shield(self._closing)

    # --- for the watches ------------------------------------------------------------------------

    def submit(self, start: Start, done: Done) -> None:
        """Send a request after all earlier ones; done is called on the loop, once."""
        self._waiting.append((start, done))
        self._pump()

    def post(self, function: Callable[[], None]) -> None:
        """Queue function on the loop, behind everything that kazoo told before; any thread."""
        self._call_soon(partial(self._lane.post, 0.0, function))

    def _call_soon(self, function: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop was closed without close(): none is left to be told
            self._loop.call_soon_threadsafe(function)

    def drop_watch(self, watch: "_ZooKeeperWatch") -> None:
        self._watches.pop(watch, None)
        self.forget_watcher(watch)

    def forget_watcher(self, watch: "_ZooKeeperWatch") -> None:
        """Let kazoo forget it with the next answer; asked again when a request of it is answered.

        kazoo adds a watcher after it told the answer: removing it then may come too early.
        """
        self._forgotten.append(watch)

    def later(self, delay_s: float, function: Callable[[], None]) -> None:
        """Call function on the loop later, unless the store is closed by then."""
        self._loop.call_later(delay_s, lambda: None if self._is_closed else function())

    @property
    def client(self) -> Any:
        return self._client

    # --- on the loop ----------------------------------------------------------------------------

    async def _ask(self, path: str, start: Start) -> Any:
        check_path(path)
        if self._is_closed:
            raise ClientClosedError("the metadata store's client was closed")
        answered: asyncio.Future[Any] = self._loop.create_future()
        self._pending[answered] = None

        def done(value: Any, error: Exception | None) -> None:
            self._pending.pop(answered, None)
            if answered.done():
                return  # its waiter was cancelled, or the store closed
            if error is None:
                answered.set_result(value)
            else:
                answered.set_exception(error)

        self.submit(start, done)
        try:
            return await answered
        except kazoo_errors.KazooException as error:
            raise store_error(error, path) from error
        except KazooTimeoutError as error:
            raise store_error(error, path) from error

    def _pump(self) -> None:
        while self._waiting and self._under_way_count < _UNDER_WAY_MAX:
            start, done = self._waiting.popleft()
            self._under_way_count += 1
            try:
                result = start()
            except Exception as error:  # noqa: BLE001 - kazoo refused it: that is its answer
                self.post(partial(self._finish, done, None, error))
                continue
            result.rawlink(partial(self._on_answer, done))

    def _finish(self, done: Done, value: Any, error: Exception | None) -> None:
        self._under_way_count -= 1
        try:
            done(value, error)
        finally:
            self._pump()

    def _on_refused(self, reason: str) -> None:
        if self._is_closed:
            return
        if reason != self._refusal:
            self._refusal = reason
            _log.error("ZooKeeper refuses the login: %s; it is tried again", reason)
        self._refused.set()

    def _on_failed(self, place: str, reason: str, error: ssl.SSLError | None) -> None:
        if self._is_closed:
            return
        if error is None:
            if not self._failure.startswith("no TLS"):  # which kazoo tells again, in short
                self._failure = f"{place}: {reason}"
            return
        why = f"no TLS with {place}: {reason}"
        if why != self._failure:
            _log.error("ZooKeeper: %s; nothing is said to it in clear, it is tried again", why)
        self._failure = why
        if isinstance(error, ssl.SSLCertVerificationError):
            self._untrusted.add(place)
        if len(self._untrusted) >= self._server_count:
            self._refused.set()

    def _on_session(self, state: SessionState, session_id: int) -> None:
        if self._is_closed or state is self._state:
            return
        self._state = state
        if state is SessionState.CONNECTED:
            self._refusal = self._failure = ""
            self._untrusted.clear()
        if state is SessionState.CONNECTED:
            self._session_id = session_id
        self._callbacks.call(state)
        if state is SessionState.CONNECTED:
            for watch in list(self._watches):
                watch.arm()
                watch.call()  # whatever changed meanwhile

    def _acl_of_new(self, path: str) -> list[security.ACL] | None:
        """Return what a node is made with, as kazoo has it; None: it is open."""
        acl = self._access.acl_of_new(path)
        return None if acl == OPEN else _to_kazoo(acl)

    async def _make(self, path: str) -> None:
        """Create a node and what is missing above it; it may be gone again at once."""
        start = partial(self._client.create_async, path, b"", self._acl_of_new(path))
        try:
            await self._ask(path, start)
        except NodeExistsError:
            pass
        except NoNodeError:
            await self._make(parent_of(path))
            try:
                await self._ask(path, start)
            except (NodeExistsError, NoNodeError):
                pass

    def _add_watch(self, watch: "_ZooKeeperWatch") -> "_ZooKeeperWatch":
        check_path(watch.path)
        if self._is_closed:
            raise ClientClosedError("the metadata store's client was closed: no watch can be set")
        self._watches[watch] = None
        watch.arm()
        return watch

    def _end_of_requests(self) -> None:
        self._is_closed = True
        self._callbacks.clear()
        self._lane.clear()
        self._waiting.clear()
        for watch in list(self._watches):
            watch.close()
        pending, self._pending = self._pending, {}
        for answered in pending:
            if not answered.done():
                answered.set_exception(ClientClosedError("the metadata store's client was closed"))

    def _stopped(self, error: Exception | None) -> None:
        if error is not None:
            self._loop.call_exception_handler(
                {"message": "kazoo's thread did not end in time", "exception": error}
            )
        if self._closing is not None and not self._closing.done():
            self._closing.set_result(None)

    # --- on kazoo's threads ---------------------------------------------------------------------

    def _on_answer(self, done: Done, result: Any) -> None:
        # An answer that was there at once (a refusal) comes on the loop's thread.
        if self._forgotten and not _is_on_a_loop():
            self._forget()
        error = result.exception
        self.post(partial(self._finish, done, None if error else result.value, error))

    def _forget(self) -> None:
        while self._forgotten:
            watch = self._forgotten.popleft()
            self._client.forget_watcher(watch.path, watch.on_event, is_children=watch.is_children)
            if watch.is_children:  # it waits for the node, too
                self._client.forget_watcher(watch.path, watch.on_event, is_children=False)

    def _on_kazoo_state(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            identity: Any = self._client.client_id
            session_id: int = 0 if identity is None else identity[0]
            self.post(partial(self._on_session, SessionState.CONNECTED, session_id))
        elif state == KazooState.SUSPENDED:
            self.post(partial(self._on_session, SessionState.SUSPENDED, 0))
        else:
            self.post(partial(self._on_session, SessionState.LOST, 0))

    def _stop(self) -> None:
        error: Exception | None = None
        try:
            self._client.stop()
            self._client.close()
        except kazoo_errors.WriterNotClosedException as found:
            error = found  # name resolution hangs, or the like: kazoo's thread ends by itself
        finally:
            self.post(partial(self._stopped, error))


class _ZooKeeperWatch:
    """A standing watch: re-armed when it fired, and on each new connection.

    The callback reads after the new watch was sent, so nothing falls between the two.
    """

    def __init__(
        self,
        store: ZooKeeperStore,
        path: str,
        callback: Callable[[], None],
        *,
        is_children: bool,
    ) -> None:
        self.path = path
        self.is_children = is_children
        self._store = store
        self._callback = callback
        self._is_closed = False
        self._is_denied = False
        """The node's ACL does not let this session see it; that was told."""

    def close(self) -> None:
        self._is_closed = True
        self._store.drop_watch(self)

    def arm(self) -> None:
        """Ask for the next change. When the connection is down: CONNECTED asks again."""
        client = self._store.client
        ask = client.get_children_async if self.is_children else client.exists_async
        self._store.submit(partial(ask, self.path, watch=self.on_event), self._on_armed)

    def call(self) -> None:
        if not self._is_closed:
            call_safely(self._callback)

    def on_event(self, event: Any) -> None:
        """Take the news on kazoo's thread."""
        if event.type != EventType.NONE:  # NONE: the connection broke
            self._store.post(self._on_change)

    def _on_change(self) -> None:
        if not self._is_closed:
            self.arm()
            self.call()

    def _on_armed(self, _: Any, error: Exception | None) -> None:
        if self._is_closed:
            self._store.forget_watcher(self)
        elif error is None:
            self._is_denied = False
        elif isinstance(error, kazoo_errors.NoNodeError) and self.is_children:
            # Only data watches can wait for a node that does not exist.
            start = partial(self._store.client.exists_async, self.path, watch=self.on_event)
            self._store.submit(start, self._on_waiting)
        else:
            self._report(error)

    def _on_waiting(self, stat: Any, error: Exception | None) -> None:
        if self._is_closed:
            self._store.forget_watcher(self)
        elif error is not None:
            self._report(error)
        elif stat is not None:
            self._on_change()  # it was created meanwhile

    def _report(self, error: Exception) -> None:
        found = store_error(error, self.path)
        if isinstance(found, StoreConnectionError | errors.SessionExpiredError):
            return  # armed again when it is connected
        if isinstance(found, StoreAccessError):
            if not self._is_denied:
                self._is_denied = True
                _log.error("changes of a node are not seen: %s", found)
            self._store.later(_DENIED_PAUSE_S, self._on_change)
            return
        asyncio.get_running_loop().call_exception_handler(
            {"message": "a watch could not be set", "exception": found}
        )


def _to_kazoo(acl: Acl) -> list[security.ACL]:
    return [security.ACL(e.permissions, security.Id(e.scheme, e.id)) for e in acl]


def _is_on_a_loop() -> bool:
    """Tell whether this thread runs an asyncio loop: kazoo's does not."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _to_stat(stat: ZnodeStat) -> Stat:
    return Stat(stat.version, stat.ctime, stat.mtime, stat.ephemeralOwner, stat.numChildren)
