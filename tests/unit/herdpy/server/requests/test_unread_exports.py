"""Exports that a client has begun and reads no more: their files are let go."""

import pytest

import herdpy
from bookie.runtime.os_rng import OsRng
from tests.fixtures.servers import RunningServer, running_server


def fill(connection: herdpy.Connection) -> None:
    connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
    rows = [(number, OsRng().randbytes(50_000).hex()) for number in range(40)]
    connection.executemany("INSERT INTO t VALUES (?, ?)", rows)


def kept_segments(server: RunningServer) -> set[int]:
    return server.engine.database.replica._kept_segments()


def test_an_export_that_is_not_read_on_is_ended() -> None:
    with (
        running_server(unread_export_timeout_s=0.1) as server,
        herdpy.connect(server.url, autocommit=True) as connection,
    ):
        fill(connection)
        pieces = connection.live_session().export("backup").pieces()
        next(pieces)
        while kept_segments(server):
            pass
        with pytest.raises(herdpy.OperationalError, match="nothing was read of it") as ended:
            list(pieces)
        assert ended.value.sqlstate == "55000"


def test_an_export_that_is_read_goes_on() -> None:
    with running_server() as server, herdpy.connect(server.url, autocommit=True) as connection:
        fill(connection)
        pieces = connection.live_session().export("backup").pieces()
        next(pieces)
        assert kept_segments(server)
        assert sum(map(len, pieces)) > 1_000_000
