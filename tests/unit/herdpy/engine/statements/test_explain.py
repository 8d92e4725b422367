"""EXPLAIN's trees, word for word: in memory, and over the pages of a checkpoint."""

import re
import textwrap
from collections.abc import Iterator

import pytest

import herdpy


@pytest.fixture
def connection() -> Iterator[herdpy.Connection]:
    with herdpy.connect(autocommit=True) as made:
        made.execute(
            "CREATE TABLE animal (id BIGINT PRIMARY KEY, name TEXT NOT NULL, kg DOUBLE PRECISION)"
        )
        made.execute(
            "CREATE TABLE seen (animal BIGINT, day DATE, place TEXT, PRIMARY KEY (animal, day))"
        )
        made.executemany(
            "INSERT INTO animal VALUES (?, ?, ?)", [(n, f"a{n}", n * 1.5) for n in range(10_000)]
        )
        made.execute("INSERT INTO seen VALUES (1, DATE '2020-01-01', 'zoo')")
        made.checkpoint()
        made.execute("UPDATE animal SET kg = 0 WHERE id IN (1, 2)")
        yield made


def explained(connection: herdpy.Connection, text: str, *parameters: object) -> str:
    lines = connection.execute(f"EXPLAIN {text}", parameters).fetchall()
    return "\n".join(line for (line,) in lines)


def test_point(connection: herdpy.Connection) -> None:
    text = "SELECT name FROM animal WHERE id = ? AND kg > 1"
    assert explained(connection, text, 3) == textwrap.dedent("""\
        Row path
          Output: name
            Filter: kg > 1.0
              Point lookup on animal by key (id = ?1); 1 of 3 pages, 2 changes in memory""")


def test_range(connection: herdpy.Connection) -> None:
    text = """SELECT name, kg * 2.5 FROM animal a
              WHERE id >= 5 AND id < 10 ORDER BY id DESC LIMIT 3 OFFSET 1"""
    assert explained(connection, text) == textwrap.dedent("""\
        Row path
          Limit 3, offset 1
            Output: name, kg * 2.5
              Key range on animal a: id >= 5 AND id < 10, backward; 1 of 3 pages, 2 changes in memory\
""")  # noqa: E501 - golden


def test_prefix_of_the_key(connection: herdpy.Connection) -> None:
    text = "SELECT place FROM seen WHERE animal = 1 AND day > DATE '2019-12-31'"
    assert explained(connection, text) == textwrap.dedent("""\
        Row path
          Output: place
            Key range on seen: animal = 1 AND day > DATE '2019-12-31'; 1 of 1 page""")


def test_nothing_is_found_by_null(connection: herdpy.Connection) -> None:
    assert "0 of 3 pages" in explained(connection, "SELECT name FROM animal WHERE id = ?", None)


def test_vector_path(connection: herdpy.Connection) -> None:
    text = """
        SELECT a.name, count(*) AS times FROM animal a JOIN seen s ON s.animal = a.id
        WHERE a.id < 100 AND s.place = 'zoo'
        GROUP BY a.name HAVING count(*) > 1 ORDER BY times DESC, a.name LIMIT 5"""
    assert explained(connection, text) == textwrap.dedent("""\
        Vector path (DuckDB over the pages)
          Limit 5
            Sort by times DESC, a.name
              Output: a.name, count(*) AS times
                Having: count(*) > 1
                  Group by a.name
                    Filter: a.id < 100 AND s.place = 'zoo'
                      Inner join on s.animal = a.id
                        Scan of animal a: 2 of 3 columns, 1 of 3 pages, 2 changes in memory
                          Zone maps leave out 2: id < 100
                        Scan of seen s: 2 of 3 columns, 1 of 1 page""")


def test_subqueries_ctes_and_sets(connection: herdpy.Connection) -> None:
    text = """
        WITH light AS (SELECT id FROM animal WHERE kg < 5)
        SELECT name FROM animal WHERE id IN (SELECT id FROM light) OR EXISTS (SELECT 1 FROM seen)
        UNION ALL SELECT place FROM seen"""
    found = explained(connection, text)
    for line in ("Union all", "With light", "Rows of light", "Subquery 1", "Subquery 2"):
        assert line in found, found


def test_names_instead_of_repetitions(connection: herdpy.Connection) -> None:
    text = """
        SELECT date_trunc('month', day) AS month, round(avg(animal), 1) AS mean, sum(animal)
        FROM seen WHERE day - 1 > DATE '2019-01-01' GROUP BY 1 ORDER BY mean"""
    assert explained(connection, text) == textwrap.dedent("""\
        Vector path (DuckDB over the pages)
          Sort by mean
            Output: date_trunc('month', day::TIMESTAMPTZ) AS month, round(avg(animal), 1) AS mean, sum(animal)
              Group by month
                Filter: day - 1 > DATE '2019-01-01'
                  Scan of seen: 2 of 3 columns, 1 of 1 page""")  # noqa: E501 - golden


def test_writes(connection: herdpy.Connection) -> None:
    assert explained(connection, "INSERT INTO animal VALUES (-1, 'x', 1)") == textwrap.dedent("""\
        Insert into animal
          Row path
            Values: 1 row""")
    found = explained(
        connection, "UPDATE animal SET kg = kg + 1, name = 'y' WHERE id BETWEEN 1 AND 5"
    )
    assert found == textwrap.dedent("""\
        Update animal
          Set: kg = kg + 1.0, name = 'y'
          Row path
            Key range on animal: id >= 1 AND id <= 5; 1 of 3 pages, 2 changes in memory""")
    found = explained(connection, "DELETE FROM animal WHERE name LIKE 'x%'")
    assert found.startswith("Delete rows of animal\n  Vector path")
    assert connection.execute("SELECT count(*) FROM animal").fetchall() == [(10_000,)]


def test_analyze_runs_and_measures(connection: herdpy.Connection) -> None:
    found = explained(connection, "ANALYZE SELECT name FROM animal WHERE id = 3")
    assert re.search(r"\nRows: 1\nTime: [\d.]+ ms\nPages read: 1 of 3$", found), found
    found = explained(connection, "ANALYZE DELETE FROM animal WHERE id = 3")
    assert re.search(
        r"\nRows: 1\nTime: [\d.]+ ms\nPages read: 1 of 3\nLog wait: [\d.]+ ms$", found
    ), found
    assert connection.execute("SELECT name FROM animal WHERE id = 3").fetchall() == []


def test_analyze_in_a_transaction_can_be_rolled_back(connection: herdpy.Connection) -> None:
    connection.execute("BEGIN")
    found = explained(connection, "ANALYZE UPDATE animal SET name = 'x' WHERE id = 3")
    assert "Rows: 1" in found
    assert "Log wait" not in found
    connection.execute("ROLLBACK")
    assert connection.execute("SELECT name FROM animal WHERE id = 3").fetchall() == [("a3",)]


@pytest.mark.parametrize("text", ["CREATE TABLE x (y INTEGER)", "DROP TABLE animal", "BEGIN"])
def test_what_has_no_plan(connection: herdpy.Connection, text: str) -> None:
    with pytest.raises(herdpy.ProgrammingError) as caught:
        connection.execute(f"EXPLAIN ANALYZE {text}")
    assert caught.value.sqlstate == "42601"
    assert connection.execute("SELECT count(*) FROM animal").fetchall() == [(10_000,)]


def test_on_conflict_update(connection: herdpy.Connection) -> None:
    text = """INSERT INTO animal VALUES (1, 'x', 2) ON CONFLICT (id)
              DO UPDATE SET name = excluded.name, kg = animal.kg + 1 WHERE animal.kg > 1"""
    assert explained(connection, text) == textwrap.dedent("""\
        Insert into animal
          On conflict update
            Filter: animal.kg > 1.0
              Set: name = excluded.name, kg = animal.kg + 1.0
          Row path
            Values: 1 row""")
    text = """INSERT INTO animal VALUES (1, 'x', 2) ON CONFLICT (id)
              DO UPDATE SET name = upper(excluded.name)"""
    assert explained(connection, text) == textwrap.dedent("""\
        Insert into animal
          On conflict update, by the vector path
            Set: name = upper(excluded.name)
          Row path
            Values: 1 row""")


def test_update_from(connection: herdpy.Connection) -> None:
    text = "UPDATE animal SET name = place FROM seen s WHERE s.animal = id RETURNING id, s.day"
    assert explained(connection, text) == textwrap.dedent("""\
        Update animal
          Set: name = s.place
          Returning: animal.id, s.day
          Vector path (DuckDB over the pages)
            Distinct on animal.id
              Output: animal.id, s.place, s.day
                Filter: s.animal = animal.id
                  Cross join
                    Scan of animal: 1 of 3 columns, 3 of 3 pages, 2 changes in memory
                    Scan of seen s: 3 of 3 columns, 1 of 1 page""")


def test_returning(connection: herdpy.Connection) -> None:
    text = "UPDATE animal SET kg = 1 WHERE id = 3 RETURNING id, kg * 2"
    assert explained(connection, text) == textwrap.dedent("""\
        Update animal
          Set: kg = 1.0
          Returning: id, kg * 2.0
          Row path
            Point lookup on animal by key (id = 3); 1 of 3 pages, 2 changes in memory""")
    text = "INSERT INTO seen (animal, day) VALUES (1, DATE '2020-01-02') RETURNING upper(place)"
    assert explained(connection, text) == textwrap.dedent("""\
        Insert into seen
          Returning: upper(place), by the vector path
          Row path
            Values: 1 row""")
