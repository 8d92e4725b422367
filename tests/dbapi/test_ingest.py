"""conn.ingest() over every transport: what it takes, its modes, all or nothing."""

import datetime
from collections.abc import Iterator
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import herdpy
from herdpy.errors import (
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    OperationalError,
    ProgrammingError,
    ProtocolError,
)
from tests.fixtures.servers import RunningServer

ALL_TYPES = """CREATE TABLE t (id BIGINT PRIMARY KEY, b BOOLEAN, i INTEGER, d DOUBLE,
    n DECIMAL(10, 2), w DECIMAL(30, 3), s VARCHAR(20), y BYTEA, da DATE, ts TIMESTAMP)"""
ROWS: list[tuple[Any, ...]] = [
    (1, True, -5, 1.5, Decimal("1.10"), Decimal("123456789012345678901.125"), "näme", b"\x00\xff",
     datetime.date(1969, 12, 31), datetime.datetime(2024, 2, 29, 12, 0, 0, 500_000)),
    (2, *[None] * 9),
    (3, False, 2**31 - 1, float("inf"), Decimal("-99999999.99"), Decimal("-0.001"), "", b"",
     datetime.date(9999, 12, 31), datetime.datetime(1, 1, 1)),
]  # fmt: skip
NAMES = ("id", "b", "i", "d", "n", "w", "s", "y", "da", "ts")
TYPES = (
    pa.int64(), pa.bool_(), pa.int32(), pa.float64(), pa.decimal128(10, 2), pa.decimal128(30, 3),
    pa.string(), pa.binary(), pa.date32(), pa.timestamp("us"),
)  # fmt: skip
AT = datetime.datetime(1970, 1, 1)


@pytest.fixture
def conn(target: str) -> Iterator[herdpy.Connection]:
    with herdpy.connect(target, autocommit=True) as opened:
        opened.execute(ALL_TYPES)
        yield opened


def table_of(rows: list[tuple[Any, ...]], types: tuple[pa.DataType, ...] = TYPES) -> pa.Table:
    columns = [
        pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), types, strict=True)
    ]
    return pa.table(columns, names=list(NAMES[: len(types)]))


def stored(conn: herdpy.Connection) -> list[tuple[Any, ...]]:
    return conn.execute("SELECT * FROM t ORDER BY id").fetchall()


def small(*ids: int, number: int = 0) -> pa.Table:
    return pa.table({"id": ids, "i": [number] * len(ids)})


class TestWhatItTakes:
    @pytest.mark.parametrize("form", ["table", "batch", "reader", "dicts", "tuple of dicts"])
    def test_every_type_arrives_as_it_was(self, conn: herdpy.Connection, form: str) -> None:
        table = table_of(ROWS)
        data: Any = {
            "table": lambda: table,
            "batch": lambda: table.to_batches()[0],
            "reader": lambda: table.to_reader(1),
            "dicts": lambda: (dict(zip(NAMES, row, strict=True)) for row in ROWS),
            "tuple of dicts": lambda: tuple(dict(zip(NAMES, row, strict=True)) for row in ROWS),
        }[form]()
        assert conn.ingest("t", data) == 3
        assert stored(conn) == ROWS

    def test_pandas(self, conn: herdpy.Connection) -> None:
        frame = pd.DataFrame(
            {
                "id": [1, 2],
                "s": ["a", None],
                "d": [1.5, float("nan")],
                "ts": pd.to_datetime(["2024-01-01 10:00", None]),
            },
            index=[7, 9],
        )
        assert conn.ingest("t", frame) == 2
        at = datetime.datetime(2024, 1, 1, 10)
        found = conn.execute("SELECT id, s, d, ts FROM t ORDER BY id").fetchall()
        assert found == [(1, "a", 1.5, at), (2, None, None, None)]

    def test_polars(self, conn: herdpy.Connection) -> None:
        pl = pytest.importorskip("polars")
        frame = pl.DataFrame(
            {"id": [1, 2], "s": ["a", None], "da": [datetime.date(2024, 1, 1)] * 2}
        )
        assert conn.ingest("t", frame) == 2
        found = conn.execute("SELECT id, s, da FROM t ORDER BY id").to_polars()
        assert found.equals(frame)

    @pytest.mark.parametrize(
        ("name", "array", "expected"),
        [
            ("s", pa.array(["a", "b"]).dictionary_encode(), ["a", "b"]),
            ("s", pa.array(["a", None], pa.large_string()), ["a", None]),
            ("s", pa.array(["a", "b"], pa.string_view()), ["a", "b"]),
            ("s", pa.array([1, 2]), ["1", "2"]),
            ("s", pa.nulls(2), [None, None]),
            ("i", pa.array([1, 2], pa.uint64()), [1, 2]),
            ("i", pa.array([1.5, 2.0]), [2, 2]),
            (
                "ts",  # of the session's time zone, which is UTC
                pa.array([0, 1], pa.timestamp("us", "Europe/Berlin")),
                [datetime.datetime(1970, 1, 1), datetime.datetime(1970, 1, 1, 0, 0, 0, 1)],
            ),
            ("d", pa.array([1, 2]), [1.0, 2.0]),
            ("d", pa.array([0.5, None], pa.float32()), [0.5, None]),
            ("n", pa.array([1, 2]), [Decimal("1.00"), Decimal("2.00")]),
            ("n", pa.array([Decimal("1.125"), None]), [Decimal("1.13"), None]),
            ("n", pa.array([Decimal("-1.5"), None], pa.decimal128(5, 2)), [Decimal("-1.50"), None]),
            ("y", pa.array([b"a", None], pa.large_binary()), [b"a", None]),
            ("da", pa.array([86_400_000] * 2, pa.date64()), [datetime.date(1970, 1, 2)] * 2),
            ("ts", pa.array([1_000] * 2, pa.timestamp("ns")), [AT.replace(microsecond=1)] * 2),
            ("ts", pa.array([1] * 2, pa.timestamp("s")), [AT.replace(second=1)] * 2),
            ("da", pa.array(["2020-01-02", None]), [datetime.date(2020, 1, 2), None]),
        ],
    )  # fmt: skip
    def test_other_arrow_types(
        self, conn: herdpy.Connection, name: str, array: Any, expected: list[Any]
    ) -> None:
        # Sliced, so that what forgets an array's offset is found out.
        table = pa.table({"id": [0, 1, 2], name: pa.concat_arrays([array[:1], array])})
        conn.ingest("t", table.slice(1))
        found = conn.execute(f"SELECT {name} FROM t ORDER BY id").fetchall()
        assert [value for (value,) in found] == expected

    def test_names_are_folded_and_defaults_filled_in(self, conn: herdpy.Connection) -> None:
        conn.execute(
            "CREATE TABLE u (id INTEGER PRIMARY KEY, a TEXT DEFAULT 'x', at TIMESTAMP"
            " DEFAULT CURRENT_TIMESTAMP)"
        )
        conn.ingest("U", [{"ID": 1}, {"ID": 2}])
        rows = conn.execute("SELECT id, a, at IS NULL FROM u ORDER BY id").fetchall()
        assert rows == [(1, "x", False), (2, "x", False)]

    @pytest.mark.parametrize("data", [5, "text", b"bytes", {"id": [1]}, None])
    def test_what_is_no_data(self, conn: herdpy.Connection, data: Any) -> None:
        with pytest.raises(ProgrammingError, match="expected Arrow, pandas"):
            conn.ingest("t", data)

    def test_progress(self, conn: herdpy.Connection) -> None:
        seen: list[int] = []
        conn.ingest("t", small(*range(150_000)), progress=seen.append)
        assert seen == [65_536, 131_072, 150_000]

    @pytest.mark.parametrize("mode", ["append", "upsert", "replace"])
    def test_nothing(self, conn: herdpy.Connection, mode: str) -> None:
        assert conn.ingest("t", [], mode=mode) == 0
        assert conn.ingest("t", small(1).slice(0, 0), mode=mode) == 0


class TestModes:
    def test_append_refuses_a_key_that_is_there(self, conn: herdpy.Connection) -> None:
        conn.ingest("t", small(1, 2))
        with pytest.raises(IntegrityError, match=r"\(id\)=\(2\)"):
            conn.ingest("t", small(3, 2))
        with pytest.raises(IntegrityError, match=r"\(id\)=\(5\)"):
            conn.ingest("t", small(5, 5))
        assert [row[0] for row in stored(conn)] == [1, 2]

    def test_upsert(self, conn: herdpy.Connection) -> None:
        conn.ingest("t", small(1, 2))
        assert conn.ingest("t", small(2, 3, 3, number=7), mode="upsert") == 3
        assert [(row[0], row[2]) for row in stored(conn)] == [(1, 0), (2, 7), (3, 7)]

    @pytest.mark.parametrize("is_in_pages", [False, True])
    def test_replace(self, conn: herdpy.Connection, is_in_pages: bool) -> None:
        conn.ingest("t", small(1, 2))
        if is_in_pages:
            conn.checkpoint()
        assert conn.ingest("t", small(2, 3, number=7), mode="replace") == 2
        assert [(row[0], row[2]) for row in stored(conn)] == [(2, 7), (3, 7)]
        with pytest.raises(IntegrityError):
            conn.ingest("t", small(9, 9), mode="replace")
        assert conn.ingest("t", small(), mode="replace") == 0
        assert stored(conn) == []

    def test_a_table_without_key(self, conn: herdpy.Connection) -> None:
        conn.execute("CREATE TABLE h (a INTEGER)")
        data = pa.table({"a": [1, 1]})
        conn.ingest("h", data)
        conn.ingest("h", data)
        assert conn.execute("SELECT count(*) FROM h").fetchone() == (4,)
        conn.ingest("h", data, mode="replace")
        assert conn.execute("SELECT count(*) FROM h").fetchone() == (2,)
        with pytest.raises(ProgrammingError, match="needs a primary key"):
            conn.ingest("h", data, mode="upsert")

    def test_many_rows_in_an_order_of_their_own(self, conn: herdpy.Connection) -> None:
        ids = [(number * 7_919) % 50_021 for number in range(50_021)]
        assert conn.ingest("t", small(*ids)) == 50_021
        conn.checkpoint()
        assert conn.ingest("t", small(*(number + 60_000 for number in ids))) == 50_021
        found = conn.execute("SELECT count(*), min(id), max(id), sum(id) FROM t").fetchone()
        assert found == (100_042, 0, 110_020, 2 * sum(range(50_021)) + 60_000 * 50_021)


class TestAllOrNothing:
    @pytest.mark.parametrize(
        ("bad", "kind", "message"),
        [
            ({"i": pa.array([1, 2**31])}, DataError, "row 2 of the data: column i: .*range"),
            ({"i": pa.array(["1", "x"])}, DataError, "row 2 of the data: column i"),
            ({"i": pa.array([True, False])}, ProgrammingError, "row 1 of the data: column i"),
            ({"s": pa.array(["a", "b" * 21])}, DataError, "row 2 of the data: column s.*long"),
            ({"s": pa.array(["a", "b\0"])}, DataError, "row 2 of the data: column s.* NUL"),
            ({"n": pa.array([Decimal(1), Decimal("1e9")])}, DataError, "row 2 of .*: column n"),
            ({"ts": pa.array([1, 2], pa.timestamp("ns"))}, DataError, "column ts: .*nanoseconds"),
            ({"ts": pa.array([0, 2**60], pa.timestamp("us"))}, DataError, "row 2 of .* column ts"),
            ({"s": pa.array([[1], [2]])}, ProgrammingError, "row 1 of the data: column s"),
            ({"nope": pa.array([1, 2])}, ProgrammingError, 'column "nope" of the data'),
            ({"ID": pa.array([1, 2])}, ProgrammingError, "comes twice"),
            ({"id": pa.array([1, None])}, IntegrityError, 'row 2 .* null value in column "id"'),
        ],
    )  # fmt: skip
    def test_one_bad_row_and_nothing_happens(
        self, conn: herdpy.Connection, bad: dict[str, Any], kind: type[Error], message: str
    ) -> None:
        with pytest.raises(kind, match=message):
            conn.ingest("t", pa.table({"id": pa.array([1, 2]), **bad}))
        assert stored(conn) == []
        assert conn.ingest("t", small(1)) == 1

    def test_a_later_batch_is_bad(self, conn: herdpy.Connection) -> None:
        def rows() -> Iterator[dict[str, Any]]:
            for number in range(20_000):
                yield {"id": number, "i": 1 if number < 19_000 else "x"}

        with pytest.raises(DataError, match="row 19,001 of the data: column i"):
            conn.ingest("t", rows())
        assert stored(conn) == []
        conn.execute("INSERT INTO t (id) VALUES (1)")

    def test_the_program_fails_in_between(self, conn: herdpy.Connection) -> None:
        def batches() -> Iterator[dict[str, Any]]:
            yield from ({"id": number} for number in range(10_000))
            raise RuntimeError("no more")

        with pytest.raises(RuntimeError, match="no more"):
            conn.ingest("t", batches())
        assert stored(conn) == []

    @pytest.mark.parametrize("rows", [[{"id": 1}, {"i": 2}], [{"id": 1}, {"id": 2, "i": 2}], [5]])
    def test_dicts_of_different_names(self, conn: herdpy.Connection, rows: list[Any]) -> None:
        with pytest.raises(ProgrammingError, match=r"of the data: expected a dict( with|;)"):
            conn.ingest("t", rows)

    def test_in_a_transaction(self, conn: herdpy.Connection) -> None:
        with conn.transaction():
            conn.execute("INSERT INTO t (id) VALUES (1)")
            conn.ingest("t", small(2))
            with pytest.raises(IntegrityError):
                conn.ingest("t", small(3, 2))
            assert [row[0] for row in stored(conn)] == [1, 2]
            conn.rollback()
        assert stored(conn) == []

    def test_without_autocommit_it_begins_a_transaction(
        self, conn: herdpy.Connection, target: str
    ) -> None:
        conn.autocommit = False
        conn.ingest("t", small(1))
        assert conn.in_transaction
        conn.rollback()
        assert stored(conn) == []

    def test_unknown_table_and_mode(self, conn: herdpy.Connection) -> None:
        with pytest.raises(ProgrammingError, match='table "nope" does not exist'):
            conn.ingest("nope", small(1))
        with pytest.raises(ProgrammingError, match="'append', 'upsert' or 'replace'"):
            conn.ingest("t", small(1), mode="merge")

    def test_more_than_the_memory(self) -> None:
        with herdpy.connect(":memory:", memory_bytes_max=16 * 1024 * 1024, autocommit=True) as conn:
            conn.execute(ALL_TYPES)
            with conn.transaction():
                with pytest.raises(OperationalError, match="of memory") as caught:
                    conn.ingest("t", small(*range(50_000)))
                assert caught.value.sqlstate == "53200"
            assert stored(conn) == []
            conn.ingest("t", small(*range(50_000)))  # by itself it needs none
            assert conn.execute("SELECT count(*), sum(id) FROM t").fetchone() == (
                50_000,
                sum(range(50_000)),
            )

    def test_a_closed_connection(self, conn: herdpy.Connection, target: str) -> None:
        other = herdpy.connect(target)
        other.close()
        with pytest.raises(InterfaceError):
            other.ingest("t", small(1))


class TestOverTheWire:
    @pytest.mark.sync_face("reaches into the connection")
    def test_batches_that_are_none_end_the_ingest(self, server: RunningServer) -> None:
        from herdpy.driver.remote.retrying import RetryingSession
        from herdpy.driver.remote.session import RemoteSession
        from herdpy.proto import messages

        with herdpy.connect(server.url, autocommit=True) as conn:
            conn.execute(ALL_TYPES)
            retrying = conn.live_session()
            assert isinstance(retrying, RetryingSession)
            session = retrying.connection
            assert isinstance(session, RemoteSession)
            begun = session.ask(lambda request: messages.BeginIngest(request, "t", "append"))
            with pytest.raises(Error, match="malformed Arrow stream"):
                session.ask(lambda request: messages.IngestRows(request, begun.ingest, b"nonsense"))
            with pytest.raises(ProgrammingError, match="no such open ingest"):
                session.ask(lambda request: messages.FinishIngest(request, begun.ingest))
            assert stored(conn) == []

    @pytest.mark.sync_face("a reader of a result that is read inside ingest()")
    def test_a_connection_can_take_what_it_gives(self, target: str) -> None:
        """Batches on their way in do not wait for batches on their way out, nor the other way."""
        with herdpy.connect(target, autocommit=True) as conn:
            for name in ("big", "copy"):
                conn.execute(f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, s TEXT)")
            # More than a frame can have, in pieces longer than the buffers of a socket.
            table = pa.table({"id": range(160), "s": ["x" * 500_000] * 160})
            conn.ingest("big", table)
            reader = conn.execute("SELECT * FROM big").fetch_record_batch()
            assert conn.ingest("copy", reader) == 160
            assert conn.execute("SELECT count(*) FROM copy").fetchone() == (160,)

    def test_names_that_are_no_text(self) -> None:
        from herdpy.exec.vector.arrow_input import batch_bytes
        from herdpy.exec.vector.untrusted_arrow import batches_of

        data = batch_bytes(pa.record_batch({"name of it": [1]}))
        with pytest.raises(ProtocolError, match="malformed Arrow stream"):
            list(batches_of(data.replace(b"name of it", b"name \xff it")))

    @pytest.mark.sync_face("reaches into the connection")
    def test_few_are_open_at_a_time(self, server: RunningServer) -> None:
        with herdpy.connect(server.url, autocommit=True) as conn:
            conn.execute(ALL_TYPES)
            session = conn.live_session()
            targets = [session.begin_ingest("t", "append") for _ in range(4)]
            with pytest.raises(OperationalError, match="are open"):
                session.begin_ingest("t", "append")
            targets[0].abort()
            session.begin_ingest("t", "append").add(small(1).to_batches()[0])
            for target in targets:
                target.abort()
            assert stored(conn) == []


def test_dicts_without_names_are_rows_of_defaults(target: str) -> None:
    with herdpy.connect(target, autocommit=True) as conn:
        conn.execute("CREATE TABLE numbers (id BIGINT DEFAULT 7, n INTEGER)")
        assert conn.ingest("numbers", [{}] * 9_999 + [MappingProxyType({})]) == 10_000
        text = "SELECT count(*), min(id), max(id), count(n) FROM numbers"
        assert conn.execute(text).fetchone() == (10_000, 7, 7, 0)
        for data in ([{}, {"id": 1}], [[]], ["", ""]):
            with pytest.raises(
                herdpy.ProgrammingError,
                match=r"row \d of the data: expected a dict(;| without names, as)",
            ):
                conn.ingest("numbers", data)
        assert conn.execute(text).fetchone() == (10_000, 7, 7, 0)
