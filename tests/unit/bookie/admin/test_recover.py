"""`bookie bookies recover` on simulated bookies, beside what else copies and removes copies."""

import json
from typing import Any

import pytest

from bookie.admin.output import Output
from bookie.admin.recover import _recover
from bookie.config import AutoRecoveryConfig
from bookie.errors import IllegalOperationError
from bookie.ledger.types import BookieId
from bookie.server.cluster_ledgers import ClusterLedgers
from tests.fixtures.admin import MemoryCluster
from tests.sim.ledger.world import ROOT
from tests.unit.bookie.autorecovery.test_repair import Scene, run


async def recover(scene: Scene, source: str, target: str | None = None, **more: Any) -> None:
    cluster = MemoryCluster("memory", ROOT, store=scene.store)  # type: ignore[arg-type]
    options = {"is_dry": False, "will_fence": True} | more
    await _recover(
        cluster,
        Output(is_json=True),
        (BookieId(source),),
        None if target is None else BookieId(target),
        (),
        AutoRecoveryConfig(),
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
