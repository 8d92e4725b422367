"""What commands have open that look at the log of a tablespace; they fence and write nothing."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import NamedTuple

from bookie.client.client import LedgerClient
from bookie.metadata.interfaces import VersionedStore
from bookie.runtime.os_executors import run_until_stopped
from herdpy.cluster.cluster_record import read_cluster
from herdpy.cluster.listing import LedgerListing
from herdpy.cluster.observability.log_reading import LogReading
from herdpy.cluster.tablespace_nodes import TablespaceNodes, TablespaceRecord
from herdpy.cluster.tail import LedgerTail
from herdpy.driver.local import new_world
from herdpy.model.lsn import Lsn
from herdpy.node.place import ClusterPlace

PATIENCE_S = 10.0
OnRecord = Callable[[Lsn, bytes], object]


class LogAccess(NamedTuple):
    """The log of one tablespace, while its session lasts."""

    store: VersionedStore
    client: LedgerClient
    record: TablespaceRecord
    password: bytes
    """Of its ledgers."""
    listing: LedgerListing
    reading: LogReading


@asynccontextmanager
async def log_access(place: ClusterPlace, name: str) -> AsyncGenerator[LogAccess]:
    """Have a tablespace's log open in the block.

    OperationalError 08001: ZooKeeper does not answer; 58P01: there is no cluster at the root.
    ProgrammingError 3D000: there is no tablespace of the name.
    """
    async with place.session() as store:
        cluster = await read_cluster(store, place.root, patience_s=PATIENCE_S)
        nodes = TablespaceNodes(store, place.root, patience_s=PATIENCE_S)
        record = (await nodes.read(name)).record
        clock, rng, _ = new_world()
        client = await LedgerClient.connect(
            store, rng=rng, clock=clock, root=cluster.ledgers, tls=place.bookie_tls
        )
        try:
            listing = LedgerListing(store, nodes.ledgers_path(record.id), patience_s=PATIENCE_S)
            password = await nodes.password(record.id)
            reading = LogReading(client, listing, tablespace=record.id, password=password)
            yield LogAccess(store, client, record, password, listing, reading)
        finally:
            await client.close()


async def tell_records(
    place: ClusterPlace, name: str, wanted: Lsn | None, *, follows: bool, tell: OnRecord
) -> None:
    """Tell each record from a position on, of the last ledger for None; follows: until a signal.

    Errors as log_access(), LogReading.before() and records().
    """
    async with log_access(place, name) as access:
        after = await access.reading.before(wanted)
        if not follows:
            async with aclosing(access.reading.records(after)) as records:
                async for lsn, record in records:
                    tell(lsn, record)
            return
        await run_until_stopped(_follow(access, after, tell))


async def _follow(access: LogAccess, after: Lsn, tell: OnRecord) -> None:
    tail = LedgerTail(access.client, access.store, access.listing, password=access.password)
    try:
        async with aclosing(tail.runs(after)) as runs:
            async for run in runs:
                for lsn, record in run:
                    tell(lsn, record)
    finally:
        await tail.close()
