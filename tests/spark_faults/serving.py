"""What Spark's jobs read from and write to: one server on a directory, or a cluster's leader."""

import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.fixtures.real_cluster import RealCluster
from tests.fixtures.served import served

STAGING_TIMEOUT_S = 90
_SETTING = f"database.staging_timeout_s={STAGING_TIMEOUT_S}"
_RETRY = "retry_timeout_s=60"


class Serving(NamedTuple):
    """See the module."""

    url: str
    kill: Callable[[], object]
    """End by SIGKILL what serves; what is to serve does so, or soon, when the call returns."""


@contextmanager
def on_directory(folder: Path) -> Generator[Serving]:
    """Give a server; killed, it is started again on its directory."""
    with served(folder / "data", (_SETTING,)) as server:

        def kill() -> None:
            server.stop(signal.SIGKILL)
            server.start()

        yield Serving(server.url, kill)


@contextmanager
def on_cluster(folder: Path) -> Generator[Serving]:
    """Give ZooKeeper, three bookies and three nodes; killed is the leader, another one takes over.

    The killed node follows again when the call returns, so that the next one may be killed.
    """
    with RealCluster(folder / "cluster", "--set", _SETTING) as cluster:

        def kill() -> None:
            leader = cluster.leader()
            cluster.kill(leader.node)
            cluster.leader(not_under=leader.epoch)
            cluster.start(leader.node)
            cluster.wait_ready(leader.node)

        yield Serving(f"{cluster.dsn}?{_RETRY}", kill)


PLACES = {"server": on_directory, "cluster": on_cluster}
