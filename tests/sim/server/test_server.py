"""The simulated lives of a server: a few new seeds, every seed that once failed, its own rules."""

import pytest

from tests.fixtures.executed_modules import executed_modules
from tests.fixtures.plants import planted
from tests.fixtures.shared_plans import own_plans
from tests.fixtures.simulated_seeds import check_same_trace, mended_seeds
from tests.sim.server.__main__ import expected_modules
from tests.sim.server.plants import PLANTS
from tests.sim.server.run_seed import run_seed

_FEW = 12


@pytest.mark.sample
@pytest.mark.parametrize("number", range(_FEW))
def test_a_few_lives(seed: int, number: int) -> None:
    run_seed(1_000_000 + seed % 1_000_000 * _FEW + number)


@pytest.mark.parametrize("number", mended_seeds("server"))
def test_seeds_that_once_failed(number: int) -> None:
    run_seed(number)


def test_same_seed_same_trace_also_with_another_hash_seed() -> None:
    check_same_trace("server", (12, 34, 72))


@pytest.mark.parametrize("name", PLANTS)
def test_every_plant_still_has_its_target(name: str) -> None:
    with planted(PLANTS, name):
        pass


_GRPC = (
    "server/grpc/",
    "driver/grpc_stream.py",
    "driver/remote/grpc_target.py",
    "proto/grpc_codes",
)
NEVER_SIMULATED = {
    "engine/cluster_view.py",  # system tables, which no life reads
    "server/requests/part_check.py",  # of a cluster's nodes: tests/sim/cluster
    "aio/handles.py",  # leases, stages and pipelines awaited: around the blocking ones
    "driver/abandoned_claims.py",  # what the collector finds
    "driver/all_dumps.py",  # of all tablespaces, as the next one
    "driver/backup_sets.py",
    "driver/box.py",  # prints results
    "driver/defaults.py",  # for programs that build rows
    "driver/doctor.py",  # of directories, as the six below
    "driver/exports.py",
    "driver/local.py",  # databases in the process
    "driver/remote/leaders.py",  # of clusters, as the next two: tests/sim/cluster
    "driver/remote/locators.py",
    "driver/remote/silences.py",
    "driver/restoring.py",
    "engine/maintenance/backup.py",
    "engine/maintenance/doctor.py",
    "engine/maintenance/dump.py",
    "engine/maintenance/restore.py",
    "engine/maintenance/salvage.py",
    "engine/access/passwords.py",  # the simulated server has no users, nor have the eight below
    "engine/access/roles.py",
    "engine/access/rows.py",
    "engine/access/text.py",
    "engine/access/view_text.py",  # of dumps and system tables
    "engine/statements/returned_rows.py",  # of RETURNING, which no life asks for
    "model/reals.py",  # of REAL, which no table of a life has
    "sql/reading/char_templates.py",  # of queries that no life asks, as the next two
    "sql/reading/grouping_sets.py",
    "sql/reading/recursion.py",
    "sql/sequences/text.py",  # of dumps
    "proto/scram.py",
    "server/listening.py",  # of processes, as the next one
    "server/login/audit_file.py",
    "server/login/certificates.py",
    "server/login/handshake.py",
    "server/login/login_tokens.py",
    "server/login/tls.py",
    "server/closed_connection.py",  # of nodes, as the next one
    "server/shared_port.py",
    "model/tablespace_limits.py",  # of ALTER TABLESPACE
    "engine/state/ranges.py",  # of iterators over many pages
    "engine/state/system_tables.py",  # constants, as the four below
    "model/durability.py",
    "model/intervals.py",
    "sql/text.py",
    "sql/value_sizes.py",
    "engine/statements/explain.py",
    "engine/statements/partitions.py",  # reads for Spark
    "engine/stats.py",
    "engine/cluster_rows.py",  # of system tables, as the next one
    "engine/tablespace_rows.py",
    "engine/writes/batch.py",  # executemany on the general path
    "exec/vector/arrow_scan.py",  # DuckDB has a thread of its own
    "exec/vector/wide_texts.py",  # of texts beyond what a life writes
    "log/followed_log.py",  # a life's log is of files, and followed by no copy, as the next one
    "log/ledger_log.py",
    "log/record_text.py",  # of commands
    "proto/typed_session.py",  # of gRPC, as the one below
    "proto/typed_values.py",
    "server/operations/health.py",  # HTTP
    "server/operations/node_metrics.py",  # of what a cluster's nodes count
    "sql/characteristics.py",  # of SET SESSION CHARACTERISTICS
    "sql/functions.py",
    "sql/reading/refusals.py",
    "sql/reading/script.py",
    "storage/backup_file.py",
    "storage/backup_set.py",
    "storage/read_only.py",
    "storage/verify.py",
}


def test_the_simulation_runs_every_other_module_of_the_server() -> None:
    everything = {name for name in expected_modules() if not name.startswith(_GRPC)}
    assert sorted(NEVER_SIMULATED - everything) == []
    wanted = everything - NEVER_SIMULATED
    found: set[str] = set()
    with own_plans():  # else none is made
        for number in range(1, 150):
            with executed_modules(found, "herdpy"):
                run_seed(number)
            if found >= wanted:
                break
    assert sorted(wanted - found) == []
