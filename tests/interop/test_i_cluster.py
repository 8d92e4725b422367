"""(i) A replicated tablespace of ours, whose log lies on Apache's bookies, under kills.

`make kill-cluster N=20 BOOKIES=apache` is the long one.
"""

from pathlib import Path

import pytest

from tests.fixtures.zookeeper import skip_without_zookeeper
from tests.interop.apache import Release
from tests.interop.apache_cluster import ApacheCluster
from tests.kill_cluster.campaign import prove

pytestmark = pytest.mark.timeout(600)


def test_nothing_acknowledged_is_lost_on_any_copy(
    tmp_path: Path, release: Release, seed: int
) -> None:
    skip_without_zookeeper()
    with ApacheCluster(tmp_path / "cluster", release) as cluster:
        prove(cluster, tmp_path / "history.jsonl", seed, others=2)
