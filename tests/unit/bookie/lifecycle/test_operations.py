"""What operators ask for: drain, cancel, mark-drained, remove, status, at-risk."""

from dataclasses import replace
from typing import Any

import pytest

from bookie.autorecovery.formats import vote_bytes
from bookie.autorecovery.tasks import TaskStore
from bookie.errors import IllegalOperationError, NoSuchBookieError
from bookie.ledger.types import BookieId, LedgerState
from bookie.lifecycle.coordinator import DrainCoordinator
from bookie.lifecycle.operations import UNREADABLE, Operations
from bookie.lifecycle.states import DrainLedger, LifecycleRecord, Step
from bookie.metadata.cookies import Cookie, CookieStore
from bookie.metadata.service_info import ServiceInfo
from tests.fixtures.metadata import ROOT, MetadataWorld, SeededRng, metadata, run

B1, B2, B3, B4 = (BookieId(f"b{i}:3181") for i in (1, 2, 3, 4))


def same(record: LifecycleRecord) -> LifecycleRecord:
    return record


async def made(world: MetadataWorld, *registered: str) -> Operations:
    instance_id = await world.format()
    store = world.client()
    for bookie_id in (B1, B2, B3):
        await CookieStore(store, ROOT).write(
            bookie_id, Cookie(bookie_id, ("/j",), ("/l",), instance_id), None
        )
    for path in registered:
        await store.create(f"{ROOT}/available/{path}", ServiceInfo(()).to_bytes())
    return Operations(world.client(), ROOT, SeededRng(3), world.clock)


async def create(world: MetadataWorld, *bookies: str, **changes: Any) -> tuple[int, int]:
    manager = world.manager(world.client())
    created, version = await manager.create(metadata(*bookies, **changes))
    return created.ledger_id, version


def test_a_drain_from_begin_to_end() -> None:
    async def scenario(world: MetadataWorld) -> None:
        asked = await made(world, B2, B3)
        ledger_id, _ = await create(world, B1, B2)
        status = await asked.drain(B1, "me@here", may_fence=False)
        assert status["lifecycle"] == "Draining"
        assert status["registered"] == "away"
        assert (status["by"], status["may_fence"]) == ("me@here", False)
        assert "no AutoRecovery runs" in status["warning"]
        with pytest.raises(IllegalOperationError, match="Draining: drain is not possible"):
            await asked.drain(B1, "me")
        with pytest.raises(IllegalOperationError, match="Draining: mark-drained is not possible"):
            await asked.mark_drained(B1, "me")
        with pytest.raises(IllegalOperationError, match="expected it Drained"):
            await asked.remove(B1)
        await asked.states.move(B1, Step.FAIL, same)
        with pytest.raises(IllegalOperationError, match=f"found 1: {ledger_id};"):
            await asked.mark_drained(B1, "me")
        status = await asked.mark_drained(B1, "me", [ledger_id])
        assert (status["lifecycle"], status["accepted_loss"]) == ("Drained", [ledger_id])
        other, _ = await create(world, B1, B3)
        with pytest.raises(IllegalOperationError, match=f"found 1: {other};"):
            await asked.remove(B1)
        await world.manager(world.client()).delete(other)
        assert await asked.remove(B1) == {"bookie_id": B1, "removed": True}
        assert [one["bookie_id"] for one in await asked.statuses()] == [B2, B3]

    run(scenario)


def test_disabled_auto_recovery_is_told_and_a_running_one_is_no_warning() -> None:
    async def scenario(world: MetadataWorld) -> None:
        asked = await made(world)
        store = world.client()
        votes = f"{ROOT}/underreplication/auditorelection"
        await store.create(f"{votes}/V_0000000001", make_parents=True)
        await TaskStore(store, ROOT).register_worker("alone")
        assert (await asked.drain(B1, "me"))["warning"] == ""
        await store.create(f"{ROOT}/underreplication/disable")
        assert "AutoRecovery is disabled" in (await asked.status(B1))["warning"]
        assert (await asked.cancel(B1))["warning"] == ""

    run(scenario)


def test_a_writable_bookie_is_not_marked_drained() -> None:
    async def scenario(world: MetadataWorld) -> None:
        asked = await made(world, B1)
        await asked.drain(B1, "me")
        await asked.states.move(B1, Step.FAIL, same)
        with pytest.raises(IllegalOperationError, match="found it writable"):
            await asked.mark_drained(B1, "me")

    run(scenario)


def test_metadata_that_cannot_be_read_names_every_bookie() -> None:
    async def scenario(world: MetadataWorld) -> None:
        asked = await made(world)
        ledger_id, _ = await create(world, B2)
        path = next(path for path in world.paths() if "/L" in path and "LAYOUT" not in path)
        await world.client().write(path, b"no metadata", 0)
        await asked.drain(B1, "me")
        await asked.states.move(B1, Step.FAIL, same)
        with pytest.raises(IllegalOperationError, match=f"found 1: {ledger_id};"):
            await asked.mark_drained(B1, "me")
        found = await asked.at_risk([B1])
        assert (found["is_safe"], found["ledgers_unreadable"]) == (False, 1)

    run(scenario)


def test_open_ledgers_are_listed_before_any_is_fenced() -> None:
    async def scenario(world: MetadataWorld) -> None:
        asked = await made(world, B1, B2, B3)
        opened, _ = await create(world, B1, B2)
        await create(world, B2, B3)
        closed, version = await create(world, B1, B2)
        manager = world.manager(world.client())
        stored, _ = await manager.read(closed)
        await manager.write(replace(stored, state=LedgerState.CLOSED), version)
        await asked.drain(B1, "me")
        found = await asked.open_ledgers(B1)
        assert found == {"open_ledgers": [opened], "open_ledgers_not_shown": 0}
        assert (await manager.read(opened))[0].state is LedgerState.OPEN

    run(scenario)


def test_autorecovery_beside_the_draining_bookie_alone_copies_nothing() -> None:
    async def scenario(world: MetadataWorld) -> None:
        asked = await made(world, B1, B2)
        tasks = TaskStore(world.client(), ROOT)
        await tasks.prepare()
        store = world.client()
        await store.create(f"{tasks.votes_path}/V_0000000000", vote_bytes(B1))
        warning = (await asked.drain(B1, "me"))["warning"]
        assert "an auditor runs and no replication worker is registered: nothing is" in warning
        await tasks.register_worker(B1)
        warning = (await asked.status(B1))["warning"]
        assert "every replication worker that is registered runs beside a bookie that" in warning
        assert (await asked.at_risk([B1]))["warning"] == warning
        assert (await asked.at_risk([B2]))["warning"] == ""
        await tasks.register_worker("alone")
        assert (await asked.status(B1))["warning"] == ""
        await tasks.disable()
        assert "AutoRecovery is disabled" in (await asked.status(B1))["warning"]

    run(scenario)


def test_at_risk_takes_what_is_away_for_lost() -> None:
    async def scenario(world: MetadataWorld) -> None:
        asked = await made(world, B2, B3)
        ledger_id, version = await create(world, B1, B2, ack_quorum_size=1)
        manager = world.manager(world.client())
        stored, _ = await manager.read(ledger_id)
        closed = replace(stored, state=LedgerState.CLOSED, last_entry_id=4)  # type: ignore[arg-type]
        await manager.write(closed, version)
        found = await asked.at_risk([B2])
        assert found["lost"] == [B1]
        assert found["before"]["under_replicated"]["entries"] == 5
        assert found["after"]["last_copy"] == {
            "ledgers": 1, "segments": 1, "write_sets": 2, "entries": 5, "ledger_ids": [ledger_id],
        }  # fmt: skip
        assert not found["is_safe"]
        assert (await asked.at_risk([B3]))["is_safe"]
        assert not (await asked.at_risk([B1]))["is_safe"], "stopped, it still has its copies"
        with pytest.raises(NoSuchBookieError, match="it knows b1:3181"):
            await asked.at_risk([BookieId("b9:1")])

    run(scenario)


def test_one_copy_less_of_what_is_under_replicated_already_is_not_safe() -> None:
    """Two of three copies, one acknowledges: with one copy it is of the same kind as before."""

    async def scenario(world: MetadataWorld) -> None:
        asked = await made(world, B2, B3, B4)
        ledger_id, version = await create(world, B1, B2, B3, ack_quorum_size=1)
        manager = world.manager(world.client())
        stored, _ = await manager.read(ledger_id)
        closed = replace(stored, state=LedgerState.CLOSED, last_entry_id=1)  # type: ignore[arg-type]
        await manager.write(closed, version)
        found = await asked.at_risk([B2])
        assert found["after"] == found["before"]
        assert (found["is_safe"], found["copies_going"]) == (False, 2)
        found = await asked.at_risk([B4])
        assert (found["is_safe"], found["copies_going"]) == (True, 0)

    run(scenario)


def test_a_state_that_cannot_be_read_is_listed_as_such() -> None:
    async def scenario(world: MetadataWorld) -> None:
        asked = await made(world, B1, B2)
        await world.client().create(asked.states.state_path(B1), b'{"format":2}')
        first, second = [row for row in await asked.statuses() if row["bookie_id"] in (B1, B2)]
        assert (first["bookie_id"], first["lifecycle"]) == (B1, UNREADABLE)
        assert "newer version" in first["reason"]
        assert second["lifecycle"] == "Active"

    run(scenario)


def test_a_bookie_whose_state_cannot_be_read_counts_as_leaving_for_drains() -> None:
    async def scenario(world: MetadataWorld) -> None:
        asked = await made(world, B1, B2, B3)
        ledger_id, version = await create(world, B1, B2, ack_quorum_size=1)
        manager = world.manager(world.client())
        stored, _ = await manager.read(ledger_id)
        closed = replace(stored, state=LedgerState.CLOSED, last_entry_id=4)  # type: ignore[arg-type]
        await manager.write(closed, version)
        store = world.client()
        await store.create(asked.states.state_path(B2), b'{"format":2}')
        await asked.drain(B1, "me")
        tasks = TaskStore(store, ROOT)
        await tasks.prepare()
        coordinator = DrainCoordinator(store, ROOT, tasks, (), SeededRng(1), world.clock)
        assert await coordinator.round()
        record = (await asked.states.expect(B1)).record
        assert not record.is_admitted
        assert f"below their ack quorum together with {B2}" in record.reason
        await store.delete(asked.states.state_path(B2))
        await coordinator.round()
        assert f"together with {B2}" not in (await asked.states.expect(B1)).record.reason

    run(scenario)


def test_the_ledgers_of_a_status_are_bounded() -> None:
    async def scenario(world: MetadataWorld) -> None:
        asked = await made(world)
        await asked.drain(B1, "me")
        found = await asked.states.expect(B1)
        rows = [DrainLedger(i, 0, "", "why" if i == 1999 else "") for i in range(2000)]
        await asked.states.write_ledgers(found, rows)
        status = await asked.status(B1)
        assert (len(status["ledgers"]), status["ledgers_not_shown"]) == (1000, 1000)
        assert status["ledgers"][0]["ledger_id"] == 1999

    run(scenario)
