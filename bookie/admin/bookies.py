"""`bookie bookies …`: the registered bookies, how much space each has, and their lifecycle."""

import asyncio

import click

from bookie.admin.lifecycle import COMMANDS
from bookie.admin.output import Output, bytes_text
from bookie.admin.world import Cluster, client_options, cluster_options, run
from bookie.client.channels import AsyncioChannels
from bookie.client.interfaces import BookieInfo
from bookie.config import ClientConfig
from bookie.ledger.types import BookieId, Status
from bookie.metadata.bookies import BookieDirectory, Mode


@click.group()
def bookies() -> None:
    """List the bookies of a cluster, their space and lifecycle; drain and remove them."""


for command in COMMANDS:
    bookies.add_command(command)


@bookies.command("list")
@click.option(
    "--all",
    "is_all",
    is_flag=True,
    help="Also bookies that are known by their cookie and not registered now (away).",
)
@cluster_options
def list_bookies(cluster: Cluster, output: Output, *, is_all: bool) -> None:
    """List the registered bookies: writable and read-only ones."""
    run(_list(cluster, output, is_all=is_all))


async def _list(cluster: Cluster, output: Output, *, is_all: bool) -> None:
    async with cluster.existing() as store:
        directory = BookieDirectory(store, cluster.root)
        await directory.start()
        try:
            known = await directory.all_known() if is_all else ()
            wanted = sorted(directory.registered.union(known))
            records = [_record(directory, bookie_id) for bookie_id in wanted]
        finally:
            await directory.close()
    output.records(records, ("bookie_id", "state", "address"), "no bookie is registered")


def _record(directory: BookieDirectory, bookie_id: BookieId) -> dict[str, object]:
    mode = directory.mode_of(bookie_id)
    address = None if mode is Mode.AWAY else directory.address_of(bookie_id)
    return {
        "bookie_id": bookie_id,
        "state": mode.value,
        "address": None if address is None else f"{address[0]}:{address[1]}",
    }


@bookies.command()
@client_options
def info(cluster: Cluster, output: Output) -> None:
    """Ask every registered bookie for its disk space."""
    run(_info(cluster, output))


async def _info(cluster: Cluster, output: Output) -> None:
    async with cluster.existing() as store:
        directory = BookieDirectory(store, cluster.root)
        await directory.start()
        channels = AsyncioChannels(directory, ClientConfig(), tls=cluster.tls)
        try:
            records: list[dict[str, object]] = []
            bookie_ids = sorted(directory.registered)
            # All at once: those that hang cost one time-out together.
            answers = await asyncio.gather(*(_ask(channels, bookie_id) for bookie_id in bookie_ids))
            for bookie_id, found in zip(bookie_ids, answers, strict=True):
                record = _record(directory, bookie_id)
                record |= {
                    "answer": found.status.name,
                    "total_bytes": found.total_bytes if found.status is Status.OK else None,
                    "free_bytes": found.free_bytes if found.status is Status.OK else None,
                }
                if not output.is_json and found.status is Status.OK:
                    record |= {
                        "total_bytes": bytes_text(found.total_bytes),
                        "free_bytes": bytes_text(found.free_bytes),
                    }
                records.append(record)
        finally:
            await channels.close()
            await directory.close()
    output.records(
        records,
        ("bookie_id", "state", "answer", "free_bytes", "total_bytes"),
        "no bookie is registered",
    )


def _ask(channels: AsyncioChannels, bookie_id: BookieId) -> "asyncio.Future[BookieInfo]":
    answered: asyncio.Future[BookieInfo] = asyncio.get_running_loop().create_future()
    channels.info(bookie_id, answered.set_result)
    return answered
