"""The closed list of what differs from PostgreSQL: each with its rule, a reason, and both answers.

docs/reference/sql.md shows it (`make reference` writes it there). tests/sql/test_deviations.py runs
the examples on herdpy over every transport, test_pg_oracle.py here on both servers. Of each
difference that generated statements find, `make pg-oracle` asks whether a deviation matches it.
"""

import math
import re
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

from tests.pg_oracle.answers import Answer, Difference, is_same
from tests.pg_oracle.rules import SUBQUERY
from tests.pg_oracle.values import K

Result = list[str] | str | None
"""Rows as psql shows them, values between " | "; a SQLSTATE; None for success without rows."""
Example = tuple[str, Result, Result]
"""A statement, and what herdpy and PostgreSQL make of it."""


def _never(_: Difference) -> bool:
    return False


class Deviation(NamedTuple):
    """A difference by design; its examples run one after the other in a session of their own."""

    rule: str
    reason: str
    examples: tuple[Example, ...]
    matches: Callable[[Difference], bool] = _never
    """Whether it is why an expression's answers differ; by default no generated one meets it."""


# --- what differences of generated statements are ---


def _numbers(answer: Answer) -> Iterator[Decimal | None]:
    """Yield the numbers of the last column; NULL and what is no number as None."""
    for row in answer.rows:
        try:
            yield None if row[-1] is None else Decimal(row[-1])
        except InvalidOperation:
            yield None


def _is_near(difference: Difference) -> bool:
    """Tell whether numbers are the same but for the digits that one of the two leaves out."""
    ours, theirs = (tuple(_numbers(answer)) for answer in (difference.ours, difference.theirs))
    if len(ours) != len(theirs):
        return False
    for mine, yours in zip(ours, theirs, strict=True):
        if mine is None or yours is None or not (mine.is_finite() and yours.is_finite()):
            if mine != yours and not (mine is not None and mine.is_nan()):
                return False
            continue
        places = [int(each.as_tuple().exponent) for each in (mine, yours)]
        last = Decimal(1).scaleb(max(min(place, 0) for place in places))
        if abs(mine - yours) > last + abs(yours) * Decimal("1e-12"):
            return False
    return True


def _kinds(difference: Difference) -> tuple[object, object]:
    """Return the types of the value, None for an error."""
    ours, theirs = difference.ours.kinds[-1:], difference.theirs.kinds[-1:]
    return (ours or (None,))[0], (theirs or (None,))[0]


def _is_field_of_no_interval(difference: Difference) -> bool:
    is_ours = (
        difference.ours.sqlstate == "0A000" and "an interval has no" in difference.ours.message
    )
    return is_ours and difference.label.startswith("extract(") and not difference.theirs.sqlstate


def _is_integer_sum(difference: Difference) -> bool:
    if not difference.label.startswith("sum("):
        return False
    if difference.ours.sqlstate == "22003":
        return _kinds(difference)[1] is K.DECIMAL
    return _kinds(difference) == (K.BIGINT, K.DECIMAL) and _is_near(difference)


def _is_real_sum(difference: Difference) -> bool:
    """A sum of REALs that PostgreSQL has rounded after each of its values."""
    if not difference.label.startswith("sum(") or _kinds(difference) != (K.REAL, K.REAL):
        return False
    values = [abs(float(row[-1])) for part in difference.parts for row in part.rows if row[-1]]
    largest = max((value for value in values if math.isfinite(value)), default=0.0)
    pairs = zip(_numbers(difference.ours), _numbers(difference.theirs), strict=True)
    return all(
        mine == yours
        or (mine is not None and yours is not None and abs(mine - yours) <= largest * 1e-5)
        for mine, yours in pairs
    )


def _is_quotient(difference: Difference) -> bool:
    if " / " not in difference.label and not difference.label.startswith("avg("):
        return False
    return _kinds(difference) == (K.DECIMAL, K.DECIMAL) and _is_near(difference)


def _has_decimals(difference: Difference) -> bool:
    node = difference.node
    return any(part.kind is K.DECIMAL for part in (node, *node.parts))


def _is_too_wide(difference: Difference) -> bool:
    """22003 where PostgreSQL has more digits than 38, or has types without any."""
    is_refused = difference.ours.sqlstate in ("22003", "22P02", "22023")
    is_nan = difference.label.endswith("into numeric") and any(
        row[-1] == "NaN" for part in difference.parts for row in part.rows
    )
    has_decimals = is_nan or _has_decimals(difference)
    return is_refused and difference.theirs.sqlstate is None and has_decimals


_OF_DOUBLES = ("sqrt(", "exp(", "ln(", "log(", "log10(", "power(", "pow(", "stddev", "var")


def _is_of_doubles(difference: Difference) -> bool:
    is_double = _kinds(difference) == (K.DOUBLE, K.DECIMAL) and _is_near(difference)
    if not _computes_doubles(difference.label):
        # A CASE, say, has the type of such a part, which is an error where it stands alone.
        return is_double and any(_computes_doubles(part.label) for part in difference.node.parts)
    if difference.ours.sqlstate is not None or difference.theirs.sqlstate is not None:
        return "22003" in (difference.ours.sqlstate, difference.theirs.sqlstate)
    return is_double


def _computes_doubles(label: str) -> bool:
    return label.startswith(_OF_DOUBLES) or " ^ " in label


def _is_overflow(difference: Difference) -> bool:
    """22003 for what is Infinity or 0 of doubles here, 22012 for NaN / 0."""
    if K.DOUBLE not in (difference.node.kind, *(part.kind for part in difference.node.parts)):
        return False
    return difference.theirs.sqlstate == "22003" or difference.ours.sqlstate == "22012"


_MOMENT_CODES = ("22007", "22008", "22009")


def _is_beyond_years(difference: Difference) -> bool:
    return difference.ours.sqlstate in _MOMENT_CODES and difference.theirs.sqlstate is None


def _without_zeros(text: str | None) -> str | None:
    found = None if text is None else re.sub(r"(\.\d*?)0+(?!\d)", r"\1", text)
    return None if found is None else re.sub(r"\.(?!\d)", "", found)


def _is_scale(difference: Difference) -> bool:
    """Texts of numbers that differ by zeros behind the point alone."""
    ours, theirs = difference.ours, difference.theirs
    if ours.kinds != theirs.kinds or not ours.kinds or len(ours.rows) != len(theirs.rows):
        return False
    return all(
        [*map(_without_zeros, mine)] == [*map(_without_zeros, yours)]
        for mine, yours in zip(ours.rows, theirs.rows, strict=True)
    )


_LATER_PARTS = (
    "AND", "OR", "IN", "NOT IN", "BETWEEN", "NOT BETWEEN", "row", "CASE", "coalesce", "lag(",
    "lead(", "pg_typeof(",
)  # fmt: skip
_VALUE_CLASSES = ("21", "22", "54")


def _is_null(answer: Answer) -> bool:
    return answer.sqlstate is None and all(row[-1] is None for row in answer.rows)


def _is_unneeded(difference: Difference) -> bool:
    """One server raises what a part raises alone on both; the other had no need of the part."""
    codes = [answer.sqlstate for answer in (difference.ours, difference.theirs)]
    failing = {part.sqlstate for part in difference.parts} - {None}
    raised = failing.intersection(codes)
    is_change = difference.node.kind is K.UNKNOWN
    if failing.issuperset(codes) and not any(str(code).startswith("XX") for code in codes):
        return True  # each names another one of several errors
    if is_change and {str(code)[:2] for code in codes} == {"22", "23"}:
        return True  # of two rows, each refused, the first: by key here, by its place there
    if is_change and codes[0] == "22003" and str(codes[1])[:2] == "42" and codes[1] in failing:
        return True  # the assignment of a constant, here before types
    if is_change and difference.ours.row_count == 0 and codes[0] is None:
        raised.add(codes[1])  # the assignment of a constant, which no part of it is
    if not raised or not all(str(code)[:2] in _VALUE_CLASSES for code in raised):
        return False
    if None not in codes:  # a constant fails before types, and rows' values before constraints
        # 42804: a type that cannot be assigned, which no part of a change shows alone.
        others = ("23", "42804") if is_change else ("42",)
        return all(code in failing or str(code).startswith(others) for code in codes)
    if is_change:
        return True
    has_null = any(map(_is_null, difference.parts))
    later = difference.label.startswith(_LATER_PARTS) or "(ARRAY of" in difference.label
    later |= difference.label.endswith(" OVER")  # of a row that is in no frame
    later |= difference.label.startswith(SUBQUERY)  # whose conditions are estimated
    is_comparison = difference.label.startswith(("<", ">", "="))
    is_of_case = any(part.label.startswith("CASE") for part in difference.node.parts)
    later |= is_comparison and is_of_case and codes[0] is None
    later |= bool(re.search(r"\((date, timestamp|timestamp(tz)?, date)", difference.label))
    return has_null or later


def _is_spread_rounding(difference: Difference) -> bool:
    """A standard deviation or variance that PostgreSQL's loses digits of."""
    if not difference.label.startswith(("stddev", "var")):
        return False
    if _kinds(difference) not in ((K.DOUBLE, K.DOUBLE), (K.DOUBLE, K.DECIMAL)):
        return False
    sizes = [abs(float(row[-1])) for part in difference.parts for row in part.rows if row[-1]]
    largest = max((size for size in sizes if math.isfinite(size)), default=0.0)
    least = largest * 1e-7 if difference.label.startswith("stddev") else largest**2 * 1e-14
    pairs = zip(_numbers(difference.ours), _numbers(difference.theirs), strict=True)
    return all(
        mine == yours or (mine is not None and yours is not None and abs(mine - yours) <= least)
        for mine, yours in pairs
    )


def _is_equal_interval(difference: Difference) -> bool:
    """Another one of intervals that are equal, as 1 month and 30 days are."""
    is_chosen = difference.label.startswith(("greatest(", "least(", "min(", "max("))
    return is_chosen and "interval" in difference.label and None not in _kinds(difference)


def _is_last_digit(difference: Difference) -> bool:
    """A DOUBLE that is the same to 12 digits, found as what a text was made of."""
    return _kinds(difference) == (K.DOUBLE, K.DOUBLE) and is_same(*difference[3:5])


def _takes_bigint(difference: Difference) -> bool:
    return difference.theirs.sqlstate == "42883" and "bigint" in difference.label


def _nested(depth: int) -> str:
    """Return simple CASEs, each in a branch of another."""
    text = "3"
    for _ in range(depth):
        text = f"CASE a + 1 WHEN 1 THEN {text} WHEN 2 THEN 2 END"
    return text


DEVIATIONS: tuple[Deviation, ...] = (
    Deviation(
        "A right on the tablespace holds for all of its tables; there is no schema"
        " but public and no rights on columns. REVOKE by an owner or a superuser takes a right"
        " away, of every grantor, and REVOKE of a role takes no CASCADE. There is no"
        " SET ROLE and no current_user.",
        "A tablespace has its own users, and a right on all that it holds is what a server"
        " of one program needs.",
        (
            ("CREATE TABLE t (a INT)", None, None),
            ("CREATE USER ann", None, None),
            ("GRANT SELECT ON TABLESPACE default TO ann", None, "42601"),
            ("SELECT object_name FROM sysgrants", ["default"], "42P01"),
            ("GRANT USAGE ON SCHEMA s TO ann", "0A000", "3F000"),
            ("GRANT SELECT (a) ON t TO ann", "0A000", None),
            ("CREATE ROLE staff", None, None),
            ("REVOKE staff FROM ann CASCADE", "0A000", None),
            ("SET ROLE staff", "0A000", None),
            ("SELECT current_user", "0A000", ["staff"]),
        ),
    ),
    Deviation(
        "A failed statement is undone alone; its transaction goes on. After 40001,"
        " 40P01 and 25P03 it was rolled back, savepoints too: everything but ROLLBACK"
        " and COMMIT is refused with 25P02, and COMMIT fails, too.",
        "A program that catches an error goes on without a savepoint before each"
        " statement; where the transaction's own snapshot is lost there is nothing to"
        " go on with.",
        (
            ("BEGIN", None, None),
            ("SELECT 1 / 0", "22012", "22012"),
            ("SELECT 2", ["2"], "25P02"),
            ("COMMIT", None, None),
        ),
    ),
    Deviation(
        "In REPEATABLE READ an INSERT of a key that was committed since the snapshot is"
        " 40001, where PostgreSQL says 23505; so is a definition of a table that was"
        " made, dropped or truncated since. A unique value that was given up since is"
        " 40001 for who takes it, where PostgreSQL shows that transaction two rows with"
        " one value. A row that a compaction has moved, while"
        " two checkpoints wrote changes of its table, counts as changed.",
        "The program is to run its transaction again either way; pages keep no versions"
        " of their rows (ADR 67).",
        (
            ("CREATE TABLE t (a INT PRIMARY KEY)", None, None),
            ("BEGIN ISOLATION LEVEL REPEATABLE READ", None, None),
            ("INSERT INTO t VALUES (1)", None, None),
            ("INSERT INTO t VALUES (1)", "23505", "23505"),
            ("ROLLBACK", None, None),
        ),
    ),
    Deviation(
        "SET TRANSACTION outside of a transaction is an error (25P01); PostgreSQL warns"
        " and ignores it. READ UNCOMMITTED is shown as what it is, READ COMMITTED."
        " Locks taken behind a savepoint stay when it is gone back to.",
        "A program that asks for a level is not to believe that it has it; whose lock"
        " was whose is not kept.",
        (
            ("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "25P01", None),
            ("BEGIN ISOLATION LEVEL READ UNCOMMITTED", None, None),
            ("SHOW transaction_isolation", ["read committed"], ["read uncommitted"]),
            ("ROLLBACK", None, None),
        ),
    ),
    Deviation(
        "A result is read on behind COMMIT, and behind ROLLBACK and ROLLBACK TO (or an"
        " error that rolls back), as it was when its statement ran; PostgreSQL closes"
        " its cursors at these. Only a result that shows what its transaction wrote"
        " itself ends with a rollback: the next fetch fails with 24000. Rows that the"
        " driver has already got from a server stay readable.",
        "Rows come from a snapshot that stays as long as it is read, so ending the"
        " transaction takes nothing from them.",
        (
            ("CREATE TABLE t (a INT)", None, None),
            ("BEGIN", None, None),
            ("INSERT INTO t VALUES (1)", None, None),
            ("SELECT a FROM t", ["1"], ["1"]),
            ("ROLLBACK", None, None),
            ("SELECT a FROM t", [], []),
        ),
    ),
    Deviation(
        "sum of INTEGER and BIGINT is BIGINT, 22003 beyond; PostgreSQL's sum(bigint) is numeric.",
        "A sum of integers stays a whole number of 64 bits, which Arrow, pandas and"
        " Spark take as it is, and never wraps round.",
        (
            (
                "SELECT sum(x) FROM (VALUES (9223372036854775807), (1)) AS v (x)",
                "22003",
                ["9223372036854775808"],
            ),
        ),
        _is_integer_sum,
    ),
    Deviation(
        "sum of REALs adds them up in 64 bits and rounds once; PostgreSQL rounds each of its"
        " steps to 32.",
        "In 32 bits the sum of a million values has few right digits, and another one in each"
        " order of the rows, which nothing keeps.",
        (
            (
                "SELECT sum(x) FROM (VALUES (1e8::real), (1::real), (-1e8::real)) AS v (x)",
                ["1"],
                ["0"],
            ),
        ),
        _is_real_sum,
    ),
    Deviation(
        "A quotient of DECIMALs and avg have the scale max(16, those of the operands),"
        " 22003 beyond 38 digits; PostgreSQL's scale depends on the values.",
        "A DECIMAL's scale is a part of its type, which is known before the first row;"
        " Arrow and Parquet want it so.",
        (
            ("SELECT 1.0 / 3", ["0.3333333333333333"], ["0.33333333333333333333"]),
            (
                "SELECT avg(x) FROM (VALUES (1), (2)) AS v (x)",
                ["1.5000000000000000"],
                ["1.5000000000000000"],
            ),
        ),
        _is_quotient,
    ),
    Deviation(
        "DECIMAL has at most 38 digits; numeric without digits is refused where it"
        " would need a guess, and there is no numeric NaN.",
        "DECIMALs are integers of 128 bits, in DuckDB, Arrow and Spark alike; digits"
        " that only the values tell are no type there.",
        (
            ("CREATE TABLE x (a NUMERIC)", "0A000", None),
            ("SELECT CAST(sqrt(4::float8) AS numeric)", "0A000", ["2"]),
            ("SELECT 'NaN'::numeric(5,2)", "22P02", ["NaN"]),
        ),
        _is_too_wide,
    ),
    Deviation(
        "sqrt, exp, ln, log, power, stddev and variance compute in DOUBLE, of DECIMALs"
        " too; there is no log(b, x).",
        "DuckDB has these for doubles only, and a DECIMAL of fixed scale could not hold"
        " their results.",
        (
            ("SELECT sqrt(2.0)", ["1.4142135623730951"], ["1.414213562373095"]),
            (
                "SELECT stddev(x) FROM (VALUES (1), (3)) AS v (x)",
                ["1.4142135623730951"],
                ["1.4142135623730950"],
            ),
            ("SELECT log(2.0, 8.0)", "42883", ["3.0000000000000000"]),
        ),
        _is_of_doubles,
    ),
    Deviation(
        "DOUBLE arithmetic that overflows gives Infinity instead of 22003, and NaN / 0 is 22012.",
        "Arithmetic of doubles is the processor's in both paths; a test of each result"
        " would cost as much as the result.",
        (
            ("SELECT 1e308::float8 * 10", ["Infinity"], "22003"),
            ("SELECT 'NaN'::float8 / 0", "22012", ["NaN"]),
        ),
        _is_overflow,
    ),
    Deviation(
        "Dates and timestamps are of the years 1 to 9999, written as 2024-01-31 and"
        " 2024-01-31 23:59:58.123456; other forms are 22007.",
        "Python's dates, Arrow's and DuckDB's text have these years, and one written"
        " form is read by all without settings.",
        (
            ("SELECT '20240131'::date", "22007", ["2024-01-31"]),
            ("SELECT 'infinity'::timestamp", "22007", ["infinity"]),
            ("SELECT DATE '9999-12-31' + 1", "22008", ["10000-01-01"]),
        ),
        _is_beyond_years,
    ),
    Deviation(
        "The time zone of every session is UTC: SET TIME ZONE and AT TIME ZONE take no"
        " other (0A000), and a zone in a text is an offset, UTC, GMT or Z (22007).",
        "One moment reads alike in every session, on both paths and in every page, and"
        " no library of zones can change it (ADR 28).",
        (
            ("SET TIME ZONE 'Europe/Rome'", "0A000", None),
            ("SET timezone = '+02'", "0A000", None),
            ("SET TIME ZONE 'UTC'", None, None),
            (
                "SELECT timestamptz '2024-01-31 12:00Z' AT TIME ZONE 'Europe/Rome'",
                "0A000",
                ["2024-01-31 13:00:00"],
            ),
            (
                "SELECT '2024-01-31 12:00 Europe/Rome'::timestamptz",
                "22007",
                ["2024-01-31 11:00:00+00"],
            ),
            ("SELECT '2024-01-31 12:00 CET'::timestamptz", "22007", ["2024-01-31 11:00:00+00"]),
        ),
    ),
    Deviation(
        "An interval is no type of a column (0A000); a result counts its months as 30"
        " days, as a timedelta of Python, and ends at 292,000 years (22008).",
        "A timedelta of Python knows neither months nor years, so a stored interval"
        " would come back as another.",
        (
            ("CREATE TABLE x (a INTERVAL)", "0A000", None),
            ("SELECT INTERVAL '1 month 1 day'", ["31 days"], ["1 mon 1 day"]),
            ("SELECT (INTERVAL '1 month 1 day')::text", ["1 mon 1 day"], ["1 mon 1 day"]),
            ("SELECT INTERVAL '300000 years'", "22008", ["300000 years"]),
            ("SELECT (INTERVAL '300000 years')::text", ["300000 years"], ["300000 years"]),
        ),
    ),
    Deviation(
        "A DECIMAL has the scale of its type: the values of a column of VALUES, of"
        " CASE, coalesce, greatest, least and UNION all have the largest scale of them,"
        " also as text; in PostgreSQL each keeps its own.",
        "A column of fixed scale is one of integers: no value of it has digits of its own.",
        (
            (
                "SELECT a::text FROM (VALUES (1.5), (2.25)) AS v (a)",
                ["1.50", "2.25"],
                ["1.5", "2.25"],
            ),
            ("SELECT coalesce(1.5, 2.25)::text", ["1.50"], ["1.5"]),
            ("SELECT (CASE WHEN true THEN 1.5 ELSE 2.25 END)::text", ["1.50"], ["1.5"]),
            (
                "SELECT a::text FROM (SELECT 1.5 AS a UNION SELECT 2.25) AS q ORDER BY a",
                ["1.50", "2.25"],
                ["1.5", "2.25"],
            ),
        ),
        _is_scale,
    ),
    Deviation(
        "Text compares by code point, as with the collation C; upper and lower know all"
        " of Unicode, a character at a time as the C library does: upper('ß') is 'ß'.",
        "The order of keys in pages is that of their bytes; it must not depend on the"
        " machine's locale.",
        (
            ("SELECT 'a' > 'Z', upper('é')", ["t | É"], ["t | É"]),
            ("SELECT upper('ß'), lower('ẞ'), upper('ŉ')", ["ß | ß | ŉ"], ["ß | ß | ŉ"]),
        ),
    ),
    Deviation(
        "A LIKE pattern that ends in its escape character is 22025 even where no row"
        " reaches the end; ESCAPE takes a constant.",
        "The pattern is read before the rows, by DuckDB, and one that can never match"
        " is a mistake.",
        (
            ("SELECT 'x' LIKE 'a\\'", "22025", ["f"]),
            ("SELECT 'x' LIKE 'a' ESCAPE lower('A')", "0A000", "22025"),
        ),
    ),
    Deviation(
        "Refused with 0A000: an aggregate over columns of an outer query alone,"
        " DISTINCT in a window, RANGE offsets but for whole numbers, a separator of"
        " string_agg that is no constant.",
        "Each would need another plan than DuckDB has for it; each can be written with"
        " a derived table.",
        (
            ("SELECT (SELECT max(v.a)) FROM (VALUES (1)) AS v (a)", "0A000", ["1"]),
            (
                "SELECT a FROM (VALUES (1)) AS v (a) GROUP BY a HAVING EXISTS (SELECT b"
                " FROM (VALUES (1)) AS w (b) WHERE b = max(v.a))",
                "0A000",
                ["1"],
            ),
            ("SELECT count(DISTINCT a) OVER () FROM (VALUES (1)) AS v (a)", "0A000", "0A000"),
            (
                "SELECT sum(a) OVER (ORDER BY a RANGE 1.5 PRECEDING) FROM (VALUES (1.5)) AS v (a)",
                "0A000",
                ["1.5"],
            ),
            ("SELECT string_agg(a, a) FROM (VALUES ('x')) AS v (a)", "0A000", ["x"]),
        ),
    ),
    Deviation(
        "round(x, n) and trunc(x, n) need a constant n.",
        "The scale of the result is a part of its type.",
        (("SELECT round(1.25, a) FROM (VALUES (1)) AS v (a)", "0A000", ["1.3"]),),
    ),
    Deviation(
        "A numeric constant of more than 38 digits is exact where it is converted at"
        " once, 22003 elsewhere; DECIMALs that are compared or added are brought to the"
        " larger scale, 22003 beyond 38 digits.",
        "DECIMALs are integers of 128 bits: one of more digits can only be converted.",
        (
            ("SELECT 1e50::float8", ["1e+50"], ["1e+50"]),
            ("SELECT 1e50", "22003", ["100000000000000000000000000000000000000000000000000"]),
            ("SELECT 1 WHERE 1.5 > 1e37", "22003", []),
        ),
    ),
    Deviation(
        "Text too long for varchar(n) is 22001, even if only by blanks at its end.",
        "Nothing that was handed over is cut in silence.",
        (
            ("CREATE TABLE x (a VARCHAR(2))", None, None),
            ("INSERT INTO x VALUES ('ab ')", "22001", None),
        ),
    ),
    Deviation(
        "There are no $$…$$ and no U&'…' strings.",
        "One form of a text constant suffices: E'…' has every escape, and parameters need none.",
        (
            ("SELECT $$a$$", "0A000", ["a"]),
            ("SELECT U&'a'", "0A000", ["a"]),
        ),
    ),
    Deviation(
        "A row is no value: (a, b) = (query) is 0A000, and a table's name is no value (42703).",
        "No type of a column, of Arrow or of Python's DB-API is a row.",
        (
            ("SELECT 1 WHERE (1, 2) = (SELECT 1, 2)", "0A000", ["1"]),
            ("SELECT v FROM (VALUES (1)) AS v (a)", "42703", ["(1)"]),
        ),
    ),
    Deviation(
        "A text that is computed reads as an interval with its units from years to"
        " microseconds in this order, from months to days without fractions; constants"
        " and parameters as everywhere, but for 1-2 (years and months) and decades and"
        " longer (22007).",
        "A computed text is read by DuckDB, by one pattern.",
        (
            ("SELECT (a || ' days')::interval FROM (VALUES (2)) AS v (a)", ["2 days"], ["2 days"]),
            (
                "SELECT a::interval FROM (VALUES ('1 day 1 month')) AS v (a)",
                "22007",
                ["1 mon 1 day"],
            ),
            ("SELECT '1 day 1.5 months'::interval::text", ["1 mon 16 days"], ["1 mon 16 days"]),
            ("SELECT 'P1DT2H'::interval::text", ["1 day 02:00:00"], ["1 day 02:00:00"]),
            ("SELECT INTERVAL '1-2'", "22007", ["1 year 2 mons"]),
        ),
    ),
    Deviation(
        "The seconds of make_timestamp are below 60 (22008).",
        "60 seconds are the next minute, and Python's times know no such second.",
        (("SELECT make_timestamp(2020, 1, 1, 0, 0, 60)", "22008", ["2020-01-01 00:01:00"]),),
    ),
    Deviation(
        "string_agg(DISTINCT …) without ORDER BY joins in no certain order.",
        "The set is DuckDB's, which has no order; PostgreSQL sorts it as a side effect.",
        (
            (
                "SELECT length(string_agg(DISTINCT a, ',')) FROM (VALUES ('b'), ('a'),"
                " ('b')) AS v (a)",
                ["3"],
                ["3"],
            ),
        ),
    ),
    Deviation(
        "SET in a transaction stays after its ROLLBACK.",
        "Settings are of the session, not of its data.",
        (
            ("BEGIN", None, None),
            ("SET statement_timeout = '5s'", None, None),
            ("ROLLBACK", None, None),
            ("SHOW statement_timeout", ["5s"], ["20s"]),
        ),
    ),
    Deviation(
        "ON CONFLICT DO NOTHING waits for a transaction that is just writing a row with"
        " the key, as in PostgreSQL; the row that it has waited for stays locked until"
        " its own transaction ends, also when it is left as it is.",
        "What has been waited for is decided by the lock; letting go of it early would"
        " let the row change before the statement ends.",
        (
            ("CREATE TABLE t (a INT PRIMARY KEY)", None, None),
            ("INSERT INTO t VALUES (1)", None, None),
            ("INSERT INTO t VALUES (1), (2) ON CONFLICT DO NOTHING", None, None),
            ("SELECT a FROM t ORDER BY a", ["1", "2"], ["1", "2"]),
        ),
    ),
    Deviation(
        "Rows of views are not written (0A000); a view that would read itself is refused when"
        " it is made (42P17), and not when it is read. A view has no CHECK OPTION and no"
        " other options, its columns are not renamed, and it is neither temporary nor"
        " materialized.",
        "One rule for all views says where rows are written: to tables.",
        (
            ("CREATE TABLE t (a INT)", None, None),
            ("CREATE VIEW v AS SELECT a FROM t", None, None),
            ("INSERT INTO v VALUES (1)", "0A000", None),
            ("CREATE OR REPLACE VIEW v AS SELECT * FROM v", "42P17", None),
            ("SELECT * FROM v", [], "42P17"),
        ),
    ),
    Deviation(
        "TRUNCATE takes the right DELETE, and ON CONFLICT no right on the columns it names.",
        "TRUNCATE removes what DELETE removes; a column that is only compared is not read.",
        (
            ("CREATE TABLE x (a INTEGER)", None, None),
            ("TRUNCATE x", None, None),
            ("DROP TABLE x", None, None),
        ),
    ),
    Deviation(
        "Refused with 0A000, too: SET LOCAL, and transactions that are SERIALIZABLE.",
        "They would promise what is not there.",
        (
            ("SET LOCAL statement_timeout = '1s'", "0A000", None),
            ("BEGIN ISOLATION LEVEL SERIALIZABLE", "0A000", None),
        ),
    ),
    Deviation(
        "Statements are nested at most 32 deep, and an expression has at most 1,000"
        " operators and 50,000 AND and OR, a query 1,000 UNION and their like; what is"
        " beyond is refused before it is read (54001). A chain of operators other than"
        " `||` and the `+ - *` of integers and DOUBLE (of DECIMALs or dates,"
        " say), and a query of UNIONs, may be refused from about 100 on. Of a chain of"
        " more than 30 GROUP BY knows only the whole.",
        "What a text can cost is bounded before it is read (ADR 40, 42).",
        (
            (f"SELECT 1{' + 1' * 1_001}", "54001", ["1002"]),
            (f"SELECT true{' OR true' * 50_001}", "54001", ["t"]),
            (f"SELECT 1{' UNION SELECT 1' * 1_001}", "54001", ["1"]),
            (
                "SELECT (((((((((((((((((((((((((((((((((1)))))))))))))))))))))))))))))))))",
                "54001",
                ["1"],
            ),
            (f"SELECT 0.5{' - 0.5 + 0.5' * 50}", ["0.5"], ["0.5"]),
            (f"SELECT 0.5{' - 0.5 + 0.5' * 500}", "54001", ["0.5"]),
            (f"SELECT a{' + 1' * 30} FROM (VALUES (1)) AS v (a) GROUP BY a + 1", ["31"], ["31"]),
            (f"SELECT a{' + 1' * 31} FROM (VALUES (1)) AS v (a) GROUP BY a + 1", "42803", ["32"]),
            (
                f"SELECT a{' + 1' * 31} FROM (VALUES (1)) AS v (a) GROUP BY a{' + 1' * 31}",
                ["32"],
                ["32"],
            ),
        ),
    ),
    Deviation(
        "INTERVAL '1 day' DAY, a text that names its units itself beside a unit, is 0A000.",
        "A text of two units says two things.",
        (
            ("SELECT INTERVAL '1 day' DAY", "0A000", ["1 day"]),
            ("SELECT INTERVAL '1' DAY = INTERVAL '1 day'", ["t"], ["t"]),
        ),
    ),
    Deviation(
        "A statement has at most 4,000,000 expressions, and of a query on the vector"
        " path at most 65,536, in at most 256 Ki characters of its own, reach DuckDB;"
        " long lists of constants behind IN, and long VALUES of nothing else, do not"
        " count. A CASE with an operand that is"
        " computed, a coalesce of such arguments or a row in IN lists counts twice for"
        " every other that it stands in as a later part (54001).",
        "What a statement can cost is bounded before it runs (ADR 40).",
        (
            (f"SELECT {_nested(4)} FROM (VALUES (1)) AS v (a)", ["2"], ["2"]),
            (f"SELECT {_nested(20)} FROM (VALUES (1)) AS v (a)", "54001", ["2"]),
        ),
    ),
    Deviation(
        "Whether an error of a part is raised whose value is not needed is not defined:"
        " beside a NULL, behind the operand of AND, OR, IN, BETWEEN, ANY and ALL that"
        " decides, as the default of lag and lead, of a row that is in no window's"
        " frame, of a date that is compared with a timestamp that no date is, of a"
        " constant where there is no row, of one in a condition of a subquery, of the"
        " conditions of a CASE whose values decide a comparison all alike, and which"
        " of several errors. AND, OR and IN as a value, in a select list say, or in ON may"
        " compute what stands behind the operand that decides, and raise its errors; in"
        " WHERE, HAVING, FILTER and the conditions of CASE they stop there.",
        "DuckDB computes whole vectors of values, and constants where they stand;"
        " PostgreSQL computes constants before the rows, and to estimate how many there"
        " are.",
        (
            ("CREATE TABLE y (a INTEGER)", None, None),
            ("INSERT INTO y VALUES (0), (5)", None, None),
            ("SELECT a <> 0 AND 10 / a > 1 FROM y", "22012", ["f", "t"]),
            ("SELECT a IN (0, 10 / a) FROM y", "22012", ["t", "f"]),
            ("SELECT a FROM y WHERE a <> 0 AND 10 / a > 1", ["5"], ["5"]),
            ("SELECT a FROM y WHERE a IN (0, 10 / a)", ["0"], ["0"]),
            ("SELECT a FROM y GROUP BY a HAVING a <> 0 AND 10 / a > 1", ["5"], ["5"]),
            (
                "SELECT CASE WHEN a <> 0 AND 10 / a > 1 THEN 1 END FROM y",
                ["NULL", "1"],
                ["NULL", "1"],
            ),
            (
                "SELECT (SELECT o.a FROM y AS o WHERE o.a = CASE abs(q.a) WHEN + q.a THEN 0 WHEN"
                " CAST(concat('x') AS integer) THEN 2 END) FROM y AS q",
                ["0", "0"],
                "22P02",
            ),
            (
                "SELECT a FROM y WHERE CASE a WHEN 3 THEN 1 WHEN CAST(concat('x') AS integer)"
                " THEN 2 ELSE 3 END <= 0.25",
                [],
                "22P02",
            ),
            ("DROP TABLE y", None, None),
            ("SELECT pg_typeof(1 / (length('a') - 1))", ["integer"], "22012"),
            (
                "SELECT a, lag(a, 1, 10 / (a - 5)) OVER (ORDER BY a) FROM (VALUES (0), (5))"
                " AS v (a) ORDER BY a",
                "22012",
                ["0 | -2", "5 | 0"],
            ),
            ("CREATE TABLE k (a TEXT)", None, None),
            ("INSERT INTO k VALUES ('x')", None, None),
            ("SELECT a FROM k WHERE timestamp '2024-01-31 12:00' = CAST(a AS date)", [], "22007"),
            ("SELECT CAST(NULL AS float8) * ln(-1)", ["NULL"], "2201E"),
            ("CREATE TABLE z (id INTEGER PRIMARY KEY, d float8, j INTEGER NOT NULL)", None, None),
            ("INSERT INTO z VALUES (2, NULL, 1), (1, 1e10, 1)", None, None),
            ("UPDATE z SET j = d", "22003", "23502"),
        ),
        _is_unneeded,
    ),
    Deviation(
        "Of a subquery in a later branch of CASE, of coalesce, AND or OR that names"
        " columns of the query around it, errors but 21000 are raised even where its"
        " value is not used. More than four such subqueries in one AND or OR of a"
        " select list are all computed.",
        "DuckDB joins such a subquery with all rows before it knows which of them need"
        " it (ADR 40).",
        (
            (
                "SELECT coalesce(a, (SELECT 1 / (a - b) FROM (VALUES (1)) AS w (b))) FROM"
                " (VALUES (1)) AS v (a)",
                "22012",
                ["1"],
            ),
            (
                "SELECT coalesce(a, (SELECT b FROM (VALUES (1), (2)) AS w (b) WHERE b >="
                " a)) FROM (VALUES (1)) AS v (a)",
                ["1"],
                ["1"],
            ),
        ),
    ),
    Deviation(
        "A table has at least one column.",
        "A row without columns has no form in a page.",
        (("CREATE TABLE x ()", "54011", None),),
    ),
    Deviation(
        "A field that no interval has, as its week, is refused (0A000) before the statement runs.",
        "The type is known then; PostgreSQL refuses it for each value that is not NULL.",
        (
            ("SELECT extract(week FROM INTERVAL '1 day')", "0A000", "0A000"),
            ("SELECT extract(week FROM CAST(NULL AS interval))", "0A000", ["NULL"]),
        ),
        _is_field_of_no_interval,
    ),
    Deviation(
        "Of intervals that are equal and not the same, as 1 month and 30 days,"
        " greatest, least, min and max give any.",
        "DuckDB orders them by what they count together.",
        (
            (
                "SELECT greatest(INTERVAL '1 mon -30 days', INTERVAL '0')::text",
                ["00:00:00"],
                ["1 mon -30 days"],
            ),
        ),
        _is_equal_interval,
    ),
    Deviation(
        "The last digit of a DOUBLE that is a sum, or that a function of the C library"
        " gives, may be another.",
        "Sums are added in parts, and the library is another one.",
        (
            (
                "SELECT abs(stddev(a) - 1.2909944487358056) < 1e-15 FROM (VALUES"
                " (1::float8), (2), (3), (4)) AS v (a)",
                ["t"],
                ["t"],
            ),
        ),
        _is_last_digit,
    ),
    Deviation(
        "Standard deviations and variances of doubles are exact where PostgreSQL's lose"
        " digits, those of large values that differ by little; with DISTINCT they lose"
        " them here, where PostgreSQL's of whole numbers do not.",
        "The values' whole parts and their rests are added up exactly.",
        (
            (
                "SELECT var_pop(a) FROM (VALUES (10000000000.1::float8), (10000000000.3),"
                " (10000000000.2)) AS v (a)",
                ["0.006666590373141743"],
                ["0.006666463217698038"],
            ),
            (
                "SELECT var_pop(DISTINCT a) = 17.6875 FROM (VALUES (90000000000001),"
                " (90000000000012), (90000000000003), (90000000000007)) AS v (a)",
                ["f"],
                ["t"],
            ),
        ),
        _is_spread_rounding,
    ),
    Deviation(
        "What takes an integer takes a bigint, too: left, right, substring, lpad, rpad,"
        " repeat, split_part, chr, make_date, make_timestamp. An untyped operand of a"
        " simple CASE has the type of what it is compared with.",
        "A count or a key is a bigint; no such call means something else.",
        (
            ("SELECT left('abc', CAST(2 AS bigint))", ["ab"], "42883"),
            ("SELECT CASE '2024-01-31' WHEN date '2024-01-31' THEN 1 END", ["1"], "42883"),
        ),
        _takes_bigint,
    ),
)


def reason_of(difference: Difference) -> Deviation | None:
    """Return what a difference is documented as, None for nothing."""
    return next((each for each in DEVIATIONS if each.matches(difference)), None)
