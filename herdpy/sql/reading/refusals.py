"""What PostgreSQL and others have and we do not: how it is called, and what to do instead."""

from collections.abc import Sequence
from typing import Final

from herdpy.errors import closest
from herdpy.sql.reading.tokens import PLACEHOLDER_HINT, Token

INSTEAD_OF_UPDATING: Final = (
    "INSERT … ON CONFLICT (key) DO UPDATE SET column = excluded.column, … changes the row whose "
    "key is there."
)
INSTEAD_OF_REPLACING: Final = (
    "UPSERT INTO … VALUES replaces the whole row whose key is there, also columns that it does not "
    f"name. {INSTEAD_OF_UPDATING}"
)
PUBLIC: Final = "public"
"""The one schema, which may stand before the name of a table, view, index or sequence."""
NO_SCHEMAS: Final = (
    "There is no schema but public: write the table's name alone. A table of another tablespace is "
    'read and written by a connection to that one: connect(…, tablespace="NAME"), herd://host/NAME.'
)
_NO_ROWS_CHOSEN = "Choose the rows in a subquery: WHERE key IN (SELECT key … {} …)."

INSTEAD: Final[dict[str, str]] = {
    "CHECK": "Rows are written to tables, not to views.",
    "CONCURRENTLY": "CREATE INDEX keeps other writers of the table waiting until it is built.",
    "INDEX": "Index columns; keep what is computed in a column of its own.",
    "FOR": "UPDATE the rows and see how many it found; a conflict is 40001, to be repeated.",
    "INTO": "CREATE TABLE name AS SELECT …",
    "ONLY": "There is no inheritance: leave ONLY out.",
    "PRIMARY": "ADD COLUMN, UPDATE the rows, and ADD PRIMARY KEY (column).",
    "PERCENT": "Write LIMIT with a number of rows.",
    "PIVOT": "Write one sum(…) FILTER (WHERE …) for each column.",
    "QUALIFY": "Put the query into FROM and test the window function's column in WHERE.",
    "TABLESAMPLE": "SELECT … WHERE random() < 0.1 takes about a tenth of the rows.",
    "WITH": "Write the query as a subquery in WHERE or SET.",
    "ORDER": _NO_ROWS_CHOSEN.format("ORDER BY … LIMIT"),
    "LIMIT": _NO_ROWS_CHOSEN.format("LIMIT"),
}
"""What to do instead of a clause, by its first word."""

COLUMN_FEATURES: Final[dict[str, str]] = {
    "REFERENCES": "REFERENCES", "FOREIGN": "FOREIGN KEY", "COLLATE": "COLLATE",
    "EXCLUDE": "EXCLUDE", "LIKE": "LIKE", "GENERATED": "GENERATED",
}  # fmt: skip
"""What columns and tables of CREATE TABLE do not have, by its first word."""

TABLE_OPTIONS: Final = frozenset(
    ("INHERITS", "ON", "PARTITION", "TABLESPACE", "USING", "WITH", "WITHOUT")
)
ALTERATIONS: Final = frozenset(
    (
        "ATTACH",
        "CLUSTER",
        "DETACH",
        "DISABLE",
        "ENABLE",
        "FORCE",
        "INHERIT",
        "NO",
        "NOT",
        "OF",
        "OWNER",
        "REPLICA",
        "RESET",
        "SET",
    )
)
"""What ALTER TABLE does not do, by its first word."""
_LOCKS = (("UPDATE",), ("SHARE",), ("NO", "KEY", "UPDATE"), ("KEY", "SHARE"))
_ALONE = {
    "[": "an array", "{": "{}", "GLOB": "GLOB", "OVERLAPS": "OVERLAPS",
    "OPERATOR": "OPERATOR()", "TABLESAMPLE": "a table name with TABLESAMPLE",
    "PERCENT": "LIMIT with PERCENT", "ONLY": "a table name with ONLY",
}  # fmt: skip
_KEYWORDS = (
    "BETWEEN", "DISTINCT", "FROM", "GROUP", "HAVING", "INNER", "INTO", "JOIN", "LEFT", "LIMIT",
    "OFFSET", "ORDER", "PRIMARY", "SET", "TABLE", "UNION", "VALUES", "WHERE",
)  # fmt: skip
_MISSPELLED_MIN = 4  # letters: INT is no INTO


def refusal(words: Sequence[str], index: int, verb: str) -> tuple[str, str | None] | None:
    """Return what stands where a statement does not go on, with a hint; None: it is unknown.

    verb: the statement's first word, where it might have ended; else "".
    """
    word, before, following = words[index], words[index - 1] if index else "", words[index + 1]
    if word == "FOR":
        locks = next((x for x in _LOCKS if (*words[index + 1 : index + 1 + len(x)],) == x), None)
        return (f"SELECT with FOR {' '.join(locks)}", INSTEAD["FOR"]) if locks else None
    if word == "{" and following == "}":
        return None
    if word in _ALONE:
        return _ALONE[word], INSTEAD.get(word)
    if before == "QUALIFY":
        return "SELECT with QUALIFY", INSTEAD["QUALIFY"]
    if word == "NULLS" and before in ("IGNORE", "RESPECT"):
        return f"{before} NULLS", None
    if word == "EXCLUDE":
        return "a window frame with EXCLUDE", None
    if word == "BY" and before in ("SORT", "CLUSTER", "DISTRIBUTE", "CONNECT"):
        return f"SELECT with {before} BY", None
    if (word, following) == ("BY", "NAME"):
        return "BY NAME", None
    if word == "INTO" and verb == "SELECT":
        return "SELECT with INTO", INSTEAD["INTO"]
    if verb in ("UPDATE", "DELETE") and word in ("ORDER", "LIMIT"):
        return f"{verb} with {'ORDER BY' if word == 'ORDER' else word}", INSTEAD[word]
    return None


def wrong_hint(tokens: Sequence[Token], index: int) -> str | None:
    """Return a hint for a placeholder of another library, or where a word is nearly a keyword."""
    token, before = tokens[index], tokens[index - 1] if index else None
    is_numbered = (
        token.kind == "number"
        and before is not None
        and before.kind == "placeholder"
        and before.end == token.start
    )
    if is_numbered or token.word in ("%", ":", "{"):
        return PLACEHOLDER_HINT
    for near in reversed(tokens[max(index - 2, 0) : index + 1]):
        if near.kind != "word" or len(near.word) < _MISSPELLED_MIN or near.word in _KEYWORDS:
            continue
        close = closest(near.word, _KEYWORDS, 0.75)
        if close:
            return f'Did you mean {close} instead of "{near.text}"?'
    return None
