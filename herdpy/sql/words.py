"""Words: the tokens of one of our own statements, read one after the other.

Errors say where the statement stops being one (42601), or which known feature it names (0A000).
"""

from sqlglot.tokens import TokenType  # pyright: ignore[reportPrivateImportUsage]

from herdpy.errors import NotSupportedError, ProgrammingError
from herdpy.limits import identifier_bytes_max
from herdpy.sql.tokens import STRINGS, Scanned, token_name


class Words:
    """A place in a statement; one thread."""

    def __init__(self, scanned: Scanned) -> None:
        self.scanned = scanned
        self.index = 0

    @property
    def is_at_end(self) -> bool:
        return self.index >= len(self.scanned.tokens)

    def word(self, ahead: int = 0) -> str:
        return self.scanned.word(self.index + ahead)

    def take(self) -> str:
        word = self.word()
        self.index += 1
        return word

    def accept(self, *words: str) -> bool:
        """Read one of the words, if it stands here."""
        if self.word() not in words:
            return False
        self.index += 1
        return True

    def accept_all(self, *words: str) -> bool:
        """Read all of the words, if they stand here."""
        if any(self.word(ahead) != word for ahead, word in enumerate(words)):
            return False
        self.index += len(words)
        return True

    def expect(self, *words: str) -> None:
        if not self.accept(*words):
            raise self.unexpected(words[0])

    def expect_end(self) -> None:
        if not self.is_at_end:
            raise self.unexpected()

    def name(self, what: str) -> str:
        """Read a name; in lower case unless quoted. 42622 for one that is too long."""
        if self.is_at_end:
            raise self.unexpected(what)
        token = self.scanned.tokens[self.index]
        is_quoted = token.token_type is TokenType.IDENTIFIER
        if not is_quoted and not self.word().isidentifier():
            raise self.unexpected(what)
        name = token_name(token)
        if not name or len(name.encode()) > identifier_bytes_max:
            raise ProgrammingError(
                f'name "{name}": expected 1 to {identifier_bytes_max} bytes',
                sqlstate="42622",
                position=self.scanned.position(self.index),
            )
        self.index += 1
        return name

    def names(self, what: str) -> tuple[str, ...]:
        """Read one or more names, with commas between them."""
        names = [self.name(what)]
        while self.accept(","):
            names.append(self.name(what))
        return tuple(names)

    def string(self, what: str) -> str:
        """Read a string."""
        if self.is_at_end or self.scanned.tokens[self.index].token_type is not TokenType.STRING:
            raise self.unexpected(what)
        self.index += 1
        return self.scanned.tokens[self.index - 1].text

    def placeholder(self) -> int | str | None:
        """Read a placeholder, which tokens.py makes two tokens; return its source."""
        tokens = self.scanned.tokens[self.index : self.index + 2]
        if len(tokens) < 2 or tokens[0].token_type is not TokenType.COLON:
            return None
        self.index += 2
        return self.scanned.placeholders[int(tokens[1].text[1:]) - 1]

    def unexpected(self, expected: str | None = None) -> ProgrammingError:
        """Return the error of the token that stands here; a string in it may be a password."""
        near = "the end"
        if not self.is_at_end:
            token = self.scanned.tokens[self.index]
            near = "a string" if token.token_type in STRINGS else f'"{token.text}"'
        wanted = f", expected {expected}" if expected else ""
        return ProgrammingError(
            f"syntax error at or near {near}{wanted}",
            sqlstate="42601",
            position=self.scanned.position(self.index),
        )

    def refused(self, what: str) -> NotSupportedError:
        return NotSupportedError(
            f"{what} is not supported", position=self.scanned.position(self.index)
        )
