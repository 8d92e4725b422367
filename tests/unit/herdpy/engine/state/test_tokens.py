"""Commit tokens: decided once, by the log's order, and remembered through crash and checkpoint."""

from collections.abc import Iterable

import pytest

from bookie.runtime.ticket import Ticket
from herdpy.engine.session.session import Session
from herdpy.engine.state import commit_tokens
from herdpy.engine.state.commit_tokens import CommitTokens, Outcome, UsedToken, new_session_name
from herdpy.errors import OperationalError, ProgrammingError, Retry, SerializationError
from herdpy.log.record import Commit, Expire, Refuse
from herdpy.model.durability import Durability
from tests.fixtures.digest import state_digest
from tests.fixtures.engines import Engine, engine, rows, run, table
from tests.sim.disk import SimulatedDisk


def use(session: Session, counter: int, acknowledged: int = 0) -> None:
    session.token = UsedToken((session.token_session, counter), acknowledged)


def insert(session: Session, key: int, counter: int, acknowledged: int = 0) -> None:
    """Insert one row in a transaction of its own and commit it by its token."""
    run(session, "INSERT INTO t VALUES (?, 0)", key)
    use(session, counter, acknowledged)
    session.commit()


def crash(db: Engine) -> None:
    """Lose what was not synced, and open what is left."""
    assert isinstance(db.disk, SimulatedDisk)
    db.disk = db.disk.crash()
    db.open()


STYLES = ["replayed", "checkpoint", "checkpoint between"]


@pytest.mark.parametrize("style", STYLES)
def test_outcomes_survive_a_crash(style: str, seed: int) -> None:
    with engine(disk=SimulatedDisk(seed)) as db:
        a, b = db.session(), db.session(autocommit=True)
        table(a)
        insert(a, 1, 1)
        if style == "checkpoint between":
            db.database.run_checkpoint()
        use(b, 7)
        run(b, "INSERT INTO t VALUES (2, 0)")
        assert b.resolve(a.token_session, 2) is Outcome.REFUSED
        if style == "checkpoint":
            db.database.run_checkpoint()
        expected = state_digest(db.database.tablespace)
        crash(db)
        assert state_digest(db.database.tablespace) == expected
        c = db.session()
        assert c.resolve(a.token_session, 1) is Outcome.COMMITTED
        assert c.resolve(b.token_session, 7) is Outcome.COMMITTED
        assert c.resolve(a.token_session, 2) is Outcome.REFUSED
        assert rows(c, "SELECT id FROM t ORDER BY id") == [(1,), (2,)]


@pytest.mark.parametrize(
    "statement",
    ["INSERT INTO t VALUES (5, 0)", "CREATE TABLE u (id BIGINT PRIMARY KEY)", "DROP TABLE t"],
)
def test_an_autocommit_statement_carries_its_token(statement: str) -> None:
    with engine() as db:
        a, b = db.session(autocommit=True), db.session(autocommit=True)
        table(a)
        use(a, 3)
        run(a, statement)
        assert b.resolve(a.token_session, 3) is Outcome.COMMITTED
        use(a, 4)
        assert b.resolve(a.token_session, 4) is Outcome.REFUSED
        with pytest.raises(SerializationError) as caught:
            run(a, "CREATE TABLE v (id BIGINT PRIMARY KEY)")
        assert (caught.value.sqlstate, caught.value.retry) == ("40000", Retry.SAFE)
        assert db.locks == {}
        use(a, 5)
        run(a, "CREATE TABLE v (id BIGINT PRIMARY KEY)")  # the session goes on


def test_a_question_that_overtakes_the_commit_forbids_it() -> None:
    with engine() as db:
        a, b = db.session(), db.session()
        table(a)
        run(a, "INSERT INTO t VALUES (1, 0)")
        use(a, 1)
        assert b.resolve(a.token_session, 1) is Outcome.REFUSED
        with pytest.raises(SerializationError, match="decided already"):
            a.commit()
        assert not a.in_transaction
        assert rows(b, "SELECT * FROM t") == []
        b.commit()
        insert(a, 1, 2)  # nothing holds the row
        assert b.resolve(a.token_session, 1) is Outcome.REFUSED


def test_a_no_waits_until_its_refusal_is_durable(seed: int) -> None:
    with engine(disk=SimulatedDisk(seed)) as db:
        a = db.session()
        table(a)
        run(a, "INSERT INTO t VALUES (1, 0)")
        token = (a.token_session, 1)
        tablespace = db.database.tablespace
        found = tablespace.decide(token)
        assert isinstance(found, Ticket)
        assert not found.is_done
        assert tablespace.decide(token) is found, "the second asker waits for the same record"
        use(a, 1)
        with pytest.raises(SerializationError):  # logged, if not durable: the commit is late
            a.commit()
        tablespace.sync_log()
        assert found.is_done
        assert tablespace.decide(token) is Outcome.REFUSED


def test_a_question_waits_for_a_commit_that_is_under_way() -> None:
    with engine() as db:
        a = db.session()
        table(a)
        run(a, "INSERT INTO t VALUES (1, 0)")
        tablespace = db.database.tablespace
        transaction = next(iter(tablespace.open_transactions()))
        transaction.token = UsedToken((a.token_session, 1), 0)
        outcome = tablespace.commit(transaction)
        assert tablespace.decide((a.token_session, 1)) is outcome
        tablespace.sync_log()
        assert tablespace.decide((a.token_session, 1)) is Outcome.COMMITTED


@pytest.mark.parametrize("durability", [Durability.OS, Durability.NONE])
def test_a_yes_is_durable_though_its_commit_did_not_wait(durability: Durability, seed: int) -> None:
    with engine(disk=SimulatedDisk(seed)) as db:
        a = db.session(durability=durability)
        table(a)
        insert(a, 1, 1)
        assert db.session().resolve(a.token_session, 1) is Outcome.COMMITTED
        crash(db)
        assert db.session().resolve(a.token_session, 1) is Outcome.COMMITTED
        assert rows(db.session(), "SELECT id FROM t") == [(1,)]


def test_what_is_acknowledged_is_let_go_and_never_said_to_have_failed() -> None:
    with engine() as db:
        a, b = db.session(), db.session()
        table(a)
        for counter in range(1, 50):
            insert(a, counter, counter, counter - 1)
        (kept,) = db.database.tablespace.applier.tokens.to_plain()
        assert kept == (a.token_session, 48, [(49, True)])
        assert b.resolve(a.token_session, 7) is Outcome.UNKNOWN
        run(a, "INSERT INTO t VALUES (100, 0)")
        use(a, 7)
        with pytest.raises(SerializationError):  # late: its client has gone on
            a.commit()


def test_outcomes_that_nobody_acknowledges_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_tokens, "token_outcomes_max", 3)
    with engine() as db:
        a = db.session()
        table(a)
        for counter in (1, 2, 3):
            insert(a, counter, counter)
        with pytest.raises(OperationalError, match="acknowledge") as caught:
            insert(a, 4, 4)
        assert caught.value.sqlstate == "53400"
        a.rollback()
        insert(a, 4, 4, 3)


def test_an_expired_token_is_unknown_and_can_never_commit(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(commit_tokens, "token_sessions_max", 4)
    with engine(disk=SimulatedDisk(seed)) as db:
        live = db.session()
        table(live)
        insert(live, 0, 1)
        idle = db.session()  # it has not committed anything
        gone: list[str] = []
        for number in range(1, 8):
            session = db.session()
            insert(session, number, 1)
            gone.append(session.token_session)
            session.close()
        for _ in range(5):
            db.database.run_maintenance_once()
        kept = [plain[0] for plain in db.database.tablespace.applier.tokens.to_plain()]
        assert kept[-1] == gone[-1]
        assert live.token_session in kept
        assert len(kept) <= 4
        insert(live, 100, 2, 1)
        expected = state_digest(db.database.tablespace)
        for is_later in (False, True):
            asker = db.session()
            assert asker.resolve(gone[0], 1) is Outcome.UNKNOWN
            assert asker.resolve(gone[0], 2) is Outcome.UNKNOWN, "never No"
            assert asker.resolve(gone[-1], 1) is Outcome.COMMITTED
            if not is_later:
                with pytest.raises(OperationalError) as caught:
                    idle.check_token()
                assert (caught.value.sqlstate, caught.value.retry) == ("57P05", Retry.SAFE)
                run(idle, "INSERT INTO t VALUES (101, 0)")
                use(idle, 1)
                with pytest.raises(OperationalError, match="expired"):
                    idle.commit()
                crash(db)
                assert state_digest(db.database.tablespace) == expected
        fresh = db.session()
        fresh.check_token()
        insert(fresh, 102, 1)


def test_who_is_in_a_transaction_keeps_his_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_tokens, "token_sessions_max", 4)
    with engine() as db:
        a = db.session()
        table(a)
        a.execute("BEGIN")
        for number in range(7):
            session = db.session()
            insert(session, number, 1)
            session.close()
        db.database.run_maintenance_once()
        insert(a, 100, 1)


def commit_in_new_sessions(db: Engine, keys: Iterable[int]) -> None:
    """Insert each key by a session that ends, and look after the database behind it."""
    for key in keys:
        session = db.session()
        insert(session, key, 1)
        session.close()
        db.database.run_maintenance_once()


def test_who_is_always_in_a_transaction_lets_outcomes_expire(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a pool's connections are, which are older than all those that come and go."""
    monkeypatch.setattr(commit_tokens, "token_sessions_max", 4)
    with engine() as db:
        a = db.session()
        table(a)
        insert(a, 0, 1)
        a.execute("BEGIN")  # it has committed before: what is kept of it lets it commit
        commit_in_new_sessions(db, range(1, 20))
        assert len(db.database.tablespace.applier.tokens.to_plain()) <= 5
        insert(a, 100, 2, 1)


def test_a_transaction_without_end_keeps_outcomes_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So does any one, where a leader before this one has named sessions by a clock ahead."""
    monkeypatch.setattr(commit_tokens, "token_sessions_max", 4)
    with engine() as db:
        a = db.session()
        table(a)
        a.execute("BEGIN")
        commit_in_new_sessions(db, range(20))
        assert len(db.database.tablespace.applier.tokens.to_plain()) <= 8
        run(a, "INSERT INTO t VALUES (100, 0)")
        use(a, 1)
        with pytest.raises(OperationalError) as caught:
            a.commit()
        assert (caught.value.sqlstate, caught.value.retry) == ("57P05", Retry.SAFE)


@pytest.mark.parametrize(
    ("session", "counter"),
    [("", 1), ("x", 1), ("é" * 46, 1), ("0" * 45, 1), ("0" * 46, 0), ("0" * 46, 2**63)],
)
def test_what_is_no_token_is_refused(session: str, counter: int) -> None:
    with engine() as db, pytest.raises(ProgrammingError) as caught:
        db.session().resolve(session, counter)
    assert caught.value.sqlstate == "22023"


def test_a_name_from_the_future_cannot_spoil_the_names_to_come() -> None:
    with engine() as db, pytest.raises(ProgrammingError, match="2112"):
        db.session().resolve("f" * 46, 1)


@pytest.mark.parametrize("ahead_s", [-400 * 86_400, 400 * 86_400])
def test_herddb_d10_a_name_by_a_clock_that_is_apart_is_as_good_as_any(ahead_s: int) -> None:
    """Of a leader before this one, on another machine: its clients ask this one about commits."""
    with engine() as db:
        root = db.session(autocommit=True)
        table(root)
        name = new_session_name(db.clock.wall_us() + ahead_s * 1_000_000, 0, b"r" * 16)
        assert root.resolve(name, 1) is Outcome.REFUSED


def test_names_that_somebody_made_up_leave_nothing() -> None:
    with engine(disk=SimulatedDisk(1)) as db:
        root = db.session(autocommit=True)
        table(root)
        early = db.session().token_session
        assert root.resolve(new_session_name(5000, 0, b"r" * 16), 1) is Outcome.REFUSED
        run(root, "CREATE USER ann PASSWORD 'a long secret'")
        last = db.session()
        insert(last, 1, 1)
        last.close()
        kept = db.database.tablespace.applier.tokens.to_plain()
        for number in range(20):
            assert root.resolve(f"{2**48 + number:014x}{number:032x}", 1) is Outcome.UNKNOWN
        assert root.resolve("f" * 46, 1) is Outcome.UNKNOWN
        wrong = last.token_session[:-1] + ("0" if last.token_session[-1] != "0" else "1")
        assert root.resolve(wrong, 1) is Outcome.UNKNOWN
        assert root.resolve(early, 1) is Outcome.UNKNOWN, "no token was signed then"
        assert db.database.tablespace.applier.tokens.to_plain() == kept
        crash(db)
        root = db.session(autocommit=True)
        assert root.resolve(last.token_session, 1) is Outcome.COMMITTED
        assert root.resolve(last.token_session, 2) is Outcome.REFUSED, "signed before the crash"
        assert len({db.session().token_session for _ in range(50)}) == 50


def test_names_come_behind_the_horizon_though_the_clock_goes_back() -> None:
    kept = CommitTokens()
    first = new_session_name(5000, 0, b"r" * 16)
    kept.apply(Commit((1, 1), (first, 1)))
    kept.apply(Expire([first]))
    assert kept.is_expired(first)
    assert not kept.is_expired(new_session_name(10, kept.horizon, b"s" * 16))


def test_names_behind_any_horizon_can_be_asked_about() -> None:
    """A client makes up the last name that there may be, and it expires."""
    kept = CommitTokens()
    last = new_session_name(2**52, 0, b"r" * 16)
    kept.check_refusal((last, 1))
    kept.apply(Refuse((last, 1)))
    kept.apply(Expire([last]))
    kept.check_refusal((new_session_name(5000, kept.horizon, b"s" * 16), 1))
    with pytest.raises(ProgrammingError, match="2112"):
        kept.check_refusal((new_session_name(2**52 + 2, 0, b"t" * 16), 1))


def test_records_may_be_applied_again() -> None:
    kept = CommitTokens()
    name = new_session_name(5000, 0, b"r" * 16)
    records = [Commit((1, 1), (name, 1)), Refuse((name, 2)), Commit((1, 2), (name, 4), 2)]
    for record in records:
        kept.apply(record)
        before = kept.to_plain()
        kept.apply(record)
        assert kept.to_plain() == before
    assert kept.to_plain() == [(name, 2, [(4, True)])]
    kept.apply(Refuse((name, 4)))  # the first one counts
    assert kept.find((name, 4)) is Outcome.COMMITTED
