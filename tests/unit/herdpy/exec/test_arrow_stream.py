"""Readers of Arrow batches that are made while they are read."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from herdpy.errors import ProgrammingError
from herdpy.exec.vector.arrow_stream import reader_of

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.mark.parametrize("kind", [KeyboardInterrupt, ValueError])
def test_a_reader_that_failed_fails_again_and_does_not_end(kind: type[BaseException]) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array([1])], schema=SCHEMA)
        raise kind

    reader = reader_of(SCHEMA, batches())
    assert reader.read_next_batch().num_rows == 1
    with pytest.raises(kind):
        reader.read_next_batch()
    for read in (reader.read_next_batch, reader.read_all):
        with pytest.raises(ProgrammingError, match="failed") as caught:
            read()
        assert caught.value.sqlstate == "24000"


def test_a_reader_ends_and_stays_at_its_end() -> None:
    reader = reader_of(SCHEMA, iter([pa.record_batch([pa.array([1])], schema=SCHEMA)]))
    assert reader.read_all().num_rows == 1
    for _ in range(2):
        with pytest.raises(StopIteration):
            reader.read_next_batch()
