"""Parameters in bytes: the same in both ways of reading them, and never more memory than charged.

What a frame can make a server hold is measured in a process of its own, by its peak.
"""

import datetime
import json
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdpy.errors import Error, OperationalError, ProtocolError
from herdpy.proto import parameters as parameters_module
from herdpy.proto.messages import ToServer, raw
from herdpy.proto.parameters import SMALL_BYTES, decode_items, decode_parameters
from herdpy.proto.values import to_wire

Ext = msgspec.msgpack.Ext
MIB = 1 << 20
VALUES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9)
    | st.binary(max_size=9) | st.decimals(allow_nan=False) | st.dates() | st.datetimes()
)  # fmt: skip


class Purse:
    """Memory to be charged for."""

    def __init__(self, byte_count: int) -> None:
        self.left = byte_count

    def __call__(self, byte_count: int) -> None:
        assert byte_count >= 0
        if byte_count > self.left:
            raise OperationalError("too much", sqlstate="53200")
        self.left -= byte_count


def encoded(value: Any) -> msgspec.Raw:
    return raw(msgspec.msgpack.encode(value))


def read(data: msgspec.Raw, charge: Callable[[int], None]) -> list[Any]:
    """Return rows of executemany(), of which one without names may be a list or a tuple."""
    found: list[Any] = decode_items(data, charge)
    return [row if isinstance(row, dict) else list(row) for row in found]


def wired(items: list[Any]) -> msgspec.Raw:
    return encoded([to_wire(item) for item in items])


@given(st.lists(st.lists(VALUES, max_size=4) | st.dictionaries(st.text(max_size=3), VALUES)))
def test_large_and_small_ones_are_read_alike(items: list[Any]) -> None:
    padded = [*items, ["x" * SMALL_BYTES]]
    assert read(wired(items), Purse(0)) == items
    assert read(wired(padded), Purse(1 << 40)) == padded
    for item in items:
        assert decode_parameters(encoded(to_wire(item)), Purse(0)) == item
        large = {**item, "large": "x" * SMALL_BYTES} if isinstance(item, dict) else None
        large = large or [*item, "x" * SMALL_BYTES]
        assert decode_parameters(encoded(to_wire(large)), Purse(1 << 40)) == large


def test_nothing_is_nothing() -> None:
    assert decode_parameters(encoded(None), Purse(0)) is None


@pytest.mark.parametrize(
    "row",
    [
        [datetime.date(2020, 1, 31), Decimal("1.10"), b"\x90", 2**70],
        [1, "text", None, 1.5],
        {"a": datetime.date(2020, 1, 31), "b": None},
        {"a": 1, "b": "text"},
    ],
)
def test_large_ones_of_every_class(row: Any) -> None:
    items = [row] * 2000
    assert read(wired(items), Purse(4 * MIB)) == items


def test_rows_may_differ_in_length_and_kind() -> None:
    """What the engine says of them is said by the engine."""
    items: list[Any] = [[1]] * 9000 + [[1, 2, 3], {"a": 1}, []]
    assert read(wired(items), Purse(10 * MIB)) == items


@pytest.mark.parametrize("nested", [[], {}, [[1]], {"a": []}])
def test_a_container_is_no_value(nested: Any) -> None:
    rows = [[1, 2]] * 9000
    named: list[Any] = [{"a": 1, "b": 2}] * 9000
    long: list[Any] = ["x" * SMALL_BYTES]
    for items in ([*rows, [1, nested]], [*named, {"a": nested}], [*rows, [*long, nested]]):
        with pytest.raises(ProtocolError, match="container"):
            decode_items(encoded(items), Purse(1 << 40))
    for item in ([*long, nested], {"a": long[0], "b": nested}):
        with pytest.raises(ProtocolError, match="container"):
            decode_parameters(encoded(item), Purse(1 << 40))


@pytest.mark.parametrize("value", [1, "x" * SMALL_BYTES, b"\xff" * SMALL_BYTES, 1.5])
def test_what_is_no_list_of_parameters(value: Any) -> None:
    with pytest.raises(ProtocolError):
        decode_items(encoded(value), Purse(1 << 40))
    with pytest.raises(ProtocolError):
        decode_items(encoded([value, value]), Purse(1 << 40))


def test_too_many() -> None:
    for decode in (lambda: decode_parameters(encoded([1] * 70_000), Purse(1 << 40)),
                   lambda: decode_items(encoded([[1] * 70_000]), Purse(1 << 40))):  # fmt: skip
        with pytest.raises(OperationalError) as caught:
            decode()
        assert caught.value.sqlstate == "54023"


def test_no_message_to_a_server_holds_what_was_not_looked_at() -> None:
    """A field of no type would be decoded to whatever it holds, before it was counted."""
    for kind in ToServer.__args__:
        for field in msgspec.structs.fields(kind):
            text = str(field.type)
            if "max_length" in text:
                continue
            assert "Any" not in text, f"{kind.__name__}.{field.name}: {text}"
            assert "list" not in text, f"{kind.__name__}.{field.name}: {text}"
            assert "dict" not in text, f"{kind.__name__}.{field.name}: {text}"


# --- memory --------------------------------------------------------------------------------------

_FRAME_BYTES = MIB // 2
_PURSE_BYTES = 1024 * MIB
_WORST: dict[str, bytes] = {
    "empty rows": b"\x90",
    "empty named rows": b"\x80",
    "rows of nil": b"\x91\xc0",
    "rows of one letter": b"\x91\xa1x",
    "rows of small decimals": b"\x91\xd4\x01\x31",
    "rows of bytes": b"\x91\xc4\x01x",
    "rows of dates": b"\x91\xc7\x0a\x022020-01-31",
    "rows of unknown classes": b"\x91\xd4\x05x",
    "rows of an array": b"\x91\x90",
    "rows of long arrays": b"\x9f" + b"\x9f" * 15 + b"\x90" * 200,
    "named rows": b"\x82\xa1a\x01\xa1b\x02",
    "wide rows": b"\xdc\x03\xe8" + b"\xa1x" * 1000,
    "integers": b"\x93" + b"\xcd\x12\x34" * 3,
    "doubles": b"\x91\xcb\x3f\xf1\x11\x11\x11\x11\x11\x11",
}
_PROGRAM = """
import json, os
import msgspec
from herdpy.errors import Error
from herdpy.proto import parameters
from tests.unit.herdpy.proto.test_parameters import Purse, _FRAME_BYTES, _PURSE_BYTES, _WORST

def peak():
    lines = open("/proc/self/status").read().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

def most(name):
    row = _WORST[name]
    count = _FRAME_BYTES // len(row)
    frame = msgspec.Raw(b"\\xdd" + count.to_bytes(4, "big") + row * count)
    purse, before = Purse(_PURSE_BYTES), peak()
    try:
        kept, found = parameters.decode_items(frame, purse), "read"
    except Error as error:
        found = error.sqlstate
    return found, peak() - before, _PURSE_BYTES - purse.left

found = {}
for name in _WORST:
    reader, writer = os.pipe()
    if not os.fork():
        os.write(writer, json.dumps(most(name)).encode())
        os._exit(0)
    found[name] = json.loads(os.read(reader, 1000))
    os.wait()
print(json.dumps(found))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_no_frame_takes_more_memory_than_was_charged() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True, timeout=300
    )
    found = json.loads(done.stdout)
    assert set(found) == set(_WORST)
    slack = 6 * MIB  # of Python's allocator
    for name, (how, byte_count, charged_bytes) in found.items():
        assert how == ("08P01" if "array" in name else "read"), name
        assert byte_count <= charged_bytes + slack, (name, byte_count, charged_bytes)


def test_a_refusal_is_an_error_of_ours() -> None:
    with pytest.raises(Error) as caught:
        decode_items(encoded([[]] * 20_000), Purse(100))
    assert caught.value.sqlstate == "53200"
    assert parameters_module.VALUE_BYTES > 0
