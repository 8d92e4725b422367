"""Whole columns of a table as batches: several pages in one step, and no more than fit."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from herdpy.exec.vector.arrow_scan import scan_reader
from herdpy.model.types import BIGINT, TEXT

PAGES = 24
ROWS = 64
LONG = 100_000
COLUMNS = (("id", BIGINT), ("s", TEXT))


class Source:
    """Pages of one text each, which lies in them once; every second row of some is dead."""

    def __init__(self, length: int) -> None:
        self._length = length

    def arrow(
        self, ordinals: Sequence[int], prune: Sequence[Any], summed: Sequence[int] = ()
    ) -> pa.Table:
        texts = [
            pa.DictionaryArray.from_arrays(
                pa.array([0] * ROWS, pa.int32()), pa.array([str(page % 10) * self._length])
            )
            for page in range(PAGES)
        ]
        ids = [pa.array(range(page * ROWS, (page + 1) * ROWS)) for page in range(PAGES)]
        live = [
            pa.array([page % 3 != 1 or row % 2 == 0 for row in range(ROWS)])
            for page in range(PAGES)
        ]
        columns = [pa.chunked_array(each) for each in (ids, texts, live)]
        return pa.Table.from_arrays(columns, names=["c0", "c1", "__live"])


class Count:
    """Counts how often a statement could have been interrupted."""

    checks = 0

    def check(self) -> None:
        self.checks += 1


def test_pages_are_made_together_as_far_as_they_are_small() -> None:
    source: Any = Source(10)
    count: Any = Count()
    table = scan_reader(source, (0, 1), COLUMNS, count, 50).read_all()
    assert count.checks < PAGES
    ids: list[Any] = table["id"].to_pylist()
    assert ids == [
        page * ROWS + row
        for page in range(PAGES)
        for row in range(ROWS)
        if page % 3 != 1 or row % 2 == 0
    ]
    assert table["s"].to_pylist() == [str(number // ROWS % 10) * 10 for number in ids]


def test_texts_of_a_dictionary_are_made_long_for_few_pages_at_a_time() -> None:
    source: Any = Source(LONG)
    count: Any = Count()
    reader = scan_reader(source, (0, 1), COLUMNS, count, 1_000)
    before = pa.total_allocated_bytes()
    most = rows = 0
    for batch in reader:
        rows += batch.num_rows
        most = max(most, pa.total_allocated_bytes() - before)
    assert rows == PAGES * ROWS - PAGES // 3 * ROWS // 2
    assert most < 4 * ROWS * LONG
