"""Views: definitions in log and manifest, rights of owners, plans, dumps, what waits for what."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import herdpy
from herdpy.engine.access.view_text import create_view_text, in_order, query_text
from herdpy.engine.statements.execution import Execution
from herdpy.limits import statement_depth_max, view_relations_max
from herdpy.model.schema import Table, table_from_plain, table_to_plain
from herdpy.sql.reading.script import split_statements
from tests.fixtures.access import refusal, session_of, small_engine
from tests.fixtures.engines import Background, Engine, WatchedDriver, engine, rows, run, table
from tests.unit.herdpy.engine.statements.test_truncate import wait_for_background

GROWN = (
    "CREATE VIEW v AS SELECT * FROM t WHERE id > 1",
    "CREATE VIEW w (k, l) AS SELECT * FROM v NATURAL JOIN t",
    "CREATE VIEW x AS TABLE v UNION ALL SELECT v.* FROM v, w AS y (id) WHERE y.id = v.id",
    "CREATE OR REPLACE VIEW v AS SELECT id, v, id * v AS z, 'late' AS k FROM t WHERE id > 1",
)
"""Views over a view that got more columns: z would be in *, k would be ambiguous."""
READ = {
    "SELECT * FROM v": [(2, 20, 40, "late")],
    "SELECT * FROM w": [(2, 20)],
    "SELECT * FROM x": [(2, 20), (2, 20)],
}


@pytest.fixture
def db() -> Iterator[Engine]:
    with engine(driver=WatchedDriver(), is_threaded=True) as made:
        session = made.session()
        table(session, (1, 10), (2, 20))
        session.close()
        yield made


def shown(db: Engine) -> dict[str, list[tuple[object, ...]]]:
    session = db.session(autocommit=True)
    try:
        return {text: rows(session, text) for text in READ}
    finally:
        session.close()


def found(db: Engine, name: str) -> Table:
    made = db.database.tablespace.state.catalog.table(name)
    assert made is not None
    return made


# --- in log and manifest -------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["log", "checkpoint", "checkpoint between"])
def test_views_are_there_again(db: Engine, way: str) -> None:
    session = db.session(autocommit=True)
    for text in GROWN:
        run(session, text)
        if way == "checkpoint between":
            db.database.run_checkpoint()
    if way == "checkpoint":
        db.database.run_checkpoint()
    assert shown(db) == READ
    db.reopen()
    assert shown(db) == READ
    session = db.session(autocommit=True)
    run(session, "DROP TABLE t CASCADE")
    if way != "log":
        db.database.run_checkpoint()
    db.reopen()
    assert db.database.tablespace.state.catalog.tables() == []


@pytest.mark.parametrize("way", ["log", "checkpoint"])
def test_a_transaction_that_is_open_over_a_crash_leaves_none(db: Engine, way: str) -> None:
    session = db.session()
    run(session, GROWN[0])
    assert rows(session, "SELECT id FROM v") == [(2,)]
    if way == "checkpoint":
        db.database.run_checkpoint()
    db.reopen()
    assert [each.name for each in db.database.tablespace.state.catalog.tables()] == ["t"]


def test_a_table_has_the_form_that_it_had_before_there_were_views(db: Engine) -> None:
    run(db.session(autocommit=True), GROWN[0])
    assert len(table_to_plain(found(db, "t"))) == 5
    plain = table_to_plain(found(db, "v"))
    assert plain[5] == []
    assert plain[6] == ["SELECT * FROM t WHERE id > 1", [["t", 2]]]
    assert table_from_plain(plain) == found(db, "v")


# --- transactions --------------------------------------------------------------------------------


def test_who_sees_it_when(db: Engine) -> None:
    a, b = db.session(), db.session(autocommit=True)
    run(a, GROWN[0])
    assert rows(a, "SELECT * FROM v") == [(2, 20)]
    assert refusal(b, "SELECT * FROM v").sqlstate == "42P01"
    a.rollback()
    assert refusal(a, "SELECT * FROM v").sqlstate == "42P01"
    run(a, GROWN[0])
    a.commit()
    assert rows(b, "SELECT * FROM v") == [(2, 20)]
    run(a, "CREATE OR REPLACE VIEW v AS SELECT id, v, 0 AS z FROM t")
    assert rows(a, "SELECT z FROM v") == [(0,), (0,)]
    assert rows(b, "SELECT * FROM v") == [(2, 20)]
    run(a, "SAVEPOINT s")
    run(a, "DROP TABLE t CASCADE")
    assert refusal(a, "SELECT * FROM v").sqlstate == "42P01"
    run(a, "ROLLBACK TO s")
    a.commit()
    assert rows(b, "SELECT z FROM v") == [(0,), (0,)]


def test_a_snapshot_has_the_views_of_its_time(db: Engine) -> None:
    a, b = db.session(), db.session(autocommit=True)
    run(b, GROWN[0])
    run(a, "BEGIN ISOLATION LEVEL REPEATABLE READ")
    assert rows(a, "SELECT * FROM v") == [(2, 20)]
    run(b, "CREATE OR REPLACE VIEW v AS SELECT id, v, 0 AS z FROM t")
    run(b, "INSERT INTO t VALUES (3, 30)")
    assert rows(a, "SELECT * FROM v") == [(2, 20)]
    run(b, "DROP VIEW v")
    assert rows(a, "SELECT * FROM v") == [(2, 20)]
    assert refusal(a, "CREATE VIEW v AS SELECT 1").sqlstate == "40001"


def test_plans_follow_what_is_below(db: Engine) -> None:
    a, b = db.session(autocommit=True), db.session(autocommit=True)
    for text in GROWN[:2]:
        run(a, text)
    asked = "SELECT * FROM w"
    assert rows(a, asked) == rows(b, asked) == [(2, 20)]
    run(b, "CREATE OR REPLACE VIEW v AS SELECT id, v FROM t WHERE id = 1")
    assert rows(a, asked) == rows(b, asked) == [(1, 10)]
    run(b, "TRUNCATE t")
    run(b, "INSERT INTO t VALUES (1, 11)")
    assert rows(a, asked) == rows(b, asked) == [(1, 11)]


# --- what waits for what -------------------------------------------------------------------------


def test_a_table_is_not_dropped_under_a_view_that_is_made(db: Engine) -> None:
    a, b = db.session(), db.session(autocommit=True)
    run(a, GROWN[0])
    refused: list[herdpy.Error] = []
    with Background() as background:
        background.start(lambda: refused.append(refusal(b, "DROP TABLE t")))
        wait_for_background(db)
        a.commit()
    assert [error.sqlstate for error in refused] == ["2BP01"]
    assert 'view "v" reads table "t"' in refused[0].message


@pytest.mark.parametrize("change", ["CREATE OR REPLACE VIEW v AS SELECT id, v, 9 AS n FROM t",
                                    "TRUNCATE t"])  # fmt: skip
def test_a_view_that_waited_is_of_what_there_is_by_then(db: Engine, change: str) -> None:
    a, b = db.session(), db.session(autocommit=True)
    run(b, GROWN[0])
    run(a, change)
    with Background() as background:
        background.start(lambda: run(b, "CREATE VIEW y AS SELECT v.*, t.id AS i FROM v, t"))
        wait_for_background(db)
        a.commit()
    width = len(found(db, "v").visible_columns)
    assert len(found(db, "y").visible_columns) == width + 1
    assert len(rows(b, "SELECT * FROM y")) == (4 if width == 3 else 0)


@pytest.mark.parametrize("change", ["CREATE OR REPLACE VIEW v AS SELECT id, v, 9 AS n FROM t",
                                    "DROP VIEW v"])  # fmt: skip
def test_what_a_view_reads_changes_between_plan_and_lock(
    db: Engine, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    a, b = db.session(autocommit=True), db.session(autocommit=True)
    run(a, GROWN[0])
    define, texts = Execution.define, [change]

    def overtaken(execution: Execution, *arguments: Any) -> None:
        if texts:
            run(a, texts.pop())
        define(execution, *arguments)

    monkeypatch.setattr(Execution, "define", overtaken)
    made = "CREATE VIEW y AS SELECT * FROM v"
    if change.startswith("DROP"):
        assert refusal(b, made).sqlstate == "42P01"
    else:
        run(b, made)
        assert rows(b, "SELECT n FROM y") == [(9,), (9,)]
    assert not db.locks


def test_two_that_would_read_each_other(db: Engine) -> None:
    a, b = db.session(), db.session(autocommit=True)
    for name in ("v", "w"):
        run(b, f"CREATE VIEW {name} AS SELECT id FROM t")
    run(a, "CREATE OR REPLACE VIEW v AS SELECT id FROM w")
    refused: list[str] = []
    circle = "CREATE OR REPLACE VIEW w AS SELECT id FROM v"
    with Background() as background:
        background.start(lambda: refused.append(refusal(b, circle).sqlstate))
        wait_for_background(db)
        a.commit()
    assert refused == ["42P17"]


# --- rights --------------------------------------------------------------------------------------


@pytest.fixture
def small() -> Iterator[Engine]:
    made = small_engine()
    yield made
    made.database.close()


def test_its_owner_reads_what_it_reads(small: Engine) -> None:
    root, ann = session_of(small), session_of(small, "ann")
    for text in ("CREATE USER bob", "CREATE USER carl", "GRANT CREATE ON TABLESPACE default TO bob",
                 "CREATE VIEW v AS SELECT id FROM t", "GRANT SELECT ON v TO bob"):  # fmt: skip
        run(root, text)
    bob, carl = session_of(small, "bob"), session_of(small, "carl")
    count = rows(root, "SELECT count(*) FROM t")
    assert rows(bob, "SELECT count(*) FROM v") == count
    assert refusal(bob, "SELECT id FROM t").sqlstate == "42501"
    assert refusal(ann, "SELECT * FROM v").message.startswith('permission denied for view "v"')
    # Of bob's view bob reads v, as whose owner the superusers read t; carl needs bob's alone.
    run(bob, "CREATE VIEW w AS SELECT id FROM v")
    run(bob, "GRANT SELECT ON w TO carl")
    assert rows(carl, "SELECT count(*) FROM w") == count
    assert rows(carl, "SELECT 1 WHERE EXISTS (SELECT 1 FROM w)") == [(1,)]
    assert refusal(carl, "SELECT * FROM w JOIN v ON true").sqlstate == "42501"
    run(root, "REVOKE SELECT ON v FROM bob")
    said = refusal(carl, "SELECT count(*) FROM w")
    assert (said.sqlstate, '"bob", the owner of view "w"' in said.message) == ("42501", True)
    # A view may be made of what its owner may not read, as in PostgreSQL; nothing is read by it.
    run(bob, "CREATE VIEW y AS SELECT id FROM t")
    assert refusal(bob, "SELECT * FROM y").sqlstate == "42501"
    run(root, "CREATE USER boss SUPERUSER")
    assert refusal(session_of(small, "boss"), "SELECT * FROM y").sqlstate == "42501"
    run(root, "ALTER VIEW y OWNER TO boss")
    run(root, "GRANT SELECT ON y TO carl")
    assert rows(carl, "SELECT count(*) FROM y") == count


def test_who_may_drop_and_replace(small: Engine) -> None:
    root, ann = session_of(small), session_of(small, "ann")
    for text in ("CREATE VIEW v AS SELECT id FROM t", "GRANT ALL ON v TO ann",
                 "GRANT CREATE ON TABLESPACE default TO ann", "CREATE USER bob"):  # fmt: skip
        run(root, text)
    for text in ("DROP VIEW v", "CREATE OR REPLACE VIEW v AS SELECT id FROM t",
                 "ALTER VIEW v OWNER TO ann"):  # fmt: skip
        assert refusal(ann, text).sqlstate == "42501"
    run(root, "ALTER TABLE v OWNER TO ann")
    run(root, "GRANT SELECT ON v TO bob")
    run(ann, "CREATE OR REPLACE VIEW v AS SELECT id, 1 AS one FROM t")
    asked = "SELECT grantee, object_type FROM sysgrants WHERE object_name = 'v'"
    given = rows(root, f"{asked} AND privilege = 'SELECT' ORDER BY grantee")
    assert given == [("ann", "view"), ("bob", "view")]
    run(root, "GRANT SELECT ON t TO ann")
    assert rows(session_of(small, "bob"), "SELECT min(one) FROM v") == [(1,)]
    assert refusal(root, "ALTER VIEW t OWNER TO ann").sqlstate == "42809"
    run(root, "ALTER TABLE t OWNER TO bob")
    run(session_of(small, "bob"), "DROP TABLE t CASCADE")  # with the view, which is ann's
    assert refusal(root, "SELECT * FROM v").sqlstate == "42P01"


# --- dump and text -------------------------------------------------------------------------------


def test_a_dump_makes_views_that_mean_the_same(tmp_path: Path) -> None:
    script = tmp_path / "dump.sql"
    with herdpy.connect(":memory:", autocommit=True) as first:
        first.execute("CREATE USER ann")
        first.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
        first.execute("INSERT INTO t VALUES (1, 10), (2, 20)")
        first.execute("CREATE VIEW \"A view\" (\"a b\") AS /* ; */ SELECT 'it''s;' -- no end")
        for text in GROWN:
            first.execute(text)
        first.execute("ALTER VIEW w OWNER TO ann")
        first.execute("GRANT SELECT ON x TO PUBLIC")
        first.dump(script)
    with herdpy.connect(":memory:", autocommit=True) as again:
        for piece in split_statements(script.read_text()):
            again.execute(piece.text)
        assert {text: again.execute(text).fetchall() for text in READ} == READ
        assert again.execute('SELECT "a b" FROM "A view"').fetchall() == [("it's;",)]
        again.dump(tmp_path / "again.sql")
    lines, others = (path.read_text().splitlines()[1:] for path in (script, tmp_path / "again.sql"))
    assert lines == others
    assert lines[-2:] == ["ALTER TABLE w OWNER TO ann;", "GRANT SELECT ON x TO public;"]


def test_a_view_comes_behind_what_it_reads(db: Engine) -> None:
    session = db.session(autocommit=True)
    for text in ("CREATE VIEW z AS SELECT 1 AS a", "CREATE VIEW y AS SELECT * FROM z",
                 "CREATE VIEW a AS SELECT z.a FROM y, z", "CREATE VIEW b AS TABLE a"):  # fmt: skip
        run(session, text)
    catalog = db.database.tablespace.state.catalog
    assert [each.name for each in in_order(catalog.tables())] == ["z", "y", "a", "b"]
    assert create_view_text(found(db, "a"), catalog) == "CREATE VIEW a (a) AS\nSELECT z.a FROM y, z"


def test_the_text_of_a_view_is_as_it_was_written(db: Engine) -> None:
    session = db.session(autocommit=True)
    for text in GROWN:
        run(session, text)
    catalog = db.database.tablespace.state.catalog
    assert query_text(found(db, "w"), catalog) == (
        "SELECT * FROM (SELECT id, v FROM v) AS v NATURAL JOIN t"
    )
    assert query_text(found(db, "x"), catalog) == (
        "SELECT * FROM (SELECT id, v FROM v) AS v UNION ALL SELECT v.* FROM "
        "(SELECT id, v FROM v) AS v, w AS y (id) WHERE y.id = v.id"
    )
    assert rows(session, "SELECT columns, definition FROM sysviews WHERE view_name = 'v'") == [
        ("id, v, z, k", GROWN[3].partition(" AS ")[2])
    ]


@pytest.mark.parametrize(
    ("item", "shown"),
    [
        ("ONLY v", "(SELECT id FROM v) AS v"), ("ONLY (v)", "(SELECT id FROM v) AS v"),
        ("v*", "(SELECT id FROM v) AS v"), ("ONLY (v) AS o", "(SELECT id FROM v) AS o"),
        ("generate_series(1, 2) AS g, LATERAL (SELECT id + g FROM v) AS v",
         "generate_series(1, 2) AS g, LATERAL (SELECT id + g FROM (SELECT id FROM v) AS v) AS v"),
    ],
)  # fmt: skip
def test_a_table_is_taken_out_of_the_text_whole(db: Engine, item: str, shown: str) -> None:
    session = db.session(autocommit=True)
    for text in ("CREATE VIEW v AS SELECT 1 AS id", f"CREATE VIEW w AS SELECT * FROM {item}",
                 "CREATE OR REPLACE VIEW v AS SELECT 1 AS id, 2 AS more"):  # fmt: skip
        run(session, text)
    catalog = db.database.tablespace.state.catalog
    assert query_text(found(db, "w"), catalog) == f"SELECT * FROM {shown}"


# --- what it may cost ----------------------------------------------------------------------------


def test_views_over_views_have_an_end(db: Engine) -> None:
    session = db.session(autocommit=True)
    run(session, "CREATE VIEW v1 AS SELECT id FROM t")
    width, number, standing = 10, 1, 1
    while standing * width <= view_relations_max:
        number += 1
        arms = " UNION ALL ".join([f"SELECT id FROM v{number - 1}"] * width)
        run(session, f"CREATE VIEW v{number} AS {arms}")
        standing = (standing + 1) * width
    assert rows(session, f"SELECT count(*) FROM v{number}") == [(2 * width ** (number - 1),)]
    more = " UNION ALL ".join([f"SELECT id FROM v{number}"] * width)
    for text in (f"CREATE VIEW w AS {more}", more):
        assert refusal(session, text).sqlstate == "54001"


def test_views_over_views_are_as_deep_as_their_text(db: Engine) -> None:
    session = db.session(autocommit=True)
    run(session, "CREATE VIEW v0 AS SELECT id FROM t")
    for number in range(1, statement_depth_max):
        run(session, f"CREATE VIEW v{number} AS SELECT id FROM v{number - 1}")
    last = statement_depth_max - 1
    assert rows(session, f"SELECT id FROM v{last}") == [(1,), (2,)]
    for text in (f"SELECT id FROM (SELECT id FROM v{last}) AS q",
                 f"CREATE VIEW w AS SELECT id FROM v{last}"):  # fmt: skip
        assert refusal(session, text).sqlstate == "54001"


# --- where a table is asked for ------------------------------------------------------------------


def test_calls_that_take_tables_take_no_views() -> None:
    with herdpy.connect(":memory:", autocommit=True) as connection:
        connection.execute("CREATE VIEW v AS SELECT 1 AS id")
        batch = pa.table({"id": pa.array([7], pa.int64())})
        for call in (
            lambda: connection.ingest("v", batch),
            lambda: connection.begin_staging("v", operation="append"),
            lambda: connection.partitions("v", 2),
        ):
            with pytest.raises(herdpy.ProgrammingError) as caught:
                call()
            assert caught.value.sqlstate == "42809"
        assert connection.execute("SHOW TABLES").fetchall() == [("v",)]
        assert connection.execute("SELECT * FROM v").fetch_arrow_table().num_rows == 1
