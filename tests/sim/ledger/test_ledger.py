"""The simulated lives of a ledger: a few new seeds, every seed that once failed, its own rules."""

import pytest

from tests.fixtures.executed_modules import executed_modules
from tests.fixtures.plants import planted
from tests.fixtures.simulated_seeds import check_same_trace, mended_seeds
from tests.sim.ledger.__main__ import expected_modules
from tests.sim.ledger.plants import PLANTS
from tests.sim.ledger.run_seed import run_seed

_FEW = 12


@pytest.mark.sample
@pytest.mark.parametrize("number", range(_FEW))
def test_a_few_lives(seed: int, number: int) -> None:
    run_seed(1_000_000 + seed % 1_000_000 * _FEW + number)


@pytest.mark.parametrize("number", mended_seeds("ledger"))
def test_seeds_that_once_failed(number: int) -> None:
    run_seed(number)


def test_same_seed_same_trace_also_with_another_hash_seed() -> None:
    check_same_trace("ledger", (3, 4))


@pytest.mark.parametrize("name", PLANTS)
def test_every_plant_still_has_its_target(name: str) -> None:
    with planted(PLANTS, name):
        pass


NEVER_SIMULATED = {
    "client/blocking.py",  # a thread around the client
    "client/record_batch.py",  # what applications put into entries, as the next one
    "client/record_frames.py",
    "ledger/record_frame.py",
    "metadata/acl_walk.py",  # of commands
    "metadata/kazoo_client.py",
    "metadata/task_locks.py",  # of recovery and collection, which tests/sim/recovery simulates
    "metadata/workers.py",  # as these
    "metadata/zookeeper_login.py",  # of the store that is replaced
    "metadata/zookeeper.py",  # the metadata store is one of those that are replaced
    "server/wire/client_access.py",  # certificates' rights, as server/tls.py
    "server/wire/message_header.py",  # looks at first messages beyond 1 MiB, which no life sends
    "ledger/at_risk.py",  # for drains, which tests/sim/recovery simulates
    "server/health.py",  # HTTP
    "server/storage/scrubber.py",  # which tests/sim/storage simulates
    "server/storage/lmdb_index.py",  # the index is one of those that are replaced
    "server/storage/lmdb_length.py",  # of an LMDB file, as lmdb_index.py
    "server/storage/bad_entries.py",  # of the scrub, as scrubber.py
    "server/tls.py",
}


def test_the_simulation_runs_every_other_module_of_the_ledger_store() -> None:
    wanted = set(expected_modules()) - NEVER_SIMULATED
    found: set[str] = set()
    for number in range(1, 150):
        with executed_modules(found):
            run_seed(number)
        if found >= wanted:
            break
    assert sorted(wanted - found) == []
