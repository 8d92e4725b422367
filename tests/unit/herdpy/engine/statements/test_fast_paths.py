"""Shortcuts give what the general way gives, for all parameters and wherever a row stands."""

import datetime
import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

import herdpy
from herdpy.engine.database import Database
from herdpy.engine.statements.fast_paths import compile_bind
from herdpy.model.types import BIGINT, DOUBLE, TEXT, UNKNOWN
from herdpy.sql.compile import parameter_kinds, parameter_types
from herdpy.sql.plan import Slot
from tests.fixtures.engines import attempt

COLUMNS = "a BIGINT, b TEXT, x DOUBLE, d DECIMAL(10,2), day DATE, at TIMESTAMP, flag BOOLEAN"
DAY = datetime.date(2024, 2, 29)
AT = datetime.datetime(2024, 2, 29, 12, 30, 1, 5)
ROW = (1, "ä", 0.5, Decimal("1.25"), DAY, AT, True)


@pytest.fixture
def connection() -> Iterator[herdpy.Connection]:
    with herdpy.connect(":memory:", autocommit=True) as opened:
        yield opened


def database_of(connection: herdpy.Connection) -> Database:
    return connection._session.database


def short(connection: herdpy.Connection, text: str, parameters: Any) -> Any:
    """Return the rows of the shortcut; None when it was not taken."""
    found = attempt(connection._session, text, parameters)
    return None if found is None else found[1]


@pytest.mark.parametrize("place", ["memtable", "own writes", "pages"])
@pytest.mark.parametrize("columns", ["*", "x", "flag, at, d, a", "b, b"])
def test_a_point_read_is_short_and_right(
    connection: herdpy.Connection, place: str, columns: str
) -> None:
    connection.execute(f"CREATE TABLE t ({COLUMNS}, PRIMARY KEY (a, b))")
    if place == "own writes":
        connection.execute("BEGIN")
    connection.execute("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?)", ROW)
    if place == "pages":
        database_of(connection).run_checkpoint()
    names = ["a", "b", "x", "d", "day", "at", "flag"]
    wanted = names if columns == "*" else columns.split(", ")
    expected = [tuple(ROW[names.index(name)] for name in wanted)]
    text = f"SELECT {columns} FROM t WHERE a = ? AND b = ?"
    assert short(connection, text, (1, "ä")) is None  # not prepared yet
    assert connection.execute(text, (1, "ä")).fetchall() == expected
    assert short(connection, text, (1, "ä")) == expected
    assert connection.execute(text, [1, "ä"]).fetchall() == expected
    assert short(connection, text, (2, "ä")) == []
    assert short(connection, text, (1, None)) == []


@pytest.mark.parametrize(
    "parameters", [(True,), (1.0,), ("1",), (2**70,), (Decimal(1),), {"a": 1}, (1, 2), (), "1"]
)
def test_other_parameters_take_the_general_way(
    connection: herdpy.Connection, parameters: Any
) -> None:
    connection.execute("CREATE TABLE t (a BIGINT PRIMARY KEY, v TEXT)")
    connection.execute("INSERT INTO t VALUES (1, 'one')")
    text = "SELECT v FROM t WHERE a = ?"
    assert connection.execute(text, (1,)).fetchall() == [("one",)]
    assert short(connection, text, parameters) is None


def test_a_changed_catalog_is_seen(connection: herdpy.Connection) -> None:
    connection.execute("CREATE TABLE t (a BIGINT PRIMARY KEY)")
    connection.execute("INSERT INTO t VALUES (1)")
    text = "SELECT * FROM t WHERE a = ?"
    assert connection.execute(text, (1,)).fetchall() == [(1,)]
    connection.execute("DROP TABLE t")
    with pytest.raises(herdpy.ProgrammingError, match="t"):
        connection.execute(text, (1,))
    connection.execute("CREATE TABLE t (a BIGINT PRIMARY KEY, b BIGINT)")
    connection.execute("INSERT INTO t VALUES (1, 2)")
    assert connection.execute(text, (1,)).fetchall() == [(1, 2)]


def test_a_point_read_begins_a_transaction_and_ends_with_the_session(
    connection: herdpy.Connection,
) -> None:
    connection.execute("CREATE TABLE t (a BIGINT PRIMARY KEY)")
    text = "SELECT * FROM t WHERE a = ?"
    connection.execute(text, (1,))
    connection.autocommit = False
    connection.execute(text, (1,))
    assert connection.in_transaction
    session = connection._session
    connection.close()
    assert attempt(session, text, (1,)) is None


def test_arrow_and_description_of_a_short_read(connection: herdpy.Connection) -> None:
    connection.execute("CREATE TABLE t (a BIGINT PRIMARY KEY, v TEXT)")
    connection.execute("INSERT INTO t VALUES (1, 'one')")
    for _ in range(2):
        cursor = connection.execute("SELECT v FROM t WHERE a = ?", (1,))
        assert [item[0] for item in cursor.description or ()] == ["v"]
        assert cursor.rowcount == -1
        assert cursor.fetch_arrow_table().to_pylist() == [{"v": "one"}]


def test_bind_judges_every_parameter() -> None:
    types = [(0, BIGINT), (1, UNKNOWN), (2, DOUBLE)]
    bind = compile_bind(types, [Slot(2, DOUBLE), Slot(0, BIGINT), Slot(1, TEXT)])
    assert bind is not None
    assert bind((1, "a", 0.5)) == [0.5, 1, "a"]
    assert bind([1, None, 0.5]) == [0.5, 1, None]
    for other in ((1, "a", 1), (True, "a", 0.5), (2**63, "a", 0.5), (1, b"a", 0.5), (1, "a"), None):
        assert bind(other) is None
    with pytest.raises(herdpy.DataError, match="NUL"):
        bind((1, "\0", 0.5))


def test_kinds_tell_apart_what_types_tell_apart() -> None:
    values = [
        None,
        "a",
        1,
        2**63,
        -(2**63) - 1,
        0.5,
        True,
        Decimal("1.5"),
        Decimal("1.25"),
        DAY,
        AT,
    ]
    rng = random.Random(3)
    for _ in range(500):
        one, other = (tuple(rng.choices(values, k=3)) for _ in range(2))
        if parameter_kinds(one) == parameter_kinds(other):
            assert parameter_types(one) == parameter_types(other)


def test_executemany_converts_item_by_item(connection: herdpy.Connection) -> None:
    connection.execute("CREATE TABLE t (a BIGINT PRIMARY KEY, i INTEGER, x DOUBLE, s VARCHAR(3))")
    text = "INSERT INTO t VALUES (?, ?, ?, ?)"
    connection.executemany(text, [(1, 2, 3, "abc"), [2, None, 0.5, None], (3, 1.5, 2, "é")])
    expected = [(1, 2, 3.0, "abc"), (2, None, 0.5, None), (3, 2, 2.0, "é")]
    assert connection.execute("SELECT * FROM t ORDER BY a").fetchall() == expected
    for item, sqlstate in (
        ((4, 1, 1.0), "07001"),
        ((4, 1, 1.0, "a", "b"), "07001"),
        ({"a": 1}, "07001"),
        ((4, 2**31, 1.0, "a"), "22003"),
        ((4, 1, 1.0, "abcd"), "22001"),
        ((None, 1, 1.0, "a"), "23502"),
        ((3, 1, 1.0, "a"), "23505"),
        ((5, 1, 1.0, "a"), "23505"),
    ):
        with pytest.raises(herdpy.DatabaseError) as caught:
            connection.executemany(text, [(5, 1, 1.0, "a"), item])
        assert caught.value.sqlstate == sqlstate
        assert connection.execute("SELECT * FROM t ORDER BY a").fetchall() == expected


@pytest.mark.parametrize("seed", range(6))
def test_scans_merge_own_writes_memtable_and_pages(
    connection: herdpy.Connection, seed: int
) -> None:
    rng = random.Random(seed)
    keys = rng.choice([20, 400, 3000])
    connection.execute("CREATE TABLE t (a BIGINT, b TEXT, v BIGINT, PRIMARY KEY (a, b))")
    model: dict[tuple[int, str], int] = {}
    for step in range(150):
        match rng.randrange(8):
            case 0 | 1 | 2:
                key = (rng.randrange(keys), rng.choice("xyz"))
                connection.execute("UPSERT INTO t VALUES (?, ?, ?)", (*key, step))
                model[key] = step
            case 3:
                many = [(rng.randrange(keys), rng.choice("xyz"), i) for i in range(300)]
                connection.executemany("UPSERT INTO t VALUES (?, ?, ?)", many)
                model.update({(a, b): v for a, b, v in many})
            case 4 if model:
                key = rng.choice(list(model))
                connection.execute("DELETE FROM t WHERE a = ? AND b = ?", key)
                del model[key]
            case 5 if not connection.in_transaction:
                database_of(connection).run_checkpoint()
            case 6:
                connection.execute("COMMIT" if connection.in_transaction else "BEGIN")
            case _:
                low = rng.randrange(keys)
                high, order = low + rng.randrange(keys), rng.choice(["ASC", "DESC"])
                text = f"SELECT * FROM t WHERE a >= ? AND a < ? ORDER BY a {order}, b {order}"
                rows = [(*key, v) for key, v in model.items() if low <= key[0] < high]
                rows.sort(reverse=order == "DESC")
                assert connection.execute(text, (low, high)).fetchall() == rows


def test_thousands_of_parameters_have_no_function_of_their_own() -> None:
    """Its source would take seconds to compile; the general way binds them."""
    for count, is_made in ((1_000, True), (1_001, False)):
        types = parameter_types([1] * count)
        slots = [Slot(position, BIGINT) for position in range(count)]
        assert (compile_bind(types, slots) is not None) is is_made
    with herdpy.connect(":memory:", autocommit=True) as connection:
        connection.execute("CREATE TABLE m (id INTEGER PRIMARY KEY)")
        connection.execute("INSERT INTO m VALUES (5), (7000)")
        text = f"SELECT id FROM m WHERE id IN ({', '.join('?' * 3000)})"
        for _ in range(3):
            assert connection.execute(text, range(3000)).fetchall() == [(5,)]
            assert connection.execute(text, list(range(5000, 8000))).fetchall() == [(7000,)]


# --- rows by an index ----------------------------------------------------------------------------

BY_INDEX = (
    ("SELECT * FROM i WHERE g = ?", lambda rng: (rng.randrange(14),)),
    ("SELECT name, id FROM i WHERE u = ?", lambda rng: (rng.randrange(400),)),
    ("SELECT d FROM i WHERE g >= ? AND g < ?", lambda rng: sorted(rng.sample(range(14), 2))),
    ("SELECT id FROM i WHERE g IS NULL", lambda _: ()),
)


@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_rows_by_an_index_are_few_and_right(
    connection: herdpy.Connection, is_checkpointed: bool
) -> None:
    """As the general path gives them; what it does not take has many rows, or its own writes."""
    rng = random.Random(7)
    connection.execute(
        "CREATE TABLE i (id BIGINT PRIMARY KEY, g INTEGER, u BIGINT UNIQUE, name TEXT,"
        " d DECIMAL(8, 2))"
    )
    connection.execute("CREATE INDEX i_g ON i (g)")
    rows = [
        (n, None if n < 3 else 13 if n < 120 else n % 13, n if n % 3 else None, f"n{n}", n)
        for n in range(400)
    ]
    connection.executemany("INSERT INTO i VALUES (?, ?, ?, ?, ?)", rows)
    session = connection._session
    taken = {text: 0 for text, _ in BY_INDEX}
    for round_ in range(6):
        if is_checkpointed and round_ % 2:
            database_of(connection).run_checkpoint()
        for text, make in BY_INDEX:
            for _ in range(12):
                parameters = tuple(make(rng))
                session.execute(text, parameters)  # there is a plan
                found = short(connection, text, parameters)
                expected = list(session.execute(text, parameters).rows())
                assert found is None or sorted(found) == sorted(expected)
                assert (found is not None) == (len(expected) <= 64), (text, parameters)
                taken[text] += found is not None
        connection.execute("UPDATE i SET g = g + 1, u = -u WHERE id % 7 = ?", (round_,))
        connection.execute("DELETE FROM i WHERE id % 50 = ?", (round_ + 10,))
    assert all(taken.values())
    connection.execute("BEGIN")
    connection.execute("UPDATE i SET g = 77 WHERE id = 200")
    text = BY_INDEX[0][0]
    assert short(connection, text, (77,)) is None
    assert [row[0] for row in connection.execute(text, (77,)).fetchall()] == [200]
    connection.rollback()
