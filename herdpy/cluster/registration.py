"""Registration: a node of the cluster in the metadata store, and the tenures of what it leads.

    <root>/nodes/<id>   ephemeral: where the node is, what it speaks, which life of it that is

One multi renews all: it writes the node's own node, and checks for each tablespace that it leads
that its record is at the version that has this node's epoch. That fails once another node has named
itself, so a tenure is not renewed from then on, whatever session the nodes of the store are of. The
version of leaders/<id> would prove nothing: a node that is made anew begins at 0 again (ADR 74).
One asyncio loop.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from bookie.errors import BadVersionError, BookieError, NodeExistsError, NoNodeError
from bookie.metadata.acl import StoreAccess
from bookie.metadata.interfaces import Check, SessionState, VersionedStore, Watch, Write
from bookie.metadata.patience import BROKEN, PATIENCE_S, Patience, ask
from herdpy.cluster.json_nodes import read_node
from herdpy.cluster.observability.figures import TenureFigures
from herdpy.cluster.observability.replica_node import ReplicaNode
from herdpy.cluster.tablespace_nodes import TablespaceNodes, Versioned
from herdpy.cluster.tenure import Tenure
from herdpy.errors import Error, InternalError, OperationalError, ProgrammingError, Retry

FORMAT = 1
_RENEWALS_PER_TIMEOUT = 5
"""Four may fail, one behind the other, before answers wait."""
_AGAIN_SHARE = 0.02
"""Of the session's time-out: until what failed is tried again."""
_PERIOD_S_MAX = 10.0
_STALE_TIMEOUTS = 3.0
"""So long does the node of a former life last at the most, in time-outs of its session."""
_TIMEOUT_S_MAX = 60.0
"""Of a session, where one that never ends is waited for."""
_log = logging.getLogger(__name__)


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the store says of a node that runs."""

    format: int = FORMAT
    id: str
    life: str
    """Of chance, another one with each start of the process."""
    addresses: dict[str, str] = {}
    """By the schemes of URLs ("herd", "herd+grpc"): host:port, or [host]:port."""
    has_tls: bool = False
    """It lets clients in by TLS alone; else in clear alone."""
    zookeeper_logins: tuple[str, ...] = ()
    """Labels of its identities in the store (Identity.label()); `cluster acl set` reads them."""
    zookeeper_readers: tuple[str, ...] = ()
    """Labels of who may read what drivers need, of what it makes."""
    makes_secured_nodes: bool = False
    version: str = ""
    """Of herdpy."""
    session_timeout_s: float = 0.0
    inactivity_limit_s: float = 0.0
    """By which it ticks the logs that it writes; 0: it does not."""

    def with_access(self, access: StoreAccess) -> "NodeRecord":
        """Return it with what there is to say of the store's access."""
        return msgspec.structs.replace(
            self,
            zookeeper_logins=tuple(each.label() for each in access.identities),
            zookeeper_readers=tuple(each.label() for each in access.readable.readers),
            makes_secured_nodes=access.is_secured,
        )

    def to_bytes(self) -> bytes:
        return msgspec.json.encode(self)

    @staticmethod
    def of_bytes(data: bytes, path: str) -> "NodeRecord":
        """Read a node; CorruptionError: it is malformed, OperationalError: of a newer herdpy."""
        return read_node(data, path, NodeRecord, FORMAT, "a node")


@dataclass(eq=False)
class _Leadership:
    name: str
    named: Versioned
    session_id: int
    """Of the leader's node in the store."""
    tenure: Tenure
    replica: ReplicaNode | None


class Registration:
    """See the module."""

    def __init__(
        self,
        store: VersionedStore,
        nodes: TablespaceNodes,
        record: NodeRecord,
        *,
        now_s: Callable[[], float],
        on_refused: Callable[[Error], object] = lambda _: None,
        figures: TenureFigures | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """now_s: seconds of a clock that goes on while the machine sleeps.

        on_refused: told once when another process has the id while this one runs.
        """
        self._store = store
        self._nodes = nodes
        self._record = record
        self._path = nodes.node_path(record.id)
        self.now_s = now_s
        self._on_refused = on_refused
        self._patience_s = patience_s
        self._led: list[_Leadership] = []
        self._figures = figures or TenureFigures()
        self._figures.count_held = lambda: sum(each.tenure.held_count for each in list(self._led))
        self._changed = asyncio.Event()
        """There is something to renew, or to make anew."""
        self._task: asyncio.Task[None] | None = None
        self._session_watch = store.on_session(self._on_session)
        self._own_watch: Watch | None = store.watch(self._path, self._on_change)
        """While nothing is led: each renewal writes that node, and would fire it."""
        self._has_node = False
        self._loop = asyncio.get_running_loop()

    async def start(self) -> None:
        """Make the node's own node, once that of its former life is gone.

        OperationalError 55006: another process is this node. close() in any case.
        """
        await self._own()
        self._task = self._loop.create_task(self._run())

    async def close(self) -> None:
        """End all tenures, and let the node be gone; repeatable."""
        for each in list(self._led):
            self.end(each.tenure)
        self._session_watch.close()
        self._watch_no_more()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
            with suppress(BookieError):  # it goes with the session
                if await self._owner() == self._store.session_id:
                    await self._store.delete(self._path)

    # --- tenures ---------------------------------------------------------------------------------

    async def lead(self, name: str, named: Versioned, replica: ReplicaNode | None = None) -> Tenure:
        """Return the tenure of a leadership, renewed once, and renew it from now on.

        named: the tablespace's record as this node has named itself in it; the leader's node is
        this session's. replica: written with renewals when it is due. OperationalError 40001,
        SAFE: another node has named itself since, or the session is over.
        """
        tenure = Tenure(self.now_s, self._loop.call_soon)
        led = _Leadership(name, named, self._store.session_id, tenure, replica)
        self._led.append(led)
        self._watch_no_more()
        if replica is not None:
            replica.rides = True
        again_s = self._again_s()
        while not led.tenure.holds():
            if self._store.session_id != led.session_id or led.tenure.is_over:
                self.end(led.tenure)
                raise OperationalError(
                    f'tablespace "{name}": this node may not answer: another one is about to lead',
                    sqlstate="40001",
                    retry=Retry.SAFE,
                )
            try:
                if not await self._renew():
                    await asyncio.sleep(again_s)
            except BaseException:
                self.end(led.tenure)
                raise
        self._changed.set()
        return led.tenure

    def end(self, tenure: Tenure) -> None:
        """Let no answer leave under it any more; repeatable."""
        tenure.end()
        for each in self._led:
            if each.tenure is not tenure:
                continue
            self._figures.held += tenure.held_count
            if each.replica is not None:
                each.replica.rides = False
        self._led = [each for each in self._led if each.tenure is not tenure]
        if not self._led and self._own_watch is None:
            self._own_watch = self._store.watch(self._path, self._on_change)
            self._on_change()  # it may be gone since the last renewal

    def _watch_no_more(self) -> None:
        if self._own_watch is not None:
            self._own_watch.close()
            self._own_watch = None

    async def record_of(self, node_id: str) -> NodeRecord | None:
        """Return what another node has registered; None: nothing, it does not run.

        MetadataStoreError: the store gives no answer.
        """
        path = self._nodes.node_path(node_id)
        try:
            data, _ = await ask(self._store, self._patience_s, lambda: self._store.read(path))
        except NoNodeError:
            return None
        return NodeRecord.of_bytes(data, path)

    async def is_there(self, node_id: str) -> bool:
        """Return whether another node is registered; MetadataStoreError: no answer."""
        path = self._nodes.node_path(node_id)
        found = await ask(self._store, self._patience_s, lambda: self._store.exists(path))
        return found is not None

    async def timeout_of(self, node_id: str) -> float:
        """Return the time-out of the session of another node, in seconds, or of this one's own.

        MetadataStoreError: the store gives no answer.
        """
        own_s, found = self._store.session_timeout_s, await self.record_of(node_id)
        return own_s if found is None else max(own_s, found.session_timeout_s)

    # --- the loop --------------------------------------------------------------------------------

    def _on_change(self) -> None:
        """Look whether the node's own node is there still; a renewal finds that out by itself."""
        if not self._led:
            self._has_node = False
            self._changed.set()

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self._has_node = False
            for each in list(self._led):
                self.end(each.tenure)  # of a session that is over, with its leaders' nodes
        self._changed.set()

    async def _run(self) -> None:
        """Renew what is led, and have the node's own node again where its session has ended."""
        again_s, told = self._again_s(), ""
        while True:
            self._changed.clear()
            period_s = min(self._store.session_timeout_s / _RENEWALS_PER_TIMEOUT, _PERIOD_S_MAX)
            try:
                if not self._has_node:
                    await self._own()
                is_done = not self._led or await self._renew()
            except _TakenError as error:
                self._on_refused(error)
                return
            except (BookieError, Error) as error:
                if told != str(error):  # a store that refuses does so again and again
                    _log.warning("node %s: %s", self._record.id, error)
                told, is_done = str(error), False
            except Exception as error:  # noqa: BLE001 - a task must not die in silence
                _log.error("node %s: its registration", self._record.id, exc_info=error)
                self._on_refused(InternalError(f"node {self._record.id}: {error!r}"))
                return
            with suppress(TimeoutError):
                if not is_done:
                    await asyncio.sleep(again_s)
                    again_s = min(2 * again_s, period_s)
                    continue
                again_s, told = self._again_s(), ""
                if self._led:
                    async with asyncio.timeout(period_s):
                        await self._changed.wait()
                else:
                    await self._changed.wait()

    def _again_s(self) -> float:
        return _AGAIN_SHARE * min(self._store.session_timeout_s, _TIMEOUT_S_MAX)

    async def _renew(self) -> bool:
        """Renew all tenures; False: the store did not confirm it."""
        store, led = self._store, list(self._led)
        session_id, sent_s = store.session_id, self.now_s()
        checks = [Check(self._nodes.path(each.name), each.named.version) for each in led]
        riding: list[tuple[ReplicaNode, Write]] = []
        for each in led:
            if each.replica is not None and (write := each.replica.due()) is not None:
                riding.append((each.replica, write))
        also = [write for _, write in riding]
        try:
            await store.multi([Write(self._path, self._record_now()), *checks, *also])
        except (BadVersionError, NoNodeError):
            for replica, _ in riding:
                replica.failed()
            self._figures.refused += 1
            await self._look_again(led)
            return False
        except BROKEN:
            self._figures.unanswered += 1
            return False
        except BookieError:
            for replica, _ in riding:
                replica.failed()
            self._figures.refused += 1
            raise
        for replica, write in riding:
            replica.wrote(write)
        self._figures.confirmed += 1
        if store.session_id != session_id:
            return False  # whose session it was on is not sure
        for each in led:
            if each.session_id == session_id:
                each.tenure.renew(sent_s, store.session_timeout_s)
        return True

    async def _look_again(self, led: list[_Leadership]) -> None:
        """Find out why a renewal was refused: which records have changed, and how."""
        for each in led:
            try:
                found = await self._nodes.read(each.name)
            except ProgrammingError:
                self.end(each.tenure)  # the tablespace was dropped
                continue
            is_led = (found.record.id, found.record.epoch, found.record.leader) == (
                each.named.record.id,
                each.named.record.epoch,
                each.named.record.leader,
            )
            if is_led:
                each.named = found  # its limits, its name
            else:
                self.end(each.tenure)
        self._has_node = self._has_node and await self._owner() == self._store.session_id
        self._changed.set()

    # --- the node's own node ---------------------------------------------------------------------

    def _record_now(self) -> bytes:
        timeout_s = min(self._store.session_timeout_s, 1e9)
        return msgspec.structs.replace(self._record, session_timeout_s=timeout_s).to_bytes()

    async def _own(self) -> None:
        """Have the node's own node, once that of another session is gone; _TakenError: it stays."""
        patience = Patience(self._store, self._patience_s)
        wait_s = _STALE_TIMEOUTS * min(self._store.session_timeout_s, _TIMEOUT_S_MAX)
        other, end_s = 0, 0.0
        while not self._has_node:
            self._changed.clear()
            try:
                await self._store.create(self._path, self._record_now(), is_ephemeral=True)
            except NodeExistsError:
                owner = await self._owner()
            except BROKEN as error:
                await patience.again(error)
                continue
            else:
                owner = self._store.session_id
            now_s = self._loop.time()
            if owner is None:
                continue  # it has gone meanwhile
            if owner == self._store.session_id:
                self._has_node = True
            elif owner != other and owner:
                other, end_s = owner, now_s + wait_s
            elif not owner or now_s >= end_s:  # 0: of no session, it would stay for ever
                raise await self._is_taken()
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(end_s):
                        await self._changed.wait()

    async def _owner(self) -> int | None:
        """Return the session that the node's own node is of; 0: of none, None: it is not there."""

        async def question() -> int | None:
            await self._store.sync(self._path)
            stat = await self._store.exists(self._path)
            return None if stat is None else stat.ephemeral_owner

        return await ask(self._store, self._patience_s, question)

    async def _is_taken(self) -> "_TakenError":
        async def question() -> str:
            try:
                data, _ = await self._store.read(self._path)
            except NoNodeError:
                return "one that has just ended"
            found = NodeRecord.of_bytes(data, self._path)
            return f"one at {found.addresses.get('herd', 'an unknown address')}"

        where = await ask(self._store, self._patience_s, question)
        return _TakenError(
            f"{self._path}: another process runs as node {self._record.id}, {where}",
            sqlstate="55006",
            hint="end that one, or give this one an id and a directory of its own",
        )


class _TakenError(OperationalError):
    """Another process has the node's id, for longer than a session lasts without it."""
