"""`herdpy cluster acl`: who may do what with the cluster's nodes in ZooKeeper, as click knows it.

Below the cluster's root. Those of its BookKeeper are `bookie acl`'s: the same walk, over them.
"""

import json
import sys

import click

from bookie.runtime.os_executors import run
from herdpy.cli.cluster.options import cluster_options, json_option
from herdpy.cli.console import error_console, output_console
from herdpy.errors import OperationalError
from herdpy.node.place import ClusterPlace, as_herdpy_errors

_SHOWN_MAX = 100
_STATES = ("secured", "open")


@click.group()
def acl() -> None:
    """Show or set who may do what with the cluster's nodes in ZooKeeper.

    A cluster is open (world:anyone:cdrwa), or secured: every node of it is for the logins of the
    cluster's nodes alone, and readers may see which node leads, and where nodes are.
    """


@acl.command("show")
@cluster_options
@click.option(
    "--expect",
    type=click.Choice(_STATES),
    help="What every node should be.  [default: secured with a login, else open]",
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=_SHOWN_MAX,
    show_default=True,
    help="Lines shown; with --json all.",
)
@json_option
def show(place: ClusterPlace, expect: str | None, limit: int, is_json: bool) -> None:
    """List the nodes whose ACL is another; exit code 1 when there are some.

    Nodes below one node that have the same ACL are one line, with their number.
    """
    from herdpy.cli.cluster.acl import find_others

    state = expect or ("secured" if place.logins else "open")
    with as_herdpy_errors("cluster acl show"):
        found = run(find_others(place, state))
    deviating = sum(each.nodes for each in found.deviations)
    if is_json:
        lines = [
            {"path": each.path, "nodes": each.nodes, "acl": each.text} for each in found.deviations
        ]
        said = {"nodes": found.total, "deviating": deviating, "expected": state, "found": lines}
        click.echo(json.dumps(said))
    else:
        console = output_console()
        for each in found.deviations[:limit]:
            times = f"{each.nodes:,} × " if each.nodes > 1 else ""
            console.print(f"{each.path}  {times}{each.text}")
        if (left := len(found.deviations) - limit) > 0:
            console.print(f"{left:,} more lines; --limit shows more, --json all")
        console.print(
            f"{deviating:,} of {found.total:,} nodes are not {state}"
            if deviating
            else f"all {found.total:,} nodes are {state}"
        )
    sys.exit(1 if deviating else 0)


@acl.command("set")
@cluster_options
@click.argument("state", type=click.Choice(_STATES))
@click.option("--dry-run", "is_dry", is_flag=True, help="Only say what would be done.")
@click.option(
    "--unchecked",
    "is_unchecked",
    is_flag=True,
    help="Do it although registered nodes do not say that they log in so.",
)
@json_option
def set_(place: ClusterPlace, state: str, is_dry: bool, is_unchecked: bool, is_json: bool) -> None:
    """Set the ACLs of all nodes of a running cluster; may be interrupted and repeated.

    Nodes get the login first, then ACLs are set: the order is in the guide on security. Refuses to
    secure a cluster while a registered node does not say that it has the login.
    """
    from herdpy.cli.cluster.acl import set_all

    warn = error_console().print
    with as_herdpy_errors("cluster acl set"):
        found = run(set_all(place, state, warn, is_dry=is_dry, is_checked=not is_unchecked))
    outcome = found.outcome
    if is_json:
        said = {
            "state": state,
            "acl": found.text,
            "acl_for_readers": found.text_for_readers,
            "nodes": outcome.nodes,
            "changed": outcome.changed,
            "refused": outcome.refused,
            "refused_paths": outcome.refused_paths,
            "is_dry": is_dry,
        }
        click.echo(json.dumps(said))
    else:
        did = "would be changed" if is_dry else "were changed"
        more = f"; what drivers read: {found.text_for_readers}" if found.text_for_readers else ""
        click.echo(f"{outcome.changed:,} of {outcome.nodes:,} nodes {did} to {found.text}{more}")
    if outcome.refused:
        raise OperationalError(
            f"{outcome.refused:,} nodes give this session no right to that, the first "
            f"{', '.join(outcome.refused_paths)}",
            sqlstate="42501",
            hint="add the login that they are for to the file (several digest logins count "
            "together), or log in as ZooKeeper's super user",
        )
