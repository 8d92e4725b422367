"""A sample of what `make damage` does at length, and the planted faults that it finds soon."""

import pytest

from tests.damage.__main__ import run_chunk
from tests.damage.plants import PLANTS
from tests.damage.run_seed import ALL_KINDS, Outcome, run_seed

_PLANT_RUNS = 1000
# The others need a certain file to be damaged in one way after a certain life: one seed in some
# hundred. `--plant all` looks for them.
SOON = ("id and offset of a page unchecked", "folders made before anything is read")


def test_damaged_directories_answer_right_or_name_the_damage() -> None:
    chunk = run_chunk(1, 2 * len(ALL_KINDS))
    assert chunk.findings == {}
    assert {outcome.kind for outcome in chunk.outcomes} == set(ALL_KINDS)


@pytest.mark.parametrize("seed", [41002446, 41004233])
def test_rows_of_stages_that_were_published_since_are_missing_by_name(seed: int) -> None:
    run_seed(seed, lambda _: None)


def test_a_manifest_of_a_copy_is_found_by_one_frame_of_the_newest_log_file() -> None:
    assert run_seed(41003186) == Outcome("of another database", "refused")


def test_a_seed_repeats_itself() -> None:
    first: list[str] = []
    second: list[str] = []
    for seed in range(30, 40):
        assert run_seed(seed, first.append) == run_seed(seed, second.append)
    assert first == second


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SOON)
def test_a_planted_fault_is_found(name: str) -> None:
    assert name in PLANTS
    assert run_chunk(1, _PLANT_RUNS, name).findings
