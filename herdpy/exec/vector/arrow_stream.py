"""Arrow batches as bytes, in pieces, and back: each piece is an IPC stream of its own."""

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from herdpy.errors import ProgrammingError

LEAD_BYTES = 64
"""What next_stream() leaves free before a stream; Arrow's own alignment."""
_ALIGNMENT = 8

BytesLike = bytes | memoryview


class _Batches:
    """An iterator that fails again after it has failed: what is missing is not the end.

    A generator that was interrupted ends.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._is_broken = False

    def __iter__(self) -> "_Batches":
        return self

    def __next__(self) -> pa.RecordBatch:
        if self._is_broken:
            raise ProgrammingError(
                "there are no more rows to read: an earlier read of this result failed",
                sqlstate="24000",
                hint="execute the statement again",
            )
        self._is_broken = True
        try:
            batch = next(self._batches)
        except StopIteration:
            self._is_broken = False
            raise
        self._is_broken = False
        return batch


def reader_of(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader:
    """Return a reader of batches as they are made; one that failed once fails again (24000)."""
    return pa.RecordBatchReader.from_batches(schema, _Batches(batches))


def next_stream(
    schema: pa.Schema, batches: Iterator[pa.RecordBatch], bytes_min: int
) -> tuple[memoryview, bool]:
    """Return the next batches, of at least so many bytes if there are, and whether they are all.

    LEAD_BYTES that may be written come first, then the stream. The schema is in every piece, so a
    piece without rows is a whole stream, too. The batches are copied once.
    """
    taken: list[pa.RecordBatch] = []
    byte_count = 0
    is_last = False
    while byte_count < bytes_min:
        try:
            taken.append(next(batches))
        except StopIteration:
            is_last = True
            break
        byte_count += _sent_bytes(taken[-1])
    # One call for all batches: of pages there are many, and each call takes its time.
    table = pa.Table.from_batches(taken, schema)
    measured = pa.MockOutputStream()
    _write(measured, table)
    buffer = pa.allocate_buffer(LEAD_BYTES + measured.size())
    sink = pa.FixedSizeBufferWriter(buffer)
    sink.write(bytes(LEAD_BYTES))
    _write(sink, table)
    return memoryview(buffer).cast("B"), is_last


def _write(sink: pa.NativeFile, table: pa.Table) -> None:
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def cut(batches: Iterable[pa.RecordBatch], bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Yield rows of results in batches of at most so many bytes, about, or of one row."""
    for batch in batches:
        if _sent_bytes(batch) <= bytes_max:
            yield batch
        else:
            yield from halved(batch, bytes_max)


def _sent_bytes(batch: pa.RecordBatch) -> int:
    """Return the bytes of a batch in a stream, which is known sooner than its nbytes."""
    return pa.ipc.get_record_batch_size(batch)


def halved(batch: pa.RecordBatch, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Yield a batch, cut in halves until each has at most so many bytes, or one row."""
    if batch.nbytes <= bytes_max or batch.num_rows < 2:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from halved(batch.slice(0, middle), bytes_max)
    yield from halved(batch.slice(middle), bytes_max)


def stream_memory(byte_count: int) -> memoryview:
    """Return memory to receive a piece in, aligned: Arrow gives again what was let go before.

    The pages of memory that the system has never given take longer than the bytes to come.
    """
    return memoryview(pa.allocate_buffer(byte_count)).cast("B")


def stream_reader(next_piece: Callable[[], BytesLike | None]) -> pa.RecordBatchReader:
    """Return a reader over pieces; the first is asked for at once, None is behind the last."""
    first = next_piece()
    if first is None:
        raise ValueError("a result of no piece has no schema")
    opened = pa.ipc.open_stream(_aligned(first))

    def batches() -> Iterator[pa.RecordBatch]:
        yield from opened
        while (piece := next_piece()) is not None:
            yield from pa.ipc.open_stream(_aligned(piece))

    return reader_of(opened.schema, batches())


def _aligned(piece: BytesLike) -> pa.Buffer:
    """Return the bytes where their numbers are aligned: some readers of Arrow take no others."""
    buffer = pa.py_buffer(piece)
    return buffer if buffer.address % _ALIGNMENT == 0 else pa.py_buffer(bytes(piece))
