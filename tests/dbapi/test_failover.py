"""A leader that moves from node to node: programs go on, and everything happens once."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

import herdpy
import herdpy.aio
from herdpy.driver.connection import Connection
from herdpy.errors import OperationalError, Retry, SerializationError
from herdpy.proto.messages import Commit, Execute
from tests.fixtures.cutting_proxy import CuttingProxy
from tests.fixtures.engines import Background
from tests.fixtures.frame_proxy import Fate, FrameProxy
from tests.fixtures.moving_leader import MovingLeader, moving_leader
from tests.sim.disk import SimulatedDisk

MOVES = 3
STEPS = 5
"""Of each client between two moves, at least."""


@pytest.fixture
def cluster() -> Iterator[MovingLeader]:
    with moving_leader() as made:
        with herdpy.connect(made.direct_url, autocommit=True) as conn:
            conn.execute("CREATE TABLE t (id BIGINT)")  # without a key: twice would show
        yield made


def rows(cluster: MovingLeader) -> list[int]:
    with herdpy.connect(cluster.direct_url) as conn:
        return [n for (n,) in conn.execute("SELECT id FROM t ORDER BY id").fetchall()]


class Steps:
    """Counts what programs have done, so that a test moves the leader meanwhile."""

    def __init__(self, client_count: int = 1) -> None:
        self.counts = [0] * client_count
        self._has_moved = threading.Condition()
        self._is_over = threading.Event()

    def run(self, me: int, act: Callable[[int], object]) -> None:
        """Act with growing numbers until it is over."""
        try:
            while not self._is_over.is_set():
                act(self.counts[me])
                with self._has_moved:
                    self.counts[me] += 1
                    self._has_moved.notify_all()
        finally:
            self._is_over.set()
            with self._has_moved:
                self._has_moved.notify_all()

    def moved_under(self, cluster: MovingLeader) -> None:
        """Move the leader again and again while programs go on; then end them."""
        try:
            for _ in range(MOVES):
                self._wait()
                cluster.move()
            self._wait()
        finally:
            self._is_over.set()

    def _wait(self) -> None:
        begun = list(self.counts)
        with self._has_moved:
            assert self._has_moved.wait_for(
                lambda: (
                    self._is_over.is_set()
                    or all(
                        now >= then + STEPS for now, then in zip(self.counts, begun, strict=True)
                    )
                ),
                60,
            )


def test_a_plain_program_goes_on(cluster: MovingLeader) -> None:
    steps = Steps()

    def program() -> None:
        with herdpy.connect(cluster.url, autocommit=True) as conn:
            steps.run(0, lambda n: conn.execute("INSERT INTO t VALUES (?)", (n,)))

    with Background() as background:
        background.start(program)
        steps.moved_under(cluster)
    assert rows(cluster) == list(range(steps.counts[0]))


def test_transactions_of_a_pool_go_on(cluster: MovingLeader) -> None:
    clients = 3
    steps = Steps(clients)
    with herdpy.Pool(cluster.url, connections_max=2) as pool, Background() as background:

        def program(me: int) -> None:
            def write_two(conn: Connection, n: int) -> None:
                conn.execute("INSERT INTO t VALUES (?)", (n,))
                conn.execute("INSERT INTO t VALUES (?)", (n + 1,))

            steps.run(me, lambda n: pool.run(lambda conn: write_two(conn, me * 1_000_000 + 2 * n)))

        for me in range(clients):
            background.start(lambda me=me: program(me))
        steps.moved_under(cluster)
    expected = [me * 1_000_000 + n for me in range(clients) for n in range(2 * steps.counts[me])]
    assert rows(cluster) == expected


def test_an_open_transaction_is_to_be_run_again(cluster: MovingLeader) -> None:
    with herdpy.connect(cluster.url) as conn:
        conn.execute("INSERT INTO t VALUES (1)")
        cluster.move()
        with pytest.raises(SerializationError, match="rolled back") as caught:
            conn.execute("INSERT INTO t VALUES (2)")
        assert (caught.value.sqlstate, caught.value.retry) == ("40001", Retry.SAFE)
        conn.rollback()
        conn.execute("INSERT INTO t VALUES (3)")
        conn.commit()
    assert rows(cluster) == [3]


def test_the_commit_of_a_lost_transaction_says_so(cluster: MovingLeader) -> None:
    with herdpy.connect(cluster.url) as conn:
        conn.execute("INSERT INTO t VALUES (1)")
        cluster.move()
        with pytest.raises(SerializationError):
            conn.commit()
        assert not conn.in_transaction
        conn.execute("INSERT INTO t VALUES (2)")
        conn.commit()
    assert rows(cluster) == [2]


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.UNANSWERED])
@pytest.mark.parametrize("is_alone", [True, False])
def test_the_next_leader_tells_what_became_of_a_commit(
    cluster: MovingLeader, fate: Fate, is_alone: bool
) -> None:
    assert cluster.server is not None
    with FrameProxy(cluster.server.port) as proxy, Background() as background:
        url = cluster.url_of(proxy.port, *cluster.ports[1:])
        with herdpy.connect(url, autocommit=is_alone) as conn:
            if not is_alone:
                conn.execute("INSERT INTO t VALUES (1)")
            proxy.fates.append((Execute if is_alone else Commit, fate))
            proxy.target_port = 0  # no connection comes to this node any more
            counts: list[int] = []

            def commit() -> None:
                if is_alone:
                    counts.append(conn.execute("INSERT INTO t VALUES (1)").rowcount)
                elif fate is Fate.LOST:
                    with pytest.raises(SerializationError):
                        conn.commit()
                else:
                    conn.commit()

            background.start(commit)
            if fate is Fate.UNANSWERED:
                while not rows(cluster):  # it is carried out here, and asked about there
                    pass
            cluster.move()
            background.join()
            assert counts == ([1 if fate is Fate.LOST else -1] if is_alone else [])
            conn.execute("INSERT INTO t VALUES (2)")
            conn.commit()
    happened = is_alone or fate is Fate.UNANSWERED
    assert rows(cluster) == ([1, 2] if happened else [2])


def test_no_node_leads_in_time(cluster: MovingLeader) -> None:
    cluster.stop()
    with pytest.raises(OperationalError, match=r"no node of .* leads now") as caught:
        herdpy.connect(f"{cluster.url}?retry_timeout_s=0.1")
    assert (caught.value.sqlstate, caught.value.retry) == ("08001", Retry.SAFE)
    assert all(str(port) in caught.value.message for port in cluster.ports)


def test_nodes_are_named_by_their_grpc_ports_too(cluster: MovingLeader) -> None:
    assert cluster.server is not None
    scheme, place = cluster.server.grpc_url.split("://")
    url = f"{scheme}://127.0.0.1:{cluster.ports[1]},{place}"
    with herdpy.connect(url, autocommit=True) as conn:
        conn.execute("INSERT INTO t VALUES (1)")
    assert rows(cluster) == [1]


def test_a_pool_lends_nothing_that_stays_lost(cluster: MovingLeader) -> None:
    url = f"{cluster.url}?retry_timeout_s=0"
    with herdpy.Pool(url, connections_max=1, autocommit=True) as pool:
        with pool.connection() as conn:
            conn.execute("INSERT INTO t VALUES (1)")
        cluster.move()
        with pytest.raises(OperationalError), pool.connection() as conn:
            conn.execute("INSERT INTO t VALUES (2)")
        with pool.connection() as conn:
            conn.execute("INSERT INTO t VALUES (3)")
    assert rows(cluster) == [1, 3]


def test_a_node_that_says_nothing_is_left(cluster: MovingLeader) -> None:
    """As one whose process is stopped: the system takes connections for it."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port: int = silent.getsockname()[1]
        url = f"{cluster.url_of(port, *cluster.ports)}?connect_timeout_s=0.5"
        with herdpy.connect(url) as conn:
            assert conn.execute("SELECT 1").fetchall() == [(1,)]
        with pytest.raises(OperationalError, match="before the login was over") as caught:
            herdpy.connect(f"{cluster.url_of(port)}?connect_timeout_s=0.1")
        assert (caught.value.sqlstate, caught.value.retry) == ("08001", Retry.SAFE)


def test_what_one_connection_waits_for_in_vain_the_others_leave(
    cluster: MovingLeader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a process that is stopped: connections stay, and say nothing."""
    monkeypatch.setattr("herdpy.driver.remote.session._SILENT_S", 0.05)
    monkeypatch.setattr("herdpy.driver.remote.session._SIGN_S", 0.05)
    leads = cluster.ports[cluster.number]

    async def program() -> None:
        proxy = await CuttingProxy(leads).start()
        url = cluster.url_of(proxy.port, leads)  # the second is the next leader
        try:
            async with (
                await herdpy.aio.connect(url, autocommit=True) as one,
                await herdpy.aio.connect(url, autocommit=True) as other,
                await herdpy.aio.connect(url) as inside,
            ):
                await inside.execute("SELECT 3")
                proxy.is_losing_requests = True
                await one.execute("SELECT 1")
                await other.execute("SELECT 2")
                lost = b"".join(proxy.lost)
                assert b"SELECT 1" in lost
                assert b"SELECT 2" not in lost
                with pytest.raises(SerializationError):  # a transaction is not given up unasked
                    await inside.execute("SELECT 4")
                assert b"SELECT 4" in b"".join(proxy.lost)
                await inside.rollback()
        finally:
            await proxy.close()

    asyncio.run(program())


def test_a_first_connection_waits_for_a_leader(cluster: MovingLeader) -> None:
    cluster.stop()
    with Background() as background:

        def program() -> None:
            with herdpy.connect(cluster.url, autocommit=True) as conn:
                conn.execute("INSERT INTO t VALUES (1)")

        background.start(program)
        cluster.start()
    assert rows(cluster) == [1]


@pytest.mark.parametrize("is_pooled", [False, True])
@pytest.mark.parametrize("refusal", ["hold", "follow"])
def test_a_node_that_does_not_write_is_left(
    cluster: MovingLeader, refusal: str, is_pooled: bool
) -> None:
    """It takes connections, and refuses what writes: 57P03, or 25006."""
    with herdpy.Pool(cluster.url, connections_max=1, autocommit=True) as pool:
        with pool.connection() as conn:
            conn.execute("INSERT INTO t VALUES (1)")
        assert cluster.server is not None
        served = cluster.server.server._hub.connections
        before = list(served)
        getattr(cluster.server.engine.database.tablespace, refusal)()
        cluster.server.engine.database.tablespace.end_hold()
        is_over = threading.Event()
        with Background() as background:

            def write() -> None:
                try:
                    if is_pooled:
                        pool.run(lambda conn: conn.execute("INSERT INTO t VALUES (2)"))
                    else:
                        with pool.connection() as conn:
                            conn.execute("INSERT INTO t VALUES (2)")
                finally:
                    is_over.set()

            background.start(write)
            while list(served) == before and not is_over.is_set():
                pass  # it is refused, and leaves
            cluster.move()
    assert rows(cluster) == [1, 2]


def test_a_transaction_at_a_node_that_writes_no_more_is_to_be_run_again(
    cluster: MovingLeader,
) -> None:
    with herdpy.connect(cluster.url) as conn:
        conn.execute("SELECT 1")
        assert cluster.server is not None
        cluster.server.engine.database.tablespace.hold()
        with pytest.raises(SerializationError, match="rolled back"):
            conn.execute("INSERT INTO t VALUES (1)")
        conn.rollback()
        cluster.move()
        conn.execute("INSERT INTO t VALUES (2)")
        conn.commit()
    assert rows(cluster) == [2]


@pytest.mark.parametrize("is_alone", [True, False])
def test_a_log_that_fails_under_a_commit(is_alone: bool) -> None:
    """Whether it happened, the next leader says; the failed one cannot know."""
    disk = SimulatedDisk()
    with moving_leader(disk=disk) as cluster:
        with herdpy.connect(cluster.direct_url, autocommit=True) as conn:
            conn.execute("CREATE TABLE t (id BIGINT)")
        with (
            herdpy.connect(cluster.url, autocommit=is_alone) as conn,
            herdpy.connect(cluster.url, autocommit=True) as other,
            Background() as background,
        ):
            other.execute("SELECT 1")
            if not is_alone:
                conn.execute("INSERT INTO t VALUES (1)")
            told: list[object] = []

            def commit() -> None:
                try:
                    if is_alone:
                        conn.execute("INSERT INTO t VALUES (1)")
                    else:
                        conn.commit()
                    told.append(1)
                except SerializationError:
                    assert not is_alone

            disk.fail("sync", path="/log/")
            assert cluster.server is not None
            log = cluster.server.engine.database.tablespace.log
            background.start(commit)
            while log.failure is None:
                pass
            # It does not run there: a statement behind the failure.
            background.start(lambda: other.execute("INSERT INTO t VALUES (2)"))
            cluster.move()
        assert rows(cluster) == [*told, 2]


def test_a_node_that_ends_is_left(cluster: MovingLeader) -> None:
    """It still takes connections, and refuses them."""
    assert cluster.server is not None
    ending = cluster.server
    other = Background()
    with herdpy.connect(cluster.url, autocommit=True) as conn:
        conn.execute("INSERT INTO t VALUES (1)")
        ending.server._hub.is_draining = True
        with other:
            other.start(lambda: conn.execute("INSERT INTO t VALUES (2)"))
            cluster.move()
    assert rows(cluster) == [1, 2]
