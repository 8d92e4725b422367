"""The engine over ledgers: SQL, restarts, and another node that takes the log over."""

from collections.abc import Iterator
from errno import EIO

import pytest

from bookie.runtime.interfaces import Disk
from bookie.runtime.memory_disk import MemoryDisk
from herdpy.engine.maintenance.file_logs import LogSource
from herdpy.errors import Error, LogFailedError, NotSupportedError, SerializationError
from herdpy.storage.manifest import LEDGER_LOG
from tests.fixtures.backups import backed_up, restored
from tests.fixtures.engines import Engine, rows, run
from tests.fixtures.ledger_logs import LedgerHome
from tests.sim.disk import SimulatedDisk


@pytest.fixture
def home() -> Iterator[LedgerHome]:
    home = LedgerHome(ledger_bytes_max=4_096)
    yield home
    home.close()


def node(home: LedgerHome, disk: Disk | None = None) -> Engine:
    """Return an engine of a node with a disk of its own, over the log of the tablespace."""
    return Engine(disk=disk, driver=home.driver, logs=LogSource(LEDGER_LOG, lambda _: home.open()))


def test_a_directory_is_opened_with_the_log_that_it_was_made_with(home: LedgerHome) -> None:
    of_node = node(home)
    table(of_node)
    of_node.close()
    with pytest.raises(NotSupportedError, match="expected a log that is kept as 'file'") as caught:
        Engine(disk=of_node.disk)
    assert "its node opens it" in str(caught.value.hint)
    alone = Engine()
    table(alone)
    alone.close()
    logs = LogSource(LEDGER_LOG, lambda _: home.open())
    with pytest.raises(NotSupportedError, match="expected a log that is kept as 'ledgers'"):
        Engine(disk=alone.disk, driver=home.driver, logs=logs)
    of_node.open()
    of_node.close()


def test_a_node_killed_in_its_first_checkpoint_opens_again(home: LedgerHome) -> None:
    """The segment is there, and no manifest lists it: of a log in files that would be damage."""
    disk = SimulatedDisk(1)
    db = node(home, disk)
    table(db)
    fill(db, 0, 20)
    disk.fail("write", EIO, path="default/MANIFEST")
    with pytest.raises(Error):
        db.database.run_checkpoint()
    segments = [path for path in disk.contents() if path.endswith(".segment")]
    assert segments
    again = node(home, disk.restart(2, is_power_lost=False))
    assert keys(again) == list(range(20))
    again.database.run_checkpoint()
    again.close()
    db.close()


def test_a_backup_of_a_node_s_copy_is_one_of_a_database(home: LedgerHome) -> None:
    """It has no ledgers where it is restored: its log begins there, in files, at the beginning."""
    of_node = node(home)
    table(of_node)
    fill(of_node, 0, 20)
    data = backed_up(of_node.database)
    of_node.close()
    alone = Engine(disk=MemoryDisk())
    alone.close()
    for disk, is_replacing in ((MemoryDisk(), False), (alone.disk, True)):
        restored(data, disk, is_replacing=is_replacing)
        db = Engine(disk=disk)
        fill(db, 20, 10)
        db.reopen()  # by the log, behind the checkpoint
        assert keys(db) == list(range(30))
        db.close()


def fill(db: Engine, first: int, count: int) -> None:
    session = db.session()
    for key in range(first, first + count):
        run(session, "INSERT INTO t VALUES (?, ?)", key, "x" * 50)
        if key % 5 == 4:
            session.commit()
    session.commit()


def keys(db: Engine) -> list[int]:
    return [key for (key,) in rows(db.session(), "SELECT id FROM t ORDER BY id")]


def table(db: Engine) -> None:
    run(db.session(autocommit=True), "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")


def test_a_node_goes_on_behind_its_checkpoint_and_behind_its_log(home: LedgerHome) -> None:
    db = node(home)
    table(db)
    expected: list[int] = []
    for part in range(4):
        fill(db, 100 * part, 60)
        expected += range(100 * part, 100 * part + 60)
        if part % 2:
            db.database.run_checkpoint()
        db.reopen()
        assert keys(db) == expected
    assert home.epoch == 5
    db.close()


def test_another_node_has_all_that_was_acknowledged_and_nothing_that_was_open(
    home: LedgerHome,
) -> None:
    old = node(home)
    table(old)
    fill(old, 0, 40)
    holder = old.session()
    run(holder, "INSERT INTO t VALUES (999, 'open')")
    old.database.tablespace.sync_log()
    reader = old.session(autocommit=True)
    new = node(home)
    assert keys(new) == list(range(40))
    fill(new, 40, 10)
    # The former leader learns it by its next write, and acknowledges nothing any more.
    with pytest.raises(SerializationError):  # which says that it surely was not done
        run(old.session(autocommit=True), "INSERT INTO t VALUES (1000, 'late')")
    with pytest.raises(Error):
        holder.commit()
    for text in ("SELECT count(*) FROM t", "DELETE FROM t"):
        with pytest.raises(LogFailedError, match="fenced"):
            reader.execute(text)
    third = node(home)
    assert keys(third) == list(range(50))
    third.close()
    for each in (old, new):
        each.close()


def test_a_copy_from_the_first_ledger_is_what_the_leader_had(home: LedgerHome) -> None:
    db = node(home)
    table(db)
    fill(db, 0, 100)
    session = db.session(autocommit=True)
    run(session, "UPDATE t SET v = 'changed' WHERE id % 3 = 0")
    run(session, "DELETE FROM t WHERE id % 7 = 0")
    run(session, "CREATE TABLE u (id BIGINT)")
    run(session, "INSERT INTO u SELECT id FROM t")
    queries = ("SELECT * FROM t ORDER BY id", "SELECT * FROM u ORDER BY id")
    expected = [rows(session, query) for query in queries]
    position = db.database.tablespace.state.lsn
    db.close()
    copy = node(home)
    assert [rows(copy.session(), query) for query in queries] == expected
    assert copy.database.tablespace.state.lsn >= position
    copy.close()
