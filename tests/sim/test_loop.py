"""SimulatedLoop: order, time, crashes, executors, and that a seed decides everything."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.disk import SimulatedCrash
from tests.sim.loop import SimulatedExecutor, SimulatedLoop, SimulationError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def loop():
    loop = SimulatedLoop(7)
    yield loop
    loop.check_tasks()
    loop.close()


def busy_run(seed: int) -> tuple[int, list[str]]:
    """Run a little of everything; return the hash and the order in which things happened."""
    loop = SimulatedLoop(seed)
    seen: list[str] = []

    async def worker(name: str) -> None:
        for turn in range(5):
            seen.append(f"{name}{turn}")
            await asyncio.sleep(0)
        await loop.run_in_executor(SimulatedExecutor(loop.rng.random), seen.append, name)

    async def main() -> None:
        nodes = [loop.add_node(name) for name in ("a", "b", "c")]
        await asyncio.gather(*[node.create_task(worker(node.name)) for node in nodes])

    loop.run_until_complete(main())
    loop.close()
    return loop.trace_hash, seen


def test_a_seed_decides_the_order_of_nodes_and_jobs():
    assert busy_run(1) == busy_run(1)
    orders = {tuple(busy_run(seed)[1]) for seed in range(10)}
    assert len(orders) > 5


def test_the_trace_is_the_same_in_another_process_with_another_hash_seed():
    code = "from tests.sim.test_loop import busy_run; print(busy_run(3)[0])"
    found = [
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for seed in ("1", "2")
    ]
    assert found == [str(busy_run(3)[0])] * 2


def test_callbacks_of_one_node_keep_their_order(loop):
    seen = []
    for number in range(20):
        loop.call_soon(seen.append, number)
    loop.run_forever()
    assert seen == list(range(20))


def test_time_jumps_and_timers_come_in_order(loop):
    seen = []
    loop.call_later(3600.0, seen.append, "late")
    loop.call_later(1.0, seen.append, "early")
    loop.call_later(2.0, seen.append, "cancelled").cancel()
    loop.run_forever()
    assert seen == ["early", "late"]
    assert loop.time() == 3600.0


def test_asyncio_works_as_it_does_elsewhere(loop):
    async def part(queue):
        async with asyncio.TaskGroup() as group:
            group.create_task(queue.put(1))
            group.create_task(queue.put(2))
        return "part"

    async def numbers():
        for number in range(3):
            await asyncio.sleep(0.1)
            yield number

    async def main():
        queue = asyncio.Queue()
        assert await asyncio.gather(part(queue), asyncio.sleep(1.0, "slept")) == ["part", "slept"]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5.0):
                await asyncio.Event().wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(10.0), 1.0)
        lock = asyncio.Lock()
        async with lock:
            assert lock.locked()
        done, pending = await asyncio.wait(
            [asyncio.create_task(asyncio.sleep(n)) for n in (1, 2)],
            return_when=asyncio.FIRST_COMPLETED,
        )
        assert len(done) == len(pending) == 1
        for task in pending:
            task.cancel()
        async for number in numbers():
            if number == 1:
                break
        assert asyncio.get_running_loop() is loop
        return loop.time()

    assert loop.run_until_complete(main()) == pytest.approx(8.2)


def test_a_crash_drops_timers_callbacks_and_tasks_without_their_finally_blocks(loop):
    seen = []
    node = loop.add_node("a")

    async def life():
        try:
            loop.call_later(2.0, seen.append, "timer")
            await asyncio.sleep(3.0)
        finally:
            seen.append("finally")
            loop.call_soon(seen.append, "callback of finally")

    node.create_task(life())
    node.on_crash.append(lambda: seen.append("crashed"))
    loop.call_later(1.0, loop.crash, node)
    loop.run_forever()
    assert seen == ["crashed"]
    assert loop.time() == 1.0  # the dead timer was passed over
    loop.close()
    assert seen == ["crashed", "finally"]  # after the end, without any effect on the world


def test_a_crash_in_a_job_crashes_its_node(loop):
    node = loop.add_node("a")

    def job():
        raise SimulatedCrash("in the job")

    async def life():
        await loop.run_in_executor(None, job)

    task = node.create_task(life())
    loop.run_forever()
    assert not node.is_alive
    assert not task.done()


def test_jobs_of_one_worker_wait_for_each_other(loop):
    executor = SimulatedExecutor(lambda: 1.0)
    ends = []

    def job():
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        ends.append(loop.time())
        return len(ends)

    async def main():
        return await asyncio.gather(*[loop.run_in_executor(executor, job) for _ in range(3)])

    assert loop.run_until_complete(main()) == [1, 2, 3]
    assert ends == [1.0, 2.0, 3.0]


def test_the_error_of_a_job_reaches_its_waiter(loop):
    async def main():
        with pytest.raises(OSError, match="full"):
            await loop.run_in_executor(None, raise_full)

    def raise_full():
        raise OSError("full")

    loop.run_until_complete(main())


def test_a_paused_node_runs_nothing_and_goes_on_in_order(loop):
    node = loop.add_node("a")
    seen = []
    node.run(loop.call_soon, seen.append, 1)
    node.run(loop.call_later, 0.5, seen.append, 2)
    loop.pause(node, 1.0)
    loop.run_for(0.9)
    assert seen == []
    loop.run_forever()
    assert seen == [1, 2]


def test_an_exception_in_a_callback_fails_the_run():
    loop = SimulatedLoop()
    loop.call_soon(lambda: 1 // 0)
    with pytest.raises(SimulationError, match="ZeroDivisionError"):
        loop.run_forever()
    loop.close()


def test_an_exception_of_a_task_that_is_not_awaited_fails_the_run():
    loop = SimulatedLoop()

    async def fails():
        raise ValueError("lost")

    loop.world.create_task(fails())
    loop.run_forever()
    with pytest.raises(SimulationError, match="lost"):
        loop.check_tasks()
    loop.close()


def test_an_exception_may_be_looked_at_after_many_other_tasks():
    loop = SimulatedLoop()

    async def fails():
        raise ValueError("seen")

    async def idles():
        pass

    async def looks():
        failing = asyncio.ensure_future(fails())
        for _ in range(1000):
            await asyncio.ensure_future(idles())
        with pytest.raises(ValueError, match="seen"):
            await failing

    task = loop.world.create_task(looks())
    loop.run_until_complete(task)
    loop.check_tasks()
    loop.close()


def test_a_standstill_and_an_endless_run_are_errors():
    loop = SimulatedLoop()

    async def never():
        await loop.create_future()

    with pytest.raises(SimulationError, match="standstill"):
        loop.run_until_complete(never())

    async def too_long():
        await asyncio.sleep(100.0)

    with pytest.raises(SimulationError, match="not done after"):
        loop.run_until_complete(too_long(), time_limit_s=50.0)
    loop.close()


def test_code_belongs_to_the_node_that_started_it(loop):
    node = loop.add_node("a")
    found = []

    async def inner():
        await asyncio.sleep(1.0)
        found.append(loop.current)

    async def outer():
        await asyncio.gather(inner(), inner())

    loop.run_until_complete(node.create_task(outer()))
    assert found == [node, node]
    assert loop.current is loop.world
