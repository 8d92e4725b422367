"""lastrowid and sequences, over every way to the database."""

import herdpy


def test_the_last_row_that_a_sequence_fills(target: str) -> None:
    with herdpy.connect(target, autocommit=True) as conn:
        conn.execute("CREATE TABLE t (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v TEXT)")
        conn.execute("CREATE TABLE plain (id BIGINT PRIMARY KEY)")
        cursor = conn.cursor()
        assert cursor.lastrowid is None
        for expected in range(1, 5):  # the later ones by the fast path
            cursor.execute("INSERT INTO t (v) VALUES (?)", ("a",))
            assert cursor.lastrowid == expected
        cursor.execute("UPDATE t SET v = ? WHERE id = ?", ("b", 1))
        cursor.execute("SELECT v FROM t WHERE id = ?", (1,))
        cursor.execute("INSERT INTO plain VALUES (9)")
        assert cursor.lastrowid == 4
        cursor.execute("INSERT INTO t (v) VALUES ('c'), ('d') RETURNING id")
        assert (cursor.lastrowid, cursor.fetchall()) == (6, [(5,), (6,)])
        cursor.executemany("INSERT INTO t (v) VALUES (?)", [("e",), ("f",)])
        assert cursor.lastrowid == 6
        cursor.execute("INSERT INTO t OVERRIDING SYSTEM VALUE VALUES (70, 'g')")
        assert cursor.lastrowid == 70
        assert conn.cursor().lastrowid is None


def test_values_in_a_transaction(target: str) -> None:
    with herdpy.connect(target) as conn:
        conn.execute("CREATE TABLE t (id SERIAL PRIMARY KEY, v TEXT)")
        cursor = conn.cursor()
        for expected in (1, 2, 3):
            cursor.execute("INSERT INTO t (v) VALUES (?)", ("a",))
            assert cursor.lastrowid == expected
        conn.rollback()
        conn.execute("CREATE SEQUENCE s")
        conn.commit()
        assert conn.execute("SELECT nextval('s'), lastval()").fetchall() == [(1, 1)]
        conn.rollback()
        assert conn.execute("SELECT nextval('s'), currval('s')").fetchall() == [(2, 2)]
