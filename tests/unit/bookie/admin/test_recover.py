"""`bookie bookies recover` on simulated bookies, beside what else copies and removes copies."""

import asyncio
import json
from typing import Any

import pytest

from bookie.admin.output import Output
from bookie.admin.recover import _recover
from bookie.autorecovery.tasks import TaskStore
from bookie.config import AutoRecoveryConfig
from bookie.errors import IllegalOperationError, error_record
from bookie.ledger.types import BookieId
from bookie.metadata.ledger_paths import Layout, ledger_path, task_lock_path
from bookie.metadata.memory import MemoryStore
from bookie.server.cluster_ledgers import ClusterLedgers
from tests.fixtures.admin import MemoryCluster
from tests.sim.ledger.world import ROOT
from tests.unit.bookie.autorecovery.test_repair import Scene, run


async def recover(
    scene: Scene,
    source: str,
    target: str | None = None,
    *,
    bytes_per_s: int | None = None,
    is_json: bool = True,
    **more: Any,
) -> None:
    cluster = MemoryCluster("memory", ROOT, store=scene.store)  # type: ignore[arg-type]
    options = {"is_dry": False, "will_fence": True} | more
    await _recover(
        cluster,
        Output(is_json=is_json),
        (BookieId(source),),
        None if target is None else BookieId(target),
        (),
        AutoRecoveryConfig(copy_bytes_per_s=bytes_per_s),
        **options,
    )


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_copies_that_a_collector_is_about_to_remove_are_not_counted_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def scenario(scene: Scene) -> None:
        ledger_id = await scene.written(20)
        (ensemble,) = await scene.ensembles(ledger_id)
        (target,) = {f"b{number}:3181" for number in range(4)} - {*ensemble}
        host = scene.world.host(target.partition(":")[0])
        assert host.service is not None
        ledgers = ClusterLedgers(
            host.session_of_life, ROOT, scene.client.services.ledgers, BookieId(target), None
        )
        async with ledgers.task_lock(ledger_id) as is_ours:
            assert is_ours
            holding = await ledgers.read(ledger_id)
            assert (holding.is_closed, holding.is_member) == (True, False)
            # The operator copies to that bookie between the collector's look and its removal.
            with pytest.raises(IllegalOperationError) as caught:
                await recover(scene, ensemble[1], target)
            await scene.world.act(
                host.node, host.service.collector._storage.delete_ledger(ledger_id)
            )
        assert "1 ledgers still need" in str(caught.value)
        assert error_record(caught.value)["retry"] == "safe"
        assert await scene.ensembles(ledger_id) == [ensemble]
        await recover(scene, ensemble[1], target)
        assert ensemble[1] not in (await scene.ensembles(ledger_id))[0]
        await scene.check_whole(ledger_id, 19)

    run(4, scenario)
    row, left, done = lines(capsys)
    assert row["result"] == "locked"
    assert "collects" in str(row["reason"])
    assert (left["ledgers"], left["failed"]) == (0, 1)
    assert (done["ledgers"], done["failed"], done["entries"]) == (1, 0, 20)


def test_a_damaged_ledger_keeps_no_other_from_recovery(capsys: pytest.CaptureFixture[str]) -> None:
    async def scenario(scene: Scene) -> None:
        ledger_id = await scene.written(20)
        (ensemble,) = await scene.ensembles(ledger_id)
        path = ledger_path(ROOT, Layout.HIERARCHICAL, ledger_id + 7)
        await scene.store.create(path, b"damaged", make_parents=True)
        with pytest.raises(IllegalOperationError, match="1 ledgers still need"):
            await recover(scene, ensemble[1])
        assert ensemble[1] not in (await scene.ensembles(ledger_id))[0]

    run(4, scenario)
    row, done = lines(capsys)
    assert row["result"] == "unreadable"
    assert "metadata of ledger" in row["reason"]
    assert (done["ledgers"], done["failed"]) == (1, 1)


def test_a_lock_that_is_given_back_in_time_is_waited_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def scenario(scene: Scene) -> None:
        first, second = await scene.written(5), await scene.written(5)
        (ensemble,) = await scene.ensembles(first)
        other = MemoryStore(scene.world.store_server)
        worker = TaskStore(other, ROOT)
        assert await worker.lock(first, "worker")
        recovering = asyncio.get_running_loop().create_task(recover(scene, ensemble[1]))
        await asyncio.sleep(5.0)  # of the simulated clock
        assert ensemble[1] in (await scene.ensembles(first))[0]
        assert ensemble[1] not in (await scene.ensembles(second))[0]
        await other.close()  # as of a worker that dies: its lock goes with its session
        await recovering
        assert ensemble[1] not in (await scene.ensembles(first))[0]
        assert await scene.tasks.locked() == []

    run(4, scenario)
    (done,) = lines(capsys)
    assert done["failed"] == 0


def test_a_recovery_that_is_stopped_says_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    async def scenario(scene: Scene) -> None:
        ledger_ids = [await scene.written(20) for _ in range(8)]
        source = "b0:3181"
        named = [one for one in ledger_ids if source in await members(scene, one)]
        # Locked one after the other: the first is done when the second is.
        first_is_done = asyncio.Event()
        watch = scene.store.watch(task_lock_path(ROOT, named[1]), first_is_done.set)
        recovering = asyncio.get_running_loop().create_task(recover(scene, source))
        await first_is_done.wait()
        watch.close()
        recovering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await recovering
        left = sum([source in await members(scene, one) for one in named])
        assert 0 < left < len(named)
        assert await scene.tasks.locked() == []
        said = capsys.readouterr().err
        assert f"{len(named) - left} of {len(named)} ledgers are done; {left} are left" in said
        assert f"the first is {named[-left]}. Run the same command again" in said
        await recover(scene, source)
        (done,) = lines(capsys)
        assert (done["ledgers"], done["failed"]) == (left, 0)

    run(4, scenario)


async def members(scene: Scene, ledger_id: int) -> tuple[str, ...]:
    return (await scene.ensembles(ledger_id))[0]


def test_what_would_be_copied_is_estimated(capsys: pytest.CaptureFixture[str]) -> None:
    async def scenario(scene: Scene) -> None:
        ledger_id = await scene.written(20)
        source = (await members(scene, ledger_id))[0]
        byte_count = (await scene.metadata(ledger_id)).length + 20 * (32 + 4)
        await recover(scene, source, is_dry=True, bytes_per_s=byte_count // 2)
        (row,) = lines(capsys)
        assert (row["ledger_id"], row["bytes"], row["seconds"]) == (ledger_id, byte_count, 2.0)
        await recover(scene, source, is_dry=True, is_json=False)
        assert f"1 ledgers, 20 entries, about {byte_count} B: 0:00:01 at 50.0 MiB/s" in (
            capsys.readouterr().out
        )
        assert source in await members(scene, ledger_id)

    run(4, scenario)
