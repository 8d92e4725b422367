"""What `herdpy serve` changes in its process, and only as long as it serves."""

import gc
import sys

import pytest

from herdpy.cli.serve import frequent_switches, rare_collections


def test_the_collector_is_as_it_was_behind_a_server() -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    with rare_collections():
        assert gc.get_threshold() > before
        assert gc.get_freeze_count() > frozen
        assert gc.isenabled()
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_threads_switch_sooner_for_as_long_as_it_serves() -> None:
    before = sys.getswitchinterval()
    with frequent_switches(1e-5):
        assert sys.getswitchinterval() == pytest.approx(1e-5)
    assert sys.getswitchinterval() == before
