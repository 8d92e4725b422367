"""What `herdpy serve` changes in its process, and only as long as it serves."""

import gc

from herdpy.cli.serve import rare_collections


def test_the_collector_is_as_it_was_behind_a_server() -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    with rare_collections():
        assert gc.get_threshold() > before
        assert gc.get_freeze_count() > frozen
        assert gc.isenabled()
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
