"""The faults: each plays a round and returns the moment that it came at, or raises Missed."""

from collections.abc import Callable
from typing import Any

from tests.spark_faults.cluster import wait_until
from tests.spark_faults.world import BATCHES, DEAD_LEASE_S, PARTS, ROWS, Missed, World


def executor_in_read(world: World) -> str:
    """Kill an executor behind a number of batches."""
    return _in_read(world, world.kill_executor)


def server_in_read(world: World) -> str:
    """Kill the server behind a number of batches, and start it again."""
    return _in_read(world, world.kill_server)


def _in_read(world: World, kill: Callable[[], None]) -> str:
    moment = world.rng.randrange(BATCHES)
    world.application.order(**world.read_job())
    world.until(world.is_leased, "a lease")
    world.change_source()
    world.until(lambda: world.batches() >= moment, f"batch {moment}")
    kill()
    world.check_read(world.application.answer())
    world.check_nothing_left()
    return f"batch {moment}"


def executor_in_write(world: World) -> str:
    """Kill an executor when a number of rows is staged."""
    return _in_write(world, world.kill_executor)


def server_in_write(world: World) -> str:
    """Kill the server when a number of rows is staged, and start it again."""
    return _in_write(world, world.kill_server)


def _in_write(world: World, kill: Callable[[], None]) -> str:
    job = world.write_job()
    world.application.order(**job)
    world.until(world.is_leased, "a lease")
    world.change_source()
    moment = await_moment(world, job)
    kill()
    world.application.answer()
    world.check_target(job["mode"])
    world.check_nothing_left()
    return moment


def await_moment(world: World, job: dict[str, Any]) -> str:
    """Wait until a random number of rows is staged, or all of them; return what it was."""
    rows = world.rng.randrange(0, ROWS + ROWS // 8)
    stages = PARTS if rows > ROWS else 0
    rows = min(rows, ROWS)

    def has_come() -> bool:
        found = world.staged(job)
        return found is not None and found[2] >= rows and found[1] >= stages

    world.until(has_come, f"{rows} rows staged")
    return f"{rows} rows staged" + (", all tasks ended" if stages else "")


def driver_before_commit(world: World) -> str:
    """Kill Spark's driver when rows are staged; its user runs the job again, as one or another."""
    job = world.write_job(lease_s=DEAD_LEASE_S)
    world.application.order(**job)
    world.until(world.is_leased, "a lease")
    world.change_source()
    moment = await_moment(world, job)
    world.kill_application(job)
    if world.position(job) is not None:
        world.check_target(job["mode"])
        raise Missed
    world.check_target(None)
    is_same = world.rng.random() < 0.5
    if not is_same:
        job["options"] = {"jobId": f"{job['options']['jobId']} again"}
    world.play_again(job)
    world.check_target(job["mode"])
    world.check_nothing_left()
    return f"{moment}; again as {'the same' if is_same else 'another'} job"


def driver_after_commit(world: World) -> str:
    """Kill Spark's driver when its job is committed; its user runs it again, for nothing."""
    job = world.write_job(lease_s=DEAD_LEASE_S)
    world.application.order(**job)
    wait_until(lambda: world.position(job) is not None, "a position")
    position = world.position(job)
    moment = "told" if world.application.is_over() else "not told"
    world.kill_application(job)
    world.check_target(job["mode"])
    world.check_committed(job, position)
    world.check_target(job["mode"])
    world.check_nothing_left()
    return f"at {position}, {moment} yet"


def duplicate(world: World) -> str:
    """Stop a task until Spark has begun it once more; one of both, or neither, is stopped on."""
    stalled, after = world.rng.randrange(PARTS), world.rng.randrange(10)
    winner = world.rng.choice(("the first", "the second", "either"))
    job = world.write_job(stalled=stalled, after=after)
    if winner == "the first":
        world.file("hold").touch()
    world.application.order(**job)

    def both_stage() -> bool:
        found = world.staged(job)
        return world.file("attempt 1").exists() and found is not None and found[0] > PARTS

    world.until(both_stage, f"a second attempt of task {stalled}")
    world.change_source()
    if winner != "the second":
        world.file("go").touch()
    world.application.answer()
    world.check_target(job["mode"])
    world.check_nothing_left()
    return f"task {stalled} behind batch {after}, {winner} goes on"
