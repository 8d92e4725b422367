"""Differential fuzz of whole statements: by row path and by vector path they give the same.

LIMIT keeps a query without aggregates in the row path, a derived table takes it to the vector path;
both are asserted by EXPLAIN. HERDPY_EXAMPLES sets the number (make fuzz N=…).
"""

import os
import random

import pytest

import herdpy
from herdpy.driver.connection import Connection
from tests.sql.runner import shown

COLUMNS = {
    "i": ("INTEGER", ["0", "1", "-1", "7", "2147483647", "-2147483648"]),
    "l": ("BIGINT", ["0", "1", "-1", "9007199254740993", "9223372036854775807"]),
    "d": ("DOUBLE PRECISION", ["0", "'-0'", "1.5", "-2.5", "1e300", "'NaN'", "'-Infinity'"]),
    "n": ("NUMERIC(10,2)", ["0", "1.25", "-1.25", "99999999.99", "0.01"]),
    "s": ("TEXT", ["''", "'a'", "'A'", "'ab'", "'é'", "' '"]),
    "b": ("BOOLEAN", ["true", "false"]),
    "t": ("DATE", ["'2020-02-29'", "'1969-12-31'", "'0001-01-01'"]),
    "z": ("TIMESTAMPTZ", ["'2024-01-31 12:00+02'", "'1969-12-31 23:59:59.5'", "'9999-12-31'"]),
    "y": ("BYTEA", ["''", "'\\x00'", "'\\xff'"]),
}
COUNT = int(os.environ.get("HERDPY_EXAMPLES", "300"))


class Writer:
    """Writes random conditions that the row path can do."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def operand(self, column: str) -> str:
        kind, values = COLUMNS[column]
        draw = self.chance.random()
        if draw < 0.5:
            return column
        if draw < 0.57:
            return f"CAST(NULL AS {kind})"
        value = f"CAST({self.chance.choice(values)} AS {kind})"
        if draw < 0.75 and column in ("i", "l"):
            return f"({column} {self.chance.choice('+-*')} {self.chance.choice(['1', '2', '-1'])})"
        return value

    def condition(self, depth: int) -> str:
        pick = self.chance.choice
        if depth and self.chance.random() < 0.5:
            if self.chance.random() < 0.3:
                return f"(NOT {self.condition(depth - 1)})"
            word = pick(["AND", "OR"])
            return f"({self.condition(depth - 1)} {word} {self.condition(depth - 1)})"
        column = pick(list(COLUMNS))
        left, right = self.operand(column), self.operand(column)
        draw = self.chance.random()
        if draw < 0.6:
            return f"({left} {pick(['=', '<>', '<', '<=', '>', '>='])} {right})"
        if draw < 0.75:
            return f"({left} {pick(['', 'NOT '])}IN ({right}, {self.operand(column)}))"
        if draw < 0.85:
            word = pick(["", "SYMMETRIC "])
            return f"({left} BETWEEN {word}{right} AND {self.operand(column)})"
        if draw < 0.92:
            pair = f"{self.operand(column)}) {pick(['<', '>=', '='])} ({right}"
            return f"(({left}, {pair}, {self.operand(column)}))"
        return f"({left} IS {pick(['', 'NOT '])}NULL)"


def filled(chance: random.Random) -> Connection:
    """Return a table of random rows, some in pages, some not."""
    connection = herdpy.connect(":memory:", autocommit=True)
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())
    connection.execute(f"CREATE TABLE f (id INTEGER PRIMARY KEY, {columns})")
    for key in range(40):
        values = ", ".join(chance.choice([*items, "NULL"]) for _, items in COLUMNS.values())
        connection.execute(f"INSERT INTO f VALUES ({key}, {values})")
        if key == 25:
            connection.checkpoint()
    connection.execute("DELETE FROM f WHERE id IN (3, 30)")
    connection.execute("UPDATE f SET i = 7 WHERE id BETWEEN 20 AND 22")
    return connection


def outcome(connection: Connection, text: str) -> object:
    try:
        return [tuple(map(shown, row)) for row in connection.execute(text).fetchall()]
    except herdpy.Error as error:
        return error.sqlstate


@pytest.mark.parametrize("part", range(3))
def test_fuzz_row_path_against_vector_path(part: int) -> None:
    seed = int(os.environ.get("HERDPY_SEED", "0")) or random.SystemRandom().randrange(2**32)
    chance = random.Random(seed + part)
    connection = filled(chance)
    try:
        writer, compared = Writer(chance), 0
        for _ in range(COUNT // 3):
            outputs = ", ".join(writer.operand(name) for name in COLUMNS)
            where = writer.condition(3)
            body = f"SELECT id, {outputs} FROM f WHERE {where}"
            by_rows = f"{body} ORDER BY id LIMIT 1000000"
            by_vectors = f"SELECT * FROM ({body}) AS q ORDER BY id"
            first, second = outcome(connection, by_rows), outcome(connection, by_vectors)
            if "22003" in (first, second):  # the order of AND's operands is not defined
                assert any(sign in body for sign in ("(i ", "(l ")), body
                continue
            assert first == second, f"HERDPY_SEED={seed} part {part}: {by_rows}"
            compared += 1
        assert compared > COUNT // 6
        plans = [
            str(connection.execute(f"EXPLAIN {text}").fetchall()) for text in (by_rows, by_vectors)
        ]
        assert [("Row path" in plan, "Vector path" in plan) for plan in plans] == [
            (True, False),
            (False, True),
        ], plans
    finally:
        connection.close()


def test_an_overflow_in_a_test_is_found_by_both_paths() -> None:
    """One test alone, whose operands are computed for every row: 22003 by both paths or by none."""
    seed = int(os.environ.get("HERDPY_SEED", "0")) or random.SystemRandom().randrange(2**32)
    chance = random.Random(seed)
    connection = filled(chance)
    pick, overflows = chance.choice, 0
    try:
        for _ in range(COUNT // 3):
            column = pick(["i", "l"])
            limits = ["2147483647", "-2147483648"] if column == "i" else [str(2**63 - 1)]
            sides = [column, pick(["0", "1", "-1", "2", *limits])]
            chance.shuffle(sides)
            computed = f"({sides[0]} {pick('+-*')} {sides[1]})"
            computed = pick([computed, f"CAST({computed} AS BIGINT)", f"(- {computed})"])
            test = pick(
                [
                    "= 1",
                    "<> 7",
                    "< 0",
                    ">= 2147483647",
                    "IS NULL",
                    "IN (1)",
                    "NOT IN (1, 2)",
                    "IS DISTINCT FROM 3",
                    f"= {column}",
                    "> -2147483648",
                    "IS NOT NULL",
                ]
            )
            body = f"SELECT id FROM f WHERE {computed} {test}"
            first = outcome(connection, f"{body} ORDER BY id LIMIT 1000000")
            for by_vectors in (f"SELECT * FROM ({body}) AS q ORDER BY id",
                               f"SELECT id FROM f WHERE CASE WHEN {computed} {test} THEN TRUE END"
                               " ORDER BY id"):  # fmt: skip
                assert first == outcome(connection, by_vectors), f"HERDPY_SEED={seed}: {by_vectors}"
            overflows += first == "22003"
        assert overflows
    finally:
        connection.close()
