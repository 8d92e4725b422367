"""The digest after replay from empty is the digest after replay from each checkpoint (I6)."""

import random

import pytest

from herdpy.engine.database import Database
from herdpy.engine.maintenance.recovery import (
    open_pins,
    open_segments,
    open_tables,
    state_at_checkpoint,
)
from herdpy.engine.state.tablespace import Tablespace
from herdpy.model.lsn import START_LSN, Lsn
from herdpy.storage.manifest import ManifestState
from tests.crash import checks, operations
from tests.crash.model import Model
from tests.crash.world import STYLES, World
from tests.fixtures.digest import state_digest
from tests.sim.disk import SimulatedDisk

_HISTORIES = 15
_ACTIONS = 80
_STYLES = [style for style in STYLES if not style.has_faults]


def _from_checkpoint(
    database: Database, listed: ManifestState, records: list[tuple[Lsn, bytes]]
) -> Tablespace:
    folder = f"{database.entry.folder}/segments"
    segments = open_segments(database.disk, folder, listed)
    tables = open_tables(listed.tables, segments)
    applier = state_at_checkpoint(listed, tables, open_pins(listed, segments))
    return checks.replayed_behind(applier, records)


def _history(world: World) -> list[ManifestState]:
    """Live with the whole log and every segment kept; return the manifest of each checkpoint."""
    world.open(log_retention=True)
    for name in ("a", "b", "h"):
        world.run(world.connections[0], operations.create(name))
    listed: list[ManifestState] = []
    for _ in range(_ACTIONS):
        world.act()
        now = world.database.replica.manifest.state
        if not listed or now.checkpoint_lsn != listed[-1].checkpoint_lsn:
            listed.append(now)
    return listed


@pytest.mark.parametrize("number", range(_HISTORIES))
def test_replay_from_each_checkpoint_gives_the_same_state(
    seed: int, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Old checkpoints need their segments, so there are some that no manifest lists.
    monkeypatch.setattr(World, "check_files", lambda _: None)
    monkeypatch.setattr("herdpy.engine.maintenance.checkpoint.remove_unlisted", lambda *_: None)
    monkeypatch.setattr("herdpy.engine.maintenance.compaction.remove_unlisted", lambda *_: None)
    rng = random.Random(seed * 1000 + number)
    disk = SimulatedDisk(rng.getrandbits(64))
    world = World(disk, rng, Model(), None, style=_STYLES[number % len(_STYLES)])
    checkpoints = _history(world)
    world.check_held(close_all=True)
    database = world.database
    records = checks.read_log(database, START_LSN)
    expected = state_digest(database.tablespace)
    assert state_digest(checks.replayed(records)) == expected
    for listed in checkpoints:
        assert state_digest(_from_checkpoint(database, listed, records)) == expected
    world.close()
