"""The `bookie` command: servers, ledgers, bookies and cookies from a shell."""

import click


@click.group()
def main() -> None:
    """Run and inspect a replicated ledger store that speaks Apache BookKeeper's protocol."""
