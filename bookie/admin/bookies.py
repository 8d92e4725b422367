"""`bookie bookies …`: the registered bookies, how much space each has, and their lifecycle."""

import click

from bookie.admin.lifecycle import COMMANDS
from bookie.admin.output import Output, bytes_text
from bookie.admin.world import Cluster, client_options, cluster_options, operations
from bookie.management.cluster import bookie_row
from bookie.metadata.bookies import BookieDirectory
from bookie.runtime.os_executors import run


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
            records = [bookie_row(directory, bookie_id) for bookie_id in wanted]
        finally:
            await directory.close()
    output.records(records, ("bookie_id", "state", "address"), "no bookie is registered")


@bookies.command()
@client_options
def info(cluster: Cluster, output: Output) -> None:
    """Ask every registered bookie for its disk space."""
    run(_info(cluster, output))


async def _info(cluster: Cluster, output: Output) -> None:
    async with cluster.existing() as store:
        records = await operations(cluster, store).bookie_infos()
    if not output.is_json:
        for record in records:
            for name in ("total_bytes", "free_bytes"):
                record[name] = None if record[name] is None else bytes_text(record[name])
    output.records(
        records,
        ("bookie_id", "state", "answer", "free_bytes", "total_bytes"),
        "no bookie is registered",
    )
