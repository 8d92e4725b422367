"""What herdpy does not have is refused with 0A000 and a sentence, before anything happens."""

import re
from collections.abc import Iterator

import pytest

import herdpy
from herdpy.driver.connection import Connection

REFUSED = [
    "CREATE TABLE x (a INT) ON COMMIT DROP",
    "BEGIN ISOLATION LEVEL SERIALIZABLE",
    "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "SET transaction_isolation = 'serializable'",
    "SET ROLE x",
    "RESET ROLE",
    "SHOW ROLE",
    "SET SESSION AUTHORIZATION x",
    "SELECT current_user",
    "SELECT session_user",
    "SET default_transaction_isolation = 'serializable'",
    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "START TRANSACTION ISOLATION LEVEL REPEATABLE READ, ISOLATION LEVEL SERIALIZABLE",
    "SELECT * FROM t FOR UPDATE",
    "SELECT * FROM t FOR SHARE",
    "SELECT * FROM t FOR UPDATE NOWAIT",
    "SELECT * FROM t FOR UPDATE SKIP LOCKED",
    "CREATE INDEX CONCURRENTLY i ON t (v)",
    "CREATE INDEX i ON t (lower(v))",
    "CREATE INDEX i ON t ((v))",
    "CREATE INDEX i ON t USING hash (v)",
    "CREATE INDEX i ON t (v) WHERE v > 0",
    "CREATE INDEX i ON t (v) INCLUDE (v)",
    "CREATE TABLE x (a INT REFERENCES t (id))",
    "CREATE TABLE x (a INT, FOREIGN KEY (a) REFERENCES t (id))",
    "CREATE TABLE x (a INT GENERATED ALWAYS AS (1) STORED)",
    "CREATE TEMP TABLE x (a INT)",
    "CREATE TABLE x (LIKE t)",
    "CREATE TABLE x (a INT) PARTITION BY RANGE (a)",
    "CREATE TABLE x (a INT) TABLESPACE other",
    "CREATE TABLE x (a INT) INHERITS (t)",
    "CREATE TABLE x (a UUID)",
    "CREATE TABLE x (a JSON)",
    "CREATE TABLE x (a TIME)",
    "CREATE TABLE x (a TIMESTAMPTZ(3))",
    "CREATE TABLE x (a TIME WITH TIME ZONE)",
    "CREATE TABLE x (a CHAR(3))",
    "CREATE TABLE x (a INT[])",
    'CREATE TABLE x (a TEXT COLLATE "C")',
    "CREATE TABLE x (a INTERVAL)",
    "CREATE TABLE x (a NUMERIC)",
    "ALTER TABLE t ADD COLUMN w INTEGER PRIMARY KEY",
    "ALTER TABLE t ADD CONSTRAINT k PRIMARY KEY USING INDEX i",
    "ALTER TABLE t ALTER v ADD GENERATED ALWAYS AS (v + 1) STORED",
    "ALTER TABLE t ADD FOREIGN KEY (id) REFERENCES t",
    "ALTER TABLE t ADD CONSTRAINT x UNIQUE USING INDEX i",
    "ALTER TABLE t DROP COLUMN id",
    "ALTER TABLE t DROP CONSTRAINT t_pkey",
    "ALTER TABLE t SET SCHEMA s",
    "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
    "ALTER TABLE t ALTER v SET STATISTICS 5",
    "ALTER INDEX i SET (fillfactor = 50)",
    "CREATE VIEW w WITH (security_barrier) AS SELECT 1",
    "CREATE VIEW w AS SELECT 1 WITH LOCAL CHECK OPTION",
    "CREATE RECURSIVE VIEW w (a) AS SELECT 1",
    "CREATE OR REPLACE TEMP VIEW w AS SELECT 1",
    "CREATE MATERIALIZED VIEW w AS SELECT 1",
    "DROP MATERIALIZED VIEW w",
    "ALTER VIEW w RENAME COLUMN a TO b",
    "ALTER VIEW w SET (security_barrier)",
    "CREATE SCHEMA s",
    "CREATE DATABASE d",
    "CREATE FUNCTION f() RETURNS INT AS $$ SELECT 1 $$ LANGUAGE sql",
    "CREATE TRIGGER x BEFORE INSERT ON t EXECUTE FUNCTION f()",
    "INSERT INTO t VALUES (1) ON CONFLICT ON CONSTRAINT t_pkey DO NOTHING",
    "INSERT INTO t VALUES (1) ON CONFLICT (id) WHERE id > 0 DO NOTHING",
    "UPSERT INTO t VALUES (1) ON CONFLICT DO NOTHING",
    "UPDATE t SET v = 'x' FROM (SELECT INTERVAL '1 day' AS d) AS q RETURNING q.d",
    "UPDATE t SET (id, v) = (1, 'x')",
    "WITH w AS (SELECT 1) UPDATE t SET v = 'x'",
    "WITH w AS (DELETE FROM t RETURNING *) SELECT * FROM w",
    "MERGE INTO t USING u ON t.id = u.id WHEN MATCHED THEN DELETE",
    "COPY t FROM 'x'",
    "COPY t TO STDOUT",
    "PREPARE p AS SELECT 1",
    "EXECUTE p",
    "LISTEN x",
    "VACUUM",
    "ANALYZE t",
    "LOCK TABLE t",
    "DECLARE c CURSOR FOR SELECT 1",
    "WITH RECURSIVE w AS (SELECT 1 UNION ALL TABLE w) SEARCH DEPTH FIRST BY n SET o TABLE w",
    "WITH RECURSIVE w AS (SELECT 1 UNION ALL TABLE w) CYCLE n SET a USING b TABLE w",
    "SELECT * FROM ROWS FROM (generate_series(1, 3))",
    "SELECT generate_series(1, 3), generate_series(1, 2)",
    "SELECT generate_series(1, 3), count(*)",
    "SELECT * FROM unnest(string_to_array('a b', ' '))",
    "SELECT * FROM generate_series(timestamp '2024-01-31', '2024-01-01', '-1 month 1 day')",
    "SELECT * FROM t TABLESAMPLE SYSTEM (10)",
    "SELECT sum(id) OVER (ORDER BY id GROUPS 1 PRECEDING) FROM t",
    "SELECT sum(id) OVER (ORDER BY id ROWS 1 PRECEDING EXCLUDE CURRENT ROW) FROM t",
    "SELECT count(DISTINCT id) OVER () FROM t",
    "SELECT first_value(v) IGNORE NULLS OVER (ORDER BY id) FROM t",
    "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY id) FROM t",
    "SELECT ARRAY[1, 2]",
    "SELECT ROW(1, 2)",
    "SELECT (1, 2)",
    "SELECT v -> 'a' FROM t",
    "SELECT v ~ 'a' FROM t",
    "SELECT v SIMILAR TO 'a' FROM t",
    'SELECT v COLLATE "C" FROM t',
    "SELECT now() AT TIME ZONE 'CET'",
    "SELECT 1 INTO x",
    "SELECT * INTO x FROM t",
    "SELECT id FROM t FETCH FIRST 1 ROW WITH TIES",
    "SELECT id FROM s.t",
    "SELECT FROM t",
    "SELECT 1 WHERE (1, 2) = ANY (SELECT 1, 2)",
    "SELECT CAST('1' AS uuid)",
    "SELECT B'01'",
    "SELECT X'1F'",
    "SELECT U&'d\\0061'",
    "SELECT current_user",
    "SELECT id & 1 FROM t",
    "SELECT ~id FROM t",
    "SELECT id << 1 FROM t",
    "SELECT v[1] FROM t",
    "SELECT * EXCEPT (id) FROM t",
    "SELECT id FROM t QUALIFY row_number() OVER () = 1",
    "SELECT * FROM t ASOF JOIN u ON t.id = u.id",
    "SELECT * FROM t SEMI JOIN u ON t.id = u.id",
    "SELECT id FROM t WHERE v GLOB 'a'",
    "SELECT v::json FROM t",
    "SELECT TRY_CAST('x' AS INT)",
    "SELECT id FROM t LIMIT 10 PERCENT",
    "SELECT $$a$$",
    "SELECT * FROM t PIVOT (count(*) FOR id IN (1))",
    "SELECT {'a': 1}",
    "SELECT id FROM t UNION BY NAME SELECT id FROM u",
    "SELECT json_extract(v, '$.a') FROM t",
]


@pytest.fixture
def connection(target: str) -> Iterator[Connection]:
    connection = herdpy.connect(target, autocommit=True)
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)")
    connection.execute("CREATE TABLE u (id INTEGER PRIMARY KEY, v TEXT)")
    connection.execute("INSERT INTO t VALUES (1, 'x')")
    yield connection
    connection.close()


@pytest.mark.parametrize("text", REFUSED)
def test_refused(connection: Connection, text: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(herdpy.NotSupportedError) as caught:
        connection.execute(text)
    assert caught.value.sqlstate == "0A000"
    assert len(caught.value.message.split()) >= 3
    assert connection.execute("SELECT * FROM t").fetchall() == [(1, "x")]
    assert not caplog.records


# Not of PostgreSQL, or refused by other rules.
OTHERS = """
INSERT OR REPLACE INTO t VALUES (1)
INSERT OR IGNORE INTO t VALUES (1)
INSERT OVERWRITE INTO t VALUES (1)
INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE v = 1
INSERT INTO t PARTITION (a=1) VALUES (1)
INSERT ALL INTO t VALUES (1) SELECT 1
INSERT INTO t BY NAME SELECT 1
REPLACE INTO t VALUES (1)
SELECT * FROM t TABLESAMPLE BERNOULLI (10)
SELECT * FROM t USING SAMPLE 10
SELECT * FROM t FOR SYSTEM_TIME AS OF '2020-01-01'
SELECT * FROM t WITH (NOLOCK)
SELECT * FROM t UNPIVOT (a FOR b IN (c))
SELECT * FROM t WITH ORDINALITY
SELECT id FROM t ORDER BY id WITH FILL
SELECT id FROM t SORT BY id
SELECT id FROM t CLUSTER BY id
SELECT id FROM t DISTRIBUTE BY id
SELECT id FROM t CONNECT BY id = 1
SELECT id FROM t LIMIT 1 BY id
SELECT id FROM t GROUP BY id WITH TOTALS
SELECT * RENAME (id AS x) FROM t
SELECT * EXCLUDE (id) FROM t
SELECT * FROM t LATERAL VIEW explode(a) x
SELECT 1 UNION CORRESPONDING SELECT 2
UPDATE t SET v = 'a' ORDER BY id LIMIT 1
DELETE FROM t LIMIT 1
DELETE t FROM t JOIN u ON true
CREATE UNIQUE INDEX CONCURRENTLY i ON t (v)
CREATE OR REPLACE MATERIALIZED VIEW w AS SELECT 1
CREATE MATERIALIZED VIEW w AS SELECT 1
CREATE GLOBAL TEMPORARY TABLE x (a INT)
CREATE TABLE x (a INT) WITHOUT ROWID
CREATE TABLE x (a INT, EXCLUDE USING gist (a WITH =))
CREATE TABLE x (a DATETIME)
CREATE TABLE x (a TINYINT)
CREATE TABLE x (a NVARCHAR(3))
DROP MATERIALIZED VIEW v
ALTER INDEX i SET TABLESPACE j
SELECT current_timestamp(3)
SELECT localtime
SELECT CAST(v AS INT FORMAT 'x') FROM t
SELECT round(1.5, 1, 2)
SELECT lower(v, 'x') FROM t
SELECT length(v, 'utf8') FROM t
SELECT sum() FROM t
SELECT rank(1) OVER () FROM t
SELECT lower(v) OVER () FROM t
SELECT date_trunc('day', now(), 'UTC')
SELECT v @> 'a' FROM t
SELECT v && v FROM t
SELECT v #>> 'a' FROM t
SELECT v <-> 'a' FROM t
SELECT (now(), now()) OVERLAPS (now(), now())
SELECT a := 1
SELECT IF(true, 1, 2)
SELECT v LIKE ALL (SELECT 'a') FROM t
SELECT CASE id WHEN 1 THEN 2 FROM t
SELECT * FROM t MATCH_RECOGNIZE (PATTERN (a) DEFINE a AS 1)
SELECT * FROM t OFFSET 1 LIMIT 2 FETCH FIRST ROW ONLY
SELECT * FROM t WHERE id IN %s
SELECT * FROM t WHERE id = %(id)s
INSERT INTO t VALUES (%s, %s)
"""
# What a message may say of what is there, though the statement does not.
_SAYS = (
    "READ", "COMMITTED", "SHOW", "NULL", "TRUE", "FALSE", "ROWS", "ONLY", "UTC", "ORDER", "BY",
    "OR", "LATERAL", "FROM", "EXPLAIN",
)  # fmt: skip


@pytest.mark.parametrize("text", [*REFUSED, *OTHERS.strip().split("\n")])
def test_a_message_has_the_words_of_the_statement(connection: Connection, text: str) -> None:
    """None of the reader's own: names of classes stay inside."""
    with pytest.raises(herdpy.Error) as caught:
        connection.execute(text)
    message = caught.value.message
    assert caught.value.sqlstate in ("0A000", "42601", "42883", "42809")
    shouted = re.findall(r"[A-Z]{2,}", message)
    assert [
        word for word in shouted if word not in (*_SAYS, *re.findall(r"\w+", text.upper()))
    ] == []
    called = re.findall(r"function (\w+)\(", message)
    assert [name for name in called if name not in text.lower()] == []
    assert not re.search(r"Expect|Invalid|Required|provided arguments|<class|Token", message)


@pytest.mark.parametrize("placeholder", ["%s", "%(id)s", "$1", "@id"])
def test_placeholders_of_others_are_known(connection: Connection, placeholder: str) -> None:
    with pytest.raises(herdpy.ProgrammingError) as caught:
        connection.execute(f"SELECT * FROM t WHERE id = {placeholder}")
    assert caught.value.sqlstate == "42601"
    assert "? or :name" in str(caught.value.hint)
    assert connection.execute("SELECT 5 %s FROM (VALUES (3)) AS q (s)").fetchall() == [(2,)]


@pytest.mark.parametrize(
    "text",
    ["CREATE TABLE x (a INT) FOO", "CREATE TABLE x y z", "DROP TABLE t y", "SELECT 1 FOO BAR"],
)
def test_nonsense_is_a_syntax_error(
    connection: Connection, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(herdpy.ProgrammingError) as caught:
        connection.execute(text)
    assert caught.value.sqlstate == "42601"
    assert caught.value.position is not None
    assert not caplog.records


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("CHAR(3)", "varchar(n)"),
        ("CHARACTER", "varchar(n)"),
        ("TIMESTAMP(3)", "date_trunc()"),
        ("TIMESTAMP(0) WITH TIME ZONE", "date_trunc()"),
        ("SMALLINT(3)", "smallint, integer"),
    ],
)
def test_what_to_write_instead_of_a_type(kind: str, words: str) -> None:
    with herdpy.connect(":memory:") as connection, pytest.raises(herdpy.Error) as caught:
        connection.execute(f"CREATE TABLE x (a {kind})")
    assert caught.value.sqlstate == "0A000"
    assert words in str(caught.value.hint)
