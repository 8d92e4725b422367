"""Big statements of common use, which no limit of what a statement may cost refuses."""

from collections.abc import Iterator

import pytest

import herdpy
from herdpy.driver.connection import Connection
from herdpy.limits import columns_max, parameters_max

IN_ITEMS = 50_000
DUMP_BYTES = 8 * 1024 * 1024


@pytest.fixture
def connection(target: str) -> Iterator[Connection]:
    connection = herdpy.connect(target, autocommit=True)
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, s TEXT)")
    yield connection
    connection.close()


def test_an_insert_of_as_many_values_as_parameters(connection: Connection) -> None:
    rows = ", ".join(f"({key}, 'a{key}', {key})" for key in range(parameters_max // 3))
    connection.execute("CREATE TABLE u (id INTEGER PRIMARY KEY, s TEXT, n INTEGER)")
    connection.execute(f"INSERT INTO u VALUES {rows}")
    count = parameters_max // 3
    found = connection.execute("SELECT count(*), sum(n), max(s) FROM u").fetchall()
    assert found == [(count, count * (count - 1) // 2, "a9999")]


def test_an_insert_of_as_many_parameters(connection: Connection) -> None:
    marks = ", ".join(["(?)"] * parameters_max)
    connection.execute(f"INSERT INTO t (id) VALUES {marks}", range(parameters_max))
    assert connection.execute("SELECT count(*), max(id) FROM t").fetchall() == [
        (parameters_max, parameters_max - 1)
    ]


@pytest.mark.parametrize("source", ["t", "(SELECT * FROM t) AS q"])
def test_a_long_list(connection: Connection, source: str) -> None:
    connection.execute("INSERT INTO t VALUES (1, 'x1'), (7, 'x7'), (60000, 'y')")
    numbers = ", ".join(map(str, range(IN_ITEMS)))
    texts = ", ".join(f"'x{n}'" for n in range(IN_ITEMS))
    text = f"SELECT id FROM {source} WHERE id IN ({numbers}) AND s IN ({texts}) ORDER BY id"
    assert connection.execute(text).fetchall() == [(1,), (7,)]
    text = f"SELECT id FROM {source} WHERE id NOT IN ({numbers})"
    assert connection.execute(text).fetchall() == [(60000,)]


def test_as_many_columns_as_a_table_has(connection: Connection) -> None:
    names = [f"column_{number}" for number in range(columns_max)]
    columns = ", ".join(f"{name} BIGINT NOT NULL DEFAULT 7" for name in names)
    connection.execute(f"CREATE TABLE w ({columns}, PRIMARY KEY (column_0))")
    for key in range(2):
        values = ", ".join(str(key + number) for number in range(columns_max))
        connection.execute(f"INSERT INTO w ({', '.join(names)}) VALUES ({values})")
    row = tuple(range(columns_max))
    assert connection.execute("SELECT * FROM w WHERE column_0 = 0").fetchall() == [row]
    for text in (
        f"SELECT {', '.join(names)} FROM w ORDER BY column_1 DESC",
        "SELECT * FROM (SELECT * FROM w) AS q ORDER BY column_1 DESC",
        f"SELECT {', '.join(f'max({name})' for name in names)} FROM w",
    ):
        assert connection.execute(text).fetchone() == tuple(n + 1 for n in row)
    changes = ", ".join(f"{name} = {name} + 1" for name in names[1:])
    connection.execute(f"UPDATE w SET {changes} WHERE column_0 = 0")
    (found,) = connection.execute("SELECT * FROM w WHERE column_0 = 0").fetchall()
    assert found == (0, *range(2, columns_max + 1))


def test_a_dump_of_8_mb_in_one_statement(connection: Connection) -> None:
    filler = "it''s " * 160
    rows: list[str] = []
    size = 0
    while size < DUMP_BYTES:
        rows.append(f"({len(rows)}, '{filler}{len(rows)}')")
        size += len(rows[-1]) + 2
    connection.execute(f"INSERT INTO t VALUES {', '.join(rows)}")
    assert connection.execute("SELECT count(*), max(length(s)) FROM t").fetchall() == [
        (len(rows), 160 * 5 + len(str(len(rows) - 1)))
    ]
