"""Statements that sqlglot does not see: read from tokens by recursive descent.

BEGIN, COMMIT, ROLLBACK, SET, SHOW, RESET are read whole; EXPLAIN and UPSERT are taken off the front
of a statement that goes on. What we know and do not have is refused here by its first words.
"""

import difflib
from dataclasses import dataclass

from sqlglot.tokens import TokenType  # pyright: ignore[reportPrivateImportUsage]

from herdpy.errors import NotSupportedError, ProgrammingError
from herdpy.sql import tree
from herdpy.sql.parse import INSTEAD_OF_REPLACING
from herdpy.sql.tokens import Scanned

_PARSED = (
    "SELECT",
    "WITH",
    "VALUES",
    "TABLE",
    "(",
    "INSERT",
    "UPDATE",
    "DELETE",
    "CREATE",
    "DROP",
    "TRUNCATE",
)
_OWN = (
    "BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SET", "RESET", "SHOW", "EXPLAIN",
    "KILL",
)  # fmt: skip
_OTHERS = ("UPSERT", "GRANT", "REVOKE", "ALTER")  # read before, or else
_REFUSED = (
    "SAVEPOINT", "RELEASE", "ALTER", "COPY", "MERGE", "GRANT", "REVOKE", "VACUUM",
    "ANALYZE", "PREPARE", "EXECUTE", "DEALLOCATE", "LOCK", "DECLARE", "FETCH", "MOVE", "CLOSE",
    "LISTEN", "NOTIFY", "UNLISTEN", "CALL", "DO", "COMMENT", "CLUSTER", "REINDEX", "CHECKPOINT",
    "REFRESH", "DISCARD", "USE", "PRAGMA", "ATTACH", "DETACH", "DESCRIBE", "REPLACE",
)  # fmt: skip


_NUMBER_DIGITS_MAX = 18
_OBJECT_WORDS_MAX = 5  # CREATE OR REPLACE MATERIALIZED VIEW
_OBJECTS = (
    "AGGREGATE", "CAST", "COLLATION", "DATABASE", "DOMAIN", "EXTENSION", "FUNCTION", "INDEX",
    "LANGUAGE", "MACRO", "OPERATOR", "POLICY", "PROCEDURE", "PUBLICATION", "RULE", "SCHEMA",
    "SEQUENCE", "SERVER", "STATISTICS", "SUBSCRIPTION", "SYSTEM", "TABLE", "TABLESPACE",
    "TRIGGER", "TYPE", "VIEW",
)  # fmt: skip
_NO_INDEXES = (
    "The primary key is the one index; other scans skip pages by the least and greatest values "
    "of each column."
)
_NO_TEMPORARY = "CREATE TABLE, and DROP TABLE when it is done with."
# What to do instead.
_INSTEAD = {
    "ALTER TABLE": "Make a table as it should be, INSERT INTO it … SELECT, and DROP the other.",
    "ANALYZE": "There is nothing to do: statistics are kept with the pages.",
    "CREATE INDEX": _NO_INDEXES,
    "CREATE UNIQUE INDEX": f"Make the columns the PRIMARY KEY. {_NO_INDEXES}",
    "CREATE TEMP TABLE": _NO_TEMPORARY,
    "CREATE TEMPORARY TABLE": _NO_TEMPORARY,
    "CREATE VIEW": "Begin queries by WITH name AS (…).",
    "COPY": "Write many rows by executemany() or ingest().",
    "MERGE": INSTEAD_OF_REPLACING,
    "PREPARE": "Statements are prepared by themselves: pass values as parameters.",
    "REPLACE": INSTEAD_OF_REPLACING,
    "VACUUM": "There is nothing to do: checkpoints free the space by themselves.",
}
_TABLE_OPTIONS = ("AS", "INHERITS", "ON", "PARTITION", "TABLESPACE", "USING", "WITH", "WITHOUT")


@dataclass(frozen=True, slots=True)
class Prefix:
    """What stands before the statement that sqlglot reads."""

    rest: Scanned
    is_explain: bool = False
    is_analyze: bool = False
    is_upsert: bool = False


def read_statement(scanned: Scanned) -> tree.Statement | Prefix:
    """Return one of our own statements whole, or the prefix and the rest for parse and bind."""
    explain = Prefix(scanned)
    if scanned.word(0) == "EXPLAIN":
        count = 2 if scanned.word(1) == "ANALYZE" else 1
        explain = Prefix(scanned.without_prefix(count), True, count == 2)
    rest = explain.rest
    first = rest.word(0)
    if first == "UPSERT":
        rest = rest.with_first_token(TokenType.INSERT, "INSERT")
        return Prefix(rest, explain.is_explain, explain.is_analyze, True)
    if first in ("CREATE", "DROP") and rest.word(1) != "TABLE":
        raise _refused(_object(rest), rest, 1)
    if first == "CREATE":
        _check_end_of_create(rest)
    _refuse_brackets(rest)
    if first in _PARSED:
        return Prefix(rest, explain.is_explain, explain.is_analyze)
    if first in _REFUSED:
        raise _refused(_object(rest) if first == "ALTER" else first, rest, 0)
    if first in _OWN and not explain.is_explain:
        return _Reader(scanned).read()
    close = difflib.get_close_matches(first, (*_PARSED, *_OWN, *_OTHERS), n=1)
    raise ProgrammingError(
        f'syntax error at or near "{first.lower()}"' if first else "syntax error",
        sqlstate="42601",
        position=rest.position(0),
        hint=f"Did you mean {close[0]}?" if close and close[0] != first else None,
    )


def _object(scanned: Scanned) -> str:
    """Return CREATE, ALTER or DROP with the words up to that of the object's kind."""
    words = [scanned.word(0)]
    for index in range(1, _OBJECT_WORDS_MAX):
        words.append(scanned.word(index))
        if words[-1] in _OBJECTS:
            return " ".join(words)
    return " ".join(filter(None, words[:2]))


def _refused(what: str, scanned: Scanned, index: int) -> NotSupportedError:
    return NotSupportedError(
        f"{what} is not supported", position=scanned.position(index), hint=_INSTEAD.get(what)
    )


def _check_end_of_create(scanned: Scanned) -> None:
    """Refuse what follows CREATE TABLE name (…); sqlglot would log a warning of it."""
    depth, end = 0, -1
    for index, token in enumerate(scanned.tokens):
        if token.token_type is TokenType.L_PAREN:
            depth += 1
        elif token.token_type is TokenType.R_PAREN:
            depth -= 1
            if depth == 0:
                end = index
                break
    if end < 0:
        words = [*map(scanned.word, range(len(scanned.tokens)))]
        if "AS" in words or len(words) < 3:
            return
        raise ProgrammingError(
            "CREATE TABLE needs columns in ()",
            sqlstate="42601",
            position=scanned.position(len(words)),
        )
    if end + 1 < len(scanned.tokens) and "AS" not in map(scanned.word, range(end)):
        word, following = scanned.word(end + 1), scanned.word(end + 2)
        if word.split(" ")[0] in _TABLE_OPTIONS:
            is_clause = following.isalpha() and following in ("BY", "COMMIT", "ROWID")
            words = f"{word} {following}" if is_clause else word
            raise _refused(f"CREATE TABLE … {words}", scanned, end + 1)
        raise ProgrammingError(
            f'syntax error at or near "{scanned.tokens[end + 1].text}"',
            sqlstate="42601",
            position=scanned.position(end + 1),
        )


def _refuse_brackets(scanned: Scanned) -> None:
    for index, token in enumerate(scanned.tokens):
        if token.token_type is TokenType.L_BRACKET and scanned.word(index - 1) != "ARRAY":
            raise NotSupportedError("arrays are not supported", position=token.start + 1)


class _Reader:
    """Reads one of our statements, word by word."""

    def __init__(self, scanned: Scanned) -> None:
        self.scanned = scanned
        self.index = 0

    def read(self) -> tree.Statement:
        statement = self._statement()
        if self.index < len(self.scanned.tokens):
            raise self._unexpected()
        return statement

    def _statement(self) -> tree.Statement:
        first = self._take()
        if first in ("BEGIN", "START"):
            if first == "START":
                self._expect("TRANSACTION")
            else:
                self._accept("WORK", "TRANSACTION")
            self._transaction_modes()
            return tree.Begin()
        if first in ("COMMIT", "END", "ROLLBACK", "ABORT"):
            self._accept("WORK", "TRANSACTION")
            for word in ("TO", "AND", "PREPARED"):
                if self._word() == word:
                    raise self._refused(f"{first} {word}")
            return tree.Commit() if first in ("COMMIT", "END") else tree.Rollback()
        if first == "KILL":
            return self._kill()
        if first == "SHOW":
            return tree.ShowOption(self._option_name())
        if first == "RESET":
            return tree.SetOption(self._option_name(), None)
        return self._set()

    def _kill(self) -> tree.Kill:
        is_statement = self._accept("STATEMENT")
        if not is_statement:
            self._accept("CONNECTION")
        tokens = self.scanned.tokens
        token = tokens[self.index] if self.index < len(tokens) else None
        if token is None or token.token_type is not TokenType.NUMBER:
            raise self._unexpected("a number")
        text = token.text
        if not (text.isdecimal() and len(text) <= _NUMBER_DIGITS_MAX):
            raise self._unexpected("a number")
        self.index += 1
        return tree.Kill(int(text), not is_statement)

    def _set(self) -> tree.SetOption | tree.SetSnapshot:
        if self._word() == "LOCAL":
            raise self._refused("SET LOCAL")
        self._accept("SESSION")
        if self._accept("TRANSACTION"):
            if self._accept("SNAPSHOT"):
                return tree.SetSnapshot(self._string())
            self._transaction_modes()
            return tree.SetOption("transaction_isolation", "read committed")
        is_zone = self._word() == "TIME"
        name = self._option_name()
        if not is_zone and not self._accept("TO", "="):
            raise self._unexpected()
        if self._accept("DEFAULT") or (is_zone and self._accept("LOCAL")):
            return tree.SetOption(name, None)
        parts: list[str] = []
        while self.index < len(self.scanned.tokens):
            token = self.scanned.tokens[self.index]
            if token.token_type is TokenType.COLON:
                raise ProgrammingError(
                    "SET takes no parameters", sqlstate="42601", position=token.start + 1
                )
            parts.append(token.text)
            self.index += 1
        if not parts:
            raise self._unexpected()
        return tree.SetOption(name, "".join(parts))

    def _string(self) -> str:
        tokens = self.scanned.tokens
        token = tokens[self.index] if self.index < len(tokens) else None
        if token is None or token.token_type is not TokenType.STRING:
            raise self._unexpected("a string")
        self.index += 1
        return token.text

    def _option_name(self) -> str:
        if self._word() in ("ROLE", "AUTHORIZATION"):
            raise self._refused("a role other than the session's user")
        name = self._take().lower()
        if name == "transaction" and self._accept("ISOLATION"):
            self._expect("LEVEL")
            return "transaction_isolation"
        if name == "time" and self._accept("ZONE"):
            return "timezone"
        if not name.isidentifier():
            self.index -= 1
            raise self._unexpected()
        return name

    def _transaction_modes(self) -> None:
        """Read ISOLATION LEVEL READ COMMITTED and READ WRITE; other modes are 0A000."""
        while self.index < len(self.scanned.tokens):
            self._accept(",")
            if self._accept("ISOLATION"):
                self._expect("LEVEL")
                if self._word() in ("REPEATABLE", "SERIALIZABLE"):
                    word = "REPEATABLE READ" if self._word() == "REPEATABLE" else self._word()
                    raise self._refused(f"ISOLATION LEVEL {word}")
                self._expect("READ")
                self._expect("COMMITTED", "UNCOMMITTED")
            else:
                self._expect("READ")
                if self._word() == "ONLY":
                    raise self._refused("READ ONLY")
                self._expect("WRITE")

    def _word(self) -> str:
        return self.scanned.word(self.index)

    def _take(self) -> str:
        word = self._word()
        self.index += 1
        return word

    def _accept(self, *words: str) -> bool:
        if self._word() not in words:
            return False
        self.index += 1
        return True

    def _expect(self, *words: str) -> None:
        if not self._accept(*words):
            raise self._unexpected(words[0])

    def _unexpected(self, expected: str | None = None) -> ProgrammingError:
        tokens = self.scanned.tokens
        near = f'"{tokens[self.index].text}"' if self.index < len(tokens) else "the end"
        wanted = f", expected {expected}" if expected else ""
        return ProgrammingError(
            f"syntax error at or near {near}{wanted}",
            sqlstate="42601",
            position=self.scanned.position(self.index),
        )

    def _refused(self, what: str) -> NotSupportedError:
        return NotSupportedError(
            f"{what} is not supported", position=self.scanned.position(self.index)
        )
