"""Arrow from an untrusted client: what is none, what claims to be much, and what is fine."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from herdpy.errors import Error, OperationalError, ProgrammingError, ProtocolError
from herdpy.exec.vector.arrow_input import input_batches
from herdpy.exec.vector.untrusted_arrow import BYTES_MAX, ROWS_MAX, batches_of
from herdpy.model.schema import Column, Table
from herdpy.model.types import BIGINT, TEXT

pa: Any = pyarrow  # whose stubs know not all that its functions take
MIB = 1 << 20
LONG = "x" * 1_000_000


def stream(*batches: Any, compression: Any = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def batch_of(array: Any) -> Any:
    return pa.record_batch([array], names=["a"])


def views(count: int) -> Any:
    """Return so many views of one text."""
    one = pa.array([LONG], pa.string_view())
    view = one.buffers()[1].to_pybytes()[:16]
    buffers = [None, pa.py_buffer(view * count), one.buffers()[2]]
    return pa.Array.from_buffers(pa.string_view(), count, buffers)


FINE: dict[str, Any] = {
    "numbers": pa.array([1, None, 3]),
    "texts": pa.array(["a", None, "é"]),
    "dictionary": pa.array(["a", "b", None] * 10).dictionary_encode(),
    "dictionary of numbers": pa.array([1, 2, None] * 10).dictionary_encode(),
    "runs": pa.RunEndEncodedArray.from_arrays([3, 5], ["a", "b"]),
    "views": pa.array(["a", None, "long enough to be elsewhere"], pa.string_view()),
    "bytes in views": pa.array([b"a", None], pa.binary_view()),
    "nothing": pa.nulls(5),
    "short lists": pa.array([[1, 2], None]),
    "no rows": pa.array([], pa.string()),
}


@pytest.mark.parametrize("array", FINE.values(), ids=FINE)
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_what_is_fine(array: Any, compression: str | None) -> None:
    batch = batch_of(array)
    found = list(batches_of(stream(batch, batch, compression=compression)))
    assert [each.to_pylist() for each in found] == [batch.to_pylist()] * 2


def _zeros(count: int) -> Any:
    return pa.Array.from_buffers(pa.uint8(), count, [None, pa.py_buffer(bytes(count))])


BOMBS: dict[str, Any] = {
    "lz4": lambda: stream(batch_of(_zeros(BYTES_MAX + 1000)), compression="lz4"),
    "zstd": lambda: stream(batch_of(_zeros(BYTES_MAX + 1000)), compression="zstd"),
    "compressed dictionary": lambda: stream(
        batch_of(
            pa.DictionaryArray.from_arrays(
                pa.array([0], pa.int32()), pa.array([b"\0" * (BYTES_MAX + 1000)])
            )
        ),
        compression="zstd",
    ),
    "dictionary": lambda: stream(
        batch_of(pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int16()), [LONG]))
    ),
    "runs": lambda: stream(batch_of(pa.RunEndEncodedArray.from_arrays([1000], [LONG]))),
    "views": lambda: stream(batch_of(views(1000))),
    "rows of nothing": lambda: stream(batch_of(pa.nulls(ROWS_MAX + 1))),
    "long run of a number": lambda: stream(
        batch_of(pa.RunEndEncodedArray.from_arrays(pa.array([1 << 30], pa.int32()), [1]))
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_what_becomes_too_much(name: str) -> None:
    data = BOMBS[name]()
    assert len(data) < 2 * MIB
    with pytest.raises(OperationalError) as caught:
        list(batches_of(data))
    assert caught.value.sqlstate == "54000"


_PROGRAM = """
import json, pathlib, sys
from herdpy.errors import OperationalError
from herdpy.exec.vector.untrusted_arrow import batches_of

def peak():
    lines = open("/proc/self/status").read().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

tops = {}
for path in map(pathlib.Path, sys.argv[1:]):
    data = path.read_bytes()
    before = peak()
    try:
        list(batches_of(data))
    except OperationalError:
        pass
    tops[path.name] = peak() - before
print(json.dumps(tops))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_bombs_cost_no_memory(tmp_path: Path) -> None:
    """They are made here, and refused in a process of its own, by less than 64 MiB of memory."""
    fine = stream(batch_of(pa.array(["a"])), compression="zstd")
    for name, data in {"": fine, **{name: make() for name, make in BOMBS.items()}}.items():
        (tmp_path / f"bomb {name}").write_bytes(data)
    paths = sorted(map(str, tmp_path.iterdir()))  # first the one that is none
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *paths],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    _, *tops = json.loads(done.stdout).values()
    assert len(tops) == len(BOMBS)
    assert max(tops) < 48 * MIB, done.stdout


@pytest.mark.parametrize(
    "array",
    [
        pa.array([[1] * 10] * 100_000),
        pa.array([["a"], None]),
        pa.array([{"a": 1}]),
        pa.array([[[1]]]),
        pa.array([[1]], pa.list_view(pa.int8())),
        pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())),
    ],
    ids=str,
)
def test_containers_are_no_values(array: Any) -> None:
    with pytest.raises(ProgrammingError) as caught:
        list(batches_of(stream(batch_of(array))))
    assert caught.value.sqlstate == "42804"


def test_a_type_that_pyarrow_has_no_class_for() -> None:
    table = pyarrow.table({"a": pyarrow.array([pyarrow.MonthDayNano([1, 2, 3])])})
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data = bytes(sink.getvalue())
    unit = data.index(b"\x06\x00\x08\x00\x06\x00\x06\x00\0\0\0\0\x02\x00") + 12
    months = data[:unit] + b"\0" + data[unit + 1 :]
    with pytest.raises(ProgrammingError, match="type number 21") as caught:
        list(batches_of(months))
    assert caught.value.sqlstate == "42804"


def test_hostile_buffers() -> None:
    data, offsets = stream(batch_of(pa.array(["abc", "def"]))), b"\0\0\0\0\3\0\0\0\6\0\0\0"
    assert data.count(offsets) == data.count(b"abcdef") == 1
    hostile = [
        data.replace(offsets, b"\0\0\0\0\xff\xff\xff\x7f\xff\xff\xff\x7f"),  # far outside
        data.replace(offsets, b"\5\0\0\0\3\0\0\0\6\0\0\0"),  # backwards
        data.replace(offsets, b"\xff\xff\xff\xff\3\0\0\0\6\0\0\0"),  # negative
        stream(
            batch_of(pa.DictionaryArray.from_arrays(pa.array([7], pa.int8()), ["a"], safe=False))
        ),
    ]
    for each in hostile:
        with pytest.raises(ProtocolError):
            list(batches_of(each))


def test_changed_bytes_are_errors_or_batches() -> None:
    rng = random.Random(7)
    table: dict[str, Any] = {name: batch_of(array) for name, array in FINE.items()}
    streams = [stream(each, compression=how) for each in table.values() for how in (None, "zstd")]
    refused = 0
    for _ in range(1500):
        data = bytearray(rng.choice(streams))
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        try:
            for batch in batches_of(
                bytes(data[: rng.choice((len(data), rng.randrange(len(data)))) or None])
            ):
                batch.to_pylist()
        except Error:
            refused += 1
        except (ValueError, OverflowError):
            pass  # a value that Python cannot show
    assert refused > 100


def test_a_driver_sends_no_dictionaries() -> None:
    table = Table(1, "t", (Column(1, "a", TEXT), Column(2, "n", BIGINT)), (0,))
    texts = pa.array([LONG, "short"] * 20).dictionary_encode()
    batch = pa.record_batch([texts, pa.array(range(40))], names=["a", "n"])
    parts = list(input_batches(batch, table))
    assert pa.Table.from_batches(parts).to_pylist() == batch.to_pylist()
    assert max(part.nbytes for part in parts) < 8 * MIB
    assert {part.schema.field("a").type for part in parts} == {pa.string()}
    assert 3 < len(parts) < 20
