"""What a text of sqllogictest says to one engine."""

import pytest

from tests.slt.records import FormatError, Query, Statement, read_records


def test_statements_and_queries_with_their_lines() -> None:
    text = (
        "# about\nhash-threshold 8\n\n\n"
        "statement ok\nCREATE TABLE t(a INTEGER,\n# inside\n  b TEXT)\n\n"
        "statement error # a reason\nSELECT\n   \n"
        "query I\nSELECT 1\n----\n1\n\n"
        "query TR rowsort twenty-characters-and-more\nSELECT b,\n a FROM t\n----\nx y\n1.000\n"
    )
    assert list(read_records(text, "herdpy")) == [
        Statement(5, "CREATE TABLE t(a INTEGER,\n  b TEXT)", False, must_fail=False),
        Statement(10, "SELECT", False, must_fail=True),
        Query(13, "SELECT 1", False, "I", "nosort", "", ["1"]),
        Query(18, "SELECT b,\n a FROM t", False, "TR", "rowsort", "twenty-characters-an",
              ["x y", "1.000"]),
    ]  # fmt: skip
    windows = text.replace("\n", "\r\n")
    assert list(read_records(windows, "herdpy")) == list(read_records(text, "herdpy"))


def test_a_query_without_values_is_empty() -> None:
    queries = list(read_records("query I\nSELECT 1\n----\n\nquery I\nSELECT 2\n", "herdpy"))
    assert [(each.text, each.expected) for each in queries if isinstance(each, Query)] == [
        ("SELECT 1", []), ("SELECT 2", [])
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("conditions", "is_skipped"),
    [
        ("skipif mysql", False),
        ("skipif herdpy # not yet", True),
        ("skipif HerdPy", True),
        ("onlyif herdpy", False),
        ("onlyif mysql", True),
        ("skipif mysql\nskipif herdpy", True),
        ("onlyif herdpy\nskipif mysql", False),
        ("onlyif mysql\nskipif oracle", True),
    ],
)
def test_conditions(conditions: str, is_skipped: bool) -> None:
    (record,) = read_records(f"{conditions}\nquery I\nSELECT 1\n----\n1\n", "herdpy")
    assert (record.is_skipped, record.line) == (is_skipped, 1)


@pytest.mark.parametrize(
    ("halt", "count"),
    [("halt", 1), ("onlyif mysql\nhalt", 2), ("onlyif herdpy\nhalt", 1), ("skipif mysql\nhalt", 1)],
)
def test_halt_may_have_a_condition(halt: str, count: int) -> None:
    text = f"statement ok\nSELECT 1\n\n{halt}\n\nstatement ok\nSELECT 2\n"
    assert len(list(read_records(text, "herdpy"))) == count


@pytest.mark.parametrize(
    "record",
    ["statment ok", "statement maybe", "query", "query IX", "query I sorted", "skipif mysql"],
)
def test_what_is_no_record_is_told_with_its_line(record: str) -> None:
    with pytest.raises(FormatError, match=r"^3: "):
        list(read_records(f"hash-threshold 1\n\n{record}\n", "herdpy"))
