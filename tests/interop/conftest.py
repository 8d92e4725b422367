"""What the cases share: releases, a cluster on our ZooKeeper, bookies of both kinds."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from bookie.admin.world import Cluster
from bookie.admin.zookeeper_process import ZooKeeperProcess
from tests.fixtures.bookie_processes import OurBookie, new_cluster, our_bookies, registered
from tests.fixtures.zookeeper import zookeeper
from tests.interop import apache
from tests.interop.apache import ApacheBookie, Release, apache_bookies

__all__ = ["zookeeper"]

_roots = count(1)


@pytest.fixture(scope="session", params=["current", "old"])
def release(request: pytest.FixtureRequest) -> Release:
    return apache.require(request.param)


@pytest.fixture(scope="session")
def current() -> Release:
    return apache.require("current")


@dataclass(frozen=True)
class World:
    """A cluster and a configuration for Apache's tools that names it."""

    cluster: Cluster
    folder: Path
    conf: Path


def new_world(zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Make a cluster of its own, by us."""
    folder = tmp_path_factory.mktemp("interop")
    cluster = new_cluster(zookeeper, f"/ledgers-{next(_roots)}")
    conf = folder / "shell.conf"
    conf.write_text(apache.server_conf(cluster.zookeeper, folder / "none", 3181, root=cluster.root))
    return World(cluster, folder, conf)


@pytest.fixture(scope="module")
def world(zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory) -> World:
    """The module's cluster, without bookies."""
    return new_world(zookeeper, tmp_path_factory)


@pytest.fixture
def place(zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A cluster of the test's own, without bookies."""
    return new_world(zookeeper, tmp_path_factory)


@pytest.fixture(scope="module", params=["ours", "apaches", "mixed"])
def each_world(
    request: pytest.FixtureRequest, zookeeper: ZooKeeperProcess, current: Release,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[World]:  # fmt: skip
    """Three bookies: ours, Apache's, or two and one; each time in a cluster of their own.

    Apache's are killed at the end and stay registered for their session's ten seconds: a test that
    creates a ledger in the same cluster meanwhile chooses dead bookies.
    """
    our_count, their_count = {"ours": (3, 0), "apaches": (0, 3), "mixed": (2, 1)}[request.param]
    world = new_world(zookeeper, tmp_path_factory)
    hosts, root = world.cluster.zookeeper, world.cluster.root
    with (
        our_bookies(world.cluster, world.folder, our_count),
        apache_bookies(current, hosts, world.folder, their_count, root=root) as theirs,
    ):
        registered(world.cluster, theirs)
        yield world


@pytest.fixture(scope="module")
def ours(world: World) -> Iterator[list[OurBookie]]:
    """Three of our bookies."""
    with our_bookies(world.cluster, world.folder, 3) as bookies:
        yield bookies


@pytest.fixture(scope="module")
def theirs(world: World, current: Release) -> Iterator[list[ApacheBookie]]:
    """Three of Apache's bookies."""
    hosts, root = world.cluster.zookeeper, world.cluster.root
    with apache_bookies(current, hosts, world.folder, 3, root=root) as bookies:
        registered(world.cluster, bookies)
        yield bookies
