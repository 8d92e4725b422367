"""The life of a whole bookie on the simulated loop: start, registration, disk, sessions, end."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from bookie.config import BookieConfig
from bookie.errors import BookieError, BookieStartError
from bookie.ledger.types import Status
from bookie.metadata.ledgers import LedgerManager
from bookie.metadata.memory import MemoryStore
from bookie.metadata.service_info import Address, ServiceInfo
from bookie.proto import v3
from bookie.server.identity import bookie_id_of
from tests.fixtures.bookie_node import (
    COOKIE,
    ID,
    READ_ONLY,
    TEST_CONFIG,
    WRITABLE,
    Cluster,
    simulate,
)
from tests.fixtures.bookies import KEY, Peer, add, ask
from tests.fixtures.metadata import SeededRng
from tests.sim.disk import SimulatedDisk


def test_a_bookie_starts_serves_and_stops() -> None:
    async def test(cluster: Cluster) -> None:
        node = await cluster.start()
        data, _ = cluster.metadata.tree.read(WRITABLE)
        assert ServiceInfo.from_bytes(data, node.bookie_id).address == Address("world", 3181)
        assert cluster.has(COOKIE)
        assert node.unready_reason() is None
        peer = await cluster.peer()
        assert (await ask(peer, add(1, 7, 0))).status is Status.OK
        await node.close()
        assert not cluster.has(WRITABLE)
        await peer.ended
        await node.wait()  # an end that was asked for is no error
        again = await cluster.start()
        peer = await cluster.peer()
        assert (await ask(peer, v3.encode_read_request(1, 7, 0))).status is Status.OK
        assert again.unhealthy_reason() is None

    simulate(test)


def test_it_registers_when_the_journal_was_replayed() -> None:
    """Replay comes before the port, the port before the name."""

    async def test(cluster: Cluster) -> None:
        order: list[str] = []
        store, disk = cluster.store, cluster.disk
        disk.trace = []
        real_create = store.create

        async def create(path: str, *arguments: Any, **options: Any) -> str:
            if path == WRITABLE:
                assert ("world", 3181) in cluster.loop.network.servers
                assert disk.trace is not None
                order.append(f"register after {len(disk.trace)} operations on the disk")
                assert any("journal" in path for _, path, _ in disk.trace)
            return await real_create(path, *arguments, **options)

        store.create = create  # type: ignore[method-assign]
        await cluster.start()
        assert len(order) == 1

    simulate(test)


def test_g5_a_wiped_bookie_refuses_to_start() -> None:
    async def test(cluster: Cluster) -> None:
        node = await cluster.start()
        await node.close()
        with pytest.raises(BookieStartError, match="wiped"):
            await cluster.start(disk=SimulatedDisk(9))
        assert not cluster.has(WRITABLE)
        assert ("world", 3181) not in cluster.loop.network.servers
        await cluster.start()  # the disk that it had

    simulate(test)


def test_a_disk_of_another_bookie_is_refused() -> None:
    async def test(cluster: Cluster) -> None:
        node = await cluster.start()
        await node.close()
        with pytest.raises(BookieStartError, match="other:1"):
            await cluster.start(replace(TEST_CONFIG, bookie_id="other:1"))

    simulate(test)


def test_a_directory_in_use_is_refused() -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.start()
        other = replace(TEST_CONFIG, port=3182)
        with pytest.raises(BookieStartError, match=f"held by bookie {ID}"):
            await cluster.start(other)

    simulate(test)


def test_without_a_cluster_it_does_not_start() -> None:
    async def test(cluster: Cluster) -> None:
        with pytest.raises(BookieStartError, match="bookie format"):
            await cluster.start(replace(TEST_CONFIG, ledgers_root="/nowhere"))
        assert ("world", 3181) not in cluster.loop.network.servers
        await cluster.start()  # nothing was left behind, the lock of the directory included

    simulate(test)


def test_a_port_that_is_taken_undoes_the_start() -> None:
    async def test(cluster: Cluster) -> None:
        taken = await cluster.loop.create_server(Peer, "world", 3181)
        with pytest.raises(OSError, match="in use"):
            await cluster.start()
        assert not cluster.has(WRITABLE)
        taken.close()
        await cluster.start()

    simulate(test)


def test_any_free_port_needs_a_name() -> None:
    with pytest.raises(BookieStartError, match="port 0"):
        bookie_id_of(BookieConfig(port=0))
    assert bookie_id_of(BookieConfig(port=0, bookie_id="b-1")) == "b-1"
    named = BookieConfig(host="0.0.0.0", port=3181, advertised_address="b1.example")
    assert bookie_id_of(named) == "b1.example:3181"


# --- read-only ------------------------------------------------------------------------------------


def test_a_full_disk_makes_it_read_only_and_room_writable_again() -> None:
    async def test(cluster: Cluster) -> None:
        node = await cluster.start()
        peer = await cluster.peer()
        assert (await ask(peer, add(1, 7, 0))).status is Status.OK
        total, free = cluster.disk.space()
        used = total - free
        cluster.disk.capacity_bytes = int(used / 0.96)  # 96 % full
        await cluster.until(lambda: cluster.has(READ_ONLY))
        assert not cluster.has(WRITABLE)
        assert node.serving.is_read_only
        assert (await ask(peer, add(2, 7, 1))).status is Status.READ_ONLY
        urgent = add(3, 7, 1, is_recovery=True, priority=v3.PRIORITY_HIGH)
        assert (await ask(peer, urgent)).status is Status.OK
        assert (await ask(peer, v3.encode_read_request(4, 7, 0))).status is Status.OK
        cluster.disk.capacity_bytes = int(used / 0.92)  # between the marks: stays as it is
        await asyncio.sleep(5)
        assert cluster.has(READ_ONLY)
        cluster.disk.capacity_bytes = used * 2
        await cluster.until(lambda: cluster.has(WRITABLE))
        assert not cluster.has(READ_ONLY)
        assert (await ask(peer, add(5, 7, 2))).status is Status.OK

    simulate(test)


def test_it_starts_read_only_on_a_full_disk() -> None:
    async def test(cluster: Cluster) -> None:
        node = await cluster.start()
        await node.close()
        total, free = cluster.disk.space()
        cluster.disk.capacity_bytes = int((total - free) / 0.4)
        full = replace(TEST_CONFIG, disk_usage_max=0.2, disk_usage_low_water=0.1)
        await cluster.start(full)
        assert cluster.has(READ_ONLY)
        assert not cluster.has(WRITABLE)

    simulate(test)


def test_an_operator_may_make_it_read_only() -> None:
    async def test(cluster: Cluster) -> None:
        node = await cluster.start()
        node.serving.set_read_only(is_read_only=True)
        await cluster.until(lambda: cluster.has(READ_ONLY) and not cluster.has(WRITABLE))
        assert node.unready_reason() is None  # it serves reads
        node.serving.set_read_only(is_read_only=False)
        await cluster.until(lambda: cluster.has(WRITABLE) and not cluster.has(READ_ONLY))

    simulate(test)


def test_an_operators_read_only_bookie_never_takes_a_write() -> None:
    """Not even between its registration and the end of its start."""

    async def test(cluster: Cluster) -> None:
        registrations: list[int] = []
        cluster.store.watch(WRITABLE, lambda: registrations.append(1))
        node = await cluster.start(is_read_only=True)
        await cluster.store.sync(WRITABLE)
        assert (registrations, cluster.has(READ_ONLY)) == ([], True)
        peer = await cluster.peer()
        assert (await ask(peer, add(1, 7, 0))).status is Status.READ_ONLY
        node.serving.set_read_only(is_read_only=False)
        await cluster.until(lambda: cluster.has(WRITABLE))
        await cluster.store.sync(WRITABLE)
        assert registrations

    simulate(test)


def test_a_disk_that_does_not_tell_its_space_changes_nothing() -> None:
    async def test(cluster: Cluster) -> None:
        node = await cluster.start()

        def broken() -> tuple[int, int]:
            raise OSError(5, "Input/output error")

        node.disk_watch._space = broken
        await asyncio.sleep(5)
        assert cluster.has(WRITABLE)

    simulate(test)


# --- sessions -------------------------------------------------------------------------------------


def test_a_suspended_session_serves_on() -> None:
    async def test(cluster: Cluster) -> None:
        node = await cluster.start()
        peer = await cluster.peer()
        cluster.metadata.disconnect(cluster.store.session_id, reconnect_s=2.0)
        await asyncio.sleep(1)
        assert node.registration.state.value == "unsure"
        assert node.unready_reason() is None
        assert (await ask(peer, add(1, 7, 0))).status is Status.OK
        await asyncio.sleep(2)
        assert node.registration.state.value == "registered"

    simulate(test)


def test_an_expired_session_registers_again() -> None:
    async def test(cluster: Cluster) -> None:
        node = await cluster.start()
        peer = await cluster.peer()
        before = cluster.store.session_id
        cluster.metadata.expire(before)
        assert not cluster.has(WRITABLE)
        await cluster.until(lambda: cluster.has(WRITABLE))
        assert cluster.store.session_id != before
        assert (await ask(peer, add(1, 7, 0))).status is Status.OK  # it served on all the while
        await cluster.until(lambda: node.unready_reason() is None)

    simulate(test)


def test_another_owner_of_the_id_refuses_the_start() -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.start()
        other = MemoryStore(cluster.metadata)
        began = cluster.loop.time()
        config = replace(TEST_CONFIG, port=3182, bookie_id=ID)
        # A copy of the disk, so that directory and cookies let it pass.
        with pytest.raises(BookieStartError, match="another bookie runs under this id"):
            await cluster.start(config, store=other, disk=cluster.disk.restart(is_power_lost=False))
        assert cluster.loop.time() - began > 9.0  # as long as a dead session may linger
        assert ("world", 3182) not in cluster.loop.network.servers
        await other.close()

    simulate(test)


def test_a_session_that_lingers_is_waited_for() -> None:
    """After kill -9 the old ephemeral stays until its session times out."""

    async def test(cluster: Cluster) -> None:
        old = MemoryStore(cluster.metadata)
        await old.create(WRITABLE, is_ephemeral=True)
        cluster.metadata.disconnect(old.session_id)
        began = cluster.loop.time()
        await cluster.start()
        assert 3.0 < cluster.loop.time() - began < 9.0
        await old.close()

    simulate(test)


def test_it_stops_when_another_took_its_id_meanwhile() -> None:
    async def test(cluster: Cluster) -> None:
        node = await cluster.start()
        other = MemoryStore(cluster.metadata)
        cluster.metadata.disconnect(cluster.store.session_id, reconnect_s=6.0)
        await cluster.until(lambda: not cluster.has(WRITABLE))
        await other.create(WRITABLE, is_ephemeral=True)
        with pytest.raises(BookieStartError, match="another bookie runs under this id"):
            await node.wait()
        assert ("world", 3181) not in cluster.loop.network.servers
        assert cluster.has(WRITABLE)  # the other's, untouched
        assert node.unhealthy_reason() == "the bookie is closing"
        await other.close()

    simulate(test)


# --- the journal, garbage, http -------------------------------------------------------------------


def test_a_broken_journal_stops_the_bookie() -> None:
    async def test(cluster: Cluster) -> None:
        node = await cluster.start()
        peer = await cluster.peer()
        cluster.disk.fail("sync", times=1000, path="journal")
        assert (await ask(peer, add(1, 7, 0))).status is Status.IO_ERROR
        with pytest.raises(BookieError, match=r"journal failed in /data \("):
            await node.wait()
        assert not cluster.has(WRITABLE)
        assert ("world", 3181) not in cluster.loop.network.servers
        cluster.disk.heal()

    simulate(test)


def test_a_journal_that_breaks_during_the_start_is_an_error_of_the_start() -> None:
    async def test(cluster: Cluster) -> None:
        other = MemoryStore(cluster.metadata)
        await other.create(WRITABLE, is_ephemeral=True)  # so that registering takes a while
        starting = asyncio.ensure_future(cluster.start())
        await cluster.until(lambda: ("world", 3181) in cluster.loop.network.servers)
        peer = await cluster.peer()
        cluster.disk.fail("sync", times=1000, path="journal")
        assert (await ask(peer, add(1, 7, 0))).status is Status.IO_ERROR
        await other.close()
        with pytest.raises(BookieError, match="journal failed"):
            await starting
        assert not cluster.has(WRITABLE)
        assert ("world", 3181) not in cluster.loop.network.servers
        cluster.disk.heal()
        await cluster.start()  # nothing was left behind

    simulate(test)


def test_a_registration_that_breaks_stops_the_bookie() -> None:
    async def test(cluster: Cluster) -> None:
        node = await cluster.start()

        async def broken(is_read_only: bool) -> None:
            raise BookieError("broken on purpose")

        node.registration.set_read_only = broken  # type: ignore[method-assign]
        node.serving.set_read_only(is_read_only=True)
        with pytest.raises(BookieError, match="broken on purpose"):
            await node.wait()

    simulate(test)


def test_ledgers_that_metadata_does_not_know_are_collected() -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.start()
        peer = await cluster.peer()
        manager = LedgerManager(cluster.store, "/ledgers", SeededRng(6), cluster.clock)
        while await manager.fresh_id() < 7:  # the cluster has known of a ledger 7
            pass
        assert (await ask(peer, add(1, 7, 0))).status is Status.OK
        await asyncio.sleep(20)
        read = v3.encode_read_request(2, 7, 0)
        assert (await ask(peer, read)).status is Status.NO_LEDGER

    simulate(test)


@pytest.mark.parametrize("is_formatted_again", [False, True])
def test_nothing_is_collected_when_the_metadata_was_lost(
    caplog: pytest.LogCaptureFixture, *, is_formatted_again: bool
) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.start()
        peer = await cluster.peer()
        assert (await ask(peer, add(1, 7, 0))).status is Status.OK
        await cluster.store.delete("/ledgers/INSTANCEID")
        if is_formatted_again:
            await cluster.store.create("/ledgers/INSTANCEID", b"another one")
        await asyncio.sleep(20)
        read = v3.encode_read_request(2, 7, 0)
        assert (await ask(peer, read)).status is Status.OK
        assert "expected the cluster" in caplog.text

    simulate(test)


async def get(cluster: Cluster, port: int, path: str) -> tuple[int, str]:
    received: asyncio.Queue[bytes | None] = asyncio.Queue()

    class Getter(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            transport.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())

        def data_received(self, data: bytes) -> None:
            received.put_nowait(data)

        def connection_lost(self, exc: Exception | None) -> None:
            received.put_nowait(None)

    await cluster.loop.create_connection(Getter, "world", port)
    text = b""
    while (data := await received.get()) is not None:
        text += data
    head, _, body = text.decode().partition("\r\n\r\n")
    return int(head.split()[1]), body


def test_health_readiness_and_metrics_over_http() -> None:
    async def test(cluster: Cluster) -> None:
        node = await cluster.start(replace(TEST_CONFIG, http_port=8080))
        data, _ = cluster.metadata.tree.read(WRITABLE)
        names = [end.id for end in ServiceInfo.from_bytes(data, node.bookie_id).endpoints]
        assert names == ["bookie", "httpserver"]
        peer = await cluster.peer()
        await ask(peer, add(1, 7, 0))
        await ask(peer, add(2, 7, 1, key=bytes(range(20))))
        await ask(peer, v3.encode_read_request(3, 7, -1, fence_key=KEY))
        for path in ("/heartbeat", "/health", "/ready", "/api/v1/bookie/is_ready"):
            assert await get(cluster, 8080, path) == (200, "OK\n")
        status, text = await get(cluster, 8080, "/metrics")
        assert status == 200
        for line in (
            'bookkeeper_server_ADD_ENTRY_count{success="true"} 1.0',
            'bookkeeper_server_ADD_ENTRY_count{success="false"} 1.0',
            'bookkeeper_server_READ_ENTRY_FENCE_READ_count{success="true"} 1.0',
            "bookie_WRITE_BYTES_total 37.0",
            "bookie_SERVER_STATUS 1.0",
            "bookkeeper_server_CONNECTIONS 1.0",
            "bookie_journal_JOURNAL_QUEUE_SIZE 0.0",
            "bookie_NUM_OPEN_LEDGERS 1.0",
        ):
            assert line in text.splitlines(), text
        assert (await get(cluster, 8080, "/nothing"))[0] == 404
        await node.registration.close()
        status, text = await get(cluster, 8080, "/ready")
        assert (status, text) == (503, "the bookie's registration is closed\n")
        assert (await get(cluster, 8080, "/health"))[0] == 200

    simulate(test)
