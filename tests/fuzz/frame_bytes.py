"""Frames that are nearly messages: by the types of their fields, then changed."""

import random
from functools import cache
from typing import Any

import msgspec
import pyarrow

from herdpy.proto import messages
from herdpy.proto.messages import LENGTH_BYTES

pa: Any = pyarrow  # whose stubs know not all that its functions take
_TEXTS = (
    "SELECT 1", "SELECT ?", "INSERT INTO t VALUES (?, 'x')", "SELECT * FROM t WHERE id = ?",
    "DELETE FROM t", "BEGIN", "COMMIT", "ROLLBACK", "SELECT", "é\0", "", "t", "append", "upsert",
    "replace", "backup", "dump", "default", "sync", "abort", "position", "job", "x" * 300,
    "SELECT a.id, b.v FROM t a, t b ORDER BY 2", "UPDATE t SET v = :name", "SET x TO 1",
)  # fmt: skip
_NUMBERS = (0, 1, 1, 1, 2, 2, 3, 7, -1, 255, 100_000, 2**31, 2**63 - 1, -(2**63), 2**64 - 1)
_VALUES = (
    None, True, 0, -1, 2**63 - 1, 2**64 - 1, 1.5, float("nan"), "text", b"bytes", [], {}, [[1]],
    *(msgspec.msgpack.Ext(code, b"2020-01-31") for code in (1, 2, 3, 4, 5, 6, -1)),
)  # fmt: skip
_LIKELY: dict[str, tuple[Any, ...]] = {
    "token": (0,), "acknowledged": (0,), "keep": (0, 0, 1), "statement": (1,), "table": ("t",),
    "mode": ("append", "upsert", "replace"), "durability": (None, "none", "os"),
    "kind": ("backup", "dump"), "action": ("commit", "abort", "position"), "ingest": (1, 2),
    "operation": ("append", "upsert", "replace", "ignore", "update", "delete"), "job": ("j", "k"),
    "task": ("1", "2"), "attempt": ("a",), "stage": (1, 2), "stages": ([1], [1, 2], []),
    "result": (1, 2, 3), "rows_max": (1, 100, 10_000), "first_row": (0, 3),
}  # fmt: skip
_LARGE_EVERY = 500
_ENDINGS = frozenset((1, 14, 15, 24, 64, 71, 72, 73))
"""Messages that end a connection where they are not expected."""


@cache
def forms(union: Any) -> tuple[tuple[int, tuple[tuple[str, str], ...]], ...]:
    """Return number and fields, as (name, type), of each message of a union."""
    return tuple(
        (
            kind.__struct_config__.tag,
            tuple((f.name, str(f.type)) for f in msgspec.structs.fields(kind)),
        )
        for kind in union.__args__
    )


@cache
def arrow_streams() -> tuple[bytes, ...]:
    """Return streams that rows of the table t come in."""
    batches = [
        pa.record_batch({"id": [1, 2, 3], "v": ["a", "b", None]}),
        pa.record_batch({"id": pa.array([1, 1]), "v": pa.array(["a", "a"]).dictionary_encode()}),
        pa.record_batch({"nope": [1.5]}),
        pa.record_batch({"id": pa.nulls(3)}),
    ]
    found: list[bytes] = []
    for batch in batches:
        for compression in (None, "zstd"):
            sink = pa.BufferOutputStream()
            options = pa.ipc.IpcWriteOptions(compression=compression)
            with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
                writer.write_batch(batch)
            found.append(sink.getvalue().to_pybytes())
    return tuple(found)


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def changed(rng: random.Random, data: bytes, count: int = 3) -> bytes:
    """Return bytes with some of them others."""
    found = bytearray(data)
    for _ in range(rng.randrange(1, count + 1)):
        if found:
            found[rng.randrange(len(found))] = rng.randrange(256)
    return bytes(found)


def random_frame(rng: random.Random, union: Any, wildness: float = 0.5) -> bytes:
    """Return a frame that is nearly a message of a union; the wilder the less it is one."""
    if rng.random() < 0.04 * wildness:
        return rng.randbytes(rng.randrange(1, 40))
    if rng.random() < 0.2 * wildness:
        number, kinds = rng.randrange(0, 130), (("", "?"),) * rng.randrange(7)
    else:
        number, kinds = rng.choice(forms(union))
        if number in _ENDINGS and rng.random() < 0.95:
            number, kinds = rng.choice(forms(union))
    fields: list[Any] = [number, *(_field(rng, *kind, wildness) for kind in kinds)]
    if len(fields) > 1 and fields[1] == 0 and rng.random() > wildness:
        fields[1] = 1  # 0 is no number of a request
    if rng.random() < 0.1 * wildness:
        fields = fields[: rng.randrange(1, len(fields) + 1)]
    body = msgspec.msgpack.encode(fields)
    if rng.random() < 0.5 * wildness:
        body = changed(rng, body)
    return frame(body)


def _field(rng: random.Random, name: str, kind: str, wildness: float) -> Any:
    if name in _LIKELY and rng.random() > 0.1 + 0.2 * wildness:
        return rng.choice(_LIKELY[name])
    if rng.random() < 0.2 * wildness or kind == "?":
        return rng.choice(_VALUES)
    if "Raw" in kind:
        return _parameters(rng)
    if "None" in kind and rng.random() < 0.3:
        return None
    if "list" in kind or "tuple" in kind:
        return [rng.choice(_VALUES[:9]) for _ in range(rng.randrange(4))]
    if "bytes" in kind:
        data = rng.choice(arrow_streams())
        return changed(rng, data) if rng.random() < 0.4 else data
    if "bool" in kind:
        return rng.random() < 0.5
    if "float" in kind:
        return rng.choice((0.0, 1.5, -1.0, float("inf"), float("nan")))
    return rng.choice(_TEXTS) if "str" in kind else rng.choice(_NUMBERS)


def _parameters(rng: random.Random) -> Any:
    kind, values = rng.random(), _VALUES
    if rng.randrange(_LARGE_EVERY) == 0:
        return _large(rng)
    if kind < 0.4:
        return [rng.choice(values) for _ in range(rng.randrange(3))]
    if kind < 0.6:
        return {rng.choice(("name", "a", "")): rng.choice(values) for _ in range(2)}
    if kind < 0.9:
        return [[rng.choice(values) for _ in range(2)] for _ in range(rng.randrange(4))]
    return rng.choice(values)


def _large(rng: random.Random) -> Any:
    """Return parameters that become much more in memory than they are in bytes."""
    worst: tuple[Any, ...] = ([], {}, [None], ["x"], [[]], [1, "a"], {"a": 1}, rng.choice(_VALUES))
    return [rng.choice(worst)] * rng.randrange(20_000, 60_000)


TO_SERVER = messages.ToServer
TO_DRIVER = messages.ToDriver
