"""`herdpy tablespace`, as click knows it."""

import click

from herdpy.cli.cluster.set_leader_command import set_leader


@click.group("tablespace")
def tablespace() -> None:
    """Look at the replicated tablespaces of a cluster, and move their leaders."""


tablespace.add_command(set_leader)
COMMANDS = (tablespace,)
