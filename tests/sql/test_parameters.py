"""Every *.test file with its strings as parameters: they mean what the untyped literals mean."""

import re
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

import herdpy
from tests.sql.runner import difference, read_blocks

FILES = sorted(Path(__file__).parent.glob("*.test"))
# Where a constant must stand, or where two strings are one.
_TYPES = r"\b(?:date|timestamp|timestamptz|interval|real|float4|smallint|int2)"
_FIXED_BEFORE = re.compile(
    rf"({_TYPES}|zone|escape|\be|date_(?:trunc|part)\(|to_char\(.*,|val\(|serial_sequence\(.*|'\s*"
    r"|set_config\(.*)$",
    re.IGNORECASE,
)
_FIXED_AFTER = re.compile(r"::interval|\s+AT TIME|\s*\n\s*'")
# One whose first error is another one.
EXCEPT = "SELECT 1 UNION SELECT 'x' UNION SELECT now()"


def parametrized(text: str) -> tuple[str, list[str]]:
    """Return the statement with its strings replaced by ?, and the strings."""
    parameters: list[str] = []

    def replace(match: re.Match[str]) -> str:
        before, after = text[: match.start()].rstrip(" "), text[match.end() :]
        if _FIXED_BEFORE.search(before) or _FIXED_AFTER.match(after):
            return match[0]
        parameters.append(match[0][1:-1].replace("''", "'"))
        return "?"

    if text.split()[0].upper() in ("ALTER", "CREATE", "DROP", "SET") or text == EXCEPT:
        return text, []
    return re.sub(r"'(?:[^']|'')*'", replace, text), parameters


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_strings_as_parameters(target: str, path: Path) -> None:
    connection = herdpy.connect(target, autocommit=True)
    failures: list[str] = []
    count = 0
    for block in read_blocks(path):
        text, parameters = parametrized(block.text)
        count += len(parameters)
        found: str | None = None
        rows, description = [], ()
        try:
            cursor = connection.execute(text, parameters)
            description = cursor.description or ()
            rows = cursor.fetchall() if description else []
        except herdpy.Error as error:
            found = error.sqlstate
        wrong = difference(rows, block, description) if block.rows is not None else None
        if found != block.sqlstate or wrong is not None:
            failures.append(f"{path.name}:{block.line} {text} {parameters}: {found} {wrong}")
    connection.close()
    assert not failures, "\n".join(failures)
    assert count > 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT ? UNION SELECT 1", [(1,)]),
        ("SELECT 1 UNION SELECT ? ORDER BY 1", [(1,)]),
        ("SELECT * FROM (SELECT ? AS x UNION ALL SELECT 2) AS q WHERE x < 2", [(1,)]),
        ("SELECT 1 WHERE 1 IN (SELECT ?)", [(1,)]),
        ("SELECT coalesce(NULL, ?)", [(1,)]),
        ("SELECT sum(a) OVER (ORDER BY a) FROM (VALUES (?)) AS v (a)", [(1,)]),
        ("SELECT substring('abc', ?)", [("abc",)]),
        ("SELECT DATE '2020-01-01' + ? = DATE '2020-01-02'", [(True,)]),
        ("SELECT count(*) FROM (VALUES (1), (2)) AS v (a) GROUP BY a + ? LIMIT 1", [(1,)]),
        ("WITH w AS (SELECT ? AS a) SELECT a FROM w", [(1,)]),
    ],
)
def test_an_integer_anywhere(target: str, text: str, expected: list[tuple[object, ...]]) -> None:
    connection = herdpy.connect(target, autocommit=True)
    assert connection.execute(text, [1]).fetchall() == expected
    connection.close()


BESIDE_A_DECIMAL = {
    "SELECT m = ? FROM t": (False, True, False),
    "SELECT ? < m FROM t": (True, False, False),
    "SELECT m + ? FROM t": (Decimal("3.115"), Decimal("3.12"), Decimal("12345678902.06")),
    "SELECT m * ? FROM t": (Decimal("2.42580"), Decimal("2.4336"), Decimal("19259259084.7800")),
    "SELECT m IN (?, 7) FROM t": (False, True, False),
    "SELECT m BETWEEN ? AND 1.56 FROM t": (True, True, False),
    "SELECT coalesce(nullif(m, 1.56), ?) FROM t": (
        Decimal("1.555"), Decimal("1.56"), Decimal("12345678900.50"),
    ),
    "SELECT max(m) FROM (SELECT m FROM t UNION SELECT ?) AS q": (
        Decimal("1.560"), Decimal("1.56"), Decimal("12345678900.50"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", BESIDE_A_DECIMAL)
def test_a_text_beside_a_decimal_keeps_its_digits(target: str, text: str) -> None:
    """Whatever plan of the statement is there already."""
    given = ("1.555", "1.56", "12345678900.50")
    with herdpy.connect(target, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, m NUMERIC(10,2))")
        connection.execute("INSERT INTO t VALUES (1, 1.56)")
        for order in (given, given[::-1]):
            for value in order:
                expected = BESIDE_A_DECIMAL[text][given.index(value)]
                assert connection.execute(text, (value,)).fetchall() == [(expected,)], value
        with pytest.raises(herdpy.DataError) as caught:
            connection.execute(text, ("x",)).fetchall()
        assert caught.value.sqlstate == "22P02"


def test_changes_by_texts_beside_decimals(target: str) -> None:
    with herdpy.connect(target, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, m NUMERIC(10,2))")
        connection.execute("INSERT INTO t VALUES (1, 1.56), (2, 1.57), (3, 1.58)")
        items = [("1.565", "1.555"), ("1.575", "1.57"), ("1.585", "1.585")]
        connection.executemany("UPDATE t SET m = ? WHERE m = ?", items)
        assert connection.execute("SELECT m FROM t ORDER BY id").fetchall() == [
            (Decimal("1.56"),), (Decimal("1.58"),), (Decimal("1.58"),)
        ]  # fmt: skip
        rows = [(4, "1.001"), (5, "2.5"), (6, "3.00")]
        connection.executemany("INSERT INTO t VALUES (?, 0.50 + ?)", rows)
        assert connection.execute("SELECT m FROM t WHERE id > 3 ORDER BY id").fetchall() == [
            (Decimal("1.50"),), (Decimal("3.00"),), (Decimal("3.50"),)
        ]  # fmt: skip


@pytest.mark.parametrize("query", ["SELECT 1 AS a LIMIT ?", "SELECT count(*) LIMIT ?"])
def test_a_negative_row_count_is_refused_by_both_paths(target: str, query: str) -> None:
    with herdpy.connect(target, autocommit=True) as connection:
        for text, state in ((query, "2201W"), (query.replace("LIMIT", "OFFSET"), "2201X")):
            with pytest.raises(herdpy.DataError) as caught:
                connection.execute(text, (-1,))
            assert caught.value.sqlstate == state


@pytest.mark.parametrize(
    "text",
    [
        "SELECT ?, k, ? FROM u GROUP BY 1, 2, 3",
        "SELECT ? AS a, k, ? AS b FROM u GROUP BY k, a, b ORDER BY b, a",
        "SELECT DISTINCT ?, k, ? FROM u ORDER BY 3, 1",
        "SELECT DISTINCT ON (3) ?, k, ? FROM u ORDER BY 3",
    ],
)
@pytest.mark.parametrize("before", ["INSERT INTO t", "SELECT * FROM t UNION ALL"])
def test_keys_whose_types_others_decide(target: str, before: str, text: str) -> None:
    connection = herdpy.connect(target, autocommit=True)
    connection.execute("CREATE TABLE u (k INTEGER PRIMARY KEY)")
    connection.execute("CREATE TABLE t (a INTEGER, k INTEGER, d DATE)")
    connection.execute("INSERT INTO u VALUES (7)")
    cursor = connection.execute(f"{before} ({text})", [1, "2020-01-31"])
    rows = connection.execute("SELECT * FROM t") if cursor.description is None else cursor
    assert rows.fetchall() == [(1, 7, date(2020, 1, 31))]
    connection.close()
