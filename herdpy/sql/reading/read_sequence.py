"""Sequences in a statement: CREATE and ALTER SEQUENCE, and what stands behind AS IDENTITY."""

from herdpy.errors import ProgrammingError
from herdpy.sql.reading import syntax
from herdpy.sql.reading.read_expression import ExpressionReader

_DIGITS_MAX = 19
_NUMBERS = ("INCREMENT", "MINVALUE", "MAXVALUE", "START", "CACHE", "RESTART")


class SequenceReader(ExpressionReader):
    """Reads the options of a sequence; one thread."""

    def table_name(self) -> syntax.TableName:
        return syntax.TableName(*self.relation_name())

    def create_sequence(self) -> syntax.Node:
        self.expect_all("CREATE", "SEQUENCE")
        if_not_exists = self.accept_all("IF", "NOT", "EXISTS")
        return syntax.CreateSequence(self.table_name(), self.sequence_options(), if_not_exists)

    def alter_sequence(self) -> syntax.Node:
        self.expect_all("ALTER", "SEQUENCE")
        if_exists = self.accept_all("IF", "EXISTS")
        name = self.table_name()
        if self.words[self.index] in ("RENAME", "SET"):
            raise self.refused(f"ALTER SEQUENCE … {self.words[self.index]}")
        options = self.sequence_options()
        if not options.found:
            raise self.unexpected()
        return syntax.AlterSequence(name, options, if_exists)

    def identity(self) -> syntax.Identity | None:
        """Read GENERATED … AS IDENTITY [(options)], if that stands here."""
        begin = self.index
        if not self.accept("GENERATED"):
            return None
        start = self.tokens[begin].start
        is_always = self.accept("ALWAYS")
        if not (is_always or self.accept_all("BY", "DEFAULT")):
            self.index = begin
            return None
        if not self.accept_all("AS", "IDENTITY"):
            self.index = begin
            return None
        options = syntax.SequenceOptions({}, start)
        if self.accept("("):
            options = self.sequence_options(may_be_named=True)
            self.expect(")")
        return syntax.Identity(is_always, options, start)

    def sequence_options(self, *, may_be_named: bool = False) -> syntax.SequenceOptions:
        """Read options, each once, up to what is none."""
        start = self.tokens[self.index].start
        found: dict[str, syntax.OptionValue] = {}
        while True:
            begin = self.index
            word = self.words[begin]
            if word == "NO":
                word, value = self.words[begin + 1], None
                if word not in ("MINVALUE", "MAXVALUE", "CYCLE"):
                    break
                self.index += 2
                if word == "CYCLE":
                    value = False
            elif word in _NUMBERS:
                self.index += 1
                value = self._option_number(word)
            elif word == "CYCLE":
                self.index += 1
                value = True
            elif word == "AS":
                self.index += 1
                value = self.type()
            elif word == "OWNED":
                self.index += 1
                self.expect("BY")
                value = self._owner()
            elif word == "SEQUENCE" and may_be_named:
                self.index += 1
                self.expect("NAME")
                value, _ = self.relation_name()
            elif word in ("SEQUENCE", "LOGGED", "UNLOGGED"):
                raise self.refused(f"the option {word} of a sequence")
            else:
                break
            if word in found:
                raise ProgrammingError(
                    "conflicting or redundant options",
                    sqlstate="42601",
                    position=self.tokens[begin].start + 1,
                )
            found[word] = value
        return syntax.SequenceOptions(found, start)

    def _option_number(self, word: str) -> int | None:
        if word in ("START", "RESTART"):
            self.accept("WITH")
        elif word == "INCREMENT":
            self.accept("BY")
        is_number = self.kinds[self.index] == "number" or self.words[self.index] in ("+", "-")
        if word == "RESTART" and not is_number:
            return None
        sign = self.accept_any(("+", "-"))
        number = self.number("", _DIGITS_MAX)
        return -number if sign == "-" else number

    def _owner(self) -> tuple[str, str] | None:
        """Read table.column, or NONE."""
        name, _ = self.placed_name()
        if self.accept("."):
            column = self.name()
            if self.words[self.index] == ".":
                self.expect_public(name, "a table name")
                return column, self.name()
            return name, column
        if name != "none":
            raise self.unexpected()
        return None
