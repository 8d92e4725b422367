"""Arrow batches out of untrusted bytes: checked, in bounded memory, before use.

Little can claim to be much: compressed buffers, dictionaries, views and run ends that show one text
a million times, rows of no bytes at all. What a message becomes is counted from its own words
first: the format's Message.fbs says where they stand. One thread at a time.
"""

import struct
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from herdpy.errors import OperationalError, ProgrammingError, ProtocolError
from herdpy.exec.vector.arrow_columns import pc

BYTES_MAX: Final = 64 * 1024 * 1024
"""Of one batch when nothing in it is compressed, shared or repeated any more."""
ROWS_MAX: Final = 1 << 20
"""Of one batch; a row may have no bytes at all."""
_METADATA_BYTES_MAX: Final = 4 * 1024 * 1024
_CONTAINER_BYTES_MAX: Final = 1024 * 1024
_DICTIONARY_BATCH = 2


def batches_of(data: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an Arrow IPC stream.

    ProtocolError: it is none. OperationalError 54000: one has too many rows or bytes.
    ProgrammingError 42804: a type whose values are no values of SQL. Texts may lack UTF-8: the
    conversion of rows refuses them, and knows which row it is.
    """
    try:
        _check_messages(data)
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            reader.schema.names  # noqa: B018 - names that are no UTF-8 are told here
            for batch in reader:
                batch.validate()
                for column in batch.columns:
                    _as_bytes(column).validate(full=True)
                _check_types(batch)
                _check_size(batch)
                yield batch
    except KeyError as error:  # pyarrow has no class for arrays of some types
        raise ProgrammingError(
            f"a column of the data has Arrow's type number {error}, which is no type of SQL",
            sqlstate="42804",
        ) from None
    except (pa.ArrowException, OSError, ValueError, MemoryError, struct.error) as error:
        text = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise ProtocolError(f"a malformed Arrow stream: {text}") from None


def _as_bytes(array: Any) -> Any:
    kind = array.type
    if pa.types.is_string(kind):
        return array.view(pa.binary())
    if pa.types.is_large_string(kind):
        return array.view(pa.large_binary())
    return array.view(pa.binary_view()) if pa.types.is_string_view(kind) else array


def _check_messages(data: bytes) -> None:
    """Check what the messages say of themselves, before Arrow believes it."""
    reader = pa.ipc.MessageReader.open_stream(pa.py_buffer(data))
    while True:
        try:
            message = reader.read_next_message()
        except StopIteration:
            return
        metadata = message.metadata
        if metadata.size > _METADATA_BYTES_MAX:
            raise ValueError(f"metadata of {metadata.size:,} bytes")
        if message.type in ("record batch", "dictionary"):
            _check_message(_Table.root(memoryview(metadata)), memoryview(message.body or b""))


def _check_message(message: "_Table", body: memoryview) -> None:
    batch = message.table(2)
    if batch is not None and message.byte(1) == _DICTIONARY_BATCH:
        batch = batch.table(1)
    if batch is None:
        raise ValueError("a message without a batch")
    if batch.table(3) is None:  # nothing is compressed
        return
    byte_count = 0
    for start, length in batch.pairs(2):
        if length:
            (uncompressed,) = struct.unpack_from("<q", body, start)
            byte_count += length if uncompressed < 0 else uncompressed
    _check_bytes(byte_count)


class _Table:
    """A table of a flatbuffer: the fields that are looked at. struct.error: they are not there."""

    def __init__(self, data: memoryview, position: int) -> None:
        if position < 0:
            raise ValueError("a negative offset")
        self._data = data
        self._position = position

    @classmethod
    def root(cls, data: memoryview) -> "_Table":
        return cls(data, struct.unpack_from("<I", data)[0])

    def _field(self, number: int) -> int | None:
        """Return where a field stands, None when it is not there."""
        data, position = self._data, self._position
        entries = position - struct.unpack_from("<i", data, position)[0]
        if entries < 0:
            raise ValueError("a negative offset")
        place = 4 + 2 * number
        if place + 2 > struct.unpack_from("<H", data, entries)[0]:
            return None
        (offset,) = struct.unpack_from("<H", data, entries + place)
        return position + offset if offset else None

    def byte(self, number: int) -> int:
        place = self._field(number)
        return 0 if place is None else self._data[place]

    def table(self, number: int) -> "_Table | None":
        place = self._field(number)
        if place is None:
            return None
        return _Table(self._data, place + struct.unpack_from("<I", self._data, place)[0])

    def pairs(self, number: int) -> Iterator[tuple[int, int]]:
        """Yield the structs of a vector, each of two numbers of 64 bits."""
        place = self._field(number)
        if place is None:
            return
        start = place + struct.unpack_from("<I", self._data, place)[0]
        (count,) = struct.unpack_from("<I", self._data, start)
        for index in range(count):
            first, second = struct.unpack_from("<qq", self._data, start + 4 + 16 * index)
            if first < 0 or second < 0:
                raise ValueError("a negative offset or length")
            yield first, second


def _check_types(batch: pa.RecordBatch) -> None:
    """Refuse containers, which are no values, unless they are small: then a row's error says so."""
    for field, array in zip(batch.schema, batch.columns, strict=True):
        kind: Any = field.type
        while isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
            kind = kind.value_type
            is_fine = not (pa.types.is_nested(kind) or is_shared(kind))
        else:
            is_fine = not pa.types.is_nested(kind) or (
                pa.types.is_list(kind)
                and pa.types.is_primitive(kind.value_type)
                and array.nbytes <= _CONTAINER_BYTES_MAX
            )
        if not is_fine:
            raise ProgrammingError(
                f'column "{field.name}" of the data: {field.type} is no type of SQL',
                sqlstate="42804",
            )


def _check_size(batch: pa.RecordBatch) -> None:
    if batch.num_rows > ROWS_MAX:
        raise OperationalError(
            f"an Arrow batch of {batch.num_rows:,} rows: expected at most {ROWS_MAX:,}",
            sqlstate="54000",
            hint="send smaller batches",
        )
    _check_bytes(plain_bytes(batch))


def _check_bytes(byte_count: int) -> None:
    if byte_count > BYTES_MAX:
        raise OperationalError(
            f"an Arrow batch that holds {byte_count:,} bytes: expected at most {BYTES_MAX:,}",
            sqlstate="54000",
            hint="send smaller batches",
        )


def plain_bytes(batch: pa.RecordBatch) -> int:
    """Return how many bytes the values of a batch take when each stands for itself."""
    return sum(map(_plain_bytes, batch.columns))


def is_shared(kind: pa.DataType) -> bool:
    """Tell whether several values of an array of this type may be the same bytes."""
    return (
        pa.types.is_dictionary(kind)
        or pa.types.is_run_end_encoded(kind)
        or _is_view(kind)
        or isinstance(kind, pa.BaseExtensionType)
    )


def _plain_bytes(array: Any) -> int:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    kind = array.type
    if pa.types.is_dictionary(kind):
        lengths = _lengths(array.dictionary)
        if lengths is None:
            return len(array) * _width(kind.value_type)
        return pc.sum(lengths.take(array.indices)).as_py() or 0
    if pa.types.is_run_end_encoded(kind):
        lengths = _lengths(array.values)
        longest = 0 if lengths is None else pc.max(lengths).as_py() or 0
        return len(array) * max(_width(kind.value_type), longest)
    if _is_view(kind):
        return pc.sum(_lengths(array)).as_py() or 0
    return array.nbytes


def _is_view(kind: pa.DataType) -> bool:
    return pa.types.is_string_view(kind) or pa.types.is_binary_view(kind)


def _lengths(array: Any) -> Any:
    """Return the lengths of texts or bytes, None of other values."""
    if _is_view(array.type):
        # The first of the four words of a view; a cast would copy what is shared.
        words = memoryview(array.buffers()[1]).cast("i")
        lengths = words[4 * array.offset : 4 * (array.offset + len(array)) : 4].tolist()
        return pa.array(lengths, pa.int64())
    try:
        return pc.binary_length(array).cast(pa.int64())
    except pa.ArrowNotImplementedError:
        return None


def _width(kind: Any) -> int:
    try:
        return max(1, kind.bit_width // 8)
    except ValueError:
        return 1
