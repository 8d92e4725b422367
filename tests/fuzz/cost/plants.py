"""The faults that the counted statements have to find (tests/fixtures/plants.py)."""

from typing import Any

from herdpy.sql.duckdb_text import _Printer
from herdpy.sql.reading.extent import Budget
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
    def case(self: _Printer, node: Any) -> str:
        if len(node.branches) > 20:
            raise LookupError("planted")
        return right(self, node)

    return case


PLANTS = {
    "an operand is printed wherever it is needed": Plant(_Printer, "applied", _printed_again),
    "a pass begins anew for each node": Plant(Budget, "spend", _counted_anew),
    "a branch too many raises": Plant(_Printer, "case", _fails_on_many),
}
