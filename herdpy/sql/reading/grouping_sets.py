"""GROUPING SETS, ROLLUP and CUBE as the sets of keys that they stand for."""

from collections.abc import Sequence
from itertools import combinations

from herdpy.limits import grouping_sets_max
from herdpy.sql.reading import syntax

Keys = list[syntax.Node]


def sets_of(item: syntax.GroupingSets | Keys) -> Sequence[Keys]:
    """Return the sets of an item of GROUP BY; of many only one more than there may be."""
    if not isinstance(item, syntax.GroupingSets):
        return [item]
    if item.kind == "SETS":
        found: list[Keys] = []
        for part in item.items:
            found += sets_of(part)
            if len(found) > grouping_sets_max:
                break
        return found[: grouping_sets_max + 1]
    parts = [part for part in item.items if not isinstance(part, syntax.GroupingSets)]
    if item.kind == "ROLLUP":
        counts = range(len(parts), -1, -1)[: grouping_sets_max + 1]
        return [_together(parts[:count]) for count in counts]
    sets: list[Keys] = []
    for count in range(len(parts), -1, -1):
        for chosen in combinations(parts, count):
            sets.append(_together(chosen))
            if len(sets) > grouping_sets_max:
                return sets
    return sets


def _together(parts: Sequence[Keys]) -> Keys:
    return [key for part in parts for key in part]
