"""`bookie ledger …`: list, look into, read, make, recover and delete ledgers."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click

from bookie.admin.ids import LEDGER_ID, distinct
from bookie.admin.output import Output, confirm, printable
from bookie.admin.world import Cluster, client_options, cluster_options, operations, password_option
from bookie.errors import (
    IncorrectParameterError,
    MetadataFormatError,
)
from bookie.ledger.types import DigestType
from bookie.management.cluster import ledger_row
from bookie.metadata.ledgers import LedgerManager
from bookie.runtime.os_clock import OsClock
from bookie.runtime.os_executors import run
from bookie.runtime.os_rng import OsRng

_READ_AT_ONCE = 100
_DELETES_AT_ONCE = 32
_ADDS_AT_ONCE = 1000
_COLUMNS = ("ledger_id", "state", "last_entry_id", "length", "ensemble_size",
            "write_quorum_size", "ack_quorum_size", "digest")  # fmt: skip


@click.group()
def ledger() -> None:
    """List, look into, read, make, recover and delete ledgers."""


def quorum_options(command: click.decorators.FC) -> click.decorators.FC:
    """Give a command --ensemble, --write-quorum, --ack-quorum and --digest."""
    for option in (
        click.option(
            "--digest",
            type=click.Choice([digest.name for digest in DigestType], case_sensitive=False),
            default=DigestType.CRC32C.name,
            show_default=True,
            help="The checksum that entries carry; HMAC is keyed with the password.",
        ),
        click.option(
            "--ack-quorum", default=2, show_default=True, help="Acknowledgements an add waits for."
        ),
        click.option(
            "--write-quorum", default=3, show_default=True, help="Bookies each entry is sent to."
        ),
        click.option(
            "--ensemble", default=3, show_default=True, help="Bookies that entries are spread over."
        ),
    ):
        command = option(command)
    return command


@ledger.command("list")
@click.option("--long", "is_long", is_flag=True, help="Print each ledger's metadata, too.")
@cluster_options
def list_ledgers(cluster: Cluster, output: Output, *, is_long: bool) -> None:
    """List the ids of all ledgers, ascending."""
    run(_list(cluster, output, is_long=is_long))


async def _list(cluster: Cluster, output: Output, *, is_long: bool) -> None:
    async with cluster.session() as store:
        asked = operations(cluster, store)
        found = [ledger_id async for ledger_id in asked.ledgers.ledger_ids()]
        if not is_long:
            records: list[dict[str, object]] = [{"ledger_id": number} for number in found]
        else:
            records = []
            with output.progress("reading metadata", len(found)) as advance:
                for done, number in enumerate(found, 1):
                    row = await asked.ledger_row(number)
                    if row is not None:
                        records.append(row)
                        if "reason" in row:
                            output.warn(row["reason"])
                    advance.to(done)
        output.records(records, _COLUMNS if is_long else _COLUMNS[:1], "there are no ledgers")


@ledger.command()
@click.argument("ledger_id", type=LEDGER_ID)
@cluster_options
def metadata(cluster: Cluster, output: Output, ledger_id: int) -> None:
    """Show what the metadata store knows of a ledger."""
    run(_metadata(cluster, output, ledger_id))


async def _metadata(cluster: Cluster, output: Output, ledger_id: int) -> None:
    async with cluster.session() as store:
        record = await operations(cluster, store).ledger_metadata(ledger_id)
        if not output.is_json:
            record["segments"] = [
                f"from {segment['first_entry_id']}: {', '.join(segment['ensemble'])}"
                for segment in record["segments"]
            ]
        output.record(record)


@ledger.command()
@click.argument("ledger_id", type=LEDGER_ID)
@click.option(
    "--first", type=click.IntRange(0), default=0, show_default=True, help="The first entry."
)
@click.option(
    "--last", type=click.IntRange(0), help="The last entry.  [default: the last confirmed one]"
)
@click.option(
    "--recover", "is_recovering", is_flag=True,
    help="Recover and close the ledger first; a writer that is still at work is fenced.",
)  # fmt: skip
@click.option(
    "--unconfirmed", "is_unconfirmed", is_flag=True,
    help="Read up to --last even beyond the last confirmed entry.",
)  # fmt: skip
@click.option(
    "--raw", "is_raw", is_flag=True, help="Write the bytes of the payloads and nothing else."
)
@password_option
@client_options
def read(
    cluster: Cluster,
    output: Output,
    ledger_id: int,
    first: int,
    last: int | None,
    password: str,
    *,
    is_recovering: bool,
    is_unconfirmed: bool,
    is_raw: bool,
) -> None:
    """Print the entries of a ledger, up to the last confirmed one."""
    if is_unconfirmed and last is None:
        raise click.UsageError("--unconfirmed needs --last: the end of such a ledger is not known")
    if last is not None and last < first:
        raise click.UsageError(f"expected --first <= --last, found {first} and {last}")
    run(
        _read(
            cluster, output, ledger_id, first, last, password.encode(),
            is_recovering=is_recovering, is_unconfirmed=is_unconfirmed, is_raw=is_raw,
        )
    )  # fmt: skip


async def _read(
    cluster: Cluster,
    output: Output,
    ledger_id: int,
    first: int,
    last: int | None,
    password: bytes,
    *,
    is_recovering: bool,
    is_unconfirmed: bool,
    is_raw: bool,
) -> None:
    async with cluster.client() as client:
        reader = await client.open(ledger_id, password, recover=is_recovering)
        try:
            end = reader.lac if last is None else last
            if first > max(end, 0):
                raise IncorrectParameterError(
                    f"ledger {ledger_id}: expected a first entry up to {end}, found {first}: the "
                    "last one known to be confirmed is before it"
                )
            ask = reader.read_unconfirmed if is_unconfirmed else reader.read
            for start in range(first, end + 1, _READ_AT_ONCE):
                for entry in await ask(start, min(end, start + _READ_AT_ONCE - 1)):
                    payload = bytes(entry.payload)
                    if is_raw:
                        output.raw(payload)
                        continue
                    output.record(
                        {"entry_id": entry.entry_id, "lac": entry.lac, "length": entry.length,
                         "payload": payload},
                        f"{entry.entry_id}: {printable(payload)}",
                    )  # fmt: skip
        finally:
            await reader.close()


@ledger.command()
@click.argument("file", type=click.File("rb"), default="-")
@quorum_options
@password_option
@client_options
def create(
    cluster: Cluster,
    output: Output,
    file: BinaryIO,
    ensemble: int,
    write_quorum: int,
    ack_quorum: int,
    digest: str,
    password: str,
) -> None:
    """Make a ledger of the lines of FILE (default: standard input), one entry each; close it."""
    path = Path(str(file.name))
    total = path.stat().st_size if path.is_file() else None
    sizes = ensemble, write_quorum, ack_quorum
    run(_create(cluster, output, file, total, sizes, digest, password))


async def _create(
    cluster: Cluster,
    output: Output,
    file: BinaryIO,
    total: int | None,
    sizes: tuple[int, int, int],
    digest: str,
    password: str,
) -> None:
    done_bytes = 0
    async with cluster.client() as client:
        writer = await client.create_ledger(*sizes, DigestType[digest.upper()], password.encode())
        try:
            with output.progress("bytes written", total) as advance:
                for lines in _chunks(file):
                    await asyncio.gather(*(writer.add(line.removesuffix(b"\n")) for line in lines))
                    done_bytes += sum(map(len, lines))
                    advance.to(done_bytes)
            await writer.close()
        except BaseException:
            number = writer.ledger_id
            output.say_aside(
                f"ledger {number} was begun and is not closed: `bookie ledger recover {number}` "
                f"closes it with what it has, `bookie ledger delete {number}` removes it"
            )
            raise
        output.record(
            {"ledger_id": writer.ledger_id, "last_entry_id": writer.lac},
            f"ledger {writer.ledger_id}: {writer.lac + 1:,} entries",
        )


def _chunks(file: BinaryIO) -> Iterator[list[bytes]]:
    lines: list[bytes] = []
    for line in file:
        lines.append(line)
        if len(lines) == _ADDS_AT_ONCE:
            yield lines
            lines = []
    if lines:
        yield lines


@ledger.command()
@click.argument("ledger_id", type=LEDGER_ID)
@password_option
@client_options
def recover(cluster: Cluster, output: Output, ledger_id: int, password: str) -> None:
    """Decide where a ledger ends and close it; a writer that is still at work is fenced."""
    run(_recover(cluster, output, ledger_id, password.encode()))


async def _recover(cluster: Cluster, output: Output, ledger_id: int, password: bytes) -> None:
    async with cluster.client() as client:
        with output.progress("entries recovered") as advance:
            found = await client.recover(
                ledger_id, password, on_progress=lambda done, last: advance.to(done)
            )
        output.record(
            ledger_row(found),
            f"ledger {ledger_id}: closed at entry {found.last_entry_id}, {found.length:,} bytes",
        )


@ledger.command()
@click.argument(
    "ledger_ids", type=LEDGER_ID, nargs=-1, required=True, callback=distinct,
    metavar="LEDGER_ID...",
)  # fmt: skip
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
@cluster_options
def delete(cluster: Cluster, output: Output, ledger_ids: tuple[int, ...], *, is_sure: bool) -> None:
    """Delete ledgers for ever; their bookies free the space later.

    Nothing is deleted when one of them is not there.
    """
    confirm(f"Delete {len(ledger_ids)} ledger(s) for ever?", is_sure=is_sure)
    run(_delete(cluster, output, ledger_ids))


async def _delete(cluster: Cluster, output: Output, ledger_ids: tuple[int, ...]) -> None:
    async with cluster.session() as store:
        manager = LedgerManager(store, cluster.root, OsRng(), OsClock())
        for number in ledger_ids:  # a typing error is told; deleting itself would not tell it
            with contextlib.suppress(MetadataFormatError):
                await manager.read(number)
        deleted: list[int] = []
        try:
            with output.progress("ledgers deleted", len(ledger_ids)) as advance:
                for start in range(0, len(ledger_ids), _DELETES_AT_ONCE):
                    part = ledger_ids[start : start + _DELETES_AT_ONCE]
                    await asyncio.gather(*map(manager.delete, part))
                    deleted += part
                    advance.to(len(deleted))
        finally:  # what is gone is told, also when the rest fails
            for number in deleted:
                output.record({"deleted": number}, f"deleted ledger {number}")
