"""Primary keys: canonical in memory, order-preserving bytes at rest.

In memory a key is a tuple whose values compare and hash as the database orders them. Numbers,
booleans, strings and bytes stand for themselves (Python orders strings by code point, which is the
order of their UTF-8 bytes); a DOUBLE or REAL is replaced by the 64-bit integer of `float_order`, so
that -0.0 equals 0.0 and all NaNs are one value, the greatest. Key columns are never NULL.

At rest, each value after the other (docs/formats/keys.md):
tag 0x01 (0x00 is kept for NULL) · BOOLEAN one byte · SMALLINT, INTEGER, BIGINT, DATE, TIMESTAMP,
TIMESTAMPTZ, DOUBLE, REAL 8 bytes big-endian, sign bit flipped · DECIMAL 16 bytes likewise · TEXT,
BYTEA the bytes with 00 written 00 FF, ended by 00 00.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter

from herdpy.model.types import FLOAT_KINDS, Key, Kind, Physical, Row

_DOUBLE = struct.Struct("<d")
_LONG = struct.Struct("<q")
_BIG = struct.Struct(">Q")
_NAN_ORDER = 2**63 - 1
_SIGN_64 = 1 << 63
_SIGN_128 = 1 << 127


def float_order(value: float) -> int:
    """Return a signed 64-bit integer that orders as floats do; -0.0 = 0.0, NaN greatest."""
    if value != value:
        return _NAN_ORDER
    (bits,) = _LONG.unpack(_DOUBLE.pack(value + 0.0))  # -0.0 + 0.0 is 0.0
    return bits if bits >= 0 else bits ^ 0x7FFF_FFFF_FFFF_FFFF


def float_from_order(order: int) -> float:
    """Invert float_order (0.0 for both zeros, the canonical NaN for all)."""
    if order == _NAN_ORDER:
        return float("nan")
    bits = order if order >= 0 else order ^ 0x7FFF_FFFF_FFFF_FFFF
    return _DOUBLE.unpack(_LONG.pack(bits))[0]


def canonical(value: Physical, kind: Kind) -> bool | int | str | bytes:
    """Return the key form of one physical value that is not NULL."""
    if kind in FLOAT_KINDS:
        return float_order(value)  # type: ignore[arg-type]  # they are floats
    return value  # type: ignore[return-value]  # not NULL, not a float


def canonical_key(values: Sequence[Physical], kinds: Sequence[Kind]) -> Key:
    """Return the key of physical values that are not NULL."""
    return tuple(canonical(value, kind) for value, kind in zip(values, kinds, strict=True))


def compile_key_of(ordinals: Sequence[int], kinds: Sequence[Kind]) -> Callable[[Row], Key]:
    """Return the function row → key; generated, because it runs once per row written."""
    source = f"lambda r: {key_source(ordinals, kinds)}"
    function: Callable[[Row], Key] = eval(source, {"float_order": float_order})  # noqa: S307 - built from integers
    return function


def key_source(ordinals: Sequence[int], kinds: Sequence[Kind]) -> str:
    """Return Python source of the key of a row `r`, over `float_order`."""
    parts = ", ".join(
        f"float_order(r[{ordinal}])" if kind in FLOAT_KINDS else f"r[{ordinal}]"
        for ordinal, kind in zip(ordinals, kinds, strict=True)
    )
    return f"({parts},)"


def compile_keys_of(
    ordinals: Sequence[int], kinds: Sequence[Kind]
) -> Callable[[Iterable[Row]], list[Key]]:
    """Return the function rows → their keys, which takes many rows at less than a call for each."""
    if not set(FLOAT_KINDS).isdisjoint(kinds):
        key_of = compile_key_of(ordinals, kinds)
        return lambda rows: list(map(key_of, rows))
    values = itemgetter(*ordinals)
    if len(ordinals) > 1:
        return lambda rows: list(map(values, rows))
    return lambda rows: list(zip(map(values, rows)))


def encode_key(key: Key, kinds: Sequence[Kind]) -> bytes:
    """Return the bytes of a canonical key, or of a leading part of one; they order as keys do."""
    parts: list[bytes] = []
    for value, kind in zip(key, kinds, strict=False):
        parts.append(b"\x01")
        if kind is Kind.TEXT:
            parts.append(value.encode().replace(b"\0", b"\0\xff") + b"\0\0")  # type: ignore[union-attr]
        elif kind is Kind.BYTEA:
            parts.append(value.replace(b"\0", b"\0\xff") + b"\0\0")  # type: ignore[union-attr,arg-type]
        elif kind is Kind.BOOLEAN:
            parts.append(b"\1" if value else b"\0")
        elif kind is Kind.DECIMAL:
            parts.append((int(value) + _SIGN_128).to_bytes(16, "big"))
        else:
            parts.append(_BIG.pack(int(value) + _SIGN_64))
    return b"".join(parts)


def decode_key(data: bytes, kinds: Sequence[Kind]) -> Key:
    """Invert encode_key for a whole key; malformed bytes are a ValueError."""
    values: list[bool | int | str | bytes] = []
    offset = 0
    for kind in kinds:
        if data[offset : offset + 1] != b"\x01":
            raise ValueError(f"key: expected tag 01 at byte {offset}")
        offset += 1
        if kind is Kind.TEXT or kind is Kind.BYTEA:
            raw, offset = _decode_string(data, offset)
            values.append(raw.decode() if kind is Kind.TEXT else raw)
            continue
        width = {Kind.BOOLEAN: 1, Kind.DECIMAL: 16}.get(kind, 8)
        part = data[offset : offset + width]
        if len(part) != width:
            raise ValueError(f"key: cut at byte {offset}")
        number = int.from_bytes(part, "big")
        offset += width
        if kind is Kind.BOOLEAN:
            values.append(bool(number))
        else:
            values.append(number - (_SIGN_128 if width == 16 else _SIGN_64))
    if offset != len(data):
        raise ValueError(f"key: {len(data) - offset} bytes too many")
    return tuple(values)


def _decode_string(data: bytes, offset: int) -> tuple[bytes, int]:
    parts: list[bytes] = []
    while True:
        zero = data.find(b"\0", offset)
        follower = data[zero + 1 : zero + 2]
        if zero < 0 or follower not in (b"\0", b"\xff"):
            raise ValueError(f"key: a string has no end after byte {offset}")
        parts.append(data[offset:zero])
        offset = zero + 2
        if follower == b"\0":
            return b"".join(parts), offset
        parts.append(b"\0")
