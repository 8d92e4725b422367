"""What every VersionedStore promises, over the one in memory and a real ZooKeeper.

Each of them also with slow links: a proxy that delays and cuts stands before the real one.
"""

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import pytest
import uvloop

from bookie.errors import (
    BadVersionError,
    ClientClosedError,
    IncorrectParameterError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    StoreAccessError,
    StoreConnectionError,
    StoreError,
)
from bookie.metadata.acl import OPEN, AclEntry, Permission, Readable, StoreAccess, acl_for, acl_of
from bookie.metadata.interfaces import (
    Check,
    Create,
    Delete,
    SessionState,
    Write,
)
from bookie.metadata.paths import NODE_BYTES_MAX
from bookie.metadata.zookeeper_login import Login
from tests.fixtures.versioned_stores import MemoryWorld, World, ZooKeeperWorld, until, until_state
from tests.fixtures.zookeeper import zookeeper, zookeeper_root

__all__ = ["zookeeper", "zookeeper_root"]

KINDS = ["memory", "memory-slow", "zookeeper", "zookeeper-slow", "zookeeper-uvloop"]


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest, seed: int) -> World:
    kind: str = request.param
    if kind == "memory":
        return MemoryWorld()
    if kind == "memory-slow":
        return MemoryWorld(random.Random(seed))
    server = request.getfixturevalue("zookeeper")
    root = request.getfixturevalue("zookeeper_root")
    if kind == "zookeeper-slow":
        return ZooKeeperWorld(server.port, root, delay_s=0.01)
    loops = uvloop.new_event_loop if kind == "zookeeper-uvloop" else None
    return ZooKeeperWorld(server.port, root, loop_factory=loops)


def test_create_read_and_stat(world: World) -> None:
    async def scenario(world: World) -> None:
        store, root = await world.client(), world.root
        assert await store.exists(root) is None
        assert await store.create(root, b"one") == root
        data, stat = await store.read(root)
        assert (data, stat.version, stat.ephemeral_owner, stat.child_count) == (b"one", 0, 0, 0)
        assert stat.ctime_ms == stat.mtime_ms > 1_600_000_000_000
        await store.create(f"{root}/child")
        stat = await store.exists(root)
        assert stat is not None
        assert (stat.version, stat.child_count) == (0, 1)

    world.run(scenario)


def test_errors_of_single_operations(world: World) -> None:
    async def scenario(world: World) -> None:
        store, root = await world.client(), world.root
        await store.create(f"{root}/node", make_parents=True)
        await store.create(f"{root}/node/child")
        cases: list[tuple[type[StoreError], Coroutine[Any, Any, object]]] = [
            (NodeExistsError, store.create(f"{root}/node")),
            (NoNodeError, store.create(f"{root}/none/child")),
            (NoNodeError, store.read(f"{root}/none")),
            (NoNodeError, store.write(f"{root}/none", b"", 0)),
            (NoNodeError, store.delete(f"{root}/none")),
            (NoNodeError, store.children(f"{root}/none")),
            (BadVersionError, store.write(f"{root}/node", b"", 1)),
            (BadVersionError, store.delete(f"{root}/node/child", 1)),
            (NotEmptyError, store.delete(f"{root}/node")),
        ]
        for expected, question in cases:
            with pytest.raises(expected) as found:
                await question
            assert type(found.value) is expected
            assert found.value.path.startswith(root)
            assert root in str(found.value)

    world.run(scenario)


def test_compare_and_set_lets_one_of_two_win(world: World) -> None:
    async def scenario(world: World) -> None:
        one, two, root = await world.client(), await world.client(), world.root
        await one.create(root, b"start")
        results = await asyncio.gather(
            one.write(root, b"one", 0), two.write(root, b"two", 0), return_exceptions=True
        )
        assert sorted(isinstance(result, BadVersionError) for result in results) == [False, True]
        winner = b"two" if isinstance(results[0], BadVersionError) else b"one"
        await one.sync(root)
        data, stat = await one.read(root)
        assert (data, stat.version) == (winner, 1)

    world.run(scenario)


def test_versions_count_writes_and_any_version_matches_all(world: World) -> None:
    async def scenario(world: World) -> None:
        store, root = await world.client(), world.root
        await store.create(root)
        versions = [(await store.write(root, b"x", version)).version for version in (0, 1, -1)]
        assert versions == [1, 2, 3]
        await store.delete(root)
        await store.create(root)
        assert (await store.read(root))[1].version == 0

    world.run(scenario)


def test_a_sequence_never_repeats_a_number(world: World) -> None:
    async def scenario(world: World) -> None:
        store, root = await world.client(), world.root
        await store.create(root)
        await store.create(f"{root}/other")
        paths = [await store.create(f"{root}/ID-", is_sequence=True) for _ in range(2)]
        await store.delete(paths[1])
        paths.append(await store.create(f"{root}/ID-", is_sequence=True, is_ephemeral=True))
        numbers = [int(path.removeprefix(f"{root}/ID-")) for path in paths]
        assert numbers == [1, 2, 3], "all children count"
        assert paths[0] == f"{root}/ID-0000000001"

    world.run(scenario)


def test_an_ephemeral_lives_with_its_session(world: World) -> None:
    async def scenario(world: World) -> None:
        owner, other, root = await world.client(), await world.client(), world.root
        await owner.create(f"{root}/here", is_ephemeral=True, make_parents=True)
        _, stat = await other.read(f"{root}/here")
        assert stat.ephemeral_owner == owner.session_id != 0
        with pytest.raises(StoreError):
            await owner.create(f"{root}/here/child")
        rings: list[int] = []
        other.watch_children(root, lambda: rings.append(1))
        assert await other.children(root) == ["here"]
        await owner.close()
        await until(lambda: len(rings) > 0)
        assert await other.children(root) == []

    world.run(scenario)


def test_multi_does_all_or_none(world: World) -> None:
    async def scenario(world: World) -> None:
        store, root = await world.client(), world.root
        await store.multi([Create(root, b"r"), Create(f"{root}/a", b"1"), Create(f"{root}/b")])
        assert await store.children(root) == ["a", "b"]
        await store.multi(
            [Check(f"{root}/b", 0), Write(f"{root}/a", b"2", 0), Delete(f"{root}/b", 0)]
        )
        assert await store.children(root) == ["a"]
        with pytest.raises(BadVersionError) as found:
            await store.multi(
                [Create(f"{root}/c"), Write(f"{root}/a", b"3", 0), Delete(f"{root}/none")]
            )
        assert found.value.path == f"{root}/a", "the first that cannot be done"
        with pytest.raises(NodeExistsError):
            await store.multi([Delete(f"{root}/a"), Create(root)])
        assert await store.children(root) == ["a"]
        data, stat = await store.read(f"{root}/a")
        assert (data, stat.version) == (b"2", 1)

    world.run(scenario)


def test_make_parents_against_a_client_that_removes_them(world: World) -> None:
    async def scenario(world: World) -> None:
        one, two, root = await world.client(), await world.client(), world.root
        await one.create(root)

        async def remove() -> None:
            for _ in range(30):
                for path in (f"{root}/a/b", f"{root}/a"):
                    try:
                        await two.delete(path)
                    except (NoNodeError, NotEmptyError):
                        pass

        async def create() -> None:
            for number in range(10):
                await one.create(f"{root}/a/b/c{number}", make_parents=True)
                await one.delete(f"{root}/a/b/c{number}")

        await asyncio.gather(remove(), create())

    world.run(scenario)


def test_a_watch_stands(world: World) -> None:
    async def scenario(world: World) -> None:
        watcher, writer, root = await world.client(), await world.client(), world.root
        rings: list[int] = []
        watch = watcher.watch(root, lambda: rings.append(1))
        assert await watcher.exists(root) is None
        await writer.create(root)
        await until(lambda: len(rings) == 1)
        for number in (2, 3):
            # Reading makes sure that it is armed again.
            version = (await watcher.read(root))[1].version
            await writer.write(root, b"%d" % number, version)
            await until(lambda number=number: len(rings) == number)
        await watcher.exists(root)
        await writer.delete(root)
        await until(lambda: len(rings) == 4)
        await watcher.exists(root)
        watch.close()
        await writer.create(root)
        await watcher.sync(root)
        assert len(rings) == 4

    world.run(scenario)


def test_who_reads_when_called_misses_nothing(world: World) -> None:
    async def scenario(world: World) -> None:
        watcher, writer, root = await world.client(), await world.client(), world.root
        await writer.create(root)
        seen: list[bytes] = []
        ringing = asyncio.Event()
        watcher.watch(root, ringing.set)

        async def follow() -> None:
            while not seen or seen[-1] != b"49":
                seen.append((await watcher.read(root))[0])
                if seen[-1] != b"49":
                    await ringing.wait()
                    ringing.clear()

        async def write() -> None:
            for number in range(50):
                await writer.write(root, b"%d" % number, -1)

        async with asyncio.timeout(30):
            await asyncio.gather(follow(), write())

    world.run(scenario)


def test_the_event_comes_before_the_answer_that_shows_the_change(world: World) -> None:
    async def scenario(world: World) -> None:
        watcher, writer, root = await world.client(), await world.client(), world.root
        await writer.create(root, b"old")
        await watcher.sync(root)
        log: list[str] = []
        watcher.watch(root, lambda: log.append("event"))
        assert (await watcher.read(root))[0] == b"old"

        async def look() -> None:
            while (await watcher.read(root))[0] == b"old":
                pass
            log.append("answer")

        await asyncio.gather(look(), writer.write(root, b"new", 0))
        assert log == ["event", "answer"]

    world.run(scenario)


def test_children_of_a_node_that_is_not_there_yet(world: World) -> None:
    async def scenario(world: World) -> None:
        watcher, writer, root = await world.client(), await world.client(), world.root
        rings: list[int] = []
        watcher.watch_children(root, lambda: rings.append(1))
        assert await watcher.exists(root) is None
        await writer.create(root)
        await until(lambda: len(rings) >= 1)
        assert await watcher.children(root) == []
        await writer.create(f"{root}/child")
        await until(lambda: len(rings) >= 2)
        assert await watcher.children(root) == ["child"]
        before = len(rings)
        await writer.write(f"{root}/child", b"data of a child is not its parent's affair", 0)
        await watcher.sync(root)
        assert len(rings) == before
        await writer.delete(f"{root}/child")
        await writer.delete(root)
        await until(lambda: len(rings) > before)
        await watcher.exists(root)
        before = len(rings)
        await writer.create(f"{root}/again", make_parents=True)
        await until(lambda: len(rings) > before)

    world.run(scenario)


def test_sync_shows_what_was_answered_before(world: World) -> None:
    async def scenario(world: World) -> None:
        reader, writer, root = await world.client(), await world.client(), world.root
        await writer.create(root)
        for number in range(10):
            await writer.write(root, b"%d" % number, number)
            await reader.sync(root)
            assert (await reader.read(root))[0] == b"%d" % number

    world.run(scenario)


def test_an_answer_is_lost_after_the_write(world: World) -> None:
    async def scenario(world: World) -> None:
        store, root = await world.client(), world.root
        await store.create(root, b"old")
        session_id = store.session_id
        await world.lose_answer(store, store.write(root, b"new", 0))
        data, stat = await store.read(root)
        assert (data, stat.version) == (b"new", 1)
        assert store.session_id == session_id

    world.run(scenario)


def test_a_request_is_lost_and_does_not_come_back(world: World) -> None:
    async def scenario(world: World) -> None:
        store, root = await world.client(), world.root
        await store.create(root, b"old")
        await world.lose_request(store, store.write(root, b"new", 0))
        await store.sync(root)
        data, stat = await store.read(root)
        assert (data, stat.version) == (b"old", 0)

    world.run(scenario)


def test_suspended_is_not_lost(world: World) -> None:
    async def scenario(world: World) -> None:
        store, other, root = await world.client(), await world.client(), world.root
        states: list[SessionState] = []
        store.on_session(states.append)
        await store.create(f"{root}/here", is_ephemeral=True, make_parents=True)
        rings: list[str] = []
        store.watch(f"{root}/node", lambda: rings.append("node"))
        store.watch_children(root, lambda: rings.append("children"))
        assert await store.exists(f"{root}/node") is None
        session_id = store.session_id
        await world.suspend(store)
        with pytest.raises(StoreConnectionError):
            await store.read(root)
        with pytest.raises(StoreConnectionError):
            await store.create(f"{root}/late")
        await other.create(f"{root}/node")
        assert rings == []
        await world.resume(store)
        assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
        assert store.session_id == session_id
        await until(lambda: set(rings) >= {"node", "children"})
        assert await store.children(root) == ["here", "node"], "nothing that failed comes later"
        before = len(rings)
        await other.write(f"{root}/node", b"", 0)
        await until(lambda: len(rings) > before)

    world.run(scenario)


def test_what_is_under_way_fails_when_the_connection_breaks(world: World) -> None:
    async def scenario(world: World) -> None:
        store, root = await world.client(), world.root
        await store.create(root, b"0")
        writes = [asyncio.ensure_future(store.write(root, b"%d" % n, n)) for n in range(200)]
        await writes[20]
        await world.suspend(store)
        await asyncio.wait(writes)
        lost = [n for n, write in enumerate(writes) if write.exception() is not None]
        assert all(isinstance(writes[n].exception(), StoreConnectionError) for n in lost)
        await world.resume(store)
        await store.sync(root)
        data, stat = await store.read(root)
        assert data == b"%d" % max(stat.version - 1, 0)
        assert lost == list(range(lost[0], 200)) if lost else True
        assert not lost or stat.version >= lost[0], "what was answered was done"
        assert stat.version <= 200

    world.run(scenario)


def test_an_expired_session_is_lost_and_replaced(world: World) -> None:
    async def scenario(world: World) -> None:
        store, other, root = await world.client(), await world.client(), world.root
        states: list[SessionState] = []
        store.on_session(states.append)
        await store.create(f"{root}/here", is_ephemeral=True, make_parents=True)
        rings: list[int] = []
        store.watch_children(root, lambda: rings.append(1))
        await store.children(root)
        old = store.session_id
        await world.expire(store)
        assert states == [SessionState.SUSPENDED], "it was not told yet"
        assert await other.exists(f"{root}/here") is None
        await world.resume(store)
        assert states == [SessionState.SUSPENDED, SessionState.LOST, SessionState.CONNECTED]
        assert store.session_id not in (old, 0)
        await until(lambda: len(rings) >= 1)
        assert await store.children(root) == []
        before = len(rings)
        await other.create(f"{root}/more")
        await until(lambda: len(rings) > before)
        await store.create(f"{root}/here", is_ephemeral=True)
        _, stat = await other.read(f"{root}/here")
        assert stat.ephemeral_owner == store.session_id

    world.run(scenario)


def test_many_requests_keep_their_order(world: World) -> None:
    async def scenario(world: World) -> None:
        store, root = await world.client(), world.root
        await store.create(root)
        answers: list[int] = []

        async def write(number: int) -> None:
            stat = await store.write(root, b"%d" % number, number)
            answers.append(stat.version)

        await asyncio.gather(*(write(number) for number in range(500)))
        assert answers == list(range(1, 501))

    world.run(scenario)


def test_a_cancelled_question_harms_no_other(world: World) -> None:
    async def scenario(world: World) -> None:
        store, root = await world.client(), world.root
        await store.create(root)
        question = asyncio.ensure_future(store.read(root))
        await asyncio.sleep(0)
        question.cancel()
        with pytest.raises(asyncio.CancelledError):
            await question
        assert (await store.read(root))[0] == b""

    world.run(scenario)


def test_nothing_is_called_after_close(world: World) -> None:
    async def scenario(world: World) -> None:
        store, other, root = await world.client(), await world.client(), world.root
        await store.create(root)
        calls: list[object] = []
        store.on_session(calls.append)
        store.watch(root, lambda: calls.append("watch"))
        await store.read(root)
        under_way = asyncio.ensure_future(store.read(root))
        await asyncio.sleep(0)
        await other.write(root, b"new", 0)
        closing = asyncio.ensure_future(store.close())
        await asyncio.sleep(0)
        before = list(calls)
        await closing
        await asyncio.wait([under_way])  # answered before, or:
        assert isinstance(under_way.exception(), ClientClosedError | None)
        await other.write(root, b"newer", 1)
        await other.sync(root)
        assert calls == before
        await store.close()
        for question in (store.read(root), store.create(f"{root}/x"), store.sync(root)):
            with pytest.raises(ClientClosedError):
                await question
        with pytest.raises(ClientClosedError):
            store.watch(root, lambda: None)

    world.run(scenario)


def test_a_closed_watch_is_not_called(world: World) -> None:
    async def scenario(world: World) -> None:
        store, root = await world.client(), world.root
        calls: list[str] = []
        states = store.on_session(lambda _: calls.append("state"))
        first = store.watch(root, lambda: calls.append("first"))

        def second() -> None:
            calls.append("second")
            first.close()
            states.close()

        other = await world.client()
        await store.exists(root)
        first.close()
        watch = store.watch(root, second)
        await store.exists(root)
        await other.create(root)
        await until(lambda: calls == ["second"])
        states.close()
        watch.close()
        watch.close()
        await world.suspend(store)
        await world.resume(store)
        assert calls == ["second"]

    world.run(scenario)


def test_a_failing_callback_is_reported_and_the_rest_goes_on(world: World) -> None:
    async def scenario(world: World) -> None:
        reports: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reports.append(context["exception"]))
        store, other, root = await world.client(), await world.client(), world.root
        error = RuntimeError("a bug of the caller")

        def fail() -> None:
            raise error

        rings: list[int] = []
        store.watch(root, fail)
        store.watch(root, lambda: rings.append(1))
        await store.exists(root)
        await other.create(root)
        await until(lambda: len(rings) == len(reports) == 1)  # in either order
        assert reports == [error]
        assert (await store.read(root))[0] == b""

    world.run(scenario)


@pytest.mark.parametrize("path", ["", "relative", "/a/", "//", "/a//b", "/a/../b", "/a\0b"])
def test_paths_are_checked(world: World, path: str) -> None:
    async def scenario(world: World) -> None:
        store = await world.client()
        for question in (store.create(path), store.read(path), store.delete(path)):
            with pytest.raises(IncorrectParameterError):
                await question
        with pytest.raises(IncorrectParameterError):
            store.watch(path, lambda: None)
        with pytest.raises(IncorrectParameterError):
            await store.multi([Create(path)])

    world.run(scenario)


def test_data_has_a_limit(world: World) -> None:
    async def scenario(world: World) -> None:
        store, root = await world.client(), world.root
        await store.create(root, bytes(NODE_BYTES_MAX))
        with pytest.raises(IncorrectParameterError):
            await store.write(root, bytes(NODE_BYTES_MAX + 1), 0)
        with pytest.raises(IncorrectParameterError):
            await store.multi([Write(root, bytes(NODE_BYTES_MAX + 1), 0)])
        assert store.state is SessionState.CONNECTED
        await until_state(store, SessionState.CONNECTED)

    world.run(scenario)


# --- ACLs -----------------------------------------------------------------------------------------

ADA, BOB = Login("digest", "ada", "geheim"), Login("digest", "bob", "geheim")
ADAS = acl_for([ADA.identity])


def test_nodes_of_a_store_without_a_login_are_open(world: World) -> None:
    async def scenario(world: World) -> None:
        store, ada, root = await world.client(), await world.client((ADA,)), world.root
        await store.create(root)
        await ada.create(f"{root}/ada")
        for path in (root, f"{root}/ada"):
            await store.sync(path)
            acl, stat = await store.read_acl(path)
            assert (acl, stat.version) == (OPEN, 0)
        assert (await store.read_acl(root))[1].child_count == 1

    world.run(scenario)


def test_every_way_to_make_a_node_makes_a_secured_one(world: World) -> None:
    async def scenario(world: World) -> None:
        ada, root = await world.client((ADA,), is_secured=True), world.root
        await ada.create(f"{root}/a/b", make_parents=True)
        made = [root, f"{root}/a", f"{root}/a/b"]
        made.append(await ada.create(f"{root}/e-", is_ephemeral=True, is_sequence=True))
        await ada.multi([Create(f"{root}/m"), Create(f"{root}/m/n", is_ephemeral=True)])
        for path in (*made, f"{root}/m", f"{root}/m/n"):
            assert (await ada.read_acl(path))[0] == ADAS, path
        assert ada.access == StoreAccess((ADA.identity,), is_secured=True)

    world.run(scenario)


def test_nodes_that_others_may_read_are_made_so_in_every_way(world: World) -> None:
    async def scenario(world: World) -> None:
        root = world.root
        readable = Readable((BOB.identity,), (f"{root}/seen",))
        ada = await world.client((ADA,), is_secured=True, readable=readable)
        await ada.create(f"{root}/seen/a", b"told", make_parents=True)
        await ada.create(f"{root}/seenby", b"secret")
        await ada.multi([Create(f"{root}/seen/b"), Create(f"{root}/other")])
        shared = acl_of([*ADAS, AclEntry(*BOB.identity, int(Permission.READ))])
        for path in ("", "/a", "/b"):
            assert (await ada.read_acl(f"{root}/seen{path}"))[0] == shared
        for path in (root, f"{root}/seenby", f"{root}/other"):
            assert (await ada.read_acl(path))[0] == ADAS
        bob, unauthenticated = await world.client((BOB,)), await world.client()
        await bob.sync(root)
        await unauthenticated.sync(root)
        assert (await bob.read(f"{root}/seen/a"))[0] == b"told"
        assert await bob.children(f"{root}/seen") == ["a", "b"]
        for case in (
            bob.read(f"{root}/seenby"),
            bob.write(f"{root}/seen/a", b"", -1),
            bob.delete(f"{root}/seen/a"),
            bob.create(f"{root}/seen/c"),
            bob.multi([Check(f"{root}/other", 0)]),
            bob.write_acl(f"{root}/seen/a", OPEN),
            unauthenticated.read(f"{root}/seen/a"),
            unauthenticated.children(f"{root}/seen"),
        ):
            with pytest.raises(StoreAccessError):
                await case

    world.run(scenario)


def test_a_secured_node_is_closed_to_others(world: World) -> None:
    async def scenario(world: World) -> None:
        ada, root = await world.client((ADA,), is_secured=True), world.root
        await ada.create(f"{root}/a/b", b"secret", make_parents=True)
        path = f"{root}/a"
        for store in (await world.client(), await world.client((BOB,), is_secured=True)):
            cases: list[Coroutine[Any, Any, object]] = [
                store.read(path),
                store.write(path, b"", -1),
                store.children(path),
                store.create(f"{path}/c"),
                store.create(f"{path}/c/d", make_parents=True),
                store.delete(f"{path}/b"),
                store.multi([Create(f"{path}/c")]),
                store.multi([Check(path, 0)]),
                store.multi([Delete(f"{path}/b")]),
                store.read_acl(path),
                store.write_acl(path, OPEN),
                store.exists(path),
            ]
            await store.sync(path)
            for case in cases:
                with pytest.raises(StoreAccessError) as found:
                    await case
                assert found.value.path.startswith(root)
            store.watch_children(path, lambda: None).close()
        assert await ada.children(path) == ["b"]

    world.run(scenario)


def test_the_same_login_in_another_session_is_let_in(world: World) -> None:
    async def scenario(world: World) -> None:
        ada, root = await world.client((ADA,), is_secured=True), world.root
        await ada.create(root, b"one")
        twin = await world.client((ADA,))
        await twin.sync(root)
        assert (await twin.read(root))[0] == b"one"
        await twin.create(f"{root}/open")
        assert (await twin.read_acl(f"{root}/open"))[0] == OPEN
        both = await world.client((BOB, ADA), is_secured=True)
        await both.create(f"{root}/both")
        assert (await both.read_acl(f"{root}/both"))[0] == acl_for([ADA.identity, BOB.identity])

    world.run(scenario)


def test_an_acl_is_set_and_its_rights_are_single(world: World) -> None:
    async def scenario(world: World) -> None:
        ada, other, root = await world.client((ADA,)), await world.client(), world.root
        await ada.create(root)
        mixed = acl_of([*ADAS, AclEntry("world", "anyone", int(Permission.READ))])
        assert (await ada.write_acl(root, mixed)).child_count == 0
        await other.sync(root)
        assert await other.children(root) == []
        for case in (other.create(f"{root}/c"), other.write(root, b"", -1)):
            with pytest.raises(StoreAccessError):
                await case
        assert (await ada.read_acl(root))[0] == mixed
        shown = (await other.read_acl(root))[0]
        assert [entry.id for entry in shown] == ["ada:x", "anyone"]  # no hash without ADMIN
        await ada.write_acl(root, OPEN)
        await ada.write_acl(root, OPEN)
        await other.create(f"{root}/c")
        for case in (ada.write_acl(f"{root}/none", OPEN), ada.read_acl(f"{root}/none")):
            with pytest.raises(NoNodeError):
                await case

    world.run(scenario)


def test_the_next_connection_and_the_next_session_are_logged_in_too(world: World) -> None:
    async def scenario(world: World) -> None:
        ada, root = await world.client((ADA,), is_secured=True), world.root
        await ada.create(root)
        await world.suspend(ada)
        await world.resume(ada)
        await ada.create(f"{root}/one", is_ephemeral=True)
        await world.expire(ada)
        await world.resume(ada)
        await ada.create(f"{root}/two")
        assert (await ada.read_acl(f"{root}/two"))[0] == ADAS

    world.run(scenario)
