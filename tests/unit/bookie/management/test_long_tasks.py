"""LongTasks: one of a name, few in all, and how each ended."""

import asyncio

import pytest

from bookie.errors import IllegalOperationError
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
        with pytest.raises(IllegalOperationError, match="found a; wait"):
            tasks.begin("a", work)
        tasks.begin("b", work)
        with pytest.raises(IllegalOperationError, match="found a, b; wait"):
            tasks.begin("c", work)
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
