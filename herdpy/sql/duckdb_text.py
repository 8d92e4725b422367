"""The one printer: a bound query to DuckDB's text. No text of a user reaches DuckDB unquoted.

Tables, columns and aliases get generated names (t1, c0, r1), literals are printed from their
physical values, parameters are $p<slot>. Every reference to a table is a relation of its own,
registered as `t<id>` with the columns c<ordinal> that DuckTable lists and a last column `__live`.
Conversions are all in the tree; DuckDB's settings do the rest (exec/vector/duck.py).

What several places of a text need is computed once, as list_transform([struct], lambda v1: text)[1]
whose struct has a field for each value: the bindings of a Let, and arguments of templates and
macros that use them repeatedly. The text in a lambda is its "body"; it is as lazy as text outside.
DuckDB takes no subqueries in it, so a body's subqueries, aggregates, window functions and grouping
keys, which DuckDB computes beforehand anyway, are fields of the outermost struct, too.

DuckDB also computes a scalar subquery before it knows whether its value is needed. Where it might
not be (a later branch of CASE, coalesce, AND, OR) a query that stands alone is a DuckText of its
own, run first, whose value or error is a parameter; of others two rows are an error where the value
is used.
"""

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from herdpy.errors import InvariantViolation
from herdpy.limits import (
    like_steps_max,
    regex_bytes_max,
    value_bytes_max,
    vector_correlated_max,
    vector_differences_max,
    vector_list_items_max,
    vector_nodes_max,
    vector_small_bytes,
    vector_subqueries_max,
    vector_text_max,
)
from herdpy.model.types import INTEGER_KINDS, TEXT, Kind, SqlType
from herdpy.sql import tree
from herdpy.sql.conversions import DOUBLE_DIGITS, REAL_DIGITS
from herdpy.sql.functions import (
    AGGREGATES,
    EXTRACT_FIELDS,
    GROUPING,
    INTERVAL_FIELDS,
    INTERVAL_TRUNCS,
    RANKINGS,
    ROW_VALUES,
    resolve,
)
from herdpy.sql.macros import needs_names
from herdpy.sql.made_bytes import BYTES, MadeBytes, Size, Varying, is_text
from herdpy.sql.planner import COMPARISONS, column_test, conjuncts, sequence_refusal
from herdpy.sql.printed_size import printed_size
from herdpy.sql.reading.char_templates import template_text
from herdpy.sql.reading.extent import Budget, too_big
from herdpy.sql.text_growth import Growth, GrowthOfQuery
from herdpy.sql.value_sizes import GROWING, JOINING, bytes_max, grown_bytes_max

_TYPE_NAMES = {
    Kind.BOOLEAN: "BOOLEAN", Kind.SMALLINT: "SMALLINT", Kind.INTEGER: "INTEGER",
    Kind.BIGINT: "BIGINT", Kind.REAL: "FLOAT", Kind.DOUBLE: "DOUBLE", Kind.TEXT: "VARCHAR",
    Kind.BYTEA: "BLOB", Kind.DATE: "DATE", Kind.TIMESTAMP: "TIMESTAMP",
    Kind.TIMESTAMPTZ: "TIMESTAMP",  # in UTC: DuckDB's own such type wants an extension of it
    Kind.INTERVAL: "INTERVAL",
}  # fmt: skip
_INFIX = {*COMPARISONS, "/", "%", "||"}
_AGGREGATES = frozenset(AGGREGATES.values())
_SPREADS = {"stddev_samp", "stddev_pop", "var_samp", "var_pop"}
_RAISING = {*_SPREADS, "string_agg"}
_REPEATED_MAX = 8  # nodes of an argument that an aggregate's text has several times
_WINDOWS = _AGGREGATES.union(RANKINGS, ROW_VALUES)
_TESTS = {"=", "<>", "<", "<=", ">", ">=", "is_null", "distinct"}
_TEMPLATES = {
    "is_null": "({0} IS NULL)",
    "not": "(NOT {0})",
    "neg": "(- {0})",
    "like": "({0} LIKE {1} ESCAPE {2})",
    "ilike": "({0} ILIKE {1} ESCAPE {2})",
    "distinct": "({0} IS DISTINCT FROM {1})",
    "date_plus": "h_date({0} + h_days({1}))",
    "date_minus": "h_date({0} - h_days({1}))",
    "date_diff": "CAST({0} - {1} AS INTEGER)",
    "timestamp_plus": "h_timestamp({0} + {1})",
    "timestamp_minus": "h_timestamp({0} - {1})",
    "timestamp_diff": "({0} - {1})",
    "interval_times": "h_interval_times({0}, {1})",
    "interval_over": "h_interval_over({0}, {1})",
    "round_to": "round({0}, {1})",
    "trunc_to": "trunc({0}, {1})",
}
_VARIADIC = ("coalesce", "greatest", "least", "concat", "concat_ws")
_NODE_CHARACTERS = 16  # of the text of one expression, about
_MEAN_NODES = 20  # of an exact mean: DuckDB seeks common parts among those of all means, as squares
_CHAIN_MAX = 64  # operands of + - * in one chain that DuckDB may seek common parts in
_JOINED_MAX = 32  # operands of || in one chain
_LATE_PARTS_MAX = 4  # each is one more lambda in a lambda
_QUOTIENT_DIGITS = 10  # of one step of a division, where the divisor may have 28


@dataclass(frozen=True, slots=True)
class DuckTable:
    """One relation to register: its name, whose snapshot, which columns, and what pages may miss.

    `prune` are tests (ordinal, operator, constant) that hold for every row this reference gives.
    """

    name: str
    ref: tree.TableRef
    ordinals: tuple[int, ...]
    prune: tuple[tuple[int, str, tree.Expression], ...]
    summed: tuple[int, ...] = ()
    """Its DOUBLEs without -0.0 are what plain_sql stands for."""


@dataclass(frozen=True, slots=True)
class DuckText:
    """DuckDB's text, the relations it reads, and the slots of its parameters $p<slot>.

    The values of `row_counts`, each with the word LIMIT or OFFSET, must not be negative.
    """

    sql: str
    tables: tuple[DuckTable, ...]
    slots: tuple[int, ...]
    row_counts: tuple[tuple[int, str], ...] = ()
    lists: tuple["DuckList", ...] = ()
    deferred: tuple["Deferred", ...] = ()
    plain_sql: str = ""
    """What does instead of `sql` where none of its tables has -0.0 in what is `summed`."""
    guarded: "GuardedText | None" = None
    """What is run instead where texts may be long; None: no text is made, or this is that one."""

    @property
    def all_tables(self) -> Iterator[DuckTable]:
        """Its tables, and those of the queries that run before it."""
        yield from self.tables
        for item in self.deferred:
            yield from item.text.all_tables


@dataclass(frozen=True, slots=True)
class DuckList:
    """A parameter $<name> that is a list of constants, Literals and Parameters, of one type."""

    name: str
    items: tuple[tree.Expression, ...]
    type: SqlType


@dataclass(frozen=True, slots=True)
class Deferred:
    """A query of one column to run first.

    $q<number> is its value, of `type`; $e<number> is NULL, or "herdpy:<SQLSTATE>:<message>" of the
    error that it raised, to be raised where the value is used.
    """

    number: int
    text: DuckText
    type: SqlType


class GuardedText:
    """The text of a query that counts long texts before they are made, printed when it is needed.

    TEXT and BYTEA columns of tables, and __live, are lists of one value in it
    (exec/vector/wide_texts.py).
    """

    def __init__(self, query: tree.Query, growth: Growth) -> None:
        self._query = query
        self._text: DuckText | None = None
        self.growth = growth

    def text(self, check_interrupt: Callable[[], object]) -> DuckText:
        """Return it; 54001 for more than DuckDB should read."""
        if self._text is None:  # threads that meet here print it twice
            self._text = print_query(self._query, check_interrupt, is_guarded=True)
        return self._text


def print_query(
    query: tree.Query,
    check_interrupt: Callable[[], object] = lambda: None,
    *,
    is_guarded: bool = False,
) -> DuckText:
    """Return the text of a query for DuckDB; 54001 for more than DuckDB should read.

    check_interrupt is called every some thousand nodes. is_guarded: see GuardedText.
    """
    budget = Budget(check_interrupt, vector_nodes_max)
    printed = _print(query, budget, _Searches(), is_guarded=is_guarded)
    check_interrupt()
    size = sum(printed_size(text.sql) for text in _all_texts(printed))
    if size > vector_text_max:
        raise too_big(vector_text_max, "characters in DuckDB's words")
    return printed


def _all_texts(text: DuckText) -> Iterator[DuckText]:
    yield text
    for item in text.deferred:
        yield from _all_texts(item.text)


def _print(
    query: tree.Query, budget: Budget, searches: "_Searches", *, is_guarded: bool = False
) -> DuckText:
    printer = _Printer(budget, searches, is_guarded=is_guarded)
    text = printer.query(query)
    if any(kind.kind is Kind.INTERVAL for _, kind in query.columns):
        # Results have microseconds: Arrow's own interval does not hold all of DuckDB's.
        shown = ", ".join(
            f"h_duration(c{number}) AS c{number}" if kind.kind is Kind.INTERVAL else f"c{number}"
            for number, (_, kind) in enumerate(query.columns)
        )
        text = f"SELECT {shown} FROM ({text}) AS o"  # noqa: S608 - printed by us
    used = printer.used
    refs = {_mark(ref): ref for ref in printer.refs.values()}

    def table(mark: re.Match[str]) -> str:
        ref = refs[mark[0]]
        return _table_text(ref, used.get(ref.id, set()), is_guarded=is_guarded)

    text = _MARK.sub(table, text)
    sums = [(int(found[1]), int(found[2])) for found in _SUM.finditer(text)]
    is_one_row = not printer.refs and _has_no_source(query)
    reads_texts = any(
        ref.table.columns[ordinal].type.kind in (Kind.TEXT, Kind.BYTEA)
        for ref in printer.refs.values()
        for ordinal in used.get(ref.id, ())
    )
    growth = None if is_guarded or is_one_row else printer.growth.growth(reads_texts=reads_texts)
    return DuckText(
        _SUM.sub(r"\3", text),
        tuple(
            DuckTable(
                f"t{ref.id}",
                ref,
                tuple(sorted(used.get(ref.id, ()))),
                tuple(printer.prune.get(ref.id, ())),
                tuple(sorted({ordinal for relation, ordinal in sums if relation == ref.id})),
            )
            for ref in printer.refs.values()
        ),
        tuple(sorted(printer.slots)),
        tuple(sorted(printer.row_counts)),
        tuple(printer.lists),
        tuple(printer.deferred),
        _SUM.sub(lambda found: found[4 if int(found[1]) in printer.refs else 3], text),
        None if growth is None else GuardedText(query, growth),
    )


def type_text(sql_type: SqlType) -> str:
    """Return DuckDB's name of a type; VARCHAR(n)'s length is no part of it."""
    if sql_type.kind is Kind.DECIMAL:
        return f"DECIMAL({sql_type.precision},{sql_type.scale})"
    return _TYPE_NAMES[sql_type.kind]


def _mark(ref: tree.TableRef) -> str:
    """Return what stands for a table until its used columns are known; no literal contains it."""
    return f"\0{ref.id}\0"


_MARK = re.compile("\0[0-9]+\0")
_SUM = re.compile("\0(-?[0-9]+)[.]([0-9]+)\0([^\0]*)\0([^\0]*)\0")
"""A sum of a column: its relation and ordinal, the text in general, and that without -0.0."""


def _of(name: str, field: str) -> str:
    """Return the text of a lambda's field; `name.field` is a column to DuckDB in HAVING."""
    return f"{name}['{field}']"


def _table_text(ref: tree.TableRef, used: set[int], *, is_guarded: bool) -> str:
    columns = ", ".join(f"c{ordinal}" for ordinal in sorted(used)) or "__live"
    live = "__live[1]" if is_guarded else "__live"
    return f"(SELECT {columns} FROM t{ref.id} WHERE {live}) AS r{ref.id}"  # noqa: S608 - integers only


class _Searches:
    """What is known of the parts of a query, and of those that run before it."""

    def __init__(self) -> None:
        self.has_hoisted = tree.PartSearch(lambda part: isinstance(part, _HOISTED))
        self.has_scalar_subquery = tree.PartSearch(
            lambda part: isinstance(part, tree.ScalarSubquery)
        )
        self.has_aggregate = tree.PartSearch(
            lambda part: isinstance(part, tree.Aggregate | tree.Window)
        )
        self.varies = tree.PartSearch(_varies)
        self.outer_names = tree.OuterNames()


class _Printer:
    """Prints one query and gathers what it uses."""

    def __init__(self, budget: Budget, searches: "_Searches", *, is_guarded: bool) -> None:
        self.budget = budget
        self.searches = searches
        self.is_guarded = is_guarded
        self.growth = GrowthOfQuery()
        self.once: dict[tree.Expression, str] = {}  # texts of what is computed before the query
        self.refs: dict[int, tree.TableRef] = {}
        self.used: dict[int, set[int]] = {}
        self.prune: dict[int, list[tuple[int, str, tree.Expression]]] = {}
        self.slots: set[int] = set()
        self.row_counts: set[tuple[int, str]] = set()
        self.replaced: dict[tree.Expression, str] = {}
        self.inner_count = 0
        # Of the query, for their limits.
        self.differences = self.subqueries = self.correlated = 0
        self.lists: list[DuckList] = []
        self.deferred: list[Deferred] = []
        # Of the place that is being printed: how many lambdas it is in, what Variables are called,
        # what the outermost lambda takes from outside by name (None outside of all), the grouping
        # keys, whether its value may not be needed, whether a query may stand for a list, whether
        # it is for a text around it, which is counted with all in it, and what is known of which
        # values vary, with what that goes by.
        self.depth = 0
        self.variables: dict[int, str] = {}
        self.hoisted: dict[str, str] | None = None
        self.group_keys: frozenset[tree.Expression] = frozenset()
        self.is_lazy = False
        self.allows_lists = False
        self.is_in_text = False
        self.varying = self.group_keys, self.replaced, 0, Varying(self._is_there)

    # --- queries ---

    @contextmanager
    def _outside(self, **changed: Any) -> Generator[None]:
        """Print what stands outside of all lambdas, and is needed."""
        place = (
            "depth", "variables", "hoisted", "group_keys", "is_lazy", "allows_lists", "replaced",
            "inner_count", "is_in_text", "varying",
        )  # fmt: skip
        kept = {name: getattr(self, name) for name in place}
        self.depth, self.variables, self.hoisted, self.is_lazy = 0, {}, None, False
        self.allows_lists = self.is_in_text = False
        for name, value in changed.items():
            setattr(self, name, value)
        try:
            yield
        finally:
            for name, value in kept.items():
                setattr(self, name, value)

    def query(self, query: tree.Query) -> str:
        # Its aggregates are its own, also where one of the query around it is written alike.
        replaced = {part: text for part, text in self.replaced.items() if not _has_aggregate(part)}
        with self._outside(group_keys=frozenset(), replaced=replaced):
            return self._query(query)

    def _query(self, query: tree.Query) -> str:
        body = query.body
        if isinstance(body, tree.Select):
            keys = tree.resolved(body.group_by, body.outputs)
            self.group_keys = frozenset(key for key in keys if not isinstance(key, tree.Atom))
        parts: list[str] = []
        if query.ctes:
            items = ", ".join(map(self._cte, query.ctes))
            word = "RECURSIVE " if any(cte.is_recursive for cte in query.ctes) else ""
            parts.append(f"WITH {word}{items}")
        if isinstance(body, tree.Values):
            parts.append(self._values(body))
        elif isinstance(body, tree.Series):
            parts.append(self._series(body))
        elif isinstance(body, tree.SetOperation):
            parts.append(self._set_operation(body, len(query.columns)))
        else:
            parts.append(self._select(body, query.order_by))
        if query.order_by:
            numbers: dict[tree.Expression, int] = {}
            if isinstance(body, tree.Select) and body.is_distinct:
                atoms = (output.expression for output in body.outputs)
                numbers = {
                    part: number
                    for number, part in enumerate(atoms, 1)
                    if isinstance(part, tree.Atom)
                }
            texts = [self._order_item(key, numbers) for key in query.order_by]
            parts.append(f"ORDER BY {', '.join(texts)}")
        if query.limit is not None:
            parts.append(f"LIMIT {self._row_count(query.limit, 'LIMIT')}")
        if query.offset is not None:
            parts.append(f"OFFSET {self._row_count(query.offset, 'OFFSET')}")
        return " ".join(parts)

    def _cte(self, cte: tree.Cte) -> str:
        body = cte.query.body
        if not (cte.is_recursive and isinstance(body, tree.SetOperation)):
            return f"w{cte.id} AS ({self.query(cte.query)})"
        names = ", ".join(f"c{number}" for number in range(len(cte.query.columns)))
        with self._outside(group_keys=frozenset()):
            return f"w{cte.id}({names}) AS ({self._arms(body)})"

    def _order_item(self, key: tree.SortKey, numbers: dict[tree.Expression, int]) -> str:
        """Return an item of the ORDER BY of a query; outputs are named by number."""
        expression = key.expression
        ordinal = tree.output_ordinal(expression)
        if ordinal is not None:
            return _directed(str(ordinal + 1), key)
        number = numbers.get(expression) if numbers else None
        return self.sort_key(key) if number is None else _directed(str(number), key)

    def _row_count(self, count: tree.Expression, word: str) -> str:
        if isinstance(count, tree.Parameter):
            self.row_counts.add((count.index, word))
        if isinstance(count, (tree.Parameter, tree.Literal)):  # the binder looks at literals
            return self.expression(count)
        return self._positive(count, 0, "2201W" if word == "LIMIT" else "2201X", word)

    def _positive(self, number: tree.Expression, least: int, sqlstate: str, what: str) -> str:
        """Return text of a number that raises where it is less than `least`."""
        wanted = "negative" if least == 0 else "less than 1"
        message = f"herdpy:{sqlstate}:{what} must not be {wanted}"
        return self.applied(
            (number,),
            lambda texts: (
                f"(CASE WHEN {texts[0]} < {least} THEN error('{message}') ELSE {texts[0]} END)"
            ),
        )

    def _select(self, select: tree.Select, keys: tuple[tree.SortKey, ...]) -> str:
        parts = (*select.outputs, *keys)
        windows: list[tree.Window] = []
        walked = Budget(self.budget.check_interrupt)
        for part in tree.walk(parts, is_deep=False):
            walked.spend()
            if isinstance(part, tree.Window):
                windows.append(part)
        if any(_may_raise(part) for window in windows for part in _window_keys(window)):
            tail = self._prepared_tail(select, keys)
        else:
            tail = self._select_tail(select)
        self.allows_lists = not windows and not _is_grouped(select)
        outputs = ", ".join(
            f"{self.expression(output.expression)} AS c{number}"
            for number, output in enumerate(select.outputs)
        )
        self.allows_lists = False
        word = "DISTINCT " if select.is_distinct else ""
        if select.distinct_on:
            items = map(self._number_or_text, select.distinct_on)
            word = f"DISTINCT ON ({', '.join(items)}) "
        return f"SELECT {word}{outputs}{tail}"

    def _number_or_text(self, key: tree.Expression) -> str:
        ordinal = tree.output_ordinal(key)
        return self.group_key(key) if ordinal is None else str(ordinal + 1)

    def _select_tail(self, select: tree.Select, *, has_outputs: bool = True) -> str:
        """Return FROM to HAVING; without its outputs before it, keys are no numbers of them."""
        parts: list[str] = []
        if select.source is not None:
            parts.append(f"FROM {self.relation(select.source)}")
            self._add_prunes(select.source, conjuncts(select.where))
        if select.where is not None:
            with self._outside(allows_lists=True):
                parts.append(f"WHERE {self.condition(select.where)}")
        if select.is_grouped:
            with self._outside(group_keys=frozenset()):
                has_outputs = has_outputs and not select.grouping_sets
                printed = self._number_or_text if has_outputs else self.group_key
                keys = select.group_by
                if not has_outputs:
                    keys = tree.resolved(keys, select.outputs)
                texts = [*map(printed, keys)]
                if select.grouping_sets:
                    sets = (
                        f"({', '.join(texts[place] for place in places)})"
                        for places in select.grouping_sets
                    )
                    texts = [f"GROUPING SETS ({', '.join(sets)})"]
                parts.append(f"GROUP BY {', '.join(texts)}")
        if select.having is not None:
            parts.append(f"HAVING {self.condition(select.having)}")
        return "".join(f" {part}" for part in parts)

    def _prepared_tail(self, select: tree.Select, keys: tuple[tree.SortKey, ...]) -> str:
        """Return FROM of a query that computes what windows are partitioned and ordered by.

        DuckDB takes an expression that may raise for volatile, and refuses it there. What the outer
        query uses of the tables is replaced by columns of the inner one from here on.
        """
        tail = self._select_tail(select, has_outputs=False)
        group_by = tree.resolved(select.group_by, select.outputs)
        used = [*(output.expression for output in select.outputs), *keys, *select.distinct_on]
        is_grouped = _is_grouped(select, keys)
        atoms: dict[tree.Expression, None] = {}
        own = set(map(id, tree.walk(tuple(used), is_deep=False)))
        for part in tree.walk(tuple(used)):
            # A subquery uses columns of this query; its windows and aggregates are its own.
            if isinstance(part, tree.Window | tree.Aggregate) and id(part) not in own:
                continue
            if isinstance(part, tree.Window):
                # A constant stays one: where DuckDB wants one, a column will not do.
                atoms.update((key, None) for key in _window_keys(part) if not _is_constant(key))
            elif isinstance(part, tree.ColumnRef):
                if part.relation in tree.relation_ids(select.source) and (
                    not is_grouped or part in group_by
                ):
                    atoms[part] = None
            elif _is_constant(part):
                continue  # where a key is one, others like it are none
            elif is_grouped and (isinstance(part, tree.Aggregate) or part in group_by):
                atoms[part] = None
        self.inner_count += 1
        alias = f"i{self.inner_count}"
        outputs: list[str] = []
        for number, part in enumerate(atoms):
            outputs.append(f"{self.expression(part)} AS x{number}")
        for number, part in enumerate(atoms):
            self.replaced[part] = f"{alias}.x{number}"
        return f" FROM (SELECT {', '.join(outputs) or '1'}{tail}) AS {alias}"

    def _values(self, values: tree.Values) -> str:
        names = ", ".join(f"c{number}" for number in range(len(values.names)))
        columns = list(zip(*values.rows, strict=True))
        if len(values.rows) > vector_list_items_max and all(map(_are_constants, columns)):
            # DuckDB takes ten times as long, and its memory, for the expressions of as many rows.
            text = f"SELECT {', '.join(f'unnest({self._list(column)})' for column in columns)}"
        else:
            rows = (f"({', '.join(map(self.expression, row))})" for row in values.rows)
            text = f"VALUES {', '.join(rows)}"
        return f"SELECT * FROM ({text}) AS v({names})"  # noqa: S608 - printed by us

    def _series(self, series: tree.Series) -> str:
        """Print the rows of generate_series(), which DuckDB makes as they are read.

        It makes them of constants one after the other; of what other rows have, for each of these.
        """
        kind = series.start.type
        parts = (series.start, series.stop, series.step)
        texts = [self._bound_of_series(part) for part in parts]
        source, number = f"generate_series({', '.join(texts)}) AS g(c0)", "row_number() OVER ()"
        if any(self.searches.varies(part) for part in parts if not self._runs_first(part)):
            values = ", ".join(f"{text} AS a{place}" for place, text in enumerate(texts))
            source = f"(SELECT {values}) AS a, generate_series(a.a0, a.a1, a.a2) AS g(c0)"
            places = ("epoch_us(g.c0)", "epoch_us(a.a0)") if kind.is_moment else ("g.c0", "a.a0")
            distance = f"abs({places[0]}::HUGEINT - {places[1]})"
            number = f"row_number() OVER (ORDER BY {distance})"
        value = "g.c0"
        if kind.kind is Kind.DECIMAL and kind.scale:
            value = _scaled(value, kind)
        outputs = f"CAST({value} AS {type_text(kind)}) AS c0"
        if series.has_ordinality:
            outputs += f", {number} AS c1"
        return f"SELECT {outputs} FROM {source}"  # noqa: S608 - printed by us

    def _bound_of_series(self, part: tree.Expression) -> str:
        if self._runs_first(part):
            query = tree.Query(tree.Select((tree.Output("c0", part),), None), (("c0", part.type),))
            text = self._first(query, part.type)
        else:
            text = self.expression(part)
        if part.type.kind is Kind.DECIMAL:
            text = _unscaled(text, part.type)
        return f"CAST({text} AS BIGINT)" if part.type.is_numeric else text

    def _runs_first(self, part: tree.Expression) -> bool:
        """Tell whether a value is computed before the query, so that it is a constant there."""
        if part.type.kind is Kind.INTERVAL or not self.searches.varies(part):
            return False
        return not self.searches.outer_names.of(
            tree.Query(tree.Select((tree.Output("c0", part),), None), ())
        )

    def group_key(self, key: tree.Expression) -> str:
        text = self.expression(key)
        # A bare constant would be taken for an output's number.
        return f"CAST({text} AS {type_text(key.type)})" if isinstance(key, tree.Literal) else text

    def _set_operation(self, body: tree.SetOperation, width: int) -> str:
        names = ", ".join(f"c{number}" for number in range(width))
        return f"SELECT * FROM ({self._arms(body)}) AS u({names})"  # noqa: S608 - printed by us

    def _arms(self, body: tree.SetOperation) -> str:
        """Print both sides; a chain of them has no SELECT around each, which DuckDB is slow at."""
        if body.operator != "UNION":
            self.differences += 1
            if self.differences > vector_differences_max:
                raise too_big(vector_differences_max, "of EXCEPT and INTERSECT")
        left = body.left
        has_tail = left.order_by or left.limit is not None or left.offset is not None
        if isinstance(left.body, tree.SetOperation) and not (left.ctes or has_tail):
            first = self._arms(left.body)
        else:
            first = self.query(left)
        word = f"{body.operator}{' ALL' if body.is_all else ''}"
        return f"({first}) {word} ({self.query(body.right)})"

    def relation(self, relation: tree.Relation) -> str:
        if isinstance(relation, tree.TableRef):
            self.refs[relation.id] = relation
            return _mark(relation)
        if isinstance(relation, tree.CteRef):
            return f"w{relation.cte} AS r{relation.id}"
        if isinstance(relation, tree.Derived):
            if relation.is_lateral and not self._stands_alone(relation.query):
                self._count_correlated()
            return f"({self.query(relation.query)}) AS r{relation.id}"
        if isinstance(relation, tree.Join):
            left, right = self.relation(relation.left), self.relation(relation.right)
            self.growth.add_join()
            if relation.condition is None:
                return f"{left} CROSS JOIN {right}"
            condition = self.condition(relation.condition)
            return f"({left} {relation.kind.value} JOIN {right} ON {condition})"
        raise InvariantViolation(f"printer: got a relation {relation!r}")

    def _add_prunes(self, source: tree.Relation, tests: list[tree.Expression]) -> None:
        """Note the WHERE conjuncts for tables that no outer join below WHERE fills with NULLs."""
        if isinstance(source, tree.TableRef):
            found = (column_test(test, source.id) for test in tests)
            self.prune.setdefault(source.id, []).extend(test for test in found if test)
        elif isinstance(source, tree.Join):
            if source.kind in (tree.JoinKind.INNER, tree.JoinKind.CROSS, tree.JoinKind.LEFT):
                self._add_prunes(source.left, tests)
            if source.kind in (tree.JoinKind.INNER, tree.JoinKind.CROSS, tree.JoinKind.RIGHT):
                self._add_prunes(source.right, tests)

    def sort_key(self, key: tree.SortKey) -> str:
        return _directed(f"({self.group_key(key.expression)})", key)

    # --- expressions ---

    def expression(self, expression: tree.Expression) -> str:
        # DuckDB reads the body of a lambda twice for each lambda around it.
        self.budget.spend(1 << self.depth)
        if self.replaced and expression in self.replaced:
            return self.replaced[expression]
        if self.hoisted is not None and (
            isinstance(expression, _HOISTED) or (self.group_keys and expression in self.group_keys)
        ):
            return self._hoist(self.hoisted, expression)
        return self._printed(expression)

    def _printed(self, expression: tree.Expression) -> str:
        """Print what DuckDB computes where it stands."""
        if isinstance(expression, tree.Atom):
            return _PRINTERS[type(expression)](self, expression)
        is_made = is_text(expression) and not isinstance(expression, _HOISTED)
        is_key = expression in self.group_keys
        if is_made and self.is_guarded and self._is_wide_constant(expression):
            return self._once(expression)
        is_outermost = is_made and (is_key or not self.is_in_text)
        kept = self.is_in_text, self.group_keys
        self.is_in_text = is_made
        if is_key and self.is_guarded:  # as GROUP BY prints it, where no part of it is a key
            self.group_keys = frozenset((expression,))
        text = _PRINTERS[type(expression)](self, expression)
        if is_outermost and self.is_guarded:
            self.group_keys = frozenset() if is_key else self.group_keys
            text = self._guarded(expression, text)
        elif is_outermost:
            self.growth.add(expression, self._is_there, self.refs)
        self.is_in_text, self.group_keys = kept
        return text

    def _is_there(self, part: tree.Expression) -> bool:
        """Tell whether DuckDB has computed it before the expression that it is a part of."""
        return (
            isinstance(part, _HOISTED)
            or part in self.replaced
            or part in self.group_keys
            or part in self.once
        )

    def _guarded(self, expression: tree.Expression, text: str) -> str:
        """Return a text that is made where there is room for it, and all of it in a vector."""

        def length(part: tree.Expression) -> str | None:
            if isinstance(part, tree.ScalarSubquery) and part not in self.once:
                return None  # it would be run once more for it
            function = "octet_length" if part.type.kind is Kind.BYTEA else "strlen"
            return f"coalesce({function}({self.expression(part)}), 0)"

        size = MadeBytes(length, self._is_there).of(expression).total
        if size.keys() <= {BYTES} and size.get(BYTES, 0) <= vector_small_bytes:
            return text
        return f"(CASE WHEN h_made({self._size_text(expression, size)}) THEN NULL ELSE {text} END)"

    def _size_text(self, expression: tree.Expression, size: Size) -> str:
        """Return the text of a sum that is another value in each row in which the text is."""
        terms = [
            str(factor) if name == BYTES else name if factor == 1 else f"{factor} * {name}"
            for name, factor in size.items()
        ]
        # Of what is one value for all rows DuckDB would compute, and count, one.
        others = [part for part in self._varying(expression) if part not in self.once]
        texts = dict.fromkeys(map(self.expression, others))
        if texts:
            terms.append(f"CAST(hash({', '.join(texts)}) & 0 AS BIGINT)")
        while len(terms) > _JOINED_MAX:
            terms = [
                f"({' + '.join(terms[place : place + _JOINED_MAX])})"
                for place in range(0, len(terms), _JOINED_MAX)
            ]
        return " + ".join(terms)

    def _varying(self, expression: tree.Expression) -> Iterable[tree.Expression]:
        """Return what is in it of which there is another value in each row."""
        place = self.group_keys, self.replaced, len(self.replaced)  # what _is_there() goes by
        keys, replaced, count, known = self.varying
        if keys is not place[0] or replaced is not place[1] or count != place[2]:
            known = Varying(self._is_there)
            self.varying = *place, known
        return known.of(expression)

    def _once(self, expression: tree.Expression) -> str:
        """Print a long constant, which DuckDB would compute, and keep, for each row."""
        text = self.once.get(expression)
        if text is None:
            output = tree.Output("c0", expression)
            query = tree.Query(tree.Select((output,), None), (("c0", expression.type),))
            text = self._first(query, expression.type, is_one_row=True)
            self.once[expression] = text
        return text

    def _first(self, query: tree.Query, kind: SqlType, *, is_one_row: bool = False) -> str:
        """Print the value of a query that runs before this one."""
        number = len(self.deferred)
        text = _print(query, self.budget, self.searches)
        if is_one_row:
            text = replace(text, guarded=None)
        self.deferred.append(Deferred(number, text, kind))
        value = f"CAST($q{number} AS {type_text(kind)})"
        return f"(CASE WHEN $e{number} IS NULL THEN {value} ELSE error($e{number}) END)"

    def lazily(self, expression: tree.Expression) -> str:
        """Print what may turn out not to be needed."""
        kept, self.is_lazy = self.is_lazy, True
        text = self.expression(expression)
        self.is_lazy = kept
        return text

    def _hoist(self, hoisted: dict[str, str], expression: tree.Expression) -> str:
        """Print it as a field of the outermost lambda's struct; return the field."""
        is_key = expression in self.group_keys  # which has one text
        if (
            isinstance(expression, tree.ScalarSubquery)
            and not is_key
            and (self.is_lazy or self._is_long(expression))
        ):
            return self._deferred(expression)
        with self._outside():
            text = self._printed(expression)
        return self._field(hoisted, text)

    def _field(self, hoisted: dict[str, str], text: str) -> str:
        return _of("v1", hoisted.setdefault(text, f"h{len(hoisted)}"))

    # --- values that are computed once ---

    def _lambda(self, values: Sequence[tuple[str, str]], body: Callable[[str], str]) -> str:
        """Return text of a body that sees values, (field, text), by the name that it is given."""
        kept, is_outermost = self.hoisted, self.hoisted is None
        hoisted: dict[str, str] = {} if self.hoisted is None else self.hoisted
        self.hoisted, self.depth = hoisted, self.depth + 1
        name = f"v{self.depth}"
        text = body(name)
        self.hoisted, self.depth = kept, self.depth - 1
        fields = [f"{field} := {value}" for field, value in values]
        if is_outermost:
            fields += (f"{field} := {value}" for value, field in hoisted.items())
        value = f"struct_pack({', '.join(fields)})" if fields else "0"
        return f"list_transform([{value}], lambda {name}: {text})[1]"

    def let(self, node: tree.Let) -> str:
        values = [(f"a{index}", self.expression(value)) for index, value in node.bindings]

        def body(name: str) -> str:
            kept = self.variables
            self.variables = {**kept, **{i: _of(name, f"a{i}") for i, _ in node.bindings}}
            text = self.expression(node.body)
            self.variables = kept
            return text

        return self._lambda(values, body)

    def applied(
        self,
        arguments: Sequence[tree.Expression],
        make: Callable[[Sequence[str]], str],
        printed: Callable[[tree.Expression], str] | None = None,
    ) -> str:
        """Return make(texts of the arguments); what it needs several times is computed once."""
        printed = printed or self.expression
        texts = [printed(argument) for argument in arguments]
        marks = [f"\0{place}\0" for place in range(len(texts))]
        text = make(marks)
        named = [
            place
            for place, argument in enumerate(arguments)
            if not isinstance(argument, tree.Atom) and needs_names(text, marks[place])
        ]
        if not named:
            return make(texts)
        # What has no place in a lambda's body stands before it, too.
        named += [
            place
            for place, argument in enumerate(arguments)
            if place not in named and self.searches.has_hoisted(argument)
        ]

        wide = [place for place in named if self._is_wide_constant(arguments[place])]
        if len(wide) == len(named):
            wide.clear()  # with nothing beside them they are computed once as they are

        def fields(places: Sequence[int]) -> list[tuple[str, str]]:
            return [(f"a{place}", texts[place]) for place in places]

        def body(name: str, of_wide: str = "") -> str:
            found = [_of(name, f"a{i}") if i in named else texts[i] for i in range(len(texts))]
            for place in wide:
                found[place] = _of(of_wide, f"a{place}")
            return make(found)

        values = fields([place for place in named if place not in wide])
        if not wide:
            return self._lambda(values, body)
        return self._lambda(
            values, lambda name: self._lambda(fields(wide), lambda inner: body(name, inner))
        )

    def _is_wide_constant(self, part: tree.Expression) -> bool:
        """Tell whether it is one value for all rows, and not a small one.

        In a struct beside what is another one in each row DuckDB makes 2,048 copies of it, which it
        counts nowhere.
        """
        return not self.searches.varies(part) and bytes_max(part, self.refs) > vector_small_bytes

    def operand(self, expression: tree.Expression) -> str:
        """Print an operand of a test so that DuckDB computes it.

        Its optimizer would bring a constant to the other side, or ask a column for NULL, and so
        never find out that x * 2147483647 overflows.
        """
        text = self.expression(expression)
        return f"greatest({text})" if _is_computed(expression) else text

    def parameter(self, parameter: tree.Parameter) -> str:
        self.slots.add(parameter.index)
        return f"CAST($p{parameter.index} AS {type_text(parameter.type)})"

    def column(self, ref: tree.ColumnRef) -> str:
        if ref.relation == tree.OUTPUT:
            return f"c{ref.ordinal}"
        self.used.setdefault(ref.relation, set()).add(ref.ordinal)
        name = f"r{ref.relation}.c{ref.ordinal}"
        # What has lists DuckDB does not gather to 2,048 rows of copies where it has few at a time.
        is_list = self.is_guarded and ref.relation in self.refs and is_text(ref)
        return f"{name}[1]" if is_list else name

    def literal(self, literal: tree.Literal) -> str:
        self.growth.add_constant(literal.value)
        return literal_text(literal)

    def cast(self, cast: tree.Cast) -> str:
        source, target = cast.operand.type.kind, cast.type.kind
        is_read = source is Kind.TEXT and target is not Kind.TEXT
        printed = self.scanned if is_read else self.expression
        return self.applied((cast.operand,), lambda texts: self._cast(cast, texts[0]), printed)

    def scanned(self, expression: tree.Expression) -> str:
        """Print a text that a regular expression reads, which no longer one may do."""
        if bytes_max(expression, self.refs) <= regex_bytes_max:
            return self.expression(expression)
        return self.applied((expression,), lambda texts: f"h_short({texts[0]})")

    def _cast(self, cast: tree.Cast, operand: str) -> str:
        target = cast.type
        source = cast.operand.type
        if target.kind is Kind.TEXT:
            text = _to_text(operand, source)
            if source.kind is Kind.BYTEA and grown_bytes_max(cast, self.refs) > value_bytes_max:
                text = _unless(f"octet_length({operand}) >= {value_bytes_max // 2}", text)
            return text if target.length is None else f"substr({text}, 1, {target.length})"
        if source.kind is Kind.TEXT:
            if target.kind is Kind.DECIMAL:
                digits = _plain_digits(f"h_number({operand})")
                return f"h_fits(TRY_CAST({digits} AS {type_text(target)}), {operand})"
            return _FROM_TEXT[target.kind].format(operand, type_text(target))
        if source.is_float and target.kind is Kind.DECIMAL:
            # The digits of PostgreSQL's cast, as conversions.decimal_of has them.
            digits = DOUBLE_DIGITS if source.kind is Kind.DOUBLE else REAL_DIGITS
            text = f"printf('%.{digits}g', CAST({operand} AS DOUBLE))"
            return f"CAST({_plain_digits(text)} AS {type_text(target)})"
        if target.kind is Kind.REAL and source.kind is Kind.DOUBLE:
            return f"h_to_real({operand})"
        if target.kind is Kind.REAL and source.kind is Kind.DECIMAL:
            operand = f"CAST({operand} AS VARCHAR)"  # DuckDB itself would divide REALs
        if source.kind is Kind.REAL:  # its own cast of a FLOAT to an integer rounds in 32 bits
            operand = f"CAST({operand} AS DOUBLE)"
        return f"CAST({operand} AS {type_text(target)})"

    def call(self, call: tree.Call) -> str:
        name = call.function
        if name in ("and", "or"):
            return self._connected(call.function, call.arguments)
        if name == "coalesce":
            return self._coalesce(call)
        printed = self.operand if name in _TESTS else self.expression
        if name == "decode":
            printed = self.scanned
        return self.applied(call.arguments, lambda texts: self._call(call, texts), printed)

    def condition(self, expression: tree.Expression) -> str:
        """Print what rows are filtered by: there DuckDB stops at the first part that decides."""
        if isinstance(expression, tree.RowInQuery) and self._is_join(expression):
            return self._row_exists(expression)
        if not isinstance(expression, tree.Call) or expression.function not in ("and", "or"):
            return self.expression(expression)
        first, *rest = expression.arguments
        texts = [self.condition(first)]
        kept, self.is_lazy = self.is_lazy, True
        texts += map(self.condition, rest)
        self.is_lazy = kept
        return f"({f' {expression.function.upper()} '.join(texts)})"

    def _connected(self, name: str, parts: tuple[tree.Expression, ...]) -> str:
        """Print AND or OR as a value: DuckDB computes all parts, so some stand behind a CASE."""
        late = [place for place in range(1, len(parts)) if self._is_late(parts[place], len(parts))]
        if not late or len(late) > _LATE_PARTS_MAX:
            texts = (self.expression(parts[0]), *map(self.lazily, parts[1:]))
            return f"({f' {name.upper()} '.join(texts)})"
        head, tail = parts[: late[0]], parts[late[0] :]
        word, decided = name.upper(), "NOT {0}" if name == "and" else "{0}"
        first = self.expression(head[0]) if len(head) == 1 else self._connected(name, head)

        def body(found: str) -> str:
            kept, self.is_lazy = self.is_lazy, True
            rest = self.expression(tail[0]) if len(tail) == 1 else self._connected(name, tail)
            self.is_lazy = kept
            result = "FALSE" if name == "and" else "TRUE"
            return (
                f"CASE WHEN {decided.format(found)} THEN {result} ELSE ({found} {word} {rest}) END"
            )

        if all(map(_is_cheap, head)):
            return body(first)
        return self._lambda([("a0", first)], lambda name: body(_of(name, "a0")))

    def _is_late(self, part: tree.Expression, count: int) -> bool:
        """Tell whether a later part of AND or OR holds what must not be computed too early."""
        return (isinstance(part, tree.Let) and count == 2) or self.searches.has_scalar_subquery(
            part
        )

    def _coalesce(self, call: tree.Call) -> str:
        first, *rest = call.arguments
        if all(isinstance(part, tree.Atom) for part in rest):
            return f"coalesce({', '.join(map(self.expression, call.arguments))})"
        # DuckDB may compute common parts of a COALESCE's arguments before it needs them, but not
        # in the body of a lambda.
        is_atom = isinstance(first, tree.Atom)
        values = [] if is_atom else [("a0", self.expression(first))]

        def body(name: str) -> str:
            text = self.expression(first) if is_atom else _of(name, "a0")
            texts = (text, *map(self.lazily, rest))
            return f"coalesce({', '.join(texts)})"

        return self._lambda(values, body)

    def _call(self, call: tree.Call, texts: Sequence[str]) -> str:
        name, arguments = call.function, list(texts)
        if name == "/" and call.type.kind is Kind.REAL:
            return f"h_real_over({arguments[0]}, {arguments[1]})"
        if name == "/" and call.type.kind is Kind.DECIMAL:
            left, right = (argument.type for argument in call.arguments)
            return _quotient(arguments[0], left, arguments[1], right, call.type)
        if name == "%" and call.type.is_integer:
            # DuckDB divides, which overflows for the smallest integer and -1.
            divisor = f"CASE WHEN {arguments[1]} = -1 THEN 1 ELSE {arguments[1]} END"
            if isinstance(call.arguments[1], tree.Literal):
                divisor = "1" if call.arguments[1].value == -1 else arguments[1]
            return f"({arguments[0]} % {divisor})"
        if name in _INFIX:
            while len(arguments) > _JOINED_MAX:  # DuckDB nests what it reads: only || has so many
                arguments = [
                    f"({f' {name} '.join(arguments[place : place + _JOINED_MAX])})"
                    for place in range(0, len(arguments), _JOINED_MAX)
                ]
            text = f"({f' {name} '.join(arguments)})"
            return self._within(call, texts, text) if name == "||" else text
        if tree.is_arithmetic(name):
            chain = _chain_of_reals if call.type.kind is Kind.REAL else _chain_text
            text = chain(name, arguments)
            return text if len(arguments) <= _CHAIN_MAX else self._uncut(call, text)
        if name in ("greatest", "least") and call.type.kind in (Kind.INTERVAL, Kind.REAL):
            # DuckDB's own compare an interval's parts one by one, and make 0 of -0.0 of FLOATs.
            return f"list_{'max' if name == 'greatest' else 'min'}([{', '.join(arguments)}])"
        if name in _VARIADIC:
            return self._within(call, texts, f"{name}({', '.join(arguments)})")
        if name in ("like", "ilike"):
            arguments[1:] = _like_pattern(name, arguments[1], call.arguments[2])
        if name == "neg" and call.type.is_integer:
            # DuckDB makes a wider type of the smallest integer where it is constant.
            return f"CAST((- {arguments[0]}) AS {type_text(call.type)})"
        text = _function_text(call, arguments)
        text = self._within(call, texts, text)
        return f"CAST({text} AS {type_text(call.type)})" if call.type.kind is Kind.DECIMAL else text

    def _uncut(self, call: tree.Call, text: str) -> str:
        """Return the text of a long chain in a CASE, which DuckDB seeks no common parts in.

        It compares each operator's part of the chain with the others: 7 s for 960 equal operands.
        """
        tested = self._column_in(call) or next(filter(_is_simple, call.arguments), None)
        if tested is None:
            return text
        never = self.expression(tested)
        return f"(CASE WHEN {never} IS DISTINCT FROM {never} THEN NULL ELSE {text} END)"

    def _column_in(self, part: tree.Expression) -> tree.Expression | None:
        """Return what is printed of a column, a key or a Variable for arithmetic of columns."""
        if isinstance(part, (tree.ColumnRef, tree.Variable)):
            return part
        if part in self.replaced or part in self.group_keys:
            return None
        if isinstance(part, tree.Cast):
            return self._column_in(part.operand)
        if not isinstance(part, tree.Call) or not tree.is_arithmetic(part.function):
            return None
        return next(filter(None, map(self._column_in, part.arguments)), None)

    def _within(self, call: tree.Call, texts: Sequence[str], text: str) -> str:
        """Return the text of a call that does not make or compare more than one call may."""
        name = call.function
        if name in ("like", "ilike"):
            return self._like_within(call, texts, text)
        if not (name in JOINING or name in GROWING):
            return text
        if grown_bytes_max(call, self.refs) <= value_bytes_max:
            return text
        length = "octet_length" if call.arguments[0].type.kind is Kind.BYTEA else "strlen"
        if name in GROWING:
            size = "octet_length" if call.type.kind is Kind.BYTEA else "strlen"
            least = value_bytes_max // GROWING[name]
            test = f"{length}({texts[0]}) > {least} AND {size}({text}) > {value_bytes_max}"
            return _unless(test, text)
        sizes = [f"{length}({operand})" for operand in texts]
        if name == "concat_ws":
            sizes[0] = f"{sizes[0]} * {max(len(sizes) - 2, 0)}"
        size = f"CAST(list_sum([{', '.join(sizes)}]) AS BIGINT)"
        return _unless(f"h_room({size}) > {value_bytes_max}", text)

    def _like_within(self, call: tree.Call, texts: Sequence[str], text: str) -> str:
        value, pattern = (bytes_max(part, self.refs) for part in call.arguments[:2])
        if value * pattern <= like_steps_max and pattern <= regex_bytes_max:
            return text
        test = (
            f"strlen({texts[0]}) * strlen({texts[1]})::HUGEINT > {like_steps_max}"
            f" OR strlen({texts[1]}) > {regex_bytes_max}"
        )
        return _unless(test, text, "h_too_long_for_like()")

    def case(self, case: tree.Case) -> str:
        branches: list[str] = []
        kept = self.is_lazy
        for condition, result in case.branches:
            test = self.condition(condition)
            self.is_lazy = True  # the first condition alone is always needed
            branches.append(f"WHEN {test} THEN {self.expression(result)}")
        otherwise = f" ELSE {self.expression(case.otherwise)}" if case.otherwise else ""
        self.is_lazy = kept
        return f"CASE {' '.join(branches)}{otherwise} END"

    def in_list(self, node: tree.InList) -> str:
        word = "NOT IN" if node.is_negated else "IN"
        is_long = len(node.items) > vector_list_items_max and _are_constants(node.items)
        if is_long and self.hoisted is None and self.allows_lists:
            items = f"SELECT unnest({self._list(node.items)})"
        else:
            items = ", ".join(map(self.operand, node.items))
        return f"({self.operand(node.operand)} {word} ({items}))"

    def _list(self, items: tuple[tree.Expression, ...]) -> str:
        kinds = {item.type.kind: item.type for item in items}
        kind = items[0].type  # of all, but for integers
        if len(kinds) > 1:
            kind = kinds[max(kinds, key=INTEGER_KINDS.index)]
        name = f"l{len(self.lists)}"
        self.lists.append(DuckList(name, items, kind))
        return f"CAST(${name} AS {type_text(kind)}[])"

    def scalar_subquery(self, node: tree.ScalarSubquery) -> str:
        is_late = self.is_lazy or self._is_long(node)
        if is_late and node not in self.group_keys:  # a key has one text
            return self._deferred(node)
        return f"({self.subquery(node.query)})"

    def _is_long(self, node: tree.ScalarSubquery) -> bool:
        """Tell whether its value may be a long text, whose length is to be known beforehand."""
        return self.is_guarded and is_text(node) and self._stands_alone(node.query)

    def subquery(self, query: tree.Query) -> str:
        """Print a query that stands in an expression; 54001 for more than DuckDB should plan."""
        self.subqueries += 1
        if self.subqueries > vector_subqueries_max:
            raise too_big(vector_subqueries_max, "subqueries")
        if not self._stands_alone(query):
            self._count_correlated()
        return self.query(query)

    def _count_correlated(self) -> None:
        self.correlated += 1
        if self.correlated > vector_correlated_max:
            raise too_big(vector_correlated_max, "subqueries with columns of queries around")

    def _stands_alone(self, query: tree.Query) -> bool:
        """Tell whether a query names no column and no WITH item of the queries around it."""
        return not self.searches.outer_names.of(query)

    def _deferred(self, node: tree.ScalarSubquery) -> str:
        """Print a subquery whose errors are raised where its value is used, if it is."""
        if self._is_long(node):
            if node not in self.once:
                self.once[node] = self._first(node.query, node.type)
            return self.once[node]
        # A parameter holds no interval.
        if node.type.kind is not Kind.INTERVAL and self._stands_alone(node.query):
            return self._first(node.query, node.type)
        if _is_one_row(node.query):
            return self._outer(f"({self.subquery(node.query)})")
        names = ", ".join(f"c{number}" for number in range(len(node.query.columns)))
        text = (
            f"(SELECT struct_pack(n := count(*), v := first(c0)) FROM ({self.subquery(node.query)})"  # noqa: S608 - printed by us
            f" AS s({names}))"
        )
        if self.hoisted is not None:
            return f"h_one_row({self._outer(text)})"
        return self._lambda([("a0", text)], lambda name: f"h_one_row({_of(name, 'a0')})")

    def _outer(self, text: str) -> str:
        """Return text that was printed outside of all lambdas as it is called here."""
        return text if self.hoisted is None else self._field(self.hoisted, text)

    def exists(self, node: tree.Exists) -> str:
        return f"EXISTS ({self.subquery(node.query)})"

    def in_query(self, node: tree.InQuery) -> str:
        if self._is_counted(node):
            return self._counted(node, "<>" if node.is_negated else "=", node.is_negated)
        word = "NOT IN" if node.is_negated else "IN"
        return f"({self.expression(node.operand)} {word} ({self.subquery(node.query)}))"

    def _is_join(self, node: tree.RowInQuery) -> bool:
        """Tell whether it may be printed as EXISTS, in the query that it is in."""
        has_own = any(map(self.searches.has_aggregate, node.operands))
        return self.hoisted is None and not self.group_keys and not has_own

    def _row_exists(self, node: tree.RowInQuery) -> str:
        """Print a test of rows that they are filtered by, to which NULL is false: as a join."""
        self._count_correlated()
        names = [f"c{number}" for number in range(len(node.operands))]
        tests = " AND ".join(
            f"{self.expression(operand)} = m.{name}"
            for operand, name in zip(node.operands, names, strict=True)
        )
        rows = f"({self.subquery(node.query)}) AS m({', '.join(names)})"
        return f"EXISTS (SELECT 1 FROM {rows} WHERE {tests})"  # noqa: S608 - printed by us

    def row_in_query(self, node: tree.RowInQuery) -> str:
        """Print the answer as the greatest of the rows', as _counted() does.

        The rows are a list, which an aggregate or a key of GROUP BY meets, too.
        """
        fields = [
            (f"a{number}", self.expression(part)) for number, part in enumerate(node.operands)
        ]
        names = [f"c{number}" for number in range(len(fields))]
        packed = ", ".join(f"{name} := {name}" for name in names)
        rows = f"({self.subquery(node.query)}) AS m({', '.join(names)})"
        items = f"(SELECT list(DISTINCT struct_pack({packed})) FROM {rows})"  # noqa: S608 - printed by us

        def body(name: str) -> str:
            tests = " AND ".join(
                f"({_of(name, field)} = {_of('m', column)})"
                for (field, _), column in zip(fields, names, strict=True)
            )
            found = f"coalesce(2 * CAST(({tests}) AS INTEGER), 1)"
            greatest = f"list_max(list_transform({_of(name, 'rows')}, lambda m: {found}))"
            return f"[false, NULL, true][1 + coalesce({greatest}, 0)]"

        return self._lambda([*fields, ("rows", items)], body)

    def quantified(self, node: tree.Quantified) -> str:
        if self._is_counted(node):
            return self._counted(node, node.operator, node.is_all)
        word = "ALL" if node.is_all else "ANY"
        operand = self.expression(node.operand)
        return f"({operand} {node.operator} {word} ({self.subquery(node.query)}))"

    def _is_counted(self, node: tree.InQuery | tree.Quantified) -> bool:
        """Tell whether DuckDB's own IN, ANY and ALL would be wrong.

        It takes what may raise for volatile, and of a correlated query with such a part NULLs of
        other rows' answers, too.
        """
        if self._stands_alone(node.query):
            return False
        return not all(map(_is_plain, tree.walk((node.operand, node.query))))

    def _counted(self, node: tree.InQuery | tree.Quantified, operator: str, is_all: bool) -> str:
        """Print the answer as the greatest of its rows': 0 leaves it open, 1 is NULL, 2 decides."""
        answers = "true, NULL, false" if is_all else "false, NULL, true"

        def answer(operand: str, value: str) -> str:
            text = f"2 * CAST(({operand} {operator} {value}) AS INTEGER)"
            return f"coalesce({f'2 - {text}' if is_all else text}, 1)"

        operand, rows = (
            self.expression(node.operand),
            f"FROM ({self.subquery(node.query)}) AS m(c0)",
        )
        if not any(
            isinstance(part, (tree.Aggregate, tree.Window)) or part in self.group_keys
            for part in tree.walk(node.operand, is_deep=False)
        ):
            greatest = f"SELECT max({answer(operand, 'm.c0')}) {rows}"
            return f"[{answers}][1 + coalesce(({greatest}), 0)]"

        # An aggregate or a key of GROUP BY cannot be printed in a query: it meets a list of values.
        def body(name: str) -> str:
            found = answer(_of(name, "a0"), "m")
            greatest = f"list_max(list_transform({_of(name, 'a1')}, lambda m: {found}))"
            return f"[{answers}][1 + coalesce({greatest}, 0)]"

        return self._lambda([("a0", operand), ("a1", f"(SELECT list(DISTINCT c0) {rows})")], body)

    def aggregate(self, node: tree.Aggregate) -> str:
        if node.function == GROUPING:
            keys = ", ".join(map(self.group_key, node.arguments))
            return f"CAST({GROUPING}({keys}) AS INTEGER)"
        if node.function not in _AGGREGATES:
            raise InvariantViolation(f"printer: aggregate {node.function} is not on the list")
        order = ""
        if node.order:
            keys = (
                self.sort_key(key)
                if node.filter is None or isinstance(key.expression, tree.Atom)
                else _directed(f"({self._counted_in(node.filter, key.expression)})", key)
                for key in node.order
            )
            order = f" ORDER BY {', '.join(keys)}"
        tail = self._filter(node.filter)
        word = "DISTINCT " if node.is_distinct else ""
        return self._aggregate(node, word, order, tail)

    def window(self, node: tree.Window) -> str:
        if node.function not in _WINDOWS:
            raise InvariantViolation(f"printer: window {node.function} is not on the list")
        parts: list[str] = []
        if node.partition:
            parts.append(f"PARTITION BY {', '.join(map(self.group_key, node.partition))}")
        if node.order:
            parts.append(f"ORDER BY {', '.join(map(self.sort_key, node.order))}")
        if node.frame:
            parts.append(node.frame)
        tail = f"{self._filter(node.filter)} OVER ({' '.join(parts)})"
        if node.function in _AGGREGATES:
            return self._aggregate(node, "", "", tail)
        first, rest = node.arguments[:1], node.arguments[1:]
        texts = [self.expression(argument) for argument in first]
        if node.function == "nth_value":
            texts.append(self._positive(rest[0], 1, "22016", "argument of nth_value"))
        else:
            texts += map(self.expression, rest)
        return f"{node.function}({', '.join(texts)}){tail}"

    def _filter(self, condition: tree.Expression | None) -> str:
        if condition is None:
            return ""
        if isinstance(condition, tree.Call) and condition.function in ("and", "or"):
            return f" FILTER (WHERE CASE WHEN {self.condition(condition)} THEN TRUE END)"
        return f" FILTER (WHERE {self.expression(condition)})"

    def _counted_in(self, condition: tree.Expression | None, argument: tree.Expression) -> str:
        """Print what an aggregate computes: of what FILTER leaves out DuckDB would, too."""
        if condition is None or isinstance(argument, tree.Atom):
            return self.expression(argument)
        kept, self.is_lazy = self.is_lazy, True
        text = self.expression(argument)
        self.is_lazy = kept
        return f"(CASE WHEN {self.condition(condition)} THEN {text} END)"

    def _aggregate(
        self, node: tree.Aggregate | tree.Window, word: str, order: str, tail: str
    ) -> str:
        texts = [self._counted_in(node.filter, argument) for argument in node.arguments]
        text = self._aggregate_text(node, texts, word, order, tail)
        # Copies of the texts: one in the argument or FILTER of another would double each time.
        copied = len(text) - sum(map(len, texts)) - len(tail)
        self.budget.spend(max(copied, 0) // _NODE_CHARACTERS)
        return text

    def _aggregate_text(
        self, node: tree.Aggregate | tree.Window, texts: list[str], word: str, order: str, tail: str
    ) -> str:
        function, result = node.function, node.type
        walked = tuple(tree.walk(node, is_deep=False))
        has_queries = any(isinstance(part, tree.Subquery) for part in walked)

        def once(values: Sequence[str], make: Callable[[Sequence[str]], str]) -> str:
            """Return make(values), where DuckDB reads each once."""
            fields = [f"a{place}" for place in range(len(values))]
            return self._lambda(
                list(zip(fields, values, strict=True)),
                lambda name: make([_of(name, field) for field in fields]),
            )

        def applied(values: Sequence[str], make: Callable[[Sequence[str]], str]) -> str:
            """Return make(values), where DuckDB reads each once if there are queries in them."""
            return once(values, make) if has_queries else make(values)

        if function == "avg" and result.kind is Kind.DECIMAL:
            scale = node.arguments[0].type.scale or 0
            self.budget.spend(_MEAN_NODES)
            total = f"sum({word}{texts[0]}){tail}"
            total = f"CAST({total} AS {f'DECIMAL(38,{scale})' if scale else 'HUGEINT'})"
            count = f"count({word}{texts[0]}){tail}"
            # Without rows the count is 0 and the sum NULL.
            count = f"CAST(nullif({count}, 0) AS HUGEINT)"
            number = f"h_unscaled({total})" if scale else total
            factor = _huge(10 ** ((result.scale or 0) - scale))
            return applied(
                (number, count),
                lambda found: _scaled(f"h_mean({', '.join((*found, factor))})", result),
            )
        if result.kind is Kind.INTERVAL and function in ("sum", "avg"):
            return _interval_total(function, texts[0], word, tail, once)
        if function in _SPREADS:
            is_once = has_queries or len(walked) > _REPEATED_MAX
            return _spread(function, texts[0], word, tail, applied, is_once=is_once)
        if function == "string_agg":  # NULL between the texts is nothing
            texts[1] = f"coalesce({texts[1]}, '')"
            text = f"string_agg({word}{', '.join(texts)}{order}){tail}"
            return applied(
                (text,), lambda found: _unless(f"strlen({found[0]}) > {value_bytes_max}", found[0])
            )
        text = f"{function}({word}{', '.join(texts) or '*'}{order}){tail}"
        if function == "sum" and result.kind is Kind.DOUBLE and not has_queries:
            # DuckDB begins with 0, which -0 added to is 0.
            signs = f"min(signbit({texts[0]})){tail}"
            zero = "CAST('-0.0' AS DOUBLE)"
            signed = f"(CASE WHEN {text} = 0 AND {signs} THEN {zero} ELSE {text} END)"
            column = node.arguments[0]
            if not isinstance(column, tree.ColumnRef) or "\0" in text:
                return signed
            return f"\0{column.relation}.{column.ordinal}\0{signed}\0{text}\0"
        return text


def _function_text(call: tree.Call, arguments: Sequence[str]) -> str:
    name = call.function
    if name in _TEMPLATES:
        return _TEMPLATES[name].format(*arguments)
    if name == "to_char":
        template = call.arguments[1]
        assert isinstance(template, tree.Literal)
        return (template_text(str(template.value)) or "").format(arguments[0])
    if name.startswith("date_trunc:"):
        return f"date_trunc('{name[11:]}', {arguments[0]})"
    if name.startswith("extract:"):
        return EXTRACT_FIELDS[name[8:]][0].format(*arguments)
    if name.startswith("extract_interval:"):
        return INTERVAL_FIELDS[name[17:]].format(*arguments)
    if name.startswith("trunc_interval:"):
        return INTERVAL_TRUNCS[name[15:]].format(*arguments)
    found = resolve(name, [argument.type for argument in call.arguments])
    if found is None:
        raise InvariantViolation(f"printer: function {name} is not on the list")
    return found.template.format(*arguments)


_Applied = Callable[[Sequence[str], Callable[[Sequence[str]], str]], str]


def _spread(
    function: str, value: str, word: str, tail: str, applied: _Applied, *, is_once: bool
) -> str:
    """Return the text of a variance or standard deviation.

    DuckDB's own loses as many digits as the mean has more than the deviations, and is 0 for one
    NaN. So the whole parts of the values and their rests are added up exactly, but where the
    values are DISTINCT, long to compute, or beyond macros._WHOLE_MAX.
    """
    values = [
        f"CAST(count({word}{value}){tail} AS HUGEINT)",
        f"var_pop({word}{value}){tail}",
        f"max(abs({value})){tail}",
        f"avg({word}{value}){tail}",
    ]
    whole, rest = f"h_whole({value})", f"h_rest({value})"
    if not (word or is_once):
        parts = (
            f"sum({whole})",
            f"sum({whole} * {whole})",
            f"sum(h_fixed(CAST({whole} AS DOUBLE) * {rest}))",
            f"sum(h_fixed({rest}))",
            f"var_pop({rest})",
        )
        values += [f"{part}{tail}" for part in parts]

    def checked(found: Sequence[str]) -> str:
        count, simple, *_ = found
        squares = f"{simple} * {count}"
        if found[4:]:
            squares = f"h_exact_squares({', '.join((count, *found[4:]))})"
        return f"h_{function}(h_squares({', '.join((*found[:4], squares))}), {count})"

    return applied(values, checked)


def _unless(test: str, text: str, error: str = "h_too_long()") -> str:
    """Return text of a value that is refused, and not computed, where the test holds."""
    return f"(CASE WHEN {test} THEN {error} ELSE {text} END)"


def _like_pattern(name: str, pattern: str, escape: tree.Expression) -> tuple[str, str]:
    """Return the texts of a LIKE pattern and of its escape character.

    DuckDB takes one byte, and of a letter ILIKE takes both cases: of such characters the pattern
    gets backslashes instead.
    """
    character = str(escape.value) if isinstance(escape, tree.Literal) else ""
    if character.isascii() and not (name == "ilike" and character.isalpha()):
        return pattern, literal_text(tree.Literal(TEXT, character))
    found = rf"'(\\)|{character}((?s:.)|$)', '\\\1\2', 'g'"
    return f"regexp_replace({pattern}, {found})", r"'\'"


def _interval_total(function: str, text: str, word: str, tail: str, applied: _Applied) -> str:
    """Return sum or avg of intervals, part by part, as DuckDB has neither."""
    parts = ("h_months", "h_days_of", "h_micros")
    if word:
        items = f"list(DISTINCT {text}){tail}"
        count = f"len(list_filter({items}, lambda v: v IS NOT NULL))"
        sums = [f"list_sum(list_transform({items}, lambda v: {part}(v)))" for part in parts]
    else:
        count = f"count({text}){tail}"
        sums = [f"sum({part}({text})){tail}" for part in parts]
    if function == "sum":
        return applied(sums, lambda found: f"h_interval({', '.join(found)})")

    def mean(found: Sequence[str]) -> str:
        *totals, number = found
        return f"h_spread({', '.join(f'{total} / {number}' for total in totals)})"

    return applied([*sums, f"CAST(nullif({count}, 0) AS DOUBLE)"], mean)


def _window_keys(window: tree.Window) -> tuple[tree.Expression, ...]:
    return (*window.partition, *(key.expression for key in window.order))


def _is_constant(part: tree.Expression) -> bool:
    return isinstance(part, (tree.Literal, tree.Parameter))


def _may_raise(key: tree.Expression) -> bool:
    """Tell whether anything in it but operators, columns and constants is there."""
    return any(
        part.function in _RAISING
        if isinstance(part, tree.Aggregate)
        else not isinstance(part, (tree.ColumnRef, tree.Literal, tree.Parameter))
        for part in tree.walk(key)
    )


def _is_simple(part: tree.Expression) -> bool:
    """Tell whether it is an aggregate or a window function of columns and constants."""
    return isinstance(part, tree.Aggregate | tree.Window) and not any(
        isinstance(inner, tree.Call | tree.Subquery) for inner in tree.walk(part)
    )


def _is_plain(part: tree.Expression) -> bool:
    """Tell whether DuckDB takes it for what gives the same each time, by its kind alone."""
    if isinstance(part, tree.Call):
        return part.function in _TESTS or part.function in ("and", "or", "not")
    return isinstance(part, (tree.ColumnRef, tree.Literal, tree.Parameter))


def _is_grouped(select: tree.Select, keys: tuple[tree.SortKey, ...] = ()) -> bool:
    used = (tuple(output.expression for output in select.outputs), keys, select.distinct_on)
    return select.is_grouped or _has_aggregate(used)


def _has_aggregate(node: object) -> bool:
    """Tell whether an aggregate of the node's own query is in it."""
    return any(isinstance(part, tree.Aggregate) for part in tree.walk(node, is_deep=False))


def _varies(part: tree.Expression) -> bool:
    """Tell whether it is neither a constant nor computed of its operands alone."""
    is_random = isinstance(part, tree.Call) and part.function == "random"
    return is_random or not isinstance(part, _OF_CONSTANTS)


def _is_cheap(part: tree.Expression) -> bool:
    """Tell whether it is made of comparisons of columns, constants and variables only."""
    if isinstance(part, tree.Call) and part.function in ("and", "or"):
        return all(map(_is_cheap, part.arguments))
    if not isinstance(part, tree.Call) or part.function not in COMPARISONS:
        return False
    return all(isinstance(item, tree.Atom) for item in part.arguments)


def _are_constants(items: Sequence[tree.Expression]) -> bool:
    """Tell whether items may be one parameter, which holds no interval."""
    return all(
        isinstance(item, (tree.Literal, tree.Parameter)) and item.type.kind is not Kind.INTERVAL
        for item in items
    )


def _has_no_source(query: tree.Query) -> bool:
    """Tell whether it is a row of expressions without any table."""
    return isinstance(query.body, tree.Select) and query.body.source is None


def _is_one_row(query: tree.Query) -> bool:
    """Tell whether a query can only yield one row, or none."""
    body, limit = query.body, query.limit
    if isinstance(limit, tree.Literal) and isinstance(limit.value, int) and limit.value <= 1:
        return True
    if isinstance(body, tree.Select):
        return body.source is None or (not body.is_grouped and _is_grouped(body))
    return False


def _is_computed(expression: tree.Expression) -> bool:
    """Tell whether it is arithmetic of integers, behind casts or not."""
    while isinstance(expression, tree.Cast):
        expression = expression.operand
    if not isinstance(expression, tree.Call) or not expression.type.is_integer:
        return False
    return expression.function == "neg" or tree.is_arithmetic(expression.function)


def _chain_text(operators: str, operands: Sequence[str]) -> str:
    """Return operands with + - * between them, applied from the left."""
    text, before = operands[0], "*"
    for operator, operand in zip(operators, operands[1:], strict=True):
        if operator == "*" and before != "*":
            text = f"({text})"
        text, before = f"{text} {operator} {operand}", operator
    return f"({text})"


def _chain_of_reals(operators: str, operands: Sequence[str]) -> str:
    """Return operands with + - * between them, applied from the left, in 32 bits.

    A result of 64 bits that is rounded to 32 is the one that 32 bits alone give, and in 64 none
    overflows: the cast tells. Nor does one vanish, which only products may.
    """
    text = operands[0]
    for operator, operand in zip(operators, operands[1:], strict=True):
        result = f"CAST({text} AS DOUBLE) {operator} CAST({operand} AS DOUBLE)"
        if operator == "*":
            text = f"list_transform([{result}], lambda product: h_to_real(product))[1]"
        else:
            text = f"CAST({result} AS FLOAT)"
    return text


def _directed(text: str, key: tree.SortKey) -> str:
    direction = "DESC" if key.is_descending else "ASC"
    return f"{text} {direction} NULLS {'FIRST' if key.nulls_first else 'LAST'}"


def _huge(value: int) -> str:
    return f"CAST('{value}' AS HUGEINT)"


def _scaled(text: str, result: SqlType) -> str:
    """Return a HUGEINT as the DECIMAL(38, scale) whose digits it has."""
    scale = result.scale or 0
    unit = f"0.{'0' * (scale - 1)}1"
    return f"(CAST({text} AS DECIMAL(38,0)) * CAST('{unit}' AS DECIMAL({scale},{scale})))"


def _unscaled(text: str, kind: SqlType) -> str:
    """Return the digits of a DECIMAL as a HUGEINT."""
    return f"h_unscaled({text})" if kind.scale else f"CAST({text} AS HUGEINT)"


def _quotient(
    left: str, left_type: SqlType, right: str, right_type: SqlType, result: SqlType
) -> str:
    """Return left / right, exact to result's scale, half away from zero.

    It is a long division in steps, as 128 bits do not hold the shifted dividend.
    """
    digits = (result.scale or 0) + (right_type.scale or 0) - (left_type.scale or 0)
    step = max(38 - (right_type.precision or 38), _QUOTIENT_DIGITS, -(-digits // 3))
    factors: list[str] = []
    while digits > 0:
        factors.append(_huge(10 ** min(step, digits)))
        digits -= step
    numbers = ", ".join((_unscaled(left, left_type), _unscaled(right, right_type), *factors))
    if not factors:
        return _scaled(f"h_quotient1({numbers}, {_huge(1)})", result)
    return _scaled(f"h_quotient{len(factors)}({numbers})", result)


def _plain_digits(text: str) -> str:
    """Return the text of a number so that DuckDB casts it to a DECIMAL: without exponent."""
    return f"list_transform([{text}], lambda digits: h_plain(digits))[1]"


def _to_text(text: str, source: SqlType) -> str:
    """Return the cast of a value to VARCHAR, in PostgreSQL's form."""
    if source.kind is Kind.TEXT:
        return text
    if source.kind is Kind.DOUBLE:
        return f"h_text_double({text})"
    if source.kind is Kind.REAL:
        return f"h_text_real({text})"
    if source.kind is Kind.BYTEA:
        return f"h_text_bytes({text})"
    if source.kind is Kind.DECIMAL and source.precision == source.scale:
        # DuckDB leaves the 0 before the point out when there is no digit for it.
        return f"regexp_replace(CAST({text} AS VARCHAR), '^(-?)\\.', '\\10.')"
    if source.kind is Kind.INTERVAL:
        return f"h_show_interval({text})"
    if source.kind is Kind.TIMESTAMPTZ:
        return f"(CAST({text} AS VARCHAR) || '+00')"
    return f"CAST({text} AS VARCHAR)"


_FROM_TEXT = {
    Kind.BOOLEAN: "h_boolean({0})", Kind.SMALLINT: "h_smallint({0})",
    Kind.INTEGER: "h_integer({0})", Kind.BIGINT: "h_bigint({0})",
    Kind.REAL: "h_real({0})", Kind.DOUBLE: "h_double({0})", Kind.BYTEA: "h_bytea({0})",
    Kind.DATE: "h_text_date({0})",
    Kind.TIMESTAMP: "h_text_timestamp({0})", Kind.TIMESTAMPTZ: "h_text_timestamptz({0})",
    Kind.INTERVAL: "h_read_interval({0})",
}  # fmt: skip


def _refuse_sequence(_printer: _Printer, _node: tree.SequenceCall) -> str:
    raise sequence_refusal()


_PRINTERS: dict[type[tree.Expression], Callable[[_Printer, Any], str]] = {
    tree.SequenceCall: _refuse_sequence,
    tree.Literal: _Printer.literal,
    tree.Parameter: _Printer.parameter,
    tree.ColumnRef: _Printer.column,
    tree.Variable: lambda printer, node: printer.variables[node.index],
    tree.Let: _Printer.let,
    tree.Cast: _Printer.cast,
    tree.Assign: _Printer.cast,
    tree.Call: _Printer.call,
    tree.Case: _Printer.case,
    tree.InList: _Printer.in_list,
    tree.Aggregate: _Printer.aggregate,
    tree.Window: _Printer.window,
    tree.ScalarSubquery: _Printer.scalar_subquery,
    tree.Exists: _Printer.exists,
    tree.InQuery: _Printer.in_query,
    tree.RowInQuery: _Printer.row_in_query,
    tree.Quantified: _Printer.quantified,
}


_OF_CONSTANTS = (tree.Literal, tree.Parameter, tree.Call, tree.Cast)
_HOISTED = (
    tree.Aggregate, tree.Window, tree.ScalarSubquery, tree.Exists, tree.InQuery, tree.RowInQuery,
    tree.Quantified,
)  # fmt: skip
"""What DuckDB does not compute, or not rightly, in the body of a lambda."""


def literal_text(literal: tree.Literal) -> str:
    """Return a physical constant of any column type as DuckDB's text, with exactly its type."""
    value, kind = literal.value, literal.type.kind
    if isinstance(value, tuple):
        months, days, microseconds = value
        return f"(to_months({months}) + to_days({days}) + to_microseconds({microseconds}))"
    name = type_text(literal.type)
    if value is None:
        return f"CAST(NULL AS {name})"
    if kind is Kind.BOOLEAN:
        return "TRUE" if value else "FALSE"
    if kind is Kind.TEXT:
        text = str(value).replace("'", "''")
        return f"'{text}'"
    if kind is Kind.BYTEA and isinstance(value, bytes):
        return f"from_hex('{value.hex()}')"
    if kind is Kind.DECIMAL and isinstance(value, int):
        scale = literal.type.scale or 0
        digits = str(abs(value)).rjust(scale + 1, "0")
        point = len(digits) - scale
        sign = "-" if value < 0 else ""
        fraction = f".{digits[point:]}" if scale else ""
        return f"CAST('{sign}{digits[:point]}{fraction}' AS {name})"
    if kind is Kind.DATE:
        return f"CAST(DATE '1970-01-01' + {value} AS DATE)"
    if kind in (Kind.TIMESTAMP, Kind.TIMESTAMPTZ):
        return f"make_timestamp({value})"
    return f"CAST('{value!r}' AS {name})"  # integers, REAL, DOUBLE (also nan, inf)
