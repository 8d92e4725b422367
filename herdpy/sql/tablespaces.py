"""Statements about tablespaces: CREATE, ALTER and DROP TABLESPACE, as PostgreSQL writes them.

Read by recursive descent. What it knows and we do not have is 0A000.
"""

from herdpy.errors import ProgrammingError, closest
from herdpy.model.tablespace_limits import read_limit, tablespace_limits
from herdpy.sql import tree
from herdpy.sql.reading.tokens import Scanned
from herdpy.sql.reading.words import Words

_FOLDERS = "Its files lie in a folder of the database's directory, by its id."


def read_tablespace_statement(scanned: Scanned) -> tree.TablespaceStatement | None:
    """Return the statement; None when it is none of ours."""
    reader = _Reader(scanned)
    if reader.word(1) != "TABLESPACE" or reader.word() not in ("CREATE", "ALTER", "DROP"):
        return None
    statement = reader.statement()
    reader.expect_end()
    return statement


class _Reader(Words):
    def statement(self) -> tree.TablespaceStatement:
        verb = self.word()
        self.index += 2
        if verb == "CREATE":
            return self._create()
        if verb == "ALTER":
            return self._alter()
        if_exists = self.accept_all("IF", "EXISTS")
        name, is_forced = self.name("a tablespace"), False
        if self.accept("WITH"):
            for word in ("(", "FORCE", ")"):
                self.expect(word)
            is_forced = True
        return tree.DropTablespace(name, if_exists, is_forced)

    def _create(self) -> tree.CreateTablespace:
        if_not_exists = self.accept_all("IF", "NOT", "EXISTS")
        name = self.name("a tablespace")
        owner = None
        if self.accept("OWNER"):
            owner = self.name("a role")
        if self.word() == "LOCATION":
            raise self.refused("LOCATION of a tablespace", _FOLDERS)
        limits = self._limits() if self.accept("WITH") else tree.TablespaceLimits()
        return tree.CreateTablespace(name, limits, owner, if_not_exists)

    def _alter(self) -> tree.AlterTablespace:
        name = self.name("a tablespace")
        if self.word() == "OWNER":
            raise self.refused(
                "OWNER TO of a tablespace", "Its superusers are its own: ALTER ROLE … SUPERUSER."
            )
        if self.accept("RENAME"):
            self.expect("TO")
            return tree.AlterTablespace(name, self.name("a tablespace"), tree.TablespaceLimits())
        is_reset = self.word() == "RESET"
        if not self.accept("SET", "RESET"):
            raise self.unexpected("RENAME TO, SET or RESET")
        return tree.AlterTablespace(name, None, self._limits(is_reset=is_reset))

    def _limits(self, *, is_reset: bool = False) -> tree.TablespaceLimits:
        """Read (name = value, …), or with is_reset (name, …)."""
        self.expect("(")
        values: dict[str, int | None] = {}
        while True:
            position = self.scanned.position(self.index)
            name = self.name("a limit")
            if name not in tablespace_limits:
                close = closest(name, tablespace_limits)
                raise ProgrammingError(
                    f'there is no limit "{name}" of a tablespace',
                    sqlstate="22023",
                    position=position,
                    hint=f"Did you mean {close}?" if close else f"{', '.join(tablespace_limits)}",
                )
            if name in values:
                raise self.unexpected("another limit")
            values[name] = None if is_reset else self._value(name)
            if not self.accept(","):
                break
        self.expect(")")
        return tree.TablespaceLimits(tuple(values.items()))

    def _value(self, name: str) -> int:
        self.expect("=")
        position = self.scanned.position(self.index)
        is_text = self.kinds[self.index] == "string"
        text = self.string("a size") if is_text else str(self.number("a number", 18))
        try:
            return read_limit(name, text)
        except ProgrammingError as error:
            error.position = position
            raise
