"""FORMAT 3 has a directory with a column of a type that FORMAT 2 does not know, and no other."""

import pytest

from bookie.runtime.interfaces import Disk
from bookie.runtime.memory_disk import MemoryDisk
from herdpy.engine.maintenance.directory import FORMAT, MANIFEST, check_format
from herdpy.engine.maintenance.doctor import examine
from herdpy.errors import Error, NotSupportedError
from herdpy.model.schema import table_from_plain
from herdpy.model.types import KINDS_OF_FORMAT_3
from herdpy.storage.manifest import Manifest
from tests.fixtures.access import run, session_of
from tests.fixtures.backups import backed_up, restored
from tests.fixtures.engines import Engine
from tests.sim.disk import SimulatedCrash, SimulatedDisk

TYPES = {"REAL": ("0.5", 0.5), "SMALLINT": ("7", 7)}


def said(disk: Disk) -> int:
    return int(disk.read(FORMAT).split()[1])


def needed(disk: Disk) -> int:
    """Return the FORMAT that what the manifest lists takes."""
    listed = Manifest.read(disk, MANIFEST).tables.values()
    return max((table_from_plain(item.definition).format_version for item in listed), default=2)


def test_the_types_are_all() -> None:
    assert {kind.name for kind in KINDS_OF_FORMAT_3} == TYPES.keys()


@pytest.mark.parametrize("kind", TYPES)
def test_the_first_checkpoint_with_such_a_table_says_so(kind: str) -> None:
    text, value = TYPES[kind]
    engine = Engine()
    root = session_of(engine)
    run(root, "CREATE TABLE t (a INT PRIMARY KEY, b TEXT)", "INSERT INTO t VALUES (1, 'x')")
    engine.database.run_checkpoint()
    assert said(engine.disk) == 2
    run(root, f"CREATE TABLE u (a INT PRIMARY KEY, b {kind})", f"INSERT INTO u VALUES (1, {text})")
    assert said(engine.disk) == 2  # an older herdpy refuses the record
    engine.database.run_checkpoint()
    assert said(engine.disk) == 3
    engine.reopen()
    root = session_of(engine)
    assert run(root, "SELECT b FROM u") == [(value,)]
    backup = backed_up(engine.database)
    run(root, "DROP TABLE u")
    engine.database.run_checkpoint()
    assert said(engine.disk) == 3  # what keeps an older herdpy out stays
    engine.database.close()
    assert examine(engine.disk, "x").damages == []
    again = MemoryDisk()
    restored(backup, again)
    assert said(again) == 3
    engine = Engine(disk=again)
    assert run(session_of(engine), "SELECT b FROM u") == [(value,)]
    engine.database.close()


def test_a_newer_format_is_refused() -> None:
    engine = Engine()
    engine.database.close()
    file = engine.disk.open(FORMAT, create=False)
    file.write_at(0, b"herdpy 4\n")
    file.close()
    with pytest.raises(NotSupportedError, match="has format 4; this herdpy reads up to 3"):
        check_format(engine.disk, "x")


@pytest.mark.parametrize("is_power_lost", [False, True])
def test_a_crash_at_every_step(*, is_power_lost: bool) -> None:
    step, seen = 0, set()
    while True:
        step += 1
        disk = SimulatedDisk(step)
        engine = Engine(disk=disk)
        run(session_of(engine), "CREATE TABLE t (a REAL PRIMARY KEY)", "INSERT INTO t VALUES (0.5)")
        disk.crash_at = disk.step_count + step
        try:
            engine.database.run_checkpoint()
        except SimulatedCrash:
            pass
        except Error as error:
            assert isinstance(error.__cause__, SimulatedCrash)  # noqa: PT017
        else:
            break
        disk = disk.restart(is_power_lost=is_power_lost)
        seen.add((said(disk), needed(disk)))
        engine = Engine(disk=disk)
        assert run(session_of(engine), "SELECT a FROM t") == [(0.5,)]
        engine.database.close()
    assert seen == {(2, 2), (3, 2), (3, 3)}
