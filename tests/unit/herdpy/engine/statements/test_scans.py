"""A filter over every row: by row path in small tables, by vector path in big ones; one result."""

import pytest

import herdpy
from herdpy.config import Config

MANY = Config().vector_rows_min


@pytest.mark.parametrize(("count", "path"), [(100, "Row path"), (MANY, "Vector path")])
def test_path_by_the_number_of_rows(count: int, path: str) -> None:
    connection = herdpy.connect(":memory:", autocommit=True)
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v INTEGER)")
    connection.executemany("INSERT INTO t VALUES (?, ?)", [(i, i % 10) for i in range(count)])
    query = "SELECT id FROM t WHERE v = ?"

    def explained(text: str, *parameters: object) -> str:
        return str(connection.execute(f"EXPLAIN {text}", parameters).fetchall())

    assert path in explained(query, 3)
    assert path in explained("UPDATE t SET v = 20 WHERE v = ?", 3)
    assert path in explained("DELETE FROM t WHERE v = ?", 3)
    found = sorted(connection.execute(query, [3]).fetchall())
    assert found == [(i,) for i in range(3, count, 10)]
    assert connection.execute("UPDATE t SET v = 20 WHERE v = ?", [3]).rowcount == count // 10
    assert connection.execute("DELETE FROM t WHERE v = 20 OR v = 4").rowcount == count // 5
    assert connection.execute("SELECT count(*), max(v) FROM t").fetchall() == [
        (count - count // 5, 9)
    ]
    connection.execute("CREATE TABLE u (id INTEGER PRIMARY KEY)")
    assert connection.execute("INSERT INTO u SELECT id FROM t WHERE v = 5").rowcount == count // 10
    connection.close()
