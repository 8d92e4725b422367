"""Planted faults: what a comparison with PostgreSQL has to see."""

from collections.abc import Callable
from typing import Any

from herdpy.exec.row.expressions import Writer
from herdpy.sql import bind_expression, bind_function, conversions, duckdb_text
from herdpy.sql.tree import InList
from tests.fixtures.plants import Plant

Function = Callable[..., Any]


def _cutting(_right: Function) -> Function:
    def rescale(value: int, scale: int, target_scale: int) -> int:
        if target_scale >= scale:
            return value * 10 ** (target_scale - scale)
        quotient = abs(value) // 10 ** (scale - target_scale)
        return quotient if value >= 0 else -quotient

    return rescale


def _forgetting_not(right: Function) -> Function:
    return lambda expression: expression if isinstance(expression, InList) else right(expression)


def _without_nulls(_right: Function) -> Function:
    def connect(self: Writer, parts: Any, *, stop: str) -> str:
        tests = (f"({self.value(part)}) is {stop}" for part in parts)
        return f"({stop} if {' or '.join(tests)} else {stop == 'False'})"

    return connect


def _without_sign(right: Function) -> Function:
    def read(text: str) -> tuple[int, int, int] | None:
        found = right(text)
        return None if found is None else (abs(found[0]), *found[1:])

    return read


PLANTS: dict[str, Plant] = {
    "a constant is cut to its scale, not rounded": Plant(conversions, "rescale", _cutting),
    "an untyped constant takes the scale of the other": Plant(
        conversions, "untyped_number", lambda _: lambda _text, target: target
    ),
    "NOT IN is IN": Plant(bind_expression, "negate", _forgetting_not),
    "AND and OR of the row path know no NULL": Plant(Writer, "_connect", _without_nulls),
    "quotients have two places less": Plant(
        conversions, "quotient_scale", lambda right: lambda *scales: right(*scales) - 2
    ),
    "NULLS LAST are first": Plant(
        duckdb_text, "_directed", lambda right: lambda *key: right(*key).replace("LAST", "FIRST")
    ),
    "an interval's months have no sign": Plant(conversions, "read_interval", _without_sign),
    "concat writes booleans in full": Plant(
        bind_function, "as_text",
        lambda _: lambda found, node, scope: bind_expression.convert(
            found, bind_function.TEXT, node, scope
        ),
    ),
}  # fmt: skip
