"""What HerdDB gets wrong, whose replication this one follows, and what it promises: on ledgers.

All of it, with the other tests that hold it, is listed in docs/protocols/tablespace_rules.md.
"""

from collections.abc import Iterator

import pytest

import herdpy
from herdpy.cluster.part import State
from herdpy.engine.session.session import Session
from herdpy.errors import Error, LogFailedError, SerializationError
from tests.fixtures.digest import state_digest
from tests.fixtures.engines import Engine, rows, run
from tests.fixtures.ledger_logs import LedgerHome
from tests.unit.herdpy.cluster.test_follower_reads import ServedCluster
from tests.unit.herdpy.cluster.test_following import FOLLOWED, catch_up, copy, home, leader

__all__ = ["copy", "home", "leader"]

ROWS = 40


@pytest.fixture
def session(leader: Engine) -> Iterator[Session]:
    """With a table of ROWS rows."""
    made = leader.session(autocommit=True)
    run(made, "CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT NOT NULL, v VARCHAR(8))")
    made.execute_many("INSERT INTO t VALUES (?, ?, ?)", [(n, n, "x") for n in range(ROWS)])
    yield made
    made.close()


def all_rows(db: Engine) -> list[tuple[object, ...]]:
    reader = db.session(autocommit=True)
    found = rows(reader, "SELECT * FROM t ORDER BY id")
    reader.close()
    return found


def check_copies(home: LedgerHome, leader: Engine, copy: Engine) -> None:
    """Compare the leader with a copy that follows, a new one, and itself opened again."""
    leader.database.tablespace.sync_log()
    expected, shown = state_digest(leader.database.tablespace), all_rows(leader)
    catch_up(copy, home)
    assert state_digest(copy.database.tablespace) == expected
    third = Engine(driver=home.driver, logs=FOLLOWED)
    catch_up(third, home)
    assert state_digest(third.database.tablespace) == expected
    third.close()
    leader.database.reopen()
    assert all_rows(leader) == shown


def test_herddb_d2_a_commit_behind_a_lost_entry_of_its_transaction_is_refused(
    home: LedgerHome, leader: Engine, copy: Engine, session: Session
) -> None:
    """The ledger ends without the entry; the next one takes no COMMIT of that transaction."""
    writer = leader.session()
    run(writer, "INSERT INTO t VALUES (100, 0, 'lost')")
    run(writer, "UPDATE t SET v = 'lost' WHERE id < 10")
    home.fail_at(0)
    with pytest.raises(LogFailedError):
        leader.database.tablespace.sync_log()
    leader.database.reopen()
    run(session, "INSERT INTO t VALUES (101, 0, 'next')")
    with pytest.raises(SerializationError):
        writer.commit()
    writer.close()
    assert [key for key, *_ in all_rows(leader)] == [*range(ROWS), 101]
    assert not rows(session, "SELECT * FROM t WHERE v = 'lost'")
    check_copies(home, leader, copy)


_REFUSED = {
    "UPDATE t SET n = CASE WHEN id = 39 THEN NULL ELSE n + 1 END": "23502",
    "UPDATE t SET v = CASE WHEN id = 39 THEN 'far too long' ELSE 'y' END": "22001",
    "UPDATE t SET id = CASE WHEN id = 39 THEN 0 ELSE id + 100 END WHERE id > 0": "23505",
    "INSERT INTO t SELECT id + 100, CASE WHEN id = 39 THEN NULL ELSE n END, v FROM t": "23502",
    "INSERT INTO t VALUES (200, 1, 'y'), (201, 1, 'far too long')": "22001",
    "INSERT INTO t VALUES (200, 1, 'y'), (39, 1, 'y')": "23505",
}
"""Statements of many rows, of which the last one is not allowed."""


@pytest.mark.parametrize("is_inside", [False, True], ids=["autocommit", "transaction"])
@pytest.mark.parametrize("text", _REFUSED)
def test_herddb_d3_a_statement_whose_last_row_is_refused_leaves_nothing(
    home: LedgerHome, leader: Engine, copy: Engine, session: Session, text: str, is_inside: bool
) -> None:
    expected = all_rows(leader)
    log_end = leader.database.tablespace.state.lsn
    writer = leader.session(autocommit=not is_inside)
    if is_inside:
        run(writer, "SAVEPOINT s")
    with pytest.raises(Error) as caught:
        run(writer, text)
    assert caught.value.sqlstate == _REFUSED[text]
    assert leader.database.tablespace.state.lsn == log_end  # nothing of it is in the log
    if is_inside:
        run(writer, "ROLLBACK TO SAVEPOINT s")
        run(writer, "DELETE FROM t WHERE id = 1")
        writer.commit()
        expected = [row for row in expected if row[0] != 1]
    writer.close()
    assert all_rows(leader) == expected
    check_copies(home, leader, copy)


def test_herddb_d4_a_truncate_that_an_open_transaction_hinders_leaves_nothing(
    home: LedgerHome, leader: Engine, copy: Engine, session: Session
) -> None:
    holder = leader.session()
    run(holder, "INSERT INTO t VALUES (100, 0, 'open')")
    leader.database.tablespace.sync_log()
    log_end = leader.database.tablespace.state.lsn
    hindered = leader.session(autocommit=True, lock_timeout_s=0.01)
    with pytest.raises(Error) as caught:
        run(hindered, "TRUNCATE t")
    assert caught.value.sqlstate == "55P03"
    hindered.close()
    assert leader.database.tablespace.state.lsn == log_end
    holder.commit()
    holder.close()
    assert [key for key, *_ in all_rows(leader)] == [*range(ROWS), 100]
    check_copies(home, leader, copy)


def test_herddb_d6_a_copy_has_the_transactions_that_were_open_at_its_checkpoint(
    home: LedgerHome, leader: Engine, copy: Engine, session: Session
) -> None:
    holder = leader.session()
    run(holder, "INSERT INTO t VALUES (100, 0, 'before')")
    run(holder, "DELETE FROM t WHERE id < 10")
    leader.database.tablespace.sync_log()
    catch_up(copy, home)
    copy.database.run_checkpoint()
    copy.reopen()
    run(holder, "UPDATE t SET v = 'behind' WHERE id = 20")
    holder.commit()
    holder.close()
    leader.database.tablespace.sync_log()
    catch_up(copy, home)
    assert all_rows(copy) == all_rows(leader)
    assert [key for key, *_ in all_rows(copy)] == [*range(10, ROWS), 100]


def test_herddb_d9_a_commit_of_a_former_life_commits_nothing_of_another_client(
    home: LedgerHome, leader: Engine, copy: Engine, session: Session
) -> None:
    """A begins, the tablespace is opened again, B begins, A commits: with one id that was B's."""
    a, b = leader.session(), leader.session()
    run(a, "INSERT INTO t VALUES (100, 0, 'of a')")
    leader.database.tablespace.sync_log()
    (id_of_a,) = leader.database.tablespace.applier.transactions
    leader.database.reopen()
    run(b, "INSERT INTO t VALUES (200, 0, 'of b')")
    run(b, "UPDATE t SET v = 'of b' WHERE id = 1")
    (id_of_b,) = leader.database.tablespace.applier.transactions
    assert id_of_a < id_of_b
    with pytest.raises(SerializationError):
        a.commit()
    assert [key for key, *_ in all_rows(leader)] == [*range(ROWS)]
    b.rollback()
    for each in (a, b):
        each.close()
    check_copies(home, leader, copy)
    assert [key for key, *_ in all_rows(leader)] == [*range(ROWS)]


def test_herddb_d9_a_commit_that_another_leader_gets_commits_nothing_of_another_client() -> None:
    cluster = ServedCluster()
    try:
        first = cluster.node("n1")
        cluster.until(first, State.LEADING)
        second = cluster.node("n2")
        url = cluster.url(first, second)
        with herdpy.connect(url, autocommit=True) as reader:
            reader.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
            a = herdpy.connect(url)
            a.execute("INSERT INTO t VALUES (1, 'of a')")
            cluster.until(second, State.FOLLOWING)
            cluster.thread.call(first.close())
            cluster.nodes.remove(first)
            cluster.until(second, State.LEADING)
            b = herdpy.connect(url)
            b.execute("INSERT INTO t VALUES (2, 'of b')")
            with pytest.raises(Error) as caught:
                a.commit()
            assert caught.value.sqlstate == "40001"
            assert reader.execute("SELECT * FROM t").fetchall() == []
            b.rollback()
            assert reader.execute("SELECT * FROM t").fetchall() == []
            for each in (a, b):
                each.close()
    finally:
        cluster.close()


def test_herddb_h13_a_table_made_in_a_transaction_is_there_behind_its_commit_alone(
    home: LedgerHome, leader: Engine, copy: Engine, session: Session
) -> None:
    maker = leader.session()
    run(maker, "CREATE TABLE u (id BIGINT PRIMARY KEY)")
    run(maker, "INSERT INTO u VALUES (1)")
    run(maker, "DROP TABLE t")
    leader.database.tablespace.sync_log()
    catch_up(copy, home)
    reader = copy.session(autocommit=True)
    with pytest.raises(Error) as caught:
        rows(reader, "SELECT id FROM u")
    assert caught.value.sqlstate == "42P01"
    assert len(all_rows(copy)) == ROWS
    maker.commit()
    maker.close()
    leader.database.tablespace.sync_log()
    catch_up(copy, home)
    assert rows(reader, "SELECT id FROM u") == [(1,)]
    with pytest.raises(Error) as caught:
        rows(reader, "SELECT id FROM t")
    assert caught.value.sqlstate == "42P01"
    reader.close()


def test_i9_a_snapshot_of_a_copy_stays_as_it_was_while_the_copy_follows(
    home: LedgerHome, leader: Engine, copy: Engine, session: Session
) -> None:
    leader.database.tablespace.sync_log()
    catch_up(copy, home)
    reader = copy.session()
    run(reader, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    expected = rows(reader, "SELECT * FROM t ORDER BY id")
    run(session, "UPDATE t SET v = 'new' WHERE id < 10")
    run(session, "UPDATE t SET v = 'newer' WHERE id < 10")  # prunes versions that none reads
    run(session, "DELETE FROM t WHERE id > 30 OR id < 5")
    run(session, "INSERT INTO t VALUES (100, 0, 'new')")
    leader.database.tablespace.sync_log()
    catch_up(copy, home)
    copy.database.run_checkpoint()
    assert rows(reader, "SELECT * FROM t ORDER BY id") == expected
    reader.commit()
    assert rows(reader, "SELECT * FROM t ORDER BY id") == all_rows(leader) != expected
    reader.close()
