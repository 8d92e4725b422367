"""Both machines: states, order, limits, and what they do with nonsense."""

import tracemalloc
from pathlib import Path
from random import Random
from typing import Any

import pytest

from herdpy import errors
from herdpy.errors import Error, OperationalError, ProtocolError, Retry
from herdpy.model.lsn import Lsn
from herdpy.model.types import Kind
from herdpy.proto.driver_machine import DriverMachine
from herdpy.proto.errors import from_failed, to_failed
from herdpy.proto.messages import (
    FRAME_BYTES_MAX,
    HELLO_BYTES_MAX,
    KEPT_CHARACTERS_MAX,
    KEPT_MAX,
    MAGIC,
    VERSION,
    Cancel,
    CloseResult,
    Commit,
    Done,
    Execute,
    ExecuteKept,
    Failed,
    Hello,
    Leased,
    Ping,
    Pong,
    Rollback,
    Welcome,
    decode_to_driver,
    encode_frame,
    raw,
)
from herdpy.proto.server_machine import (
    WAITING_MAX,
    Action,
    Close,
    Run,
    Send,
    ServerMachine,
    Skip,
    Start,
    State,
    Stop,
)
from herdpy.proto.values import ROWS_MAX, RowsEncoder, encode_rows, rows_decoder

HELLO = Hello(MAGIC, VERSION, VERSION, "test", "default", autocommit=True)
WELCOME = Welcome(VERSION, "server", 1, FRAME_BYTES_MAX)

_NIL = raw(b"\xc0")


def ready() -> ServerMachine:
    machine = ServerMachine()
    assert machine.receive(encode_frame(HELLO)) == [Start(HELLO)]
    machine.welcome(WELCOME)
    return machine


def failure(actions: list[Action]) -> Failed:
    """Return the Failed that the actions send before they close."""
    assert isinstance(actions[-1], Close)
    send = actions[0]
    assert isinstance(send, Send)
    failed = send.message
    assert isinstance(failed, Failed)
    assert failed.request == 0
    return failed


class TestServer:
    def test_nothing_runs_before_the_welcome(self) -> None:
        machine = ServerMachine()
        actions = machine.receive(encode_frame(Execute(1, "SELECT 1", None)))
        assert failure(actions).sqlstate == "08P01"
        assert machine.state is State.CLOSED
        machine = ServerMachine()
        actions = machine.receive(encode_frame(HELLO) + encode_frame(Commit(1)))
        assert actions[0] == Start(HELLO)
        assert failure(actions[1:]).sqlstate == "08P01"
        assert machine.welcome(WELCOME) == []

    @pytest.mark.parametrize("number", [0, -1, -(2**63)])
    def test_requests_have_positive_numbers(self, number: int) -> None:
        found = failure(ready().receive(encode_frame(Execute(number, "SELECT 1", None))))
        assert (found.sqlstate, f"{number}: expected 1 or more" in found.message) == ("08P01", True)

    @pytest.mark.parametrize(("low", "high"), [(VERSION + 1, 99), (0, VERSION - 1)])
    def test_another_version_is_refused_by_name(self, low: int, high: int) -> None:
        hello = Hello(MAGIC, low, high, "t", "default", autocommit=True)
        failed = failure(ServerMachine().receive(encode_frame(hello)))
        assert failed.sqlstate == "08004"
        assert f"{low} to {high}" in failed.message

    def test_one_request_at_a_time_in_order(self) -> None:
        machine = ready()
        first, second, third = Execute(1, "a", _NIL), Commit(2), Rollback(3)
        data = b"".join(map(encode_frame, (first, second, third)))
        found = [action for byte in data for action in machine.receive(bytes([byte]))]
        assert found == [Run(first)]
        assert not machine.is_idle
        assert machine.on_reply() == [Run(second)]
        assert machine.on_reply() == [Run(third)]
        assert machine.on_reply() == []
        assert machine.is_idle

    def test_ping_and_cancel_pass(self) -> None:
        machine = ready()
        machine.receive(encode_frame(Execute(1, "a", None)) + encode_frame(Execute(2, "b", None)))
        assert machine.receive(encode_frame(Ping(9))) == [Send(Pong(9))]
        assert machine.receive(encode_frame(Cancel(7))) == []
        assert machine.receive(encode_frame(Cancel(1))) == [Stop()]
        assert machine.receive(encode_frame(Cancel(2))) == []
        assert machine.on_reply() == [Skip(Execute(2, "b", _NIL))]
        assert machine.on_reply() == []

    def test_it_is_full_before_it_holds_too_much(self) -> None:
        machine = ready()
        for number in range(WAITING_MAX):
            assert not machine.is_full
            machine.receive(encode_frame(Commit(number + 1)))
        machine.receive(encode_frame(Commit(WAITING_MAX + 1)))
        assert machine.is_full
        machine.on_reply()
        assert not machine.is_full

    def test_strangers_get_little_memory(self) -> None:
        machine = ServerMachine()
        actions = machine.receive((HELLO_BYTES_MAX * 2).to_bytes(4, "big"))
        assert failure(actions).sqlstate == "08P01"
        assert machine.buffered_byte_count == 0

    def test_what_waits_keeps_nothing_of_what_came_with_it(self) -> None:
        """A little request in the middle of many answers' worth of pings kept all their bytes."""
        machine = ready()
        machine.receive(encode_frame(Commit(1)))
        beside = encode_frame(Cancel(7)) * 10_000
        tracemalloc.start()
        try:
            for number in range(2, 12):
                request = Execute(number, "a", ["b" * 100])
                assert machine.receive(beside + encode_frame(request)) == []
            found, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert found < len(beside)
        assert machine.on_reply() == [Run(Execute(2, "a", raw(b"\x91\xd9\x64" + b"b" * 100)))]

    def test_closing_cancels_what_runs_and_drops_what_waits(self) -> None:
        machine = ready()
        machine.receive(encode_frame(Execute(1, "a", None)) + encode_frame(Commit(2)))
        assert machine.close("over") == [Stop(), Close("over")]
        assert machine.on_reply() == []
        assert machine.receive(encode_frame(Commit(3))) == []

    def test_the_number_0_is_the_connection_s(self) -> None:
        for message in (Commit(0), Ping(0), Cancel(0)):
            machine = ready()
            assert failure(machine.receive(encode_frame(message))).sqlstate == "08P01"

    def test_an_end_while_something_runs_leaves_its_outcome_open(self) -> None:
        gone = OperationalError("going down", sqlstate="57P01", retry=Retry.SAFE)
        machine = ready()
        failed = machine.refuse(gone)[0].message  # type: ignore[union-attr]
        assert isinstance(failed, Failed)
        assert failed.retry == Retry.SAFE.value
        machine = ready()
        machine.receive(encode_frame(Commit(1)))
        failed = machine.refuse(gone)[0].message  # type: ignore[union-attr]
        assert isinstance(failed, Failed)
        assert (failed.sqlstate, failed.retry) == ("57P01", Retry.UNKNOWN.value)

    def test_a_kept_statement_runs_by_its_number(self) -> None:
        machine = ready()
        first = Execute(1, "a", _NIL, keep=3)
        assert machine.receive(encode_frame(first)) == [Run(first)]
        machine.receive(encode_frame(ExecuteKept(2, 3, [5], 8, 7)))
        machine.receive(encode_frame(Execute(3, "b", None, keep=3)))
        machine.receive(encode_frame(ExecuteKept(4, 3, None)))
        assert machine.on_reply() == [Run(Execute(2, "a", raw(b"\x91\x05"), 8, 7))]
        assert machine.on_reply() == [Run(Execute(3, "b", _NIL, keep=3))]
        assert machine.on_reply() == [Run(Execute(4, "b", _NIL))]
        assert failure(machine.receive(encode_frame(ExecuteKept(5, 4, None)))).sqlstate == "08P01"

    @pytest.mark.parametrize(
        "message",
        [
            Execute(1, "a", None, keep=-1),
            Execute(1, "a", None, keep=KEPT_MAX + 1),
            Execute(1, "a" * (KEPT_CHARACTERS_MAX + 1), None, keep=1),
        ],
    )
    def test_what_cannot_be_kept(self, message: Execute) -> None:
        assert failure(ready().receive(encode_frame(message))).sqlstate == "08P01"

    def test_random_bytes(self, seed: int) -> None:
        random = Random(seed)
        for _ in range(2000):
            machine = ready() if random.random() < 0.7 else ServerMachine()
            body = random.randbytes(random.randrange(60))
            if random.random() < 0.5:
                body = mutated(random, encode_frame(Execute(1, "SELECT ?", [1, "x"]))[4:])
            actions = machine.receive(len(body).to_bytes(4, "big") + body)
            closes = [action for action in actions if isinstance(action, Close)]
            assert closes or machine.state is not State.CLOSED


def mutated(random: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(random.randrange(1, 4)):
        changed[random.randrange(len(changed))] = random.randrange(256)
    return bytes(changed)


class TestDriver:
    def test_answers_by_their_requests(self) -> None:
        machine = DriverMachine()
        machine.receive(encode_frame(WELCOME))
        assert machine.welcome == WELCOME
        first, second = machine.new_request(), machine.new_request()
        answers = encode_frame(Done(first, True)) + encode_frame(Done(second, False))
        assert machine.take(first) is None
        for byte in answers:
            machine.receive(bytes([byte]))
        assert machine.take(second) == Done(second, False)
        assert machine.take(first) == Done(first, True)
        assert machine.take(first) is None
        assert not machine.in_transaction

    def test_what_nobody_waits_for_is_given_up(self) -> None:
        machine = DriverMachine()
        early, late = machine.new_request(), machine.new_request()
        machine.receive(encode_frame(Done(early, False, result=5)))
        assert machine.abandon(early) == [CloseResult(5)]
        assert machine.abandon(late) == []
        assert machine.receive(encode_frame(Done(late, False, result=6))) == [CloseResult(6)]
        assert machine.take(late) is None

    @pytest.mark.parametrize(
        "message", [Done(5, False), WELCOME, Failed(9, False, "E", "", "", "", None, None)]
    )
    def test_answers_to_nothing_end_the_connection(self, message: Any) -> None:
        machine = DriverMachine()
        machine.receive(encode_frame(WELCOME))
        machine.receive(encode_frame(message))
        assert isinstance(machine.failure, ProtocolError)

    def test_an_error_of_the_connection(self) -> None:
        machine = DriverMachine()
        gone = OperationalError("going down", sqlstate="57P01", retry=Retry.SAFE)
        machine.receive(encode_frame(to_failed(0, gone, in_transaction=False)))
        assert machine.failure is not None
        assert machine.failure.sqlstate == "57P01"

    def test_random_bytes(self, seed: int) -> None:
        random = Random(seed)
        for _ in range(2000):
            machine = DriverMachine()
            request = machine.new_request()
            good = encode_frame(Done(request, False, columns=(("a", 3, None, None, None),)))[4:]
            body = mutated(random, good) if random.random() < 0.7 else random.randbytes(40)
            machine.receive(len(body).to_bytes(4, "big") + body)


def all_errors() -> list[type[Error]]:
    return [
        item for item in vars(errors).values() if isinstance(item, type) and issubclass(item, Error)
    ]


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
def test_errors_arrive_as_they_were(kind: type[Error]) -> None:
    error = kind("what", sqlstate="12345", retry=Retry.UNKNOWN, hint="do", position=7)
    found = from_failed(to_failed(1, error, in_transaction=True))
    assert type(found) is kind
    assert vars(found) == vars(error)


def test_an_error_of_a_private_class_arrives_as_its_base() -> None:
    class PrivateError(OperationalError):
        pass

    assert (
        type(from_failed(to_failed(1, PrivateError("x"), in_transaction=False))) is OperationalError
    )


def test_the_bytes_by_hand() -> None:
    """docs/protocols/frames.md shows these."""
    page = (Path(__file__).parents[4] / "docs/protocols/frames.md").read_text()
    request, answer = page.split("```text\n")[1].split("```")[0].splitlines()
    assert encode_frame(Execute(7, "SELECT 1", None)) == bytes.fromhex(request)
    columns = (("?column?", Kind.INTEGER.value, None, None, None),)
    encoder = RowsEncoder(1000, 1000)
    assert encoder.take(iter([(1,)]))
    done = Done(7, False, columns=columns, rows=raw(encoder.finish()), lsn=Lsn(-1, 5, 0))
    assert encode_frame(done) == bytes.fromhex(answer)


class TestHostileServers:
    """What a server can make a driver hold."""

    @pytest.mark.parametrize("number", [70, 76, 92, 94])
    def test_answers_that_become_objects_are_bounded(self, number: int) -> None:
        count = 17 * 1024 * 1024
        body = bytes((0x93, number, 1, 0xDD)) + count.to_bytes(4, "big") + b"\x90" * count
        with pytest.raises(ProtocolError, match="at most"):
            decode_to_driver(body)

    @pytest.mark.parametrize("position", ["", "1", "1.2", "1.2.3.4", "1.x.3", "Infinity"])
    def test_a_position_that_is_none(self, position: str) -> None:
        machine = DriverMachine()
        machine.new_request()
        machine.receive(encode_frame(Leased(1, "a", position, 60.0)))
        assert isinstance(machine.failure, ProtocolError)
        assert "expected a position" in str(machine.failure)

    def test_more_rows_than_anybody_asks_for(self) -> None:
        decode = rows_decoder((Kind.BIGINT,))
        assert len(decode(encode_rows([(1,)] * ROWS_MAX))) == ROWS_MAX
        with pytest.raises(ValueError, match="length"):
            decode(encode_rows([(1,)] * (ROWS_MAX + 1)))
