"""Ingest, GetSnapshot and GetTablespace, by a client that knows only herdpy.proto."""

import json
import random
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest

import herdpy
from herdpy.proto import herdpy_pb2 as pb
from herdpy.server.requests import exports
from tests.fixtures.grpc_clients import Client, Stream, error_of
from tests.fixtures.servers import RunningServer

PASSWORD = "correct horse"


def basic(user: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Basic {b64encode(f'{user}:{PASSWORD}'.encode()).decode()}"),)


def sqlstate_of(call: Callable[[], Any]) -> str:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return error_of(caught.value).sqlstate


# --- ingest --------------------------------------------------------------------------------------


def start(table: str = "t", mode: str = "", columns: tuple[str, ...] = ()) -> pb.IngestRequest:
    return pb.IngestRequest(start=pb.IngestStart(table=table, mode=mode, columns=columns))


def typed(*rows: tuple[Any, ...]) -> pb.IngestRequest:
    """Return rows of an integer and texts."""
    return pb.IngestRequest(
        rows=pb.IngestRows(
            rows=[
                pb.Row(
                    values=[
                        pb.Value(integer=item) if isinstance(item, int) else pb.Value(text=item)
                        for item in row
                    ]
                )
                for row in rows
            ]
        )
    )


def arrow(**columns: list[Any]) -> bytes:
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


FINISH = pb.IngestRequest(finish=pb.IngestFinish())


def ingest(client: Client, *requests: pb.IngestRequest) -> int:
    return client.Ingest(iter(requests)).row_count


def test_every_reply_says_how_far_the_log_was(client: Client) -> None:
    text = "INSERT INTO t VALUES (1, 'a', 0)"
    places = [place(client.Execute(pb.ExecuteRequest(text=text)).position)]
    places.append(place(client.Ingest(iter((start(), typed((2, "b", 0)), FINISH))).position))
    query = pb.QueryRequest(statement=pb.ExecuteRequest(text="SELECT id FROM t"))
    assert places[0] < places[1]
    assert [place(reply.position) for reply in client.Query(query)] == [places[1]]
    assert place(client.GetTablespace(pb.GetTablespaceRequest()).written) == places[1]


def test_rows_and_arrow_in_one_statement(client: Client) -> None:
    value = pb.Value
    row = pb.Row(values=[value(integer=1), value(text="ant"), value(decimal="1.5")])
    rows = pb.IngestRequest(rows=pb.IngestRows(rows=[row]))
    batch = pb.IngestRequest(arrow=arrow(id=[2, 3], name=["bee", "cat"]))
    assert ingest(client, start(), rows, batch, FINISH) == 3
    assert client.rows("SELECT * FROM t ORDER BY id") == [
        [1, "ant", "1.50"], [2, "bee", None], [3, "cat", None],
    ]  # fmt: skip


def test_modes_and_columns(client: Client) -> None:
    names = ("NAME", "id")
    named = pb.IngestRequest(
        rows=pb.IngestRows(rows=[pb.Row(values=[pb.Value(text="a"), pb.Value(integer=1)])])
    )
    assert ingest(client, start(columns=names), named, FINISH) == 1
    assert (
        ingest(client, start(mode="upsert", columns=("id", "name")), typed((1, "b")), FINISH) == 1
    )
    assert client.rows("SELECT id, name FROM t") == [[1, "b"]]
    only = start(mode="replace", columns=("id", "name"))
    assert ingest(client, only, typed((7, "z")), typed((8, "y")), FINISH) == 2
    assert client.rows("SELECT id FROM t ORDER BY id") == [[7], [8]]
    assert ingest(client, start(mode="replace"), FINISH) == 0
    assert client.rows("SELECT count(*) FROM t") == [[0]]


@pytest.mark.parametrize(
    ("requests", "sqlstate"),
    [
        ((), "08P01"),
        ((FINISH,), "08P01"),
        ((start(), typed((1, "a", "1")), pb.IngestRequest(), FINISH), "08P01"),
        ((start(), start(), FINISH), "08P01"),
        ((start("nowhere"), FINISH), "42P01"),
        ((start(mode="merge"), FINISH), "22023"),
        ((start(), typed((1, "a", "1")), typed((2, "b")), FINISH), "07001"),
        ((start(columns=("id", "nope")), typed((1, "a")), FINISH), "42703"),
        ((start(columns=("id", "id")), typed((1, "a")), FINISH), "42701"),
        ((start(), typed((1, "a", "1"), (1, "b", "1")), FINISH), "23505"),
        ((start(), typed((1, "a", "1")), pb.IngestRequest(arrow=b"no arrow"), FINISH), "08P01"),
        (
            (
                start(columns=("id", "name", "price")),
                pb.IngestRequest(
                    rows=pb.IngestRows(rows=[pb.Row(values=[pb.Value(decimal="x")] * 3)])
                ),
                FINISH,
            ),
            "08P01",
        ),
    ],
)
def test_an_ingest_that_fails_writes_nothing(
    server: RunningServer, client: Client, requests: tuple[pb.IngestRequest, ...], sqlstate: str
) -> None:
    found = sqlstate_of(lambda: ingest(client, *requests))
    assert found == sqlstate
    assert client.rows("SELECT count(*) FROM t") == [[0]]
    server.call(server.server._hub.wait_idle)


def test_without_finish_nothing_is_written(server: RunningServer, client: Client) -> None:
    """A client that ends its side because it failed has not said that these are all rows."""
    rows = typed((1, "a", "1"))
    assert sqlstate_of(lambda: ingest(client, start(), rows)) == "08P01"
    assert client.rows("SELECT count(*) FROM t") == [[0]]


def test_many_rows_take_many_messages(client: Client) -> None:
    names = start(columns=("id", "name"))
    batches = [
        typed(*((n, "x" * 100) for n in range(at, at + 1000))) for at in range(0, 20_000, 1000)
    ]
    assert ingest(client, names, *batches, FINISH) == 20_000
    assert client.rows("SELECT count(*), min(id), max(id) FROM t") == [[20_000, 0, 19_999]]


def test_ingest_in_a_transaction(client: Client) -> None:
    session = Stream(client, pb.Open())
    begun = session.ask(begin_ingest=pb.BeginIngest(table="t")).ingest_begun
    assert (begun.table.name, begun.table.primary_key) == ("t", ["id"])
    add = pb.AddToIngest(ingest=begun.ingest, arrow=arrow(id=[1, 2], name=["a", "b"]))
    assert session.ask(add_to_ingest=add).WhichOneof("kind") == "done"
    done = session.ask(finish_ingest=pb.FinishIngest(ingest=begun.ingest)).done
    assert (done.row_count, done.in_transaction) == (2, True)
    assert client.rows("SELECT count(*) FROM t") == [[0]]
    session.ask(commit=pb.Commit())
    assert client.rows("SELECT count(*) FROM t") == [[2]]
    begun = session.ask(begin_ingest=pb.BeginIngest(table="t")).ingest_begun
    session.send(drop_ingest=pb.DropIngest(ingest=begun.ingest))
    failed = session.ask(finish_ingest=pb.FinishIngest(ingest=begun.ingest)).failed
    assert failed.error.sqlstate == "24000"


def test_the_fate_of_a_commit(client: Client) -> None:
    session = Stream(client)
    session.send(open=pb.Open())
    token_session = session.next().welcome.token_session
    session.execute("INSERT INTO t VALUES (1, 'a', 0)")
    session.ask(commit=pb.Commit(token=1))
    other = Stream(client, pb.Open())
    for counter, outcome in ((1, "committed"), (2, "refused")):
        resolve = pb.Resolve(token_session=token_session, counter=counter)
        assert other.ask(resolve=resolve).resolved.outcome == outcome
    session.execute("INSERT INTO t VALUES (2, 'a', 0)")
    assert session.ask(commit=pb.Commit(token=2)).failed.error.sqlstate == "40000"


# --- snapshots -----------------------------------------------------------------------------------


def fill(server: RunningServer, row_count: int) -> None:
    """Write rows of a megabyte each: more than a client is sent that does not read."""
    with herdpy.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE big (id BIGINT PRIMARY KEY, data BYTEA)")
        rows = [(n, random.Random(n).randbytes(1_000_000)) for n in range(row_count)]
        connection.executemany("INSERT INTO big VALUES (?, ?)", rows)


def test_a_snapshot_is_a_backup(server: RunningServer, client: Client, tmp_path: Path) -> None:
    fill(server, 16)
    replies = list(client.GetSnapshot(pb.SnapshotRequest()))
    info = replies[0].info
    assert [reply.HasField("info") for reply in replies] == [True] + [False] * (len(replies) - 1)
    assert len(replies) > 2
    assert info.source == client.GetTablespace(pb.GetTablespaceRequest()).source
    data = b"".join(reply.data for reply in replies)
    assert 0 < info.byte_count <= len(data)
    (tmp_path / "backup").write_bytes(data)
    herdpy.restore(tmp_path / "backup", tmp_path / "restored")
    with herdpy.connect(tmp_path / "restored") as connection:
        assert connection.execute("SELECT count(*) FROM big").fetchone() == (16,)


def test_a_snapshot_that_was_cut_off_goes_on(server: RunningServer, client: Client) -> None:
    fill(server, 16)
    call = client.GetSnapshot(pb.SnapshotRequest())
    first = next(call)
    call.cancel()
    server.call(server.server._hub.wait_idle)
    client.rows("DELETE FROM big")  # the snapshot stays what it was
    server.engine.database.run_checkpoint()
    offset = len(first.data) - 10
    again = pb.SnapshotRequest(snapshot=first.info.snapshot, offset=offset)
    replies = list(client.GetSnapshot(again))
    assert replies[0].info == first.info
    data = first.data[:offset] + b"".join(reply.data for reply in replies)
    assert data[:4] == b"HBK\x01"
    assert is_whole(data)
    assert b"".join(reply.data for reply in client.GetSnapshot(again)) == data[offset:]


def is_whole(data: bytes) -> bool:
    from herdpy.storage.backup_file import read_backup

    return bool(read_backup(memoryview(data), "backup").segments)


def test_few_snapshots_are_kept_and_not_for_long(
    server: RunningServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(server, 16)
    monkeypatch.setattr(exports, "KEPT_MAX", 1)

    def lost() -> pb.SnapshotRequest:
        call = client.GetSnapshot(pb.SnapshotRequest())
        info = next(call).info
        call.cancel()
        server.call(server.server._hub.wait_idle)
        return pb.SnapshotRequest(snapshot=info.snapshot)

    first, second = lost(), lost()
    assert sqlstate_of(lambda: list(client.GetSnapshot(first))) == "55000"
    assert list(client.GetSnapshot(second))
    monkeypatch.setattr(exports, "KEPT_S", 0.0)
    third = lost()
    while server.server._hub.default.kept_exports._kept:
        client.rows("SELECT 1")
    assert sqlstate_of(lambda: list(client.GetSnapshot(third))) == "55000"


def test_only_superusers_have_snapshots(server: RunningServer, client: Client) -> None:
    client.rows(f"CREATE USER boss SUPERUSER PASSWORD '{PASSWORD}'")
    call = client.GetSnapshot(pb.SnapshotRequest(), metadata=basic("boss"))
    first = next(call)
    call.cancel()
    server.call(server.server._hub.wait_idle)
    client.Execute(
        pb.ExecuteRequest(text=f"CREATE USER ada PASSWORD '{PASSWORD}'"), metadata=basic("boss")
    )
    for snapshot in ("", first.info.snapshot):  # one of another user, too
        call = client.GetSnapshot(pb.SnapshotRequest(snapshot=snapshot), metadata=basic("ada"))
        with pytest.raises(grpc.RpcError) as caught:
            next(call)
        assert error_of(caught.value).sqlstate == "42501"
    events = [json.loads(line) for line in server.audit]
    assert [each["user"] for each in events if each["event"] == "exported"] == ["boss"]
    assert [each["user"] for each in events if each["event"] == "denied"] == ["ada", "ada"]


# --- information ---------------------------------------------------------------------------------


def test_a_tablespace_says_how_far_it_is(server: RunningServer, client: Client) -> None:
    request = pb.GetTablespaceRequest(tablespace="default")
    before = client.GetTablespace(request)
    client.rows("INSERT INTO t VALUES (1, 'a', 0)")
    after = client.GetTablespace(request)
    assert (after.name, after.table_count, after.leader, after.failure) == ("default", 1, "", "")
    assert place(after.written) > place(before.written)
    assert place(after.durable) == place(after.written)
    assert place(after.checkpoint) < place(after.written)
    assert (after.source, after.epoch) == (before.source, before.epoch)
    assert (
        sqlstate_of(lambda: client.GetTablespace(pb.GetTablespaceRequest(tablespace="other")))
        == "3D000"
    )


def test_a_tablespace_shows_the_tables_one_may_see(server: RunningServer, client: Client) -> None:
    client.rows(f"CREATE USER ada PASSWORD '{PASSWORD}'")
    listed = client.ListTables(pb.ListTablesRequest(), metadata=basic("ada")).tables
    info = client.GetTablespace(pb.GetTablespaceRequest(), metadata=basic("ada"))
    assert info.table_count == len(listed) == 0


def place(position: pb.Position) -> tuple[int, int, int]:
    return (position.ledger, position.entry, position.index)
