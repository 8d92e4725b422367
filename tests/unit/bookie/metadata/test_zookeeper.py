"""What only the ZooKeeper store can get wrong: kazoo's errors, threads, queues and watchers."""

import asyncio
import threading

import pytest
from kazoo import exceptions as kazoo_errors
from kazoo.handlers.threading import KazooTimeoutError

from bookie import errors
from bookie.errors import BookieError, StoreConnectionError, StoreError
from bookie.ledger.types import BookieId, EntryId
from bookie.metadata.cluster import initialize
from bookie.metadata.interfaces import SessionState
from bookie.metadata.kazoo_client import store_error
from bookie.metadata.ledgers import LedgerManager
from bookie.metadata.registration import Registration, RegistrationState
from bookie.metadata.service_info import Address, ServiceInfo
from bookie.metadata.zookeeper import ZooKeeperStore
from tests.fixtures.cutting_proxy import CuttingProxy
from tests.fixtures.metadata import SeededRng, metadata
from tests.fixtures.versioned_stores import SESSION_TIMEOUT_S, expire_session, until
from tests.fixtures.zookeeper import ZooKeeperProcess, zookeeper, zookeeper_root
from tests.sim.clock import SimulatedClock

__all__ = ["zookeeper", "zookeeper_root"]

NOTICED_S = 2.0
"""Session time-out of stores whose server falls silent: so long, at most, it goes unnoticed."""
EXPECTED = {
    "NoNodeError": errors.NoNodeError,
    "NodeExistsError": errors.NodeExistsError,
    "BadVersionError": errors.BadVersionError,
    "NotEmptyError": errors.NotEmptyError,
    "SessionExpiredError": errors.SessionExpiredError,
    "UnknownSessionError": errors.SessionExpiredError,
    "ConnectionLoss": errors.StoreConnectionError,
    "ConnectionDropped": errors.StoreConnectionError,
    "ConnectionClosedError": errors.StoreConnectionError,
    "OperationTimeoutError": errors.StoreConnectionError,
    "RequestTimeoutError": errors.StoreConnectionError,
    "SessionMovedError": errors.StoreConnectionError,
    "ThrottledOpError": errors.StoreConnectionError,
    "NoAuthError": errors.StoreAccessError,
    "AuthFailedError": errors.StoreAccessError,
    "InvalidACLError": errors.StoreAccessError,
    "SessionClosedRequireSaslError": errors.StoreAccessError,
}


def all_of_kazoo(base: type[Exception]) -> list[type[Exception]]:
    found = [base]
    for child in base.__subclasses__():
        if child.__module__.startswith("kazoo"):
            found += all_of_kazoo(child)
    return found


@pytest.mark.parametrize("theirs", all_of_kazoo(kazoo_errors.KazooException))
def test_every_error_of_kazoo_becomes_one_of_ours(theirs: type[Exception]) -> None:
    error = store_error(theirs("detail"), "/some/path")
    assert type(error) is EXPECTED.get(theirs.__name__, StoreError)
    assert "/some/path" in str(error)
    if isinstance(error, StoreError):
        assert error.path == "/some/path"
    assert isinstance(error, BookieError)


def test_every_expected_error_is_one_of_kazoos() -> None:
    assert EXPECTED.keys() <= {kind.__name__ for kind in all_of_kazoo(kazoo_errors.KazooException)}
    assert type(store_error(KazooTimeoutError(), "/p")) is StoreConnectionError


def test_connecting_to_a_port_without_listener_fails_and_leaves_no_thread() -> None:
    before = threading.active_count()

    async def scenario() -> None:
        listener = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        listener.close()
        await listener.wait_closed()
        with pytest.raises(StoreConnectionError, match=f"127.0.0.1:{port}"):
            await ZooKeeperStore.connect(f"127.0.0.1:{port}", connect_timeout_s=0.2)

    asyncio.run(scenario())
    assert threading.active_count() == before


def test_one_thread_while_it_lives_and_none_after_close(
    zookeeper: ZooKeeperProcess, zookeeper_root: str
) -> None:
    async def scenario() -> None:
        before = threading.active_count()
        store = await ZooKeeperStore.connect(zookeeper.hosts, SESSION_TIMEOUT_S)
        await store.create(zookeeper_root)
        assert threading.active_count() == before + 1
        await asyncio.gather(store.close(), store.close())
        assert threading.active_count() == before

    asyncio.run(scenario())


def test_close_while_the_server_is_away(zookeeper: ZooKeeperProcess) -> None:
    async def scenario() -> None:
        proxy = await CuttingProxy(zookeeper.port).start()
        store = await ZooKeeperStore.connect(f"127.0.0.1:{proxy.port}", NOTICED_S)
        await proxy.close()
        await until(lambda: store.state is SessionState.SUSPENDED)
        await store.close()

    asyncio.run(scenario())


def test_close_while_the_server_is_silent(zookeeper: ZooKeeperProcess) -> None:
    async def scenario() -> None:
        proxy = await CuttingProxy(zookeeper.port).start()
        store = await ZooKeeperStore.connect(f"127.0.0.1:{proxy.port}", NOTICED_S)
        proxy.is_losing_answers = True
        asking = asyncio.ensure_future(store.read("/"))
        await asyncio.sleep(0)
        await store.close()
        with pytest.raises(errors.ClientClosedError):
            await asking
        await proxy.close()

    asyncio.run(scenario())


def test_a_silent_server_is_noticed(zookeeper: ZooKeeperProcess) -> None:
    async def scenario() -> None:
        proxy = await CuttingProxy(zookeeper.port).start()
        store = await ZooKeeperStore.connect(f"127.0.0.1:{proxy.port}", NOTICED_S)
        proxy.is_losing_answers = True
        states: list[SessionState] = []
        store.on_session(states.append)
        with pytest.raises(StoreConnectionError):
            await store.read("/")
        proxy.cut()
        await until(lambda: states == [SessionState.SUSPENDED, SessionState.CONNECTED])
        await store.read("/")
        await store.close()
        await proxy.close()

    asyncio.run(scenario())


def test_floods_of_requests_over_cut_connections_never_block_the_loop(
    zookeeper: ZooKeeperProcess, zookeeper_root: str
) -> None:
    async def scenario() -> None:
        proxy = await CuttingProxy(zookeeper.port).start()
        store = await ZooKeeperStore.connect(f"127.0.0.1:{proxy.port}", SESSION_TIMEOUT_S)
        await store.create(zookeeper_root)
        states: list[SessionState] = []
        store.on_session(states.append)
        answered = lost = 0
        for _ in range(10):
            states.clear()
            reads = [asyncio.ensure_future(store.exists(zookeeper_root)) for _ in range(1000)]
            await asyncio.sleep(0)
            assert len(store.client._queue) + len(store.client._pending) <= 64
            await reads[10]
            proxy.cut()
            await asyncio.wait(reads)
            answered += sum(read.exception() is None for read in reads)
            lost += sum(isinstance(read.exception(), StoreConnectionError) for read in reads)
            await until(lambda: states == [SessionState.SUSPENDED, SessionState.CONNECTED])
        assert answered + lost == 10_000
        assert lost > 0
        assert await store.exists(zookeeper_root) is not None
        await store.close()
        await proxy.close()

    asyncio.run(scenario())


def test_closed_watches_are_forgotten(zookeeper: ZooKeeperProcess, zookeeper_root: str) -> None:
    async def scenario() -> None:
        store = await ZooKeeperStore.connect(zookeeper.hosts, SESSION_TIMEOUT_S)
        await store.create(zookeeper_root)
        for number in range(100):
            path = f"{zookeeper_root}/{number % 10}"
            watches = [store.watch(path, lambda: None), store.watch_children(path, lambda: None)]
            if number % 2:
                await store.exists(path)  # armed by now
            for watch in watches:
                watch.close()
        for _ in range(2):
            await store.exists(zookeeper_root)
        client = store.client
        left = [
            *client._data_watchers.values(),
            *client._child_watchers.values(),
        ]
        assert left == []
        await store.close()

    asyncio.run(scenario())


def test_the_ledger_manager_over_a_connection_that_is_cut_all_the_time(
    zookeeper: ZooKeeperProcess, zookeeper_root: str
) -> None:
    async def scenario() -> None:
        proxy = await CuttingProxy(zookeeper.port, delay_s=0.001).start()
        store = await ZooKeeperStore.connect(f"127.0.0.1:{proxy.port}", SESSION_TIMEOUT_S)
        direct = await ZooKeeperStore.connect(zookeeper.hosts, SESSION_TIMEOUT_S)
        clock = SimulatedClock()
        await initialize(direct, zookeeper_root, rng=SeededRng(1))
        manager = LedgerManager(store, zookeeper_root, SeededRng(2), clock)
        checker = LedgerManager(direct, zookeeper_root, SeededRng(3), clock)
        is_over = False

        states: list[SessionState] = []
        store.on_session(states.append)

        async def cut() -> None:
            while not is_over:
                # After a handshake and a few answers, however long those take.
                enough = proxy.piece_count + 12
                await until(lambda enough=enough: is_over or proxy.piece_count >= enough)
                states.clear()
                proxy.cut()
                await until(lambda: is_over or SessionState.CONNECTED in states)

        cutting = asyncio.ensure_future(cut())
        ledgers: list[int] = []
        for number in range(30):
            created, version = await manager.create(metadata("a:1", "b:1"))
            ledgers.append(created.ledger_id)
            version = await manager.write(created.closed(EntryId(number), 1), version)
            assert version == 1
            if number % 3 == 0:
                await manager.delete(ledgers.pop())
        is_over = True
        await cutting
        assert len(set(ledgers)) == 20
        assert [ledger_id async for ledger_id in checker.ledger_ids()] == sorted(ledgers)
        for ledger_id in ledgers:
            found, version = await checker.read(ledger_id)
            assert (found.is_closed, version) == (True, 1)
        assert proxy.connection_count > 5
        await store.close()
        await direct.close()
        await proxy.close()

    asyncio.run(scenario())


def test_a_registration_survives_its_session(
    zookeeper: ZooKeeperProcess, zookeeper_root: str
) -> None:
    async def scenario() -> None:
        proxy = await CuttingProxy(zookeeper.port).start()
        store = await ZooKeeperStore.connect(f"127.0.0.1:{proxy.port}", SESSION_TIMEOUT_S)
        direct = await ZooKeeperStore.connect(zookeeper.hosts, SESSION_TIMEOUT_S)
        await initialize(direct, zookeeper_root, rng=SeededRng(1))
        bookie_id = BookieId("127.0.0.1:3181")
        info = ServiceInfo.of_bookie(Address("127.0.0.1", 3181))
        registration = Registration(store, zookeeper_root, bookie_id, info)
        states: list[RegistrationState] = []
        registration.on_state(states.append)
        await registration.start()
        path = f"{zookeeper_root}/available/{bookie_id}"
        data, stat = await direct.read(path)
        assert (data, stat.ephemeral_owner) == (info.to_bytes(), store.session_id)
        gone: list[int] = []
        watch = direct.watch(path, lambda: gone.append(1))
        proxy.is_refusing = True
        proxy.cut()
        await until(lambda: store.state is SessionState.SUSPENDED)
        await expire_session(store, zookeeper.port)
        await until(lambda: len(gone) == 1)
        watch.close()
        proxy.is_refusing = False
        await until(lambda: registration.state is RegistrationState.REGISTERED)
        assert states == [
            RegistrationState.REGISTERED,
            RegistrationState.UNSURE,
            RegistrationState.REGISTERING,
            RegistrationState.REGISTERED,
        ]
        assert (await direct.read(path))[1].ephemeral_owner == store.session_id
        await registration.set_read_only(True)
        await direct.sync(path)
        assert await direct.children(f"{zookeeper_root}/available") == ["readonly"]
        await registration.close()
        await direct.sync(path)
        assert await direct.children(f"{zookeeper_root}/available/readonly") == []
        for one in (store, direct):
            await one.close()
        await proxy.close()

    asyncio.run(scenario())


def test_a_loop_that_hangs_does_not_keep_its_session_alive(
    zookeeper: ZooKeeperProcess, zookeeper_root: str
) -> None:
    is_made, is_over = threading.Event(), threading.Event()

    async def hang() -> None:
        store = await ZooKeeperStore.connect(zookeeper.hosts, NOTICED_S)
        await store.create(f"{zookeeper_root}/alive", is_ephemeral=True)
        is_made.set()
        is_over.wait()  # kazoo's thread lives on, and could keep the session alive
        states: list[SessionState] = []
        store.on_session(states.append)
        await until(lambda: states[-1:] == [SessionState.CONNECTED])
        assert SessionState.LOST in states
        await store.close()

    async def scenario() -> None:
        store = await ZooKeeperStore.connect(zookeeper.hosts, NOTICED_S)
        await store.create(zookeeper_root)
        hanging = asyncio.get_running_loop().run_in_executor(None, asyncio.run, hang())
        await asyncio.to_thread(is_made.wait)
        is_gone = asyncio.Event()
        store.watch(f"{zookeeper_root}/alive", is_gone.set)
        try:
            async with asyncio.timeout(10 * NOTICED_S):
                while await store.exists(f"{zookeeper_root}/alive") is not None:
                    is_gone.clear()
                    if await store.exists(f"{zookeeper_root}/alive") is not None:
                        await is_gone.wait()
        finally:
            is_over.set()
        await hanging
        await store.close()

    asyncio.run(scenario())
