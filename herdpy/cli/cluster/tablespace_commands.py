"""`herdpy tablespace`: the tablespaces of a cluster, as click knows them."""

import json

import click

from bookie.runtime.os_executors import run
from herdpy.cli.cluster.options import cluster_options, json_option
from herdpy.cli.cluster.set_leader_command import set_leader
from herdpy.cli.console import output_console
from herdpy.node.place import ClusterPlace, as_herdpy_errors


@click.group("tablespace")
def tablespace() -> None:
    """Look at the replicated tablespaces of a cluster, and move their leaders."""


@tablespace.command("list")
@cluster_options
@json_option
def list_tablespaces(place: ClusterPlace, is_json: bool) -> None:
    """Show each tablespace: which node leads it under which epoch, its replicas, its ledgers."""
    from herdpy.cli.cluster.making import status_of
    from herdpy.cli.cluster.view import tablespace_record, tablespaces_table

    with as_herdpy_errors("tablespace list"):
        found = run(status_of(place))
    if is_json:
        click.echo(json.dumps({"tablespaces": list(map(tablespace_record, found.tablespaces))}))
    else:
        output_console().print(tablespaces_table(found))


@tablespace.command("show")
@cluster_options
@click.argument("name")
@json_option
def show_tablespace(place: ClusterPlace, name: str, is_json: bool) -> None:
    """Show the tablespace NAME: leader, what each replica is and how far behind, ledgers, bytes."""
    from herdpy.cli.cluster.tablespace_view import read_tablespace, shown_record, shown_tables

    with as_herdpy_errors("tablespace show"):
        found = run(read_tablespace(place, name))
    if is_json:
        click.echo(json.dumps(shown_record(found)))
    else:
        output_console().print(shown_tables(found))


tablespace.add_command(set_leader)
