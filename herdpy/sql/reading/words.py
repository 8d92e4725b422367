"""Words: the tokens of a statement, read one after the other.

Errors say where the statement stops being one (42601), or which known feature it names (0A000).
"""

from bisect import bisect_left
from typing import Final

from herdpy.errors import Error, NotSupportedError, ProgrammingError
from herdpy.limits import identifier_bytes_max
from herdpy.model.python_values import shortened
from herdpy.sql.reading.refusals import NO_SCHEMAS, PUBLIC
from herdpy.sql.reading.tokens import Scanned, Token, token_name

_AHEAD_MAX: Final = 6
"""Readers look so far ahead; the tokens go on with as many ends."""


def words_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


RESERVED = words_of(
    """ALL ANALYSE ANALYZE AND ANY ARRAY AS ASC ASYMMETRIC BOTH CASE CAST CHECK COLLATE COLUMN
    CONSTRAINT CREATE CURRENT_CATALOG CURRENT_DATE CURRENT_ROLE CURRENT_TIME CURRENT_TIMESTAMP
    CURRENT_USER DEFAULT DEFERRABLE DESC DISTINCT DO ELSE END EXCEPT FALSE FETCH FOR FOREIGN FROM
    GRANT GROUP HAVING IN INITIALLY INTERSECT INTO LATERAL LEADING LIMIT LOCALTIME LOCALTIMESTAMP
    NOT NULL OFFSET ON ONLY OR ORDER PLACING PRIMARY REFERENCES RETURNING SELECT SESSION_USER SOME
    SYMMETRIC TABLE THEN TO TRAILING TRUE UNION UNIQUE USER USING VARIADIC WHEN WHERE WINDOW
    WITH"""
)
# Reserved, but for the names of functions and types.
FUNCTION_WORDS = words_of(
    """AUTHORIZATION BINARY COLLATION CONCURRENTLY CROSS CURRENT_SCHEMA FREEZE FULL ILIKE INNER IS
    ISNULL JOIN LEFT LIKE NATURAL NOTNULL OUTER OVERLAPS RIGHT SIMILAR TABLESAMPLE
    VERBOSE"""
)
NO_NAMES = RESERVED | FUNCTION_WORDS
"""What no column and no table is called without quotes."""


class Words:
    """A place in a statement; one thread. `words` and `kinds` are those of `tokens`."""

    def __init__(self, scanned: Scanned) -> None:
        self.scanned = scanned
        self.index = 0
        end = len(scanned.text)
        self.tokens = (*scanned.tokens, *(Token("end", "", "", end, end),) * _AHEAD_MAX)
        self.words = [token.word for token in self.tokens]
        self.kinds = [token.kind for token in self.tokens]

    @property
    def is_at_end(self) -> bool:
        return self.kinds[self.index] == "end"

    def word(self, ahead: int = 0) -> str:
        return self.words[self.index + ahead]

    def take(self) -> str:
        word = self.words[self.index]
        self.index += not self.is_at_end
        return word

    def accept(self, *words: str) -> bool:
        """Read one of the words, if it stands here."""
        if self.words[self.index] not in words:
            return False
        self.index += 1
        return True

    def accept_all(self, *words: str) -> bool:
        """Read all of the words, if they stand here."""
        end = self.index + len(words)
        if tuple(self.words[self.index : end]) != words:
            return False
        self.index = end
        return True

    def expect(self, *words: str) -> None:
        if not self.accept(*words):
            raise self.unexpected(words[0])

    def expect_end(self) -> None:
        if not self.is_at_end:
            raise self.unexpected()

    def name(self, what: str = "a name") -> str:
        """Read a name; in lower case unless quoted. 42622 for one that is too long."""
        token = self.tokens[self.index]
        if token.kind not in ("name", "word"):
            raise self.unexpected(what)
        name = self.checked_name(token)
        self.index += 1
        return name

    def checked_name(self, token: Token) -> str:
        """Return the name that a token is; 42622 for one that is empty or too long."""
        name = token_name(token)
        if not name or len(name.encode()) > identifier_bytes_max:
            raise ProgrammingError(
                f'name "{shortened(name)}": expected 1 to {identifier_bytes_max} bytes',
                sqlstate="42622",
                position=token.start + 1,
            )
        return name

    def names(self, what: str) -> tuple[str, ...]:
        """Read one or more names, with commas between them."""
        names = [self.name(what)]
        while self.accept(","):
            names.append(self.name(what))
        return tuple(names)

    def expect_public(self, schema: str, what: str) -> None:
        """Read the dot behind the name of a schema, which has to be `public`."""
        if schema != PUBLIC:
            raise self.refused(f"{what} with a schema", NO_SCHEMAS)
        self.expect(".")

    def string(self, what: str) -> str:
        if self.kinds[self.index] != "string":
            raise self.unexpected(what)
        self.index += 1
        return self.tokens[self.index - 1].text

    def number(self, what: str, digits_max: int) -> int:
        """Read a whole number of at most so many digits."""
        token = self.tokens[self.index]
        is_whole = token.kind == "number" and token.text.isdecimal()
        if not is_whole or len(token.text) > digits_max:
            raise self.unexpected(what)
        self.index += 1
        return int(token.text)

    def setting_value(self) -> str | None:
        """Read what SET sets something to, up to the end; None: DEFAULT."""
        if self.accept("DEFAULT"):
            return None
        parts: list[str] = []
        while not self.is_at_end:
            if self.placeholder() is not None:
                raise ProgrammingError(
                    "SET takes no parameters",
                    sqlstate="42601",
                    position=self.scanned.position(self.index - 1),
                )
            parts.append(self.tokens[self.index].text)
            self.index += 1
        if not parts:
            raise self.unexpected()
        return "".join(parts)

    def placeholder(self) -> int | None:
        """Read a placeholder; return its index in Scanned.placeholders."""
        token = self.tokens[self.index]
        if token.kind != "placeholder":
            return None
        self.index += 1
        return bisect_left(self.scanned.placeholder_starts, token.start)

    def unexpected(self, expected: str | None = None) -> Error:
        """Return the error of the token that stands here; a string in it may be a password."""
        token = self.tokens[self.index]
        near = "a string" if token.kind in ("string", "special") else f'"{shortened(token.text)}"'
        wanted = f", expected {expected}" if expected else ""
        return ProgrammingError(
            f"syntax error at or near {'the end' if self.is_at_end else near}{wanted}",
            sqlstate="42601",
            position=token.start + 1,
        )

    def refused(self, what: str, hint: str | None = None) -> NotSupportedError:
        """Return the 0A000 of what stands here."""
        position = self.tokens[self.index].start + 1
        return NotSupportedError(f"{what} is not supported", position=position, hint=hint)
