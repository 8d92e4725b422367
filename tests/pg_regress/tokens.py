"""Tokens of a psql script: what is text, a comment, a name, a variable or a backslash.

One pass for both that read them: script.py, which looks for the ends of statements, and words.py,
which looks at a whole statement. As psql's lexer: no keyword has a meaning here.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_NAME = r"[A-Za-z_\x80-\U0010ffff][\w$]*"
_PATTERNS = {
    "space": r"\s+",
    "comment": r"--[^\n]*",
    "block": r"/\*",
    "escaped": r"[eE]'[^'\\]*(?:(?:\\.|'')[^'\\]*)*'",
    "string": r"(?:[bBxXnN]|[uU]&)?'[^']*(?:''[^']*)*'",
    "quoted": r'(?:[uU]&)?"[^"]*(?:""[^"]*)*"',
    "dollar": r"\$(?:[A-Za-z_\x80-\U0010ffff]\w*)?\$",
    "cast": r"::|:=",
    "variable": rf""":(?:'{_NAME}'|"{_NAME}"|\{{\?{_NAME}\}}|{_NAME})""",
    "backslash": r"\\",
    "word": _NAME,
    "number": r"\.?\d(?:[\d.]|[eE][+-]?\d|\w)*",
    "mark": r".",
}


def _compiled(patterns: dict[str, str]) -> re.Pattern[str]:
    parts = (f"(?P<{name}>{pattern})" for name, pattern in patterns.items())
    return re.compile("|".join(parts), re.DOTALL)


_STANDARD = _compiled(_PATTERNS)
_WITH_ESCAPES = _compiled(
    _PATTERNS | {"string": r"(?:[bBxXnN]|[uU]&)?'[^'\\]*(?:(?:\\.|'')[^'\\]*)*'"}
)
_COMMENT_MARK = re.compile(r"/\*|\*/")


class Token(NamedTuple):
    kind: str
    """space, comment, string, quoted, variable, cast, backslash, word, number, or mark."""
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def token_at(text: str, start: int, *, has_escapes: bool = False) -> Token:
    """Return the token that begins at start, which is before the end of the text.

    has_escapes: a backslash escapes in every string (standard_conforming_strings is off). What
    has no end, a comment or a dollar quote, ends with the text.
    """
    match = (_WITH_ESCAPES if has_escapes else _STANDARD).match(text, start)
    if match is None or match.lastgroup is None:
        raise ValueError(f"no token at {start}")
    kind, found = match.lastgroup, match[0]
    if kind == "block":
        return Token("comment", text[start : _comment_end(text, match.end())], start)
    if kind == "dollar":
        end = text.find(found, match.end())
        return Token("string", text[start : len(text) if end < 0 else end + len(found)], start)
    return Token("string" if kind == "escaped" else kind, found, start)


def _comment_end(text: str, start: int) -> int:
    depth = 1
    for match in _COMMENT_MARK.finditer(text, start):
        depth += 1 if match[0] == "/*" else -1
        if not depth:
            return match.end()
    return len(text)


def tokens_of(text: str) -> Iterator[Token]:
    """Yield the tokens of a text, spaces and comments, too."""
    start = 0
    while start < len(text):
        token = token_at(text, start)
        yield token
        start = token.end
