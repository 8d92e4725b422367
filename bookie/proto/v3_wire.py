"""What requests and responses of protocol v3 share: protobuf parsing that is strict, and frames.

The protobuf runtime does not insist on required fields when it reads; this does. Source:
docs/formats/wire_v3.md.
"""

from typing import TypeVar

from google.protobuf.message import DecodeError

from bookie.errors import IncorrectParameterError, MalformedFrameError
from bookie.ledger.types import Status
from bookie.proto import wire_v3_pb2 as wire
from bookie.proto.v3_messages import MASTER_KEY_BYTES, BytesLike

_Message = TypeVar("_Message", wire.Request, wire.Response)

_STATUSES: dict[int, Status] = {int(s): s for s in Status if s >= 0}
_ONE_BYTE = tuple(bytes((number,)) for number in range(128))


def parse(kind: type[_Message], frame: BytesLike) -> _Message:
    """Read a frame as a message of this kind; MalformedFrameError."""
    try:
        message = kind.FromString(frame)  # pyright: ignore[reportArgumentType]  any buffer will do
    except DecodeError as error:
        raise MalformedFrameError(
            f"no protobuf message of v3 in a frame of {len(frame)} bytes: {error}"
        ) from None
    if not message.IsInitialized():
        raise MalformedFrameError(
            f"a v3 {kind.__name__} of {len(frame)} bytes lacks a required field"
        )
    return message


def frame_of(message: wire.Request | wire.Response) -> bytes:
    payload = message.SerializeToString()
    return len(payload).to_bytes(4, "big") + payload


def status_of(number: int) -> Status:
    """Take a number from the wire; one of a newer protocol counts as IO_ERROR."""
    return _STATUSES.get(number, Status.IO_ERROR)


def checked_key(master_key: bytes) -> bytes:
    if len(master_key) != MASTER_KEY_BYTES:
        raise IncorrectParameterError(
            f"master key: expected {MASTER_KEY_BYTES} bytes, found {len(master_key)}"
        )
    return master_key


def varint(number: int) -> bytes:
    """Encode an int64 (or uint64) as protobuf does; numbers beyond are IncorrectParameterError."""
    if 0 <= number < 0x80:
        return _ONE_BYTE[number]
    if 0 <= number < 0x4000:
        return bytes((number & 0x7F | 0x80, number >> 7))
    if 0 <= number < 0x20_0000:
        return bytes((number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, number >> 14))
    if not -(1 << 63) <= number < 1 << 64:
        raise IncorrectParameterError(f"expected an int64 or uint64, found {number}")
    number &= (1 << 64) - 1
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def varint_value(encoded: bytes) -> int:
    """Return the number of a whole varint of at most nine bytes."""
    byte_count = len(encoded)
    if byte_count == 1:
        return encoded[0]
    if byte_count == 2:
        return encoded[0] + (encoded[1] << 7) - 0x80
    if byte_count == 3:
        return encoded[0] + (encoded[1] << 7) + (encoded[2] << 14) - 0x4080
    number = shift = 0
    for byte in encoded:
        number |= (byte & 0x7F) << shift
        shift += 7
    return number
