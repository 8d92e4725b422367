"""A short `make kill-cluster`, and the demo of a cluster."""

from pathlib import Path

import pytest

from herdpy.cli.demo.cluster_tour import run_cluster_demo
from tests.fixtures.real_cluster import RealCluster
from tests.fixtures.zookeeper import skip_without_zookeeper
from tests.kill_cluster.campaign import prove

pytestmark = pytest.mark.integration


@pytest.mark.timeout(400)
def test_nothing_acknowledged_is_lost_on_any_copy(tmp_path: Path, seed: int) -> None:
    skip_without_zookeeper()
    with RealCluster(tmp_path / "cluster") as cluster:
        prove(cluster, tmp_path / "history.jsonl", seed)


@pytest.mark.long
@pytest.mark.timeout(400)
def test_the_demo_of_a_cluster(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without_zookeeper()
    monkeypatch.setenv("COLUMNS", "100")  # pytest-xdist sets another
    assert run_cluster_demo() == 0
    shown = capsys.readouterr().out
    assert 'dsn = "./bank"' in shown
    assert 'dsn = "herd+zk://' in shown
    assert shown.count("✓ goes on after") == 3
    assert "0 lost, 0 half, 0 twice" in shown
    assert "3 equal copies" in shown
    assert max(map(len, shown.splitlines())) <= 100
