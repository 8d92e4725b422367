"""What is done to a cluster; each function does it, and returns when all is as before.

A process that is killed is started again when what its death causes has happened, one that hangs
goes on after more than a session. `begin` is when the first signal was sent.
"""

import random
import time
from collections.abc import Callable
from typing import NamedTuple

from tests.fixtures.real_cluster import RunningCluster

SESSION_S = 2.0
_OVER_S = 1.5
"""For which what hangs, or is away, does so beyond a session."""
_SHORT_S = 0.3
"""That ZooKeeper is away, beside the time in which it starts."""


class Done(NamedTuple):
    begin: float
    names: list[str]
    """Of the processes."""


def kill_leader(cluster: RunningCluster, rng: random.Random) -> Done:
    leader = cluster.leader()
    begin = time.monotonic()
    cluster.kill(leader.node)
    cluster.leader(not_under=leader.epoch)
    _start(cluster, leader.node)
    return Done(begin, [leader.node])


def kill_leader_and_bookie(cluster: RunningCluster, rng: random.Random) -> Done:
    leader = cluster.leader()
    names = [leader.node, _bookie(cluster, rng)]
    begin = time.monotonic()
    for name in rng.sample(names, 2):
        cluster.kill(name)
    cluster.leader(not_under=leader.epoch)
    _start(cluster, *names)
    return Done(begin, names)


def hang_leader(cluster: RunningCluster, rng: random.Random) -> Done:
    leader = cluster.leader()
    begin = time.monotonic()
    cluster.hang(leader.node)
    cluster.leader(not_under=leader.epoch)
    time.sleep(_OVER_S * rng.random())
    cluster.go_on(leader.node)
    return Done(begin, [leader.node])


def hang_leader_and_bookie(cluster: RunningCluster, rng: random.Random) -> Done:
    leader = cluster.leader()
    names = [leader.node, _bookie(cluster, rng)]
    begin = time.monotonic()
    for name in names:
        cluster.hang(name)
    cluster.leader(not_under=leader.epoch)
    time.sleep(_OVER_S * rng.random())
    for name in rng.sample(names, 2):
        cluster.go_on(name)
    return Done(begin, names)


def terminate_leader(cluster: RunningCluster, rng: random.Random) -> Done:
    leader = cluster.leader()
    begin = time.monotonic()
    cluster.terminate(leader.node)
    cluster.leader(not_under=leader.epoch)
    _start(cluster, leader.node)
    return Done(begin, [leader.node])


def kill_follower(cluster: RunningCluster, rng: random.Random) -> Done:
    return _kill(cluster, rng, _follower(cluster, rng))


def hang_follower(cluster: RunningCluster, rng: random.Random) -> Done:
    return _hang(cluster, rng, _follower(cluster, rng))


def kill_bookie(cluster: RunningCluster, rng: random.Random) -> Done:
    return _kill(cluster, rng, _bookie(cluster, rng))


def hang_bookie(cluster: RunningCluster, rng: random.Random) -> Done:
    return _hang(cluster, rng, _bookie(cluster, rng))


def zookeeper_for_a_moment(cluster: RunningCluster, rng: random.Random) -> Done:
    return _restart_zookeeper(cluster, _SHORT_S * rng.random())


def zookeeper_beyond_a_session(cluster: RunningCluster, rng: random.Random) -> Done:
    return _restart_zookeeper(cluster, SESSION_S + _OVER_S * rng.random())


EVENTS: dict[str, Callable[[RunningCluster, random.Random], Done]] = {
    "kill leader": kill_leader,
    "kill leader+bookie": kill_leader_and_bookie,
    "kill follower": kill_follower,
    "kill bookie": kill_bookie,
    "hang leader": hang_leader,
    "hang leader+bookie": hang_leader_and_bookie,
    "hang follower": hang_follower,
    "hang bookie": hang_bookie,
    "terminate leader": terminate_leader,
    "zookeeper, short": zookeeper_for_a_moment,
    "zookeeper, long": zookeeper_beyond_a_session,
}


def kind_of(number: int, seed: int, names: tuple[str, ...]) -> str:
    """Return which event is the number-th; each block of them has all, in an order of its own."""
    block, place = divmod(number, len(names))
    return random.Random(f"{seed} block {block}").sample(names, len(names))[place]


def _kill(cluster: RunningCluster, rng: random.Random, name: str) -> Done:
    begin = time.monotonic()
    cluster.kill(name)
    time.sleep((SESSION_S + _OVER_S) * rng.random())
    _start(cluster, name)
    return Done(begin, [name])


def _hang(cluster: RunningCluster, rng: random.Random, name: str) -> Done:
    begin = time.monotonic()
    cluster.hang(name)
    time.sleep(SESSION_S + _OVER_S * rng.random())
    cluster.go_on(name)
    return Done(begin, [name])


def _restart_zookeeper(cluster: RunningCluster, away_s: float) -> Done:
    begin = time.monotonic()
    cluster.kill("zookeeper")
    time.sleep(away_s)
    _start(cluster, "zookeeper")
    return Done(begin, ["zookeeper"])


def _start(cluster: RunningCluster, *names: str) -> None:
    for name in names:
        cluster.start(name)
    for name in names:
        cluster.wait_ready(name)


def _follower(cluster: RunningCluster, rng: random.Random) -> str:
    leader = cluster.leader().node
    return rng.choice([each.name for each in cluster.of_kind("node") if each.name != leader])


def _bookie(cluster: RunningCluster, rng: random.Random) -> str:
    return rng.choice(cluster.of_kind("bookie")).name
