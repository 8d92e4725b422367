"""A user who was dropped: her sessions end, what she has in the log ends, and the name is free."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from bookie.runtime.memory_disk import MemoryDisk
from herdpy.engine.session.activity import Client
from herdpy.engine.session.session import Session
from herdpy.engine.state.tablespace import Entry
from herdpy.engine.state.transactions import Transaction
from herdpy.errors import Error, OperationalError
from herdpy.log.record import BeginLease, BeginStaging, ChangeAccess, encode
from herdpy.model.access import Role, User
from herdpy.model.durability import Durability
from herdpy.model.settings import Settings
from tests.fixtures.access import refusal, run, session_of, small_engine
from tests.fixtures.engines import Background, Engine

GONE = "57P01"


READERS = "GRANT SELECT ON t TO PUBLIC"
"""Who takes a lease may read some table."""


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = small_engine()
    run(session_of(made), READERS)
    yield made
    made.database.close()


def recreate(root: Session) -> None:
    run(root, "DROP USER ann", "CREATE USER ann", "GRANT SELECT, INSERT, UPDATE ON t TO ann")


def test_a_new_user_of_the_name_is_another_one(engine: Engine) -> None:
    root, ann = session_of(engine), session_of(engine, "ann")
    recreate(root)
    assert refusal(ann, "SELECT * FROM t").sqlstate == GONE
    assert refusal(ann, "SELECT 1").sqlstate == GONE
    for call in (ann.begin, ann.tables, lambda: ann.leasing.take(60), lambda: ann.resolve("x", 1)):
        with pytest.raises(OperationalError) as caught:
            call()
        assert caught.value.sqlstate == GONE
    assert run(session_of(engine, "ann"), "SELECT id FROM t") == [(1,)]
    ann.close()


@pytest.mark.parametrize("end", ["DROP USER ann; CREATE USER ann", "BEGIN; DROP USER ann; COMMIT",
    "BEGIN; DROP USER ann; CREATE USER ann; COMMIT"])  # fmt: skip
def test_a_transaction_of_hers_is_rolled_back(engine: Engine, end: str) -> None:
    root, ann = session_of(engine), session_of(engine, "ann")
    run(root, "GRANT SELECT, UPDATE ON t TO ann")
    run(ann, "BEGIN", "UPDATE t SET v = 'hers' WHERE id = 1")
    run(root, "REVOKE ALL ON t FROM ann", *end.split("; "))
    with pytest.raises(OperationalError) as caught:
        ann.commit()
    assert caught.value.sqlstate == GONE
    assert run(root, "SELECT v FROM t", "UPDATE t SET v = 'b' WHERE id = 1", "SELECT v FROM t") == [
        ("b",)
    ]
    assert not engine.locks


def test_a_rolled_back_drop_ends_nothing(engine: Engine) -> None:
    root, ann = session_of(engine), session_of(engine, "ann")
    lease = ann.leasing.take(60)
    run(root, "BEGIN", "DROP USER ann", "CREATE USER ann", "ROLLBACK")
    assert ann.leasing.use(lease.id).id == lease.id
    assert run(ann, "SELECT 1") == [(1,)]


def test_altering_a_user_ends_nothing(engine: Engine) -> None:
    root, ann = session_of(engine), session_of(engine, "ann")
    run(root, "ALTER USER ann PASSWORD 'x'", "BEGIN", "ALTER USER ann CREATEROLE", "COMMIT")
    assert run(ann, "SELECT 1") == [(1,)]


def test_her_connection_is_told(engine: Engine) -> None:
    told: list[Error] = []
    client = Client("tcp", "far:1", told.append)
    engine.database.session(Settings(), client=client, user="ann")
    run(session_of(engine), "DROP USER ann")
    assert [error.sqlstate for error in told] == [GONE]
    assert '"ann" was dropped' in told[0].message


def test_a_statement_of_hers_that_waits_is_ended() -> None:
    with_threads = small_engine()
    run(session_of(with_threads), READERS)
    root, ann, other = (session_of(with_threads, user) for user in (None, "ann", None))
    run(root, "GRANT SELECT, UPDATE ON t TO ann")
    run(other, "BEGIN", "UPDATE t SET v = 'other' WHERE id = 1")
    found: list[str | None] = []
    with Background() as background:
        background.start(
            lambda: found.append(refusal(ann, "UPDATE t SET v = 'hers' WHERE id = 1").sqlstate)
        )
        while with_threads.database.tablespace.locks._queues == {}:
            pass
        run(root, "REVOKE ALL ON t FROM ann", "DROP USER ann")
    assert found in (["57014"], [GONE])
    assert refusal(ann, "SELECT 1").sqlstate == GONE
    with_threads.database.close()


def test_a_table_of_hers_is_named(engine: Engine) -> None:
    root, ann = session_of(engine), session_of(engine, "ann")
    run(root, "GRANT CREATE ON TABLESPACE default TO ann")
    run(ann, "CREATE TABLE hers (id INT PRIMARY KEY)")
    run(root, "REVOKE CREATE ON TABLESPACE default FROM ann")
    error = refusal(root, "DROP USER ann")
    assert error.sqlstate == "2BP01"
    assert "it owns table hers" in error.message
    assert run(ann, "SELECT 1") == [(1,)]


def owned(engine: Engine) -> tuple[int, int]:
    tablespace = engine.database.tablespace
    leases = [each for each in tablespace.applier.leases if each.owner and each.owner.name == "ann"]
    found = tablespace.state.staged.jobs.values()
    jobs = [each for each in found if each.user and each.user.name == "ann"]
    return len(leases), len(jobs)


@pytest.mark.parametrize("is_checkpointed", [False, True])
@pytest.mark.parametrize("texts", [["DROP USER ann"], ["BEGIN", "DROP USER ann", "COMMIT"]])
def test_what_she_has_in_the_log_ends_with_her(
    engine: Engine, texts: list[str], *, is_checkpointed: bool
) -> None:
    root, ann = session_of(engine), session_of(engine, "ann")
    run(root, "GRANT INSERT ON t TO ann")
    lease = ann.leasing.take(3600)
    ann.staging.begin("t", "append", "job")
    assert owned(engine) == (1, 1)
    if is_checkpointed:
        engine.database.run_checkpoint()
    run(root, "REVOKE ALL ON t FROM ann", *texts, "CREATE USER ann", "GRANT INSERT ON t TO ann")
    assert owned(engine) == (0, 0)
    engine.reopen()
    assert owned(engine) == (0, 0)
    ann = session_of(engine, "ann")
    with pytest.raises(Error) as caught:
        ann.leasing.use(lease.id)
    assert caught.value.sqlstate == "72000"
    with pytest.raises(Error) as caught:
        ann.staging.abort("job") or ann.staging.commit("job", [])
    assert caught.value.sqlstate == "42704"


def test_what_begins_behind_the_drop_in_the_log_is_refused() -> None:
    """The drop is in the log, and not applied: she is there still, as far as one can read."""
    made = Engine(disk=MemoryDisk())
    root = session_of(made)
    run(root, "CREATE TABLE t (id INT PRIMARY KEY)", "CREATE USER ann", "GRANT INSERT ON t TO ann")
    ann, tablespace = session_of(made, "ann"), made.database.tablespace
    run(root, "REVOKE INSERT ON t FROM ann", "GRANT INSERT ON t TO PUBLIC")
    seen: list[Any] = []
    apply = tablespace.drain

    def before_it_is_applied() -> None:
        entry = tablespace._queue[-1] if tablespace._queue else None
        if entry is not None and "ChangeAccess" in type(entry.changes[-1]).__name__ and not seen:
            user = ann.identity
            assert user is not None
            assert tablespace.state.catalog.access.has(user)
            try:
                tablespace.check_user(user)
            except OperationalError as error:
                seen.append(error.sqlstate)
        apply()

    tablespace.drain = before_it_is_applied  # type: ignore[method-assign]
    run(root, "DROP USER ann")
    assert seen == [GONE]
    made.database.close()


def test_durability_of_the_drop_does_not_hold_it_up() -> None:
    made = Engine(disk=MemoryDisk(), is_threaded=True)
    root = made.session(autocommit=True, durability=Durability.NONE)
    run(root, "CREATE TABLE t (id INT PRIMARY KEY)", "CREATE USER ann", READERS)
    session_of(made, "ann").leasing.take(60)
    run(root, "DROP USER ann")
    assert owned(made) == (0, 0)
    made.database.close()


def test_no_session_without_such_a_user(engine: Engine) -> None:
    access = engine.database.tablespace.state.catalog.access
    user = access.user("ann")
    assert user is not None
    recreate(session_of(engine))
    for who in ("nobody", user):
        with pytest.raises(OperationalError) as caught:
            engine.database.session(Settings(), user=who)
        assert caught.value.sqlstate == "28000"


@pytest.mark.parametrize("is_lease", [True, False])
def test_what_is_in_the_log_before_the_drop_and_not_applied_ends(*, is_lease: bool) -> None:
    made = Engine(disk=MemoryDisk())
    root = session_of(made)
    run(root, "CREATE TABLE t (id INT PRIMARY KEY)", "CREATE USER ann")
    tablespace = made.database.tablespace
    table = tablespace.state.catalog.table("t")
    assert table is not None
    record: BeginLease | BeginStaging = BeginLease("lease", "ann", 60.0, 0)
    if not is_lease:
        record = BeginStaging("job", table.id, table.version, "append", 0, "ann")
    owner = Transaction(Durability.SYNC, begun_us=0, is_autocommit=True)
    with tablespace.monitor:
        tablespace.enter()
        tablespace.submit(Entry([record], [encode(record)], owner, ends=True))
    assert owned(made) == (0, 0)
    run(root, "DROP USER ann")
    assert owned(made) == (0, 0)
    made.reopen()
    assert owned(made) == (0, 0)
    made.database.close()


def ids_of(engine: Engine) -> dict[str, int]:
    access = engine.database.tablespace.state.catalog.access
    return {fact.name: fact.id for fact in access.facts if isinstance(fact, Role)}


def test_an_id_is_never_used_twice(engine: Engine) -> None:
    root = session_of(engine)
    first = ids_of(engine)["ann"]
    run(root, "ALTER USER ann PASSWORD 'x'", "CREATE ROLE r")
    assert ids_of(engine) == {"ann": first, "r": first + 1}
    run(root, "DROP ROLE r", "DROP USER ann")
    engine.reopen()  # from the log alone
    run(session_of(engine), "CREATE USER ann")
    assert ids_of(engine) == {"ann": first + 2}
    run(session_of(engine), "DROP USER ann")
    engine.database.run_checkpoint()
    engine.reopen()
    run(session_of(engine), "BEGIN", "CREATE USER ann", "CREATE ROLE r", "ROLLBACK")
    run(session_of(engine), "CREATE USER ann")
    assert ids_of(engine)["ann"] > first + 2


def test_a_committed_job_is_not_inherited(engine: Engine) -> None:
    root = session_of(engine)
    run(root, "GRANT INSERT ON t TO ann")
    ann = session_of(engine, "ann")
    ann.staging.begin("t", "append", "job")
    position = ann.staging.commit("job", [])
    for is_checkpointed in (False, True):
        assert session_of(engine, "ann").staging.position("job") == position
        if is_checkpointed:
            engine.database.run_checkpoint()
        engine.reopen()
    root = session_of(engine)
    run(root, "REVOKE ALL ON t FROM ann", "DROP USER ann", "CREATE USER ann")
    run(root, "GRANT INSERT ON t TO ann")
    for _ in range(2):
        new = session_of(engine, "ann")
        for call in (
            partial(new.staging.position, "job"),
            partial(new.staging.commit, "job", []),
        ):
            with pytest.raises(Error) as caught:
                call()
            assert caught.value.sqlstate == "42501"
        assert session_of(engine).staging.position("job") == position
        engine.database.run_checkpoint()
        engine.reopen()


def test_what_format_1_logged_by_name_is_whose_the_name_was(engine: Engine) -> None:
    root = session_of(engine)
    tablespace = engine.database.tablespace
    plain = [[[1, "eve"], [True, False, False, None, None]]]
    for record in (ChangeAccess(None, 1, plain), BeginLease("lease", "eve", 3600.0, 0)):
        with tablespace.monitor:
            tablespace.enter()
            owner = Transaction(Durability.SYNC, begun_us=0, is_autocommit=True)
            tablespace.submit(Entry([record], [encode(record)], owner, ends=True))
        tablespace.sync_log()
    found = ids_of(engine)
    assert found["eve"] == found["ann"] + 1
    engine.reopen()
    assert ids_of(engine) == found
    eve = session_of(engine, "eve")
    assert eve.leasing.use("lease").id == "lease"
    (lease,) = engine.database.tablespace.applier.leases
    assert lease.owner == User("eve", found["eve"])
    root = session_of(engine)
    assert run(root, "SELECT user_name FROM sysleases") == [("eve",)]
    run(root, "DROP USER eve")
    assert run(root, "SELECT user_name FROM sysleases") == []
