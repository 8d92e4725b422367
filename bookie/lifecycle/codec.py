"""The bytes of the state node and of a drain's list of ledgers (docs/formats/zookeeper.md).

JSON, so that any tool can read them; `format` is 1. A newer format, or bytes that are none, is a
CorruptFileError: a bookie that finds it takes no add.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, cast

from bookie.errors import CorruptFileError, IncorrectParameterError
from bookie.lifecycle.states import DrainLedger, LifecycleRecord, LifecycleState
from bookie.metadata.paths import NODE_BYTES_MAX

FORMAT = 1
TEXT_CHARS_MAX = 1000
"""Of a reason or a name; what is longer is cut."""
ACCEPTED_LOSS_MAX = 20_000
PIECE_BYTES_MAX = 512 * 1024
assert PIECE_BYTES_MAX < NODE_BYTES_MAX


def record_to_bytes(record: LifecycleRecord) -> bytes:
    """Return the state node's content; IncorrectParameterError for too many accepted ledgers."""
    if len(record.accepted_loss) > ACCEPTED_LOSS_MAX:
        raise IncorrectParameterError(
            f"expected at most {ACCEPTED_LOSS_MAX} ledgers whose loss is accepted, found "
            f"{len(record.accepted_loss)}"
        )
    values = asdict(record)
    values["state"] = record.state.value
    values["by"] = record.by[:TEXT_CHARS_MAX]
    values["reason"] = record.reason[:TEXT_CHARS_MAX]
    values["accepted_loss"] = list(record.accepted_loss)
    return json.dumps({"format": FORMAT, **values}, separators=(",", ":")).encode()


def record_from_bytes(data: bytes, path: str) -> LifecycleRecord:
    """Read the state node; CorruptFileError names `path`."""
    values = _read(data, path)
    try:
        record = LifecycleRecord(
            state=LifecycleState(values["state"]),
            since_ms=_count(values["since_ms"]),
            by=_text(values["by"]),
            may_fence=values["may_fence"] is True,
            is_admitted=values["is_admitted"] is True,
            reason=_text(values["reason"]),
            ledgers_total=_count_or_none(values["ledgers_total"]),
            ledgers_left=_count_or_none(values["ledgers_left"]),
            accepted_loss=tuple(map(_count, values["accepted_loss"])),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptFileError(
            f"{path}: expected the lifecycle state of a bookie, found {data[:80]!r} ({error!r})"
        ) from None
    if record.state is LifecycleState.ACTIVE:
        raise CorruptFileError(f"{path}: expected no node for an Active bookie, found one")
    return record


def pieces_of(ledgers: Iterable[DrainLedger]) -> list[bytes]:
    """Return the list of a drain, cut into contents of at most PIECE_BYTES_MAX bytes."""
    pieces: list[bytes] = []
    rows: list[str] = []
    size = 0
    for ledger in ledgers:
        row = json.dumps(
            [*ledger[:2], ledger.cleared_by[:TEXT_CHARS_MAX], ledger.problem[:TEXT_CHARS_MAX]],
            separators=(",", ":"),
        )
        if rows and size + len(row) > PIECE_BYTES_MAX - 100:
            pieces.append(_piece(rows))
            rows, size = [], 0
        rows.append(row)
        size += len(row) + 1
    if rows:
        pieces.append(_piece(rows))
    return pieces


def _piece(rows: list[str]) -> bytes:
    return f'{{"format":{FORMAT},"ledgers":[{",".join(rows)}]}}'.encode()


def ledgers_from_piece(data: bytes, path: str) -> list[DrainLedger]:
    """Read one piece; CorruptFileError names `path`."""
    values = _read(data, path)
    try:
        return [
            DrainLedger(_count(row[0]), _count(row[1]), _text(row[2]), _text(row[3]))
            for row in values["ledgers"]
        ]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise CorruptFileError(
            f"{path}: expected a list of ledgers, found {data[:80]!r} ({error!r})"
        ) from None


def _read(data: bytes, path: str) -> dict[str, Any]:
    try:
        values: object = json.loads(data)
    except (ValueError, RecursionError):  # UnicodeDecodeError is a ValueError
        values = None
    if not isinstance(values, dict) or cast("dict[str, Any]", values).get("format") != FORMAT:
        raise CorruptFileError(
            f"{path}: expected JSON with format {FORMAT}, found {data[:80]!r}; a newer version "
            "may have written it"
        )
    return cast("dict[str, Any]", values)


def _count(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"expected a number from 0 on, found {value!r}")
    return value


def _count_or_none(value: object) -> int | None:
    return None if value is None else _count(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, found {value!r}")
    return value
