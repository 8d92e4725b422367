"""syslimits and syswaits: what is used of each limit, who waits for what, and who holds it."""

from collections.abc import Iterator

import pytest

import herdpy
from herdpy.engine.limit_rows import WaitRow
from herdpy.engine.session.session import Session
from herdpy.engine.statements.lock_wait import MustWaitError
from herdpy.errors import LockTimeoutError, QueryCanceledError
from herdpy.model.settings import Settings
from tests.fixtures.access import run, session_of, small_engine
from tests.fixtures.engines import Background, Engine

BIG = "SELECT id, sum(id) OVER (ORDER BY id) FROM t"
PRODUCT = ", ".join(
    f"(VALUES {', '.join(f'({n})' for n in range(1_000))}) AS {name}(x)" for name in "ab"
)
"""A million rows."""
LIMITS = "SELECT share, used, refused FROM syslimits WHERE name = '{}' AND user_name = '{}'"


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = small_engine()
    yield engine
    engine.database.close()


def served(engine: Engine, user: str | None = None) -> Session:
    """Return a session whose statements wait without a thread."""
    session = engine.database.session(Settings(), autocommit=True, user=user)
    session.leaves_waits = True
    return session


def test_limits_show_what_is_used_and_refused(engine: Engine) -> None:
    root, ann = session_of(engine), session_of(engine, "ann")
    run(root, "GRANT SELECT ON t TO ann", "ALTER ROLE ann SET MAXIMUM open_results = 2")
    run(root, "ALTER ROLE ann SET MAXIMUM leases = 3")
    opened = [ann.execute(BIG) for _ in range(2)]
    with pytest.raises(Exception, match='user "ann"\'s'):
        ann.execute(BIG)
    ann.leasing.take(60)
    for name, user, expected in (
        ("vector_results", "", (32, 2, 1)),
        ("open_results", "ann", (2, 2, 1)),
        ("leases", "", (100, 1, 0)),
        ("leases", "ann", (3, 1, 0)),
        ("stagings", "", (1_000, 0, 0)),
        ("memory_transactions", "", (512 * 1024 * 1024, 0, 0)),
    ):
        assert run(root, LIMITS.format(name, user)) == [expected], (name, user)
    for each in opened:
        each.close()
    assert run(root, LIMITS.format("open_results", "ann")) == [(2, 0, 1)]


def test_leases_and_stagings_that_were_refused_are_counted(engine: Engine) -> None:
    root, ann = session_of(engine), session_of(engine, "ann")
    run(root, "GRANT SELECT, INSERT ON t TO ann")
    run(root, "ALTER ROLE ann SET MAXIMUM leases = 1", "ALTER ROLE ann SET MAXIMUM stagings = 0")
    ann.leasing.take(60)
    for _ in range(2):
        with pytest.raises(herdpy.OperationalError, match="more are not allowed"):
            ann.leasing.take(60)
    with pytest.raises(herdpy.OperationalError, match="more are not allowed"):
        ann.staging.begin("t", "append", "job", [])
    for name, user, expected in (
        ("leases", "", (100, 1, 2)),
        ("leases", "ann", (1, 1, 2)),
        ("stagings", "", (1_000, 0, 1)),
        ("stagings", "ann", (0, 0, 1)),
    ):
        assert run(root, LIMITS.format(name, user)) == [expected], (name, user)


def test_another_role_of_the_name_begins_at_0(engine: Engine) -> None:
    root, ann = session_of(engine), session_of(engine, "ann")
    dropped, refusals = ann.identity, engine.database.refusals
    settings = ("leases = 0", "open_results = 0", "lock_timeout = '1ms'")
    maxima = [f"ALTER ROLE ann SET MAXIMUM {setting}" for setting in settings]
    run(root, "GRANT SELECT, UPDATE ON t TO ann", *maxima)
    with pytest.raises(herdpy.OperationalError, match="more are not allowed"):
        ann.leasing.take(60)
    with pytest.raises(herdpy.OperationalError, match="not allowed"):
        ann.execute(BIG)
    run(root, "BEGIN", "UPDATE t SET v = 'b' WHERE id = 1")
    with pytest.raises(LockTimeoutError):
        run(ann, "UPDATE t SET v = 'c' WHERE id = 1")
    run(root, "ROLLBACK")
    query = "SELECT name, refused FROM syslimits WHERE user_name = 'ann' ORDER BY name"
    assert run(root, query) == [("leases", 1), ("lock_timeout", 1), ("open_results", 1)]
    run(root, "REVOKE SELECT, UPDATE ON t FROM ann", "DROP ROLE ann", "CREATE USER ann", *maxima)
    assert run(root, query) == [("leases", 0), ("lock_timeout", 0), ("open_results", 0)]
    # Of the one that was dropped nothing is kept, and of all everything.
    names = ("leases", "lock_timeout", "open_results")
    assert [refusals.count(name, dropped) for name in names] == [0, 0, 0]
    assert [refusals.count(name) for name in names] == [1, 1, 1]


def test_time_outs_show_the_longest_and_how_many_they_have_ended(engine: Engine) -> None:
    root, holder, ann = session_of(engine), session_of(engine), session_of(engine, "ann")
    run(root, "GRANT SELECT, UPDATE ON t TO ann")
    for name, value in (("statement_timeout", "20s"), ("lock_timeout", "10s")):
        run(root, f"ALTER ROLE ann SET MAXIMUM {name} = '{value}'")
    run(holder, "BEGIN", "UPDATE t SET v = 'b' WHERE id = 1")
    update = "UPDATE t SET v = 'c' WHERE id = 1"
    run(ann, "SET lock_timeout = '10ms'")
    with pytest.raises(LockTimeoutError):
        run(ann, update)
    run(ann, "SET lock_timeout = '10s'", "SET statement_timeout = '10ms'")
    with pytest.raises(QueryCanceledError, match="statement_timeout"):
        run(ann, update)
    with pytest.raises(QueryCanceledError, match="statement_timeout"):
        run(ann, f"SELECT count(*) FROM {PRODUCT}, {PRODUCT.replace(') AS ', ') AS more_')}"
                 " WHERE a.x * b.x = -1")  # fmt: skip
    run(holder, "ROLLBACK", "SET idle_in_transaction_session_timeout = '10ms'", "BEGIN")
    run(holder, "UPDATE t SET v = 'b' WHERE id = 1")
    idle = LIMITS.format("idle_in_transaction_session_timeout", "")
    while run(root, idle)[0][1] < 10:
        pass
    for _ in range(3):  # as long as its client says nothing
        holder.look_after(engine.database.clock.monotonic())
    assert run(root, idle) == [(0, 0, 1)]
    for name, user, share, ended in (
        ("lock_timeout", "", 0, 1),
        ("lock_timeout", "ann", 10_000, 1),
        ("statement_timeout", "", 0, 2),
        ("statement_timeout", "ann", 20_000, 2),
    ):
        assert run(root, f"SELECT share, refused FROM syslimits WHERE name = '{name}'"
                         f" AND user_name = '{user}'") == [(share, ended)], name  # fmt: skip


def test_queries_that_needed_too_much_are_counted(engine: Engine) -> None:
    root, ann = session_of(engine), session_of(engine, "ann")
    run(root, "GRANT SELECT ON t TO ann", "ALTER ROLE ann SET MAXIMUM query_memory = '16MB'")
    big = f"SELECT count(*) FROM (SELECT DISTINCT a.x * 1000 + b.x AS y FROM {PRODUCT})"
    with pytest.raises(herdpy.OperationalError) as caught:
        run(ann, big)
    assert caught.value.sqlstate == "53200"
    query = "SELECT name, user_name FROM syslimits WHERE refused > 0 ORDER BY name"
    found = run(root, query)
    assert found in (
        [("query_memory", "ann"), ("vector_bytes_max", "")],
        [("temp_file_limit", "ann"), ("vector_spill_bytes_max", "")],
    )


def test_who_waits_for_a_lock_is_shown_with_who_holds_it(engine: Engine) -> None:
    root, holder, waiter = session_of(engine), served(engine), served(engine)
    run(holder, "BEGIN", "UPDATE t SET v = 'b' WHERE id = 1")
    update = "UPDATE t SET v = 'c' WHERE id = 1"
    with pytest.raises(MustWaitError):
        waiter.execute(update)
    [(client, statement, waits_for, waited_s, held_by)] = run(root, "SELECT * FROM syswaits")
    assert (client, waits_for, held_by) == (waiter.id, "lock", str(holder.id))
    assert run(root, f"SELECT text FROM sysstatements WHERE id = {statement}") == [(update,)]
    assert waited_s >= 0
    run(holder, "COMMIT")
    waiter.execute(update)
    assert run(root, "SELECT * FROM syswaits") == []


def test_waits_of_other_tablespaces_are_shown_in_default_alone(engine: Engine) -> None:
    root = session_of(engine)
    run(root, "CREATE TABLESPACE sales", "CREATE TABLESPACE lent")
    instance = engine.database.instance
    sales, lent = (instance.tablespaces.database(name) for name in ("sales", "lent"))
    first, holder, waiter = (sales.session(Settings(), autocommit=True) for _ in range(3))
    run(first, "CREATE TABLE t (id INTEGER PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    run(holder, "BEGIN", "DELETE FROM t")
    waiter.leaves_waits = True
    with pytest.raises(MustWaitError):
        waiter.execute("DELETE FROM t")
    # A server knows of all tablespaces who waits for workers, and who has these.
    at_workers = WaitRow(holder.id, None, "worker", 1.0, (root.id, first.id))
    for database in (engine.database, sales, lent):
        database.limits.add(lambda: (), lambda: (at_workers,))
    query = "SELECT client_id, waits_for, held_by FROM syswaits ORDER BY waits_for"
    lock = (waiter.id, "lock", str(holder.id))
    assert run(root, query) == [lock, (holder.id, "worker", f"{root.id}, {first.id}")]
    assert run(first, query) == [lock, (holder.id, "worker", str(first.id))]
    assert run(lent.session(Settings(), autocommit=True), query) == []
    run(holder, "COMMIT")


def test_a_thread_that_waits_is_shown_too(engine: Engine) -> None:
    root, holder, waiter = session_of(engine), session_of(engine), session_of(engine)
    run(holder, "BEGIN", "UPDATE t SET v = 'b' WHERE id = 1")
    with Background() as background:
        background.start(lambda: run(waiter, "UPDATE t SET v = 'c' WHERE id = 1"))
        query = "SELECT client_id, waits_for, held_by FROM syswaits"
        while not (found := run(root, query)):
            pass
        assert found == [(waiter.id, "lock", str(holder.id))]
        run(holder, "COMMIT")
    assert run(root, query) == []


def test_who_waits_for_a_place_is_shown_with_who_has_results(engine: Engine) -> None:
    root = session_of(engine)
    engine.database.results.unread_s = 60.0
    engine.database.results.count_max = 4
    holder, waiter = served(engine, "ann"), served(engine, "ann")
    run(root, "GRANT SELECT ON t TO ann", "ALTER ROLE ann SET MAXIMUM open_results = 4")
    opened = [holder.execute(BIG) for _ in range(2)]
    with pytest.raises(MustWaitError):
        waiter.execute(BIG)
    assert waiter.lock_wait is not None
    waiter.lock_wait.ticket.on_done(lambda: None)
    query = "SELECT client_id, waits_for, held_by FROM syswaits"
    assert run(root, query) == [(waiter.id, "result", str(holder.id))]
    opened.pop().close()
    assert waiter.lock_wait.ticket.is_done
    assert len(list(waiter.execute(BIG).rows())) == 1
    assert run(root, query) == []
