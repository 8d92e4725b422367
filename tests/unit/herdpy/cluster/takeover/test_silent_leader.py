"""What a member does about a leader that is silent while its session lives."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise

from herdpy.cluster.member import Member
from herdpy.cluster.part import State
from herdpy.cluster.tablespace_nodes import Versioned
from herdpy.errors import OperationalError
from tests.unit.herdpy.cluster.test_member_faults import CALL_S, NAME, World, simulate

LIMIT_S = 12.0
_LATE_S = LIMIT_S / 6
"""Behind the limit: two of a member's looks."""


def with_silent_leader(body: Callable[[World, Member], Awaitable[None]]) -> None:
    """Run a member that follows a leader which ticks by the same limit, and says nothing."""

    async def main(world: World) -> None:
        world.inactivity_limit_s = LIMIT_S
        await world.lead_elsewhere(LIMIT_S)
        member = await world.start()
        await world.until(member, State.FOLLOWING)
        await body(world, member)
        await member.close()

    simulate(main)


async def until_called(world: World, call: str) -> float:
    """Wait for a call of the copy, and return when it came."""
    async with asyncio.timeout(10 * LIMIT_S):
        while call not in world.copy.calls:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.01)
    return asyncio.get_running_loop().time()


def test_it_tries_the_log_then_leads_and_answers_behind_two_timeouts_of_the_session() -> None:
    async def body(world: World, member: Member) -> None:
        begun_s = asyncio.get_running_loop().time()
        tried_s = await until_called(world, "probe")
        assert LIMIT_S - _LATE_S <= tried_s - begun_s <= LIMIT_S + _LATE_S
        named_s = await until_called(world, "claim")
        assert named_s - tried_s <= 1.0
        timeout_s = world.store.session_timeout_s
        answered_s = await until_called(world, "serve")
        assert 2 * timeout_s <= answered_s - named_s <= 2 * timeout_s + 2.0
        await world.until(member, State.LEADING)

    with_silent_leader(body)


def test_a_node_that_cannot_write_either_stays_and_tries_again_behind_another_limit() -> None:
    async def body(world: World, member: Member) -> None:
        tries: list[float] = []

        def note() -> None:
            tries.append(asyncio.get_running_loop().time())
            world.copy.fails["probe"] = OperationalError("slow", sqlstate="58030")

        world.copy.fails["probe"] = OperationalError("slow", sqlstate="58030")
        world.copy.on_probe = note
        begun_s = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() < begun_s + 5 * LIMIT_S:
            if "probe" not in world.copy.fails:
                note()
            await asyncio.sleep(0.01)
        assert "claim" not in world.copy.calls
        assert member.machine.state is State.FOLLOWING
        assert 3 <= len(tries) <= 5
        assert all(after - before >= LIMIT_S for before, after in pairwise(tries))

    with_silent_leader(body)


def test_a_leader_that_says_something_while_its_log_is_tried_goes_on() -> None:
    async def body(world: World, member: Member) -> None:
        world.copy.on_probe = lambda: member._silence.saw((1, 1))
        await until_called(world, "probe")
        await asyncio.sleep(LIMIT_S / 2)
        assert "claim" not in world.copy.calls

    with_silent_leader(body)


def test_a_leader_that_says_something_before_the_candidate_s_time_goes_on() -> None:
    async def body(world: World, member: Member) -> None:
        loop = asyncio.get_running_loop()
        world.copy.on_probe = lambda: loop.call_later(
            CALL_S / 10, lambda: member._silence.saw((1, 1))
        )
        await until_called(world, "probe")
        await asyncio.sleep(LIMIT_S / 2)
        assert "claim" not in world.copy.calls

    with_silent_leader(body)


def test_a_leader_that_has_come_meanwhile_is_not_taken_for_the_silent_one() -> None:
    """The store has told that it has named itself, and this node has not read it yet."""

    async def body(world: World, member: Member) -> None:
        other, nodes = world.other, member._nodes
        assert other is not None
        read = nodes.read

        async def read_first(name: str) -> Versioned:
            nodes.read = read  # type: ignore[method-assign]
            named = await other.take_over(name, await read(name), "n2")
            assert named is not None
            return named

        await until_called(world, "probe")
        nodes.read = read_first  # type: ignore[method-assign]
        await asyncio.sleep(LIMIT_S / 2)
        assert nodes.read == read
        assert "claim" not in world.copy.calls
        assert (await read(NAME)).record.leader == "n2"

    with_silent_leader(body)


def test_a_copy_that_is_behind_is_no_candidate() -> None:
    """Clients would wait for all that it has not taken in."""

    async def body(world: World, member: Member) -> None:
        member._is_taking_in = True
        await asyncio.sleep(3 * LIMIT_S)
        assert "probe" not in world.copy.calls
        member._is_taking_in = False
        await until_called(world, "claim")

    with_silent_leader(body)


def test_a_change_of_leaders_gives_the_next_one_twice_the_time() -> None:
    async def body(world: World, member: Member) -> None:
        other = world.other
        assert other is not None
        assert await other.take_over(NAME, await other.read(NAME), "n0") is not None
        begun_s = asyncio.get_running_loop().time()
        tried_s = await until_called(world, "probe")
        assert 2 * LIMIT_S - _LATE_S <= tried_s - begun_s <= 2 * LIMIT_S + _LATE_S

    with_silent_leader(body)


def test_a_leader_that_does_not_say_that_it_ticks_is_left_alone() -> None:
    async def main(world: World) -> None:
        world.inactivity_limit_s = LIMIT_S
        await world.lead_elsewhere(0.0)
        member = await world.start()
        await asyncio.sleep(5 * LIMIT_S)
        assert "probe" not in world.copy.calls
        await member.close()

    simulate(main)
