"""`bookie simpletest`: write a ledger, read it back, compare every byte, delete it."""

import asyncio
import contextlib
import time
from typing import Any

import click

from bookie.admin.ledgers import quorum_options
from bookie.admin.output import Advance, Output, bytes_text
from bookie.admin.world import Cluster, client_options
from bookie.client.client import LedgerClient
from bookie.errors import BookieError, DigestMismatchError
from bookie.ledger.types import DigestType
from bookie.runtime.os_executors import run

_AT_ONCE = 500
_PASSWORD = b"simpletest"


@click.command()
@click.option(
    "--entries", type=click.IntRange(1), default=1000, show_default=True, help="Entries to write."
)
@click.option(
    "--bytes",
    "entry_bytes",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="Bytes of each entry.",
)
@click.option("--keep", "is_kept", is_flag=True, help="Do not delete the ledger at the end.")
@quorum_options
@client_options
def simpletest(
    cluster: Cluster,
    output: Output,
    entries: int,
    entry_bytes: int,
    ensemble: int,
    write_quorum: int,
    ack_quorum: int,
    digest: str,
    *,
    is_kept: bool,
) -> None:
    """Prove that the cluster works: write a ledger, read it back and compare every byte.

    Uses one ledger of its own, with the password "simpletest", and deletes it at the end.
    """
    sizes = ensemble, write_quorum, ack_quorum
    chosen = DigestType[digest.upper()]
    record = run(_simpletest(cluster, output, entries, entry_bytes, sizes, chosen, is_kept=is_kept))
    output.record(
        record,
        f"ledger {record['ledger_id']} on {ensemble} bookies: "
        f"{entries:,} entries of {bytes_text(entry_bytes)} "
        f"written in {record['write_s']:.2f} s ({record['adds_per_s']:,.0f}/s), "
        f"read back equal in {record['read_s']:.2f} s"
        f"{'' if is_kept else ', deleted'}",
    )


async def _simpletest(
    cluster: Cluster,
    output: Output,
    entries: int,
    entry_bytes: int,
    sizes: tuple[int, int, int],
    digest: DigestType,
    *,
    is_kept: bool,
) -> dict[str, Any]:
    async with cluster.client() as client:
        writer = await client.create_ledger(*sizes, digest, _PASSWORD)
        ledger_id = writer.ledger_id
        try:
            with output.progress("writing", entries) as advance:
                start = time.perf_counter()
                for first in range(0, entries, _AT_ONCE):
                    numbers = range(first, min(entries, first + _AT_ONCE))
                    await asyncio.gather(*(writer.add(payload(n, entry_bytes)) for n in numbers))
                    advance.to(numbers.stop)
                await writer.close()
                write_s = time.perf_counter() - start
            with output.progress("reading", entries) as advance:
                start = time.perf_counter()
                await _compare(client, ledger_id, entries, entry_bytes, advance)
                read_s = time.perf_counter() - start
        except BaseException:
            if not is_kept:
                with contextlib.suppress(BookieError):  # what went wrong before is the error
                    await client.delete(ledger_id)
            raise
        if not is_kept:
            await client.delete(ledger_id)
    return {
        "ledger_id": ledger_id,
        "entries": entries,
        "entry_bytes": entry_bytes,
        "write_s": write_s,
        "adds_per_s": entries / write_s,
        "read_s": read_s,
        "is_kept": is_kept,
    }


async def _compare(
    client: LedgerClient, ledger_id: int, entries: int, entry_bytes: int, advance: Advance
) -> None:
    reader = await client.open(ledger_id, _PASSWORD, recover=False)
    try:
        if reader.lac != entries - 1:
            raise DigestMismatchError(
                f"ledger {ledger_id}: expected its last entry to be {entries - 1}, "
                f"found {reader.lac}"
            )
        for first in range(0, entries, _AT_ONCE):
            last = min(entries, first + _AT_ONCE) - 1
            for entry in await reader.read(first, last):
                if bytes(entry.payload) != payload(entry.entry_id, entry_bytes):
                    raise DigestMismatchError(
                        f"ledger {ledger_id}: entry {entry.entry_id} is not what was written"
                    )
            advance.to(last + 1)
    finally:
        await reader.close()


def payload(entry_id: int, byte_count: int) -> bytes:
    """Return "entry-<id>;" over and over, byte_count long."""
    pattern = b"entry-%d;" % entry_id
    return (pattern * (byte_count // len(pattern) + 1))[:byte_count]
