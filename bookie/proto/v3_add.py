"""ADD by hand: the request and the answer that pass for every entry written, without protobuf.

Four functions that give what protobuf gives, a third faster for a small entry and without copying
a large one (tests/benchmarks/wire.py measures, tests/unit/bookie/proto/test_v3_add.py proves them
equal). Parsers know one spelling, that of every protobuf writer for a plain add:
fields in ascending order, no priority, no flags, status OK. Anything else is None, and for
protobuf to judge.

    request   0a len header  aa 06 len { 08 ledger  10 entry  1a 14 key  22 len packet }
    response  0a len header  10 status  aa 06 len { 08 status  10 ledger  18 entry }
    header    08 03  10 02  18 txn id
"""

import re

from bookie.ledger.types import Status
from bookie.proto.v3_messages import AddRequest, AddResponse, BytesLike
from bookie.proto.v3_wire import varint, varint_value

# At most nine bytes: ten are negative, or beyond int64.
_NUMBER = rb"([\x80-\xff]{0,8}[\x00-\x7f])"
# 28 bits: more than any frame has.
_LENGTH = rb"([\x80-\xff]{0,3}[\x00-\x7f])"
_HEADER = rb"\x0a(.)\x08\x03\x10\x02\x18" + _NUMBER
_match_request = re.compile(
    _HEADER
    + rb"\xaa\x06" + _LENGTH + rb"\x08" + _NUMBER + rb"\x10" + _NUMBER
    + rb"\x1a\x14(.{20})\x22" + _LENGTH,
    re.DOTALL,
).match  # fmt: skip
_match_response = re.compile(
    _HEADER + rb"\x10\x00\xaa\x06(.)\x08\x00\x10" + _NUMBER + rb"\x18" + _NUMBER, re.DOTALL
).fullmatch
# Tags and fixed bytes: of header and inner message, without their numbers.
_HEADER_FIXED_BYTES = 5
_REQUEST_FIXED_BYTES = 2 + 22 + 1

# NamedTuple's own constructor takes twice the time of the tuple's.
_new = tuple.__new__


def parse_add_request(frame: BytesLike) -> AddRequest | None:
    """Read a plain add, its packet a slice of the frame; None: not of the one known spelling."""
    match = _match_request(frame)
    if match is None:
        return None
    header_size, txn_id, size, ledger_id, entry_id, key, packet_size = match.groups()
    start = match.end()
    if (
        header_size[0] != _HEADER_FIXED_BYTES + len(txn_id)
        or varint_value(size) != len(frame) - match.end(3)
        or varint_value(packet_size) != len(frame) - start
    ):
        return None
    return _new(
        AddRequest,
        (
            varint_value(txn_id),
            varint_value(ledger_id),
            varint_value(entry_id),
            key,
            frame[start:],
            False,
            False,
            0,
        ),
    )


def add_request_frame(
    txn_id: int, ledger_id: int, entry_id: int, master_key: bytes, packet: BytesLike
) -> bytes:
    """Return the frame of a plain add; the packet is copied once, into it."""
    txn, ledger, entry = varint(txn_id), varint(ledger_id), varint(entry_id)
    packet_size = varint(len(packet))
    inner_byte_count = (
        _REQUEST_FIXED_BYTES + len(ledger) + len(entry) + len(packet_size) + len(packet)
    )
    size = varint(inner_byte_count)
    header_byte_count = _HEADER_FIXED_BYTES + len(txn)
    frame_byte_count = 2 + header_byte_count + 2 + len(size) + inner_byte_count
    return b"%b\x0a%c\x08\x03\x10\x02\x18%b\xaa\x06%b\x08%b\x10%b\x1a\x14%b\x22%b%b" % (
        frame_byte_count.to_bytes(4, "big"),
        header_byte_count,
        txn,
        size,
        ledger,
        entry,
        master_key,
        packet_size,
        packet,
    )


def parse_add_response(frame: BytesLike) -> AddResponse | None:
    """Read an answer that says OK; None: not of the one known spelling."""
    match = _match_response(frame)
    if match is None:
        return None
    header_size, txn_id, size, ledger_id, entry_id = match.groups()
    inner_byte_count = 4 + len(ledger_id) + len(entry_id)
    if header_size[0] != _HEADER_FIXED_BYTES + len(txn_id) or size[0] != inner_byte_count:
        return None
    return _new(
        AddResponse,
        (varint_value(txn_id), Status.OK, varint_value(ledger_id), varint_value(entry_id)),
    )


def add_response_frame(txn_id: int, status: Status, ledger_id: int, entry_id: int) -> bytes:
    """Return the frame of an answer to an add."""
    txn, ledger, entry = varint(txn_id), varint(ledger_id), varint(entry_id)
    code = varint(status)
    header_byte_count = _HEADER_FIXED_BYTES + len(txn)
    inner_byte_count = 3 + len(code) + len(ledger) + len(entry)
    return b"\0\0\0%c\x0a%c\x08\x03\x10\x02\x18%b\x10%b\xaa\x06%c\x08%b\x10%b\x18%b" % (
        2 + header_byte_count + 1 + len(code) + 3 + inner_byte_count,
        header_byte_count,
        txn,
        code,
        inner_byte_count,
        code,
        ledger,
        entry,
    )
