"""Messages that are large: what one side sends the other one takes."""

import msgspec
import pytest

from herdpy.errors import OperationalError, ProtocolError
from herdpy.proto import messages
from herdpy.proto.messages import ANSWER_BYTES_MAX, FRAME_BYTES_MAX, LENGTH_BYTES

_CELL = b"x" * 1_000_000


def test_answers_of_many_statements_may_be_large() -> None:
    one = messages.raw(msgspec.msgpack.encode(_CELL))
    sent = messages.Answers(1, False, [one] * 40)
    frame = messages.encode_frame(sent)
    assert ANSWER_BYTES_MAX < len(frame) < FRAME_BYTES_MAX
    found = messages.decode_to_driver(frame[LENGTH_BYTES:])
    assert isinstance(found, messages.Answers)
    assert [len(bytes(each)) for each in found.answers] == [len(bytes(one))] * 40


def test_what_a_driver_would_not_take_is_not_sent() -> None:
    parts: list[tuple[bytes | None, bytes | None, int, int]]
    parts = [(_CELL, None, 1, 1) for _ in range(17)]
    with pytest.raises(OperationalError) as caught:
        messages.encode_frame(messages.Partitions(1, parts))
    assert caught.value.sqlstate == "54000"
    body = msgspec.msgpack.encode(messages.Partitions(1, parts))
    with pytest.raises(ProtocolError):
        messages.decode_to_driver(body)
    assert messages.decode_to_driver(messages.encode_frame(messages.Partitions(1, parts[:16]))[4:])
