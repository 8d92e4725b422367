"""The seeds of make fuzz-cost: every family is measured over its whole range of lengths."""

from collections import Counter
from itertools import pairwise

import pytest

from herdpy.limits import statement_bytes_max
from tests.fuzz.cost.families import FAMILIES
from tests.fuzz.cost.measured import DECADES, drawn

_PAIRS_MIN = (120, 20, 5, 1)
"""Of each family, of 20,000 seeds, in each decade."""


@pytest.mark.parametrize("first", [1, 30_000])
def test_20_000_seeds_have_every_family_in_every_decade(first: int) -> None:
    found = Counter(
        (about.family, about.decade) for about in map(drawn, range(first, first + 20_000))
    )
    least = tuple(min(found[family, decade] for family in FAMILIES) for decade in range(4))
    assert all(count >= wanted for count, wanted in zip(least, _PAIRS_MIN, strict=True)), least


def test_sizes_are_those_of_their_decade_and_any_of_it() -> None:
    abouts = [drawn(seed) for seed in range(20_000)]
    for decade, (low, high) in enumerate(pairwise(DECADES)):
        sizes = sorted(about.size for about in abouts if about.decade == decade)
        assert low <= sizes[0] < 1.5 * low
        assert high / 2.5 < sizes[-1] < high
    assert {about.unit for about in abouts} == {"calls", "bytes"}
    assert 2 * DECADES[-1] == statement_bytes_max
