"""The promises of tests/big, on a table that a hurried test run can build."""

from pathlib import Path

import pytest

from tests.fixtures import big

ROWS = 200_000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("big")
    big.build(made, ROWS)
    return made


def test_fetchone_costs_little_memory(path: Path) -> None:
    print(big.check_fetchone(path, ROWS))


def test_a_hundred_changed_rows_are_few_bytes(path: Path, seed: int) -> None:
    print(big.check_small_checkpoint(path, ROWS, seed))


def test_opening_reads_no_page(path: Path) -> None:
    big.check_open_reads_no_page(path)
