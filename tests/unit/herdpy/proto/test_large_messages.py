"""Large answers: received into memory of their own, decoded without a copy, and aligned."""

import ctypes
from random import Random

import pyarrow as pa
import pytest

from herdpy.exec.vector.arrow_stream import LEAD_BYTES, next_stream
from herdpy.proto.driver_machine import DriverMachine
from herdpy.proto.messages import (
    ARROW_HEAD_BYTES,
    FRAME_BYTES_MAX,
    VERSION,
    Arrow,
    Welcome,
    arrow_frame,
    decode_to_driver,
    encode_frame,
)

WELCOME = Welcome(VERSION, "server", 1, FRAME_BYTES_MAX)
TABLE = pa.table({"n": list(range(60_000)), "t": [f"text {n}" for n in range(60_000)]})


def room_of(machine: DriverMachine) -> memoryview | None:
    return None if machine.large is None else machine.large.room


def arrow_answer(request: int) -> bytes:
    data, is_last = next_stream(TABLE.schema, TABLE.to_reader(), FRAME_BYTES_MAX)
    return bytes(arrow_frame(request, data, LEAD_BYTES, is_last=is_last))


def test_an_arrow_frame_is_its_message() -> None:
    data, is_last = next_stream(TABLE.schema, TABLE.slice(0, 100).to_reader(max_chunksize=40), 1)
    assert not is_last
    frame = bytes(arrow_frame(2**40, data, LEAD_BYTES, is_last=is_last))
    message = decode_to_driver(frame[4:])
    assert isinstance(message, Arrow)
    assert (message.request, message.is_last) == (2**40, False)
    assert frame[ARROW_HEAD_BYTES:] == message.data
    assert pa.ipc.open_stream(pa.py_buffer(message.data)).read_all().equals(TABLE.slice(0, 40))


@pytest.mark.parametrize("uses_room", [False, True])
def test_however_it_is_chopped_up(uses_room: bool) -> None:
    random = Random(5)
    for _ in range(5):
        machine = DriverMachine()
        requests = [machine.new_request() for _ in range(4)]
        stream = b"".join([encode_frame(WELCOME), *map(arrow_answer, requests)])
        at = 0
        while at < len(stream):
            room = room_of(machine) if uses_room else None
            count = random.choice([1, 3, 100, 70_000, 300_000])
            piece = stream[at : at + count]
            if room is not None:
                piece = piece[: len(room)]
                room[: len(piece)] = piece
                assert machine.receive(room[: len(piece)]) == []
            else:
                assert machine.receive(piece) == []
            at += len(piece)
        assert machine.failure is None
        assert room_of(machine) is None
        for request in requests:
            answer = machine.take(request)
            assert pa.ipc.open_stream(pa.py_buffer(answer.data)).read_all().equals(TABLE)


def test_its_stream_is_aligned() -> None:
    machine = DriverMachine()
    machine.receive(encode_frame(WELCOME))
    answer = arrow_answer(machine.new_request())
    machine.receive(answer[:100_000])
    room = room_of(machine)
    assert room is not None
    assert len(room) == len(answer) - 100_000
    room[:] = answer[100_000:]
    machine.receive(room)
    data = machine.take(1).data
    memory = data.obj
    offset = ctypes.addressof(ctypes.c_char.from_buffer(data)) - ctypes.addressof(
        ctypes.c_char.from_buffer(memory)
    )
    assert offset == 64
    assert pa.py_buffer(data).address % 8 == 0
