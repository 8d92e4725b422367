"""What one add costs on the wire, without sockets: ours against plain protobuf, per message.

The steps of an entry's way: seal and encode at the client (once for all bookies), cut and parse at
the bookie, encode the answer, parse it at the client. The peer does the same by protobuf alone.
"""

import argparse
from collections.abc import Callable

from bookie.ledger.codec import EntryDigest
from bookie.ledger.types import DigestType, Status
from bookie.proto import v3
from bookie.proto import wire_v3_pb2 as wire
from bookie.runtime.frames import FrameSplitter
from tests.benchmarks.harness import Bench

COUNT = 250
KEY = bytes(20)
SIZES = (100, 1024, 64 * 1024)


def framed(message: wire.Request | wire.Response) -> bytes:
    payload = message.SerializeToString()
    return len(payload).to_bytes(4, "big") + payload


def protobuf_request(entry_id: int, packet: bytes) -> bytes:
    message = wire.Request()
    message.header.version = 3
    message.header.operation = 2
    message.header.txnId = entry_id
    message.addRequest.ledgerId = 7
    message.addRequest.entryId = entry_id
    message.addRequest.masterKey = KEY
    message.addRequest.body = packet
    return framed(message)


def protobuf_parse_request(frame: memoryview) -> v3.AddRequest:
    message = wire.Request.FromString(frame)
    assert message.IsInitialized()
    header, add = message.header, message.addRequest
    assert header.version == 3
    assert header.operation == 2
    return v3.AddRequest(
        header.txnId,
        add.ledgerId,
        add.entryId,
        add.masterKey,
        add.body,
        add.flag == v3.ADD_FLAG_RECOVERY,
        bool(add.writeFlags & v3.WRITE_FLAG_DEFERRED_SYNC),
        header.priority,
    )


def protobuf_response(entry_id: int) -> bytes:
    message = wire.Response()
    message.header.version = 3
    message.header.operation = 2
    message.header.txnId = entry_id
    message.status = 0
    message.addResponse.status = 0
    message.addResponse.ledgerId = 7
    message.addResponse.entryId = entry_id
    return framed(message)


def protobuf_parse_response(frame: memoryview) -> v3.AddResponse:
    message = wire.Response.FromString(frame)
    assert message.IsInitialized()
    header, add = message.header, message.addResponse
    assert header.operation == 2
    status = Status(message.status or add.status)
    return v3.AddResponse(header.txnId, status, add.ledgerId, add.entryId)


def repeated(call: Callable[[int], object]) -> Callable[[], None]:
    def run() -> None:
        for entry_id in range(100_000, 100_000 + COUNT):
            call(entry_id)

    return run


def adds(bench: Bench, size: int) -> None:
    digest = EntryDigest.of(DigestType.CRC32C, b"")
    payload = bytes(size)
    packet = digest.seal(7, 100_000, 99_999, size, payload)
    frame = v3.encode_add_request(100_000, 7, 100_000, KEY, packet)
    body = memoryview(frame)[4:]
    name = f"{size:,} B"
    bench.compare(
        f"seal, {name}",
        repeated(lambda e: digest.seal(7, e, e - 1, e * size, payload)),
        None,
        count=COUNT,
    )
    bench.compare(
        f"open, {name}", repeated(lambda _: digest.open(packet, 7, 100_000)), None, count=COUNT
    )
    bench.compare(
        f"encode add, {name}",
        repeated(lambda e: v3.encode_add_request(e, 7, e, KEY, packet)),
        repeated(lambda e: protobuf_request(e, packet)),
        count=COUNT,
        peer_name="protobuf",
        bar=0.9,
    )
    bench.compare(
        f"parse add, {name}",
        repeated(lambda _: v3.parse_request(body)),
        repeated(lambda _: protobuf_parse_request(body)),
        count=COUNT,
        peer_name="protobuf",
        bar=0.9,
    )


def answers(bench: Bench) -> None:
    response = memoryview(v3.encode_add_response(100_000, Status.OK, 7, 100_000))[4:]
    bench.compare(
        "encode the answer to an add",
        repeated(lambda e: v3.encode_add_response(e, Status.OK, 7, e)),
        repeated(protobuf_response),
        count=COUNT,
        peer_name="protobuf",
        bar=0.9,
    )
    bench.compare(
        "parse the answer to an add",
        repeated(lambda _: v3.parse_response(response)),
        repeated(lambda _: protobuf_parse_response(response)),
        count=COUNT,
        peer_name="protobuf",
        bar=0.9,
    )


def splitting(bench: Bench) -> None:
    """Cut a receive buffer of 256 KiB, as asyncio hands it over."""
    for size in SIZES:
        frame = v3.encode_add_request(1, 7, 1, KEY, bytes(size))
        stream = frame * (1024 * 1024 // len(frame) + 1)
        pieces = [stream[i : i + 256 * 1024] for i in range(0, len(stream), 256 * 1024)]

        def run(pieces: list[bytes] = pieces) -> None:
            splitter = FrameSplitter(5 * 1024 * 1024)
            for piece in pieces:
                splitter.feed(piece)

        count = len(stream) // len(frame)
        bench.compare(f"cut out a frame, {size:,} B", run, None, count=count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=101)
    options = parser.parse_args()
    bench = Bench("wire", options.rounds)
    for size in SIZES:
        adds(bench, size)
    answers(bench)
    splitting(bench)
    print(f"written: {bench.write()}")


if __name__ == "__main__":
    main()
