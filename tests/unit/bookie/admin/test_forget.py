"""`bookie bookies decommission` and `bookie cookie delete`: which bookies they do not forget."""

from collections.abc import Awaitable, Callable

import pytest

from bookie.admin.cookies import _delete
from bookie.admin.output import Output
from bookie.admin.recover import _decommission
from bookie.admin.world import Cluster
from bookie.autorecovery.formats import vote_bytes
from bookie.autorecovery.tasks import TaskStore
from bookie.errors import IllegalOperationError, MetadataVersionError
from bookie.ledger.types import BookieId
from bookie.lifecycle.operations import Operations
from bookie.metadata.cookies import Cookie, CookieStore
from bookie.metadata.interfaces import ANY_VERSION
from bookie.metadata.ledger_paths import Layout, ledger_path
from bookie.metadata.service_info import ServiceInfo
from tests.fixtures.admin import MemoryCluster
from tests.fixtures.metadata import ROOT, MetadataWorld, SeededRng, metadata, run

BOOKIE = BookieId("b1:3181")
Forget = Callable[[Cluster], Awaitable[None]]


async def decommission(cluster: Cluster) -> None:
    await _decommission(cluster, Output(is_json=True), BOOKIE, 0.0)


async def delete(cluster: Cluster) -> None:
    await _delete(cluster, BOOKIE, ())


BOTH = pytest.mark.parametrize("forget", [decommission, delete])


async def made(world: MetadataWorld) -> tuple[MemoryCluster, Operations]:
    """Return a cluster with one stopped bookie, and an auditor's vote."""
    instance_id = await world.format()
    store = world.client()
    cookie = Cookie(BOOKIE, ("/j",), ("/l",), instance_id)
    await CookieStore(store, ROOT).write(BOOKIE, cookie, None)
    tasks = TaskStore(store, ROOT)
    await tasks.prepare()
    await store.create(f"{tasks.votes_path}/V_0000000000", vote_bytes("auditor"))
    asked = Operations(world.client(), ROOT, SeededRng(3), world.clock)
    return MemoryCluster("memory", ROOT, store=store), asked


def test_unreadable_ledgers_end_a_decommission() -> None:
    """They stay unreadable: to wait for them would never end."""

    async def scenario(world: MetadataWorld) -> None:
        cluster, _ = await made(world)
        path = ledger_path(ROOT, Layout.HIERARCHICAL, 7)
        await world.client().create(path, b"damaged", make_parents=True)
        with pytest.raises(IllegalOperationError, match=r"1 ledgers cannot be read.*first is 7"):
            await _decommission(cluster, Output(is_json=True), BOOKIE, 3600.0)

    run(scenario)


def test_a_decommission_without_a_worker_says_so_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def scenario(world: MetadataWorld) -> None:
        cluster, _ = await made(world)
        await world.manager(world.client()).create(metadata(BOOKIE, "b2:3181"))
        with pytest.raises(IllegalOperationError, match="1 ledgers still name it after 0 s"):
            await decommission(cluster)
        assert "no replication worker is registered" in capsys.readouterr().err
        await TaskStore(cluster.store, ROOT).register_worker("alone")
        with pytest.raises(IllegalOperationError, match="1 ledgers still name it"):
            await decommission(cluster)
        assert capsys.readouterr().err == ""

    run(scenario)


def test_a_decommission_that_cannot_end_says_how_the_loss_is_accepted() -> None:
    async def scenario(world: MetadataWorld) -> None:
        cluster, _ = await made(world)
        created, _ = await world.manager(world.client()).create(metadata(BOOKIE, "b2:3181"))
        message = await refused(decommission, cluster)
        assert f"`bookie cookie delete {BOOKIE} --accept-loss LEDGER`" in message
        await _delete(cluster, BOOKIE, (created.ledger_id,))
        assert await CookieStore(cluster.store, ROOT).read(BOOKIE) is None

    run(scenario)


async def refused(forget: Forget, cluster: Cluster) -> str:
    with pytest.raises(IllegalOperationError) as caught:
        await forget(cluster)
    return str(caught.value)


@BOTH
def test_a_drain_is_ended_first(forget: Forget) -> None:
    async def scenario(world: MetadataWorld) -> None:
        cluster, asked = await made(world)
        await asked.drain(BOOKIE, "me")
        assert f"bookie {BOOKIE} is Draining: `bookie bookies remove`" in await refused(
            forget, cluster
        )
        assert await CookieStore(cluster.store, ROOT).read(BOOKIE) is not None
        await asked.cancel(BOOKIE)
        await forget(cluster)
        assert await CookieStore(cluster.store, ROOT).read(BOOKIE) is None

    run(scenario)


@BOTH
def test_a_registered_bookie_is_not_forgotten(forget: Forget) -> None:
    async def scenario(world: MetadataWorld) -> None:
        cluster, _ = await made(world)
        path = f"{ROOT}/available/{BOOKIE}"
        await world.client().create(path, ServiceInfo(()).to_bytes(), is_ephemeral=True)
        assert "expected a stopped bookie" in await refused(forget, cluster)

    run(scenario)


@BOTH
def test_a_ledger_that_cannot_be_read_may_name_it(forget: Forget) -> None:
    async def scenario(world: MetadataWorld) -> None:
        cluster, _ = await made(world)
        await world.manager(world.client()).create(metadata("b2:3181"))
        path = next(path for path in world.paths() if path.endswith("/L0000"))
        await world.client().write(path, b"x", ANY_VERSION)
        assert "name it" in await refused(forget, cluster)
        assert await CookieStore(cluster.store, ROOT).read(BOOKIE) is not None

    run(scenario)


def test_a_cookie_goes_when_each_ledger_that_names_the_bookie_is_given_up() -> None:
    async def scenario(world: MetadataWorld) -> None:
        cluster, _ = await made(world)
        manager = world.manager(world.client())
        first, second = [(await manager.create(metadata(BOOKIE)))[0].ledger_id for _ in range(2)]
        other = (await manager.create(metadata("b2:3181")))[0].ledger_id
        for accepted, said in (
            ((), f"found 2: {first}, {second};"),
            ((first,), f"found 1: {second};"),
            ((first, second, other), f"ledger {other}: expected one that names bookie {BOOKIE}"),
            ((first, second, 99), f"ledger 99: expected one that names bookie {BOOKIE}"),
        ):
            with pytest.raises(IllegalOperationError) as caught:
                await _delete(cluster, BOOKIE, accepted)
            assert said in str(caught.value)
            assert await CookieStore(cluster.store, ROOT).read(BOOKIE) is not None
        await _delete(cluster, BOOKIE, (first, second))
        assert await CookieStore(cluster.store, ROOT).read(BOOKIE) is None

    run(scenario)


def test_a_drain_that_begins_meanwhile_is_seen() -> None:
    async def scenario(world: MetadataWorld) -> None:
        cluster, asked = await made(world)
        await asked.drain(BOOKIE, "me")
        with pytest.raises(MetadataVersionError, match="a drain of it has begun"):
            await CookieStore(cluster.store, ROOT).delete(BOOKIE)

    run(scenario)
