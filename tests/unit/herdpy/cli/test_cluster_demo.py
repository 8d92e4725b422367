"""The cluster demo's program: it runs on a directory, and what a copy lacks is seen."""

from pathlib import Path

import pytest

import herdpy
from herdpy.cli.demo.cluster_processes import wait_for
from herdpy.cli.demo.transfers import (
    ACCOUNTS,
    OPENING,
    Found,
    Program,
    complaints,
    longest_gap,
    read_all,
)


def test_the_program_on_a_directory(tmp_path: Path) -> None:
    program = Program(str(tmp_path / "bank"))
    wait_for(lambda: program.has_gone_on(0.0), "commits")
    program.stop()
    program.pool.close()
    with herdpy.connect(tmp_path / "bank") as connection:
        found = read_all(connection)
    assert len(found.transfers) == program.count > 0
    assert program.complaints(found) == []
    assert program.pause_s(0.0) >= 0.0


def balances(**changed: int) -> dict[int, int]:
    return dict.fromkeys(range(ACCOUNTS), OPENING) | {int(k[1:]): v for k, v in changed.items()}


@pytest.mark.parametrize(
    ("acknowledged", "unknown", "found", "said"),
    [
        ([1], [], Found(balances(_0=990, _1=1010), {1: (0, 1, 10)}), []),
        ([], [1], Found(balances(_0=990, _1=1010), {1: (0, 1, 10)}), []),
        ([], [1], Found(balances(), {}), []),
        ([1], [], Found(balances(), {}), ["1 acknowledged transfers are lost"]),
        (
            [],
            [],
            Found(balances(_0=990, _1=1010), {1: (0, 1, 10)}),
            ["1 transfers are there that were not acknowledged"],
        ),
        (
            [1],
            [],
            Found(balances(_0=980, _1=1020), {1: (0, 1, 10)}),
            ["balances are not what the transfers make of them"],
        ),
        (
            [1],
            [],
            Found(balances(_0=990), {1: (0, 1, 10)}),
            [
                "balances are not what the transfers make of them",
                "the total is 19,990, expected 20,000",
            ],
        ),
    ],
)
def test_what_a_copy_lacks_is_seen(
    acknowledged: list[int], unknown: list[int], found: Found, said: list[str]
) -> None:
    assert complaints(acknowledged, unknown, found) == said


def test_a_gap_reaches_from_before_a_moment_to_behind_it() -> None:
    moments = [1.0, 5.0, 6.0, 9.0, 10.0]
    assert longest_gap(moments, 0.0) == 4.0
    assert longest_gap(moments, 5.5) == 3.0
    assert longest_gap(moments, 9.5) == 1.0
    assert longest_gap(moments, 10.0) == 0.0
