"""Statements about transactions and settings, and what stands before others.

BEGIN, COMMIT, ROLLBACK, SET, SHOW, RESET are read whole; EXPLAIN is taken off the front of a
statement that goes on. What we know and do not have is refused here by its first words.
"""

from dataclasses import dataclass

from herdpy.errors import NotSupportedError, ProgrammingError, did_you_mean
from herdpy.model.isolation import Isolation, isolation_of
from herdpy.sql import tree
from herdpy.sql.reading.refusals import INSTEAD_OF_REPLACING, INSTEAD_OF_UPDATING
from herdpy.sql.reading.tokens import Scanned
from herdpy.sql.reading.words import Words

_PARSED = (
    "SELECT", "WITH", "VALUES", "TABLE", "(", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP",
    "TRUNCATE", "UPSERT", "ALTER",
)  # fmt: skip
_OWN = (
    "BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SET", "RESET", "SHOW", "EXPLAIN",
    "KILL", "SAVEPOINT", "RELEASE",
)  # fmt: skip
_OTHERS = ("GRANT", "REVOKE")  # read before, or else
_REFUSED = (
    "COPY", "MERGE", "GRANT", "REVOKE", "VACUUM",
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
_NO_TEMPORARY_VIEW = "Begin queries by WITH name AS (…)."
_NO_TEMPORARY = "CREATE TABLE, and DROP TABLE when it is done with."
# What to do instead.
_INSTEAD = {
    "ANALYZE": "There is nothing to do: statistics are kept with the pages.",
    "CREATE TEMP TABLE": _NO_TEMPORARY,
    "CREATE TEMPORARY TABLE": _NO_TEMPORARY,
    "CREATE MATERIALIZED VIEW": "CREATE VIEW, or CREATE TABLE … AS and the same again later.",
    "CREATE TEMP VIEW": _NO_TEMPORARY_VIEW,
    "CREATE TEMPORARY VIEW": _NO_TEMPORARY_VIEW,
    "COPY": "Write many rows by executemany() or ingest().",
    "DESCRIBE": "The shell's .schema prints CREATE TABLE; a program asks cursor.description behind "
    "SELECT … LIMIT 0.",
    "MERGE": INSTEAD_OF_UPDATING,
    "PREPARE": "Statements are prepared by themselves: pass values as parameters.",
    "REPLACE": INSTEAD_OF_REPLACING,
    "VACUUM": "There is nothing to do: checkpoints free the space by themselves.",
}


@dataclass(frozen=True, slots=True)
class Prefix:
    """What stands before the statement that the reader reads."""

    rest: Scanned
    is_explain: bool = False
    is_analyze: bool = False


def read_statement(scanned: Scanned) -> tree.Statement | Prefix:
    """Return one of our own statements whole, or the prefix and the rest for the reader."""
    explain = Prefix(scanned)
    if scanned.word(0) == "EXPLAIN":
        count = 2 if scanned.word(1) == "ANALYZE" else 1
        explain = Prefix(scanned.without_prefix(count), True, count == 2)
    rest = explain.rest
    first = rest.word(0)
    if first in ("CREATE", "ALTER", "DROP") and not _is_of_reader(rest):
        raise _refused(_object(rest), rest, 1)
    if first in _PARSED:
        return explain
    if first in _REFUSED:
        raise _refused(first, rest, 0)
    if first in _OWN and not explain.is_explain:
        return _Reader(scanned).read()
    raise ProgrammingError(
        f'syntax error at or near "{first.lower()}"' if first else "syntax error",
        sqlstate="42601",
        position=rest.position(0),
        hint=did_you_mean(first, (*_PARSED, *_OWN, *_OTHERS)),
    )


def _is_of_reader(scanned: Scanned) -> bool:
    """Tell whether a CREATE, ALTER or DROP is one that the reader knows."""
    if scanned.word(1) in ("TABLE", "VIEW", "INDEX", "SEQUENCE"):
        return True
    if scanned.word(0) == "CREATE" and scanned.word(1) == "UNIQUE":
        return scanned.word(2) == "INDEX"
    words = [scanned.word(index) for index in range(4)]
    return words == ["CREATE", "OR", "REPLACE", "VIEW"]


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


class _Reader(Words):
    """Reads one of our statements, word by word."""

    def read(self) -> tree.Statement:
        statement = self._statement()
        self.expect_end()
        return statement

    def _statement(self) -> tree.Statement:
        first = self.take()
        if first in ("BEGIN", "START"):
            if first == "START":
                self.expect("TRANSACTION")
            else:
                self.accept("WORK", "TRANSACTION")
            return tree.Begin(self._transaction_modes())
        if first in ("COMMIT", "END", "ROLLBACK", "ABORT"):
            self.accept("WORK", "TRANSACTION")
            if first == "ROLLBACK" and self.accept("TO"):
                return tree.RollbackTo(self._savepoint())
            for word in ("TO", "AND", "PREPARED"):
                if self.word() == word:
                    raise self.refused(f"{first} {word}")
            return tree.Commit() if first in ("COMMIT", "END") else tree.Rollback()
        if first == "SAVEPOINT":
            return tree.MakeSavepoint(self.name("the name of a savepoint"))
        if first == "RELEASE":
            return tree.Release(self._savepoint())
        if first == "KILL":
            is_statement = self.accept("STATEMENT")
            if not is_statement:
                self.accept("CONNECTION")
            return tree.Kill(self.number("a number", _NUMBER_DIGITS_MAX), not is_statement)
        if first == "SHOW":
            return tree.ShowOption(self._option_name())
        if first == "RESET":
            return tree.SetOption(self._option_name(), None)
        return self._set()

    def _savepoint(self) -> str:
        """Read [SAVEPOINT] name; a savepoint may be called so itself."""
        if self.word(1) or self.kinds[self.index + 1] == "name":
            self.accept("SAVEPOINT")
        return self.name("the name of a savepoint")

    def _set(self) -> tree.Statement:
        if self.word() == "LOCAL":
            raise self.refused("SET LOCAL")
        if self.accept("SESSION") and self.accept_all("CHARACTERISTICS", "AS", "TRANSACTION"):
            return tree.SetCharacteristics(self._transaction_modes())
        if self.accept("TRANSACTION"):
            if self.accept("SNAPSHOT"):
                return tree.SetSnapshot(self.string("a string"))
            return tree.SetTransaction(self._transaction_modes())
        is_zone = self.word() == "TIME"
        name = self._option_name()
        if not is_zone and not self.accept("TO", "="):
            raise self.unexpected()
        if is_zone and self.accept("LOCAL"):
            return tree.SetOption(name, None)
        return tree.SetOption(name, self.setting_value())

    def _option_name(self) -> str:
        if self.word() in ("ROLE", "AUTHORIZATION"):
            raise self.refused("a role other than the session's user")
        name = self.name("a setting")
        if name == "transaction" and self.accept("ISOLATION"):
            self.expect("LEVEL")
            return "transaction_isolation"
        if name == "time" and self.accept("ZONE"):
            return "timezone"
        return name

    def _transaction_modes(self) -> tree.TransactionModes:
        """Read ISOLATION LEVEL, READ ONLY and READ WRITE; of each the last one counts."""
        level, is_read_only = None, None
        while not self.is_at_end:
            self.accept(",")
            if self.accept("ISOLATION"):
                self.expect("LEVEL")
                level = self._level()
            else:
                self.expect("READ")
                is_read_only = self.accept("ONLY")
                if not is_read_only:
                    self.expect("WRITE")
        return tree.TransactionModes(level, is_read_only)

    def _level(self) -> Isolation:
        position = self.scanned.position(self.index)
        words = [self.take()]
        if words[0] == "REPEATABLE":
            self.expect("READ")
            words.append("READ")
        elif words[0] == "READ":
            words.append(self.word())
            self.expect("COMMITTED", "UNCOMMITTED")
        elif words[0] != "SERIALIZABLE":
            self.index -= 1
            raise self.unexpected("READ COMMITTED or REPEATABLE READ")
        return isolation_of(" ".join(words), "ISOLATION LEVEL", position)
