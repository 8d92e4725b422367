"""MemoryStore: a VersionedStore in memory, for tests, simulations and embedded use.

One MemoryStoreServer holds the tree and the sessions; each MemoryStore is one client with one
session. Requests, answers and events of a session stay in order, as on a ZooKeeper connection; the
contract suite (tests/contract/test_versioned_store.py) runs over both. Faults come from outside: a
Link decides each request's delays and whether its connection breaks before or after it was done;
disconnect(), reconnect(), expire(), freeze() and thaw() do to a session what a network and a server
do. Reads of a session that lags are stale until sync() or until a write of its own was done, as the
contract allows; a write that was refused does not end that. Used from one asyncio loop. Timers of
the server run in the context in which it was made, those of a client in the client's, so that the
crash of a simulated node takes only its own.
"""

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeVar

from bookie.errors import (
    ClientClosedError,
    IncorrectParameterError,
    StoreConnectionError,
    StoreError,
)
from bookie.metadata.acl import Acl, StoreAccess
from bookie.metadata.interfaces import (
    ANY_VERSION,
    Create,
    Delete,
    Operation,
    SessionState,
    Stat,
    Watch,
    Write,
)
from bookie.metadata.lane import Lane
from bookie.metadata.memory_server import Lag, MemoryStoreServer, MemoryWatch, Session
from bookie.metadata.paths import check_path
from bookie.metadata.watches import Callbacks

T = TypeVar("T")


class Fate(Enum):
    """What becomes of a request. The last two break the connection."""

    ANSWERED = "answered"
    LOSE_REQUEST = "lose request"
    """It never arrives."""
    LOSE_ANSWER = "lose answer"
    """It is done; the caller is not told."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a request travels."""

    request_s: float = 0.0
    answer_s: float = 0.0
    fate: Fate = Fate.ANSWERED
    reconnect_s: float | None = 0.0
    """When the connection breaks: until it is made again; None: until reconnect()."""
    lag_s: float = 0.0
    """When the connection breaks: how long the server of the next one shows, unless it has to
    sync(), what there was before this request; math.inf: until then."""


DIRECT = Plan()


class Link(Protocol):
    """The way between one client and the server; asked once for each request, in order."""

    def plan(self, session_id: int, path: str, *, is_write: bool) -> Plan: ...

    def event_s(self, session_id: int, path: str) -> float:
        """Return how long the news of a change at path travels to the client."""
        ...


class DirectLink:
    """Nothing is delayed, nothing is lost."""

    def plan(self, session_id: int, path: str, *, is_write: bool) -> Plan:
        return DIRECT

    def event_s(self, session_id: int, path: str) -> float:
        return 0.0


class MemoryStore:
    """VersionedStore: one client of a MemoryStoreServer. Made on the loop that it is used on."""

    def __init__(
        self,
        server: MemoryStoreServer,
        link: Link | None = None,
        access: StoreAccess = StoreAccess(),  # noqa: B008 - immutable
    ) -> None:
        self._server = server
        self._access = access
        self._link = link or DirectLink()
        context = contextvars.copy_context()
        self._requests = Lane(server.context)
        self._answers = Lane(context)
        self._context = context
        self._pending: dict[asyncio.Future[None], None] = {}
        self._watches: dict[MemoryWatch, None] = {}
        self._callbacks: Callbacks[[SessionState]] = Callbacks()
        self._state = SessionState.CONNECTED
        self._is_closed = False
        self.session = server.open_session(self, access)
        """The server's side of the present session."""
        self._session_id = self.session.session_id

    @property
    def watches(self) -> list[MemoryWatch]:
        """The standing watches, oldest first; for the server."""
        return list(self._watches)

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def session_timeout_s(self) -> float:
        return self._server.session_timeout_s

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
        operation = Create(path, data, is_ephemeral, is_sequence)

        def work(session: Session) -> str:
            return self._server.change(session, [operation], make_parents=make_parents)[0]

        return await self._ask(path, work, is_write=True)

    async def read(self, path: str) -> tuple[bytes, Stat]:
        def work(session: Session) -> tuple[bytes, Stat]:
            return self._server.view_of(session).read(path, session.caller)

        return await self._ask(path, work)

    async def exists(self, path: str) -> Stat | None:
        def work(session: Session) -> Stat | None:
            return self._server.view_of(session).exists(path, session.caller)

        return await self._ask(path, work)

    async def write(self, path: str, data: bytes, version: int) -> Stat:
        def work(session: Session) -> Stat:
            self._server.change(session, [Write(path, data, version)])
            return self._server.tree.read(path)[1]

        return await self._ask(path, work, is_write=True)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        def work(session: Session) -> None:
            self._server.change(session, [Delete(path, version)])

        await self._ask(path, work, is_write=True)

    async def children(self, path: str) -> list[str]:
        def work(session: Session) -> list[str]:
            return self._server.view_of(session).children(path, session.caller)

        return await self._ask(path, work)

    async def read_acl(self, path: str) -> tuple[Acl, Stat]:
        def work(session: Session) -> tuple[Acl, Stat]:
            return self._server.view_of(session).read_acl(path, session.caller)

        return await self._ask(path, work)

    async def write_acl(self, path: str, acl: Acl) -> Stat:
        def work(session: Session) -> Stat:
            return self._server.change_acl(session, path, acl)

        return await self._ask(path, work, is_write=True)

    async def multi(self, operations: Sequence[Operation]) -> None:
        def work(session: Session) -> None:
            self._server.change(session, operations)

        path = operations[0].path if operations else "/"
        await self._ask(path, work, is_write=True)

    async def sync(self, path: str) -> None:
        await self._ask(path, self._server.catch_up)

    def watch(self, path: str, callback: Callable[[], None]) -> Watch:
        return self._add_watch(MemoryWatch(self, path, callback, is_children=False))

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        return self._add_watch(MemoryWatch(self, path, callback, is_children=True))

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._callbacks.clear()
        for watch in list(self._watches):
            watch.close()
        self._server.close_session(self.session)
        self._break(ClientClosedError("the metadata store's client was closed"))

    # --- for the server and the watches ---------------------------------------------------------

    def on_disconnected(self, session: Session, reconnect_s: float | None) -> None:
        if self._is_closed:
            return
        self._break(
            StoreConnectionError("the connection to the metadata store broke before the answer")
        )
        for watch in self._watches:
            watch.forget_notice()
        self._tell(SessionState.SUSPENDED)
        if reconnect_s is not None:
            asyncio.get_running_loop().call_later(
                reconnect_s, self._come_back, session, context=self._context
            )

    def on_reconnected(self) -> None:
        """Go on with the session, or with a new one after LOST when it is dead."""
        if self._is_closed:
            return
        if self.session.is_alive:
            self._answers.post(0.0, self._resume)
        else:
            self._tell(SessionState.LOST)
            self._answers.post(0.0, self._begin_session)

    def post_event(self, path: str, function: Callable[[], None]) -> None:
        self._answers.post(self._link.event_s(self._session_id, path), function)

    def drop_watch(self, watch: MemoryWatch) -> None:
        self._watches.pop(watch, None)
        self._server.drop_watch(watch)

    def _come_back(self, session: Session) -> None:
        if session is not self.session or self._is_closed:
            return
        if session.is_alive:
            self._server.reconnect(session.session_id)
        elif self._state is SessionState.SUSPENDED:
            self.on_reconnected()

    def _begin_session(self) -> None:
        self.session = self._server.open_session(self, self._access)
        self._session_id = self.session.session_id
        self._resume()

    def _resume(self) -> None:
        if self.session.is_connected:
            self._set_state(SessionState.CONNECTED)
            for watch in self._watches:
                watch.notify()  # whatever changed meanwhile

    def _tell(self, state: SessionState) -> None:
        self._answers.post(0.0, lambda: self._set_state(state))

    def _set_state(self, state: SessionState) -> None:
        if self._state is not state and not self._is_closed:
            self._state = state
            self._callbacks.call(state)

    def _add_watch(self, watch: MemoryWatch) -> MemoryWatch:
        check_path(watch.path)
        if self._is_closed:
            raise ClientClosedError("the metadata store's client was closed: no watch can be set")
        self._watches[watch] = None
        self._server.add_watch(watch)
        return watch

    def _break(self, error: Exception) -> None:
        """Fail what is under way and forget what is on the wire."""
        self._requests.clear()
        self._answers.clear()
        pending, self._pending = self._pending, {}
        for future in pending:
            if not future.done():
                future.set_exception(error)
                future.exception()  # its waiter may be gone: the exception counts as seen

    async def _ask(self, path: str, work: Callable[[Session], T], *, is_write: bool = False) -> T:
        check_path(path)
        if self._is_closed:
            raise ClientClosedError("the metadata store's client was closed")
        session = self.session
        if not session.is_connected or self._state is not SessionState.CONNECTED:
            raise StoreConnectionError(f"{path}: the metadata store is not connected", path)
        plan = self._link.plan(session.session_id, path, is_write=is_write)
        answered = asyncio.get_running_loop().create_future()
        results: list[T] = []
        self._pending[answered] = None

        before = None

        def lose() -> None:
            self._server.disconnect(session.session_id, reconnect_s=plan.reconnect_s, lag=before)

        def answer(error: Exception | None) -> None:
            self._pending.pop(answered, None)
            if not answered.done():
                if error is None:
                    answered.set_result(None)
                else:
                    answered.set_exception(error)

        def arrive() -> None:
            nonlocal before
            if plan.lag_s and plan.fate is not Fate.ANSWERED:
                before = Lag(self._server.tree.copy(), plan.lag_s)
            if plan.fate is Fate.LOSE_REQUEST:
                lose()
                return
            error = None
            try:
                results.append(work(session))
            except (StoreError, IncorrectParameterError) as found:
                error = found
            if plan.fate is Fate.LOSE_ANSWER:
                self._answers.post(plan.answer_s, lose)
            else:
                self._answers.post(plan.answer_s, lambda: answer(error))

        self._requests.post(plan.request_s, arrive)
        await answered
        return results[0]
