"""A short `make kill-cluster`, and the demo of a cluster."""

import random
from pathlib import Path

import pytest

from herdpy.cli.demo.cluster_tour import run_cluster_demo
from tests.fixtures.real_cluster import RealCluster
from tests.fixtures.zookeeper import skip_without_zookeeper
from tests.kill_cluster.campaign import Campaign
from tests.kill_cluster.clients import CLIENTS
from tests.kill_cluster.events import EVENTS
from tests.kill_cluster.history import check, read
from tests.kill_cluster.silence import silences

pytestmark = pytest.mark.integration


@pytest.mark.timeout(400)
def test_nothing_acknowledged_is_lost_on_any_copy(tmp_path: Path, seed: int) -> None:
    skip_without_zookeeper()
    others = [each for each in EVENTS if each != "kill leader"]
    names = ("kill leader", random.Random(seed).choice(others))
    file = tmp_path / "history.jsonl"
    with RealCluster(tmp_path / "cluster") as cluster:
        Campaign(cluster, file, len(names), seed, names, lambda line: None).run()
    records = list(read(file))
    verdict = check(records)
    assert verdict.acknowledged > 0
    assert verdict.looks > 0
    assert verdict.states == 3
    assert {kind: len(each) for kind, each in silences(records).items()} == dict.fromkeys(
        names, CLIENTS
    )


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
