"""A cluster that is secured while a bookie, a client and AutoRecovery have no login, and back.

Nothing ends, nothing is lost or collected; what needs no metadata goes on.
"""

import asyncio
import logging

import pytest

from bookie.autorecovery.service import AutoRecovery
from bookie.client.client import LedgerClient
from bookie.config import AutoRecoveryConfig
from bookie.errors import StoreAccessError
from bookie.ledger.types import Status
from bookie.metadata.acl import StoreAccess
from bookie.metadata.acl_walk import all_open, set_acls
from bookie.metadata.memory import MemoryStore
from bookie.metadata.registration import RegistrationState
from bookie.metadata.zookeeper_login import Login
from bookie.proto import v3
from tests.fixtures.bookie_node import WRITABLE, Cluster, simulate
from tests.fixtures.bookies import add, ask
from tests.fixtures.metadata import SeededRng

ADA = Login("digest", "ada", "x").identity
CONFIG = AutoRecoveryConfig(bookie_check_interval_s=5, ledger_check_interval_s=7, poll_interval_s=1)


async def add_and_read(cluster: Cluster, ledger_id: int) -> tuple[Status, Status]:
    peer = await cluster.peer()  # a new one: who says nothing for long is left by the bookie
    added = await ask(peer, add(98, ledger_id, 9))
    read = await ask(peer, v3.encode_read_request(99, ledger_id, 3))
    return added.status, read.status


def test_who_is_locked_out_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    async def test(cluster: Cluster) -> None:
        stores = [MemoryStore(cluster.metadata) for _ in range(2)]
        ada = MemoryStore(cluster.metadata, None, StoreAccess((ADA,)))
        node = await cluster.start()
        client = await LedgerClient.connect(stores[0], rng=SeededRng(1), clock=cluster.clock)
        writer = await client.create_ledger(1, 1, 1)
        for n in range(5):
            await writer.add(b"%d" % n)
        recovery = await AutoRecovery.start(
            stores[1], "/ledgers", "w", clock=cluster.clock, rng=SeededRng(2), config=CONFIG
        )
        await asyncio.sleep(5)
        await set_acls(ada, "/ledgers", ada.access.secured_acl)
        await asyncio.sleep(60)
        assert await add_and_read(cluster, writer.ledger_id) == (Status.OK, Status.OK)
        await writer.add(b"an entry needs no metadata")
        with pytest.raises(StoreAccessError):
            await client.create_ledger(1, 1, 1)

        cluster.metadata.expire(cluster.store.session_id)
        await asyncio.sleep(30)
        assert not cluster.has(WRITABLE)
        assert node.registration.state is RegistrationState.UNSURE
        # Whether it is drained cannot be read: it takes no adds, and gives what it has.
        assert await add_and_read(cluster, writer.ledger_id) == (Status.READ_ONLY, Status.OK)
        assert client.bookies.writable == (node.bookie_id,)  # as it was known

        await set_acls(ada, "/ledgers", all_open)
        await asyncio.sleep(30)
        assert cluster.has(WRITABLE)
        assert await add_and_read(cluster, writer.ledger_id) == (Status.OK, Status.OK)
        again = await client.create_ledger(1, 1, 1)
        await again.add(b"x")
        await again.close()
        await writer.close()
        await recovery.close()
        await client.close()
        for store in (*stores, ada):
            await store.close()

    simulate(test)
    told = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert sum("cannot register itself" in text for text in told) == 1
    assert any("the list of bookies cannot be read" in text for text in told)


def test_a_start_without_the_login_says_so_at_once() -> None:
    async def test(cluster: Cluster) -> None:
        ada = MemoryStore(cluster.metadata, None, StoreAccess((ADA,)))
        await set_acls(ada, "/ledgers", ada.access.secured_acl)
        begun = cluster.loop.time()
        with pytest.raises(StoreAccessError):
            await cluster.start()
        assert cluster.loop.time() - begun < 1
        await ada.close()

    simulate(test)


def test_a_bookie_with_the_login_notices_nothing() -> None:
    async def test(cluster: Cluster) -> None:
        ada = MemoryStore(cluster.metadata, None, StoreAccess((ADA,)))
        own = MemoryStore(cluster.metadata, None, StoreAccess((ADA,)))
        node = await cluster.start(store=own)
        for acl in (ada.access.secured_acl, all_open, ada.access.secured_acl):
            await set_acls(ada, "/ledgers", acl)
            cluster.metadata.expire(own.session_id)
            await asyncio.sleep(30)
            assert node.registration.state is RegistrationState.REGISTERED
            peer = await cluster.peer()
            assert (await ask(peer, add(1, 7, 0))).status is Status.OK
        await node.close()
        await own.close()
        await ada.close()

    simulate(test)
