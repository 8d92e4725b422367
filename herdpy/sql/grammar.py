"""A second, strict reading of a statement's tokens, by PostgreSQL's grammar.

sqlglot reads many dialects and passes over what it does not understand: it takes "DELETE FROM t,"
for a DELETE of all rows, and LEFT ANTI JOIN for a LEFT JOIN of a table called anti. What is here
builds no tree: it only tells where a statement stops being one. What we do not have need not be
known here either, as binding refuses it with 0A000, and that refusal goes first (see compile.py).
Precedence plays no role, so a long chain of operators is a loop; () and CASE recurse, limited by
the depth that tokens.py checks.
"""

from dataclasses import dataclass

from sqlglot.tokens import TokenType  # pyright: ignore[reportPrivateImportUsage]

from herdpy.errors import ProgrammingError
from herdpy.sql.tokens import STRINGS, Scanned, token_name


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_RESERVED = _words(
    """ALL ANALYSE ANALYZE AND ANY ARRAY AS ASC ASYMMETRIC BOTH CASE CAST CHECK COLLATE COLUMN
    CONSTRAINT CREATE CURRENT_CATALOG CURRENT_DATE CURRENT_ROLE CURRENT_TIME CURRENT_TIMESTAMP
    CURRENT_USER DEFAULT DEFERRABLE DESC DISTINCT DO ELSE END EXCEPT FALSE FETCH FOR FOREIGN FROM
    GRANT GROUP HAVING IN INITIALLY INTERSECT INTO LATERAL LEADING LIMIT LOCALTIME LOCALTIMESTAMP
    NOT NULL OFFSET ON ONLY OR ORDER PLACING PRIMARY REFERENCES RETURNING SELECT SESSION_USER SOME
    SYMMETRIC TABLE THEN TO TRAILING TRUE UNION UNIQUE USER USING VARIADIC WHEN WHERE WINDOW
    WITH"""
)
# Reserved, but for the names of functions and types.
_FUNCTION_WORDS = _words(
    """AUTHORIZATION BINARY COLLATION CONCURRENTLY CROSS CURRENT_SCHEMA FREEZE FULL ILIKE INNER IS
    ISNULL JOIN LEFT LIKE NATURAL NOTNULL OUTER OVERLAPS RIGHT SIMILAR TABLESAMPLE
    VERBOSE"""
)
# No names of columns without AS: these words go on with what stands before them.
_NO_LABELS = _words(
    """ARRAY AS CHAR CHARACTER CREATE DAY EXCEPT FETCH FILTER FOR FROM GRANT GROUP HAVING HOUR
    INTERSECT INTO ISNULL LIMIT MINUTE MONTH NOTNULL OFFSET ON ORDER OVER OVERLAPS PRECISION
    RETURNING SECOND TO UNION VARYING WHERE WINDOW WITH WITHIN WITHOUT YEAR
    AND OR NOT IS IN LIKE ILIKE SIMILAR BETWEEN COLLATE AT OPERATOR"""
)
_COMPARISONS = frozenset(("=", "<", ">", "<=", ">=", "<>", "!="))
_OPERATORS = _COMPARISONS | _words(
    """+ - * / % ^ || & | # << >> ~ ~* !~ !~* ~~ !~~ ~~* !~~* -> ->> #> #>> @> <@ ?& ?| && ^@ @@
    -|- <-> &< &>"""
)
_QUERIES = frozenset(("SELECT", "VALUES", "WITH", "TABLE"))
_TAILS = _words("UNION INTERSECT EXCEPT ORDER LIMIT OFFSET FETCH FOR")
_VALUES = _words(
    """NULL TRUE FALSE CURRENT_DATE CURRENT_USER CURRENT_ROLE CURRENT_CATALOG CURRENT_SCHEMA
    SESSION_USER USER"""
)
_MOMENTS = _words("CURRENT_TIME CURRENT_TIMESTAMP LOCALTIME LOCALTIMESTAMP")
_UNITS = _words("YEAR MONTH DAY HOUR MINUTE SECOND")
# The types that may stand before a string: DATE '2020-01-01'.
_LITERAL_TYPES = _words(
    """DATE TIME TIMESTAMP TIMESTAMPTZ TIMETZ BOOL BOOLEAN INT INT2 INT4 INT8 INTEGER BIGINT
    SMALLINT NUMERIC DECIMAL DEC REAL FLOAT FLOAT4 FLOAT8 DOUBLE TEXT VARCHAR CHAR CHARACTER BYTEA
    UUID JSON JSONB BIT NATIONAL"""
)
_JOINS = _words("JOIN CROSS NATURAL INNER LEFT RIGHT FULL")


PLACEHOLDER_HINT = "Placeholders are ? or :name, not %s or %(name)s."


class _UnexpectedError(Exception):
    """The statement cannot go on with the piece of that index."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reading found: functions called, as (name, 1-based position), and what is wrong.

    `pluses` are the indices of the tokens that are the sign +.
    """

    functions: list[tuple[str, int]]
    pluses: set[int]
    wrong: ProgrammingError | None


def check(scanned: Scanned) -> Reading:
    """Read a statement."""
    reader, wrong = _Reader(scanned), None
    try:
        reader.statement()
        if reader.index < reader.count:
            raise _UnexpectedError
    except _UnexpectedError:
        wrong = reader.error()
    return Reading(reader.functions, reader.pluses, wrong)


class _Reader:
    """Goes over the pieces of a statement: tokens, of which "ORDER BY" is two pieces.

    `kinds` has "w" for words, "q" for quoted names, "s" for strings, "n" for numbers, "p" for
    placeholders, "o" for the rest; `words` what they say, words in upper case. Both end in "".
    """

    def __init__(self, scanned: Scanned) -> None:
        self.scanned = scanned
        self.functions: list[tuple[str, int]] = []
        self.pluses: set[int] = set()
        self.allows_default = False
        self.index = 0
        self.kinds: list[str] = []
        self.words: list[str] = []
        self.places: list[int] = []  # the token of each piece
        # Where the relation that begins at a piece ends, or stops being one (with a False): there
        # are two readings of what follows "((", and each meets the same relations further in.
        self._relations: dict[int, tuple[int, bool]] = {}
        for place, token in enumerate(scanned.tokens):
            text, kind = token.text, token.token_type
            if kind is TokenType.IDENTIFIER:
                self._piece("q", text, place)
            elif kind in STRINGS:
                self._piece("s", text, place)
            elif kind is TokenType.NUMBER:
                self._piece("n", text, place)
            elif text[:1].isalpha() or text[:1] == "_":
                if self.words and self.words[-1] == ":" and kind is TokenType.VAR:
                    self.kinds[-1] = "p"  # tokens.py makes two tokens of a placeholder
                    continue
                for word in text.upper().split():
                    self._piece("w", word, place)
            elif self.words and self.words[-1] == "!" and text in ("~", "~*", "~~", "~~*"):
                self.words[-1] += text
            else:
                self._piece("o", text, place)
        self.count = len(self.words)
        self._piece("", "", len(scanned.tokens))

    def _piece(self, kind: str, word: str, place: int) -> None:
        self.kinds.append(kind)
        self.words.append(word if kind in ("w", "o") else "")
        self.places.append(place)

    def error(self) -> ProgrammingError:
        place = self.places[min(self.index, self.count)]
        tokens, text = self.scanned.tokens, self.scanned.text
        near = "end of input"
        if place < len(tokens):
            near = f'or near "{text[tokens[place].start : tokens[place].end + 1]}"'
        return ProgrammingError(
            f"syntax error at {near}",
            sqlstate="42601",
            position=self.scanned.position(place),
            hint=PLACEHOLDER_HINT if self.words[self.index] == "%" else None,
        )

    # --- pieces ----------------------------------------------------------------------------------

    def accept(self, word: str) -> bool:
        if self.words[self.index] != word:
            return False
        self.index += 1
        return True

    def accept_any(self, words: frozenset[str] | tuple[str, ...]) -> bool:
        if self.words[self.index] not in words or self.index >= self.count:
            return False
        self.index += 1
        return True

    def accept_all(self, *words: str) -> bool:
        end = self.index + len(words)
        if tuple(self.words[self.index : end]) != words:
            return False
        self.index = end
        return True

    def expect(self, *words: str) -> None:
        for word in words:
            if not self.accept(word):
                raise _UnexpectedError

    def expect_any(self, *words: str) -> None:
        if not self.accept_any(words):
            raise _UnexpectedError

    def accept_kind(self, kind: str) -> bool:
        if self.kinds[self.index] != kind:
            return False
        self.index += 1
        return True

    def is_name(self) -> bool:
        """Tell whether a column or a table may be called so."""
        if self.kinds[self.index] == "w":
            word = self.words[self.index]
            return word not in _RESERVED and word not in _FUNCTION_WORDS
        return self.kinds[self.index] == "q"

    def name(self) -> None:
        if not self.is_name():
            raise _UnexpectedError
        self.index += 1

    def label(self) -> None:
        """Read any word: what may follow AS or a dot."""
        if self.kinds[self.index] not in ("w", "q"):
            raise _UnexpectedError
        self.index += 1

    def names(self) -> None:
        """Read (name, …)."""
        self.expect("(")
        self.name()
        while self.accept(","):
            self.name()
        self.expect(")")

    def table_name(self) -> None:
        self.name()
        while self.accept("."):
            self.label()

    # --- statements ------------------------------------------------------------------------------

    def statement(self) -> None:
        has_with = self._with()
        word = self.words[self.index]
        if has_with and word in ("WITH", "CREATE", "DROP", "TRUNCATE"):
            raise _UnexpectedError
        if word == "INSERT":
            self._insert()
        elif word == "UPDATE":
            self._update()
        elif word == "DELETE":
            self._delete()
        elif word == "CREATE":
            self._create()
        elif word == "DROP":
            self._drop()
        elif word == "TRUNCATE":
            self._truncate()
        else:
            self.query()

    def _insert(self) -> None:
        self.expect("INSERT", "INTO")
        self.table_name()
        if self.accept("AS"):
            self.name()
        following = self.words[self.index + 1]
        if self.words[self.index] == "(" and following not in _QUERIES and following != "(":
            self.names()
        if not self.accept_all("DEFAULT", "VALUES"):
            self.allows_default = True
            self.query()
        if self.accept_all("ON", "CONFLICT"):
            if self.words[self.index] == "(":
                self.names()
            self.expect("DO", "NOTHING")  # of other forms binding says that they are missing

    def _update(self) -> None:
        self.expect("UPDATE")
        self._target()
        self.expect("SET")
        self.allows_default = True
        while True:
            self.name()
            self.expect("=")
            self.expression()
            if not self.accept(","):
                break
        self._where()

    def _delete(self) -> None:
        self.expect("DELETE", "FROM")
        self._target()
        self._where()

    def _target(self) -> None:
        self.accept("ONLY")
        self.table_name()
        if self.accept("AS") or (self.is_name() and self.words[self.index] != "SET"):
            self.name()

    def _where(self) -> None:
        if self.accept("WHERE"):
            self.expression()

    def _create(self) -> None:
        self.expect("CREATE", "TABLE")
        self.accept_all("IF", "NOT", "EXISTS")
        self.table_name()
        if self.accept_all("(", ")"):  # binding says better what is wrong with no columns
            return
        self.expect("(")
        while True:
            self._table_element()
            if not self.accept(","):
                break
        self.expect(")")

    def _table_element(self) -> None:
        if self.accept("CONSTRAINT"):
            self.name()
            self.expect("PRIMARY", "KEY")
            self.names()
        elif self.accept_all("PRIMARY", "KEY"):
            self.names()
        else:
            self.name()
            self.type()
            self._column_constraints()

    def _column_constraints(self) -> None:
        found: set[str] = set()
        while self.words[self.index] not in (",", ")", ""):
            if self.accept("CONSTRAINT"):
                self.name()
            begin = self.index
            if self.accept_all("NOT", "NULL"):
                word = "NOT NULL"
            elif self.accept("NULL"):
                word = "NULL"
            elif self.accept_all("PRIMARY", "KEY"):
                word = "NOT NULL"
            elif self.accept("DEFAULT"):
                word = "DEFAULT"
                self.expression(is_restricted=True)
            else:
                raise _UnexpectedError
            is_twice = word == "DEFAULT" and word in found
            found.add(word)
            if is_twice or found >= {"NULL", "NOT NULL"}:
                self.index = begin
                raise _UnexpectedError

    def _drop(self) -> None:
        self.expect("DROP", "TABLE")
        self.accept_all("IF", "EXISTS")
        self.table_name()
        while self.accept(","):
            self.table_name()
        self.accept_any(("CASCADE", "RESTRICT"))

    def _truncate(self) -> None:
        self.expect("TRUNCATE")
        self.accept("TABLE")
        while True:
            self.accept("ONLY")
            self.table_name()
            self.accept("*")
            if not self.accept(","):
                break
        if self.accept_any(("RESTART", "CONTINUE")):
            self.expect("IDENTITY")
        self.accept_any(("CASCADE", "RESTRICT"))

    # --- queries ---------------------------------------------------------------------------------

    def query(self) -> None:
        self._with()
        self._simple_query()
        self.query_tail()

    def _with(self) -> bool:
        if not self.accept("WITH"):
            return False
        self.accept("RECURSIVE")
        while True:
            self.name()
            if self.words[self.index] == "(":
                self.names()
            self.expect("AS")
            if self.accept("NOT"):
                self.expect("MATERIALIZED")
            else:
                self.accept("MATERIALIZED")
            self.expect("(")
            self.query()
            self.expect(")")
            if not self.accept(","):
                return True

    def query_tail(self) -> None:
        """Read set operations, ORDER BY, LIMIT, OFFSET and FETCH."""
        while self.accept_any(("UNION", "INTERSECT", "EXCEPT")):
            self.accept_any(("ALL", "DISTINCT"))
            self._simple_query()
        self._order_by()
        found: set[str] = set()
        while True:
            word = self.words[self.index]
            part = "LIMIT" if word == "FETCH" else word
            if word not in ("LIMIT", "OFFSET", "FETCH") or part in found:
                return
            found.add(part)
            self.index += 1
            if word == "FETCH":
                self.expect_any("FIRST", "NEXT")
                if self.words[self.index] not in ("ROW", "ROWS"):
                    self.operand()
                self.expect_any("ROW", "ROWS")
                if not self.accept_all("WITH", "TIES"):
                    self.expect("ONLY")
            elif not (word == "LIMIT" and self.accept("ALL")):
                self.expression()
                if word == "OFFSET":
                    self.accept_any(("ROW", "ROWS"))

    def _simple_query(self) -> None:
        if self.accept("("):
            self.query()
            self.expect(")")
        elif self.accept("VALUES"):
            while True:
                self.expect("(")
                self._list()
                self.expect(")")
                if not self.accept(","):
                    break
        elif self.accept("TABLE"):
            self.accept("ONLY")
            self.table_name()
        else:
            self._select()

    def _select(self) -> None:
        self.expect("SELECT")
        if self.accept("DISTINCT"):
            if self.accept("ON"):
                self.expect("(")
                self._list()
                self.expect(")")
        else:
            self.accept("ALL")
        while True:
            self._select_item()
            if not self.accept(","):
                break
        if self.accept("FROM"):
            self._joined()
            while self.accept(","):
                self._joined()
        self._where()
        if self.accept_all("GROUP", "BY"):
            self.accept_any(("ALL", "DISTINCT"))
            while True:
                if not self.accept_all("(", ")"):
                    self.expression()
                if not self.accept(","):
                    break
        if self.accept("HAVING"):
            self.expression()
        if self.accept("WINDOW"):
            while True:
                self.name()
                self.expect("AS")
                self._window()
                if not self.accept(","):
                    break

    def _select_item(self) -> None:
        if self.accept("*"):
            return
        begin = self.index
        if self.is_name():
            self.index += 1
            while self.accept("."):
                if self.accept("*"):
                    return
                self.label()
            self.index = begin
        self.expression()
        if self.accept("AS"):
            self.label()
        elif self.kinds[self.index] == "q" or (
            self.kinds[self.index] == "w" and self.words[self.index] not in _NO_LABELS
        ):
            self.index += 1

    def _order_by(self) -> None:
        if not self.accept_all("ORDER", "BY"):
            return
        while True:
            self.expression()
            self.accept_any(("ASC", "DESC"))
            if self.accept("NULLS"):
                self.expect_any("FIRST", "LAST")
            if not self.accept(","):
                break

    # --- FROM ------------------------------------------------------------------------------------

    def _joined(self) -> None:
        self._relation()
        while self.words[self.index] in _JOINS:
            self._join()

    def _join(self) -> None:
        if self.accept_all("CROSS", "JOIN"):
            self._relation()
            return
        is_natural = self.accept("NATURAL")
        if self.accept_any(("LEFT", "RIGHT", "FULL")):
            self.accept("OUTER")
        else:
            self.accept("INNER")
        self.expect("JOIN")
        self._relation()
        if is_natural:
            return
        while self.words[self.index] in _JOINS:  # a JOIN b JOIN c ON … ON …
            self._join()
        if self.accept("ON"):
            self.expression()
        else:
            self.expect("USING")
            self.names()

    def _relation(self) -> None:
        begin = self.index
        if begin not in self._relations:
            try:
                self._read_relation()
            except _UnexpectedError:
                self._relations[begin] = (self.index, False)
            else:
                self._relations[begin] = (self.index, True)
        self.index, is_right = self._relations[begin]
        if not is_right:
            raise _UnexpectedError

    def _read_relation(self) -> None:
        begin = self.index
        if self.accept("("):
            try:
                self.query()
                self.expect(")")
            except _UnexpectedError:
                end, self.index = self.index, begin + 1
                try:
                    self._joined()
                    self.expect(")")
                except _UnexpectedError:
                    self.index = max(end, self.index)
                    raise
        else:
            self.accept("ONLY")
            self.table_name()
        if self.accept("AS"):
            self.name()
        elif not self.is_name():
            return
        else:
            self.index += 1
        if self.words[self.index] == "(":
            self.names()

    # --- expressions -----------------------------------------------------------------------------

    def _list(self) -> None:
        while True:
            if self.kinds[self.index] == "p" and self.words[self.index + 1] in (",", ")"):
                self.index += 1  # there may be many thousands of them
            else:
                self.expression()
            if not self.accept(","):
                break

    def expression(self, *, is_restricted: bool = False) -> None:
        """Read an expression; a restricted one has no AND, OR, NOT, IN, LIKE, BETWEEN, IS NULL."""
        self.operand(is_restricted=is_restricted)
        self.continue_expression(is_restricted=is_restricted)

    def continue_expression(self, *, is_restricted: bool = False) -> None:
        has_compared = False
        while True:
            kind, word = self.kinds[self.index], self.words[self.index]
            if kind == "o":
                if word == "::":
                    self.index += 1
                    self.type()
                    continue
                if word not in _OPERATORS:
                    return
                if word in _COMPARISONS:
                    if has_compared:  # a < b < c
                        raise _UnexpectedError
                    has_compared = True
                self.index += 1
                if self.words[self.index] in ("ANY", "ALL", "SOME"):
                    self.index += 1
                    self._parenthesized()
                    continue
                has_compared &= not self.operand(is_restricted=is_restricted)
                continue
            if kind != "w":
                return
            if word == "IS":
                begin = self.index
                self.index += 1
                self.accept("NOT")
                if self.accept_all("DISTINCT", "FROM"):
                    self.operand(is_restricted=is_restricted)
                elif is_restricted:
                    self.index = begin
                    return
                else:
                    self.expect_any("NULL", "TRUE", "FALSE", "UNKNOWN")
                has_compared = False
            elif word == "COLLATE":
                self.index += 1
                self.label()
            elif word == "AT":
                self.expect("AT", "TIME", "ZONE")
                self.operand(is_restricted=is_restricted)
            elif is_restricted:
                return
            elif word in ("AND", "OR"):
                self.index += 1
                self.operand()
                has_compared = False
            elif word in ("ISNULL", "NOTNULL"):
                self.index += 1
                has_compared = False
            elif word in ("LIKE", "ILIKE", "SIMILAR", "IN", "BETWEEN", "NOT"):
                self._test()
            else:
                return

    def _test(self) -> None:
        """Read [NOT] LIKE, IN and BETWEEN with what follows them."""
        self.accept("NOT")
        if self.accept("IN"):
            self._parenthesized()
        elif self.accept("BETWEEN"):
            self.accept_any(("SYMMETRIC", "ASYMMETRIC"))
            self.expression(is_restricted=True)
            self.expect("AND")
            self.operand()
        else:
            if self.accept("SIMILAR"):
                self.expect("TO")
            else:
                self.expect_any("LIKE", "ILIKE")
            if self.accept_any(("ANY", "ALL", "SOME")):
                self._parenthesized()
                return
            self.expression(is_restricted=True)
            if self.accept("ESCAPE"):
                self.operand()

    def operand(self, *, is_restricted: bool = False) -> bool:
        """Read one operand with its prefixes; tell whether one of them is NOT."""
        has_not = False
        while True:
            if self.accept_any(("+", "-", "~", "@")):
                if self.words[self.index - 1] == "+":
                    self.pluses.add(self.places[self.index - 1])
                continue
            if is_restricted or not self.accept("NOT"):
                break
            has_not = True
        kind = self.kinds[self.index]
        if kind == "n":
            self._number()
        elif kind == "s":
            self._string()
        elif kind == "p":
            self.index += 1
        elif kind == "o":
            if self.accept("."):  # .5
                point, digits = self.places[self.index - 1], self.places[self.index]
                tokens = self.scanned.tokens
                is_number = self.kinds[self.index] == "n"
                if not is_number or tokens[point].end + 1 != tokens[digits].start:
                    raise _UnexpectedError
                self._number()
            else:
                self._parenthesized()
        elif kind == "w" and self._construct():
            pass
        else:
            self._named()
        return has_not

    def _number(self) -> None:
        token = self.scanned.tokens[self.places[self.index]]
        text = token.text
        is_whole = text[-1:].isdigit() or text.endswith(".")
        following = self.scanned.text[token.end + 1 : token.end + 2]
        if not is_whole or following.isalnum() or following == "_":  # 1e, 1x
            raise _UnexpectedError
        self.index += 1

    def _string(self) -> None:
        tokens = self.scanned.tokens
        before = tokens[self.places[self.index]]
        self.index += 1
        while self.kinds[self.index] == "s":  # 'a' 'b' is one string where a line lies between
            token = tokens[self.places[self.index]]
            if "\n" not in self.scanned.text[before.end + 1 : token.start]:
                raise _UnexpectedError
            before = token
            self.index += 1

    def _parenthesized(self) -> bool:
        """Read (query) or (expression, …); tell whether it is a query."""
        self.expect("(")
        if self.words[self.index] in _QUERIES and self.kinds[self.index] == "w":
            self.query()
            self.expect(")")
            return True
        if self.words[self.index] == "(":
            if self._parenthesized():
                if self.words[self.index] in _TAILS:
                    self.query_tail()
                if self.accept(")"):
                    return True
            self.continue_expression()
            if self.accept(","):
                self._list()
        else:
            self._list()
        self.expect(")")
        return False

    def _construct(self) -> bool:
        """Read what begins with a word that is no name; False when there is none."""
        word, following = self.words[self.index], self.words[self.index + 1]
        if word in _VALUES:
            self.index += 1
        elif word in _MOMENTS:
            self.index += 1
            self._digits()
        elif word == "DEFAULT" and self.allows_default:
            self.index += 1
        elif word == "CASE":
            self._case()
        elif word == "INTERVAL" and self.kinds[self.index + 1] == "s":
            self.index += 2
            if self.accept_any(_UNITS) and self.accept("TO"):
                self.expect_any(*_UNITS)
        elif word in _LITERAL_TYPES and self._typed_string():
            pass
        elif word == "ARRAY" and following == "[":
            self.index += 2
            if not self.accept("]"):
                self._list()
                self.expect("]")
        elif following != "(":
            return False
        elif word == "CAST":
            self.expect("CAST", "(")
            self.expression()
            self.expect("AS")
            self.type()
            self.expect(")")
        elif word == "EXISTS":
            self.index += 1
            if not self._parenthesized():
                raise _UnexpectedError
        elif word in ("EXTRACT", "POSITION", "SUBSTRING", "OVERLAY", "TRIM"):
            self._spelled(word)
        else:
            return False
        return True

    def _typed_string(self) -> bool:
        begin = self.index
        try:
            self.type()
        except _UnexpectedError:
            self.index = begin
            return False
        if self.kinds[self.index] == "s":
            self._string()
            return True
        self.index = begin
        return False

    def _case(self) -> None:
        self.expect("CASE")
        if self.words[self.index] != "WHEN":
            self.expression()
        while True:
            self.expect("WHEN")
            self.expression()
            self.expect("THEN")
            self.expression()
            if self.words[self.index] != "WHEN":
                break
        if self.accept("ELSE"):
            self.expression()
        self.expect("END")

    def _spelled(self, word: str) -> None:
        """Read the functions whose arguments are parted by words."""
        self.index += 2
        if word == "EXTRACT":
            if not self.accept_kind("s"):
                self.label()
            self.expect("FROM")
            self.expression()
        elif word == "POSITION":
            self.expression(is_restricted=True)
            self.expect("IN")
            self.expression(is_restricted=True)
        elif word == "TRIM":
            self.accept_any(("BOTH", "LEADING", "TRAILING"))
            if not self.accept("FROM"):
                self.expression()
                self.accept_any(("FROM", ","))
            if self.words[self.index] != ")":
                self._list()
        else:
            self.expression()
            if self.accept(","):
                self._list()
            elif word == "OVERLAY":
                self.expect("PLACING")
                self.expression()
                self.expect("FROM")
                self.expression()
                if self.accept("FOR"):
                    self.expression()
            elif self.accept("FROM"):
                self.expression()
                if self.accept("FOR"):
                    self.expression()
            elif self.accept("FOR"):
                self.expression()
                if self.accept("FROM"):
                    self.expression()
        self.expect(")")

    def _named(self) -> None:
        """Read the name of a column, or the call of a function."""
        begin = self.index
        kind, word = self.kinds[begin], self.words[begin]
        if kind == "w" and word in _FUNCTION_WORDS and self.words[begin + 1] == "(":
            self.index += 1
        else:
            self.name()
        while self.accept("."):
            self.label()
        if self.words[self.index] != "(":
            return
        token = self.scanned.tokens[self.places[self.index - 1]]
        self.functions.append((token_name(token), token.start + 1))
        self.index += 1
        if not (self.accept("*") or self.words[self.index] == ")"):
            self.accept_any(("ALL", "DISTINCT"))
            self._list()
            self._order_by()
        self.expect(")")
        if self.accept_all("WITHIN", "GROUP"):
            self.expect("(")
            self._order_by()
            self.expect(")")
        if self.accept("FILTER"):
            self.expect("(", "WHERE")
            self.expression()
            self.expect(")")
        if self.accept("OVER"):
            if self.words[self.index] == "(":
                self._window()
            else:
                self.name()

    def _window(self) -> None:
        self.expect("(")
        is_clause = self.words[self.index] in ("PARTITION", "RANGE", "ROWS", "GROUPS")
        if self.is_name() and not is_clause:
            self.index += 1
        if self.accept_all("PARTITION", "BY"):
            self._list()
        self._order_by()
        if self.accept_any(("RANGE", "ROWS", "GROUPS")):
            if self.accept("BETWEEN"):
                self._frame_bound()
                self.expect("AND")
            self._frame_bound()
        self.expect(")")

    def _frame_bound(self) -> None:
        if self.accept_all("CURRENT", "ROW"):
            return
        if not self.accept("UNBOUNDED"):
            self.expression(is_restricted=True)
        self.expect_any("PRECEDING", "FOLLOWING")

    # --- types -----------------------------------------------------------------------------------

    def type(self) -> None:
        word = self.words[self.index]
        self._type_name()
        if word == "DOUBLE":
            self.accept("PRECISION")  # DOUBLE alone is this database's own name for it
        elif word in ("CHARACTER", "CHAR", "BIT", "NCHAR"):
            self.accept("VARYING")
        self._digits()
        if word in ("TIME", "TIMESTAMP") and self.accept_any(("WITH", "WITHOUT")):
            self.expect("TIME", "ZONE")

    def _type_name(self) -> None:
        if self.kinds[self.index] == "w" and self.words[self.index] in _RESERVED:
            raise _UnexpectedError
        self.label()

    def _digits(self) -> None:
        if not self.accept("("):
            return
        while True:
            if not self.accept_kind("n"):
                raise _UnexpectedError
            if not self.accept(","):
                break
        self.expect(")")
