"""`herdpy log`: the ledgers that are the log of a tablespace, as click knows it."""

import json
import sys
from typing import Any

import click

from bookie.runtime.os_executors import run
from herdpy.cli.cluster.options import cluster_options, json_option
from herdpy.cli.console import output_console
from herdpy.model.lsn import Lsn
from herdpy.node.place import ClusterPlace, as_herdpy_errors


@click.group("log")
def log() -> None:
    """Look at the log of a cluster's tablespace; it is read, and never fenced or changed."""


@log.command()
@cluster_options
@click.argument("name")
@json_option
def ledgers(place: ClusterPlace, name: str, is_json: bool) -> None:
    """Show the ledgers of tablespace NAME: epoch, state, entries, bytes, and on which bookies.

    Of the ledger that is written entries and bytes are those that are confirmed; a dash: its
    bookies do not tell.
    """
    from herdpy.cli.cluster.log_access import log_access
    from herdpy.cli.cluster.log_view import ledger_record, ledger_table
    from herdpy.cluster.observability.log_reading import LedgerFacts

    async def read() -> list[LedgerFacts]:
        async with log_access(place, name) as access:
            return await access.reading.ledgers()

    with as_herdpy_errors("log ledgers"):
        found = run(read())
    if is_json:
        click.echo(json.dumps({"tablespace": name, "ledgers": list(map(ledger_record, found))}))
    else:
        output_console().print(ledger_table(found))


@log.command()
@cluster_options
@click.argument("name")
@json_option
def chain(place: ClusterPlace, name: str, is_json: bool) -> None:
    """Check the chain of ledgers of NAME: each header names the ledger before, and its last entry.

    Exit code 1: the chain is broken, and what is printed says where.
    """
    from herdpy.cli.cluster.log_access import log_access
    from herdpy.cli.cluster.log_view import chain_record, chain_table
    from herdpy.cluster.observability.log_reading import Link

    async def read() -> list[Link]:
        async with log_access(place, name) as access:
            return await access.reading.links()

    with as_herdpy_errors("log chain"):
        found = run(read())
    if is_json:
        click.echo(json.dumps({"tablespace": name, **chain_record(found)}))
    else:
        output_console().print(chain_table(found))
    sys.exit(1 if any(link.problem is not None for link in found) else 0)


def _position(_: click.Context, __: click.Parameter, text: str | None) -> Lsn | None:
    """Read LEDGER, LEDGER.ENTRY or LEDGER.ENTRY.INDEX."""
    if text is None:
        return None
    parts = text.split(".")
    if not all(part.isascii() and part.isdigit() for part in parts) or len(parts) > len(
        Lsn._fields
    ):
        raise click.BadParameter(
            f"expected LEDGER, LEDGER.ENTRY or LEDGER.ENTRY.INDEX, found {text[:80]!r}"
        )
    return Lsn(*(*map(int, parts), 0, 0)[: len(Lsn._fields)])


@log.command()
@cluster_options
@click.argument("name")
@click.option(
    "--from",
    "wanted",
    metavar="POSITION",
    callback=_position,
    help="Where to begin: LEDGER, LEDGER.ENTRY or LEDGER.ENTRY.INDEX.  [default: the last ledger]",
)
@click.option("--follow", is_flag=True, help="Go on with what is written, until Ctrl-C.")
@click.option("--json", "is_json", is_flag=True, help="Print one JSON record for each log record.")
def tail(place: ClusterPlace, name: str, wanted: Lsn | None, follow: bool, is_json: bool) -> None:
    """Print the log records of NAME, one on a line: position, kind, transaction, what it changes.

    Up to what is confirmed when it reads; with --follow also what comes later. Values of rows are
    not printed.
    """
    from herdpy.cli.cluster.log_access import tell_records
    from herdpy.cli.cluster.log_view import record_line

    def tell(lsn: Lsn, data: bytes) -> None:
        text = record_line(data)
        found: dict[str, Any] = {"position": str(lsn), "bytes": len(data), "record": text}
        click.echo(json.dumps(found) if is_json else f"{lsn!s:<12} {text}")

    with as_herdpy_errors("log tail"):
        run(tell_records(place, name, wanted, follows=follow, tell=tell))
