"""KeyboardInterrupt at every line of the driver: nothing stays open, nothing stays locked."""

import gc

import pytest

import herdpy
from tests.fixtures.interrupts import LineInterrupter

pytestmark = pytest.mark.sync_face


def one_life(target: str) -> None:
    connection = herdpy.connect(target)
    try:
        if target == ":memory:":  # writes on a disk would take half a minute of fsyncs
            connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
            connection.commit()
            with connection.transaction():
                connection.executemany("INSERT INTO t VALUES (?)", [(1,), (2,)])
            assert connection.execute("SELECT id FROM t WHERE id = ?", (1,)).fetchone() == (1,)
        assert connection.execute("SHOW server_encoding").fetchall() == [("UTF8",)]
        connection.close()
    except KeyboardInterrupt:
        try:
            connection.close()  # it goes on, whatever was interrupted
        except herdpy.InterfaceError:
            pass  # the interrupt came behind the last effect of close()
        raise


@pytest.fixture
def quick_collector():
    """Leave out of collections what is there already: hundreds of them follow."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("quick_collector")
@pytest.mark.parametrize("kind", ["memory", "directory"])
def test_every_line_of_the_driver(tmp_path, kind) -> None:
    path = str(tmp_path / "data")
    n = 0
    while True:
        n += 1
        try:
            with LineInterrupter(n, within="/herdpy/driver/") as interrupter:
                one_life(":memory:" if kind == "memory" else path)
        except KeyboardInterrupt:
            pass
        if not interrupter.where:
            break
        gc.collect()  # an interrupted connect() leaves its connection to the collector
        if kind == "memory":
            continue  # the threads of a database left open fail the test, see conftest.py
        try:
            # Works only if the database was closed: its options differ.
            herdpy.connect(path, durability="none").close()
        except herdpy.Error as error:
            pytest.fail(f"interrupted at {interrupter.where}: {error}")
    assert n > 50, f"{n} lines: the driver has more, the interrupter does not see them"


@pytest.mark.parametrize("fails", [False, True])
def test_blocks_in_blocks(fails: bool) -> None:
    """An inner block that an interrupt has left is whole or not there, also when it is caught."""
    n, seen = 0, set[tuple[int, ...]]()
    while True:
        n += 1
        with herdpy.connect(autocommit=True) as connection:
            connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
            with LineInterrupter(n, within="/herdpy/driver/transaction_block") as interrupter:
                try:
                    with connection.transaction():
                        connection.execute("INSERT INTO t VALUES (1)")
                        try:
                            with connection.transaction():
                                connection.execute("INSERT INTO t VALUES (2)")
                                if fails:
                                    raise ZeroDivisionError
                        except (ZeroDivisionError, KeyboardInterrupt):
                            pass
                        connection.execute("INSERT INTO t VALUES (3)")
                except (KeyboardInterrupt, herdpy.Error):
                    pass
            if connection.in_transaction:  # the interrupt came before the end of the outer one
                connection.rollback()
            connection.block = None
            found = tuple(row[0] for row in connection.execute("SELECT id FROM t ORDER BY id"))
            seen.add(found)
            assert found in ((), (1, 3), *(() if fails else ((1, 2, 3),))), interrupter.where
            with connection.transaction():
                pass
            assert not connection.in_transaction
        if not interrupter.where:
            break
    assert n > 30
    assert seen == {(), (1, 3)} | (set() if fails else {(1, 2, 3)})
