"""`herdpy tablespace set-leader`, as click knows it."""

import click

from bookie.runtime.os_executors import run
from herdpy.cli.cluster.options import cluster_options
from herdpy.cli.console import error_console
from herdpy.node.place import ClusterPlace, as_herdpy_errors


@click.command("set-leader")
@cluster_options
@click.argument("name")
@click.argument("node")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(1, 3600),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="For the node to be level and to lead.",
)
def set_leader(place: ClusterPlace, name: str, node: str, timeout_s: float) -> None:
    """Have NODE lead the tablespace NAME, in good order: no commit and no connection is lost.

    The leader hands over as soon as NODE has all of the log. Meanwhile new transactions wait, and
    open ones have the node's handover_drain_s to end.
    """
    from herdpy.cli.cluster.set_leader import move_leader

    errors = error_console()
    with as_herdpy_errors("tablespace set-leader"), errors.status("") as status:
        moved = run(move_leader(place, name, node, timeout_s, status.update))
    click.echo(moved)
