"""ALTER TABLE: all of it or nothing, in a transaction, behind a restart, and beside others."""

import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import herdpy
from herdpy.driver.doctor import examine
from herdpy.engine.maintenance.index_check import check_indexes
from herdpy.engine.session.session import Session
from herdpy.engine.statements import altering
from herdpy.engine.writes import row_writes
from herdpy.errors import Error, IntegrityError, NotSupportedError
from herdpy.limits import alterations_max
from herdpy.model.schema import Table
from herdpy.model.settings import Settings
from herdpy.sql.reading.script import split_statements
from tests.fixtures.digest import state_digest
from tests.fixtures.engines import Background, Engine, WatchedDriver, engine, rows, run
from tests.fixtures.small_sizes import small_sizes


@pytest.fixture
def db() -> Iterator[Engine]:
    with engine() as made:
        yield made


@pytest.fixture
def session(db: Engine) -> Session:
    made = db.session(autocommit=True)
    run(made, "CREATE TABLE t (id BIGINT PRIMARY KEY, u TEXT UNIQUE, n INTEGER CHECK (n > 0))")
    run(made, "CREATE INDEX by_n ON t (n)")
    run(made, "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', NULL), (3, NULL, 3)")
    return made


def fails(session: Session, sqlstate: str, text: str, *parameters: Any) -> Error:
    with pytest.raises(Error) as caught:
        session.run(text, parameters)
    assert caught.value.sqlstate == sqlstate
    return caught.value


def table_of(db: Engine, name: str | None = None) -> Table:
    """Return the table of a name; None: the only one."""
    tables = db.database.tablespace.state.catalog.tables()
    (table,) = [table for table in tables if name in (None, table.name)]
    return table


def check(db: Engine) -> None:
    snapshot = db.database.tablespace.snapshot(None)
    try:
        for table in snapshot.state.catalog.tables():
            check_indexes(snapshot, table)
    finally:
        snapshot.close()


IN_PLACE = [
    "ALTER TABLE t RENAME TO other",
    "ALTER TABLE t RENAME n TO m",
    "ALTER TABLE t RENAME CONSTRAINT t_n_check TO c",
    "ALTER INDEX by_n RENAME TO of_n",
    "ALTER TABLE t ALTER n SET DEFAULT 4, ALTER u SET DEFAULT 'x'",
    "ALTER TABLE t ADD CHECK (length(u) < 3), ADD CHECK (n < 9) NOT VALID, ADD UNIQUE (id, n)",
    "ALTER TABLE t DROP CONSTRAINT t_n_check, DROP CONSTRAINT t_u_key",
]
ANEW = [
    "ALTER TABLE t ADD COLUMN x INTEGER NOT NULL DEFAULT 5 UNIQUE, DROP CONSTRAINT t_u_key",
    "ALTER TABLE t DROP COLUMN n, ADD COLUMN n TEXT DEFAULT 'new'",
    "ALTER TABLE t ALTER n TYPE NUMERIC(10, 2) USING n + id, ALTER id TYPE TEXT",
]
FAILING = [
    ("23502", "ALTER TABLE t ALTER n SET DEFAULT 4, ALTER n SET NOT NULL"),
    ("23514", "ALTER TABLE t RENAME n TO m; ALTER TABLE t ADD CHECK (m < 3)"),
    ("23505", "ALTER TABLE t ADD COLUMN x INTEGER DEFAULT 5 UNIQUE, DROP COLUMN u"),
    ("22001", "ALTER TABLE t ADD y INTEGER, ALTER u TYPE VARCHAR(1) USING u || 'x'"),
]


@pytest.mark.parametrize("text", [*IN_PLACE, ANEW[0].replace(" UNIQUE", ""), *ANEW[1:]])
def test_what_is_altered_is_so_behind_a_restart(db: Engine, session: Session, text: str) -> None:
    before = table_of(db)
    run(session, text)
    table = table_of(db)
    assert (table.id == before.id) is (text in IN_PLACE)
    found = rows(session, f"SELECT * FROM {table.name} ORDER BY id")
    check(db)
    for is_checkpoint in (False, True, False):
        if is_checkpoint:
            db.database.run_checkpoint()
        digest = state_digest(db.database.tablespace, has_position=False)
        db.reopen()
        assert state_digest(db.database.tablespace, has_position=False) == digest
        assert table_of(db) == table
        session = db.session(autocommit=True)
        assert rows(session, f"SELECT * FROM {table.name} ORDER BY id") == found
        check(db)


@pytest.mark.parametrize("text", [*IN_PLACE, ANEW[0].replace(" UNIQUE", ""), *ANEW[1:]])
def test_what_is_altered_is_undone_with_its_transaction(
    db: Engine, session: Session, text: str
) -> None:
    before, found = table_of(db), rows(session, "SELECT * FROM t ORDER BY id")
    other = db.session()
    run(other, "UPDATE t SET n = 2 WHERE id = 2")
    run(other, "SAVEPOINT s")
    run(other, text)
    run(other, "ROLLBACK TO s")
    assert rows(other, "SELECT id, u, n FROM t ORDER BY id")[1] == (2, "b", 2)
    run(other, text)
    other.rollback()
    assert table_of(db) == before
    assert rows(session, "SELECT * FROM t ORDER BY id") == found
    run(session, "INSERT INTO t VALUES (4, 'd', 4)")
    check(db)
    db.reopen()
    assert len(rows(db.session(), "SELECT id, u, n FROM t")) == 4
    check(db)


@pytest.mark.parametrize(("sqlstate", "texts"), FAILING)
def test_a_statement_that_fails_has_done_nothing(
    db: Engine, session: Session, sqlstate: str, texts: str
) -> None:
    *first, last = texts.split("; ")
    for autocommit in (True, False):
        each = db.session(autocommit=autocommit)
        for text in first if autocommit else ():
            run(each, text)
        before = table_of(db)
        error = fails(each, sqlstate, last)
        assert "_altered_" not in error.message
        if not autocommit:
            each.commit()
        assert table_of(db) == before
        assert len(rows(each, "SELECT * FROM t")) == 3
        each.close()
        check(db)


OF_A_HEAP = [
    "ALTER TABLE h ADD PRIMARY KEY (a, b)",
    "ALTER TABLE h ALTER a ADD GENERATED BY DEFAULT AS IDENTITY (START 7), ADD UNIQUE (b)",
    "ALTER TABLE h ADD c INTEGER DEFAULT 1, ADD CONSTRAINT k PRIMARY KEY (a),"
    " ALTER a ADD GENERATED BY DEFAULT AS IDENTITY (SEQUENCE NAME numbers START 7), DROP b",
]


@pytest.mark.parametrize("text", OF_A_HEAP)
def test_keys_and_identities_are_added(db: Engine, session: Session, text: str) -> None:
    run(session, "CREATE TABLE h (a INTEGER NOT NULL, b TEXT)")
    run(session, "INSERT INTO h VALUES (2, 'b'), (1, 'a')")
    run(session, "CREATE INDEX ON h (b, a)")
    names = {table.name for table in db.database.tablespace.state.catalog.tables()}
    before = table_of(db, "h")
    other = db.session()
    run(other, "INSERT INTO h VALUES (3, 'c')")
    run(other, "SAVEPOINT s")
    run(other, text)
    assert rows(other, "SELECT a FROM h ORDER BY a") == [(1,), (2,), (3,)]
    run(other, "ROLLBACK TO s")
    run(other, text)
    other.rollback()
    assert table_of(db, "h") == before
    assert {table.name for table in db.database.tablespace.state.catalog.tables()} == names
    run(session, text)
    table = table_of(db, "h")
    if "IDENTITY" in text:
        assert rows(session, "INSERT INTO h (a) VALUES (DEFAULT) RETURNING a") == [(7,)]
    found = rows(session, "SELECT * FROM h ORDER BY a")
    for is_checkpoint in (False, True, False):
        check(db)
        if is_checkpoint:
            db.database.run_checkpoint()
        digest = state_digest(db.database.tablespace, has_position=False)
        db.reopen()
        assert state_digest(db.database.tablespace, has_position=False) == digest
        session = db.session(autocommit=True)
        assert table_of(db, "h") == table
        assert rows(session, "SELECT * FROM h ORDER BY a") == found
    if "KEY" in text:
        fails(
            session,
            "23505",
            "INSERT INTO h (a) VALUES (1)" if " k " in text else "INSERT INTO h VALUES (1, 'a')",
        )


def test_the_sequence_of_a_new_identity_has_the_owner_of_the_table() -> None:
    with engine() as db:
        admin = db.session(autocommit=True)
        run(admin, "CREATE USER ada PASSWORD 'x'")
        run(admin, "CREATE TABLE h (a INTEGER NOT NULL)")
        run(admin, "ALTER TABLE h OWNER TO ada")
        run(admin, "ALTER TABLE h ALTER a ADD GENERATED ALWAYS AS IDENTITY")
        found = rows(admin, "SELECT sequence_name, owner_name FROM syssequences")
        assert found == [("h_a_seq", "ada")]
        ada = db.database.session(Settings(), autocommit=True, user="ada")
        run(ada, "ALTER TABLE h ADD PRIMARY KEY (a)")
        assert rows(ada, "INSERT INTO h VALUES (DEFAULT) RETURNING a") == [(1,)]
        run(ada, "DROP TABLE h")
        assert rows(admin, "SELECT sequence_name FROM syssequences") == []


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE s (id INTEGER DEFAULT nextval('q'))",
        "ALTER TABLE t ALTER n SET DEFAULT nextval('q')",
    ],
)
def test_a_sequence_that_a_default_is_about_to_use_does_not_go(text: str) -> None:
    driver = WatchedDriver()
    with engine(is_threaded=True, driver=driver) as db:
        first, second = db.session(), db.session(autocommit=True)
        run(second, "CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER)")
        run(second, "CREATE SEQUENCE q")
        run(first, text)
        assert rows(second, "SELECT nextval('q')") == [(1,)]
        with Background() as background:
            background.start(lambda: fails(second, "2BP01", "DROP SEQUENCE q"), "second")
            while driver.waits.get(timeout=60) != "second":
                pass
            first.commit()
        run(second, "DROP SEQUENCE q CASCADE")
        run(second, "CREATE SEQUENCE q")
        run(second, "BEGIN")
        run(second, "DROP SEQUENCE q")
        again = text.replace("TABLE s", "TABLE u")
        with Background() as background:
            background.start(lambda: fails(first, "42P01", again), "first")
            while driver.waits.get(timeout=60) != "first":
                pass
            run(second, "COMMIT")


def test_no_name_of_a_table_is_in_the_way(db: Engine, session: Session) -> None:
    first = table_of(db).id
    for number in range(first, first + 40):
        run(session, f"CREATE TABLE _altered_{number} (x INTEGER)")
    for number in range(30):
        run(session, f"ALTER TABLE t ADD COLUMN w{number} INTEGER")
    check(db)


def test_a_view_keeps_the_type_of_what_it_reads_also_where_columns_move(
    db: Engine, session: Session
) -> None:
    run(session, "CREATE TABLE q (a INTEGER, b INTEGER, c INTEGER, d INTEGER)")
    run(session, "CREATE VIEW w AS SELECT c FROM q")
    with pytest.raises(NotSupportedError, match='"w" reads it'):
        run(session, "ALTER TABLE q DROP a, ALTER c TYPE BIGINT")
    run(session, "ALTER TABLE q DROP a, ALTER d TYPE BIGINT")
    run(session, "ALTER TABLE q DROP b, ALTER d TYPE TEXT")


def test_rows_of_the_same_transaction_are_altered_and_tested(db: Engine, session: Session) -> None:
    other = db.session()
    run(other, "INSERT INTO t VALUES (?, ?, ?)", 4, "d", 40)
    fails(other, "23514", "ALTER TABLE t ADD CHECK (n < 40)")
    run(other, "ALTER TABLE t ADD COLUMN x INTEGER DEFAULT 7, DROP COLUMN u")
    run(other, "UPDATE t SET x = 8 WHERE id = 4")
    run(other, "ALTER TABLE t RENAME TO s")
    run(other, "ALTER TABLE s ALTER x TYPE TEXT")
    run(other, "CREATE TABLE t (a INTEGER)")
    run(other, "INSERT INTO t VALUES (1)")
    run(other, "ALTER TABLE t ADD b INTEGER, ADD UNIQUE (b)")
    expected = [(1, 1, "7"), (2, None, "7"), (3, 3, "7"), (4, 40, "8")]
    assert rows(other, "SELECT * FROM s ORDER BY id") == expected
    db.database.run_checkpoint()
    other.commit()
    for _ in range(2):
        session = db.session(autocommit=True)
        assert rows(session, "SELECT * FROM s ORDER BY id") == expected
        assert rows(session, "SELECT * FROM t") == [(1, None)]
        check(db)
        db.reopen()


def test_a_name_is_free_when_its_table_has_another_one(db: Engine, session: Session) -> None:
    run(session, "ALTER TABLE t RENAME TO s")
    run(session, "CREATE TABLE t (id INTEGER)")
    run(session, "DROP TABLE s")
    run(session, "ALTER TABLE t RENAME TO s")
    other = db.session()
    run(other, "ALTER TABLE s RENAME TO r")
    run(other, "DROP TABLE r")
    fails(other, "42P01", "SELECT * FROM s")
    other.rollback()
    db.reopen()
    assert rows(db.session(), "SELECT * FROM s") == []


def test_a_new_index_has_a_name_of_its_own(db: Engine, session: Session) -> None:
    run(session, "CREATE TABLE other (a INTEGER CONSTRAINT taken UNIQUE)")
    for change in ("ADD CONSTRAINT {} UNIQUE (n)", "ADD x INTEGER CONSTRAINT {} UNIQUE"):
        for name in ("taken", "other", "t_u_key"):
            fails(session, "42P07", f"ALTER TABLE t {change.format(name)}")
        fails(session, "42710", f"ALTER TABLE t {change.format('t_n_check')}")
    run(session, "ALTER TABLE t ADD x INTEGER UNIQUE, ADD y INTEGER UNIQUE, ADD UNIQUE (x)")
    assert [each.name for each in table_of(db, "t").indexes] == [
        "t_u_key",
        "by_n",
        "t_x_key",
        "t_y_key",
        "t_x_key1",
    ]


def test_changes_and_views_have_limits(
    db: Engine, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = ", ".join(["ALTER n SET DEFAULT 1"] * (alterations_max + 1))
    fails(session, "54000", f"ALTER TABLE t {changes}")
    monkeypatch.setattr(altering, "altered_views_max", 1)
    for name in "vw":
        run(session, f"CREATE VIEW {name} AS SELECT id FROM t")
    fails(session, "54000", "ALTER TABLE t RENAME TO s")
    run(session, "ALTER TABLE t ADD COLUMN x INTEGER")


def test_more_rows_than_memory_are_written_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_writes, "memory_changes_max", 20)
    with small_sizes(), engine() as db:
        session = db.session(autocommit=True)
        run(session, "CREATE TABLE n (i BIGINT PRIMARY KEY)")
        session.execute_many("INSERT INTO n VALUES (?)", [(i,) for i in range(10)])
        run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, u BIGINT UNIQUE, w TEXT)")
        run(session, "INSERT INTO t SELECT a.i * 10 + b.i, a.i * 10 + b.i, 'x' FROM n a, n b")
        run(session, "ALTER TABLE t DROP w, ADD x INTEGER DEFAULT 3, ALTER u SET NOT NULL")
        fails(session, "23505", "ALTER TABLE t ALTER u TYPE INTEGER USING u / 2")
        expected = [(100, 99, 300)]
        assert rows(session, "SELECT count(*), max(u), sum(x) FROM t") == expected
        check(db)
        other = db.session()
        run(other, "UPDATE t SET x = 4")
        run(other, "ALTER TABLE t ALTER x TYPE BIGINT USING x + 1")
        assert rows(other, "SELECT sum(x) FROM t") == [(500,)]
        other.commit()
        check(db)
        for _ in range(2):
            db.reopen()
            check(db)
            assert rows(db.session(), "SELECT sum(x), sum(u) FROM t") == [(500, 4950)]
            db.database.run_checkpoint()


def test_rows_that_were_spilled_before_an_alteration_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(row_writes, "memory_changes_max", 20)
    with small_sizes(), engine() as db:
        session = db.session(autocommit=True)
        run(session, "CREATE TABLE n (i BIGINT PRIMARY KEY)")
        session.execute_many("INSERT INTO n VALUES (?)", [(i,) for i in range(10)])
        run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, u BIGINT)")
        other = db.session()
        run(other, "INSERT INTO t SELECT a.i * 10 + b.i, a.i FROM n a, n b")
        run(other, "ALTER TABLE t ALTER u SET NOT NULL, ALTER u SET DEFAULT 1, ADD CHECK (u < 10)")
        run(other, "CREATE INDEX ON t (u)")
        run(other, "ALTER TABLE t RENAME TO s")
        other.commit()
        for _ in range(2):
            session = db.session(autocommit=True)
            assert rows(session, "SELECT count(*) FROM s WHERE u = 3") == [(10,)]
            check(db)
            db.database.run_checkpoint()
            db.reopen()


def test_snapshots_that_are_older_read_what_was_there(db: Engine, session: Session) -> None:
    old = db.session()
    run(old, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    assert len(rows(old, "SELECT * FROM t")) == 3
    run(session, "ALTER TABLE t RENAME n TO m")
    run(session, "ALTER TABLE t DROP COLUMN u, ADD COLUMN k INTEGER DEFAULT 1")
    db.database.run_checkpoint()
    assert rows(old, "SELECT id, u, n FROM t WHERE u = 'a'") == [(1, "a", 1)]
    fails(old, "40001", "ALTER TABLE t RENAME n TO z")
    old.rollback()
    run(old, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    assert rows(old, "SELECT k FROM t WHERE id = 1") == [(1,)]
    run(session, "INSERT INTO t (id) VALUES (9)")
    fails(old, "40001", "ALTER TABLE t ADD COLUMN z INTEGER")


def test_a_plan_of_before_is_made_again(db: Engine, session: Session) -> None:
    insert, select = "INSERT INTO t (id, n) VALUES (?, ?)", "SELECT n FROM t WHERE id = ?"
    for number in range(10, 13):
        run(session, insert, number, 5)
        assert rows(session, select, number) == [(5,)]
    other = db.session(autocommit=True)
    run(other, "ALTER TABLE t ADD CHECK (n < 9)")
    fails(session, "23514", insert, 13, 9)
    run(other, "ALTER TABLE t ADD COLUMN k INTEGER DEFAULT 4, ALTER n TYPE NUMERIC(6, 2)")
    run(session, insert, 13, 8)
    assert rows(session, select, 13) == [(Decimal("8.00"),)]
    assert rows(session, "SELECT k FROM t WHERE id = 13") == [(4,)]


def test_alter_waits_for_writers_and_they_for_it() -> None:
    driver = WatchedDriver()
    with engine(is_threaded=True, driver=driver) as db:
        session = db.session(autocommit=True)
        run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, n INTEGER)")
        writer = db.session()
        run(writer, "INSERT INTO t VALUES (1, NULL)")
        outcomes: list[object] = []

        def alter() -> None:
            try:
                outcomes.append(run(session, "ALTER TABLE t ALTER n SET NOT NULL"))
            except IntegrityError as error:
                outcomes.append(error.sqlstate)

        with Background() as background:
            background.start(alter, "alter")
            while driver.waits.get() != "alter":
                pass
            writer.commit()
        assert outcomes == ["23502"]
        run(writer, "ALTER TABLE t ADD k INTEGER DEFAULT 2")
        with Background() as background:
            background.start(lambda: run(session, "INSERT INTO t VALUES (2, 5)"), "insert")
            while driver.waits.get() != "insert":
                pass
            writer.commit()
        assert rows(session, "SELECT * FROM t ORDER BY id") == [(1, None, 2), (2, 5, 2)]


def test_a_view_follows_or_is_named(db: Engine, session: Session) -> None:
    run(session, "CREATE VIEW v AS WITH s AS (SELECT 1 AS one) SELECT * FROM t, s")
    run(session, "CREATE VIEW w AS TABLE t")
    with pytest.raises(NotSupportedError, match='view "v" would read something else'):
        run(session, "ALTER TABLE t RENAME TO s")
    run(session, "ALTER TABLE t RENAME TO z")
    run(session, "ALTER TABLE z RENAME u TO text")
    assert rows(session, "SELECT u, n FROM v WHERE id = 1") == [("a", 1)]
    assert rows(session, "SELECT u, n FROM w WHERE id = 1") == [("a", 1)]
    error = fails(session, "2BP01", "ALTER TABLE z DROP COLUMN text")
    assert 'view "v" reads it and view "w" reads it' in error.message
    run(session, "ALTER TABLE z ADD COLUMN later INTEGER")
    run(session, "ALTER TABLE z DROP COLUMN later")
    run(session, "DROP VIEW v, w")
    run(session, "CREATE VIEW v AS SELECT id, n FROM z")
    run(session, "ALTER TABLE z DROP COLUMN text")
    run(session, "ALTER TABLE z ADD COLUMN text TEXT")
    db.reopen()
    session = db.session(autocommit=True)
    assert rows(session, "SELECT * FROM v WHERE id = 1") == [(1, 1)]
    run(session, "ALTER TABLE z ALTER text TYPE INTEGER USING 1")
    with pytest.raises(NotSupportedError, match='"v" reads it'):
        run(session, "ALTER TABLE z ALTER n TYPE BIGINT")


def test_it_takes_the_owner_and_keeps_owner_and_grants() -> None:
    with engine() as db:
        admin = db.session(autocommit=True)
        run(admin, "CREATE USER ada PASSWORD 'x'")
        run(admin, "CREATE USER bob PASSWORD 'x'")
        run(admin, "GRANT CREATE ON TABLESPACE default TO ada")
        run(admin, "CREATE TABLE t (a INTEGER)")
        run(admin, "ALTER TABLE t OWNER TO ada")
        run(admin, "GRANT INSERT, UPDATE, DELETE, SELECT ON t TO bob")
        bob, ada = (
            db.database.session(Settings(), autocommit=True, user=name) for name in ("bob", "ada")
        )
        for text in ("ADD b INTEGER", "RENAME TO u", "ALTER a SET DEFAULT 1", "ADD UNIQUE (a)"):
            fails(bob, "42501", f"ALTER TABLE t {text}")
        run(ada, "ALTER TABLE t ADD b INTEGER")
        run(ada, "ALTER TABLE t RENAME TO u")
        run(bob, "INSERT INTO u VALUES (1, 2)")
        run(ada, "ALTER TABLE u DROP b")
        assert rows(bob, "SELECT * FROM u") == [(1,)]


def test_a_random_life_of_alterations(db: Engine) -> None:
    chance = random.Random(11)
    session = db.session(autocommit=True)
    run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, c0 INTEGER)")
    columns, made = ["c0"], 1
    model: dict[int, dict[str, int | None]] = {}
    for number in range(150):
        each = session if number % 3 else db.session()
        before = {key: dict(row) for key, row in model.items()}, list(columns)
        for _ in range(1 if number % 3 else 4):
            word = chance.choice(["row", "row", "add", "drop", "rename", "null", "index"])
            column = chance.choice(columns)
            if word == "add" and len(columns) < 6:
                default = chance.choice([None, 5])
                run(each, f"ALTER TABLE t ADD c{made} INTEGER DEFAULT {default or 'NULL'}")
                columns.append(f"c{made}")
                for row in model.values():
                    row[f"c{made}"] = default
                made += 1
            elif word == "drop" and len(columns) > 1:
                run(each, f"ALTER TABLE t DROP {column}")
                columns.remove(column)
                for row in model.values():
                    del row[column]
            elif word == "rename":
                run(each, f"ALTER TABLE t RENAME {column} TO c{made}")
                columns[columns.index(column)] = f"c{made}"
                for row in model.values():
                    row[f"c{made}"] = row.pop(column)
                made += 1
            elif word == "null" and all(row[column] is not None for row in model.values()):
                run(each, f"ALTER TABLE t ALTER {column} SET NOT NULL")
                run(each, f"ALTER TABLE t ALTER {column} DROP NOT NULL")
            elif word == "index":
                run(each, f"CREATE INDEX ON t ({column})")
            elif word == "row":
                key, value = chance.randrange(12), chance.choice([None, 1, 2])
                run(each, f"UPSERT INTO t (id, {column}) VALUES (?, ?)", key, value)
                defaults = rows(each, "SELECT * FROM t WHERE id = ?", key)[0][1:]
                model[key] = dict(zip(columns, defaults, strict=True))
                assert model[key][column] == value
            elif word == "null":
                fails(each, "23502", f"ALTER TABLE t ALTER {column} SET NOT NULL")
        if each is not session:
            if chance.random() < 0.5:
                each.commit()
            else:
                each.rollback()
                model, columns = before
            each.close()
        if number % 25 == 0:
            db.database.run_checkpoint()
        if number % 30 == 0:
            db.reopen()
            session = db.session(autocommit=True)
        found = rows(session, f"SELECT id, {', '.join(columns)} FROM t ORDER BY id")
        assert found == [
            (key, *(model[key][column] for column in columns)) for key in sorted(model)
        ]
        check(db)


def test_backup_dump_and_doctor_know_what_was_altered(tmp_path: Path) -> None:
    path = str(tmp_path / "db")
    with herdpy.connect(path, autocommit=True) as conn:
        conn.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, a INTEGER, b TEXT)")
        conn.execute("INSERT INTO t VALUES (1, -1, 'a')")
        conn.execute("ALTER TABLE t ADD CHECK (a > 0) NOT VALID")
        conn.execute("ALTER TABLE t DROP b, ADD c INTEGER DEFAULT 2, ADD UNIQUE (c)")
        conn.execute("ALTER TABLE t RENAME TO u")
        conn.backup(tmp_path / "backup")
        conn.dump(tmp_path / "dump.sql")
    assert examine(path).damages == []
    copy = str(tmp_path / "copy")
    herdpy.restore(tmp_path / "backup", copy)
    assert examine(copy).damages == []
    with herdpy.connect(str(tmp_path / "again"), autocommit=True) as conn:
        for statement in split_statements((tmp_path / "dump.sql").read_text()):
            conn.execute(statement.text)
        conn.dump(tmp_path / "again.sql")
    found = [(tmp_path / name).read_text().split("\n")[1:] for name in ("dump.sql", "again.sql")]
    assert found[0] == found[1]
    assert "ADD CONSTRAINT t_a_check CHECK (a > 0) NOT VALID" in "\n".join(found[0])
