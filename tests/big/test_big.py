"""Ten million rows: what must not grow with a table. `make big` builds the directory once."""

from pathlib import Path

import pytest

from tests.fixtures import big

ROWS = 10_000_000
pytestmark = [pytest.mark.big, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def path() -> Path:
    made = Path("build") / "big"
    big.build(made, ROWS)
    return made


def test_fetchone_costs_little_memory(path: Path) -> None:
    print(big.check_fetchone(path, ROWS))


def test_a_hundred_changed_rows_are_few_bytes(path: Path, seed: int) -> None:
    print(big.check_small_checkpoint(path, ROWS, seed))


def test_opening_reads_no_page(path: Path) -> None:
    big.check_open_reads_no_page(path)
