"""`bookie acl`: who may do what with the cluster's nodes in ZooKeeper."""

import sys

import click

from bookie.admin.output import Output, confirm
from bookie.admin.world import Cluster, cluster_options
from bookie.errors import IllegalOperationError
from bookie.management.acls import Readiness, ask_readiness
from bookie.metadata.acl import Acl, acl_text
from bookie.metadata.acl_walk import (
    Deviation,
    Outcome,
    Wanted,
    all_open,
    find_deviations,
    set_acls,
)
from bookie.metadata.interfaces import VersionedStore
from bookie.runtime.os_executors import run

_SHOWN_MAX = 100
_STATES = ("secured", "open")
_LOGIN_NEEDED = (
    "secured is for the identities of a login: expected --zookeeper-login FILE, or "
    "BOOKIE_ZOOKEEPER_LOGIN, found neither"
)


@click.group()
def acl() -> None:
    """Show or set who may do what with the cluster's nodes in ZooKeeper.

    A cluster is open (world:anyone:cdrwa), or secured: every node for the logins of its bookies
    and clients alone.
    """


@acl.command("show")
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
@cluster_options
def show(cluster: Cluster, output: Output, expect: str | None, limit: int) -> None:
    """List the nodes whose ACL is another; exit code 1 when there are some.

    Nodes below one node that have the same ACL are one line, with their number.
    """
    state = expect or ("secured" if cluster.logins else "open")
    total, deviating = run(_show(cluster, output, state, limit))
    output.record(
        {"nodes": total, "deviating": deviating, "expected": state},
        f"{deviating:,} of {total:,} nodes are not {state}"
        if deviating
        else f"all {total:,} nodes are {state}",
    )
    if deviating:
        sys.exit(1)


async def _show(cluster: Cluster, output: Output, state: str, limit: int) -> tuple[int, int]:
    deviating = lines = 0
    with output.progress("nodes") as advance:
        async with cluster.existing() as store:

            def tell(found: Deviation) -> None:
                nonlocal deviating, lines
                deviating += found.nodes
                lines += 1
                if output.is_json or lines <= limit:
                    output.record(
                        {"path": found.path, "nodes": found.nodes, "acl": found.text},
                        f"{found.path}  {found.nodes:,} × {found.text}"
                        if found.nodes > 1
                        else f"{found.path}  {found.text}",
                    )

            expected = _wanted(store, state)
            total = await find_deviations(store, cluster.root, expected, tell, advance.to)
    if lines > limit:
        output.say_aside(f"{lines - limit:,} more lines; --limit shows more, --json all")
    return total, deviating


@acl.command("set")
@click.argument("state", type=click.Choice(_STATES))
@click.option("--dry-run", "is_dry", is_flag=True, help="Only say what would be done.")
@click.option(
    "--unchecked",
    "is_unchecked",
    is_flag=True,
    help="Do it although registered bookies do not say that they log in so; Apache's never do.",
)
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
@cluster_options
def set_(
    cluster: Cluster, output: Output, state: str, *, is_dry: bool, is_unchecked: bool, is_sure: bool
) -> None:
    """Set the ACLs of all nodes of a running cluster; may be interrupted and repeated.

    Bookies and clients get the login first, then ACLs are set: the order is in the guide on
    security. Refuses to secure a cluster while a registered bookie does not say that it has the
    login.
    """
    if state == "secured" and not cluster.logins:
        raise IllegalOperationError(_LOGIN_NEEDED)
    if not is_dry:
        confirm(f"Set the ACLs of all nodes at {cluster.root}: {state}?", is_sure=is_sure)
    outcome, wanted = run(
        _set(cluster, output, state, is_dry=is_dry, is_checked=not (is_unchecked or is_dry))
    )
    did = "would be changed" if is_dry else "were changed"
    output.record(
        {"state": state, "acl": acl_text(wanted), "nodes": outcome.nodes,
         "changed": outcome.changed, "refused": outcome.refused,
         "refused_paths": outcome.refused_paths, "is_dry": is_dry},
        f"{outcome.changed:,} of {outcome.nodes:,} nodes {did} to {acl_text(wanted)}",
    )  # fmt: skip
    if outcome.refused:
        raise IllegalOperationError(
            f"{outcome.refused:,} nodes give this session no right to that, the first "
            f"{', '.join(outcome.refused_paths)}: add the login that they are for to the file "
            "(several digest logins count together), or log in as ZooKeeper's super user, to whom "
            "`bookie acl show` tells whose they are"
        )


async def _set(
    cluster: Cluster, output: Output, state: str, *, is_dry: bool, is_checked: bool
) -> tuple[Outcome, Acl]:
    with output.progress("nodes") as advance:
        async with cluster.existing() as store:
            _judge(output, state, await ask_readiness(store, cluster.root), is_checked=is_checked)
            wanted = _wanted(store, state)
            outcome = await set_acls(store, cluster.root, wanted, advance.to, is_dry=is_dry)
    return outcome, wanted(cluster.root)


def _judge(output: Output, state: str, found: Readiness, *, is_checked: bool) -> None:
    """Refuse what locks a bookie out; warn of nodes that will not be as the others."""
    if state == "open":
        if found.secured_makers:
            output.warn(
                f"these bookies go on making secured nodes: {', '.join(found.secured_makers)}; "
                "start them without --zk-enable-security (and with the login), then set again"
            )
        return
    if found.locked_out:
        text = (
            f"these registered bookies do not say that they have this login: "
            f"{', '.join(found.locked_out)}; secured nodes would lock them out"
        )
        if is_checked:
            raise IllegalOperationError(
                f"{text}: start them with --zookeeper-login first (Apache's, which say nothing: "
                "with their JAAS file, then --unchecked); nothing was changed"
            )
        output.warn(text)
    if found.open_makers:
        output.warn(
            f"these bookies go on making open nodes: {', '.join(found.open_makers)}; start them "
            "with --zk-enable-security, then set again"
        )


def _wanted(store: VersionedStore, state: str) -> Wanted:
    if state == "open":
        return all_open
    if not store.access.identities:
        raise IllegalOperationError(_LOGIN_NEEDED)
    return store.access.secured_acl
