"""Real bookies killed, hung, wiped and cut off from ZooKeeper."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from bookie.admin.zookeeper_process import ZooKeeperProcess, start_zookeeper
from bookie.client.client import LedgerClient
from bookie.client.writer import LedgerWriter
from bookie.config import ClientConfig
from bookie.errors import NotEnoughBookiesError
from bookie.hosting import INDEX_FILE
from tests.fixtures.bookie_processes import (
    WAIT_LIMIT_S,
    OurBookie,
    client_of,
    in_loop,
    new_cluster,
    our_bookies,
    registered,
)
from tests.fixtures.ports import own_port
from tests.fixtures.zookeeper import skip_without_zookeeper, zookeeper, zookeeper_root

__all__ = ["zookeeper", "zookeeper_root"]

pytestmark = [pytest.mark.integration, pytest.mark.exhaustive]


async def add(writer: LedgerWriter, count: int) -> None:
    first = writer.last_pushed + 1
    await asyncio.gather(*(writer.add(b"entry %d" % n) for n in range(first, first + count)))


async def check(client: LedgerClient, ledger_id: int, count: int) -> None:
    reader = await client.open(ledger_id)
    assert reader.lac == count - 1
    entries = await reader.read(0, reader.lac)
    assert [bytes(entry.payload) for entry in entries] == [b"entry %d" % n for n in range(count)]


def test_a_killed_bookie_comes_back_with_what_it_acknowledged(
    zookeeper: ZooKeeperProcess, zookeeper_root: str, tmp_path: Path
) -> None:
    cluster = new_cluster(zookeeper, zookeeper_root)
    with our_bookies(cluster, tmp_path, 3) as bookies:

        async def write() -> int:
            async with client_of(cluster) as client:
                writer = await client.create_ledger(3, 3, 3)
                await add(writer, 500)
                for bookie in bookies:
                    bookie.kill()
                await writer.abandon()
                return writer.ledger_id

        ledger_id = in_loop(write)
        for bookie in bookies:
            bookie.start()
        registered(cluster, bookies)

        async def read() -> None:
            async with client_of(cluster) as client:
                await check(client, ledger_id, 500)

        in_loop(read)


def test_a_writer_goes_on_when_a_bookie_is_killed_or_hangs(
    zookeeper: ZooKeeperProcess, zookeeper_root: str, tmp_path: Path
) -> None:
    cluster = new_cluster(zookeeper, zookeeper_root)
    with our_bookies(cluster, tmp_path, 5) as bookies:

        async def case() -> None:
            # A busy machine's disk takes less: only the hung bookie is silent so long.
            config = ClientConfig(add_timeout_s=3.0)
            async with client_of(cluster, config) as client:
                writer = await client.create_ledger(3, 3, 2)
                await add(writer, 50)
                by_id = {bookie.bookie_id: bookie for bookie in bookies}
                by_id[writer.metadata.last_segment.ensemble[0]].kill()
                await add(writer, 50)
                hung = by_id[writer.metadata.last_segment.ensemble[1]]
                hung.hang()
                try:
                    await add(writer, 50)
                    await writer.close()
                    await check(client, writer.ledger_id, 150)
                finally:
                    hung.go_on()

        in_loop(case)


def test_g5_a_wiped_bookie_does_not_start(
    zookeeper: ZooKeeperProcess, zookeeper_root: str, tmp_path: Path
) -> None:
    cluster = new_cluster(zookeeper, zookeeper_root)
    with our_bookies(cluster, tmp_path, 1) as (bookie,):
        bookie.close()
        bookie.wipe()
        bookie.start()
        code, printed = bookie.wait_end()
        assert code == 1
        assert "a disk was wiped" in printed
        assert "Traceback" not in printed


def test_g5_a_bookie_without_its_index_makes_a_new_one(
    zookeeper: ZooKeeperProcess, zookeeper_root: str, tmp_path: Path
) -> None:
    """Its only replicas are there: neither the entries nor the ledger may be denied."""
    cluster = new_cluster(zookeeper, zookeeper_root)
    with our_bookies(cluster, tmp_path, 1) as (bookie,):

        async def write() -> int:
            async with client_of(cluster) as client:
                writer = await client.create_ledger(1, 1, 1)
                await add(writer, 100)
                await writer.abandon()
                return writer.ledger_id

        ledger_id = in_loop(write)
        bookie.close()  # everything is in entry logs, nothing to replay
        (bookie.directory / INDEX_FILE).unlink()
        bookie.start()
        registered(cluster, [bookie])

        async def read() -> None:
            async with client_of(cluster) as client:
                await check(client, ledger_id, 100)

        in_loop(read)


def test_a_second_bookie_on_the_same_directory_does_not_start(
    zookeeper: ZooKeeperProcess, zookeeper_root: str, tmp_path: Path
) -> None:
    cluster = new_cluster(zookeeper, zookeeper_root)
    with our_bookies(cluster, tmp_path, 1) as (bookie,):
        second = OurBookie(cluster, bookie.directory)  # on a port of its own
        second.log = tmp_path / "second.log"
        second.start()
        code, printed = second.wait_end()
        assert code == 1
        assert "no other process uses" in printed


def test_too_few_bookies_are_counted(
    zookeeper: ZooKeeperProcess, zookeeper_root: str, tmp_path: Path
) -> None:
    cluster = new_cluster(zookeeper, zookeeper_root)
    with our_bookies(cluster, tmp_path, 2):

        async def case() -> None:
            async with client_of(cluster) as client:
                with pytest.raises(NotEnoughBookiesError, match=r"3.*2|2.*3"):
                    await client.create_ledger(3, 3, 2)

        in_loop(case)


def test_zookeeper_gone_and_back(tmp_path: Path) -> None:
    """Open ledgers are written on without ZooKeeper; afterwards the bookies are registered."""
    skip_without_zookeeper()
    folder = tmp_path / "zookeeper"
    server = start_zookeeper(folder, own_port(), tick_ms=200, is_durable=False)
    try:
        cluster = new_cluster(server, "/ledgers")
        # Sessions that outlive the time without a server: no registration lapses meanwhile.
        with our_bookies(cluster, tmp_path, 3, session_timeout_s=10.0) as bookies:

            async def case() -> None:
                nonlocal server
                async with client_of(cluster) as client:
                    writer = await client.create_ledger(3, 3, 2)
                    await add(writer, 20)
                    server.kill()
                    await add(writer, 200)
                    server = await asyncio.to_thread(
                        start_zookeeper, folder, server.port, tick_ms=200, is_durable=False
                    )
                    await add(writer, 20)
                    await writer.close()
                    await check(client, writer.ledger_id, 240)

                    # A machine so busy that sessions expire nevertheless: it registers them anew.
                    after: LedgerWriter | None = None
                    async with asyncio.timeout(WAIT_LIMIT_S):
                        while after is None:
                            with suppress(NotEnoughBookiesError):
                                after = await client.create_ledger(3, 3, 2)
                    await add(after, 10)
                    await after.close()

            in_loop(case)
            registered(cluster, bookies)
    finally:
        server.close()
