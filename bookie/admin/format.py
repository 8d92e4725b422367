"""`bookie format`: make the metadata of a new cluster, or remove an old one's first."""

import click

from bookie.admin.output import Output
from bookie.admin.world import Cluster, cluster_options
from bookie.errors import IllegalOperationError
from bookie.metadata.cluster import initialize, read_instance_id, remove
from bookie.metadata.ledger_paths import Layout
from bookie.runtime.os_executors import run
from bookie.runtime.os_rng import OsRng

LAYOUTS = {
    "hierarchical": Layout.HIERARCHICAL,
    "long": Layout.LONG_HIERARCHICAL,
    "flat": Layout.FLAT,
}


@click.command("format")
@click.option(
    "--layout",
    type=click.Choice(sorted(LAYOUTS)),
    default="hierarchical",
    show_default=True,
    help="How the nodes of ledgers are laid out in ZooKeeper; the default is Apache BookKeeper's.",
)
@click.option(
    "--destroy",
    "doomed",
    metavar="INSTANCE",
    help="Remove the cluster that has this instance id first: every ledger is lost, for ever.",
)
@cluster_options
def format_cluster(cluster: Cluster, output: Output, layout: str, doomed: str | None) -> None:
    """Make the metadata of a new cluster in ZooKeeper.

    Refuses where there is one. With --destroy that one is removed, together with the metadata of
    all its ledgers, unless one of its bookies is registered; their data directories must be removed
    by hand.
    """
    instance = run(_format(cluster, LAYOUTS[layout], doomed))
    output.record(
        {"instance_id": instance, "root": cluster.root, "layout": layout},
        f"made a cluster at {cluster.root}, instance {instance}",
    )


async def _format(cluster: Cluster, layout: Layout, doomed: str | None) -> str:
    async with cluster.session() as store:
        found = await read_instance_id(store, cluster.root)
        if found is not None and doomed is None:
            raise IllegalOperationError(
                f"{cluster.root}: there is a cluster already, instance {found}; nothing was "
                f"changed (--destroy {found} removes it and every ledger in it)"
            )
        if doomed is not None:
            await remove(store, cluster.root, doomed)
        return await initialize(store, cluster.root, rng=OsRng(), layout=layout)
