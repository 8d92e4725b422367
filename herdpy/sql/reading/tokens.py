"""Text to tokens, by PostgreSQL's rules: strings, comments, numbers, placeholders.

One pass, which refuses what is nested too deep where it meets it: nothing is read behind that.
Nothing here knows the grammar (reader.py).
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from herdpy.errors import DataError, Error, NotSupportedError, OperationalError, ProgrammingError
from herdpy.limits import parameters_max, statement_bytes_max, statement_tokens_max
from herdpy.sql.reading.extent import Budget, Extent

Kind = Literal["word", "name", "string", "special", "number", "placeholder", "symbol", "end"]
"""A name is one in quotes; special are strings that we do not have, as B'01'."""

PLACEHOLDER_HINT: Final = "Placeholders are ? or :name, not %s, %(name)s, {}, ?1, $1 or @name."

# PostgreSQL's: every character above ASCII is a letter. (Surrogates are no characters.)
_LETTERS = r"A-Za-z_\x80-\ud7ff\ue000-\U0010ffff"
_WORD = rf"[{_LETTERS}][{_LETTERS}0-9$]*+"
_TAG = rf"(?:[{_LETTERS}][{_LETTERS}0-9]*+)?"
_TOKEN = re.compile(
    rf"""(?:[ \t\r\n\f\v]+|--[^\n\r]*)*+
    (?:(?P<special>[bBxXnN]'[^']*+(?:''[^']*+)*+'|[uU]&'[^']*+(?:''[^']*+)*+')
    |(?P<escaped>[eE]'[^'\\]*+(?:(?:\\.|'')[^'\\]*+)*+')
    |(?P<unended>[bBxXnNeE]'|[uU]&')
    |(?P<word>{_WORD})
    |(?P<number>(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)
    |(?P<string>'[^']*+(?:''[^']*+)*+')
    |(?P<name>"[^"]*+(?:""[^"]*+)*+")
    |(?P<dollar>\${_TAG}\$)
    |(?P<comment>/\*)
    |:(?P<named>{_WORD})
    |(?P<mark>\?)
    |(?P<unended_too>['"])
    |(?P<symbol>!~~\*|!~~|!~\*|~~\*|->>|\#>>|-\|-|<->|::|:=|<=|>=|<>|!=|\|\||->|\#>|~~|~\*|!~|<<|>>
      |@>|<@|&&|\^@|@@|&<|&>|==|.)
    )?""",
    re.DOTALL | re.VERBOSE,
)
_BEFORE_LABELS = frozenset(("AS", "."))  # a word behind one is a name, whatever it is elsewhere
_COMMENT_MARKS = re.compile(r"/\*|\*/")
_DOLLAR_MARKS = re.compile(rf"\$(?=({_TAG})\$)")
_SPECIAL = {
    "B": "a B'…' string", "X": "an X'…' string", "N": "an N'…' string", "U": "a U&'…' string",
}  # fmt: skip
_HEREDOC = "a $$…$$ string"


@dataclass(slots=True, eq=False)
class Token:
    """A piece of the text, [start, end).

    `word` is what the grammar knows it by: words in upper case, symbols as they are, "" for others.
    `text` is the name or the string that it means, of a placeholder its name.
    """

    kind: Kind
    word: str
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Scanned:
    """One statement's tokens, without the semicolon.

    placeholders[k] is what the k-th token of that kind stands for, a 0-based position or a name;
    `placeholder_starts` are the 0-based characters where they stand.
    """

    text: str
    tokens: tuple[Token, ...]
    placeholders: tuple[int | str, ...]
    placeholder_starts: tuple[int, ...]

    def word(self, index: int) -> str:
        """Return the index-th token in upper case if it may be a keyword, else ""."""
        return self.tokens[index].word if index < len(self.tokens) else ""

    def position(self, index: int) -> int:
        """Return the 1-based character of the index-th token, or of the end of the text."""
        return (self.tokens[index].start if index < len(self.tokens) else len(self.text)) + 1

    def without_prefix(self, count: int) -> "Scanned":
        return Scanned(self.text, self.tokens[count:], self.placeholders, self.placeholder_starts)


def folded(name: str) -> str:
    """Return a name that is not quoted as PostgreSQL reads it.

    Only ASCII folds: other letters keep their case, as in PostgreSQL with UTF-8.
    """
    if name.isascii():
        return name.lower()
    return "".join(c.lower() if c.isascii() else c for c in name)


def token_name(token: Token) -> str:
    """Return the name that a token is: in lower case unless quoted."""
    return token.text if token.kind == "name" else folded(token.text)


def scan(text: str, check_interrupt: Callable[[], object] = lambda: None) -> Scanned:
    """Return the tokens of the one statement in text.

    42601 for none, several, or mixed kinds of placeholder; 54001 for too long or too deep.
    check_interrupt is called every some hundred tokens.
    """
    if len(text) > statement_bytes_max or len(text.encode(errors="replace")) > statement_bytes_max:
        raise OperationalError(
            f"statement is longer than {statement_bytes_max} bytes",
            sqlstate="54001",
            hint="Pass values as parameters, many rows by executemany().",
        )
    tokens: list[Token] = []
    sources: list[int | str] = []
    starts: list[int] = []
    budget, extent = Budget(check_interrupt, statement_tokens_max, "words and signs"), Extent()
    end: int | None = None
    for token in tokenize(text):
        budget.spend()
        word = token.word
        if word == ";":
            end = token.start if tokens and end is None else end
            continue
        if end is not None:
            raise ProgrammingError(
                "syntax error: several statements in one text",
                sqlstate="42601",
                position=end + 1,
                hint="Execute them one by one.",
            )
        if token.kind != "word" or not tokens or tokens[-1].word not in _BEFORE_LABELS:
            extent.add(word, token.start)
        if token.kind == "placeholder":
            _check_placeholder(token, sources)
            sources.append(token.text or len(sources))
            starts.append(token.start)
        elif word == "$" or word == "@":
            raise ProgrammingError(
                f'syntax error at or near "{word}"',
                sqlstate="42601",
                position=token.start + 1,
                hint=PLACEHOLDER_HINT,
            )
        tokens.append(token)
    if not tokens:
        raise ProgrammingError("the statement is empty", sqlstate="42601")
    if len(sources) > parameters_max:
        raise NotSupportedError(
            f"statement has {len(sources)} placeholders, at most {parameters_max} are allowed",
            sqlstate="54023",
        )
    return Scanned(text, tuple(tokens), tuple(sources), tuple(starts))


def _check_placeholder(token: Token, sources: list[int | str]) -> None:
    if sources and bool(token.text) != isinstance(sources[0], str):
        raise ProgrammingError(
            "syntax error: ? and :name in one statement", sqlstate="42601", position=token.start + 1
        )


def tokenize(text: str, first: int = 0) -> Iterator[Token]:
    """Yield the tokens of a text of any number of statements; 42601 for a quote without end.

    From a character on, where one of the statements may begin.
    """
    match = _TOKEN.match
    dollars = _DollarStrings(text)
    position: int | None = first
    has_escapes = False  # of the string before, with which one on the next line goes on
    while (found := match(text, position)) is not None and (kind := found.lastgroup) is not None:
        start, position = found.span(kind)
        piece = found[kind]
        if kind == "comment":
            position = _end_of_comment(text, position)
            if position is None:
                raise _unended(start)
        elif kind == "string" or kind == "escaped":
            begin = start + 1 if kind == "string" else start + 2
            has_escapes = has_escapes or kind == "escaped"
            value = piece[1:-1].replace("''", "'")
            if has_escapes:
                value = _unescaped(text, begin, position - 1)
            yield Token("string", "", value, start, position)
        else:
            has_escapes = False
            if kind == "word":
                word = piece.upper() if piece.isascii() else ""  # no other letter folds
                yield Token("word", word, piece, start, position)
            elif kind == "symbol":
                yield Token("symbol", piece, piece, start, position)
            elif kind == "number":
                yield Token("number", "", piece, start, position)
            elif kind == "mark":
                yield Token("placeholder", "", "", start, position)
            elif kind == "named":
                yield Token("placeholder", "", piece, start - 1, position)
            elif kind == "name":
                yield Token("name", "", piece[1:-1].replace('""', '"'), start, position)
            elif kind == "special":
                yield Token("special", "", _SPECIAL[piece[0].upper()], start, position)
            else:
                position = dollars.end(start, piece) if kind == "dollar" else None
                if position is None:
                    raise _unended(start)
                yield Token("special", "", _HEREDOC, start, position)


def _unended(start: int) -> ProgrammingError:
    return ProgrammingError(
        "syntax error: a quote or a comment has no end", sqlstate="42601", position=start + 1
    )


class _DollarStrings:
    """Where the $tag$ … $tag$ strings of one text end, found in one pass over its $ signs."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._places: dict[str, list[int]] | None = None

    def end(self, start: int, opening: str) -> int | None:
        """Return where the string that begins with `opening` at start ends; None: it does not."""
        if self._places is None:
            self._places = {}
            for mark in _DOLLAR_MARKS.finditer(self._text):
                self._places.setdefault(f"${mark[1]}$", []).append(mark.start())
        places = self._places.get(opening, [])
        index = bisect_left(places, start + len(opening))
        return places[index] + len(opening) if index < len(places) else None


def _end_of_comment(text: str, position: int) -> int | None:
    """Return where a comment ends, in which others may lie; None if it has no end."""
    depth = 1
    while depth:
        mark = _COMMENT_MARKS.search(text, position)
        if mark is None:
            return None
        depth += 1 if mark[0] == "/*" else -1
        position = mark.end()
    return position


_ESCAPE = re.compile(
    r"""\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{1,2})|([0-7]{1,3})|(.))|''|[^\\']+""",
    re.DOTALL,
)
_CONTROLS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


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
