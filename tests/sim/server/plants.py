"""The faults that the lives of a server have to find, each by a checker that it names."""

from collections.abc import Sequence
from typing import Any

from herdpy.driver import pool
from herdpy.driver.remote.retrying import REFUSED, RetryingSession
from herdpy.engine.maintenance import replica
from herdpy.engine.maintenance.recovery import Restored
from herdpy.engine.state.applier import Applier
from herdpy.engine.state.commit_tokens import CommitTokens, PlainTokens
from herdpy.engine.state.locks import LockTable
from herdpy.engine.state.tablespace import Entry, Tablespace
from herdpy.engine.state.transaction_snapshot import TransactionSnapshot
from herdpy.engine.state.transactions import OwnVersion, Transaction
from herdpy.engine.writes.row_writes import Write
from herdpy.engine.writes.unique import UniqueKeys
from herdpy.errors import Retry
from herdpy.log.file_log import FileLog
from herdpy.log.syncer import InlineSyncer
from herdpy.model.durability import Durability
from herdpy.model.lsn import Lsn
from herdpy.model.types import Key
from tests.fixtures.plants import Plant
from tests.fixtures.transaction_plants import (
    keep_a_row,
    see_no_change,
    take_the_snapshot_again,
)


def _nothing(right: Any) -> Any:
    return lambda self: None


def _keep_the_parts(right: Any) -> Any:
    def undo_cut(self: Tablespace, transaction: Transaction) -> None:
        transaction.cut = None

    return undo_cut


def _release_at_the_append(right: Any) -> Any:
    def submit(self: Tablespace, entry: Entry, *, is_urgent: bool = False) -> None:
        right(self, entry, is_urgent=is_urgent)
        if entry.ends:
            self.locks.release_all(entry.transaction)

    return submit


def _half(right: Any) -> Any:
    def log(self: Write, changes: Sequence[Any], spilling: int | None = None) -> bool:
        few = changes[: len(changes) // 2] if len(changes) > 3 else changes
        return right(self, few, spilling)

    return log


def _acknowledge_all(right: Any) -> Any:
    return lambda self, end: right(self, Lsn(1 << 60, 0, 0))


def _keep_the_state(right: Any) -> Any:
    def replace(self: Tablespace, applier: Applier, epoch: int) -> None:
        state = self.applier.state
        right(self, applier, epoch)
        applier.state = applier.state._replace(tables=state.tables)

    return replace


def _never_ask(right: Any) -> Any:
    return lambda self, lost, cause, pauses: REFUSED


def _answer_before_the_sync(right: Any) -> Any:
    def request(self: InlineSyncer, durability: Durability) -> None:
        self._on_durable(self._log.last_lsn)
        right(self, durability)

    return request


def _ignore_holders(right: Any) -> Any:
    return lambda self, owner, table_id, keys: None


def _forget_outcomes(right: Any) -> Any:
    def to_plain(self: CommitTokens) -> PlainTokens:
        return [(session, acknowledged, []) for session, acknowledged, _ in right(self)]

    return to_plain


def _repeat_unknown(right: Any) -> Any:
    return lambda error: error.retry is not Retry.NEVER


def _go_on_from_the_log(right: Any) -> Any:
    """Positions that were seen, and are not in the log, are forgotten, and given away again."""

    def resume(tablespace: Tablespace, found: Restored) -> None:
        applier, last = tablespace.applier, found.log.last_lsn
        applier.state = applier.state._replace(lsn=min(applier.state.lsn, last))
        right(tablespace, found)

    return resume


def _never_taken(right: Any) -> Any:
    return lambda self, latest: None


def _locks_no_value(right: Any) -> Any:
    return lambda self, unique: None


def _keeps_entries(right: Any) -> Any:
    """ROLLBACK TO takes back rows, and leaves what they have in indexes."""

    def roll_back_to(self: Transaction, statement: int, *places: Any) -> None:
        kept = {number: rows for number, rows in self.writes.items() if _are_entries(rows)}
        right(self, statement, *places)
        self.writes.update(kept)

    return roll_back_to


def _are_entries(rows: dict[Key, OwnVersion]) -> bool:
    """Tell whether rows are nothing but keys: those of an index that is not unique."""
    found = [(key, version[1]) for key, version in rows.items() if version[1] is not None]
    return bool(found) and all(key == row for key, row in found)


PLANTS: dict[str, Plant] = {
    "a sync that does nothing": Plant(
        FileLog, "_sync_dirty", _nothing, ("durability", "content", "position")
    ),
    "answer before durable": Plant(
        InlineSyncer, "request", _answer_before_the_sync, ("durability", "content", "position")
    ),
    "lock released before apply": Plant(
        Tablespace, "submit", _release_at_the_append, ("errors", "bank", "lists", "content")
    ),
    "a statement that logs half of its rows": Plant(Write, "_log", _half, ("atomicity",)),
    "held statement acknowledged beyond the log's end": Plant(
        Tablespace, "_decide_queue", _acknowledge_all, ("durability",)
    ),
    "old state kept after resume": Plant(
        Tablespace,
        "_replace_applier",
        _keep_the_state,
        ("content", "durability", "bank", "refusal"),
    ),
    "a lost COMMIT taken for refused": Plant(RetryingSession, "_resolve", _never_ask, ("refusal",)),
    "savepoint that keeps a row": Plant(
        Transaction, "roll_back_to", keep_a_row, ("content", "bank")
    ),
    "snapshot not kept over a wait": Plant(
        LockTable, "acquire", take_the_snapshot_again, ("snapshot", "lists")
    ),
    "changed row written over": Plant(
        TransactionSnapshot, "has_changed", see_no_change, ("lists", "bank", "content", "errors")
    ),
    "token outcome lost in a checkpoint": Plant(
        CommitTokens, "to_plain", _forget_outcomes, ("refusal", "token", "lists", "errors")
    ),
    "retry of UNKNOWN": Plant(pool, "is_repeatable", _repeat_unknown, ("refusal", "lists")),
    "cancel that half-undoes": Plant(
        Tablespace, "undo_cut", _keep_the_parts, ("atomicity", "content", "bank")
    ),
    "position restarted": Plant(replica, "resume", _go_on_from_the_log, ("position",)),
    "a unique value not looked up": Plant(UniqueKeys, "first_taken", _never_taken, ("unique",)),
    "unique values not locked": Plant(Write, "_lock_unique", _locks_no_value, ("unique",)),
    "entries kept by ROLLBACK TO": Plant(
        Transaction, "roll_back_to", _keeps_entries, ("bank", "digest", "errors")
    ),
    "rows are not locked": Plant(
        LockTable, "acquire_rows", _ignore_holders, ("bank", "lists", "content", "atomicity")
    ),
}
