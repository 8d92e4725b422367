"""Lifecycle states in the metadata store: steps, lists, removal, lost answers, slow writers."""

from dataclasses import replace

import pytest

from bookie.errors import (
    BadVersionError,
    CorruptFileError,
    IllegalOperationError,
    NoSuchBookieError,
)
from bookie.ledger.types import BookieId
from bookie.lifecycle import codec
from bookie.lifecycle.states import DrainLedger, LifecycleRecord, LifecycleState, Step
from bookie.lifecycle.store import LifecycleStore
from bookie.metadata.cookies import Cookie, CookieStore
from bookie.metadata.interfaces import Check, Create, Write
from bookie.metadata.memory import Fate
from tests.fixtures.metadata import ROOT, MetadataWorld, ScriptedLink, run

ID = BookieId("b1:3181")
COOKIE = f"{ROOT}/cookies/{ID}"
STATE = f"{COOKIE}/state"


def same(record: LifecycleRecord) -> LifecycleRecord:
    return replace(record, by="operator", since_ms=5)


async def made(world: MetadataWorld, link: ScriptedLink | None = None) -> LifecycleStore:
    instance_id = await world.format()
    store = world.client(link)
    cookie = Cookie(ID, ("/j",), ("/l",), instance_id)
    await CookieStore(store, ROOT).write(ID, cookie, None)
    return LifecycleStore(store, ROOT)


async def drained(states: LifecycleStore) -> None:
    await states.move(ID, Step.DRAIN, same)
    await states.move(ID, Step.FINISH, same)


def test_a_life_from_active_to_removed_and_back() -> None:
    async def scenario(world: MetadataWorld) -> None:
        states = await made(world)
        found = await states.expect(ID)
        assert (found.record.state, found.version) == (LifecycleState.ACTIVE, None)
        assert STATE not in world.paths()
        found = await states.move(ID, Step.DRAIN, same)
        assert found.record.state is LifecycleState.DRAINING
        assert await states.write_ledgers(found, [DrainLedger(i) for i in range(40_000)])
        assert len(world.paths(STATE)) > 1
        assert len(await states.ledgers(ID)) == 40_000
        assert await states.write_ledgers(found, [DrainLedger(7, 2, "host", "why")])
        assert await states.ledgers(ID) == [DrainLedger(7, 2, "host", "why")]
        assert len(world.paths(STATE)) == 1
        found = await states.move(ID, Step.FINISH, same)
        await states.remove(found)
        assert not [path for path in world.paths() if path.startswith(COOKIE)]
        assert await states.find(ID) is None
        assert not [path for path in world.paths() if path.endswith(f"available/{ID}")]
        cookie = Cookie(ID, ("/j",), ("/l",), None)
        await CookieStore(world.client(), ROOT).write(ID, cookie, None)
        assert (await states.expect(ID)).record.state is LifecycleState.ACTIVE

    run(scenario)


def test_a_cancelled_drain_leaves_nothing_and_outdates_what_was_read() -> None:
    async def scenario(world: MetadataWorld) -> None:
        states = await made(world)
        old = await states.move(ID, Step.DRAIN, same)
        assert await states.write_ledgers(old, [DrainLedger(7)])
        assert (await states.move(ID, Step.CANCEL, same)).record.state is LifecycleState.ACTIVE
        assert world.paths(COOKIE) == []
        new = await states.move(ID, Step.DRAIN, same)
        assert (new.version, new.record) == (
            old.version,
            old.record,
        )
        # They differ in the cookie's version alone: a reader of the first decides nothing here.
        assert not await states.finish(old, Step.FINISH, old.record, guard=())
        assert not await states.update(old, replace(old.record, reason="x"))
        assert not await states.write_ledgers(old, [DrainLedger(8)])
        assert await states.find(ID) == new
        assert await states.ledgers(ID) == []

    run(scenario)


@pytest.mark.parametrize("fate", [Fate.LOSE_ANSWER, Fate.LOSE_REQUEST])
def test_a_lost_answer_is_decided_by_content(fate: Fate) -> None:
    async def scenario(world: MetadataWorld) -> None:
        link = ScriptedLink()
        states = await made(world, link)
        for step, state in (
            (Step.DRAIN, LifecycleState.DRAINING),
            (Step.CANCEL, LifecycleState.ACTIVE),
            (Step.DRAIN, LifecycleState.DRAINING),
            (Step.FINISH, LifecycleState.DRAINED),
        ):
            link.fates = [fate]
            assert (await states.move(ID, step, same)).record.state is state
            if state is LifecycleState.DRAINING:
                link.fates = [fate]
                assert await states.write_ledgers(await states.expect(ID), [DrainLedger(1)])
                assert await states.ledgers(ID) == [DrainLedger(1)]
        link.fates = [fate]
        await states.remove(await states.expect(ID))
        assert await states.find(ID) is None

    run(scenario)


def test_a_drain_whose_answer_was_lost_has_begun_though_an_auditor_went_on_with_it() -> None:
    async def scenario(world: MetadataWorld) -> None:
        link = ScriptedLink()
        states = await made(world, link)
        session = world.client().session
        tree = world.server.tree

        def lose_and_admit(asked: str, is_write: bool) -> Fate:
            if is_write:
                return Fate.LOSE_ANSWER
            if tree.exists(STATE) is not None and tree.read(STATE)[1].version == 0:
                record = codec.record_from_bytes(tree.read(STATE)[0], STATE)
                admitted = codec.record_to_bytes(replace(record, is_admitted=True))
                world.server.change(session, [Write(STATE, admitted, 0)])
            return Fate.ANSWERED

        link.fate_of = lose_and_admit
        found = await states.move(ID, Step.DRAIN, same)
        assert (found.record.state, found.record.is_admitted) == (LifecycleState.DRAINING, True)

    run(scenario)


@pytest.mark.parametrize("step", [Step.DRAIN, Step.CANCEL])
def test_a_step_whose_answer_was_lost_was_taken_though_the_bookie_wrote_its_cookie_since(
    step: Step,
) -> None:
    """As one does that is started without a lost directory."""

    async def scenario(world: MetadataWorld) -> None:
        link = ScriptedLink()
        states = await made(world, link)
        if step is Step.CANCEL:
            await states.move(ID, Step.DRAIN, same)
        before = await states.expect(ID)
        session = world.client().session
        tree = world.server.tree

        def lose_and_rewrite(asked: str, is_write: bool) -> Fate:
            if is_write:
                return Fate.LOSE_ANSWER
            if tree.read(COOKIE)[1].version == before.cookie_version + 1:
                write = Write(COOKIE, before.cookie + b"\n", before.cookie_version + 1)
                world.server.change(session, [write])
            return Fate.ANSWERED

        link.fate_of = lose_and_rewrite
        found = await states.move(ID, step, same)
        wanted = LifecycleState.ACTIVE if step is Step.CANCEL else LifecycleState.DRAINING
        assert (found.record.state, found.cookie) == (wanted, before.cookie + b"\n")

    run(scenario)


def test_removing_is_refused() -> None:
    async def scenario(world: MetadataWorld) -> None:
        states = await made(world)
        with pytest.raises(IllegalOperationError, match="expected it Drained"):
            await states.remove(await states.expect(ID))
        await drained(states)
        found = await states.expect(ID)
        other = world.client()
        for path in (f"{ROOT}/available/{ID}", f"{ROOT}/available/readonly/{ID}"):
            await other.create(path, is_ephemeral=True)
            with pytest.raises(IllegalOperationError, match="registered"):
                await states.remove(found)
            await other.delete(path)
        assert await states.find(ID) == found
        with pytest.raises(NoSuchBookieError, match="it knows b1:3181"):
            await states.expect(BookieId("b2:3181"))

    run(scenario)


def test_a_bookie_that_registers_in_the_last_moment_is_not_removed() -> None:
    async def scenario(world: MetadataWorld) -> None:
        link = ScriptedLink()
        states = await made(world, link)
        await drained(states)
        found = await states.expect(ID)
        path = f"{ROOT}/available/{ID}"
        session = world.client().session

        def register(asked: str, is_write: bool) -> Fate:
            if is_write and world.server.tree.exists(path) is None:
                world.server.change(session, [Create(path, is_ephemeral=True)])
            return Fate.ANSWERED

        link.fate_of = register
        with pytest.raises(IllegalOperationError, match="registered"):
            await states.remove(found)
        assert world.server.tree.exists(COOKIE) is not None

    run(scenario)


def test_a_deposed_writer_is_told_so() -> None:
    async def scenario(world: MetadataWorld) -> None:
        states = await made(world)
        store = world.client()
        await store.create("/vote")
        guard = [Check("/vote", 0)]
        found = await states.move(ID, Step.DRAIN, same, guard=guard)
        await store.write("/vote", b"", 0)
        with pytest.raises(BadVersionError):
            await states.finish(found, Step.FINISH, found.record, guard=guard)
        with pytest.raises(BadVersionError):
            await states.write_ledgers(found, [DrainLedger(1)], guard=guard)
        assert await states.find(ID) == found

    run(scenario)


def test_a_state_that_is_not_understood_is_an_error_and_can_be_seen() -> None:
    async def scenario(world: MetadataWorld) -> None:
        states = await made(world)
        await world.client().create(
            STATE,
            codec.record_to_bytes(LifecycleRecord(state=LifecycleState.DRAINED)).replace(
                b'"format":1', b'"format":9'
            ),
        )
        with pytest.raises(CorruptFileError, match="newer"):
            await states.find(ID)

    run(scenario)


def test_one_state_that_cannot_be_read_hides_no_other() -> None:
    async def scenario(world: MetadataWorld) -> None:
        states = await made(world)
        other = BookieId("b2:3181")
        store = world.client()
        await store.create(f"{ROOT}/cookies/{other}", b"cookie")
        await store.create(f"{ROOT}/cookies/{other}/state", b'{"format":2}')
        await states.move(ID, Step.DRAIN, lambda record: replace(same(record), is_admitted=True))
        found = await states.all()
        assert [one.bookie_id for one in found.founds] == [ID]
        assert "newer version" in found.unreadable[other]
        assert await states.leaving() == {ID}
        assert await states.spared() == frozenset()
        with pytest.raises(CorruptFileError, match="newer version"):
            await states.expect(other)

    run(scenario)
