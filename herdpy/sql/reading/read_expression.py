"""Tokens to the syntax tree of expressions, by PostgreSQL's grammar and precedence.

Nothing here recurses. A construct in which others may stand is a generator, which yields those
(`node = yield self.expression()`) and returns its node; run() keeps the open ones in a list.
Operators wait on a stack of their expression, by their precedence. Work and memory are counted, and
a cancel is noticed, by the Budget: one for each operand, operator and step.
"""

import re
from collections.abc import Callable, Collection, Generator
from functools import partial
from typing import Any, Final, NamedTuple

from herdpy.errors import Error, NotSupportedError, ProgrammingError
from herdpy.limits import statement_nodes_max
from herdpy.model.python_values import shortened
from herdpy.sql.reading import syntax
from herdpy.sql.reading.extent import OTHER_SIGNS, Budget
from herdpy.sql.reading.refusals import NO_SCHEMAS, PUBLIC, refusal, wrong_hint
from herdpy.sql.reading.syntax import Node, Query
from herdpy.sql.reading.tokens import Scanned
from herdpy.sql.reading.words import FUNCTION_WORDS, NO_NAMES, RESERVED, Words, words_of

Steps = Generator[Any, Any, Any]
"""A construct that is being read: yields the Steps of those in it, is sent their nodes."""


_LINE_END = re.compile(r"[\n\r]")
# How strongly operators bind, as in PostgreSQL.
(_OR, _AND, _NOT, _IS, _COMPARISON, _RANGE, _OTHER, _SUM, _PRODUCT, _POWER, _AT, _COLLATE, _SIGN,
 _CAST) = range(14)  # fmt: skip
# Of these one goes on behind another only where that needs no right operand: a < b < c is none.
_UNCHAINED = (_IS, _COMPARISON, _RANGE)
_COMPARISONS = frozenset(("=", "<", ">", "<=", ">=", "<>", "!="))
_LEVELS: Final[dict[str, int]] = {
    "OR": _OR, "AND": _AND, "IS": _IS, "ISNULL": _IS, "NOTNULL": _IS,
    **dict.fromkeys(_COMPARISONS, _COMPARISON),
    **dict.fromkeys(("NOT", "IN", "BETWEEN", "LIKE", "ILIKE", "SIMILAR", "ESCAPE"), _RANGE),
    **dict.fromkeys(OTHER_SIGNS, _OTHER),
    "+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "%": _PRODUCT, "^": _POWER, "AT": _AT,
    "COLLATE": _COLLATE, "::": _CAST,
}  # fmt: skip
# What PostgreSQL's b_expr does not have; IS only as IS DISTINCT FROM.
_UNRESTRICTED = words_of("OR AND NOT IN BETWEEN LIKE ILIKE SIMILAR ESCAPE ISNULL NOTNULL")
QUERIES = frozenset(("SELECT", "VALUES", "WITH", "TABLE"))
_MOMENTS = words_of("CURRENT_TIME CURRENT_TIMESTAMP LOCALTIME LOCALTIMESTAMP")
_WORDS_CALLED = _MOMENTS | words_of(
    "CURRENT_DATE CURRENT_USER CURRENT_ROLE CURRENT_CATALOG CURRENT_SCHEMA SESSION_USER USER"
)
# What is no function, but a construct that is written like one.
_NO_FUNCTIONS = words_of(
    "coalesce greatest least nullif trim current_date current_timestamp localtimestamp"
)
_CONSTANTS = {"NULL": None, "TRUE": True, "FALSE": False}
_UNITS = words_of("YEAR MONTH DAY HOUR MINUTE SECOND")
# The types that may stand before a string: DATE '2020-01-01'.
_LITERAL_TYPES = words_of(
    """DATE TIME TIMESTAMP TIMESTAMPTZ TIMETZ BOOL BOOLEAN INT INT2 INT4 INT8 INTEGER BIGINT
    SMALLINT NUMERIC DECIMAL DEC REAL FLOAT FLOAT4 FLOAT8 DOUBLE TEXT VARCHAR CHAR CHARACTER BYTEA
    UUID JSON JSONB BIT NATIONAL"""
)
# How types are called in PostgreSQL's own schema.
_INTERNAL_TYPES = words_of(
    """BOOL INT4 INT8 FLOAT8 NUMERIC TEXT VARCHAR BYTEA DATE TIMESTAMP TIMESTAMPTZ INTERVAL INT2
    FLOAT4 BPCHAR TIME TIMETZ UUID JSON JSONB BIT VARBIT"""
)
_SPELLED = words_of("EXTRACT POSITION SUBSTRING OVERLAY TRIM")
_PLAIN_NUMBER = re.compile(r"\s*([+-]?\d+)(?:\.\d+)?\s*", re.ASCII)
_TYPE_DIGITS_MAX = 18
# Behind one of these, of one of these kinds, an operand is a whole expression.
_ENDING = frozenset(("symbol", "word", "end"))
_ENDS = frozenset((",", ")", "", "FROM", "THEN", "ELSE", "END", "WHEN", "AS"))


class _Operator(NamedTuple):
    """An operator that waits for its right operand."""

    level: int
    make: Callable[[Any, Node], Node]
    """Of the left operand (None for a prefix) and the right one."""
    is_prefix: bool = False


def _prefix(operator: str) -> Callable[[Any, Node], Node]:
    return lambda _, operand: syntax.Unary(operator, operand)


_PREFIXES = {word: _Operator(_SIGN, _prefix(word), True) for word in ("+", "-", "~")}
_PREFIXES["NOT"] = _Operator(_NOT, _prefix("not"), True)
_BINARY = {
    word: _Operator(level, partial(syntax.Binary, "<>" if word == "!=" else word.lower()))
    for word, level in _LEVELS.items()
    if not word.isalpha() or word in ("AND", "OR")
}


def _like_sign(operator: str, operand: Any, pattern: Node, *, is_negated: bool) -> Node:
    # The escape character is LIKE's own: no ESCAPE follows a sign.
    like = syntax.Like(operator, operand, pattern, syntax.String("\\", 0))
    return _negated(like, is_negated)


_BINARY.update(
    {
        f"{'!' * is_negated}~~{'*' * (operator == 'ilike')}": _Operator(
            _OTHER, partial(_like_sign, operator, is_negated=is_negated)
        )
        for operator in ("like", "ilike")
        for is_negated in (False, True)
    }
)


class ExpressionReader(Words):
    """Reads the expressions of one statement; one thread. Queries in them are a subclass's."""

    def __init__(self, scanned: Scanned, check_interrupt: Callable[[], object]) -> None:
        super().__init__(scanned)
        self.allows_default = False
        self._spend = Budget(check_interrupt, statement_nodes_max).spend

    def whole_query(self) -> Steps:
        raise NotImplementedError

    def query_tail(self, query: Query) -> Steps:
        """Read what goes on behind a query: UNION, ORDER BY, LIMIT; return the whole."""
        raise NotImplementedError

    def run(self, steps: Steps) -> Any:
        """Carry out a construct and all that it yields, without recursion."""
        opened: list[Steps] = []
        found: Any = None
        spend = self._spend
        while True:
            try:
                inner = steps.send(found)
            except StopIteration as stop:
                if not opened:
                    return stop.value
                found, steps = stop.value, opened.pop()
            else:
                spend()
                opened.append(steps)
                found, steps = None, inner

    # --- errors ----------------------------------------------------------------------------------

    def unexpected(self, expected: str | None = None) -> Error:
        """Return the error of the token that stands here, where the statement cannot go on."""
        return self.unexpected_in("")

    def unexpected_in(self, verb: str) -> Error:
        """Return that error; verb: the statement's first word, where it might have ended here."""
        token = self.tokens[self.index]
        found = refusal(self.words, self.index, verb)
        if found is not None:
            return self.refused(*found)
        near = "end of input"
        if token.kind != "end":
            near = f'or near "{shortened(self.scanned.text[token.start : token.end])}"'
        return ProgrammingError(
            f"syntax error at {near}",
            sqlstate="42601",
            position=token.start + 1,
            hint=wrong_hint(self.tokens, self.index),
        )

    # --- tokens ----------------------------------------------------------------------------------

    def accept_any(self, words: Collection[str]) -> str:
        """Read one of the words, and return it; "" when none of them stands here."""
        word = self.words[self.index]
        if word not in words:
            return ""
        self.index += 1
        return word

    def expect_all(self, *words: str) -> None:
        for word in words:
            self.expect(word)

    def expect_any(self, *words: str) -> str:
        word = self.accept_any(words)
        if not word:
            raise self.unexpected()
        return word

    def is_name(self) -> bool:
        """Tell whether a column or a table may be called so."""
        kind = self.kinds[self.index]
        return kind == "name" or (kind == "word" and self.words[self.index] not in NO_NAMES)

    def name(self, what: str = "") -> str:
        if not self.is_name():
            raise self.unexpected()
        return self.label()

    def label(self) -> str:
        """Read any word: what may follow AS or a dot."""
        token = self.tokens[self.index]
        if token.kind not in ("word", "name"):
            raise self.unexpected()
        name = self.checked_name(token)
        self.index += 1
        return name

    def placed_name(self) -> tuple[str, int]:
        """Read a name; return it and its first character, from 0."""
        self._spend()
        start = self.tokens[self.index].start
        return self.name(), start

    def relation_name(self) -> tuple[str, int]:
        """Read the name of a table, view, index or sequence, as placed_name()."""
        begin = self.index
        found = self.placed_name()
        if self.words[self.index] != ".":
            return found
        if found[0] != PUBLIC:
            self.index = begin  # an error says where the schema stands
        self.expect_public(found[0], "a table name")
        return self.placed_name()

    def placed_names(self) -> list[tuple[str, int]]:
        self.expect("(")
        found = [self.placed_name()]
        while self.accept(","):
            found.append(self.placed_name())
        self.expect(")")
        return found

    # --- expressions -----------------------------------------------------------------------------

    def _order_by(self) -> Steps:
        if not self.accept_all("ORDER", "BY"):
            return []
        keys: list[syntax.SortKey] = []
        while True:
            node = yield from self._item()
            is_descending = self.accept_any(("ASC", "DESC")) == "DESC"
            nulls_first = is_descending
            if self.accept("NULLS"):
                nulls_first = self.expect_any("FIRST", "LAST") == "FIRST"
            keys.append(syntax.SortKey(node, is_descending, nulls_first))
            if not self.accept(","):
                return keys

    def _list(self) -> Steps:
        items = [(yield from self._item())]
        while self.accept(","):
            items.append((yield from self._item()))
        return items

    def _item(self) -> Steps:
        """Read an expression, at once where it is one token."""
        if self.words[self.index + 1] in _ENDS and self.kinds[self.index + 1] in _ENDING:
            operand = self._operand()
            if operand is not None:
                self._spend()
                return operand
        return (yield self.expression())

    def expression(self, *, is_restricted: bool = False, first: Node | None = None) -> Steps:
        """Read an expression, of which `first` is read already.

        A restricted one has no AND, OR, NOT, IN, LIKE, BETWEEN, IS NULL (PostgreSQL's b_expr).
        """
        words, spend = self.words, self._spend
        lefts: list[Node] = []
        waiting: list[_Operator] = []
        node = first
        while True:
            if node is None:
                while (prefix := _PREFIXES.get(words[self.index])) is not None:
                    if is_restricted and prefix.level == _NOT:
                        break
                    waiting.append(prefix)
                    self.index += 1
                node = self._operand() or (yield self._construct())
            spend()
            word = words[self.index]
            level = _LEVELS.get(word)
            if (
                level is None
                or (is_restricted and word in _UNRESTRICTED)
                or (word == "IS" and is_restricted and not self._is_distinct_from())
            ):
                return self._reduced(node, lefts, waiting, _OR)
            if level in _UNCHAINED and word != "ESCAPE":
                node = self._reduced(node, lefts, waiting, level + 1)
                if waiting and waiting[-1].level == level:
                    raise self.unexpected()
            elif level != _CAST:
                node = self._reduced(node, lefts, waiting, level)
                if word == "ESCAPE" and _open_like(node) is None:  # it is a label
                    return self._reduced(node, lefts, waiting, _OR)
            operator = _BINARY.get(word)
            if operator is None:
                node, operator = yield from self._worded(word, node)
            elif level == _CAST:
                self.index += 1
                node, operator = syntax.Cast(node, self.type()), None
            elif level == _COMPARISON and words[self.index + 1] in ("ANY", "ALL", "SOME"):
                self.index += 2
                is_all = words[self.index - 1] == "ALL"
                right = yield self._parenthesis()
                name = "<>" if word == "!=" else word
                node, operator = syntax.Quantified(name, node, right, is_all), None
            else:
                self.index += 1
            if operator is not None:
                lefts.append(node)
                waiting.append(operator)
                node = None

    def _reduced(self, node: Node, lefts: list[Node], waiting: list[_Operator], level: int) -> Node:
        """Apply what waits and binds at least as strongly, from the right to the left."""
        while waiting and waiting[-1].level >= level:
            operator = waiting.pop()
            node = operator.make(None if operator.is_prefix else lefts.pop(), node)
        return node

    def _is_distinct_from(self) -> bool:
        place = self.index + 1 + (self.words[self.index + 1] == "NOT")
        return self.words[place] == "DISTINCT"

    def _worded(self, word: str, left: Node) -> Steps:
        """Read an operator of words; return its node, and the operator if it waits for an operand.

        The node is then its left operand.
        """
        if word == "IS":
            return self._is(left)
        self.index += 1
        if word in ("ISNULL", "NOTNULL"):
            return _negated(syntax.Is(left, "NULL"), word == "NOTNULL"), None
        if word == "COLLATE":
            self.label()
            return syntax.Unary("collate", left), None
        if word == "AT":
            self.expect_all("TIME", "ZONE")
            return left, _Operator(_AT, partial(syntax.Binary, "at time zone"))
        if word == "ESCAPE":
            return left, _Operator(_RANGE, _with_escape)
        is_negated = word == "NOT"
        if is_negated:
            word = self.expect_any("IN", "BETWEEN", "LIKE", "ILIKE", "SIMILAR")
        if word == "IN":
            right = yield self._parenthesis()
            if isinstance(right, syntax.Subquery):
                return _negated(syntax.In(left, [], right.query), is_negated), None
            items = right.items if isinstance(right, syntax.Row) else [right.operand]
            return _negated(syntax.In(left, items, None), is_negated), None
        if word == "BETWEEN":
            is_symmetric = self.accept_any(("SYMMETRIC", "ASYMMETRIC")) == "SYMMETRIC"
            low = yield self.expression(is_restricted=True)
            self.expect("AND")

            def between(operand: Any, high: Node) -> Node:
                return _negated(syntax.Between(operand, low, high, is_symmetric), is_negated)

            return left, _Operator(_RANGE, between)
        if word == "SIMILAR":
            self.expect("TO")
        operator = word.lower()
        if quantifier := self.accept_any(("ANY", "ALL", "SOME")):
            right = yield self._parenthesis()
            return syntax.Quantified(operator, left, right, quantifier == "ALL"), None

        def make(operand: Any, pattern: Node) -> Node:
            return _negated(syntax.Like(operator, operand, pattern), is_negated)

        return left, _Operator(_RANGE, make)

    def _is(self, left: Node) -> tuple[Node, _Operator | None]:
        self.index += 1
        is_negated = self.accept("NOT")
        if self.accept_all("DISTINCT", "FROM"):
            name = "is not distinct from" if is_negated else "is distinct from"
            return left, _Operator(_IS, partial(syntax.Binary, name))
        what = self.expect_any("NULL", "TRUE", "FALSE", "UNKNOWN")
        return _negated(syntax.Is(left, what), is_negated), None

    def _operand(self) -> Node | None:
        """Read an operand in which there is no other; None where there may be one."""
        token = self.tokens[self.index]
        kind, word = token.kind, token.word
        if kind == "word":
            if word == "PG_CATALOG" and self.words[self.index + 1 : self.index + 4 : 2] == [
                ".",
                "(",
            ]:
                self.index += 2  # the schema of all functions
                return None
            if self.words[self.index + 1] == "(" or word == "CASE" or word == "ARRAY":
                return None
            return self._constant(word, token.start) or self._column()
        placeholder = self.placeholder()
        if placeholder is not None:
            return syntax.Placeholder(placeholder, token.start)
        if kind == "number":
            following = self.scanned.text[token.end : token.end + 1]
            if following.isalnum() or following == "_" or following > "\x7f":  # 1e, 1x
                raise self.unexpected()
            self.index += 1
            return syntax.Number(token.text, token.start)
        if kind == "string":
            return self._string()
        if kind == "special":
            self.index += 1
            return syntax.String("", token.start, token.text)
        return self._column() if kind == "name" and self.words[self.index + 1] != "(" else None

    def _string(self) -> syntax.String:
        tokens = self.tokens
        token = before = tokens[self.index]
        text = token.text
        self.index += 1
        source = self.scanned.text
        while tokens[self.index].kind == "string":  # 'a' 'b' is one where a line lies between
            token = tokens[self.index]
            is_begun = source[token.start] in "eE"  # E'…' goes on with '…', but continues none
            if is_begun or not _LINE_END.search(source, before.end, token.start):
                raise self.unexpected()
            text += token.text
            before = token
            self.index += 1
        return syntax.String(text, token.start)

    def _column(self) -> Node:
        start = self.tokens[self.index].start
        name, table = self.name(), None
        if self.words[self.index] == ".":
            self.index += 1
            table, name = name, self.label()
            if self.words[self.index] == ".":
                self.expect_public(table, "a column name")
                table, name = name, self.label()
            if self.words[self.index] == "(":
                raise self.refused("a function with a schema", NO_SCHEMAS)
        return syntax.Column(name, table, start)

    def _parenthesis(self) -> Steps:
        """Read (query), (expression) or (expression, …): a Subquery, Paren or Row."""
        self.expect("(")
        if self.words[self.index] in QUERIES:
            query = yield self.whole_query()
            self.expect(")")
            return syntax.Subquery(query)
        first: Node | None = None
        if self.words[self.index] == "(":
            first = yield self._parenthesis()
            if isinstance(first, syntax.Subquery):
                begin = self.index
                query = yield from self.query_tail(first)
                if self.accept(")"):
                    return syntax.Subquery(query)
                if self.index != begin:
                    raise self.unexpected()
        items = [(yield self.expression(first=first))]
        if self.accept(","):
            items += yield from self._list()
        self.expect(")")
        return syntax.Paren(items[0]) if len(items) == 1 else syntax.Row(items)

    def _construct(self) -> Steps:
        """Read an operand in which there are others."""
        token = self.tokens[self.index]
        word = token.word
        if word == "(":
            return (yield from self._parenthesis())
        if word == "CASE":
            return (yield from self._case())
        if self.words[self.index + 1] == "(" and token.kind in ("word", "name"):
            return (yield from self._called(word, token.start))
        if word != "ARRAY" or self.words[self.index + 1] != "[":
            raise self.unexpected()
        self.index += 2
        items: list[Node] = [] if self.words[self.index] == "]" else (yield from self._list())
        self.expect("]")
        return syntax.Array(items, token.start)

    def _constant(self, word: str, start: int) -> Node | None:
        """Read what is a word and no name, or a type with its constant; None for a column."""
        if word == "INTERVAL" and self.kinds[self.index + 1] == "string":
            return self._interval(start)
        if word in _LITERAL_TYPES and self._is_before_string():
            type_name = self.type()
            return syntax.Cast(self._string(), type_name)
        if word not in RESERVED and word != "CURRENT_SCHEMA":
            return None
        node: Node | None = None
        if word in _CONSTANTS:
            node = syntax.Constant(_CONSTANTS[word], start)
        elif word in _WORDS_CALLED:
            node = syntax.Call(word.lower(), [], start, is_word=True)
        elif word == "DEFAULT" and self.allows_default:
            node = syntax.Default(start)
        self.index += node is not None
        return node

    def _is_before_string(self) -> bool:
        """Tell whether the type that begins here is followed by its constant."""
        words, place = self.words, self.index + 1
        if words[place] in ("PRECISION", "VARYING"):
            place += 1
        if words[place] == "(":
            while words[place] != ")" and self.kinds[place] in ("number", "symbol"):
                place += 1
            place += 1
        if words[place] in ("WITH", "WITHOUT"):
            place += 3
        return self.kinds[min(place, len(self.kinds) - 1)] == "string"

    def _interval(self, start: int) -> Node:
        """Read INTERVAL '1 day', or INTERVAL '1' DAY."""
        self.index += 1
        place = self.tokens[self.index].start
        literal = self._string()
        type_name = syntax.TypeName("INTERVAL", [], "interval", start)
        unit = self.accept_any(_UNITS)
        if not unit:
            return syntax.Cast(literal, type_name)
        number = _PLAIN_NUMBER.fullmatch(literal.text)
        if number is None:
            self.index -= 1
            raise NotSupportedError(
                f"INTERVAL '{shortened(literal.text)}' {unit}: the unit stands beside a number "
                "only",
                position=self.tokens[self.index].start + 1,
            )
        if self.words[self.index] == "TO":
            raise self.refused(f"INTERVAL … {unit} TO")
        # PostgreSQL cuts off what is smaller than the unit; of seconds nothing is.
        text = literal.text if unit == "SECOND" else number[1]
        return syntax.Cast(syntax.String(f"{text} {unit}", place), type_name)

    def _case(self) -> Steps:
        start = self.tokens[self.index].start
        self.index += 1
        operand = None if self.words[self.index] == "WHEN" else (yield from self._item())
        branches: list[tuple[Node, Node]] = []
        while not branches or self.words[self.index] == "WHEN":
            self.expect("WHEN")
            condition = yield from self._item()
            self.expect("THEN")
            branches.append((condition, (yield from self._item())))
        otherwise = (yield from self._item()) if self.accept("ELSE") else None
        self.expect("END")
        return syntax.Case(operand, branches, otherwise, start)

    # --- calls -----------------------------------------------------------------------------------

    def _called(self, word: str, start: int) -> Steps:
        """Read what begins with a word and a parenthesis."""
        is_word = self.kinds[self.index] == "word"
        if is_word and word in ("CAST", "TRY_CAST"):
            if word == "TRY_CAST":
                raise self.refused("try_cast()")
            self.index += 2
            operand = yield self.expression()
            self.expect("AS")
            type_name = self.type()
            self.expect(")")
            return syntax.Cast(operand, type_name)
        if is_word and word == "EXISTS":
            self.index += 1
            found = yield self._parenthesis()
            if not isinstance(found, syntax.Subquery):
                raise self.unexpected()
            return syntax.Exists(found.query, start)
        if is_word and word in _SPELLED:
            return (yield from self._spelled(word, start))
        if is_word and word in _MOMENTS:
            raise self.refused(f"{word.lower()} with a number of digits")
        if is_word and word in _LITERAL_TYPES and self._is_before_string():
            return self._constant(word, start)
        name = self.label() if is_word and word in FUNCTION_WORDS else self.name()
        if not is_word and name in _NO_FUNCTIONS:
            raise ProgrammingError(
                f'function "{name}" does not exist',
                sqlstate="42883",
                position=start + 1,
                hint=f"Write {name} without quotes: it is a word of SQL.",
            )
        call = syntax.Call(name, [], start)
        self.index += 1
        if self.accept("*"):
            call.is_star = True
        elif self.words[self.index] != ")" or self.kinds[self.index] != "symbol":
            call.is_distinct = self.accept_any(("ALL", "DISTINCT")) == "DISTINCT"
            call.arguments = yield from self._list()
            call.order = yield from self._order_by()
        self.expect(")")
        word = self.words[self.index]
        if word == "WITHIN" and self.words[self.index + 1] == "GROUP":
            raise self.refused("WITHIN GROUP")
        if word == "FILTER":
            self.index += 1
            self.expect_all("(", "WHERE")
            call.filter = yield self.expression()
            self.expect(")")
        if self.accept("OVER"):
            if self.words[self.index] == "(":
                call.over = yield from self._window()
            else:
                place = self.tokens[self.index].start
                call.over = syntax.Window(self.name(), [], [], None, place)
        return call

    def _spelled(self, word: str, start: int) -> Steps:
        """Read the functions whose arguments are parted by words."""
        self.index += 2
        call = syntax.Call(word.lower(), [], start)
        arguments = call.arguments
        if word == "EXTRACT":
            token = self.tokens[self.index]
            if token.kind == "string":
                self.index += 1
                field = token.text
            else:
                field = self.label()
            self.expect("FROM")
            arguments += (syntax.String(field, token.start), (yield self.expression()))
        elif word == "POSITION":
            part = yield self.expression(is_restricted=True)
            self.expect("IN")
            arguments += ((yield self.expression(is_restricted=True)), part)
        elif word == "TRIM":
            call.side = self.accept_any(("BOTH", "LEADING", "TRAILING"))
            if not self.accept("FROM"):
                arguments.append((yield self.expression()))
                if self.accept("FROM"):
                    arguments.insert(0, (yield self.expression()))
                elif self.accept(","):
                    arguments += yield from self._list()
            else:
                arguments += yield from self._list()
        else:
            arguments.append((yield self.expression()))
            if self.accept(","):
                arguments += yield from self._list()
            else:
                yield from self._part(word, arguments)
        self.expect(")")
        return call

    def _part(self, word: str, arguments: list[Node]) -> Steps:
        """Read FROM and FOR of SUBSTRING and OVERLAY, in any order."""
        if word == "OVERLAY":
            self.expect("PLACING")
            arguments.append((yield self.expression()))
            if self.words[self.index] != "FROM":
                raise self.unexpected()
        found: dict[str, Node] = {}
        while (part := self.words[self.index]) in ("FROM", "FOR") and part not in found:
            self.index += 1
            found[part] = yield self.expression()
        if found:
            place = self.tokens[self.index].start
            arguments.append(found.get("FROM") or syntax.Number("1", place))
        if "FOR" in found:
            arguments.append(found["FOR"])

    def _window(self) -> Steps:
        start = self.tokens[self.index].start
        self.expect("(")
        window = syntax.Window(None, [], [], None, start)
        if self.is_name() and self.words[self.index] not in (
            "PARTITION", "RANGE", "ROWS", "GROUPS",
        ):  # fmt: skip
            window.base = self.name()
        if self.accept_all("PARTITION", "BY"):
            window.partition = yield from self._list()
        window.order = yield from self._order_by()
        if kind := self.accept_any(("RANGE", "ROWS", "GROUPS")):
            last = None
            is_between = self.accept("BETWEEN")
            first = yield from self._frame_bound()
            if is_between:
                self.expect("AND")
                last = yield from self._frame_bound()
            window.frame = syntax.Frame(kind, first, last)
        self.expect(")")
        return window

    def _frame_bound(self) -> Steps:
        if self.accept_all("CURRENT", "ROW"):
            return "CURRENT ROW", ""
        if self.accept("UNBOUNDED"):
            return "UNBOUNDED", self.expect_any("PRECEDING", "FOLLOWING")
        value = yield self.expression(is_restricted=True)
        return value, self.expect_any("PRECEDING", "FOLLOWING")

    # --- types -----------------------------------------------------------------------------------

    def type(self) -> syntax.TypeName:
        first = self.tokens[self.index]
        if self.words[self.index] in RESERVED:
            raise self.unexpected()
        is_internal = self.accept_all("PG_CATALOG", ".")
        word = self.label().upper()
        if is_internal and word not in _INTERNAL_TYPES:
            name = f"pg_catalog.{word.lower()}"
            position = first.start + 1
            raise ProgrammingError(
                f'type "{name}" does not exist', sqlstate="42704", position=position
            )
        if word == "DOUBLE":
            self.accept("PRECISION")  # DOUBLE alone is this database's own name for it
        elif word in ("CHARACTER", "CHAR", "BIT", "NCHAR") and self.accept("VARYING"):
            word += " VARYING"
        numbers = self._numbers()
        if word in ("TIME", "TIMESTAMP") and self.words[self.index] in ("WITH", "WITHOUT"):
            word += "TZ" if self.words[self.index] == "WITH" else ""
            self.index += 1
            self.expect_all("TIME", "ZONE")
        if self.words[self.index] == "[":
            raise self.unexpected()
        end = self.tokens[self.index - 1].end
        return syntax.TypeName(word, numbers, self.scanned.text[first.start : end], first.start)

    def _numbers(self) -> list[int]:
        """Read (number, …), the digits behind a type."""
        found: list[int] = []
        while self.accept("," if found else "("):
            found.append(self.number("", _TYPE_DIGITS_MAX))
        if found:
            self.expect(")")
        return found


def _open_like(test: Node) -> syntax.Like | None:
    """Return the LIKE, perhaps negated, that ESCAPE may follow."""
    like = test.operand if isinstance(test, syntax.Unary) else test
    return like if isinstance(like, syntax.Like) and like.escape is None else None


def _with_escape(test: Any, escape: Node) -> Node:
    if (like := _open_like(test)) is not None:
        like.escape = escape
    return test


def _negated(test: Node, is_negated: bool) -> Node:
    return syntax.Unary("not", test) if is_negated else test
