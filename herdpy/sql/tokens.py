"""Text to tokens: limits, placeholders, and one statement only.

sqlglot's PostgreSQL tokenizer reads the text; its parser fails on `?::text` and takes `a ? 'b'` for
JSON, so every placeholder is replaced by the two tokens `:` `p<number>` at the same place of the
text. Positions of tokens, and so of all errors, stay those of the user's text.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache

from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import TokenError
from sqlglot.tokens import Token, TokenType  # pyright: ignore[reportPrivateImportUsage]

from herdpy.errors import DataError, Error, NotSupportedError, OperationalError, ProgrammingError
from herdpy.limits import (
    parameters_max,
    statement_bytes_max,
    statement_depth_max,
    statement_tokens_max,
)
from herdpy.sql.extent import (
    Budget,
    DollarStrings,
    check_extent,
    end_of_comment,
    too_deep_at,
)

_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.CASE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.END}
_PREFIXES = {TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE}
_TYPED_LITERALS = {
    TokenType.DATE, TokenType.TIMESTAMP, TokenType.TIMESTAMPTZ, TokenType.INTERVAL,
}  # fmt: skip
_PREFIX_WORDS_MAX = 4
_INTERVAL_UNITS = {"YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"}
_PLAIN_NUMBER = re.compile(r"\s*[+-]?\d+(?:\.\d+)?\s*", re.ASCII)
_NEVER_AFTER_COMMA = {TokenType.FROM, TokenType.R_PAREN, TokenType.WHERE}
_NOT_WORDS = {TokenType.STRING, TokenType.IDENTIFIER, TokenType.NUMBER}
STRINGS = frozenset(
    (
        TokenType.STRING, TokenType.BYTE_STRING, TokenType.BIT_STRING, TokenType.HEX_STRING,
        TokenType.NATIONAL_STRING, TokenType.HEREDOC_STRING, TokenType.RAW_STRING,
        TokenType.UNICODE_STRING,
    )
)  # fmt: skip
# Where the tokenizer joins "?" with what follows it: what follows.
_JOINED = {
    TokenType.QDCOLON: (TokenType.DCOLON, "::"),
    TokenType.QMARK_AMP: (TokenType.AMP, "&"),
    TokenType.QMARK_PIPE: (TokenType.PIPE, "|"),
}


@dataclass(frozen=True, slots=True)
class Scanned:
    """One statement's tokens.

    Placeholder :p<k> has the source placeholders[k-1], a 0-based position or a name;
    `placeholder_starts` are the 0-based characters where they stand.
    """

    text: str
    tokens: tuple[Token, ...]
    placeholders: tuple[int | str, ...]
    placeholder_starts: tuple[int, ...]

    def word(self, index: int) -> str:
        """Return the index-th token in upper case if it may be a keyword, else ""."""
        if index >= len(self.tokens) or self.tokens[index].token_type in _NOT_WORDS:
            return ""
        return self.tokens[index].text.upper()

    def position(self, index: int) -> int:
        """Return the 1-based character of the index-th token, or of the end of the text."""
        return (self.tokens[index].start if index < len(self.tokens) else len(self.text)) + 1

    def without_prefix(self, count: int) -> "Scanned":
        return Scanned(self.text, self.tokens[count:], self.placeholders, self.placeholder_starts)

    def tokens_with_kind(self, kind: TokenType, indices: Collection[int]) -> list[Token]:
        """Return the tokens, those of the indices as if they were of that kind."""
        return [
            _token(kind, token.text, token) if index in indices else token
            for index, token in enumerate(self.tokens)
        ]

    def with_first_token(self, kind: TokenType, text: str) -> "Scanned":
        """Return the statement with its first word replaced, at the same place."""
        first = _token(kind, text, self.tokens[0])
        return Scanned(
            self.text, (first, *self.tokens[1:]), self.placeholders, self.placeholder_starts
        )


def folded(name: str) -> str:
    """Return a name that is not quoted as PostgreSQL reads it.

    Only ASCII folds: other letters keep their case, as in PostgreSQL with UTF-8.
    """
    return "".join(c.lower() if c.isascii() else c for c in name)


def token_name(token: Token) -> str:
    """Return the name that a token is: in lower case unless quoted."""
    return token.text if token.token_type is TokenType.IDENTIFIER else folded(token.text)


@cache
def postgres() -> Dialect:
    """Return sqlglot's PostgreSQL, as it is."""
    return Dialect.get_or_raise("postgres")


def scan(text: str, check_interrupt: Callable[[], object] = lambda: None) -> Scanned:
    """Return the tokens of the one statement in text.

    42601 for none, several, or mixed kinds of placeholder; 54001 for too long or too deep.
    check_interrupt is called between the passes and every some thousand tokens.
    """
    if len(text) > statement_bytes_max or len(text.encode(errors="replace")) > statement_bytes_max:
        raise OperationalError(
            f"statement is longer than {statement_bytes_max} bytes",
            sqlstate="54001",
            hint="Pass values as parameters, many rows by executemany().",
        )
    check_extent(text, check_interrupt)
    try:
        tokens = _tokenize(text)
    except TokenError as error:
        raise ProgrammingError(
            "syntax error: a quote or a comment has no end",
            sqlstate="42601",
            position=_unended(text) + 1,
        ) from error
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()
    if not tokens:
        raise ProgrammingError("the statement is empty", sqlstate="42601")
    _check_limits(tokens, Budget(check_interrupt))
    check_interrupt()
    tokens = _with_plain_strings(text, tokens)
    return _replace_placeholders(text, _group_typed_literals(tokens))


_OPENINGS = re.compile(r"""--[^\n]*|(?P<comment>/\*)|(?P<escaped>(?<!\w)[eE]')|['"]|\$\w*\$""")
_ESCAPED_REST = re.compile(r"[^'\\]*+(?:\\.[^'\\]*+)*+'", re.DOTALL)


def _unended(text: str) -> int:
    """Return where the quote or comment begins that has no end; reads every character once."""
    dollars, position = DollarStrings(text), 0
    while (opening := _OPENINGS.search(text, position)) is not None:
        start, position, mark = opening.start(), opening.end(), opening[0]
        end: int | None = position
        if opening.lastgroup == "comment":
            end = end_of_comment(text, position)
        elif opening.lastgroup == "escaped":
            found = _ESCAPED_REST.match(text, position)
            end = found.end() if found else None
        elif mark in ("'", '"'):  # a quote that is doubled begins another string
            end = text.find(mark, position) + 1 or None
        elif mark.startswith("$"):
            end = start + 1 if mark[1:-1].isdigit() else dollars.end(start, mark)
        if end is None:
            return start
        position = end
    return 0


def _tokenize(text: str) -> list[Token]:
    """Return the tokens, also behind SHOW or EXPLAIN, where sqlglot takes all for one string."""
    first: list[Token] = []
    while True:
        tokens = postgres().tokenize(text)
        if len(tokens) < 2 or tokens[1].token_type is not TokenType.STRING:
            return first + tokens
        word = tokens[0]  # the string's own start is wrong when sqlglot made it of many tokens
        if text[word.end + 1 :].lstrip().startswith("'") or not word.text.isidentifier():
            return first + tokens
        first.append(_token(TokenType.VAR, word.text, word))
        if len(first) > _PREFIX_WORDS_MAX:  # each is another reading of all that follows
            raise too_deep_at(word.start)
        text = " " * (word.end + 1) + text[word.end + 1 :]


def _check_limits(tokens: list[Token], budget: Budget) -> None:
    if len(tokens) > statement_tokens_max:
        raise OperationalError(
            f"statement has {len(tokens)} tokens, at most {statement_tokens_max} are allowed",
            sqlstate="54001",
        )
    depth = prefixes = 0
    is_comma = False
    for token in tokens:
        budget.spend()
        kind = token.token_type
        prefixes = prefixes + 1 if kind in _PREFIXES else 0
        if kind in _OPENING:
            depth += 1
        elif kind in _CLOSING:
            depth -= 1
        elif kind is TokenType.SEMICOLON:
            raise ProgrammingError(
                "syntax error: several statements in one text",
                sqlstate="42601",
                position=token.start + 1,
                hint="Execute them one by one.",
            )
        if is_comma and kind in _NEVER_AFTER_COMMA:  # sqlglot would pass over the comma
            raise ProgrammingError(
                f'syntax error at or near "{token.text}"',
                sqlstate="42601",
                position=token.start + 1,
            )
        is_comma = kind is TokenType.COMMA
        if depth > statement_depth_max or prefixes > statement_depth_max:
            raise too_deep_at(token.start)


_ESCAPE = re.compile(
    r"""\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{1,2})|([0-7]{1,3})|(.))|''|[^\\']+""",
    re.DOTALL,
)
_CONTROLS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def _with_plain_strings(text: str, tokens: list[Token]) -> list[Token]:
    """Make strings of E'…', by PostgreSQL's rules: sqlglot takes what is no escape for text.

    A string on the next line goes on with the one before it, and has escapes if that has.
    """
    result: list[Token] = []
    is_escaped = False
    for token in tokens:
        kind = token.token_type
        is_escaped = kind is TokenType.BYTE_STRING or (is_escaped and kind is TokenType.STRING)
        if is_escaped:
            begin = text.index("'", token.start) + 1
            token = _token(TokenType.STRING, _unescaped(text, begin, token.end), token)
        result.append(token)
    return result


def _unescaped(text: str, begin: int, end: int) -> str:
    """Return what text[begin:end], between the quotes of E'…', means.

    22025 for an escape that is not complete, 42601 for a code that is no character, 22021 for
    bytes that are no UTF-8. The errors show nothing of the text, which may be a password.
    """
    found = bytearray()
    place, high = begin, 0
    while place < end:
        match = _ESCAPE.match(text, place, end)
        if match is None:
            raise _bad_escape("42601", "a quote has no end", begin - 1)
        code = int(match[1] or match[2] or "0", 16)
        is_low = 0xDC00 <= code <= 0xDFFF
        if is_low != bool(high):
            raise _bad_escape("42601", "invalid Unicode surrogate pair", place)
        if match[1] or match[2]:
            if not 0 < code <= 0x10FFFF:
                raise _bad_escape("42601", "invalid Unicode escape value", place)
            if high:
                code = 0x10000 + ((high - 0xD800) << 10) + (code - 0xDC00)
            high = code if 0xD800 <= code <= 0xDBFF else 0
            found += b"" if high else chr(code).encode()
        elif match[3] or match[4]:
            found.append(int(match[3], 16) if match[3] else int(match[4], 8) & 0xFF)
        elif match[5] in ("u", "U"):
            raise _bad_escape("22025", "invalid Unicode escape", place)
        elif match[5]:
            found += _CONTROLS.get(match[5], match[5]).encode()
        else:
            found += match[0].replace("''", "'").encode()
        place = match.end()
    if high:
        raise _bad_escape("42601", "invalid Unicode surrogate pair", place)
    try:
        return found.decode()
    except UnicodeDecodeError as error:
        raise _bad_escape("22021", "invalid byte sequence for UTF-8", begin - 1) from error


def _bad_escape(sqlstate: str, message: str, place: int) -> Error:
    kind = ProgrammingError if sqlstate == "42601" else DataError
    hint = "Unicode escapes are \\uXXXX or \\UXXXXXXXX, bytes \\xXX and \\ooo are of UTF-8."
    return kind(message, sqlstate=sqlstate, position=place + 1, hint=hint)


def _group_typed_literals(tokens: list[Token]) -> list[Token]:
    """Put DATE '…' into parentheses before ::, which sqlglot would apply to the string first.

    INTERVAL '…' becomes '…'::INTERVAL, as sqlglot would keep only the first number and unit of it.
    """
    result: list[Token] = []
    tokens = _with_short_names(_cast_intervals(tokens))
    for index, token in enumerate(tokens):
        kinds = [item.token_type for item in tokens[max(index - 2, 0) : index]]
        if (
            token.token_type is TokenType.DCOLON
            and len(kinds) == 2
            and kinds[0] in _TYPED_LITERALS
            and kinds[1] is TokenType.STRING
        ):
            word, text = result[-2:]
            opening = _token(TokenType.L_PAREN, "(", word)
            result[-2:] = (opening, word, text, _token(TokenType.R_PAREN, ")", text))
        result.append(token)
    return result


def _with_short_names(tokens: list[Token]) -> list[Token]:
    """Write TIMESTAMP WITH TIME ZONE '…' as TIMESTAMPTZ '…', so that literals are of two tokens."""
    result: list[Token] = []
    for token in tokens:
        is_string = token.token_type is TokenType.STRING
        words = [item.text.upper() for item in result[-3:]] if is_string else []
        if words[1:] == ["TIME", "ZONE"] and words[0] in ("WITH", "WITHOUT"):
            word = result[-4] if len(result) > 3 else token
            if word.token_type is TokenType.TIMESTAMP:
                if words[0] == "WITH":
                    word = _token(TokenType.TIMESTAMPTZ, "TIMESTAMPTZ", word)
                result[-4:] = [word]
        result.append(token)
    return result


def _cast_intervals(tokens: list[Token]) -> list[Token]:
    result: list[Token] = []
    for token in tokens:
        is_string = token.token_type is TokenType.STRING
        if is_string and result and result[-1].token_type is TokenType.INTERVAL:
            word = result.pop()
            result += (token, _token(TokenType.DCOLON, "::", token), word)
        elif len(result) > 2 and _is_interval_unit(result[-3:], token):
            number = result[-3]
            result[-3] = _token(TokenType.STRING, f"{number.text} {token.text}", number)
        else:
            result.append(token)
    return result


def _is_interval_unit(last: list[Token], token: Token) -> bool:
    """Tell whether token is the DAY of INTERVAL '1' DAY; 0A000 where the text has units, too."""
    text, colons, word = last
    if (
        token.text.upper() not in _INTERVAL_UNITS
        or token.token_type in _NOT_WORDS
        or word.token_type is not TokenType.INTERVAL
        or colons.start != text.start  # '1'::interval day names the result
        or colons.token_type is not TokenType.DCOLON
    ):
        return False
    if _PLAIN_NUMBER.fullmatch(text.text):
        return True
    raise NotSupportedError(
        f"INTERVAL '{text.text}' {token.text}: the unit stands beside a number only",
        position=token.start + 1,
    )


def _replace_placeholders(text: str, tokens: list[Token]) -> Scanned:
    result: list[Token] = []
    sources: list[int | str] = []
    starts: list[int] = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        kind = token.token_type
        index += 1
        if kind is TokenType.PLACEHOLDER or kind in _JOINED:
            source: int | str = len(sources)
        elif kind is TokenType.COLON and _is_name_after(tokens, index - 1):
            source = text[tokens[index].start : tokens[index].end + 1]
            index += 1
        elif kind is TokenType.PARAMETER:
            raise ProgrammingError(
                f'syntax error at or near "{token.text}"',
                sqlstate="42601",
                position=token.start + 1,
                hint="Placeholders are ? or :name.",
            )
        else:
            result.append(token)
            continue
        if sources and isinstance(source, str) != isinstance(sources[0], str):
            raise ProgrammingError(
                "syntax error: ? and :name in one statement",
                sqlstate="42601",
                position=token.start + 1,
            )
        sources.append(source)
        starts.append(token.start)
        result += (
            _token(TokenType.COLON, ":", token),
            _token(TokenType.VAR, f"p{len(sources)}", token),
        )
        if kind in _JOINED:
            follower, follower_text = _JOINED[kind]
            if follower is TokenType.PIPE and index < len(tokens):
                adjacent = tokens[index]
                if adjacent.token_type is TokenType.PIPE and adjacent.start == token.end + 1:
                    follower, follower_text = TokenType.DPIPE, "||"
                    index += 1
            result.append(_token(follower, follower_text, token))
    if len(sources) > parameters_max:
        raise NotSupportedError(
            f"statement has {len(sources)} placeholders, at most {parameters_max} are allowed",
            sqlstate="54023",
        )
    return Scanned(text, tuple(result), tuple(sources), tuple(starts))


def _is_name_after(tokens: list[Token], index: int) -> bool:
    """Tell whether a word follows the colon at once, as in :name but not in a[1 : n]."""
    if index + 1 >= len(tokens):
        return False
    following = tokens[index + 1]
    return (
        following.start == tokens[index].end + 1
        and following.token_type not in _NOT_WORDS
        and following.text.isidentifier()
    )


def _token(kind: TokenType, text: str, place: Token) -> Token:
    return Token(kind, text, line=place.line, col=place.col, start=place.start, end=place.end)
