"""The vertical path: three bookies on loopback, a ledger written, one bookie killed, recovered."""

import asyncio

import pytest

from bookie.errors import LedgerClosedError, LedgerFencedError
from bookie.ledger.types import LedgerState
from tests.fixtures.ledger_cluster import LedgerCluster, run_with_cluster

PASSWORD = b"secret"


def test_a_ledger_outlives_its_writer_and_a_bookie() -> None:
    async def body(cluster: LedgerCluster) -> None:
        writing = await cluster.client()
        writer = await writing.create_ledger(3, 3, 2, password=PASSWORD)
        payloads = [b"entry %d" % number for number in range(1000)]
        ids = await asyncio.gather(*(writer.add(payload) for payload in payloads))
        assert ids == list(range(1000))

        await cluster.bookies["b0"].kill()

        reading = await cluster.client()
        reader = await reading.open(writer.ledger_id, PASSWORD)
        assert reader.metadata.state is LedgerState.CLOSED
        assert reader.lac == 999
        assert reader.length == sum(map(len, payloads))
        entries = await reader.read(0, 999)
        assert [bytes(entry.payload) for entry in entries] == payloads

        with pytest.raises((LedgerFencedError, LedgerClosedError)):
            await writer.add(b"too late")
        await writer.abandon()

    run_with_cluster(body)
