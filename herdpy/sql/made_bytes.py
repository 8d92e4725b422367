"""How many bytes of texts an expression makes for one row, by the lengths of what it is made of.

DuckDB computes 2,048 rows at a time and counts none of the texts that it makes of them. So where
texts may be long (exec/vector/wide_texts.py) the printer has those of each expression added up and
counted before they are made, by a sum of lengths of its columns, parameters and the like. The same
sums, with one length for all, say beforehand from which length on that matters (text_growth.py).

What is made is counted whole, the values between two calls, too, and once more where a call gets
what another one has made: DuckDB may copy it. Of branches the longest counts. Where a length is not
to be told by others, as of repeat(x, n + 1), the function's own macro has counted what it makes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from herdpy.limits import value_bytes_max
from herdpy.model.types import Kind
from herdpy.sql import tree
from herdpy.sql.value_sizes import CHARACTER_MAX, CHOOSING, SHORT

FACTOR_MAX = value_bytes_max
_PADDED_MAX = 10_485_760  # characters: h_width
_COUNTS = {"left": 1, "right": 1, "substring": 2}
"""Which argument is how many characters there are at the most."""
_HEX = 2  # digits of a byte
_LISTED = {"split_part": 17, "reverse": 40}
"""Whose macros make a list of their argument's pieces: bytes for each of its bytes, at most."""
_NUMBER_BYTES = 32  # of a number or a date as text, most are shorter
_SHORT_COUNT = 400  # characters

Size = Mapping[str, int]
"""A sum: what the length of each is multiplied by; BYTES is multiplied by 1."""
BYTES = "1"
Lengths = Callable[[tree.Expression], str | None]
"""The text of the length of a column, a parameter or the like, in bytes; None: there is none."""
_NOTHING: Size = {}


def is_text(node: tree.Expression) -> bool:
    return node.type.kind in (Kind.TEXT, Kind.BYTEA)


@dataclass(frozen=True, slots=True)
class Made:
    """What an expression makes: its value's bytes at most, and those of all texts on the way.

    is_bounded: the lengths of columns and parameters bound them.
    """

    value: Size
    total: Size
    is_bounded: bool = True


def _sum(*sizes: Size) -> Size:
    found: dict[str, int] = {}
    for size in sizes:
        for name, factor in size.items():
            found[name] = min(found.get(name, 0) + factor, FACTOR_MAX)
    return found


def _longest(*sizes: Size) -> Size:
    found: dict[str, int] = {}
    for size in sizes:
        for name, factor in size.items():
            found[name] = max(found.get(name, 0), factor)
    return found


def _times(size: Size, factor: int) -> Size:
    return {name: min(each * factor, FACTOR_MAX) for name, each in size.items()}


def _bytes(count: int) -> Size:
    return {BYTES: min(max(count, 0), FACTOR_MAX)}


def _utf8(node: tree.Expression) -> int | None:
    """Return the bytes of a constant text, None of all others."""
    if isinstance(node, tree.Literal) and isinstance(node.value, str | bytes):
        return len(node.value if isinstance(node.value, bytes) else node.value.encode())
    return None


def _number(node: tree.Expression) -> int | None:
    """Return a constant number, None for all others."""
    while isinstance(node, tree.Cast):
        node = node.operand
    return node.value if isinstance(node, tree.Literal) and isinstance(node.value, int) else None


class MadeBytes:
    """What expressions make, where `lengths` gives the texts of lengths."""

    def __init__(self, lengths: Lengths, is_leaf: Callable[[tree.Expression], bool]) -> None:
        """is_leaf: what DuckDB has computed before, as aggregates and keys of groups."""
        self._lengths = lengths
        self._is_leaf = is_leaf
        self._variables: dict[int, Made] = {}

    def of(self, node: tree.Expression) -> Made:
        """Return what a text or a bytea makes; what is neither has a few bytes as a text."""
        if not is_text(node):
            return Made(_bytes(_NUMBER_BYTES), _NOTHING)
        if isinstance(node, tree.Variable) and node.index in self._variables:
            return Made(self._variables[node.index].value, _NOTHING)
        if self._is_leaf(node) or isinstance(node, tree.Atom):
            return self._leaf(node)
        match node:
            case tree.Cast():
                return self._cast(node)
            case tree.Let(bindings=bindings, body=body):
                bound = [(index, self.of(value)) for index, value in bindings if is_text(value)]
                self._variables.update(bound)
                found = self.of(body)
                copied = [size for _, made in bound for size in (made.value, made.total)]
                is_bounded = found.is_bounded and all(made.is_bounded for _, made in bound)
                return Made(found.value, _sum(found.total, *copied), is_bounded)
            case tree.Case(branches=branches, otherwise=otherwise):
                results = [result for _, result in branches]
                results += [] if otherwise is None else [otherwise]
                return self._either([self.of(result) for result in results])
            case tree.Call():
                return self._call(node)
            case _:
                return self._leaf(node)

    def _leaf(self, node: tree.Expression) -> Made:
        if isinstance(node, tree.Literal):
            return Made(_bytes(_utf8(node) or 0), _NOTHING)
        length = self._lengths(node)
        if length is None:
            return Made(_NOTHING, _NOTHING, is_bounded=False)
        # Of which there is no more than memory for, but of any number of short texts.
        is_joined = isinstance(node, tree.Aggregate) and node.function == "string_agg"
        return Made({length: 1}, _NOTHING, not is_joined)

    def _either(self, found: list[Made]) -> Made:
        return Made(
            _longest(*(made.value for made in found)),
            _longest(*(made.total for made in found)),
            all(made.is_bounded for made in found),
        )

    def _cast(self, cast: tree.Cast) -> Made:
        operand, length = cast.operand, cast.type.length
        if not is_text(operand):
            return Made(_bytes(_NUMBER_BYTES), _bytes(_NUMBER_BYTES))
        found = self.of(operand)
        value, total = found.value, self._handed(operand, found)
        if operand.type.kind is Kind.BYTEA and cast.type.kind is Kind.TEXT:
            value = _sum(_times(value, _HEX), _bytes(_HEX))  # \x
            total = _sum(total, _times(value, 3))  # hex(), lower() of it, and \x before it
        elif operand.type.kind is Kind.TEXT and cast.type.kind is Kind.BYTEA:
            total = _sum(total, _times(value, 2))
        elif length is not None:
            total = _sum(total, value)
            value = _bytes(CHARACTER_MAX * length)
        return Made(value, total, found.is_bounded)

    def _handed(self, node: tree.Expression, made: Made) -> Size:
        """Return what an argument makes until the call has it."""
        is_there = isinstance(node, tree.Atom) or self._is_leaf(node)
        return made.total if is_there else _sum(made.total, made.value)

    def _call(self, call: tree.Call) -> Made:
        name, arguments = call.function, call.arguments
        found = [self.of(argument) for argument in arguments]
        handed = _sum(*map(self._handed, arguments, found))
        if name == "||":  # a chain of which is one of calls
            handed = _sum(*(made.total for made in found))
        is_bounded = all(made.is_bounded for made in found)
        sizes = [made.value for made in found]
        if name in _LISTED:
            handed = _sum(handed, _times(sizes[0], _LISTED[name]))
        if name in SHORT:
            return Made(_bytes(_NUMBER_BYTES), handed)
        if name in CHOOSING:
            return Made(_longest(*sizes), handed, is_bounded)
        value = self._value(call, sizes)
        if value is None:
            return Made(sizes[0] if name == "replace" else _NOTHING, handed, is_bounded=False)
        made = _times(value, _HEX) if name in ("encode", "decode") else value
        if name == "||":
            made = _joined(sizes)
        return Made(value, _sum(handed, made), is_bounded)

    def _value(self, call: tree.Call, sizes: list[Size]) -> Size | None:
        """Return the size of what a function makes, None where lengths do not tell it."""
        name, arguments = call.function, call.arguments
        last = _number(arguments[-1])
        if name == "repeat":
            return None if last is None else _times(sizes[0], max(last, 0))
        if name in ("lpad", "rpad"):
            wide = _number(arguments[1])
            return None if wide is None else _bytes(CHARACTER_MAX * min(wide, _PADDED_MAX))
        if name == "replace":
            return self._replaced(arguments, sizes)
        if _COUNTS.get(name) == len(arguments) - 1 and last is not None:
            shortest = _bytes(CHARACTER_MAX * last) if 0 <= last <= _SHORT_COUNT else None
            return shortest or sizes[0]
        if name == "encode":
            return _times(sizes[0], _HEX)
        if name == "translate":
            is_ascii = isinstance(arguments[2], tree.Literal) and str(arguments[2].value).isascii()
            return _times(sizes[0], 1 if is_ascii else CHARACTER_MAX)
        if name == "concat_ws":
            return _sum(_times(sizes[0], len(sizes) - 1), *sizes[1:])
        if name in ("||", "concat"):
            return _sum(*sizes)
        texts = [size for size, argument in zip(sizes, arguments, strict=True) if is_text(argument)]
        return texts[0] if texts else _bytes(_NUMBER_BYTES)

    def _replaced(self, arguments: tuple[tree.Expression, ...], sizes: list[Size]) -> Size | None:
        old, new = _utf8(arguments[1]), _utf8(arguments[2])
        if new is None:
            return None
        return _times(sizes[0], max(-(-new // max(old or 1, 1)), 1))


def _joined(sizes: list[Size]) -> Size:
    """Return what a chain of || makes: DuckDB joins the first two, then each with what it has."""
    count = len(sizes)
    places = (_times(size, count - max(place, 1)) for place, size in enumerate(sizes))
    return _sum(*places)


class Varying:
    """Finds all in an expression that may be another value in each row: leaves, columns, random().

    It looks at each part once, also where it is asked of each text in a text. is_leaf must not
    change.
    """

    def __init__(self, is_leaf: Callable[[tree.Expression], bool]) -> None:
        self._is_leaf = is_leaf
        # By id, with the node, so that no other one gets its id: comparing nodes walks them.
        self._known: dict[int, tuple[tree.Expression, dict[tree.Expression, None]]] = {}

    def of(self, expression: tree.Expression) -> dict[tree.Expression, None]:
        """Return them, each once, in their order; Variables without those bound in it."""
        known = self._known.get(id(expression))
        if known is None:
            known = self._known[id(expression)] = expression, self._found(expression)
        return known[1]

    def _found(self, part: tree.Expression) -> dict[tree.Expression, None]:
        if isinstance(part, tree.Subquery):  # what it is computed of is not there
            if isinstance(part, tree.RowInQuery):
                return {found: None for operand in part.operands for found in self.of(operand)}
            is_alone = isinstance(part, (tree.ScalarSubquery, tree.Exists))
            return {} if is_alone else self.of(part.operand)
        is_random = isinstance(part, tree.Call) and part.function == "random"
        is_column = isinstance(part, (tree.ColumnRef, tree.Variable))
        if is_column or is_random or self._is_leaf(part):
            return {part: None}
        found: dict[tree.Expression, None] = {}
        pending: list[object] = tree.parts(part)
        while pending:
            inner = pending.pop()
            if isinstance(inner, tuple):
                pending += inner[::-1]  # pyright: ignore[reportUnknownArgumentType]
            elif isinstance(inner, tree.Expression):
                found.update(self.of(inner))
        if isinstance(part, tree.Let):
            own = {index for index, _ in part.bindings}
            found = {
                inner: None
                for inner in found
                if not (isinstance(inner, tree.Variable) and inner.index in own)
            }
        return found
