"""The faults that the counted statements have to find (tests/fixtures/plants.py)."""

from typing import Any

from herdpy.errors import InternalError
from herdpy.exec.vector import duck
from herdpy.sql import tree
from herdpy.sql.duckdb_text import _Printer
from herdpy.sql.reading.extent import Budget, Extent
from herdpy.sql.scope import StatementContext
from tests.fixtures.plants import Plant


def _printed_again(right: Any) -> Any:
    def applied(self: _Printer, arguments: Any, make: Any, printed: Any = None) -> str:
        return make([(printed or self.expression)(argument) for argument in arguments])

    return applied


def _counted_anew(right: Any) -> Any:
    def spend(self: Budget, count: int = 1) -> None:
        for number in range(self.count // 10):
            abs(number)
        right(self, count)

    return spend


def _fails_on_many(right: Any) -> Any:
    def expression(self: _Printer, expression: Any) -> str:
        if isinstance(expression, tree.Case) and len(expression.branches) > 20:
            raise LookupError("planted")
        return right(self, expression)

    return expression


def _walked_at_each_level(right: Any) -> Any:
    def expression(self: _Printer, expression: Any) -> str:
        for part in tree.walk(expression):
            abs(hash(part))
        return right(self, expression)

    return expression


def _printed_thrice(right: Any) -> Any:
    def expression(self: _Printer, expression: Any) -> str:
        text = right(self, expression)
        is_case = isinstance(expression, tree.Case)
        return f"(CASE WHEN {text} IS NULL THEN {text} ELSE {text} END)" if is_case else text

    return expression


def _keeps_what_it_read(right: Any) -> Any:
    kept: list[bytes] = []

    def add(self: Extent, word: str, start: int) -> None:
        kept.append(bytes(4 * start))
        right(self, word, start)

    return add


def _compared_with_all(right: Any) -> Any:
    def settle(
        self: StatementContext, expression: Any, wanted: Any = None, column: Any = None
    ) -> Any:
        for slot in self.slots[::8]:
            abs(hash(slot))
        return right(self, expression, wanted, column)

    return settle


PLANTS = {
    "a CASE stands three times": Plant(_Printer, "expression", _printed_thrice),
    "all below is walked at each level": Plant(_Printer, "expression", _walked_at_each_level),
    "a text is kept for each of its words": Plant(Extent, "add", _keeps_what_it_read),
    "a parameter is compared with all before": Plant(
        StatementContext, "settle", _compared_with_all
    ),
    "DuckDB's errors are told as they are": Plant(
        duck, "translate_error", lambda _: lambda text, sql: InternalError(f"{text}: {sql}")
    ),
    "an operand is printed wherever it is needed": Plant(_Printer, "applied", _printed_again),
    "a pass begins anew for each node": Plant(Budget, "spend", _counted_anew),
    "a branch too many raises": Plant(_Printer, "expression", _fails_on_many),
}
