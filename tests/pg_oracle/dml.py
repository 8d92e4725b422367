"""Generated INSERT, UPSERT, UPDATE, DELETE and TRUNCATE of a table whose rows are compared."""

import random
from itertools import product
from typing import NamedTuple

from herdpy.model.types import Kind
from tests.pg_oracle.expressions import Node, Writer
from tests.pg_oracle.values import COLUMNS, KINDS, NAMES, K, rows

_CHANGES = (
    "INSERT VALUES", "INSERT SELECT", "INSERT DEFAULT", "INSERT DEFAULT VALUES",
    "INSERT ON CONFLICT DO NOTHING", "INSERT SELECT ON CONFLICT DO NOTHING",
    "INSERT ON CONFLICT DO UPDATE", "INSERT SELECT ON CONFLICT DO UPDATE",
    "INSERT ON CONFLICT DO UPDATE WHERE", "UPSERT VALUES",
    "UPSERT SELECT", "UPDATE by key", "UPDATE by range", "UPDATE by test", "UPDATE of all",
    "UPDATE of key", "UPDATE by query", "UPDATE FROM", "DELETE by key", "DELETE by range",
    "DELETE by test", "DELETE by query", "DELETE of all", "DELETE USING", "TRUNCATE",
    "INSERT VALUES RETURNING", "INSERT SELECT ON CONFLICT DO NOTHING RETURNING",
    "INSERT ON CONFLICT DO UPDATE RETURNING", "UPDATE of all RETURNING", "UPDATE FROM RETURNING",
    "DELETE by test RETURNING", "DELETE USING RETURNING",
)  # fmt: skip
_TARGETS = {kind: name for name, (kind, _) in reversed(COLUMNS.items())}
_ASSIGNMENTS = tuple(
    f"{word} {NAMES[source]} into {NAMES[target]}"
    for word, source, target in product(("INSERT", "UPDATE"), KINDS, _TARGETS)
)
DML_KINDS = (*_CHANGES, *_CHANGES, *_ASSIGNMENTS)
_BY_NAME = {NAMES[kind]: kind for kind in KINDS}
_COUNT = 6


class Statement(NamedTuple):
    """A statement in both servers' words; UPSERT is not PostgreSQL's."""

    ours: str
    parameters: tuple[object, ...]
    theirs: str


class Change(NamedTuple):
    """Statements of one transaction, and the expressions in them."""

    label: str
    statements: tuple[Statement, ...]
    nodes: tuple[Node, ...]
    is_kept: bool
    """COMMIT, else ROLLBACK, after which the rows must be what they were."""


def create_table(kind: str) -> str:
    columns = ", ".join(
        f"{name} {type_name}{_DEFAULTS.get(name, '')}" for name, (_, type_name) in COLUMNS.items()
    )
    return f"CREATE {kind} x (id integer PRIMARY KEY, {columns})"


_DEFAULTS = {
    "i": " DEFAULT 7", "s": " DEFAULT 'x'", "m": " DEFAULT 1.5", "b": " DEFAULT true",
    "a": " DEFAULT '2024-02-29'", "j": " NOT NULL DEFAULT 3", "d": " DEFAULT '-0'",
}  # fmt: skip


def fill(number: int) -> tuple[str, ...]:
    """Return the statements that give the table its rows again."""
    chance = random.Random(f"rows {number}")
    made = [
        row.replace("CAST(NULL AS integer)", "CAST(5 AS integer)")
        for row in rows(chance, _COUNT, 0.05)
    ]
    return "DELETE FROM x", f"INSERT INTO x VALUES {', '.join(made)}"


SHOW = f"SELECT id, {', '.join(COLUMNS)} FROM x ORDER BY id"


class _Changer:
    """Writes one change; every expression is written once, with both servers' parameters."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.nodes: list[Node] = []
        self.parameters: list[object] = []

    def text(self, node: Node) -> str:
        """Return a mark of the expression, which finish() replaces."""
        self.nodes.append(node)
        return f"\1{len(self.nodes) - 1}\2"

    def finish(self, ours: str, theirs: str | None = None) -> Statement:
        parameters: list[object] = []
        pieces = ours.split("\1")
        shown = [pieces[0]]
        for piece in pieces[1:]:
            number, _, rest = piece.partition("\2")
            shown.append(self.nodes[int(number)].text("", parameters) + rest)
        other = theirs or ours
        for number, node in enumerate(self.nodes):
            other = other.replace(f"\1{number}\2", node.text())
        return Statement("".join(shown), tuple(parameters), other)

    def constant(self, kind: Kind) -> str:
        return self.text(
            Writer(self.chance, None, 0.04).expression(kind, self.chance.choice((0, 0, 1)))
        )

    def over_row(self, kind: Kind, depth: int = 1) -> str:
        return self.text(Writer(self.chance, "q", 0.02).expression(kind, depth))

    def columns(self) -> list[str]:
        names = [name for name in COLUMNS if self.chance.random() < 0.3]
        return names or [self.chance.choice(list(COLUMNS))]

    def key(self) -> str:
        return str(self.chance.randint(1, _COUNT + 3))

    def where(self, how: str) -> str:
        chance = self.chance
        if how == "by key":
            return f" WHERE q.id = {self.key()}"
        if how == "by range":
            sign = chance.choice(("<", "<=", ">", ">="))
            return f" WHERE q.id {sign} {self.key()}"
        if how == "by test":
            return f" WHERE {self.over_row(K.BOOLEAN, 2)}"
        if how == "by query":
            return f" WHERE q.id IN (SELECT o.id FROM w AS o WHERE o.id < {self.key()})"
        return ""

    def returning(self, rule: str) -> str:
        """Return the clause of a rule that has it; with the key first, by which rows are sorted."""
        if not rule.endswith("RETURNING"):
            return ""
        names = self.columns()
        shown = [*(f"q.{name}" for name in names), self.over_row(COLUMNS[names[0]][0])]
        return f" RETURNING q.id, {', '.join(shown)}"

    def do_update(self, rule: str) -> str:
        chance = self.chance
        sets = ", ".join(
            f"{name} = excluded.{name}"
            if chance.random() < 0.4
            else f"{name} = {self.over_row(COLUMNS[name][0])}"
            for name in self.columns()[:3]
        )
        where = f" WHERE {self.over_row(K.BOOLEAN)}" if "WHERE" in rule else ""
        return f" ON CONFLICT (id) DO UPDATE SET {sets}{where}"

    def insert(self, rule: str) -> Statement:
        chance = self.chance
        names = self.columns()
        tail = ""
        if "DO UPDATE" in rule:
            tail = self.do_update(rule)
        elif "CONFLICT" in rule:
            tail = chance.choice((" ON CONFLICT DO NOTHING", " ON CONFLICT (id) DO NOTHING"))
        is_upsert = rule.startswith("UPSERT")
        if "SELECT" in rule:
            outputs = ", ".join(self.over_row(COLUMNS[name][0]) for name in names)
            shift = 3 if tail or is_upsert else 20
            source = f"SELECT q.id + {shift}, {outputs} FROM w AS q WHERE q.id < {self.key()}"
            source += " ORDER BY q.id"
        else:
            first = 4 if tail or is_upsert else 20
            lines: list[str] = []
            for key in range(first, first + chance.choice((1, 1, 2, 5))):
                cells = [
                    "DEFAULT" if chance.random() < 0.15 else self.constant(COLUMNS[name][0])
                    for name in names
                ]
                lines.append(f"({key}, {', '.join(cells)})")
            source = f"VALUES {', '.join(lines)}"
        body = f"INTO x AS q (id, {', '.join(names)}) {source}"
        if is_upsert:
            others = ", ".join(f"{name} = EXCLUDED.{name}" for name in COLUMNS)
            theirs = f"INSERT {body} ON CONFLICT (id) DO UPDATE SET {others}"
            return self.finish(f"UPSERT {body}", theirs)
        return self.finish(f"INSERT {body}{tail}{self.returning(rule)}")

    def update(self, how: str) -> Statement:
        returning, how = self.returning(how), how.removesuffix(" RETURNING")
        names = self.columns()[:3]
        values = [self.over_row(COLUMNS[name][0]) for name in names]
        if how == "FROM":
            values[0] = f"o.{names[0]}"
        sets = ", ".join(f"{name} = {value}" for name, value in zip(names, values, strict=True))
        if how == "of key":
            sets = f"id = q.id + 10, {sets}"
        if how == "FROM":
            return self.finish(f"UPDATE x AS q SET {sets}{self.joined('FROM')}{returning}")
        return self.finish(f"UPDATE x AS q SET {sets}{self.where(how)}{returning}")

    def delete(self, how: str) -> Statement:
        returning, how = self.returning(how), how.removesuffix(" RETURNING")
        tail = self.joined("USING") if how == "USING" else self.where(how)
        return self.finish(f"DELETE FROM x AS q{tail}{returning}")

    def joined(self, word: str) -> str:
        """Return what joins the rows of a query, each of which meets one row at the most."""
        return f" {word} w AS o WHERE o.id = q.id AND o.id < {self.key()}"

    def assignment(self, rule: str) -> Statement:
        word, _, rest = rule.partition(" ")
        source, _, target = rest.partition(" into ")
        column = self.chance.choice(
            [name for name, (kind, _) in COLUMNS.items() if kind is _BY_NAME[target]]
        )
        if word == "UPDATE":
            value = self.over_row(_BY_NAME[source])
            return self.finish(f"UPDATE x AS q SET {column} = {value} WHERE q.id <= 3")
        value = self.constant(_BY_NAME[source])
        return self.finish(f"INSERT INTO x (id, {column}) VALUES (50, {value})")


def write_change(chance: random.Random, rule: str) -> Change:
    """Return a transaction that does what the rule says, and perhaps another change."""
    changer = _Changer(chance)
    statements = [_write(changer, rule)]
    if chance.random() < 0.4:
        statements.append(_write(changer, chance.choice(_CHANGES)))
    return Change(rule, tuple(statements), tuple(changer.nodes), chance.random() < 0.5)


def _write(changer: _Changer, rule: str) -> Statement:
    word, _, how = rule.partition(" ")
    if " into " in rule:
        return changer.assignment(rule)
    if rule == "TRUNCATE":
        return changer.finish("TRUNCATE x")
    if rule == "INSERT DEFAULT VALUES":
        return changer.finish("INSERT INTO x DEFAULT VALUES")
    if rule == "INSERT DEFAULT":
        return changer.finish(
            f"INSERT INTO x (id, i, n, s) VALUES ({changer.key()}, DEFAULT, DEFAULT, DEFAULT)"
        )
    if word in ("INSERT", "UPSERT"):
        return changer.insert(rule)
    if word == "UPDATE":
        return changer.update(how)
    return changer.delete(how)
