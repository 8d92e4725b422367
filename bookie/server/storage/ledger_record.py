"""The bytes of a LedgerRecord, in the index and in entry logs.

u8 version (1) | u8 flags (1: fenced, 2: in limbo) | u16 bytes of the master key |
i64 last add confirmed | master key | explicit LAC packet, to the end
"""

from struct import Struct

from bookie.errors import CorruptFileError
from bookie.server.interfaces import LedgerRecord

_HEAD = Struct(">BBHq")
_VERSION = 1
_FENCED = 1
_IN_LIMBO = 2


def encode_ledger_record(record: LedgerRecord) -> bytes:
    flags = (_FENCED if record.is_fenced else 0) | (_IN_LIMBO if record.is_in_limbo else 0)
    head = _HEAD.pack(_VERSION, flags, len(record.master_key), record.last_add_confirmed)
    return head + record.master_key + record.explicit_lac


def decode_ledger_record(data: bytes) -> LedgerRecord:
    """Return the record; CorruptFileError when the bytes are malformed."""
    if len(data) >= _HEAD.size and data[0] == _VERSION:
        _, flags, key_bytes, lac = _HEAD.unpack_from(data)
        end = _HEAD.size + key_bytes
        if len(data) >= end and not flags & ~(_FENCED | _IN_LIMBO):
            is_in_limbo = bool(flags & _IN_LIMBO)
            return LedgerRecord(
                data[_HEAD.size : end], bool(flags & _FENCED), data[end:], lac, is_in_limbo
            )
    raise CorruptFileError(
        f"a ledger's record: expected version {_VERSION}, found {data[:16].hex()}"
    )


def encode_ledger_body(ledger_id: int, record: LedgerRecord) -> bytes:
    """Return the body of a LEDGER record of an entry log."""
    return ledger_id.to_bytes(8, "big", signed=True) + encode_ledger_record(record)


def decode_ledger_body(body: bytes) -> tuple[int, LedgerRecord]:
    return int.from_bytes(body[:8], "big", signed=True), decode_ledger_record(body[8:])


def merge_ledger_records(one: LedgerRecord, other: LedgerRecord) -> LedgerRecord:
    """Return what both together say: the order in which they were written does not matter.

    A fence is never taken back, a key of zeros is replaced by another, LACs only grow. Limbo may
    have ended with the newer one: then the collector ends it again.
    """
    key = one.master_key if any(one.master_key) else other.master_key
    explicit = max(one.explicit_lac, other.explicit_lac, key=lambda packet: packet[8:16])
    return LedgerRecord(
        key or one.master_key,
        one.is_fenced or other.is_fenced,
        explicit,
        max(one.last_add_confirmed, other.last_add_confirmed),
        one.is_in_limbo or other.is_in_limbo,
    )
