"""A user that takes what it gets: `python -m tests.benchmarks.neighbours_client ABUSE JSON`.

Runs one abuse of ABUSES on as many connections as it is told, from its first line until its
standard input ends. What the server refuses is tried again at once.
"""

import base64
import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import herdpy

PASSWORD = "a long password"
_PAUSE_S = 0.002
"""Behind a refusal: a client that does nothing else would measure itself."""


class Target(NamedTuple):
    """Where the server is, and who comes how often."""

    url: str
    grpc_port: int
    http_port: int
    user: str
    connections: int

    def connect(self, password: str = PASSWORD) -> herdpy.Connection:
        at = self.url.replace("://", f"://{self.user}@")
        return herdpy.connect(f"{at}/?retry_timeout_s=0", password=password, autocommit=True)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


def nested(depth: int = 20) -> str:
    """S1: each level binds its operand several times."""
    expression = "x"
    for _ in range(depth):
        expression = f"CASE WHEN {expression} BETWEEN SYMMETRIC 1 AND 9 THEN 1 ELSE 2 END"
    return f"SELECT {expression} FROM (VALUES (1)) AS t(x)"


def macros(depth: int = 12) -> str:
    """S2: each level is ten of the one below it."""
    expression = "x"
    for _ in range(depth):
        expression = f"power({expression}, 1.0)"
    return f"SELECT {expression} FROM (VALUES (2.0::double precision)) AS t(x)"


def tags(count: int = 6_000) -> str:
    """S3: dollar quotes that do not end."""
    return "SELECT " + " ".join(f"$t{number}$" for number in range(count))


def long_list(count: int = 400_000) -> str:
    return f"SELECT count(*) FROM u WHERE id IN ({','.join('1' * count)})"


CROSS = "SELECT count(*) FROM u AS a, u AS b, u AS c WHERE a.v + b.v + c.v = -1"
GROUPS = "SELECT v % 1000, count(*), sum(v), min(id) FROM big GROUP BY 1 ORDER BY 2, 1"
DISTINCT = "SELECT count(*) FROM (SELECT DISTINCT a.v * b.v AS p, a.id FROM big AS a, few AS b) x"
WINDOW = "SELECT id, sum(v) OVER (ORDER BY id) FROM big"


def repeated(text: str, parameters: Any = None) -> Callable[[Target], None]:
    """Return an abuse: one statement, again and again."""

    def run(target: Target) -> None:
        connection = target.connect()
        while True:
            with suppress(herdpy.Error):
                connection.execute(text, parameters).fetchall()
                continue
            time.sleep(_PAUSE_S)

    return run


def waits(target: Target) -> None:
    """S4: many wait for one row."""
    connection = target.connect()
    while True:
        with suppress(herdpy.Error):
            connection.execute("BEGIN")
            connection.execute("UPDATE u SET v = v + 1 WHERE id = 1")
            time.sleep(0.5)
            connection.execute("ROLLBACK")
            continue
        with suppress(herdpy.Error):
            connection.execute("ROLLBACK")


def unread(target: Target) -> None:
    """S6: results of which nothing is read."""
    connection = target.connect()
    kept: list[Any] = []
    while True:
        try:
            cursor = connection.cursor()
            cursor.execute(WINDOW)
            kept.append(cursor)
        except herdpy.Error:
            time.sleep(_PAUSE_S)


def leases(target: Target) -> None:
    """S11: snapshots that are kept."""
    connection = target.connect()
    while True:
        with suppress(herdpy.Error):
            connection.lease(3_600)
            continue
        time.sleep(_PAUSE_S)


def inserts(target: Target) -> None:
    connection = target.connect()
    number = threading.get_ident() << 20
    while True:
        rows = [(number + n, n) for n in range(500)]
        number += len(rows)
        with suppress(herdpy.Error):
            connection.executemany("INSERT INTO sink VALUES (?, ?)", rows)


def idle(target: Target) -> None:
    """S9, S13: connections on every port that say nothing; those that ended are opened again."""
    ports = [target.port, target.grpc_port, target.http_port]
    held: list[socket.socket] = []
    while True:
        for port in ports:
            with suppress(OSError):
                held.append(socket.create_connection(("127.0.0.1", port)))
        if len(held) > 600:
            held.pop(0).close()
        time.sleep(_PAUSE_S)


def wrong_passwords(target: Target) -> None:
    """Guess from another address: who guesses makes the others of its own wait (ADR 27)."""
    connect = socket.create_connection
    source = ("127.0.0.2", 0)
    socket.create_connection = partial(connect, source_address=source)  # pyright: ignore[reportAttributeAccessIssue]
    while True:
        with suppress(herdpy.Error):
            target.connect("not the password")


def basic(target: Target) -> None:
    """S12: each call of gRPC proves a password."""
    import grpc

    from herdpy.proto import herdpy_pb2 as pb

    proof = base64.b64encode(f"{target.user}:{PASSWORD}".encode()).decode()
    metadata = (("authorization", f"Basic {proof}"),)
    channel = grpc.insecure_channel(f"127.0.0.1:{target.grpc_port}")
    call = channel.unary_unary(
        "/herdpy.v1.Herdpy/Execute",
        request_serializer=pb.ExecuteRequest.SerializeToString,
        response_deserializer=pb.ExecuteReply.FromString,
    )
    while True:
        with suppress(grpc.RpcError):
            call(pb.ExecuteRequest(text="SELECT 1"), metadata=metadata, timeout=30)


ABUSES: dict[str, Callable[[Target], None]] = {
    "nested expressions": repeated(nested()),
    "nested macros": repeated(macros()),
    "quotes without end": repeated(tags()),
    "a list of 400,000": repeated(long_list()),
    "a cross join": repeated(CROSS),
    "groups of 300,000 rows": repeated(GROUPS),
    "many distinct values": repeated(DISTINCT),
    "waits for one row": waits,
    "unread results": unread,
    "leases": leases,
    "inserts": inserts,
    "idle connections": idle,
    "wrong passwords": wrong_passwords,
    "passwords over gRPC": basic,
}


def main(name: str, target: Target) -> None:
    def work() -> None:
        while True:
            with suppress(herdpy.Error):
                ABUSES[name](target)
            time.sleep(_PAUSE_S)

    for _ in range(target.connections):
        threading.Thread(target=work, daemon=True).start()
    print(json.dumps({"begun": name}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], Target(**json.loads(sys.argv[2])))
