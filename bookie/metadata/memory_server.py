"""MemoryStoreServer: the tree that memory stores share, their sessions and their watches.

What a ZooKeeper ensemble is to its clients, without a network: each MemoryStore (memory.py) is one
client. disconnect(), reconnect(), expire(), freeze() and thaw() do to a session what networks and
servers do. Used from one asyncio loop; its timers run in the context in which it was made, so that
they outlive the crash of a simulated node.
"""

import asyncio
import contextvars
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from bookie.metadata.acl import Acl, StoreAccess
from bookie.metadata.interfaces import Delete, Operation, Stat
from bookie.metadata.memory_tree import SERVER, Caller, Change, MemoryTree
from bookie.metadata.watches import call_safely
from bookie.runtime.interfaces import Clock


class StoreClient(Protocol):
    """A MemoryStore, as the server sees it."""

    session: "Session"

    @property
    def watches(self) -> list["MemoryWatch"]:
        """The standing watches, oldest first."""
        ...

    def on_disconnected(self, session: "Session", reconnect_s: float | None) -> None:
        """Take note that the connection broke; come back after reconnect_s, if it is given."""
        ...

    def on_reconnected(self) -> None:
        """Take note that the server can be reached again."""
        ...

    def post_event(self, path: str, function: Callable[[], None]) -> None:
        """Run function on the client's side, behind what was sent to it before."""
        ...

    def drop_watch(self, watch: "MemoryWatch") -> None:
        """Forget a watch that was closed."""
        ...


class MemoryWatch:
    """A standing watch of one client; made by MemoryStore.watch() and watch_children()."""

    def __init__(
        self, store: "StoreClient", path: str, callback: Callable[[], None], *, is_children: bool
    ) -> None:
        self.store = store
        self.path = path
        self.is_children = is_children
        self._callback = callback
        self._is_notice_due = False
        self._is_closed = False

    def notify(self) -> None:
        """Call back soon; several notices before that are one."""
        if not self._is_notice_due and not self._is_closed:
            self._is_notice_due = True
            self.store.post_event(self.path, self._call)

    def forget_notice(self) -> None:
        """Expect nothing that was on the way: the connection broke."""
        self._is_notice_due = False

    def close(self) -> None:
        self._is_closed = True
        self.store.drop_watch(self)

    def _call(self) -> None:
        self._is_notice_due = False
        if not self._is_closed:
            call_safely(self._callback)


@dataclass(frozen=True, slots=True)
class Lag:
    """How far behind a server is to which a client comes back."""

    view: MemoryTree
    """What it shows."""
    lag_s: float
    """For so long, of the loop's time; math.inf: until it has to catch up."""


@dataclass(slots=True, eq=False)
class Session:
    """What the server knows of one session."""

    session_id: int
    store: "StoreClient"
    caller: Caller
    is_connected: bool = True
    is_alive: bool = True
    view: MemoryTree | None = None
    """What its reads see while it is frozen."""
    lag: Lag | None = None
    """What its reads will see when it is connected again; None: the truth."""
    held: list[MemoryWatch] | None = None
    """Watches whose news a frozen session has yet to get."""
    expiry: asyncio.TimerHandle | None = None


class MemoryStoreServer:
    """The tree that MemoryStores share, and their sessions."""

    def __init__(self, clock: Clock, *, session_timeout_s: float | None = None) -> None:
        """Take the wall clock for nodes' times.

        session_timeout_s: a session that stays disconnected this long (of the loop's time) is
        expired; None: only expire() does.
        """
        self._clock = clock
        self.session_timeout_s = math.inf if session_timeout_s is None else session_timeout_s
        self.context = contextvars.copy_context()
        self._tree = MemoryTree()
        self._sessions: dict[int, Session] = {}
        self._last_session_id = 0x1000
        self._watches: dict[tuple[str, bool], dict[MemoryWatch, None]] = {}

    @property
    def tree(self) -> MemoryTree:
        """The present truth, for checkers: read it only."""
        return self._tree

    @property
    def session_ids(self) -> list[int]:
        """The living sessions, oldest first."""
        return list(self._sessions)

    def disconnect(
        self, session_id: int, *, reconnect_s: float | None = None, lag: Lag | None = None
    ) -> None:
        """Break a session's connection: what is under way is lost. The session lives on.

        reconnect_s: the client comes back by itself after so long; None: on reconnect(). lag: it
        comes back to a server that is behind.
        """
        session = self._sessions.get(session_id)
        if session is None or not session.is_connected:
            return
        session.is_connected = False
        self._thaw(session)
        session.lag = lag
        if self.session_timeout_s < math.inf:
            session.expiry = asyncio.get_running_loop().call_later(
                self.session_timeout_s, self.expire, session_id, context=self.context
            )
        session.store.on_disconnected(session, reconnect_s)

    def reconnect(self, session_id: int) -> None:
        """Let a disconnected client find the server again; does nothing to others."""
        session = self._sessions.get(session_id)
        if session is None or session.is_connected:
            return
        session.is_connected = True
        if session.expiry is not None:
            session.expiry.cancel()
            session.expiry = None
        lag, session.lag = session.lag, None
        if lag is not None:
            self._freeze(session, lag)
        session.store.on_reconnected()

    def expire(self, session_id: int) -> None:
        """End a session; its ephemerals go.

        The client hears of it when it is connected again: at once if it is connected now.
        """
        session = self._sessions.get(session_id)
        if session is None:
            return
        was_connected = session.is_connected
        if was_connected:
            self.disconnect(session_id)
        self._end(session)
        if was_connected:
            session.store.on_reconnected()

    def freeze(self, session_id: int) -> None:
        """Let a session read what is there now, and hear of no change, until it catches up.

        As a client of a server that lags behind: until sync(), or a write that is done.
        """
        session = self._sessions.get(session_id)
        if session is not None and session.is_connected and session.view is None:
            self._freeze(session, Lag(self._tree.copy(), math.inf))

    def thaw(self, session_id: int) -> None:
        """Undo freeze()."""
        session = self._sessions.get(session_id)
        if session is not None:
            self._thaw(session)

    # --- for MemoryStore ------------------------------------------------------------------------

    def open_session(self, store: "StoreClient", access: StoreAccess) -> Session:
        self._last_session_id += 1
        caller = Caller(self._last_session_id, access)
        session = Session(self._last_session_id, store, caller)
        self._sessions[session.session_id] = session
        return session

    def close_session(self, session: Session) -> None:
        """End a session at its client's wish, if that arrives; else it expires."""
        if session.is_connected:
            self._end(session)

    def view_of(self, session: Session) -> MemoryTree:
        return self._tree if session.view is None else session.view

    def change(
        self, session: Session, operations: Sequence[Operation], *, make_parents: bool = False
    ) -> list[str]:
        now_ms = self._clock.wall_us() // 1000
        if make_parents:
            for operation in operations:
                self._notify(self._tree.make_parents(operation.path, session.caller, now_ms))
        # One that is refused promises nothing of reads (VersionedStore): the session lags on.
        paths, changes = self._tree.apply(operations, session.caller, now_ms)
        self._thaw(session)
        self._notify(changes)
        return paths

    def change_acl(self, session: Session, path: str, acl: Acl) -> Stat:
        stat = self._tree.write_acl(path, acl, session.caller)
        self._thaw(session)
        return stat

    def catch_up(self, session: Session) -> None:
        self._thaw(session)

    def add_watch(self, watch: MemoryWatch) -> None:
        self._watches.setdefault((watch.path, watch.is_children), {})[watch] = None

    def drop_watch(self, watch: MemoryWatch) -> None:
        watches = self._watches.get((watch.path, watch.is_children), {})
        watches.pop(watch, None)
        if not watches:
            self._watches.pop((watch.path, watch.is_children), None)

    def _end(self, session: Session) -> None:
        if session.expiry is not None:
            session.expiry.cancel()
        self._sessions.pop(session.session_id, None)
        session.is_alive = session.is_connected = False
        gone = [Delete(path) for path in self._tree.ephemerals_of(session.session_id)]
        _, changes = self._tree.apply(gone, SERVER, self._clock.wall_us() // 1000)
        self._notify(changes)

    def _freeze(self, session: Session, lag: Lag) -> None:
        session.view, session.held = lag.view, []
        if not math.isinf(lag.lag_s):
            asyncio.get_running_loop().call_later(
                lag.lag_s, self._thaw_from, session, lag.view, context=self.context
            )

    def _thaw_from(self, session: Session, view: MemoryTree) -> None:
        if session.view is view:
            self._thaw(session)

    def _thaw(self, session: Session) -> None:
        view, held = session.view, session.held
        session.view = session.held = None
        if view is None or held is None:
            return
        # A watch set meanwhile hears, too, of what came before it and was not to be seen yet.
        held += [watch for watch in session.store.watches if self._differs(view, watch)]
        for watch in held:
            watch.notify()

    def _differs(self, view: MemoryTree, watch: MemoryWatch) -> bool:
        before, now = view.exists(watch.path), self._tree.exists(watch.path)
        if before is None or now is None:
            return before is not now
        if watch.is_children:
            return view.children(watch.path) != self._tree.children(watch.path)
        return (before.version, before.ctime_ms) != (now.version, now.ctime_ms)

    def _notify(self, changes: Sequence[Change]) -> None:
        for change in changes:
            for watch in list(self._watches.get((change.path, change.is_children), ())):
                session = watch.store.session
                if session.held is not None:
                    session.held.append(watch)
                elif session.is_connected:
                    watch.notify()
