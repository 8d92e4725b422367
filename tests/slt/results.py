"""Rows of a query as sqllogictest writes them: values as texts, sorted, and their digest.

Values of another Python type than the column's letter are converted as SQLite's C API does, where
the corpus comes from: 2.5 is 2 in a column of whole numbers, and "12a" is 12 there. A whole number
keeps all its digits, where the C driver cuts it to 32 bits.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

_KINDS = {"I": int, "R": float, "T": str}
_INTEGER = re.compile(r"\s*([+-]?\d+)")
_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)")
_UNPRINTABLE = re.compile(rb"[^ -~]")
_DIGEST = re.compile(r"(\d+) values hashing to ([0-9a-f]{32})")


def texts_of(rows: Iterable[Sequence[Any]], types: str) -> tuple[list[str], bool]:
    """Return the values row by row, and whether one was of another type than its column's."""
    values: list[str] = []
    is_coerced = False
    for row in rows:
        for value, kind in zip(row, types, strict=True):
            if value is None:
                values.append("NULL")
                continue
            is_coerced = is_coerced or type(value) is not _KINDS[kind]
            values.append(_WRITERS[kind](value))
    return values, is_coerced


def in_order(values: list[str], width: int, sort: str) -> list[str]:
    """Return the values in the order that a record's `sort` asks for; width: values of a row."""
    if sort == "valuesort":
        return sorted(values)
    if sort == "rowsort":
        rows = sorted(values[at : at + width] for at in range(0, len(values), width))
        return [value for row in rows for value in row]
    return values


def digest_of(values: Iterable[str]) -> str:
    """Return the MD5 of the values, each with the end of its line, in hexadecimal."""
    text = "".join(f"{value}\n" for value in values)
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def digest_of_expected(expected: list[str]) -> str:
    """Return the digest of a result that a file has as values, or as a digest."""
    found = _hashed(expected)
    return digest_of(expected) if found is None else found[1]


def difference(values: list[str], expected: list[str]) -> str | None:
    """Return in what the values are not those of the file, in two or three words, or None."""
    hashed = _hashed(expected)
    if hashed is not None:
        if len(values) != hashed[0]:
            return "number of rows"
        return None if digest_of(values) == hashed[1] else "values (digest)"
    if values == expected:
        return None
    if len(values) != len(expected):
        return "number of rows"
    return "order" if sorted(values) == sorted(expected) else "values"


def _hashed(expected: list[str]) -> tuple[int, str] | None:
    match = _DIGEST.fullmatch(expected[0]) if len(expected) == 1 else None
    return None if match is None else (int(match[1]), match[2])


def _whole(value: Any) -> str:
    if isinstance(value, str):
        match = _INTEGER.match(value)
        return str(int(match[1])) if match else "0"
    return str(int(value))


def _real(value: Any) -> str:
    if isinstance(value, str):
        match = _NUMBER.match(value)
        value = match[1] if match else 0
    return f"{float(value) + 0.0:.3f}"  # + 0.0: -0.0 has no sign


def _text(value: Any) -> str:
    if isinstance(value, bool):
        value = int(value)
    elif isinstance(value, float | Decimal):
        text = f"{float(value):.15g}"
        value = text if set(text) & set(".en") else f"{text}.0"
    text = str(value)
    if text.isascii() and text.isprintable():
        return text or "(empty)"
    return _UNPRINTABLE.sub(b"@", text.encode()).decode()


_WRITERS = {"I": _whole, "R": _real, "T": _text}
