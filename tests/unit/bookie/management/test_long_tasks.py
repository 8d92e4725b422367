"""LongTasks: one of a name, few in all, and how each ended."""

import asyncio

import pytest

from bookie.errors import IllegalOperationError, Retry, TaskRunningError
from bookie.management.long_tasks import Json, LongTasks
from tests.fixtures.bookie_node import Cluster, simulate


def test_tasks_are_few_and_tell_their_end() -> None:
    async def test(cluster: Cluster) -> None:
        tasks = LongTasks(cluster.clock)
        gate = asyncio.Event()

        async def work(record: Json) -> None:
            record["done"] = 1
            await gate.wait()

        async def fail(record: Json) -> None:
            raise IllegalOperationError("refused")

        async def defect(record: Json) -> None:
            raise RuntimeError("secret")

        assert tasks.last("a") == {"task": "a", "state": "none"}
        assert tasks.begin("a", work)["state"] == "running"
        with pytest.raises(TaskRunningError, match="this bookie; wait") as caught:
            tasks.begin("a", work)
        assert caught.value.retry is Retry.SAFE
        assert tasks.begin("b", work, ["b1:3181", "b2:3181"])["about"] == ["b1:3181", "b2:3181"]
        with pytest.raises(TaskRunningError, match="found one about b1:3181, b2:3181; wait"):
            tasks.begin("b", work)
        tasks.begin("c", work)
        assert (await tasks.cancel("c"))["state"] == "cancelled"  # before its first step
        tasks.begin("c", work)
        await asyncio.sleep(1)
        assert (await tasks.cancel("c"))["state"] == "cancelled"
        assert (await tasks.cancel("d"))["state"] == "none"
        gate.set()
        await asyncio.sleep(1)
        assert not tasks.is_running("a")
        assert (tasks.last("a")["state"], tasks.last("a")["done"]) == ("done", 1)
        tasks.begin("a", fail)
        tasks.begin("b", defect)
        await asyncio.sleep(1)
        assert tasks.last("a")["error"]["message"] == "refused"
        assert tasks.last("b")["state"] == "failed"
        assert "secret" not in str(tasks.last("b"))
        gate.clear()
        tasks.begin("a", work)
        await asyncio.sleep(1)
        await tasks.close()
        assert tasks.last("a")["state"] == "cancelled"
        await tasks.close()

    simulate(test)
