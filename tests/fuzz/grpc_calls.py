"""`python -m tests.fuzz.grpc_calls --runs 1000000 --seed 7`: broken calls of the gRPC service.

One call for each 100 runs, over a real channel, to a server without users and to one that
has users: requests filled at random from their descriptors, in streams, some with changed bytes.
Every call has to end with a status that means something (not UNKNOWN, not INTERNAL, in time), the
server with users lets no client in, and resident memory may grow by 64 MB at most. The same seed
sends the same calls. Exit code 1 and the seed when something is found.
"""

import asyncio
import random
import sys
from collections import Counter
from typing import Any

import grpc
from google.protobuf.descriptor import FieldDescriptor

from herdpy.config import ServerConfig
from herdpy.proto import herdpy_pb2 as pb
from herdpy.proto import messages
from herdpy.proto.messages import encode_frame
from herdpy.server.grpc.routing import SERVICE
from herdpy.server.server import Server
from tests.fixtures.engines import Engine
from tests.fuzz.frame_bytes import TO_SERVER, arrow_streams, changed, random_frame
from tests.fuzz.watched import Watched, command
from tests.fuzz.wire import FindingError

_RUNS_PER_CALL = 100
_AT_ONCE = 8
_DEADLINE_S = 60.0
_REQUESTS: dict[str, Any] = {
    method.name: getattr(pb, method.input_type.name)
    for method in pb.DESCRIPTOR.services_by_name["Herdpy"].methods
}
_TEXTS = (
    "SELECT 1", "SELECT ?", "SELECT * FROM t", "INSERT INTO t VALUES (?, 'x')", "BEGIN", "COMMIT",
    "SELECT a.id FROM t a, t b ORDER BY 1", "DROP TABLE u", "é\0", "", "t", "default", "append",
    "upsert", "ada", "none", "backup",
)  # fmt: skip
_METADATA = (
    (), (), (("authorization", "Bearer x"),), (("authorization", "Basic YWRhOng="),),
    (("authorization", "Basic !"),), (("authorization", ""),), (("x-bin", b"\xff\0"),),
    (("authorization", "Bearer " + "A" * 3000),),
)  # fmt: skip
_MEANINGLESS = (
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.DATA_LOSS,
)
_CLIENTS_OWN = "Internal error from Core"
"""grpc.aio's client says so when the call had ended before all was sent."""
_HELLO = encode_frame(messages.Hello("herdpy", 1, 1, "fuzz", "default", autocommit=True))


def filled(rng: random.Random, kind: Any, depth: int = 0) -> Any:
    """Return a message with some of its fields."""
    message = kind()
    for field in kind.DESCRIPTOR.fields:
        if rng.random() < 0.3 + 0.15 * depth:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            entry = getattr(message, field.name)[rng.choice(_TEXTS)]
            entry.CopyFrom(filled(rng, type(entry), depth + 1))
        elif field.is_repeated:
            values = [_value(rng, field, depth) for _ in range(rng.randrange(4))]
            getattr(message, field.name).extend(values)
        elif field.message_type is not None:
            getattr(message, field.name).CopyFrom(_value(rng, field, depth))
        else:
            setattr(message, field.name, _value(rng, field, depth))
    return message


def _value(rng: random.Random, field: FieldDescriptor, depth: int) -> Any:
    if field.message_type is not None:
        nested = getattr(pb, field.message_type.name)
        return nested() if depth > 4 else filled(rng, nested, depth + 1)
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        if field.type != FieldDescriptor.TYPE_BYTES:
            return rng.choice(_TEXTS)
        if field.name == "frames":
            return rng.choice((_HELLO, random_frame(rng, TO_SERVER, 0.2), b""))
        return rng.choice((*arrow_streams(), b"", b"\xff"))
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return rng.random() < 0.5
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        kinds: Any = field.enum_type
        return rng.choice([each.number for each in kinds.values])
    if field.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return rng.choice((0.0, 1.5, -1.0, float("nan"), float("inf")))
    return rng.choice((0, 1, 2, 7, 100, 2**31 - 1))


class _Target:
    """One server and its channel."""

    def __init__(self, server: Server, channel: Any, *, is_locked: bool) -> None:
        self.server = server
        self.is_locked = is_locked
        self._channel = channel
        self.counts: Counter[str] = Counter()

    async def call(self, rng: random.Random) -> None:
        """Do one call; FindingError."""
        name, kind = rng.choice(list(_REQUESTS.items()))
        count = rng.randrange(1, 6) if name in ("Session", "Ingest", "Login") else 1
        sent = [filled(rng, kind).SerializeToString() for _ in range(count)]
        if name == "Session" and rng.random() < 0.7:
            sent.insert(0, pb.SessionRequest(open=pb.Open(autocommit=True)).SerializeToString())
        if rng.random() < 0.3:
            place = rng.randrange(len(sent))
            sent[place] = changed(rng, sent[place]) or rng.randbytes(rng.randrange(1, 40))
        metadata, is_cancelled = rng.choice(_METADATA), rng.random() < 0.05
        method = self._channel.stream_stream(f"/{SERVICE}/{name}")
        call = method(_each(sent), timeout=_DEADLINE_S, metadata=metadata)
        replies = 0
        try:
            async for reply in call:
                replies += 1
                if is_cancelled or replies > 200:
                    call.cancel()
                if self.is_locked and name not in ("Session", "Login"):
                    raise FindingError(f"{name}: an answer without a login: {reply[:200]!r}")
            code = await call.code()
        except grpc.RpcError as error:
            code = error.code()
        except asyncio.CancelledError:
            code = grpc.StatusCode.CANCELLED
        details = await call.details()
        if code in _MEANINGLESS and details != _CLIENTS_OWN:
            raise FindingError(f"{name} ended with {code}: {details}")
        self.counts[code.name] += 1

    def check(self) -> None:
        """Raise FindingError when a client was let in that may not."""
        if self.is_locked and self.server._hub.metrics.connections_accepted:
            raise FindingError("a client is in that has not logged in")


async def _each(sent: list[bytes]) -> Any:
    for each in sent:
        yield each


async def _open(engine: Engine, *, is_locked: bool) -> _Target:
    session = engine.session(autocommit=True)
    for name in ("t", "u"):
        session.execute(f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, v TEXT)").close()
    if is_locked:
        session.execute("CREATE USER ada PASSWORD 'correct horse'").close()
    session.close()
    config = ServerConfig(login_failure_delay_s=0, workers=4)
    server = Server(engine.database, name="fuzz", config=config)
    port = await server.start_grpc("127.0.0.1", 0)
    options = (("grpc.use_local_subchannel_pool", 1),)
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options)
    return _Target(server, channel, is_locked=is_locked)


async def run(seed: int, count: int) -> str:
    """Do so many calls; FindingError, or whatever was raised. Return what was seen."""
    watched, rng = Watched(), random.Random(seed)
    engines = [Engine(is_threaded=True) for _ in range(2)]
    targets = [await _open(engines[0], is_locked=False), await _open(engines[1], is_locked=True)]
    try:
        for number in range(0, count, _AT_ONCE):
            seeds = [rng.getrandbits(64) for _ in range(_AT_ONCE)]
            async with asyncio.TaskGroup() as group:
                for each in seeds:
                    group.create_task(targets[each % 2].call(random.Random(each)))
            for target in targets:
                target.check()
            watched.check()
            if number <= count // 5:
                watched.settle()
        growth = watched.growth()
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    finally:
        for target, engine in zip(targets, engines, strict=True):
            await target._channel.close()
            await target.server.close()
            engine.database.close()
    shown = ", ".join(f"{name} {number}" for name, number in sorted(targets[0].counts.items()))
    return f"{count} calls ({shown}), {growth}"


def main() -> int:
    return command(__doc__, "calls", run, runs=100_000, runs_per_item=_RUNS_PER_CALL, items_min=200)


if __name__ == "__main__":
    sys.exit(main())
