"""Tells from the first bytes of a message whether it is an add: only adds may be large.

A peer's first message may be large only when its header is that of an add (v3 ADD_ENTRY or
WRITE_LAC, v2 ADDENTRY): no other message of the protocol is large. Source: docs/formats/wire_v3.md
(header first, as every known client writes it) and docs/formats/wire_v2.md.
"""

from bookie.proto.v3 import VERSION, Operation

HEADER_BYTES_MAX = 36
"""The length of a message and its longest header."""

_V2_ADD = b"\x02\x01"
_V3_REQUEST_HEADER = 0x0A  # field 1 of Request, length-delimited
_HEADER_VERSION = 0x08  # field 1 of the header, varint
_HEADER_OPERATION = 0x10
_LARGE = (Operation.ADD_ENTRY, Operation.WRITE_LAC)


def is_add_header(start: bytes) -> bool:
    """Tell whether a message that begins with `start` (its length left out) is an add."""
    if start[:2] == _V2_ADD:
        return True
    if len(start) < 2 or start[0] != _V3_REQUEST_HEADER or start[1] > len(start) - 2:
        return False
    header = _varint_fields(start[2 : 2 + start[1]])
    return header.get(_HEADER_VERSION) == VERSION and header.get(_HEADER_OPERATION) in _LARGE


def _varint_fields(data: bytes) -> dict[int, int]:
    """Return tag -> value of a message that has only varints; empty when it has anything else."""
    fields: dict[int, int] = {}
    tag = -1
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        if byte & 0x80:
            shift += 7
        elif tag < 0:
            if value & 7:
                return {}
            tag, value, shift = value, 0, 0
        else:
            fields[tag] = value
            tag, value, shift = -1, 0, 0
    return fields
