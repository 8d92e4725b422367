"""`bookie inspect …`: what lies in a bookie's directory, read while the bookie is stopped.

Nothing is changed. Damage that is met is printed where it is, and makes the exit code 1. The
formats: docs/formats/journal.md, docs/formats/entry_log.md.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from bookie.admin.ids import LEDGER_ID
from bookie.admin.output import Output
from bookie.admin.world import json_option
from bookie.errors import CorruptFileError
from bookie.hosting import INDEX_FILE
from bookie.runtime.os_disk import OsDisk
from bookie.server.storage import entry_log, journal_format
from bookie.server.storage.entry_log import EntryLogReader, RecordKind, split_location
from bookie.server.storage.journal import read_mark
from bookie.server.storage.journal_format import BLOCK_BYTES, JournalFileReader, Kind
from bookie.server.storage.lmdb_index import LmdbIndex

DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)
_LEDGER = click.option(
    "--ledger", type=LEDGER_ID, metavar="ID", help="Only what belongs to the ledger of this id."
)


@click.group()
def inspect() -> None:
    """Look into the files of a stopped bookie: journal, entry logs, index."""


@inspect.command()
@click.argument("directory", type=DIRECTORY)
@click.option("--file", "number", type=int, help="Only the journal file of this number.")
@_LEDGER
@json_option
def journal(output: Output, directory: Path, number: int | None, ledger: int | None) -> None:
    """List the records of the journal below DIRECTORY, in the order in which they were written."""
    disk = OsDisk(directory)
    mark = read_mark(disk)
    if mark is not None:
        number_of_mark, offset = mark.position
        output.say(f"the mark: replay begins in file {number_of_mark} at offset {offset}")
    is_damaged = False
    for file_number in _numbers(disk, journal_format.DIRECTORY, journal_format.number_of, number):
        reader = JournalFileReader(disk, file_number)
        try:
            output.say(f"{reader.path}: {reader.byte_count:,} bytes")
            for record in _journal_records(reader, file_number):
                is_damaged |= record["kind"] == "damage"
                if ledger is None or record.get("ledger_id") == ledger:
                    _print_record(output, record)
        finally:
            reader.close()
    sys.exit(1 if is_damaged else 0)


def _journal_records(reader: JournalFileReader, file_number: int) -> Iterator[dict[str, object]]:
    place: dict[str, object] = {"file": file_number}
    if not reader.is_begun:
        yield {**place, "offset": 0, "kind": "empty"}
        return
    offset = BLOCK_BYTES
    while (batch := reader.batch(offset)) is not None:
        for record in batch.records:
            found = {**place, "offset": offset, "kind": _name_of(Kind, record.kind)}
            if record.kind == Kind.END:
                yield found
                return
            found["ledger_id"] = int.from_bytes(record.body[:8], "big", signed=True)
            if record.kind == Kind.ENTRY:
                found["entry_id"] = int.from_bytes(record.body[8:16], "big", signed=True)
            yield {**found, "bytes": len(record.body)}
        if batch.damaged_at is not None:
            break
        offset = batch.end
    proof = reader.is_durable_beyond(offset)
    if proof is not None:
        yield {**place, "offset": offset, "kind": "damage", "durable_says": proof}


@inspect.command("entry-log")
@click.argument("directory", type=DIRECTORY)
@click.option("--log", "number", type=int, help="Only the entry log of this number.")
@click.option("--summary", "is_summary", is_flag=True, help="One line for each log.")
@_LEDGER
@json_option
def entry_logs(
    output: Output, directory: Path, number: int | None, ledger: int | None, *, is_summary: bool
) -> None:
    """List the records of the entry logs below DIRECTORY."""
    disk = OsDisk(directory)
    is_damaged = False
    logs: list[dict[str, object]] = []
    for log_number in _numbers(disk, entry_log.DIRECTORY, entry_log.number_of, number):
        reader = EntryLogReader(disk, log_number)
        try:
            count, ledgers = 0, set[int]()
            for record in reader.records():
                count += 1
                is_damaged |= record.is_damaged
                found = _log_record(log_number, record)
                ledger_id = found.get("ledger_id")
                if isinstance(ledger_id, int):
                    ledgers.add(ledger_id)
                if not is_summary and ledger in (None, ledger_id):
                    _print_record(output, found)
            is_cut = reader.is_sealed and not reader.is_read_whole
            is_damaged |= is_cut
            logs.append(
                {
                    "log": log_number,
                    "bytes": reader.byte_count,
                    "records": count,
                    "ledgers": len(ledgers),
                    "is_sealed": reader.is_sealed,
                    "is_damaged": is_cut,
                    "compacted_from": list(reader.header.sources),
                }
            )
        finally:
            reader.close()
    if is_summary:
        columns = ("log", "bytes", "records", "ledgers", "is_sealed", "is_damaged")
        output.records(logs, columns, "there are no entry logs")
    sys.exit(1 if is_damaged else 0)


def _log_record(log_number: int, record: entry_log.LogRecord) -> dict[str, object]:
    found: dict[str, object] = {
        "log": log_number,
        "offset": split_location(record.location)[1],
        "kind": "damage" if record.is_damaged else _name_of(RecordKind, record.kind),
    }
    if record.kind == RecordKind.JOURNAL:
        found["position"] = None if record.is_damaged else list(record.journal)
    else:
        found["ledger_id"] = record.ledger_id
    if record.kind == RecordKind.ENTRY:
        found["entry_id"] = record.ids[1]
    return {**found, "bytes": len(record.body)}


@inspect.command()
@click.argument("directory", type=DIRECTORY)
@_LEDGER
@json_option
def index(output: Output, directory: Path, ledger: int | None) -> None:
    """List the ledgers in the index below DIRECTORY, or where each entry of one of them lies."""
    if not (directory / INDEX_FILE).exists():
        raise CorruptFileError(f"expected {directory / INDEX_FILE}, found none")
    found = LmdbIndex(str(directory / INDEX_FILE))
    try:
        if ledger is not None:
            rows: list[dict[str, object]] = []
            for entry_id in found.entry_ids(ledger):
                location = found.get(ledger, entry_id)
                if location is not None:
                    log, offset = split_location(location)
                    rows.append({"entry_id": entry_id, "log": log, "offset": offset})
            output.records(rows, ("entry_id", "log", "offset"), f"no entries of ledger {ledger}")
            return
        rows = []
        for ledger_id in found.ledger_ids():
            record = found.ledger(ledger_id)
            rows.append(
                {
                    "ledger_id": ledger_id,
                    "is_fenced": record is not None and record.is_fenced,
                    "last_add_confirmed": None if record is None else record.last_add_confirmed,
                    "entries": sum(1 for _ in found.entry_ids(ledger_id)),
                    "last_entry_id": found.last_entry_id(ledger_id),
                }
            )
        columns = ("ledger_id", "is_fenced", "last_add_confirmed", "entries", "last_entry_id")
        output.records(rows, columns, "the index is empty")
    finally:
        found.close()


def _numbers(
    disk: OsDisk, folder: str, number_of: Callable[[str], int | None], chosen: int | None
) -> list[int]:
    if not disk.exists(folder):
        raise CorruptFileError(f"expected the folder {folder} of a bookie's directory, found none")
    numbers = sorted(n for n in map(number_of, disk.list(folder)) if n is not None)
    if chosen is None:
        return numbers
    if chosen not in numbers:
        raise click.BadParameter(f"there is no number {chosen} in {folder}, only {numbers}")
    return [chosen]


def _name_of(kinds: type[Kind] | type[RecordKind], number: int) -> str:
    try:
        return kinds(number).name.lower()
    except ValueError:
        return f"unknown {number}"


def _print_record(output: Output, record: dict[str, object]) -> None:
    output.record(record, "  " + "  ".join(f"{name} {value}" for name, value in record.items()))
