"""Model: what the database must contain, kept beside it from the statements alone.

Commits are numbered in the order in which they entered the log. A crash may take away a suffix of
them, never one that was acknowledged with durability sync and never one that a reader of durable
data has seen; whatever is left is whole. So the states allowed after a crash are those after
commit number n, for every n from `required` to the last.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Key = tuple[Any, ...]
Row = tuple[Any, ...]
Rows = dict[Key, Row]
Token = tuple[str, int]


class Shape(NamedTuple):
    """A kind of table: its columns in SQL and how many of them, at the front, are the key."""

    columns: str
    width: int
    key_width: int
    is_indexed: bool = False

    @property
    def is_heap(self) -> bool:
        return self.key_width == 0

    @property
    def names(self) -> str:
        """The columns that the model knows."""
        return "k, p, v, s" if self.width == 4 else "k, v, s"


SINGLE = Shape("k BIGINT PRIMARY KEY, v BIGINT, s TEXT", 3, 1)
PAIR = Shape("k BIGINT, p TEXT, v BIGINT, s TEXT, PRIMARY KEY (k, p)", 4, 2)
# No two rows have one key: so no UNIQUE of it, and of more, is ever violated.
INDEXED = Shape(
    "k BIGINT PRIMARY KEY, v BIGINT CHECK (v >= 0), s TEXT, UNIQUE (v, k), UNIQUE (s, k)",
    3,
    1,
    True,
)
HEAP = Shape("k BIGINT, v BIGINT, s TEXT", 3, 0)
# The model does not know the column that a sequence fills, which is the last one.
FILLED = Shape("k BIGINT, v BIGINT, s TEXT, i BIGINT GENERATED ALWAYS AS IDENTITY", 3, 0)
# A name always has the same shape, so that a statement fits whatever table it meets.
SHAPES = {"a": SINGLE, "b": PAIR, "h": HEAP, "c": INDEXED, "d": FILLED}

ROLES, GRANTS = "sysroles", "sysgrants"
"""Tables that are always there: statements about roles and rights change them."""
SYSTEM = {ROLES: 0, GRANTS: 1}


class RefusedError(Exception):
    """The statement must fail with this SQLSTATE and change nothing."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__(sqlstate)
        self.sqlstate = sqlstate


class Content:
    """Everything committed at one moment: tables by name, rows by table number."""

    def __init__(self) -> None:
        self.names: dict[str, int] = dict(SYSTEM)
        self.rows: dict[int, Rows] = {number: {} for number in SYSTEM.values()}
        self.tokens: frozenset[Token] = frozenset()
        """Of the commits that carried one."""
        self.sequence = 0
        """How many commits there were."""
        self.changed: dict[tuple[int, Key], int] = {}
        """By table and key, which commit was the last to change the row."""
        self.changed_tables: dict[int, int] = {}

    def copy(self) -> "Content":
        other = Content()
        other.tokens = self.tokens
        other.sequence = self.sequence
        other.changed, other.changed_tables = self.changed.copy(), self.changed_tables.copy()
        other.names = self.names.copy()
        other.rows = {number: rows.copy() for number, rows in self.rows.items()}
        return other

    def apply(self, work: "Work") -> None:
        if work.token is not None:
            self.tokens |= {work.token}
        self.sequence += 1
        for number, changes in work.rows.items():
            self.changed_tables[number] = self.sequence
            self.changed.update(dict.fromkeys(((number, key) for key in changes), self.sequence))
        for name, number in work.catalog.items():
            old = self.names.pop(name, None)
            if old is not None:
                del self.rows[old]
            if number is not None:
                self.names[name] = number
                self.rows[number] = {}
        for number, changes in work.rows.items():
            rows = self.rows.get(number)
            if rows is not None:  # else made and dropped within this very transaction
                for key, row in changes.items():
                    if row is None:
                        rows.pop(key, None)
                    else:
                        rows[key] = row

    def plain(self) -> dict[str, list[Row]]:
        """Return each table's rows in order; a heap's sorted by value, as its keys are hidden."""
        return {name: ordered(self.rows[number].values()) for name, number in self.names.items()}

    def tables(self) -> dict[str, list[Row]]:
        """Return plain() without what is no table of a user."""
        return {name: rows for name, rows in self.plain().items() if name not in SYSTEM}


def ordered(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: tuple((cell is None, cell) for cell in row))


@dataclass(eq=False)
class Work:
    """What one transaction did so far; `is_sync` is the durability of its commit."""

    is_sync: bool
    catalog: dict[str, int | None] = field(default_factory=dict)
    rows: dict[int, dict[Key, Row | None]] = field(default_factory=dict)
    token: Token | None = None
    """That its commit carries, if it has anything to commit."""
    is_repeatable: bool = False
    """All its statements read what was committed when the first of them began."""
    base: Content | None = None
    """That, once it is known."""
    touched: set[tuple[int, Key]] = field(default_factory=set)
    """What it has changed, also what it has taken back since: by table and key."""

    @property
    def is_empty(self) -> bool:
        return not self.catalog and not self.rows

    def add(self, number: int, changes: dict[Key, Row | None]) -> None:
        if changes:
            self.rows.setdefault(number, {}).update(changes)
            self.touched.update((number, key) for key in changes)

    def copy(self) -> "Work":
        rows = {number: changes.copy() for number, changes in self.rows.items()}
        return Work(
            self.is_sync,
            self.catalog.copy(),
            rows,
            self.token,
            self.is_repeatable,
            self.base,
            self.touched.copy(),
        )

    def become(self, other: "Work") -> None:
        """Take over what another one did: what this one has done, and more."""
        self.catalog, self.rows = other.catalog, other.rows
        self.touched |= other.touched


class Pending(NamedTuple):
    """A commit that is in the log, and how to ask whether the engine calls it done."""

    work: Work
    is_done: Callable[[], bool]


class Model:
    """See the module. The simulation says when something was logged, done, or lost."""

    def __init__(self, first: Content | None = None) -> None:
        """first: what there is from the beginning."""
        self.visible = (first or Content()).copy()
        # After commit number `required`; below it nothing can be lost.
        self._base = self.visible.copy()
        self._commits: list[Work] = []  # logged behind the base, in order
        self._required = 0  # how many of _commits must survive
        self._pending: list[Pending] = []  # a suffix of _commits: not visible yet
        self._next = 1

    @property
    def has_pending(self) -> bool:
        """Return whether a commit is in the log that the engine does not call done."""
        self.refresh()
        return bool(self._pending)

    def new_number(self) -> int:
        self._next += 1
        return self._next

    def logged_content(self) -> Content:
        """Return what is committed when all is done that is in the log now."""
        self.refresh()
        content = self.visible.copy()
        for item in self._pending:
            content.apply(item.work)
        return content

    # --- what a statement sees -------------------------------------------------------------------

    def table(self, name: str, work: Work | None) -> tuple[int, Rows]:
        """Return number and rows as a transaction sees them; RefusedError 42P01 if none."""
        self.refresh()
        content = self.visible
        if work is not None and work.base is not None and name not in SYSTEM:  # as it is now
            content = work.base
        number = content.names.get(name)
        if work is not None and name in work.catalog:
            number = work.catalog[name]
        if number is None:
            raise RefusedError("42P01")
        rows = content.rows.get(number, {})
        own = work.rows.get(number) if work is not None else None
        if own:
            rows = {**rows, **own}
            rows = {key: row for key, row in rows.items() if row is not None}
        return number, rows

    def may_conflict(self, name: str, work: Work) -> bool:
        """Return whether others have changed a table since what a transaction reads of it."""
        self.refresh()
        base = work.base
        if base is None:
            return False
        number = base.names.get(name)
        if number != self.visible.names.get(name):
            return True
        return number is not None and self.visible.changed_tables.get(number, 0) > base.sequence

    def check_no_conflict(self, work: Work) -> None:
        """AssertionError: others have changed since its snapshot what a transaction has changed.

        Of a row that was not there, and is not, nothing tells that it has been there between.
        """
        self.refresh()
        base = work.base
        for number, key in work.touched if base is not None else ():
            if base is None or self.visible.changed.get((number, key), 0) <= base.sequence:
                continue
            rows = (base.rows.get(number, {}), self.visible.rows.get(number, {}))
            if number not in SYSTEM.values() and any(key in each for each in rows):
                raise AssertionError(f"row {key} was changed since the snapshot, and written over")

    # --- the life of a commit --------------------------------------------------------------------

    def logged(self, work: Work, is_done: Callable[[], bool]) -> None:
        """The records that end `work` are in the log."""
        self._commits.append(work)
        self._pending.append(Pending(work, is_done))
        self.refresh()

    def refresh(self) -> None:
        """Move to `visible`, in the order of the log, what the engine calls done."""
        while self._pending and self._pending[0].is_done():
            work = self._pending.pop(0).work
            self.visible.apply(work)
            if work.is_sync:
                self._require(len(self._commits) - len(self._pending))

    def acknowledged(self, work: Work) -> None:
        """The user was told; InvariantViolation of ours if the engine had not called it done."""
        self.refresh()
        if any(item.work is work for item in self._pending):
            raise AssertionError("a commit was acknowledged before it was applied")

    def all_durable(self) -> None:
        """The database was closed: nothing of what was logged may be lost any more."""
        self.refresh()
        if self._pending:
            raise AssertionError(f"{len(self._pending)} logged commits were never applied")
        self._require(len(self._commits))

    def _require(self, count: int) -> None:
        self._required = max(self._required, count)
        # Keep the list short: what must survive is folded into the base.
        if self._required > 32:
            self._fold(self._required)

    def _fold(self, count: int) -> None:
        for work in self._commits[:count]:
            self._base.apply(work)
        del self._commits[:count]
        self._required -= count

    # --- after a crash ---------------------------------------------------------------------------

    def survive(self, found: dict[str, list[Row]], tokens: frozenset[Token]) -> None:
        """Take up the state that was found after a crash; AssertionError if it is not allowed.

        `tokens` are those of which a client is told that they committed.
        """
        candidate = self._base.copy()
        for work in self._commits[: self._required]:
            candidate.apply(work)
        count = self._required
        first = candidate.plain()
        while candidate.plain() != found or candidate.tokens != tokens:
            if count == len(self._commits):
                if candidate.plain() == found:
                    raise AssertionError(f"tokens {sorted(candidate.tokens ^ tokens)} are wrong")
                raise AssertionError(self._complain(found, first))
            candidate.apply(self._commits[count])
            count += 1
        self._base = candidate
        self.visible = candidate.copy()
        self._commits = []
        self._pending = []
        self._required = 0

    def _complain(self, found: dict[str, list[Row]], first: dict[str, list[Row]]) -> str:
        optional = len(self._commits) - self._required
        lines = [f"no state allowed after the crash; {optional} commits were free to be lost"]
        for name in sorted({*found, *first}):
            if found.get(name) == first.get(name):
                continue
            if name not in found or name not in first:
                lines.append(f"table {name}: found {name in found}, expected {name in first}")
                continue
            lines.append(
                f"table {name}: without any of those, too much: "
                f"{[row for row in found[name] if row not in first[name]][:8]}, "
                f"missing: {[row for row in first[name] if row not in found[name]][:8]}"
            )
        return "\n  ".join(lines)
