"""How much text DuckDB reads once it has put its macros in: what its planning takes time for.

DuckDB puts the text of an argument wherever a macro has its parameter, and binds the body of a
lambda twice. One pass over the text that we print counts what comes of it, without making it.
"""

import re
from functools import cache

from herdpy.sql.macros import MACROS

_TOKEN = re.compile(
    r"('[^']*(?:''[^']*)*')|\b(h_\w+)\(|\b(lambda) \w+:|([(\[])|([)\]])|(,)|\b([a-z]\w*)\b"
)
# DuckDB copies a long constant, which takes a small part of what as much text of others takes.
_STRING_MAX, _STRING_SHARE = 256, 64


class _Frame:
    """One open bracket: what is in it so far, and of a macro's call the sizes of its arguments."""

    __slots__ = ("arguments", "before", "factor", "macro", "size")

    def __init__(self, macro: str | None) -> None:
        self.macro = macro
        self.arguments: list[int] = []
        self.size = 0
        self.before = 0  # of a lambda in it
        self.factor = 1

    def total(self) -> int:
        return self.before + self.factor * (self.size - self.before)


def printed_size(text: str) -> int:
    """Return the characters of a text with all macros put in, those of lambdas counted twice.

    Of long constants a part is counted.
    """
    return _size_of(text, {})


def _size_of(text: str, parameters: dict[str, int]) -> int:
    frame, outer, position = _Frame(None), list[_Frame](), 0
    for found in _TOKEN.finditer(text):
        start, end = found.span()
        frame.size += start - position
        position = end
        string, macro, binder, opening, closing, comma, word = found.groups()
        if string:
            size = end - start
            frame.size += min(size, _STRING_MAX) + max(size - _STRING_MAX, 0) // _STRING_SHARE
        elif macro or opening:
            outer.append(frame)
            frame = _Frame(macro if macro in MACROS else None)
            frame.size = 0 if frame.macro else end - start
        elif closing and outer:
            inner, frame = frame, outer.pop()
            if inner.macro is None:
                frame.size += inner.total() + 1
            else:
                frame.size += _macro_size(inner.macro, [*inner.arguments, inner.total()])
        elif comma and frame.macro:
            frame.arguments.append(frame.total())
            frame.size = frame.before = 0
            frame.factor = 1
        elif binder:
            frame.size += end - start
            frame.before, frame.factor = frame.size, 2
        elif word and word in parameters:
            frame.size += parameters[word]
        else:
            frame.size += end - start
    return frame.total() + len(text) - position


def _macro_size(name: str, sizes: list[int]) -> int:
    own, uses = _size_of_macro(name)
    return own + sum(count * size for count, size in zip(uses, sizes, strict=False))


@cache
def _size_of_macro(name: str) -> tuple[int, tuple[int, ...]]:
    """Return the size of a macro's text without its parameters, and how often each stands in it."""
    head, body = MACROS[name]
    names = [part.strip() for part in head.partition("(")[2].rstrip(")").split(",") if part.strip()]
    own = _size_of(body, dict.fromkeys(names, 0))
    uses = (
        _size_of(body, {each: int(each == counted) for each in names}) - own for counted in names
    )
    return own, tuple(uses)
