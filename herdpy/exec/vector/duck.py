"""VectorEngine: printed queries run by DuckDB over Arrow tables of one snapshot; results stream.

One in-memory database for the whole engine, locked down before the first query: no files, no
network, no extensions, no access to Python variables, PostgreSQL's settings for all, then no more
settings. A query gets a cursor of its own, and in it its own tables: a cursor is one snapshot, used
by one thread at a time. A database that an error of DuckDB's own has made unusable is left to those
whose queries it runs, and the next query gets another one. This module is imported on first use,
and with it duckdb and pyarrow.
"""

import itertools
import logging
import re
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import duckdb
import pyarrow as pa

from bookie.runtime.drivers import new_mutex
from herdpy.errors import (
    DataError,
    DiskFullError,
    Error,
    InterfaceError,
    InternalError,
    MemoryLimitError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    QueryCanceledError,
    Retry,
    descriptors_error,
)
from herdpy.exec.coerce import check_row_count, output_converter
from herdpy.exec.interfaces import NO_NEGATIVE_ZEROS, ColumnRange, Interrupt, Snapshot
from herdpy.exec.vector.arrow_rows import (
    arrow_schema,
    logical_rows,
    physical_rows,
    with_schema,
)
from herdpy.exec.vector.arrow_stream import reader_of
from herdpy.exec.vector.vector_room import batch_rows, register
from herdpy.exec.vector.wide_texts import in_short_batches, longest_of, longest_text
from herdpy.limits import parameter_bytes_max, value_bytes_max
from herdpy.model.python_values import shortened
from herdpy.model.types import TIMESTAMP, Kind, Physical, SqlType
from herdpy.sql.duckdb_text import Deferred, DuckTable, DuckText
from herdpy.sql.macros import MACROS, macros_of
from herdpy.sql.tree import Expression, Literal, Parameter

_log = logging.getLogger(__name__)
_SEVERAL_ROWS = "more than one row returned by a subquery used as an expression"
_SIGNAL_TEXT = "Query interrupted"
_SIGNAL_IN_CALLBACK = re.compile(
    r"Invalid Input Error: (?:(?:counting|exporting|offering|reading) [^\n:]* failed|"
    r"Python exception occurred while executing the UDF): KeyboardInterrupt\b"
)
_IN_CALLBACK = "Python exception occurred while executing the UDF: ValueError: "
_VALUES_AT_ONCE = 131_072  # made of Arrow between two looks at the interrupt: 20 ms
_CONSTANTS_AT_ONCE = 16_384
_USAGE = (
    "SELECT coalesce(sum(memory_usage_bytes), 0), coalesce(sum(temporary_storage_bytes), 0) "
    "FROM duckdb_memory()"
)

# In this order: no folder can be set once external access is off, nothing once locked. GLOBAL, as
# a cursor does not inherit what a plain SET changed.
_SETTINGS = (
    "python_enable_replacements = false",
    "autoinstall_known_extensions = false",
    "autoload_known_extensions = false",
    "allow_community_extensions = false",
    "integer_division = true",
    "error_on_division_by_zero = true",
    "scalar_subquery_error_on_multiple_rows = true",
    "default_null_order = 'nulls_last_on_asc_first_on_desc'",
    "max_expression_depth = 1100",  # room for limits.statement_chain_max operators in a function
    "TimeZone = 'UTC'",
    "enable_external_access = false",
    "lock_configuration = true",
)


Aside = Callable[[Callable[[], Any], Callable[[], object]], Any]


def _run_here(call: Callable[[], Any], _stop: Callable[[], object]) -> Any:
    return call()


class VectorEngine:
    """DuckDB for one database. Any thread may call query(); close() ends it for all."""

    def __init__(
        self,
        memory_bytes: int,
        threads: int,
        temp_directory: str | None,
        *,
        results_max: int = 32,
        spill_bytes_max: int | None = None,
        run_aside: Aside = _run_here,
        on_refused: Callable[[str], object] = lambda _limit: None,
    ) -> None:
        """Spilling goes to temp_directory, None forbids it; threads = 0 means cores - 1.

        spill_bytes_max: over it a query fails with 53200; None: DuckDB's own bound, a share of
        the disk. run_aside(call, stop) runs what hears no signals, however long it takes.
        on_refused is told which limit a query went beyond: vector_bytes_max, or that of spilling.
        """
        self._spill_bytes_max = spill_bytes_max
        self._run_aside = run_aside
        self._on_refused = on_refused
        self._memory_bytes = memory_bytes
        self._threads = threads
        self._temp_directory = temp_directory
        self._results_max = results_max
        # Guarded by _mutex.
        self._mutex = new_mutex()
        self._connection: Any = None
        self._macros: set[str] = set()  # that the connection has
        self._room_bytes = value_bytes_max  # of one vector's texts (vector_room.py)
        self._is_closed = False
        self._results: weakref.WeakValueDictionary[int, VectorResult]
        self._results = weakref.WeakValueDictionary()
        self._ids = itertools.count()

    def usage(self) -> tuple[int, int]:
        """Return the bytes of memory that DuckDB has, and those that it has spilled, now."""
        with self._mutex:
            connection = self._connection
            cursor = None if connection is None else connection.cursor()
        if cursor is None:
            return 0, 0
        try:
            (found,) = cursor.execute(_USAGE).fetchall()
        except duckdb.FatalException:
            self._broke(connection)
            return 0, 0
        finally:
            cursor.close()
        return int(found[0]), int(found[1])

    @property
    def is_idle(self) -> bool:
        """No result of it is being read."""
        return not self._results

    def query(
        self,
        text: DuckText,
        snapshot: Snapshot,
        values: Sequence[Physical],
        parameter_types: Sequence[SqlType],
        interrupt: Interrupt,
        *,
        columns: Sequence[tuple[str, SqlType]] | None = None,
    ) -> "VectorResult":
        """Start a query; values and parameter_types are those of all slots of the statement.

        With `columns` the result has these names, and other types than these are an InternalError.
        """
        for slot, word in text.row_counts:
            check_row_count(values[slot], word)
        tables: list[tuple[str, pa.Table]] = []
        is_plain = True
        for table in text.tables:
            prune = column_ranges(table, values)
            source = snapshot.source(table.ref.table)
            found = source.arrow(table.ordinals, prune, table.summed)
            tables.append((table.name, found))
            if table.summed and found.schema.metadata != NO_NEGATIVE_ZEROS:
                is_plain = False
        for slot in text.slots:
            _check_length(values[slot])
        parameters = self._parameters(text, snapshot, values, parameter_types, interrupt)
        guarded = text.guarded
        if guarded is not None:
            of_tables = longest_text(table for _, table in tables)
            longest = max(longest_of(parameters.values()), of_tables)
            if guarded.growth.is_wide(longest, of_tables):
                text = guarded.text(interrupt.check)
                made = max(guarded.growth.made(longest), longest)
                tables = [(name, in_short_batches(table, made)) for name, table in tables]
                parameters = self._parameters(text, snapshot, values, parameter_types, interrupt)
        sql = (text.plain_sql if is_plain else "") or text.sql
        result = VectorResult(
            sql,
            interrupt,
            self._results.pop,
            columns,
            self._run_aside,
            self._on_refused,
            self._broke,
        )
        with self._mutex:
            if self._is_closed:
                raise InterfaceError("the vector engine is closed")
            if len(self._results) >= self._results_max:
                raise MemoryLimitError(
                    f"expected at most {self._results_max} unfinished results of big queries",
                    hint="Fetch results to the end or close their cursors, or raise"
                    " vector_results_max.",
                )
            result.id = next(self._ids)
            try:
                result.connection = self._prepared(macros_of(sql))
                result.cursor = result.connection.cursor()
            except RuntimeError as error:
                if _is_signal(error):
                    raise KeyboardInterrupt from error
                raise
            except duckdb.Error as error:
                raise translate_error(str(error), sql) from error
            self._results[result.id] = result
        result.start(tables, parameters)
        return result

    def _parameters(
        self,
        text: DuckText,
        snapshot: Snapshot,
        values: Sequence[Physical],
        parameter_types: Sequence[SqlType],
        interrupt: Interrupt,
    ) -> dict[str, Any]:
        """Return the values of a text's parameters, those of the subqueries run before it, too."""
        parameters: dict[str, Any] = {
            f"p{slot}": _logical(values[slot], parameter_types[slot]) for slot in text.slots
        }
        for constants in text.lists:
            listed: list[Any] = []
            parameters[constants.name] = listed
            for first in range(0, len(constants.items), _CONSTANTS_AT_ONCE):
                interrupt.check()
                items = constants.items[first : first + _CONSTANTS_AT_ONCE]
                listed += (_logical(_constant(item, values), constants.type) for item in items)
        for item in text.deferred:
            run = self._run_first(item, snapshot, values, parameter_types, interrupt)
            parameters[f"q{item.number}"], parameters[f"e{item.number}"] = run
        return parameters

    def _prepared(self, macros: frozenset[str]) -> Any:
        """Return the connection, made on first use; with the macros of these names."""
        if self._connection is None:
            self._connection = self._connect()
        if not self._macros.issuperset(macros):
            for name, (head, body) in MACROS.items():  # all of them take 75 ms, most queries few
                if name in macros and name not in self._macros:
                    self._connection.execute(f"CREATE OR REPLACE MACRO {head} AS {body}")
                    self._macros.add(name)
        return self._connection

    def _broke(self, connection: Any) -> None:
        """Take note that a query's DuckDB runs none any more: the next one gets another."""
        with self._mutex:
            if connection is None or self._connection is not connection:  # it has that already
                return
            self._connection, self._macros = None, set()
        # Not closed: that would close the cursors of others, which may have rows still to give.
        _log.error("DuckDB has failed: the next query begins another one")

    def _run_first(
        self,
        item: Deferred,
        snapshot: Snapshot,
        values: Sequence[Physical],
        parameter_types: Sequence[SqlType],
        interrupt: Interrupt,
    ) -> tuple[Any, str | None]:
        """Return the value of a scalar subquery, or the text that raises the error it has."""
        try:
            columns = (("c0", item.type),)
            found = self.query(
                item.text, snapshot, values, parameter_types, interrupt, columns=columns
            )
            try:
                rows = list(itertools.islice(found.physical_rows(), 2))
            finally:
                found.close()
        except (DataError, ProgrammingError) as error:
            return None, f"herdpy:{error.sqlstate}:{error.message}"
        if len(rows) > 1:
            return None, f"herdpy:21000:{_SEVERAL_ROWS}"
        return _logical(rows[0][0] if rows else None, item.type), None

    def _connect(self) -> Any:
        connection = duckdb.connect(":memory:")
        try:
            threads = self._threads
            if threads == 0:
                (cores,) = connection.execute("SELECT current_setting('threads')").fetchall()[0]
                threads = max(1, cores - 1)
            # Several of an expression are there at once, beside the memory that DuckDB counts.
            self._room_bytes = max(value_bytes_max, self._memory_bytes // (4 * threads))
            folder = (self._temp_directory or "").replace("'", "''")
            own = (
                f"memory_limit = '{self._memory_bytes}B'",
                f"threads = {threads}",
                f"temp_directory = '{folder}'",
            )
            if self._spill_bytes_max is not None:
                own = (*own, f"max_temp_directory_size = '{self._spill_bytes_max}B'")
            for setting in (*own, *_SETTINGS):
                connection.execute(f"SET GLOBAL {setting}")
            register(connection, self._room_bytes)
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        """Close all results and DuckDB; idempotent."""
        with self._mutex:
            self._is_closed = True
            connection, self._connection = self._connection, None
            results = list(self._results.values())
        for result in results:
            result.close()
        if connection is not None:
            _close(connection)


class VectorResult:
    """The rows of one query, read once by one of batches(), rows(), physical_rows(), reader().

    It closes itself at its end and at its first error; close() may be called any time, repeatedly,
    and reading on after it is an InterfaceError.
    """

    def __init__(
        self,
        sql: str,
        interrupt: Interrupt,
        forget: Callable[[int, None], object],
        columns: Sequence[tuple[str, SqlType]] | None,
        run_aside: Aside,
        on_refused: Callable[[str], object],
        on_broken: Callable[[Any], object],
    ) -> None:
        """on_broken is told the connection that an error has made unusable."""
        self._run_aside = run_aside
        self._on_refused = on_refused
        self._on_broken = on_broken
        self.id = -1
        self.connection: Any = None
        """That the cursor is of."""
        self.cursor: Any = None
        self._sql = sql
        self._interrupt = interrupt
        self._forget = forget
        self._columns = columns
        self._reader: Any = None
        self._is_finished = False
        self._schema: pa.Schema | None = None
        self.on_close: Callable[[], object] | None = None
        """Called by close(), which the last batch comes before, too."""
        self.on_read: Callable[[], object] | None = None
        """Called before each batch is read."""
        self._ended: Error | None = None

    def start(self, tables: Sequence[tuple[str, pa.Table]], parameters: Mapping[str, Any]) -> None:
        """Register the tables and run the query up to its first batch; by VectorEngine only."""
        cursor = self.cursor
        try:
            self._interrupt.on_cancel(partial(_stop, cursor))
            rows = batch_rows(self._sql, (table for _, table in tables), parameters.values())

            def begin() -> Any:
                for name, table in tables:  # the first of a process imports pandas, if it is there
                    cursor.register(name, table)
                self._interrupt.check()  # a cancel before DuckDB runs would be lost on it
                relation = cursor.sql(self._sql, params=parameters or None)
                self._interrupt.check()  # and one that came as a step of it began may be
                return relation.to_arrow_reader(rows)

            self._reader = self._run_aside(begin, partial(_stop, cursor))
            if self.cursor is None:
                raise _closed_meanwhile()
            columns = self._columns
            self._schema = self._reader.schema if columns is None else arrow_schema(columns)
            self._interrupt.on_cancel(None)
        except BaseException as error:
            translated = self._translated(error)
            self.close()
            raise translated from error

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the batches."""
        if self._schema is None:
            raise InterfaceError("the result is closed")
        return self._schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield Arrow batches of at most some ten thousand rows."""
        try:
            while not self._is_finished:
                reader, cursor = self._reader, self.cursor
                if reader is None or cursor is None:  # rows would be missing without a word
                    if self._ended is not None:
                        raise self._ended
                    self._interrupt.check()
                    raise _closed_meanwhile()
                if self.on_read is not None:
                    self.on_read()
                self._interrupt.on_cancel(partial(_stop, cursor))
                self._interrupt.check()
                try:
                    batch = self._run_aside(partial(next, reader, None), partial(_stop, cursor))
                finally:
                    self._interrupt.on_cancel(None)
                    del reader, cursor  # so that close() between two batches frees it
                if batch is None:
                    self._is_finished = True
                    break
                yield with_schema(batch, self.schema) if self._columns is not None else batch
        except GeneratorExit:
            raise
        except BaseException as error:
            translated = self._translated(error)
            self.close()
            raise translated from error
        self.close()

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield rows of logical values."""
        return itertools.chain.from_iterable(map(logical_rows, self._pieces()))

    def physical_rows(self) -> Iterator[tuple[Any, ...]]:
        return itertools.chain.from_iterable(map(physical_rows, self._pieces()))

    def _pieces(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches in pieces of which Python's values are made at once."""
        for batch in self.batches():
            size = max(_VALUES_AT_ONCE // max(batch.num_columns, 1), 1)
            if batch.num_rows <= size:
                yield batch
                continue
            for first in range(0, batch.num_rows, size):
                try:
                    self._interrupt.check()
                except Error:
                    self.close()
                    raise
                yield batch.slice(first, size)

    def reader(self, rows_per_batch: int) -> pa.RecordBatchReader:
        """Return the batches cut to at most so many rows, as Arrow's own stream."""
        pieces = (
            batch.slice(first, rows_per_batch)
            for batch in self.batches()
            for first in range(0, batch.num_rows, rows_per_batch)
        )
        return reader_of(self.schema, pieces)

    def end(self, error: Error) -> None:
        """Close it for others: who reads on gets the error. Any thread."""
        self._ended = error
        self.close()

    def close(self) -> None:
        """Give cursor, tables and memory back; idempotent.

        When another thread is just reading (the engine closes), it is stopped and frees them.
        """
        self._forget(self.id, None)
        # Dropped, not closed: closing under a thread that reads would free what it reads.
        self._reader = self.connection = None
        cursor, self.cursor = self.cursor, None
        if cursor is not None:
            self._interrupt.on_cancel(None)
            _close(cursor)
        on_close, self.on_close = self.on_close, None
        if on_close is not None:
            on_close()

    def _translated(self, error: BaseException) -> BaseException:
        """Return our error for one of DuckDB's; others, and Ctrl-C, as they are."""
        module = error.__class__.__module__
        if _is_signal(error) or ("duckdb" in module and _SIGNAL_IN_CALLBACK.match(str(error))):
            # While it works DuckDB lets signals' handlers run, and forgets what they raise; what
            # is raised while it asks for a table's rows it tells by an error of its own.
            return KeyboardInterrupt()
        if isinstance(error, Error) or not ("duckdb" in module or isinstance(error, OSError)):
            return error
        if str(error).startswith("INTERRUPT"):
            if self.cursor is None:
                return _closed_meanwhile()
            try:
                self._interrupt.check()
            except Error as reason:
                return reason
        found = descriptors_error(error)
        if found is None:
            text = str(error)
            if text.startswith(_BREAKING):
                self._on_broken(self.connection)
            found = translate_error(text, self._sql)
            if isinstance(found, MemoryLimitError):
                limit = "vector_spill_bytes_max" if _SPILL in text else "vector_bytes_max"
                self._on_refused(limit)
        return found


def _is_signal(error: BaseException) -> bool:
    """Tell whether it stands for what a signal's handler raised while DuckDB worked."""
    return isinstance(error, RuntimeError) and str(error) == _SIGNAL_TEXT


def _close(connection: Any) -> None:
    """Close a connection or cursor; one that another thread is using is stopped, and ends there."""
    connection.interrupt()
    try:
        connection.close()
    except Exception as error:
        if error.__class__.__name__ != "ResourceInUseException":  # duckdb is not imported here
            raise


_SPILL = "max_temp_directory_size"
_BREAKING = ("FATAL Error", "INTERNAL Error")
"""What errors begin with that DuckDB runs nothing behind: in the database that has met one."""
_BROKEN = "database has been invalidated"
_MIXED_SIGNS = "composite interval that has mixed signs"
_SQLSTATES: tuple[tuple[str, str, str], ...] = (
    # prefix of DuckDB's message, words in the rest of it, SQLSTATE
    ("Invalid Input Error", "ivision by zero", "22012"),
    ("Invalid Input Error", "More than one row returned by a subquery", "21000"),
    ("Invalid Input Error", "rgument for ntile", "22014"),
    ("Syntax Error", "Like pattern must not end with escape", "22025"),
    ("Out of Range Error", "Date", "22008"),
    ("Out of Range Error", "imestamp", "22008"),
    ("Out of Range Error", "", "22003"),
    ("Conversion Error", "Could not cast value", "22003"),
    ("Out of Range Error", "nterval", "22008"),
    ("Conversion Error", "not in timestamp range", "22008"),
    ("Conversion Error", "Date out of range", "22008"),
    ("Conversion Error", "field value out of range", "22008"),
    ("Conversion Error", "out of range", "22003"),
    ("Conversion Error", "Failed to cast decimal value", "22003"),
    ("Conversion Error", '" to DECIMAL(', "22003"),  # of the text that we print of a DOUBLE
    ("Conversion Error", "", "22P02"),
    ("Binder Error", "interval cannot be 0", "22023"),
)


def translate_error(text: str, sql: str) -> Error:
    """Return our error for the text of one of DuckDB's; the text is all that Arrow passes on."""
    kind, _, rest = text.partition(": ")
    message = rest.split("\n", 1)[0] or text
    if kind == "Connection Error":
        return _closed_meanwhile()
    if _BROKEN in text:
        return OperationalError(
            "the query was stopped: another one has met an error that DuckDB did not survive",
            sqlstate="58000",
            retry=Retry.SAFE,
            hint="Run it again: the next query begins another DuckDB.",
        )
    if kind == "INTERRUPT Error":
        return QueryCanceledError("the statement was cancelled")
    if "No space left on device" in text:
        return DiskFullError(f"no space to spill a query: {message}")
    if kind == "Out of Memory Error" and _SPILL in text:
        return MemoryLimitError(
            f"the query would spill more to the disk than it may: {message}",
            hint="Raise vector_spill_bytes_max, or the role's temp_file_limit.",
        )
    if kind == "Out of Memory Error":
        return MemoryLimitError(
            f"the query needs more memory: {message}",
            hint="Raise memory_bytes_max, or the role's query_memory.",
        )
    rest = rest.removeprefix(_IN_CALLBACK)
    if rest.startswith("herdpy:"):  # raised by a macro of sql/functions.py, or vector_room.py
        _, sqlstate, message = rest.split(":", 2)
        if sqlstate == "53200":
            return MemoryLimitError(message, hint="Make shorter texts, or of fewer rows.")
        message = _QUOTED.sub(lambda found: f'"{shortened(found[1])}"', message)
        class_ = ProgrammingError if sqlstate == "21000" else DataError
        return class_(message, sqlstate=sqlstate)
    if _MIXED_SIGNS in rest:
        return NotSupportedError("a series by an interval whose parts have both signs")
    if kind == "Not implemented Error":
        return NotSupportedError(message)
    if rest.startswith("Arrow Appender: The maximum total string size"):
        return MemoryLimitError("the texts of a few rows have more than 2 GiB")
    if "Max expression depth limit" in rest:
        return OperationalError("the statement is nested too deep", sqlstate="54001")
    message = _in_our_words(message.split(" when casting from")[0].split(" You might want")[0])
    for prefix, words, sqlstate in _SQLSTATES:
        if kind == prefix and words in rest:
            class_ = ProgrammingError if sqlstate == "21000" else DataError
            return class_(message, sqlstate=sqlstate)
    return InternalError(
        f"the vector path failed: {text}", hint=f"This is a bug in herdpy. Its query was: {sql}"
    )


_QUOTED = re.compile('"(.*)"', re.DOTALL)
_TYPE_NAMES = {
    "INT16": "smallint",
    "INT32": "integer",
    "INT64": "bigint",
    "INT128": "numeric",
    "FLOAT": "real",
    "DOUBLE": "double",
}
_OVERFLOW = re.compile(r"Overflow in \w+ of (\w+)")
_CASTS = (
    re.compile(r"Type \w+ with value (?P<value>\S+) can't be cast .* type (?P<type>\S+)$"),
    re.compile(r"Could not cast value (?P<value>\S+) to (?P<type>\S+)"),
    re.compile(r'Could not convert string "(?P<value>[^"]*)" to (?P<type>\S+)$'),
    re.compile(r'Casting value "(?P<value>[^"]*)" to type (?P<type>\S+) failed'),
)


def _in_our_words(message: str) -> str:
    """Return what the row path would say; other messages as they are."""
    if "ivision by zero" in message:
        return "division by zero"
    if message.startswith("More than one row returned by a subquery"):
        return _SEVERAL_ROWS
    if message.startswith("interval cannot be 0"):  # of a series of numbers, too
        return "step size cannot equal zero"
    found = _OVERFLOW.match(message)
    if found:
        return f"{_TYPE_NAMES.get(found[1], 'numeric')} out of range"
    for pattern in _CASTS:
        found = pattern.match(message)
        if found:
            name = _TYPE_NAMES.get(found["type"], found["type"])
            return f"value {shortened(found['value'])} is out of range for type {name.lower()}"
    return message


def _check_length(value: Physical) -> None:
    """Raise 54000 for a parameter longer than sql/value_sizes.py takes them for."""
    if not isinstance(value, (str, bytes)):
        return
    width = 1 if isinstance(value, bytes) or value.isascii() else 4
    if len(value) * width > parameter_bytes_max:
        raise DataError(
            f"expected a parameter of at most {parameter_bytes_max:,} bytes of UTF-8, found one of"
            f" {len(value):,} {'bytes' if isinstance(value, bytes) else 'characters'}",
            sqlstate="54000",
            hint="Rows have less than 1 MiB; put longer texts together in the statement.",
        )


def _stop(cursor: Any) -> None:
    """Interrupt what a cursor runs, unless it is closed, as all are at the interpreter's exit."""
    with suppress(duckdb.ConnectionException):
        cursor.interrupt()


def _closed_meanwhile() -> Error:
    return InterfaceError("the result was closed before it was read to its end")


def column_ranges(table: DuckTable, values: Sequence[Physical]) -> list[ColumnRange]:
    """Return what a reference's prune conjuncts say about columns, for leaving out pages."""
    ranges: list[ColumnRange] = []
    for ordinal, operator, expression in table.prune:
        value = _constant(expression, values)
        declared = table.ref.table.columns[ordinal].type
        given = expression.type
        is_alike = given.kind is declared.kind and given.scale == declared.scale
        # A NaN or a value of another type may not compare as zone maps do: no pruning by it.
        if (
            value is None
            or value != value
            or not (is_alike or (given.is_integer and declared.is_integer))
        ):
            continue
        low = value if operator in ("=", ">", ">=") else None
        high = value if operator in ("=", "<", "<=") else None
        if low is not None or high is not None:
            ranges.append(ColumnRange(ordinal, low, high))
    return ranges


def _constant(expression: Expression, values: Sequence[Physical]) -> Any:
    if isinstance(expression, Literal):
        return expression.value
    return values[expression.index] if isinstance(expression, Parameter) else None


def _logical(value: Physical, sql_type: SqlType) -> Any:
    if isinstance(value, tuple):
        return "{} months {} days {} microseconds".format(*value)
    if sql_type.kind is Kind.TIMESTAMPTZ:  # DuckDB's own such type wants an extension of it
        sql_type = TIMESTAMP
    convert = None if value is None else output_converter(sql_type)
    return value if convert is None else convert(value)
