"""What must be true of a cluster beside what its clients see (tests/sim/server/checkers.py).

chain  the list of ledgers is ascending; each listed ledger is CLOSED in the end, and begins with a
       header that names the end of the one before it, under an epoch that never falls; in a ledger
       of the tablespace that is not listed there is nothing but its header; no node ever finds the
       log, or its own copy, damaged
staleness, monotonic: see readers.py
memory a node that follows has the rows of a large job in pages, whatever else it does with these;
       a copy that is closed has nothing any more of the memory that its node has for all
access in a cluster that is secured each node of the metadata store has the ACL that `cluster acl
       show` and `bookie acl show` want, from when it is made, and who reads it there needs no more
"""

from collections import Counter

from bookie.client.client import LedgerClient
from bookie.client.record_frames import split
from bookie.errors import NoSuchLedgerError, NoSuchLedgerMetadataError
from bookie.ledger.types import LedgerState
from bookie.metadata.acl import StoreAccess, acl_text
from bookie.metadata.acl_walk import Deviation, find_deviations
from bookie.metadata.interfaces import VersionedStore
from bookie.metadata.memory_server import MemoryStoreServer
from herdpy.cluster.ledgers_info import LedgersInfo
from herdpy.engine.database import Database
from herdpy.engine.resources import Resources
from herdpy.engine.state import page_adoption
from herdpy.engine.state.tablespace import Tablespace
from herdpy.log.record import BeginLedger, decode
from tests.sim.ledger.checkers import CheckError as LedgerCheckError
from tests.sim.server.checkers import CHECKERS as OF_SERVERS

CHECKERS = (*OF_SERVERS, "chain", "memory", "staleness", "monotonic", "access")


class CheckError(LedgerCheckError):
    """A checker found something."""

    def __init__(self, checker: str, message: str) -> None:
        assert checker in CHECKERS
        Exception.__init__(self, f"[{checker}] {message}")
        self.checker = checker


def check_memory(tablespace: Tablespace) -> None:
    """Look for rows of a large job in the memtables of a copy that follows."""
    table = tablespace.state.catalog.table("journal")
    if table is None:
        return
    for memtable in tablespace.state.tables[table.id].memtables:
        counts = Counter(position for position, _, _ in memtable.chains.values())
        if max(counts.values(), default=0) > page_adoption.FEW_ROWS:
            raise CheckError("memory", f"a memtable has rows of one commit: {counts}")


def check_copy_closed(database: Database) -> None:
    """Look for what a copy has of its node's memory that was closed."""
    resources, account = database.instance.resources, database.memory.account
    if account.parent is not None:
        raise CheckError("memory", f"{account.path}, of a copy that is closed, is counted")
    if any(each.refusals is database.refusals for each in resources.results.holders):
        raise CheckError("memory", f"{account.name}, which is closed, has places of results")


def check_closed(resources: Resources) -> None:
    """Look for what a node holds whose copies are all closed."""
    resources.memory.governor.settle()
    if resources.memory.bytes_used or resources.results.used:
        raise CheckError("memory", f"{resources.memory.figures()} without an open copy")


def check_made(server: MemoryStoreServer, path: str, access: StoreAccess) -> None:
    """Look at a node of the metadata store that was just made."""
    acl, _ = server.tree.read_acl(path)
    if acl != access.secured_acl(path):
        raise CheckError("access", f"{path} is made with {acl_text(acl)}")


async def check_access(store: VersionedStore, *roots: str) -> None:
    """Look at all nodes of the metadata store below some roots, as `acl show` does."""
    found: list[Deviation] = []
    for root in roots:
        await find_deviations(store, root, store.access.secured_acl, found.append)
    if found:
        raise CheckError("access", ", ".join(f"{each.path}: {each.text}" for each in found))


async def check_chain(
    client: LedgerClient, info: LedgersInfo, tablespace: bytes, password: bytes
) -> int:
    """Look at every ledger of a tablespace, all closed; return how many are not on its list."""
    before, epoch = (-1, -1), 0
    for ledger_id in info.ledgers:
        metadata = await client.metadata(ledger_id)
        if metadata.state is not LedgerState.CLOSED:
            raise CheckError("chain", f"ledger {ledger_id} is {metadata.state}")
        found = await _header(client, ledger_id, password)
        if found is None or (found.previous_ledger, found.previous_entry) != before:
            raise CheckError("chain", f"ledger {ledger_id} begins with {found}, behind {before}")
        if found.epoch < epoch:
            raise CheckError("chain", f"ledger {ledger_id} has epoch {found.epoch} behind {epoch}")
        before, epoch = (ledger_id, metadata.last_entry_id), found.epoch
    return await _check_unlisted(client, info, tablespace, password)


async def _header(client: LedgerClient, ledger_id: int, password: bytes) -> BeginLedger | None:
    reader = await client.open(ledger_id, password)
    (entry,) = await reader.read(0, 0)
    await reader.close()
    (record,) = split(entry.payload)
    found = decode(record)
    return found if isinstance(found, BeginLedger) else None


async def _check_unlisted(
    client: LedgerClient, info: LedgersInfo, tablespace: bytes, password: bytes
) -> int:
    count = 0
    async for ledger_id in client.ledger_ids():
        metadata = await client.metadata(ledger_id)
        if ledger_id in info.ledgers or metadata.custom.get("tablespace") != tablespace:
            continue
        count += 1
        try:
            metadata = await client.recover(ledger_id, password)
        except (NoSuchLedgerError, NoSuchLedgerMetadataError):
            continue
        if metadata.last_entry_id > 0:
            raise CheckError(
                "chain",
                f"ledger {ledger_id} is not listed, and has {metadata.last_entry_id} entries of "
                "records",
            )
    return count
