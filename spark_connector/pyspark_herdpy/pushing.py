"""Filters of Spark's queries in the reads of one DataFrame, without Spark's leak. ADR 33.

Spark keeps what a pushed filter made of a source for every later use of the DataFrame, and asks
no scan when such a use has no filter. So here every use has one: with_pushdown() adds a column,
MARKER, and asks for its NULLs. The first plan decides, in a file on the machine of Spark's driver,
which filters are sent and at which lease; a later one that lacks one of them is refused. So
whichever plan Spark reads by, its rows are enough for all that are not refused, and Spark applies
all filters again. Runs in processes of the planner; read() in tasks.
"""

import datetime
import fcntl
import json
import math
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal, localcontext
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource as spark
from pyspark.sql.types import BinaryType, BooleanType, StructField, StructType, VariantVal

import herdpy
from pyspark_herdpy.catalog import quoted
from pyspark_herdpy.options import Options, wrong
from pyspark_herdpy.reading import HerdReader

if TYPE_CHECKING:
    import pyarrow as pa

MARKER = "herdpy_pushdown"
_MARKED = spark.IsNull((MARKER,))
_VALUES_MAX = 1_000
_DIGITS_MAX = 38
"""Of a DECIMAL; Spark makes Python's of it by a multiplication, which rounds to 28 by itself."""
_FAR = object()
"""A value that Python cannot hold: it is sent nowhere."""
_COMPARISONS: dict[type[spark.Filter], str] = {
    spark.EqualTo: "=",
    spark.EqualNullSafe: "IS NOT DISTINCT FROM",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
}

Condition = tuple[str, list[Any]]
"""SQL and its parameters."""


def with_marker(schema: StructType) -> StructType:
    """Return the schema that with_pushdown() loads."""
    return StructType([*schema.fields, StructField(MARKER, BooleanType())])


class PushReader(HerdReader):
    """Reads what the first plan's filters leave. Picklable."""

    def __init__(self, options: Options, schema: StructType, frame: str) -> None:
        if MARKER not in schema.names:
            raise wrong('option "pushdown" goes without a schema', 'Say "columns" instead.')
        super().__init__(options, StructType([f for f in schema.fields if f.name != MARKER]), frame)
        self._whole = schema.names
        _read_far_values()
        kinds = zip(self._names, schema.fields, strict=False)
        self._pushable = {
            field.name: name for name, field in kinds if field.dataType != BinaryType()
        }
        self._is_marked = False

    def pushFilters(  # noqa: N802 - Spark's name
        self, filters: list[spark.Filter]
    ) -> Iterable[spark.Filter]:
        """Take what the first plan sent; return all: Spark applies them again."""
        if _MARKED not in filters:
            raise _unmarked()
        self._is_marked = True
        own = [
            condition
            for item in filters
            if item != _MARKED and (condition := _condition(item, self._pushable))
        ]
        with _decided(self._options.pushdown or "") as state:
            sent = state.setdefault("sent", [_plain(condition) for condition in own])
        if missing := [text for text in sent if text not in map(_plain, own)]:
            raise wrong(
                "this DataFrame was first read where "
                + " AND ".join(json.loads(text)[0] for text in missing)
                + ", which this query does not ask for",
                "Each query with filters of its own needs its own herdpy.spark.with_pushdown().",
                "55000",
            )
        chosen = [condition for condition in own if _plain(condition) in sent]
        texts = [f"({text})" for text, _ in chosen]
        if self._options.where is not None:
            texts.insert(0, f"({self._options.where}\n)")  # it may end with a comment
        self._where = " AND ".join(texts) or None
        self._parameters = [value for _, values in chosen for value in values]
        return filters

    def partitions(self) -> Sequence[spark.InputPartition]:
        """Cut the table at the lease that the first plan took."""
        if not self._is_marked:
            raise _unmarked()
        with _decided(self._options.pushdown or "") as state:
            snapshot = state.get("lease", self._options.snapshot)
            state["lease"], partitions = self.planned(snapshot)
            return partitions

    def read(self, partition: spark.InputPartition) -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        place = self._whole.index(MARKER)
        for batch in super().read(partition):
            marks = pa.nulls(batch.num_rows, pa.bool_())
            yield batch.add_column(place, MARKER, marks)


def _read_far_values() -> None:
    """Let Spark's process of the planner read filters with dates that Python has none for.

    It turns values into Python's before pushFilters() sees them, and fails the query where one is
    of a year before 1 or behind 9999. Such a filter stays with Spark.
    """
    read = VariantVal.toPython
    if hasattr(read, "__wrapped__"):
        return

    @wraps(read)
    def tolerant(value: VariantVal) -> Any:
        try:
            with localcontext(prec=_DIGITS_MAX):
                return read(value)
        except (OverflowError, ValueError):
            return _FAR

    VariantVal.toPython = tolerant  # type: ignore[method-assign]


def _unmarked() -> herdpy.Error:
    return wrong(
        'option "pushdown" is that of herdpy.spark.with_pushdown(), whose DataFrame was taken apart'
    )


@contextmanager
def _decided(path: str) -> Generator[dict[str, Any]]:
    """Give what the plans of a DataFrame have decided; what is added is kept. One at a time."""
    with Path(path).open("r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed
        text = file.read()
        state: dict[str, Any] = json.loads(text) if text else {}
        yield state
        file.seek(0)
        file.write(json.dumps(state))
        file.truncate()


def _plain(condition: Condition) -> str:
    """Return text that is equal for equal conditions."""
    text, values = condition
    return json.dumps([text, [f"{type(value).__name__} {value!r}" for value in values]])


def _condition(item: spark.Filter, names: dict[str, str]) -> Condition | None:
    """Return a filter in SQL, with just Spark's meaning; None: it is not sent."""
    if isinstance(item, spark.Not):
        inner = _condition(item.child, names)
        return None if inner is None else (f"NOT ({inner[0]})", inner[1])
    attribute: tuple[str, ...] = getattr(item, "attribute", ())
    name = names.get(attribute[0]) if len(attribute) == 1 else None
    if name is None:
        return None
    column = quoted(name)
    if isinstance(item, spark.IsNull):
        return f"{column} IS NULL", []
    if isinstance(item, spark.IsNotNull):
        return f"{column} IS NOT NULL", []
    if isinstance(item, spark.In):
        values: list[Any] = list(item.value) if isinstance(item.value, (list, tuple)) else []
        if not 0 < len(values) <= _VALUES_MAX or not all(map(_is_sent, values)):
            return None
        return f"{column} IN ({', '.join('?' * len(values))})", values
    value: Any = getattr(item, "value", None)
    if type(item) in _COMPARISONS and _is_sent(value):
        return f"{column} {_COMPARISONS[type(item)]} ?", [value]
    if (pattern := _pattern(item)) is not None:
        return f"{column} LIKE ? ESCAPE '!'", [pattern]
    return None


def _pattern(item: spark.Filter) -> str | None:
    value = getattr(item, "value", None)
    if not isinstance(value, str) or not _is_sent(value):
        return None
    for mark in "!%_":
        value = value.replace(mark, "!" + mark)
    if isinstance(item, spark.StringStartsWith):
        return value + "%"
    if isinstance(item, spark.StringEndsWith):
        return "%" + value
    return f"%{value}%" if isinstance(item, spark.StringContains) else None


def _is_sent(value: Any) -> bool:
    """Tell whether a value means for herdpy what it means for Spark."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, str):
        return "\0" not in value  # no text of herdpy has it, not even a parameter
    return isinstance(value, (bool, int, Decimal, datetime.date))
