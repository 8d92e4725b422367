"""Node: the part of one process in a cluster: a Member for each tablespace that it has a copy of.

    node = Node(store, world, root="/herd", ...)
    await node.start()
    error = await node.wait_failed()       # it must not go on; or it is closed by its owner
    await node.close()

One asyncio loop, on which the store and the client of the bookies live. Copies wait in threads of
their own, one for each tablespace, and reach the loop by NodeLoop. Memory, DuckDB, plans and
housekeeper are the node's, and all copies have their parts of them (herdpy/engine/resources.py).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from bookie.client.client import LedgerClient
from bookie.config import ClientConfig
from bookie.errors import BookieError
from bookie.metadata.interfaces import SessionState, VersionedStore, Watch
from bookie.runtime.interfaces import Clock, DirectoryLock, Disk, DiskLockedError, Driver, Rng, Tls
from bookie.runtime.os_executors import Executor
from bookie.runtime.os_process import describe_process
from herdpy.cluster.blocking_chain import BlockingChain
from herdpy.cluster.chain import LedgerChain
from herdpy.cluster.cluster_record import ClusterRecord, check_access, read_cluster
from herdpy.cluster.database_copy import DatabaseCopy
from herdpy.cluster.listing import LedgerListing
from herdpy.cluster.member import Member, Service
from herdpy.cluster.node_identity import (
    LOCK,
    TEMP,
    NodeIdentity,
    check_id,
    new_identity,
    read_identity,
    write_identity,
)
from herdpy.cluster.observability.figures import NodeFigures, PartFigures
from herdpy.cluster.observability.known_cluster import KnownCluster
from herdpy.cluster.observability.replica_node import reported_s
from herdpy.cluster.part import State, Waits
from herdpy.cluster.registration import NodeRecord, Registration
from herdpy.cluster.tablespace_nodes import TablespaceNodes, TablespaceRecord
from herdpy.config import Config, NodeConfig
from herdpy.engine.closing import run_all
from herdpy.engine.instance import Instance
from herdpy.engine.maintenance.file_logs import LogSource
from herdpy.engine.resources import Resources, Tenant
from herdpy.errors import Error, InternalError, OperationalError, ProgrammingError
from herdpy.model.governor import Governor

T = TypeVar("T")
_log = logging.getLogger(__name__)
_AGAIN_S = 1.0
"""Before the list of tablespaces is read again that could not be."""
_RESIGN_S = 5.0
"""How long a store that is away is waited for at the end."""
_LAC_S = 0.02
"""How long a lone commit may stay unknown to those that follow."""


class Threads(Protocol):
    """Makes what runs the calls of a copy that wait, one at a time."""

    def __call__(self, name: str, thread_count: int = 1) -> Executor: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What a node has of its machine."""

    open_disk: Callable[[str], Disk]
    """Of a folder of the data directory, made when it is missing; "" is that directory."""
    where: str
    """How messages name the data directory."""
    clock: Clock
    elapsed: Callable[[], float]
    """Seconds of a clock that goes on while the machine sleeps."""
    rng: Rng
    driver: Driver
    new_executor: Threads
    governor: Governor


class NodeLoop:
    """The loop as the threads of a log have it (herdpy.cluster.blocking_chain.Loop)."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # an interrupt of the thread; nothing where it is done
            raise

    def post(self, function: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(function)


class TablespaceService(Service, Protocol):
    """What lets clients in to one tablespace, as long as the node carries it."""

    def close(self) -> None:
        """Take note that it is carried no more; behind stop()."""
        ...


class _Host(NamedTuple):
    """One tablespace on this node."""

    name: str
    member: Member
    service: TablespaceService
    executor: Executor
    known: KnownCluster
    tenant: Tenant


class Node:
    """See the module. All its tablespaces have one address."""

    def __init__(
        self,
        store: VersionedStore,
        world: World,
        *,
        root: str,
        node_id: str | None,
        address: str,
        config: NodeConfig,
        database: Config,
        new_service: Callable[[str, DatabaseCopy], TablespaceService],
        version: str = "",
        has_tls: bool = False,
        bookie_tls: Tls | None = None,
        figures: NodeFigures | None = None,
    ) -> None:
        """store: connected, the caller's, who closes it after the node.

        node_id: None takes that of the data directory, or one of chance. address: "host:port" at
        which new_service() lets clients in while this node leads a tablespace of a name; has_tls:
        by TLS alone. bookie_tls: what bookies are asked for TLS with; None: all goes in clear.
        """
        if node_id is not None:
            check_id(node_id)
        self._store = store
        self._world = world
        self._root = root
        self._config = config
        self._database = database
        self._wanted_id = node_id
        self._address = address
        self._new_service = new_service
        self._version = version
        self._has_tls = has_tls
        self._bookie_tls = bookie_tls
        self._figures = figures or NodeFigures()
        self._nodes = TablespaceNodes(store, root)
        self._loop = asyncio.get_running_loop()
        self._failed: asyncio.Future[Error] = self._loop.create_future()
        self.id = node_id or ""
        self._cluster: ClusterRecord | None = None
        self._lock: DirectoryLock | None = None
        self._client: LedgerClient | None = None
        self._registration: Registration | None = None
        self._resources: Resources | None = None
        self._hosts: dict[str, _Host] = {}
        """By the tablespace's id."""
        self._changed = asyncio.Event()
        self._watches: list[Watch] = []
        self._keeper: asyncio.Task[None] | None = None

    @property
    def parts(self) -> dict[str, State]:
        """What it is now for each tablespace that it has a copy of, by name. Any thread."""
        return {host.name: host.member.machine.state for host in list(self._hosts.values())}

    async def start(self) -> None:
        """Become a node of the cluster; close() it in any case.

        OperationalError 58P01: there is no cluster at the root; 55006: another process has the
        directory or the id; 55000: the directory is another node's or cluster's, or the store is
        not secured as this session is. Nothing was written then. BookieError: the store gives no
        answer.
        """
        cluster = self._cluster = await read_cluster(self._store, self._root)
        await check_access(self._store, self._root, cluster.ledgers)
        disk = self._world.open_disk("")
        identity = self._own_directory(disk, cluster)
        self.id = identity.id
        record = NodeRecord(
            id=self.id,
            life=self._world.rng.randbytes(8).hex(),
            addresses={"herd": self._address},
            has_tls=self._has_tls,
            version=self._version,
            inactivity_limit_s=self._config.inactivity_limit_s,
        ).with_access(self._store.access)
        self._registration = Registration(
            self._store,
            self._nodes,
            record,
            now_s=self._world.elapsed,
            on_refused=self._fail,
            figures=self._figures.tenures,
        )
        await self._registration.start()
        write_identity(disk, identity)  # only now nothing is left to refuse
        self._resources = self._new_resources()
        self._client = await LedgerClient.connect(
            self._store,
            rng=self._world.rng,
            clock=self._world.clock,
            root=cluster.ledgers,
            config=ClientConfig(is_ensemble_change_delayed=True, explicit_lac_interval_s=_LAC_S),
            tls=self._bookie_tls,
        )
        self._watches = [
            self._store.watch_children(f"{self._root}/tableSpaces", self._changed.set),
            self._store.on_session(self._on_session),
        ]
        self._changed.set()
        self._keeper = self._loop.create_task(self._keep_members())

    async def wait_failed(self) -> Error:
        """Wait until it must not go on, and return why: the owner closes it."""
        return await asyncio.shield(self._failed)

    async def give_away(self, drain_s: float) -> None:
        """Have other nodes lead what this one leads, if any are level; close() comes next.

        drain_s: for open transactions to end.
        """
        members = [host.member for host in self._hosts.values()]
        await asyncio.gather(*(member.give_away(drain_s) for member in members))

    async def close(self) -> None:
        """End in good order: resign, close the copies, deregister; repeatable.

        A store that does not answer for a while is closed, too: its session ends by its time-out.
        """
        async with AsyncExitStack() as stack:  # whatever fails, the directory is free behind it
            stack.callback(self._failed.cancel)
            if self._lock is not None:
                stack.callback(self._lock.close)
            if self._client is not None:
                stack.push_async_callback(self._client.close)
            if self._registration is not None:
                stack.push_async_callback(self._registration.close)
            if self._resources is not None:
                stack.push_async_callback(self._close_resources, self._resources)
            for watch in self._watches:
                watch.close()
            keeper, self._keeper = self._keeper, None
            if keeper is not None:
                keeper.cancel()
                await asyncio.gather(keeper, return_exceptions=True)
            ending = asyncio.gather(*map(self._end, list(self._hosts)))
            while not ending.done():
                await asyncio.wait([ending], timeout=_RESIGN_S)
                if not ending.done() and self._store.state is not SessionState.CONNECTED:
                    await self._store.close()
            await ending

    def _new_resources(self) -> Resources:
        world = self._world
        world.open_disk(TEMP)  # which makes the folder
        return Resources(
            clock=world.clock,
            driver=world.driver,
            config=self._database,
            where=world.where,
            title="the node",
            temp_directory=f"{world.where}/{TEMP}",
            governor=world.governor,
        )

    async def _close_resources(self, resources: Resources) -> None:
        """Wait for their threads; repeatable."""
        executor = self._world.new_executor("herdpy-closing")
        try:
            steps = partial(run_all, resources.closing_steps())
            await self._loop.run_in_executor(executor, steps)
        finally:
            executor.shutdown()

    def _own_directory(self, disk: Disk, cluster: ClusterRecord) -> NodeIdentity:
        """Lock the directory, and return whose it is, or is to be."""
        world, wanted = self._world, self._wanted_id
        read_identity(disk, world.where, cluster.id, wanted)  # before the lock makes a file in it
        try:
            self._lock = disk.lock(LOCK, describe_process())
        except DiskLockedError as error:
            raise OperationalError(
                f"{world.where} is in use by {error.owner or 'another process'}",
                sqlstate="55006",
                hint="end that one, or name another directory",
            ) from None
        found = read_identity(disk, world.where, cluster.id, wanted)
        return found or new_identity(cluster.id, wanted, world.rng)

    def _fail(self, error: Error) -> None:
        if not self._failed.done():
            self._failed.set_result(error)

    # --- its tablespaces -------------------------------------------------------------------------

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            _log.info("node %s: the metadata store answers again", self.id)
        elif state is SessionState.SUSPENDED:
            _log.warning("node %s: the metadata store does not answer", self.id)
        else:
            _log.warning("node %s: its session with the metadata store is over", self.id)

    async def _keep_members(self) -> None:
        """Have a member for each tablespace that this node has a copy of, until it is closed."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._look()
            except (BookieError, Error) as error:
                _log.warning("node %s: its tablespaces cannot be read: %s", self.id, error)
                self._loop.call_later(_AGAIN_S, self._changed.set)
            except Exception as error:  # noqa: BLE001 - a task must not die in silence
                _log.error("node %s: its tablespaces", self.id, exc_info=error)
                self._fail(InternalError(f"node {self.id}: {error!r}"))
                return

    async def _look(self) -> None:
        found: dict[str, str] = {}
        for name in await self._nodes.names():
            try:
                record = (await self._nodes.read(name)).record
            except ProgrammingError:  # dropped meanwhile
                continue
            if self.id in record.replicas:
                found[record.id] = name
        for tablespace_id in [each for each in self._hosts if each not in found]:
            _log.info("tablespace %s is not on this node any more", self._hosts[tablespace_id].name)
            await self._end(tablespace_id)
        for tablespace_id, name in found.items():
            if tablespace_id not in self._hosts:
                await self._begin(name)

    async def _begin(self, name: str) -> None:
        record = (await self._nodes.read(name)).record
        password = await self._nodes.password(record.id)
        world, client, registration = self._world, self._client, self._registration
        assert client is not None
        assert registration is not None
        assert self._resources is not None
        figures = self._figures.parts[record.id] = PartFigures()
        copy = DatabaseCopy(
            partial(self._new_instance, record.id),
            partial(self._new_chain, record, password, figures),
            world.driver,
            ledger_bytes_max=self._config.ledger_bytes_max,
            reported_s=reported_s,
        )
        executor = world.new_executor(f"herdpy-copy-{name}")
        service = self._new_service(name, copy)
        member = Member(
            name,
            self.id,
            copy,
            service,
            client=client,
            store=self._store,
            nodes=self._nodes,
            registration=registration,
            in_thread=lambda function: self._loop.run_in_executor(executor, function),
            draw=world.rng.random,
            # A take-over that does not come to its end: a little more than a session lasts.
            waits=Waits(
                other_s=self._config.session_timeout_s * 4 / 3,
                session_s=self._config.session_timeout_s,
            ),
            handover_drain_s=self._config.handover_drain_s,
            inactivity_limit_s=self._config.inactivity_limit_s,
            on_state=lambda state: self._tell(name, member, state),
            figures=figures,
        )
        known = KnownCluster(
            self._store, self._nodes, member, node_id=self.id, tablespace_id=record.id
        )
        tenant = self._resources.carry(record.id, name)
        self._hosts[record.id] = _Host(name, member, service, executor, known, tenant)
        try:
            known.start()
            await member.start()
        except BaseException:
            await self._end(record.id)
            raise

    async def _end(self, tablespace_id: str) -> None:
        """Close a member; repeatable, also when it was cancelled."""
        host = self._hosts[tablespace_id]
        await host.member.close()
        host.service.close()
        await host.known.close()
        host.executor.shutdown()
        host.tenant.resources.forget(host.tenant)
        self._hosts.pop(tablespace_id, None)
        self._figures.parts.pop(tablespace_id, None)

    def _new_instance(self, tablespace_id: str, logs: LogSource) -> Instance:
        world, host = self._world, self._hosts[tablespace_id]
        return Instance(
            disk=world.open_disk(tablespace_id),
            clock=world.clock,
            rng=world.rng,
            driver=world.driver,
            config=self._database,
            where=f"{world.where}/{tablespace_id}",
            logs=logs,
            cluster=host.known,
            tenant=host.tenant,
        )

    def _new_chain(
        self, record: TablespaceRecord, password: bytes, figures: PartFigures
    ) -> BlockingChain:
        client, cluster = self._client, self._cluster
        assert client is not None
        assert cluster is not None
        chain = LedgerChain(
            client,
            LedgerListing(self._store, self._nodes.ledgers_path(record.id)),
            tablespace=record.id.encode(),
            password=password,
            quorums=cluster.quorums,
            figures=figures.log,
        )
        return BlockingChain(NodeLoop(self._loop), chain)

    def _tell(self, name: str, member: Member, state: State) -> None:
        machine = member.machine
        if state is State.LEADING:
            seconds = {"fields": member.times.fields()}
            _log.info("tablespace %s: leading under epoch %d", name, machine.epoch, extra=seconds)
        elif state in (State.FAILED, State.RESIGNING) and machine.reason is not None:
            _log.warning("tablespace %s: %s: %s", name, state.value, machine.reason)
        else:
            _log.info("tablespace %s: %s", name, state.value)
