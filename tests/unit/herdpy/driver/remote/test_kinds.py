"""What a statement can do, as the driver sees it and as the engine does."""

from pathlib import Path

import pytest

from herdpy.driver.remote.statement_kinds import Kind, kind_of
from herdpy.sql.functions import FUNCTIONS
from herdpy.sql.reading.tokens import scan
from tests.sql.runner import read_blocks

SQL = Path(__file__).parents[4] / "sql"
CHANGING = {
    "INSERT", "UPDATE", "DELETE", "UPSERT", "CREATE", "DROP", "TRUNCATE", "GRANT", "REVOKE",
    "ALTER", "KILL", "COMMIT", "END", "ROLLBACK", "ABORT",
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("SELECT 1", Kind.READ),
        ("  /* a -- b */ -- c\n select 1", Kind.READ),
        ("(SELECT 1) UNION (SELECT 2)", Kind.READ),
        ("VALUES (1)", Kind.READ),
        ("SELECT id FROM t FOR UPDATE", Kind.READ),
        ("SET lock_timeout = '1s'", Kind.READ),
        ("SHOW ALL", Kind.READ),
        ("BEGIN", Kind.READ),
        ("START TRANSACTION", Kind.READ),
        ("EXPLAIN INSERT INTO t VALUES (1)", Kind.READ),
        ("EXPLAIN ANALYZE INSERT INTO t VALUES (1)", Kind.WRITE),
        ("EXPLAIN ANALYZE UPSERT INTO t VALUES (1)", Kind.WRITE),
        ("WITH a AS (SELECT 1) SELECT * FROM a", Kind.WRITE),
        ("WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a", Kind.WRITE),
        ("INSERT INTO t VALUES (1)", Kind.WRITE),
        ("UPSERT INTO t VALUES (1)", Kind.WRITE),
        ("CREATE TABLE t (id BIGINT)", Kind.WRITE),
        ("CREATE USER ann PASSWORD 'secret'", Kind.WRITE),
        ("GRANT SELECT ON t TO ann", Kind.WRITE),
        ("KILL 7", Kind.WRITE),
        ("COMMIT", Kind.COMMIT),
        ("/* note */ commit work;", Kind.COMMIT),
        ("-- note\nEND", Kind.COMMIT),
        ("rollback -- it", Kind.ROLLBACK),
        ("ABORT TRANSACTION", Kind.ROLLBACK),
        # What another server may know.
        ("COMMIT AND CHAIN", Kind.UNKNOWN),
        ("ROLLBACK TO s", Kind.READ),
        ("COPY t FROM STDIN", Kind.UNKNOWN),
        ("SELECT 1; DELETE FROM t", Kind.UNKNOWN),
        ("'", Kind.UNKNOWN),
        ("", Kind.UNKNOWN),
    ],
)
def test_kinds(text: str, kind: Kind) -> None:
    assert kind_of(text) is kind


def test_nothing_that_changes_anything_is_a_read() -> None:
    """Every statement of the SQL suite that succeeds, by the words in it."""
    seen = dict.fromkeys(Kind, 0)
    for path in sorted(SQL.glob("*.test")):
        for block in read_blocks(path):
            if block.sqlstate is not None:
                continue
            found = kind_of(block.text)
            seen[found] += 1
            first = scan(block.text).word(0)
            if found is Kind.READ:
                assert first not in CHANGING, block.text
            else:
                assert first in {*CHANGING, "WITH", "EXPLAIN"}, block.text
    assert seen[Kind.READ] > 200
    assert seen[Kind.WRITE] > 50
    assert seen[Kind.UNKNOWN] == 0


def test_no_function_has_an_effect() -> None:
    """A SELECT runs again after a lost connection; such a function would make it a write."""
    having = ("nextval", "setval", "set_config", "pg_sleep", "pg_advisory", "lo_", "dblink", "kill")
    assert not [name for name in FUNCTIONS if name.startswith(having)]
