"""Operations: the statements of a history, each with its SQL and what it means for the model."""

import random
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

import pyarrow as pa

from herdpy.engine.session.session import Session
from herdpy.engine.state.staged import Operation as StagingOperation
from herdpy.errors import Error
from tests.crash.model import GRANTS, ROLES, SHAPES, Key, Model, RefusedError, Row, Rows, Work

KEYS = 60
_WORDS = ("p", "q")
_TEXTS = (None, "x", "some text", "a longer text, so that log files fill up sooner" * 2)

Changes = dict[Key, Row | None]


class Operation(NamedTuple):
    """SQL text, parameters (a list of them: executemany), and the effect in the model.

    effect(rows, new_number) returns (changes, rows affected) or raises RefusedError. table "" with
    `define` is DDL. `stage` stages rows and commits them, instead of SQL.
    """

    text: str
    parameters: Any
    table: str
    effect: Callable[[Rows, Callable[[], int]], tuple[Changes, int]] | None = None
    select: Callable[[Rows], list[Row]] | None = None
    is_many: bool = False
    stage: Callable[[Session], None] | None = None

    @property
    def is_rewritten(self) -> bool:
        """The statement puts another table with the same rows in the place of one."""
        return " TYPE " in self.text

    @property
    def frees_space(self) -> bool:
        """A full disk does not refuse it."""
        return self.text.startswith(("DELETE", "TRUNCATE", "DROP TABLE"))

    def run_on(self, model: Model, work: Work) -> int:
        """Add the effect to `work`; return the row count, or raise RefusedError."""
        if self.effect is None:
            self._define(model, work)
            return -1
        number, rows = model.table(self.table, work)
        changes, count = self.effect(rows, model.new_number)
        work.add(number, changes)
        if self.stage is not None:  # also where no row changes, a table may adopt pages
            work.rows.setdefault(number, {})
        return count

    def _define(self, model: Model, work: Work) -> None:
        is_there, rows = True, dict[Key, Row]()
        try:
            _, rows = model.table(self.table, work)
        except RefusedError:
            is_there = False
        if self.text.startswith("ALTER"):
            if not is_there:
                raise RefusedError("42P01")
            if self.is_rewritten:
                work.catalog[self.table] = number = model.new_number()
                work.rows[number] = dict(rows)
            return
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


def alter(name: str, *, is_rewritten: bool) -> Operation:
    """Return an ALTER that leaves what is in a table as it was."""
    change = "ALTER v TYPE BIGINT, ALTER s SET DEFAULT 'y'"
    if not is_rewritten:
        change = "ALTER v SET NOT NULL" if name == "h" else "ALTER v SET DEFAULT 7"
    return Operation(f"ALTER TABLE {name} {change}", None, name)


def violate(rng: random.Random, name: str) -> Operation:
    """Return an UPDATE of rows to what their CHECK does not allow."""
    low, high = _range(rng)

    def effect(old: Rows, _: Callable[[], int]) -> tuple[Changes, int]:
        if any(low <= row[0] <= high for row in old.values()):
            raise RefusedError("23514")
        return {}, 0

    text = f"UPDATE {name} SET v = v - ? WHERE k BETWEEN ? AND ?"
    return Operation(text, (1_000_000, low, high), name, effect)


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
    shape = SHAPES[name]
    if shape.is_indexed:
        # One that minds rows has to fit in memory where there are indexes (53200), and some
        # histories have little.
        is_upsert = skips_conflicts = False
    low = rng.randrange(KEYS)
    keys = [low + index for index in range(count)]
    if rng.random() < 0.15:
        keys = [rng.randrange(KEYS) for _ in keys]
    rows = [_row(rng, name, key) for key in keys]
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


def update(rng: random.Random, name: str, *, is_whole: bool = False) -> Operation:
    """Return an UPDATE of a range of keys, or of all."""
    low, high = (0, 2 * KEYS) if is_whole else _range(rng)
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


def divide(rng: random.Random, name: str) -> Operation:
    """Return an UPDATE of all rows that fails behind some, if there is one with a certain key."""
    column = SHAPES[name].width - 2
    delta, key_refused = rng.randrange(1, 9), rng.randrange(KEYS)

    def effect(old: Rows, _: Callable[[], int]) -> tuple[Changes, int]:
        if any(row[0] == key_refused for row in old.values()):
            raise RefusedError("22012")
        changes: Changes = {
            key: (*row[:column], row[column] + delta, *row[column + 1 :])
            for key, row in old.items()
        }
        return changes, len(changes)

    text = f"UPDATE {name} SET v = v + ? + 0 / (k - ?)"
    return Operation(text, (delta, key_refused), name, effect)


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


def copy(rng: random.Random, name: str) -> Operation:
    """Return an INSERT of rows that are there, under other keys."""
    low, high = _range(rng)
    delta = rng.choice((1, 30, 30))

    def effect(old: Rows, _: Callable[[], int]) -> tuple[Changes, int]:
        changes: Changes = {
            (key[0] + delta, *key[1:]): (row[0] + delta, *row[1:])
            for key, row in old.items()
            if low <= row[0] <= high
        }
        if not changes.keys().isdisjoint(old):
            raise RefusedError("23505")
        return changes, len(changes)

    columns = "k + ?, p, v, s" if SHAPES[name].width == 4 else "k + ?, v, s"
    text = f"INSERT INTO {name} SELECT {columns} FROM {name} WHERE k BETWEEN ? AND ?"
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

    text = f"SELECT {SHAPES[name].names} FROM {name} WHERE k BETWEEN ? AND ?"
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


OWNER = ("o", True, True, False)
"""The first role of a tablespace that is made with it, as sysroles shows it there."""
VERIFIER = (
    "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:"
    "wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
)


def owner() -> Operation:
    """Return the statement that makes the user who owns tablespaces, with a password."""
    name = OWNER[0]

    def effect(old: Rows, _: Callable[[], int]) -> tuple[Changes, int]:
        if (name,) in old:
            raise RefusedError("42710")
        return {(name,): (name, True, False, False)}, -1

    return Operation(f"CREATE USER {name} PASSWORD '{VERIFIER}'", None, ROLES, effect)


def grant(rng: random.Random, tablespace: str, *, has_owner: bool) -> Operation:
    """Return a statement about a right of the owner of a tablespace, on all that is in it."""
    name, right = OWNER[0], rng.choice(("SELECT", "INSERT", "UPDATE"))
    is_grant = rng.random() < 0.7

    def effect(old: Rows, _: Callable[[], int]) -> tuple[Changes, int]:
        if not has_owner:
            raise RefusedError("42704")
        if ((name, right) in old) == is_grant:
            return {}, -1  # nothing is logged
        return {(name, right): (name, right) if is_grant else None}, -1

    verb, to = ("GRANT", "TO") if is_grant else ("REVOKE", "FROM")
    text = f"{verb} {right} ON TABLESPACE {tablespace} {to} {name}"
    return Operation(text, None, GRANTS, effect)


def staged(rng: random.Random, name: str) -> Operation:
    """Return a job of some tasks, of which one attempt each counts, and its commit."""
    shape = SHAPES[name]
    kinds = ("append",) if shape.is_heap else tuple(each.value for each in StagingOperation)
    kind = rng.choice(kinds)
    job = f"job {rng.getrandbits(64)}"
    tasks = [
        [_row(rng, name, rng.randrange(KEYS)) for _ in range(rng.choice((0, 1, 5, 20)))]
        for _ in range(rng.choice((1, 1, 2, 3)))
    ]
    if kind in ("append", "replace") and rng.random() < 0.8:
        low, numbers = rng.randrange(KEYS), count()
        tasks = [[(low + next(numbers), *row[1:]) for row in rows] for rows in tasks]
    names = ["k", "p", "v", "s"] if shape.width == 4 else ["k", "v", "s"]
    sent = {"delete": names[: shape.key_width], "update": [*names[: shape.key_width], "v"]}.get(
        kind, names
    )
    ordinals = [names.index(each) for each in sent]
    cuts = [rng.randrange(len(rows) + 1) for rows in tasks]

    def data(rows: list[Row]) -> pa.RecordBatch:
        columns = [pa.array([row[i] for row in rows], _ARROW[names[i]]) for i in ordinals]
        return pa.RecordBatch.from_arrays(columns, names=sent)

    def stage(session: Session) -> None:
        staging = session.staging
        staging.begin(name, kind, job)
        numbers: list[int] = []
        try:
            for task, (rows, cut) in enumerate(zip(tasks, cuts, strict=True)):
                lost, _ = staging.begin_stage(job, str(task), "lost")
                if rows:
                    staging.add(lost, 0, data(rows))
                number, _ = staging.begin_stage(job, str(task), "whole")
                for first, part in ((0, rows[:cut]), (cut, rows[cut:]), (0, rows[:cut])):
                    if part:  # the first one again, as after an answer that was lost
                        staging.add(number, first, data(part))
                numbers.append(number)
                staging.finish_stage(number)
            staging.commit(job, numbers)
        except Error:
            staging.abort(job)
            raise

    def effect(old: Rows, new_number: Callable[[], int]) -> tuple[Changes, int]:
        rows = [row for task in tasks for row in task]
        if shape.is_heap:
            return {("heap", new_number()): row for row in rows}, -1
        new: dict[Key, Row] = {}
        for row in rows:
            key = _key(name, row, new_number)
            if kind in ("append", "replace") and (key in new or (kind == "append" and key in old)):
                raise RefusedError("23505")
            if not (kind == "ignore" and key in new):
                new[key] = row
        changes: dict[str, Callable[[], Changes]] = {
            "append": lambda: dict(new),
            "upsert": lambda: dict(new),
            "replace": lambda: {**dict.fromkeys(old), **new},
            "ignore": lambda: {key: row for key, row in new.items() if key not in old},
            "delete": lambda: dict.fromkeys(key for key in new if key in old),
            "update": lambda: {
                key: (*old[key][:-2], row[-2], old[key][-1])
                for key, row in new.items()
                if key in old
            },
        }
        return changes[kind](), -1

    return Operation(f"{kind} staged rows to {name}", tasks, name, effect, stage=stage)


_ARROW = {"k": pa.int64(), "p": pa.string(), "v": pa.int64(), "s": pa.string()}


def draw_for_full_disk(rng: random.Random) -> Operation:
    """Return what needs much room, or what frees some, or would when there is anything."""
    chance = rng.random()
    if chance < 0.65:
        return insert(rng, "h", count=100, is_many=True, is_upsert=False)
    if chance < 0.9:
        return delete(rng, rng.choice("abc"))
    return truncate(rng.choice("abch"))


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
        name = rng.choice("abchd")
        if chance < 0.055:
            return truncate(name)
        return alter(name, is_rewritten=chance < 0.0575)
    if chance < 0.085 and not shape.is_indexed:
        return staged(rng, name)
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
    if chance < 0.50 and shape.is_indexed:
        return violate(rng, name)
    if chance < 0.68:
        return update(rng, name)
    if chance < 0.74:
        return rekey(rng, name)
    if chance < 0.77:
        return copy(rng, name)
    if chance < 0.88:
        return delete(rng, name)
    return select(rng, name)
