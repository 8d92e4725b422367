"""Templates of to_char() for moments: the patterns that there are, as DuckDB's text of each.

What stands between patterns is copied, as in PostgreSQL; letters that are no pattern here are
refused, as PostgreSQL may know them, or take parts of them for others.
"""

import re

_UPPER, _TITLE, _LOWER = "upper({0})", "{0}", "lower({0})"
_HOUR = "extract(hour FROM {0})"
_YEAR, _ISO_YEAR = "extract(year FROM {0})", "extract(isoyear FROM {0})"
_MICROS = "extract(microsecond FROM {0})"
_NUMBERS: dict[str, tuple[str, int]] = {  # with how many digits at the least
    "YYYY": (_YEAR, 4), "YYY": (f"{_YEAR} % 1000", 3), "YY": (f"{_YEAR} % 100", 2),
    "Y": (f"{_YEAR} % 10", 1),
    "IYYY": (_ISO_YEAR, 4), "IYY": (f"{_ISO_YEAR} % 1000", 3), "IY": (f"{_ISO_YEAR} % 100", 2),
    "I": (f"{_ISO_YEAR} % 10", 1),
    "CC": (f"({_YEAR} + 99) // 100", 2), "Q": ("extract(quarter FROM {0})", 1),
    "MM": ("extract(month FROM {0})", 2), "DD": ("extract(day FROM {0})", 2),
    "DDD": ("extract(doy FROM {0})", 3), "D": ("extract(dow FROM {0}) + 1", 1),
    "ID": ("extract(isodow FROM {0})", 1), "IW": ("extract(week FROM {0})", 2),
    "WW": ("(extract(doy FROM {0}) + 6) // 7", 2), "W": ("(extract(day FROM {0}) + 6) // 7", 1),
    "HH24": (_HOUR, 2), "HH12": (f"({_HOUR} + 11) % 12 + 1", 2),
    "HH": (f"({_HOUR} + 11) % 12 + 1", 2), "MI": ("extract(minute FROM {0})", 2),
    "SS": (f"{_MICROS} // 1000000", 2),
    "SSSS": (f"{_HOUR} * 3600 + extract(minute FROM {{0}}) * 60 + {_MICROS} // 1000000", 1),
    "SSSSS": (f"{_HOUR} * 3600 + extract(minute FROM {{0}}) * 60 + {_MICROS} // 1000000", 1),
}  # fmt: skip
_FRACTIONS = {
    "MS": 3, "US": 6, "FF1": 1, "FF2": 2, "FF3": 3, "FF4": 4, "FF5": 5, "FF6": 6,
}  # fmt: skip
_NAMES = {"MONTH": ("monthname", 9), "DAY": ("dayname", 9), "MON": ("monthname", 3),
          "DY": ("dayname", 3)}  # fmt: skip
_HALVES = {"AM": "AM", "PM": "AM", "A.M.": "A.M.", "P.M.": "A.M."}
_REFUSED = ("Y,YYY", "IDDD")
_WORDS = sorted((*_NUMBERS, *_FRACTIONS, *_NAMES, *_HALVES, *_REFUSED), key=len, reverse=True)
_PIECE = re.compile(
    rf"(FM|fm)?((?i:{'|'.join(map(re.escape, _WORDS))}))(TH|th|SP)?"
    r'|"((?:[^"\\]|\\.)*)"?|\\"|([^A-Za-z"\\])',
    re.DOTALL,
)


def template_text(template: str) -> str | None:
    """Return DuckDB's text of a template, with {0} for a moment; None: there is something else."""
    pieces: list[str] = []
    place = 0
    while place < len(template):
        found = _PIECE.match(template, place)
        if found is None or found[3]:
            return None
        place = found.end()
        if found[2]:
            pattern = _pattern_text(found[2], is_filled=found[1] is None)
            if pattern is None:
                return None
            pieces.append(pattern)
            continue
        literal = found[5] if found[5] is not None else found[4]
        literal = '"' if literal is None else re.sub(r"\\(.)", r"\1", literal, flags=re.DOTALL)
        quoted = literal.replace("'", "''").replace("{", "{{").replace("}", "}}")
        pieces.append(f"'{quoted}'")
    return f"(CASE WHEN {{0}} IS NULL THEN NULL ELSE concat({', '.join(pieces)}) END)"


def _pattern_text(word: str, *, is_filled: bool) -> str | None:
    """Return the text of a pattern; None for one that is not written in one of its cases."""
    name = word.upper()
    if name in _REFUSED or (name not in _NAMES and word not in (name, word.lower())):
        return None
    if name in _NUMBERS:
        number, digits = _NUMBERS[name]
        text = f"CAST({number} AS VARCHAR)"
        return f"lpad({text}, {digits}, '0')" if is_filled and digits > 1 else text
    if name in _FRACTIONS:
        digits = _FRACTIONS[name]
        value = f"{_MICROS} % 1000000 // {10 ** (6 - digits)}"
        return f"lpad(CAST({value} AS VARCHAR), {digits}, '0')"
    if name in _HALVES:
        early = _HALVES[name]
        late = early.replace("A", "P")
        case = _UPPER if word == word.upper() else _LOWER
        return case.format(f"CASE WHEN {_HOUR} < 12 THEN '{early}' ELSE '{late}' END")
    cases = {word.upper(): _UPPER, word.capitalize(): _TITLE, word.lower(): _LOWER}
    if word not in cases:
        return None
    function, width = _NAMES[name]
    text = cases[word].format(f"{function}({{0}})")
    if width == 3:
        return f"left({text}, 3)"
    return f"rpad({text}, {width}, ' ')" if is_filled else text
