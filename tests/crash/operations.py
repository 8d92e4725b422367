"""Operations: the statements of a history, each with its SQL and what it means for the model."""

import random
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.crash.model import ROLES, SHAPES, Key, Model, RefusedError, Row, Rows, Work

KEYS = 60
_WORDS = ("p", "q")
_TEXTS = (None, "x", "some text", "a longer text, so that log files fill up sooner" * 2)

Changes = dict[Key, Row | None]


class Operation(NamedTuple):
    """SQL text, parameters (a list of them: executemany), and the effect in the model.

    effect(rows, new_number) returns (changes, rows affected) or raises RefusedError. table "" with
    `define` is DDL.
    """

    text: str
    parameters: Any
    table: str
    effect: Callable[[Rows, Callable[[], int]], tuple[Changes, int]] | None = None
    select: Callable[[Rows], list[Row]] | None = None
    is_many: bool = False

    def run_on(self, model: Model, work: Work) -> int:
        """Add the effect to `work`; return the row count, or raise RefusedError."""
        if self.effect is None:
            self._define(model, work)
            return -1
        number, rows = model.table(self.table, work)
        changes, count = self.effect(rows, model.new_number)
        work.add(number, changes)
        return count

    def _define(self, model: Model, work: Work) -> None:
        is_there = True
        try:
            model.table(self.table, work)
        except RefusedError:
            is_there = False
        if self.text.startswith("TRUNCATE"):
            if not is_there:
                raise RefusedError("42P01")
            work.catalog[self.table] = model.new_number()
        elif self.text.startswith("CREATE"):
            if is_there:
                raise RefusedError("42P07")
            work.catalog[self.table] = model.new_number()
        else:
            if not is_there:
                raise RefusedError("42P01")
            work.catalog[self.table] = None


def create(name: str) -> Operation:
    return Operation(f"CREATE TABLE {name} ({SHAPES[name].columns})", None, name)


def drop(name: str) -> Operation:
    return Operation(f"DROP TABLE {name}", None, name)


def truncate(name: str) -> Operation:
    return Operation(f"TRUNCATE {name}", None, name)


def _row(rng: random.Random, name: str, key: int) -> Row:
    cells: list[Any] = [key]
    if SHAPES[name].width == 4:
        cells.append(rng.choice(_WORDS))
    return (*cells, rng.randrange(1000), rng.choice(_TEXTS))


def _key(name: str, row: Row, new_number: Callable[[], int]) -> Key:
    shape = SHAPES[name]
    return ("heap", new_number()) if shape.is_heap else row[: shape.key_width]


def insert(
    rng: random.Random,
    name: str,
    *,
    count: int,
    is_many: bool,
    is_upsert: bool,
    skips_conflicts: bool = False,
) -> Operation:
    low = rng.randrange(KEYS)
    keys = [low + index for index in range(count)]
    if rng.random() < 0.15:
        keys = [rng.randrange(KEYS) for _ in keys]
    rows = [_row(rng, name, key) for key in keys]
    shape = SHAPES[name]
    one = f"({', '.join('?' * shape.width)})"
    verb = "UPSERT" if is_upsert else "INSERT"
    tail = " ON CONFLICT DO NOTHING" if skips_conflicts else ""

    def effect(old: Rows, new_number: Callable[[], int]) -> tuple[Changes, int]:
        changes: Changes = {}
        for row in rows:
            key = _key(name, row, new_number)
            if skips_conflicts and (key in old or key in changes):
                continue
            if not is_upsert and (key in old or key in changes):
                raise RefusedError("23505")
            changes[key] = row
        return changes, len(changes) if skips_conflicts else len(rows)

    if is_many:
        text = f"{verb} INTO {name} VALUES {one}{tail}"
        return Operation(text, rows, name, effect, is_many=True)
    values = ", ".join([one] * count)
    flat = tuple(cell for row in rows for cell in row)
    return Operation(f"{verb} INTO {name} VALUES {values}{tail}", flat, name, effect)


def uniform(rng: random.Random) -> Operation:
    """Return an INSERT whose log record always has the same length."""
    row = (rng.randrange(KEYS), rng.randrange(256, 1000), "x")
    return Operation(
        "INSERT INTO h VALUES (?, ?, ?)",
        row,
        "h",
        lambda _, new_number: ({("heap", new_number()): row}, 1),
    )


def _range(rng: random.Random) -> tuple[int, int]:
    low = rng.randrange(KEYS)
    return low, low + rng.choice((0, 3, 10, 30))


def update(rng: random.Random, name: str) -> Operation:
    low, high = _range(rng)
    column = SHAPES[name].width - 2
    delta = rng.randrange(1, 9)

    def effect(old: Rows, _: Callable[[], int]) -> tuple[Changes, int]:
        changes: Changes = {
            key: (*row[:column], row[column] + delta, *row[column + 1 :])
            for key, row in old.items()
            if low <= row[0] <= high
        }
        return changes, len(changes)

    text = f"UPDATE {name} SET v = v + ? WHERE k BETWEEN ? AND ?"
    return Operation(text, (delta, low, high), name, effect)


def rekey(rng: random.Random, name: str) -> Operation:
    low, high = _range(rng)
    delta = rng.choice((-1, 1, 30))

    def effect(old: Rows, _: Callable[[], int]) -> tuple[Changes, int]:
        gone = {key: row for key, row in old.items() if low <= row[0] <= high}
        changes: Changes = dict.fromkeys(gone)
        for key, row in gone.items():
            new_key = (key[0] + delta, *key[1:])
            if new_key in old and new_key not in gone:
                raise RefusedError("23505")
            changes[new_key] = (row[0] + delta, *row[1:])
        return changes, len(gone)

    text = f"UPDATE {name} SET k = k + ? WHERE k BETWEEN ? AND ?"
    return Operation(text, (delta, low, high), name, effect)


def delete(rng: random.Random, name: str) -> Operation:
    low, high = _range(rng)

    def effect(old: Rows, _: Callable[[], int]) -> tuple[Changes, int]:
        changes: Changes = {key: None for key, row in old.items() if low <= row[0] <= high}
        return changes, len(changes)

    return Operation(f"DELETE FROM {name} WHERE k BETWEEN ? AND ?", (low, high), name, effect)


def select(rng: random.Random, name: str) -> Operation:
    low, high = _range(rng)

    def found(rows: Rows) -> list[Row]:
        return [row for row in rows.values() if low <= row[0] <= high]

    text = f"SELECT * FROM {name} WHERE k BETWEEN ? AND ?"
    return Operation(text, (low, high), name, select=found)


def role(rng: random.Random) -> Operation:
    """Return a statement about a role."""
    name = rng.choice(("r", "s", "t"))
    verb = rng.choice(("CREATE ROLE", "ALTER ROLE", "DROP ROLE"))
    can_login = rng.random() < 0.5
    option = "" if verb == "DROP ROLE" else (" NOLOGIN", " LOGIN")[can_login]

    def effect(old: Rows, _: Callable[[], int]) -> tuple[Changes, int]:
        if verb == "CREATE ROLE" and (name,) in old:
            raise RefusedError("42710")
        if verb != "CREATE ROLE" and (name,) not in old:
            raise RefusedError("42704")
        row = None if verb == "DROP ROLE" else (name, can_login, False, False)
        return {(name,): row}, -1

    return Operation(f"{verb} {name}{option}", None, ROLES, effect)


def draw(rng: random.Random, *, with_vector: bool) -> Operation:
    """Return a random operation; with_vector allows those that need DuckDB, rarely."""
    name = rng.choice("aaabbhhcd")
    shape = SHAPES[name]
    chance = rng.random()
    if chance < 0.02:
        return role(rng)
    if chance < 0.05:
        return rng.choice((create, drop))(rng.choice("cdcdcdh"))
    if chance < 0.06:
        return truncate(rng.choice("abchd"))
    if shape.is_heap:
        if with_vector and chance < 0.15:
            return rng.choice((update, delete, select))(rng, name)
        return insert(rng, name, count=rng.choice((1, 1, 3)), is_many=False, is_upsert=False)
    if chance < 0.10:
        count, is_many = rng.choice(((1, False), (3, False), (8, True)))
        return insert(
            rng, name, count=count, is_many=is_many, is_upsert=False, skips_conflicts=True
        )
    if chance < 0.30:
        return insert(rng, name, count=rng.choice((1, 1, 3)), is_many=False, is_upsert=False)
    if chance < 0.36:
        count = rng.choice((2, 8, 40))
        return insert(rng, name, count=count, is_many=True, is_upsert=rng.random() < 0.5)
    if chance < 0.48:
        return insert(rng, name, count=1, is_many=False, is_upsert=True)
    if chance < 0.68:
        return update(rng, name)
    if chance < 0.74:
        return rekey(rng, name)
    if chance < 0.88:
        return delete(rng, name)
    return select(rng, name)
