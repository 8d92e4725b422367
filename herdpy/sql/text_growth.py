"""From which length on the texts that a query makes are to be counted before they are made.

Short texts are not: that takes a call of Python's for each 2,048 rows, and tables in short batches.
The printer notes what each expression of a query makes; of what subqueries make, others make more.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass

from herdpy.limits import vector_small_bytes
from herdpy.sql import tree
from herdpy.sql.made_bytes import BYTES, FACTOR_MAX, MadeBytes
from herdpy.sql.value_sizes import CHARACTER_MAX

_LENGTH = "x"


@dataclass(frozen=True, slots=True)
class Growth:
    """How many bytes a query makes at once for a row, where no text it is given is longer."""

    base: int = 0
    factor: int = 0
    is_bounded: bool = True
    reads_texts: bool = False
    """A table's texts are read: of rows that a filter leaves few of DuckDB gathers copies."""

    def made(self, longest: int) -> int:
        return self.base + self.factor * longest

    def is_wide(self, longest: int, longest_of_tables: int = 0) -> bool:
        """Tell whether it may be too much to be made for 2,048 rows without being counted.

        longest: of tables, parameters and constants.
        """
        return (
            not self.is_bounded
            or self.made(longest) > vector_small_bytes
            or (self.reads_texts and longest_of_tables > vector_small_bytes)
        )


class GrowthOfQuery:
    """Gathers what the expressions of one query make, one by one."""

    def __init__(self) -> None:
        self._base = self._factor = self._constant = 0
        self._spread = 1
        self._is_bounded = True
        self._makes_long = self._reads_made = False

    def add_constant(self, value: object) -> None:
        if isinstance(value, str | bytes):
            self._constant = max(self._constant, CHARACTER_MAX * len(value))

    def add_join(self) -> None:
        """Note that rows are put together: DuckDB copies what it joins with few rows."""
        self._factor = max(self._factor, 1)

    def add(
        self,
        node: tree.Expression,
        is_leaf: Callable[[tree.Expression], bool],
        tables: Container[int],
    ) -> None:
        """Add a text that no other text is made of; `tables` are relations of tables' rows."""

        def length(leaf: tree.Expression) -> str:
            is_given = isinstance(leaf, tree.Parameter) or (
                isinstance(leaf, tree.ColumnRef) and leaf.relation in tables
            )
            self._reads_made |= not is_given
            return _LENGTH

        made = MadeBytes(length, is_leaf).of(node)
        # DuckDB has the texts of all expressions of a projection at once.
        self._base = min(self._base + made.total.get(BYTES, 0), FACTOR_MAX)
        self._factor = min(self._factor + made.total.get(_LENGTH, 0), FACTOR_MAX)
        self._constant = max(self._constant, made.value.get(BYTES, 0))
        self._spread = min(self._spread * max(made.value.get(_LENGTH, 0), 1), FACTOR_MAX)
        if not made.is_bounded:
            # Its own macro counts what the outermost call makes; not what others make of that.
            self._makes_long = True
            arguments = node.arguments if isinstance(node, tree.Call) else (node,)
            inner = MadeBytes(length, is_leaf)
            self._is_bounded &= all(inner.of(argument).is_bounded for argument in arguments)

    def growth(self, *, reads_texts: bool = False) -> Growth | None:
        """Return it for all, None: nothing is made, and no table's text is read."""
        if not (self._base or self._factor):
            if self._is_bounded and not reads_texts:
                return None
            return Growth(is_bounded=self._is_bounded, reads_texts=reads_texts)
        spread = self._spread if self._reads_made else 1
        return Growth(
            self._base + self._factor * self._constant,
            min(self._factor * spread, FACTOR_MAX),
            self._is_bounded and not (self._makes_long and self._reads_made),
            reads_texts,
        )
