"""Backup and restore: one position, everything in it, nothing half, whatever breaks on the way."""

import errno
from contextlib import suppress
from typing import Any

import pytest

from herdpy.engine.maintenance.restore import verify_backup
from herdpy.errors import (
    CorruptionError,
    Error,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
)
from herdpy.model.settings import Settings
from tests.fixtures.backups import backed_up, restored
from tests.fixtures.digest import state_digest
from tests.fixtures.engines import Background, Engine, engine, rows, run
from tests.sim.disk import SimulatedCrash, SimulatedDisk

Content = dict[str, list[tuple[Any, ...]]]


def content(db: Engine) -> Content:
    session = db.session(autocommit=True)
    names = [table.name for table in session.tables()]
    return {name: rows(session, f"SELECT * FROM {name} ORDER BY 1") for name in names}


def filled(disk: SimulatedDisk, count: int = 3, name: str = "t") -> Engine:
    """Return a database with several segments, deletion bitmaps, a heap, and a log behind them."""
    db = Engine(disk=disk)
    session = db.session(autocommit=True)
    run(session, f"CREATE TABLE {name} (id TEXT PRIMARY KEY, v DECIMAL(30,2), d DOUBLE PRECISION)")
    run(session, "CREATE TABLE heap (v BYTEA)")
    for turn in range(count):
        data = [(f"{turn}-{i}", turn * 10**20 + i, None if i % 3 else i / 7) for i in range(20)]
        session.execute_many(f"INSERT INTO {name} VALUES (?, ?, ?)", data)
        run(session, f"DELETE FROM {name} WHERE id LIKE ?", f"{turn - 1}-1%")
        run(session, "INSERT INTO heap VALUES (?)", bytes([turn]) * 10)
        db.database.run_checkpoint()
    run(session, "INSERT INTO heap VALUES (NULL)")
    session.close()
    return db


def opened(disk: SimulatedDisk) -> Content:
    with engine(disk=disk) as db:
        return content(db)


def reopened(disk: SimulatedDisk) -> Content:
    with engine(disk=disk) as db:
        found = content(db)
        session = db.session(autocommit=True)
        run(session, "CREATE TABLE later (id BIGINT PRIMARY KEY)")
        run(session, "INSERT INTO later VALUES (1)")
        run(session, "DROP TABLE later")
        db.database.run_checkpoint()
        db.reopen()
        assert content(db) == found
        return found


# --- what is in it -------------------------------------------------------------------------------


def test_all_of_it_comes_back() -> None:
    with engine(disk=SimulatedDisk(1)) as db:
        run(db.session(autocommit=True), "CREATE TABLE empty (id BIGINT PRIMARY KEY)")
        data = backed_up(db.database)
    target = SimulatedDisk(2)
    restored(data, target)
    assert reopened(target) == {"empty": []}
    full = filled(SimulatedDisk(3))
    data, expected = backed_up(full.database), content(full)
    digest = state_digest(full.database.tablespace)
    full.database.close()
    target = SimulatedDisk(4)
    restored(data, target)
    with engine(disk=target) as db:
        assert state_digest(db.database.tablespace) == digest
    assert reopened(target) == expected
    assert sum(map(len, expected.values())) > 40


def test_a_database_without_tables() -> None:
    with engine() as db:
        data = backed_up(db.database)
    target = SimulatedDisk(1)
    restored(data, target)
    assert reopened(target) == {}


def test_open_transactions_are_rolled_back_and_their_ids_never_used_again() -> None:
    with engine() as db:
        session, other = db.session(autocommit=True), db.session()
        run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
        run(session, "INSERT INTO t VALUES (1, 1)")
        run(other, "UPDATE t SET v = 2")
        run(other, "INSERT INTO t VALUES (2, 2)")
        data = backed_up(db.database)
        other.commit()
    target = SimulatedDisk(1)
    restored(data, target)
    assert reopened(target) == {"t": [(1, 1)]}


def test_users_and_rights_come_along_and_only_superusers_may_export() -> None:
    with engine() as db:
        session = db.session(autocommit=True)
        run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY)")
        run(session, "CREATE USER bob PASSWORD 'a password of bob'")
        run(session, "CREATE USER root SUPERUSER")
        run(session, "GRANT ALL ON t TO bob")
        data = backed_up(db.database)
        digest = state_digest(db.database.tablespace)
        bob = db.database.session(Settings(), autocommit=True, user="bob")
        for kind in ("backup", "dump"):
            with pytest.raises(ProgrammingError) as caught:
                bob.export(kind)
            assert caught.value.sqlstate == "42501"
            db.database.session(Settings(), autocommit=True, user="root").export(kind).close()
    target = SimulatedDisk(1)
    restored(data, target)
    with engine(disk=target) as db:
        assert state_digest(db.database.tablespace) == digest
        bob = db.database.session(Settings(), autocommit=True, user="bob")
        run(bob, "INSERT INTO t VALUES (1)")


def test_it_ends_where_it_was_pinned() -> None:
    """Writers, checkpoints and compactions go on while it is read."""
    with engine() as db:
        session = db.session(autocommit=True)
        run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
        session.execute_many("INSERT INTO t VALUES (?, 0)", [(i,) for i in range(9000)])
        db.database.run_checkpoint()
        run(session, "UPDATE t SET v = 1 WHERE id < 10")
        backup = db.database.backup()
        pieces = backup.pieces()
        parts = [next(pieces)]
        run(session, "UPDATE t SET v = 2")
        for _ in range(6):
            run(session, "UPDATE t SET v = v + 1 WHERE id % 2 = 0")
            db.database.run_checkpoint()
            while db.database.run_compaction():
                pass
        run(session, "DROP TABLE t")
        db.database.run_checkpoint()
        assert db.disk.list("default/segments") == []
        parts += pieces
        backup.close()
    target = SimulatedDisk(1)
    restored(b"".join(parts), target)
    expected = [(i, int(i < 10)) for i in range(9000)]
    assert reopened(target) == {"t": expected}


def test_transfers_go_on() -> None:
    """Every backup holds a constant total, and all that was committed before it began."""
    with engine(is_threaded=True) as db, Background() as background:
        session = db.session(autocommit=True)
        run(session, "CREATE TABLE account (id BIGINT PRIMARY KEY, v BIGINT)")
        run(session, "CREATE TABLE done (id BIGINT PRIMARY KEY)")
        session.execute_many("INSERT INTO account VALUES (?, 100)", [(i,) for i in range(20)])
        is_over = False
        committed = [0, 0]

        def transfer(worker: int) -> None:
            mine = db.session()
            turn = 0
            while not is_over:
                turn += 1
                first, second = sorted(((turn * 7 + worker) % 20, (turn * 3 + 1 + worker) % 20))
                run(mine, "UPDATE account SET v = v - 1 WHERE id = ?", first)
                run(mine, "UPDATE account SET v = v + 1 WHERE id = ?", second)
                run(mine, "INSERT INTO done VALUES (?)", 1_000_000 * worker + turn)
                mine.commit()
                committed[worker] = turn

        for worker in range(2):
            background.start(lambda worker=worker: transfer(worker), f"transfer-{worker}")
        found = []
        for _ in range(4):
            before = list(committed)
            found.append((before, backed_up(db.database)))
        is_over = True
        background.join()
    for before, data in found:
        target = SimulatedDisk(1)
        restored(data, target)
        with engine(disk=target) as db:
            session = db.session(autocommit=True)
            assert rows(session, "SELECT sum(v), count(*) FROM account") == [(2000, 20)]
            for worker, least in enumerate(before):
                low = 1_000_000 * worker
                text = "SELECT count(*), max(id) FROM done WHERE id BETWEEN ? AND ?"
                ((count, last),) = rows(session, text, low, low + 999_999)
                assert count == (last or low) - low >= least


# --- what it must not be -------------------------------------------------------------------------


def test_every_changed_byte_is_found() -> None:
    db = filled(SimulatedDisk(1), count=1)
    data = backed_up(db.database)
    db.database.close()
    verify_backup(memoryview(data), "b")
    places = [*range(0, len(data), 131), *range(64), *range(len(data) - 120, len(data))]
    for place in places:
        broken = bytearray(data)
        broken[place] ^= 0x10
        with pytest.raises(CorruptionError, match=r"damaged backup b at offset \d+"):
            verify_backup(memoryview(bytes(broken)), "b")


def test_every_cut_is_found() -> None:
    db = filled(SimulatedDisk(1), count=1)
    data = backed_up(db.database)
    db.database.close()
    for end in [*range(0, len(data), 61), len(data) - 1]:
        with pytest.raises(CorruptionError, match="damaged backup b at offset"):
            verify_backup(memoryview(data[:end]), "b")
    with pytest.raises(CorruptionError, match="bytes behind the end"):
        verify_backup(memoryview(data + b"x"), "b")


def test_a_damaged_page_makes_no_backup() -> None:
    disk = SimulatedDisk(1)
    db = filled(disk, count=1)
    name = disk.list("default/segments")[0]
    db.database.close()
    file = disk.open(f"default/segments/{name}")
    byte = file.read_at(700, 1)[0]
    file.write_at(700, bytes([byte ^ 1]))
    file.close()
    with engine(disk=disk) as again, pytest.raises(CorruptionError, match=name):
        backed_up(again.database)


# --- where it is written -------------------------------------------------------------------------


def test_a_database_is_not_overwritten_unless_asked() -> None:
    old, new = SimulatedDisk(1), SimulatedDisk(2)
    db, other = filled(old), filled(new, 2, "u")
    data, expected, kept = backed_up(other.database), content(other), content(db)
    with pytest.raises(OperationalError, match="open in another process") as caught:
        restored(data, old, is_replacing=True)
    assert caught.value.sqlstate == "55006"
    db.database.close()
    other.database.close()
    with pytest.raises(ProgrammingError, match="is a database already") as refused:
        restored(data, old)
    assert refused.value.sqlstate == "42P04"
    assert reopened(old) == kept
    restored(data, old, is_replacing=True)
    assert reopened(old) == expected
    assert "u" in expected
    assert "u" not in kept


def test_what_is_no_database_is_left_alone() -> None:
    db = filled(SimulatedDisk(1), count=1)
    data = backed_up(db.database)
    db.database.close()
    for is_replacing in (False, True):
        disk = SimulatedDisk(2)
        disk.open("letter.txt", create=True).close()
        with pytest.raises(OperationalError, match=r"no herdpy database, it holds 'letter\.txt'"):
            restored(data, disk, is_replacing=is_replacing)
        assert disk.list("") == ["letter.txt"]
        newer = SimulatedDisk(3)
        file = newer.open("FORMAT", create=True)
        file.write_at(0, b"herdpy 4\n")
        file.close()
        with pytest.raises(NotSupportedError, match="has format 4"):
            restored(data, newer, is_replacing=is_replacing)


def test_a_damaged_database_is_replaced() -> None:
    disk = SimulatedDisk(1)
    db = filled(disk)
    data, expected = backed_up(db.database), content(db)
    db.database.close()
    file = disk.open("default/MANIFEST")
    file.write_at(0, b"nothing")
    file.close()
    with pytest.raises(CorruptionError):
        reopened(disk)
    restored(data, disk, is_replacing=True)
    assert reopened(disk) == expected


def crashed(data: bytes, step: int, *, is_replacing: bool) -> tuple[SimulatedDisk, bool, Content]:
    """Return what a crash in this step of a restore leaves, whether it came, and the old content.

    The same arguments give the same disk.
    """
    disk = SimulatedDisk(step)
    kept: Content = {}
    if is_replacing:
        db = filled(disk, 1)
        kept = content(db)
        db.database.close()
    disk.crash_at = disk.step_count + step
    try:
        restored(data, disk, is_replacing=is_replacing)
    except SimulatedCrash:
        return disk.restart(), True, kept
    disk.crash_at = None
    return disk, False, kept


@pytest.mark.exhaustive
@pytest.mark.parametrize("is_replacing", [False, True])
def test_a_crash_at_every_step(is_replacing: bool) -> None:
    """It leaves the old database or the new one; of a new directory: nothing, or it says so."""
    other = filled(SimulatedDisk(9), 1, "u")
    data, expected = backed_up(other.database), content(other)
    other.database.close()
    outcomes: set[str] = set()
    step, is_crashed = 0, True
    while is_crashed:
        step += 1
        disk, is_crashed, kept = crashed(data, step, is_replacing=is_replacing)
        outcomes.add(outcome(disk, kept, expected))
        if is_replacing and step % 4:
            continue
        # Whatever it left, once more makes it whole.
        disk, _, _ = crashed(data, step, is_replacing=is_replacing)
        restored(data, disk, is_replacing=True)
        assert opened(disk) == expected
    assert step > 15
    assert outcomes == ({"old", "new"} if is_replacing else {"nothing", "half", "new"})


def outcome(disk: SimulatedDisk, kept: Content, expected: Content) -> str:
    try:
        found = opened(disk)
    except OperationalError as error:
        return "half" if "restoring a backup into it was interrupted" in str(error) else str(error)
    if found == expected:
        return "new"
    assert found == kept, f"neither the old database nor the new one: {found.keys()}"
    return "old" if kept else "nothing"


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("write", errno.ENOSPC),
        ("open", errno.ENOSPC),
        ("sync", errno.EIO),
        ("sync_directory", errno.EIO),
        ("rename", errno.EIO),
    ],
)
def test_a_failing_disk(kind: str, code: int) -> None:
    """An error leaves the old database as it was, or the new one whole."""
    other = filled(SimulatedDisk(9), 1, "u")
    data, expected = backed_up(other.database), content(other)
    other.database.close()
    after = 0
    while True:
        disk = SimulatedDisk(after)
        db = filled(disk, 1)
        kept = content(db)
        db.database.close()
        disk.fail(kind, code, after=after)
        with suppress(OSError, Error):
            restored(data, disk, is_replacing=True)
        if disk.pending_faults:
            break
        disk.heal()
        assert outcome(disk, kept, expected) in ("old", "new")
        after += 1
    disk.heal()
    assert after >= 1
    assert opened(disk) == expected
