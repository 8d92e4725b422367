"""Statements that wait for what is outside: room in memory, the log, a client that reads nothing.

What they wait for is held until they have ended: a checkpoint, which would make room in memory, the
log's sync, the client. Of a COMMIT that waits for the log only the answer is measured, from the
moment at which the log goes on: nothing ends it before (docs/guides/server.md), whatever was tried.
"""

import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count

import herdpy
from herdpy.config import Config, ServerConfig
from herdpy.proto.messages import MAGIC, VERSION, Execute, Fetch, Hello, encode_frame
from tests.fixtures.engines import Engine
from tests.fixtures.held_disk import HeldDisk
from tests.fixtures.servers import RunningServer
from tests.fuzz.ends.ways import WAYS, Ended
from tests.sim.disk import SimulatedDisk

_AFTER_S_MAX = 0.2  # until a statement that waits is ended
_MEMORY_BYTES = 64 * 1024 * 1024
_ROW = "x" * 100_000
_TIME_OUT_S = 0.1
_ROWS = 3_000
_UNREAD = "SELECT a.id, repeat('x', 1000) FROM t AS a, t AS b"
_FETCHES = 40
_INSERT = "INSERT INTO t VALUES (?, ?)"
_ids = count(1_000_000)


class _Server:
    """Over a disk of which a part can be held; `administrator` asks it what waits."""

    def __init__(self, running: RunningServer, held: HeldDisk) -> None:
        self.running = running
        self.held = held
        self.administrator = herdpy.connect(running.url, autocommit=True)

    def connect(self, *, autocommit: bool) -> herdpy.Connection:
        return herdpy.connect(f"{self.running.url}/?retry_timeout_s=0", autocommit=autocommit)

    def count(self, table: str, condition: str = "TRUE") -> int:
        found = self.administrator.execute(f"SELECT count(*) FROM {table} WHERE {condition}")
        return int(found.fetchall()[0][0])

    def until(self, table: str, condition: str, number: int) -> None:
        while self.count(table, condition) != number:
            time.sleep(0.001)


@contextmanager
def _server(folder: str) -> Iterator[_Server]:
    """Give one whose disk holds the syncs of a folder."""
    disk = SimulatedDisk(1)
    held = HeldDisk(disk, folder)
    config = Config(
        memory_bytes_max=_MEMORY_BYTES, memtable_share=0.05, log_file_bytes_first=64 * 1024
    )
    engine = Engine(disk=disk, config=config, is_threaded=True)
    running = RunningServer(engine, ServerConfig(workers=2))
    try:
        server = _Server(running, held)
        server.administrator.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, s TEXT)")
        yield server
        server.administrator.close()
    finally:
        held.release()
        running.close()
        engine.database.close()


class _Statement:
    """A statement in a thread of its own."""

    def __init__(self, run: Callable[[], object]) -> None:
        self.how = "rows"
        self.ended_s = 0.0
        self._run = run
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        try:
            self._run()
        except herdpy.Error as error:
            self.how = error.sqlstate
        self.ended_s = time.monotonic()

    def join(self) -> None:
        self._thread.join()


def _one(server: _Server, phase: str, way: str, chance: random.Random, *, commits: bool) -> Ended:
    """End a statement, or a COMMIT, that waits for memory."""
    connection = server.connect(autocommit=not commits)
    try:
        if way == "time-out":
            connection.execute(f"SET statement_timeout = '{int(_TIME_OUT_S * 1e3)}ms'")
        row = [next(_ids), _ROW]
        if commits:
            connection.execute(_INSERT, row)
        begun_s = time.monotonic()
        statement = _Statement(
            connection.commit if commits else lambda: connection.execute(_INSERT, row)
        )
        if way == "time-out":
            due_s = begun_s + _TIME_OUT_S
        else:
            server.until("syswaits", "waits_for = 'memory'", 1)
            time.sleep(chance.random() * _AFTER_S_MAX)
            due_s = time.monotonic()
            WAYS[way](server.running.url, connection)
        statement.join()
        server.until("syswaits", "waits_for = 'memory'", 0)  # of a client that has gone, too
        ended_s = statement.ended_s if way != "closed socket" else time.monotonic()
        return Ended(phase, way, max(ended_s - due_s, 0.0) * 1e3, statement.how)
    finally:
        connection.close()


def _for_memory(phase: str, rounds: int, chance: random.Random) -> Iterator[Ended]:
    with _server("/segments/") as server:
        server.held.hold()
        with closing(server.connect(autocommit=True)) as filler:
            filling = _Statement(lambda: [filler.execute(_INSERT, [n, _ROW]) for n in count()])
            server.until("syswaits", "waits_for = 'memory'", 1)
            filler.cancel()
            filling.join()
        for way in (*WAYS, "time-out"):
            for _ in range(rounds):
                yield _one(server, phase, way, chance, commits="COMMIT" in phase)


def _for_the_log(phase: str, rounds: int, chance: random.Random) -> Iterator[Ended]:
    with _server("/log/") as server:
        for way in (*WAYS, "time-out"):
            for _ in range(rounds):
                yield _commit(server, phase, way, chance)


def _commit(server: _Server, phase: str, way: str, chance: random.Random) -> Ended:
    connection, number = server.connect(autocommit=False), next(_ids)
    try:
        if way == "time-out":
            connection.execute(f"SET statement_timeout = '{int(_TIME_OUT_S * 1e3)}ms'")
        connection.execute(_INSERT, [number, "a"])
        server.held.hold()
        statement = _Statement(connection.commit)
        server.held.until_reached()
        server.until("sysstatements", "text = 'COMMIT'", 1)
        if way == "time-out":
            time.sleep(_TIME_OUT_S)
        else:
            WAYS[way](server.running.url, connection)
        time.sleep(chance.random() * _AFTER_S_MAX)
        if server.count("sysstatements", "text = 'COMMIT'") != 1:
            raise AssertionError(f"{way} has ended a COMMIT that waited for the log")
        due_s = time.monotonic()
        server.held.release()
        statement.join()
        server.until("sysstatements", "text = 'COMMIT'", 0)
        took_ms = (time.monotonic() - due_s) * 1e3
        if not server.count("t", f"id = {number}"):
            raise AssertionError(f"{way} has undone a COMMIT that waited for the log")
        # Of a socket that is closed the client hears no answer.
        how = "committed" if statement.how == "rows" else statement.how
        return Ended(phase, way, took_ms, how)
    finally:
        connection.close()


def _for_a_reader(phase: str, rounds: int, chance: random.Random) -> Iterator[Ended]:
    """End results of which a client has asked for rows and takes none.

    Nothing runs, so there is no statement to cancel: the connection is ended, with its result.
    """
    with _server("/segments/") as server:
        rows = [(n, "a") for n in range(_ROWS)]
        server.administrator.executemany(_INSERT, rows)
        for way in ("KILL", "closed socket"):
            for _ in range(rounds):
                yield _unread(server, phase, way, chance)


def _unread(server: _Server, phase: str, way: str, chance: random.Random) -> Ended:
    client = socket.socket()
    try:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.connect(("127.0.0.1", server.running.port))
        client.sendall(
            encode_frame(Hello(MAGIC, VERSION, VERSION, "u", "default", autocommit=True))
        )
        client.recv(65_536)
        requests = [Execute(1, _UNREAD, None)]
        requests += [Fetch(n, 1, 10_000, is_arrow=False) for n in range(2, _FETCHES)]
        client.sendall(b"".join(map(encode_frame, requests)))
        server.until("syslimits", "name = 'response_bytes_max' AND used > 0", 1)
        server.until("sysstatements", f"text = '{_UNREAD.replace(chr(39), 2 * chr(39))}'", 0)
        time.sleep(chance.random() * _AFTER_S_MAX)
        due_s = time.monotonic()
        if way == "KILL":
            query = "SELECT id FROM sysclients WHERE client = 'u'"
            (number,) = server.administrator.execute(query).fetchall()[0]
            server.administrator.execute(f"KILL CONNECTION {number}")
        else:
            client.close()
        server.until("sysclients", "client = 'u'", 0)
        server.until("syslimits", "name = 'results_max' AND used > 0", 0)
        return Ended(phase, way, (time.monotonic() - due_s) * 1e3, "ended")
    finally:
        client.close()


PHASES: dict[str, Callable[[str, int, random.Random], Iterator[Ended]]] = {
    "a write waits for memory": _for_memory,
    "a COMMIT waits for memory": _for_memory,
    "a COMMIT waits for the log": _for_the_log,
    "rows that no one reads": _for_a_reader,
}
