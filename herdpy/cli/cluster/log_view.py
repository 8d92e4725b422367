"""Ledgers, their chain and their records: as tables for a terminal, as records for programs."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from herdpy.cli.cluster.view import new_table
from herdpy.cluster.observability.log_reading import LedgerFacts, Link
from herdpy.log.record import decode
from herdpy.log.record_text import record_text


def ledger_record(ledger: LedgerFacts) -> dict[str, Any]:
    """Return a ledger as what JSON has; docs/guides/cluster.md names the keys."""
    ensemble, write, ack = ledger.quorums
    return {
        "id": ledger.id,
        "epoch": ledger.epoch,
        "state": ledger.state,
        "first_entry": ledger.first_entry,
        "last_entry": ledger.last_entry,
        "bytes": ledger.byte_count,
        "quorums": {"ensemble": ensemble, "write": write, "ack": ack},
        "ensembles": [
            {"first_entry": first, "bookies": list(bookies)} for first, bookies in ledger.ensembles
        ],
    }


def ledger_table(ledgers: Sequence[LedgerFacts]) -> RenderableType:
    """Return a row for each ledger, and how much they have together."""
    if not ledgers:
        return Text("no ledger yet: no node has led it", style="dim")
    table = new_table("ledger", "epoch", "state", "first", "last", "bytes", "ensemble")
    for each in ledgers:
        table.add_row(
            str(each.id),
            _or_dash(each.epoch),
            Text(each.state, style="red" if not each.ensembles else ""),
            _or_dash(each.first_entry),
            _or_dash(each.last_entry),
            _or_dash(each.byte_count),
            Text("; ".join(_ensemble(*part) for part in each.ensembles) or "-"),
        )
    return table


def _ensemble(first: int, bookies: tuple[str, ...]) -> str:
    shown = ", ".join(bookies)
    return f"from {first}: {shown}" if first else shown


def _or_dash(number: int | None) -> str:
    return "-" if number is None else str(number)


def chain_record(links: Sequence[Link]) -> dict[str, Any]:
    """Return the chain as what JSON has."""
    return {
        "is_whole": all(link.problem is None for link in links),
        "ledgers": [
            {
                "id": link.ledger_id,
                "epoch": None if link.header is None else link.header.epoch,
                "previous_ledger": None if link.header is None else link.header.previous_ledger,
                "previous_entry": None if link.header is None else link.header.previous_entry,
                "problem": None if link.problem is None else link.problem.message,
            }
            for link in links
        ],
    }


def chain_table(links: Sequence[Link]) -> RenderableType:
    """Return a row for each ledger, and whether the chain is whole."""
    table = new_table("ledger", "epoch", "behind", "chain")
    broken = 0
    for link in links:
        header, problem = link.header, link.problem
        broken += problem is not None
        table.add_row(
            str(link.ledger_id),
            "-" if header is None else str(header.epoch),
            "-" if header is None else _behind(header.previous_ledger, header.previous_entry),
            Text("whole") if problem is None else Text(problem.message, style="red"),
        )
    verdict = f"{broken} of {len(links)} ledgers do not fit" if broken else "the chain is whole"
    return Group(table, Text(verdict, style="bold red" if broken else "dim"))


def _behind(ledger_id: int, entry_id: int) -> str:
    return "the first" if ledger_id < 0 else f"{ledger_id}.{entry_id}"


def record_line(data: bytes) -> str:
    """Return what a log record says; of bytes that are none, that."""
    try:
        return record_text(decode(data))
    except ValueError as error:
        return f"expected a record, found {len(data)} bytes that are none: {error}"
