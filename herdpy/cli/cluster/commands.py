"""`herdpy node` and `herdpy cluster`, as click knows them."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import click

from bookie.runtime.os_executors import run
from herdpy.cli.cluster.acl_commands import acl
from herdpy.cli.cluster.log_commands import log
from herdpy.cli.cluster.options import checked_path, cluster_options, json_option
from herdpy.cli.cluster.tablespace_commands import tablespace
from herdpy.cli.console import output_console, reporting
from herdpy.cli.settings import Loaded, load_here, node_options
from herdpy.node.place import ClusterPlace, as_herdpy_errors


@click.command()
@cluster_options
@click.option(
    "--data",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The node's directory: its id and its copies. Made if missing.",
)
@click.option(
    "--id",
    "node_id",
    help="The node's id in the cluster.  [default: the directory's; of a new one, by chance]",
)
@node_options
def node(
    place: ClusterPlace,
    data: Path,
    node_id: str | None,
    config: Path | None,
    assignments: tuple[str, ...],
    **chosen: Any,
) -> None:
    """Be a node of a cluster: follow, or lead and serve, its tablespaces, until SIGTERM or Ctrl-C.

    It has a copy of each tablespace that names it as a replica, in a folder of --data, and takes
    what the leader writes from the ledgers. While it leads it serves clients at --host and --port,
    with the settings of `herdpy serve`.
    """
    from herdpy.cli.cluster.node import run_node

    def load() -> Loaded:
        return load_here(config, assignments, os.environ, chosen)

    run_node(place, data, node_id, load, console=output_console())


@click.group("cluster")
def cluster() -> None:
    """Make a cluster of nodes, look at one, run one on this machine."""


@cluster.command()
@cluster_options
@click.option(
    "--ledgers",
    default="/ledgers",
    show_default=True,
    metavar="PATH",
    callback=checked_path,
    help="The node of ZooKeeper that has the BookKeeper for its ledgers.",
)
@click.option("--ensemble", type=click.IntRange(1, 64), default=3, show_default=True,
              help="On how many bookies a ledger lies.")  # fmt: skip
@click.option("--write-quorum", type=click.IntRange(1, 64), default=3, show_default=True,
              help="On how many of them each entry lies.")  # fmt: skip
@click.option("--ack-quorum", type=click.IntRange(1, 64), default=2, show_default=True,
              help="How many of those acknowledge it; 1 loses commits with a bookie.")  # fmt: skip
@click.option(
    "--without-bookies",
    "is_without_bookies",
    is_flag=True,
    help="Do not expect bookies yet: they come with its nodes (--bookie-directory).",
)
def init(
    place: ClusterPlace,
    ledgers: str,
    ensemble: int,
    write_quorum: int,
    ack_quorum: int,
    *,
    is_without_bookies: bool,
) -> None:
    """Make a new cluster in ZooKeeper, without tablespaces, beside a BookKeeper that is there."""
    from herdpy.cli.cluster.making import make_cluster

    with as_herdpy_errors("cluster init"):
        quorums = (ensemble, write_quorum, ack_quorum)
        record = run(make_cluster(place, ledgers, quorums, has_bookies=not is_without_bookies))
    click.echo(f"made cluster {record.id} at {place.zookeeper}{place.root}")


@cluster.command()
@cluster_options
@click.argument("name")
@click.option(
    "--replicas",
    required=True,
    metavar="ID,...",
    help="The nodes that get a copy: each of them may lead.",
)
def create(place: ClusterPlace, name: str, replicas: str) -> None:
    """Make the tablespace NAME, with an empty log; one of the replicas comes to lead it."""
    from herdpy.cli.cluster.making import make_tablespace

    ids = tuple(each.strip() for each in replicas.split(","))
    with as_herdpy_errors("cluster create"):
        run(make_tablespace(place, name, ids))
    click.echo(f"made tablespace {name} on {', '.join(ids)}")


@cluster.command()
@cluster_options
@json_option
def status(place: ClusterPlace, is_json: bool) -> None:
    """Show nodes, tablespaces, which node leads each under which epoch, ledgers and bookies."""
    from herdpy.cli.cluster.making import status_of
    from herdpy.cli.cluster.view import as_record, as_tables

    with as_herdpy_errors("cluster status"):
        found = run(status_of(place))
    if is_json:
        click.echo(json.dumps(as_record(found)))
    else:
        output_console().print(as_tables(found))


@cluster.command()
@click.option("--nodes", "node_count", type=click.IntRange(1, 16), default=3, show_default=True,
              help="How many nodes to run.")  # fmt: skip
@click.option("--bookies", "bookie_count", type=click.IntRange(1, 16), default=3, show_default=True,
              help="How many bookies to run.")  # fmt: skip
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep everything in this directory.  [default: a temporary one, removed at the end]",
)
@click.option("--tablespace", default="default", show_default=True, help="Made if missing.")
@click.option(
    "--session-timeout",
    "session_timeout_s",
    type=click.FloatRange(1, 60),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Of silence, after which another node leads.",
)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of each node, such as database.memory_bytes_max=2GiB.",
)
@json_option
@reporting()
def up(
    node_count: int,
    bookie_count: int,
    data: Path | None,
    tablespace: str,
    session_timeout_s: float,
    assignments: tuple[str, ...],
    is_json: bool,
) -> None:
    """Run a whole cluster on this machine until Ctrl-C: ZooKeeper, bookies, nodes, a tablespace.

    Each is a process of its own, on loopback: kill one, and see what happens. With --data the
    ports, ids and data stay the same from one run to the next. With --json it prints one record
    with all pids, addresses and commands when a leader serves.
    """
    from herdpy.cli.cluster.up import run_cluster

    sys.exit(
        run_cluster(
            data,
            node_count=node_count,
            bookie_count=bookie_count,
            tablespace=tablespace,
            session_timeout_s=session_timeout_s,
            assignments=assignments,
            is_json=is_json,
        )
    )


_data_option = click.option(
    "--data",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="That of `herdpy cluster up`, which prints it.",
)


@cluster.command()
@_data_option
@json_option
@reporting()
def stop(data: Path, is_json: bool) -> None:
    """End a cluster that `herdpy cluster up` runs on this machine, in good order.

    Nodes give their parts away, then bookies and ZooKeeper end; it returns when all have.
    """
    from herdpy.cli.cluster.running import stop_cluster

    stop_cluster(data)
    click.echo(json.dumps({"stopped": str(data)}) if is_json else f"stopped {data}")


@cluster.command()
@_data_option
@click.argument("name", metavar="NODE")
@json_option
@reporting()
def kill(data: Path, name: str, is_json: bool) -> None:
    """End one process of a cluster on this machine as a crash would, by SIGKILL: n1, bookie-2, ...

    `herdpy cluster up` prints the command that starts it again.
    """
    from herdpy.cli.cluster.running import kill_program

    killed = kill_program(data, name)
    said = {"killed": killed.name, "pid": killed.pid}
    click.echo(json.dumps(said) if is_json else f"killed {killed.name} (pid {killed.pid})")


@cluster.command()
def demo() -> None:
    """Run a program on a directory, then on a cluster whose processes are killed under it.

    The cluster is one of this machine, as of `herdpy cluster up`, in a temporary directory.
    """
    from herdpy.cli.demo.cluster_tour import run_cluster_demo

    sys.exit(run_cluster_demo())


cluster.add_command(acl)
COMMANDS = (node, cluster, tablespace, log)
