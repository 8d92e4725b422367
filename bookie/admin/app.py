"""What click knows of the command line; see commands.py."""

import platform
from importlib.metadata import version

import click

from bookie.admin.acl import acl
from bookie.admin.cookies import cookie
from bookie.admin.format import format_cluster
from bookie.admin.inspect import inspect
from bookie.admin.ledgers import ledger
from bookie.admin.local import local
from bookie.admin.recover import bookies
from bookie.admin.replication import autorecovery, replication
from bookie.admin.scrub import scrub
from bookie.admin.serve import serve
from bookie.admin.simpletest import simpletest


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(
    version("herdpy-db"), message=f"bookie %(version)s (Python {platform.python_version()})"
)
def app() -> None:
    """Run and inspect a replicated ledger store that speaks Apache BookKeeper's protocol."""


for command in (
    serve,
    local,
    autorecovery,
    replication,
    format_cluster,
    acl,
    ledger,
    bookies,
    cookie,
    simpletest,
    inspect,
    scrub,
):
    app.add_command(command)
