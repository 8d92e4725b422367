"""What a program sees of answers that come together with the end of their connection."""

from collections.abc import Sequence
from typing import Any

import pytest

import herdpy
from bookie.runtime.frames import FrameSplitter
from herdpy.driver.dsn import RemoteTarget
from herdpy.driver.remote.locators import Directory, SharedLocators
from herdpy.driver.remote.session import ThreadWaits
from herdpy.errors import Error, LogFailedError, OperationalError, Retry
from herdpy.proto.driver_machine import frames
from herdpy.proto.errors import to_failed
from herdpy.proto.messages import (
    VERSION,
    Done,
    Message,
    Ping,
    Pong,
    Resolved,
    Welcome,
    decode_to_server,
)

WELCOME = Welcome(VERSION, "test", 1, 1024 * 1024, "session")
ENDED = OperationalError("the server is shutting down", sqlstate="57P01", retry=Retry.SAFE)
UNKNOWN = LogFailedError("the log failed")
STOPPED = LogFailedError("stopped", sqlstate="58030", retry=Retry.NEVER)


def failed(request: int, error: Error) -> Message:
    return to_failed(request, error, in_transaction=False)


SILENCE: list[Message] = []
"""A packet: nothing comes, for as long as is waited."""


class ScriptedStream:
    """Gives the driver what a server would send, a packet for each receive()."""

    def __init__(self, packets: Sequence[Sequence[Message]]) -> None:
        self._packets = [frames(list(packet)) for packet in packets]
        self.sent: list[Any] = []
        self._timeout_s: float | None = None

    def set_timeout(self, timeout_s: float | None) -> None:
        self._timeout_s = timeout_s

    def send(self, data: bytes) -> None:
        self.sent += [decode_to_server(each) for each in FrameSplitter(2**20).feed(data)]

    def receive(self) -> bytes:
        packet = self._packets.pop(0) if self._packets else None
        if packet == b"":
            assert self._timeout_s is not None, "it would wait for ever"
            raise TimeoutError("timed out")
        return packet or b""

    def close(self) -> None:
        pass

    end = abandon = close


class ScriptedWaits(ThreadWaits):
    """Each connection gets the next stream."""

    def __init__(self, *connections: Sequence[Sequence[Message]]) -> None:
        self.connections = list(connections)
        self.hosts: list[str] = []
        self.streams: list[ScriptedStream] = []
        self._locators = SharedLocators(_no_directory)

    @property
    def locators(self) -> SharedLocators:
        return self._locators

    def open_stream(self, target: RemoteTarget) -> Any:
        self.hosts.append(target.host)
        self.streams.append(ScriptedStream(self.connections.pop(0)))
        return self.streams[-1]


def _no_directory(hosts: str) -> Directory:
    raise AssertionError(f"nodes are named, and {hosts} was asked for")


@pytest.mark.parametrize("url", ["herd://a/t?tls=off", "herd://a,b/t?tls=off"])
def test_an_unknown_outcome_is_asked_about_though_the_server_ends_at_once(url: str) -> None:
    """The end says that nothing runs, for it was answered: by what does not tell the outcome."""
    waits = ScriptedWaits(
        [[WELCOME], [failed(1, UNKNOWN), failed(0, ENDED)]],
        [[WELCOME], [Resolved(1, "committed")], [Done(2, False, 1)]],
    )
    with herdpy.connect(url, autocommit=True, waits=waits) as conn:
        assert conn.execute("INSERT INTO t VALUES (1)").rowcount == -1
        assert conn.execute("INSERT INTO t VALUES (2)").rowcount == 1


def test_an_unknown_outcome_of_a_leader_is_told_by_the_next() -> None:
    waits = ScriptedWaits(
        [[WELCOME], [failed(1, UNKNOWN)]],
        [[WELCOME], [failed(1, STOPPED)]],
        [[WELCOME], [Resolved(1, "refused")], [Done(2, False, 1)]],
    )
    with herdpy.connect("herd://a,b,c/t?tls=off", autocommit=True, waits=waits) as conn:
        assert conn.execute("INSERT INTO t VALUES (1)").rowcount == 1
    assert waits.hosts == ["a", "b", "c"]


def test_a_node_that_gives_no_sign_is_left_and_the_next_one_tells_the_outcome() -> None:
    waits = ScriptedWaits(
        [[WELCOME], SILENCE, SILENCE],
        [[WELCOME], [Resolved(1, "refused")], [Done(2, False, 1)]],
    )
    with herdpy.connect("herd://a,b/t?tls=off", autocommit=True, waits=waits) as conn:
        assert conn.execute("INSERT INTO t VALUES (1)").rowcount == 1
    assert waits.hosts == ["a", "b"]
    assert Ping(2) in waits.streams[0].sent


def test_a_node_that_gives_a_sign_is_waited_for() -> None:
    waits = ScriptedWaits(
        [[WELCOME], SILENCE, [Pong(2)], SILENCE, [Pong(3)], [Done(1, False, 1)]],
    )
    with herdpy.connect("herd://a,b/t?tls=off", autocommit=True, waits=waits) as conn:
        assert conn.execute("INSERT INTO t VALUES (1)").rowcount == 1
    assert waits.hosts == ["a"]


def test_an_unknown_outcome_of_one_server_is_the_programs() -> None:
    waits = ScriptedWaits([[WELCOME], [failed(1, UNKNOWN)], [Done(2, False, 1)]])
    with herdpy.connect("herd://a/t?tls=off", autocommit=True, waits=waits) as conn:
        with pytest.raises(LogFailedError):
            conn.execute("INSERT INTO t VALUES (1)")
        assert conn.execute("INSERT INTO t VALUES (2)").rowcount == 1


@pytest.mark.parametrize("is_inside", [False, True])
def test_what_a_stopped_log_refuses_has_not_run(is_inside: bool) -> None:
    begin = [[Done(1, True, 0)]] if is_inside else []
    number = 2 if is_inside else 1
    waits = ScriptedWaits(
        [[WELCOME], *begin, [failed(number, STOPPED)]],
        [[WELCOME], [Resolved(1, "refused"), Done(2, False, 1)] if is_inside else [Done(1, False)]],
    )
    url = "herd://a,b/t?tls=off"
    with herdpy.connect(url, autocommit=True, waits=waits) as conn:
        if is_inside:
            conn.execute("BEGIN")
            with pytest.raises(OperationalError) as caught:
                conn.execute("INSERT INTO t VALUES (1)")
            assert (caught.value.sqlstate, caught.value.retry) == ("40001", Retry.SAFE)
            conn.rollback()
        else:
            conn.execute("INSERT INTO t VALUES (1)")
            assert waits.hosts == ["a", "b"]


def test_a_first_statement_that_a_node_refuses_runs_at_the_next() -> None:
    """Also where the refusal says that its transaction is open there: it was just begun."""
    refused = OperationalError("this node follows", sqlstate="25006", retry=Retry.SAFE)
    waits = ScriptedWaits(
        [[WELCOME], [to_failed(1, refused, in_transaction=True)]],
        [[WELCOME], [Resolved(1, "refused")], [Done(2, True, 1)], [Done(3, False)]],
    )
    with herdpy.connect("herd://a,b/t?tls=off", waits=waits) as conn:
        assert conn.execute("SELECT 1 FROM t").rowcount == 1
        conn.commit()
    assert waits.hosts == ["a", "b"]


def test_an_end_by_an_administrator_is_told() -> None:
    killed = OperationalError("KILL", sqlstate="57P01", retry=Retry.NEVER)
    waits = ScriptedWaits([[WELCOME], [failed(0, killed)]], [[WELCOME], [Resolved(1, "refused")]])
    with (
        herdpy.connect("herd://a,b/t?tls=off", autocommit=True, waits=waits) as conn,
        pytest.raises(OperationalError, match="KILL"),
    ):
        conn.execute("INSERT INTO t VALUES (1)")
