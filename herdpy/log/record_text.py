"""What a log record says, as a line for a person: its kind, its transaction, how much it changes.

Values of rows are not in it, nor what stands for a password. Tables have their ids: what they are
called at that place of the log only its state knows.
"""

from collections.abc import Iterable

from herdpy.log.record import (
    Begin,
    BeginLease,
    BeginLedger,
    BeginSpill,
    BeginStage,
    BeginStaging,
    ChangeAccess,
    Commit,
    CommitStaging,
    CommitToken,
    CreateTable,
    DropStages,
    DropTable,
    EndLeases,
    EndStaging,
    Expire,
    FinishStage,
    Noop,
    Record,
    Refuse,
    Reserve,
    Rollback,
    RollbackTo,
    Rows,
    SetSequence,
    StageRows,
    StagingRecord,
    TransactionId,
)
from herdpy.model.printable import escaped

_SHOWN_MAX = 120
_COUNT_MAX = 5


def record_text(record: Record) -> str:
    """Return one line, of printable characters, of a bounded length for names and lists in it."""
    match record:
        case Noop():
            return "noop"
        case Begin(tx=tx, at_us=at_us):
            return f"begin {_tx(tx)} at {at_us / 1e6:.6f}"
        case Rows():
            return _rows(record)
        case Commit(tx=tx, token=token):
            return f"commit {_tx(tx)}{_token(token)}"
        case Rollback(tx=tx):
            return f"rollback {_tx(tx)}"
        case RollbackTo(tx=tx, statement=statement):
            return f"rollback {_tx(tx)} to statement {statement}"
        case BeginSpill(tx=tx, table_id=table_id, stage=stage, operation=operation):
            return f"begin spill {_tx(tx)} table {table_id}: {_name(operation)} in stage {stage}"
        case CreateTable(tx=tx, table=table):
            return f"create table {_table(table)} {_tx(tx)}"
        case DropTable(tx=tx, table_id=table_id):
            return f"drop table {table_id} {_tx(tx)}"
        case Reserve(table_id=table_id, upto=upto):
            return f"reserve table {table_id}: numbers below {upto}"
        case SetSequence(table_id=table_id, step=step, value=value):
            return f"set sequence {table_id} at step {step} to {value}"
        case ChangeAccess(tx=tx, changes=changes):
            return f"change access {_tx(tx)}: {len(changes)} changes"
        case Refuse(token=token):
            return f"refuse{_token(token)}"
        case Expire(sessions=sessions):
            return f"expire the outcomes of sessions {_names(sessions)}"
        case BeginLease(id=lease, owner=owner, seconds=seconds):
            whose = "the program" if owner is None else _name(owner)
            return f"begin lease {_name(lease)} of {whose} for {seconds:g} s"
        case EndLeases(ids=ids):
            return f"end leases {_names(ids)}"
        case BeginLedger(epoch=epoch, previous_ledger=ledger, previous_entry=entry):
            behind = "the first" if ledger < 0 else f"behind entry {entry} of ledger {ledger}"
            return f"begin ledger of epoch {epoch}, {behind}"
        case _:
            return _staging_text(record)


def _staging_text(record: StagingRecord) -> str:
    match record:
        case BeginStaging(job=job, table_id=table_id, operation=operation):
            return f"begin staging {_name(job)} table {table_id}: {_name(operation)}"
        case BeginStage(job=job, stage=stage, task=task, attempt=attempt):
            return f"begin stage {stage} of {_name(job)}: task {_name(task)}.{_name(attempt)}"
        case StageRows(stage=stage, first_row=first, row_count=count, data=data):
            return f"stage rows {stage}: {count} from row {first}, {len(data)} bytes"
        case FinishStage(stage=stage):
            return f"finish stage {stage}"
        case DropStages(stages=stages, job=job):
            of_job = "" if job is None else f", giving up {_name(job)}"
            return f"drop stages {_names(map(str, stages))}{of_job}"
        case CommitStaging(job=job, stages=stages, token=token):
            return f"commit staging {_name(job)}: stages {_names(map(str, stages))}{_token(token)}"
        case EndStaging(jobs=jobs):
            return f"end staging {_names(jobs)}"


def _rows(record: Rows) -> str:
    upserts = sum(old is None for old, _ in record.changes)
    deletes = sum(new is None for _, new in record.changes)
    counts = {
        "inserted": len(record.inserts) + upserts,
        "updated": len(record.changes) - upserts - deletes,
        "deleted": deletes,
    }
    changed = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    more = "" if record.is_last else f", part {record.part}, more to come"
    of_table = f"table {record.table_id} (version {record.table_version})"
    return (
        f"rows {_tx(record.tx)} {of_table}: {changed or 'none'}, statement {record.statement}"
        f"{more}{_token(record.token)}"
    )


def _tx(tx: TransactionId | None) -> str:
    return "by itself" if tx is None else f"of {tx[0]}.{tx[1]}"


def _token(token: CommitToken | None) -> str:
    return "" if token is None else f", token {_name(token[0])}.{token[1]}"


def _table(plain: list[object]) -> str:
    """Return id and name of a table, as far as they are where table_to_plain() has them."""
    return " ".join(_name(str(each)) for each in plain[:2])


def _names(texts: Iterable[str]) -> str:
    """Return the first of them, and how many more there are."""
    found = list(texts)
    more = len(found) - _COUNT_MAX
    shown = ", ".join(map(_name, found[:_COUNT_MAX]))
    return shown + (f" and {more} more" if more > 0 else "")


def _name(text: str) -> str:
    shown = escaped(text[:_SHOWN_MAX])
    return f"{shown}…" if len(text) > _SHOWN_MAX else shown
