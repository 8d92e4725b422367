"""Ctrl-C before any line of what ends, writes and reads a lease."""

import gc
from typing import Any

import pytest

from tests.fixtures.digest import lease_rows_of
from tests.unit.herdpy.engine.test_keyboard_interrupt import FIRST, World, interrupted


def take_one(world: World) -> None:
    world.connection.execute("UPDATE t SET v = 11 WHERE id = 1")
    world.connection.lease(60)
    world.connection.execute("UPDATE t SET v = 12 WHERE id = 1")


LEASED = [(1, 11), *FIRST[1:]]


def check_leases(world: World, where: str) -> None:
    space = world.database.tablespace
    space.run(lambda: None)  # what the interrupt left
    for lease in space.applier.leases:
        assert [row for _, row in lease_rows_of(space, lease)] == LEASED, where


def end_all(world: World, where: str) -> None:
    """End every lease, and see that nothing of any is left."""
    leases = world.database.tablespace.applier.leases
    for lease in list(leases):
        world.connection.release_lease(lease.id)
    assert not len(leases), where
    world.check_nothing_held()
    world.database.run_checkpoint()
    assert not world.database.replica.manifest.state.pins, where


def only_lease(world: World) -> Any:
    (lease,) = world.database.tablespace.applier.leases
    return lease


@pytest.mark.exhaustive
def test_ending_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    def call(world: World) -> None:
        world.connection.release_lease(only_lease(world).id)

    for world, where in interrupted(monkeypatch, before=take_one, call=call):
        check_leases(world, where)
        end_all(world, where)
        world.goes_on()


@pytest.mark.exhaustive
def test_a_checkpoint_with_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    def before(world: World) -> None:
        world.database.run_checkpoint()
        take_one(world)

    for world, where in interrupted(
        monkeypatch, before=before, call=lambda world: world.database.run_checkpoint()
    ):
        check_leases(world, where)
        world.connection.execute("UPDATE t SET v = 13 WHERE id = 1")
        world.database.run_checkpoint()
        assert world.committed() == [(1, 13), *FIRST[1:]], where
        check_leases(world, where)
        assert len(world.database.tablespace.registry) == 0, where
        world.reopen()
        check_leases(world, where)
        end_all(world, where)


@pytest.mark.exhaustive
def test_reading_at_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    def call(world: World) -> None:
        result = world.other.leasing.read_partition("t", None, None, lease=only_lease(world).id)
        assert sorted(result.rows()) == LEASED
        result.close()

    for world, where in interrupted(monkeypatch, before=take_one, call=call):
        gc.collect()  # a traceback in a circle may hold a snapshot
        clock = world.database.clock
        assert only_lease(world).is_due(clock.monotonic() + 3600), where
        end_all(world, where)
