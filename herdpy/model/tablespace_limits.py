"""The limits of a tablespace: their names, their ranges, and how they are written.

Each is one of TablespaceLimits (storage/tablespace_list.py), which the list of tablespaces keeps.
"""

import re
from typing import NamedTuple

from herdpy.errors import ProgrammingError

_KIB = 1024
_UNITS = {"": 1, "kb": _KIB, "mb": _KIB**2, "gb": _KIB**3, "tb": _KIB**4}
_SIZE = re.compile(r"([0-9]{1,18})\s*([a-z]*)", re.IGNORECASE)


class LimitRange(NamedTuple):
    """What a limit may be set to, both ends included."""

    low: int
    high: int
    is_size: bool
    """In bytes, also written with a unit: '64MB'."""


tablespace_limits: dict[str, LimitRange] = {
    "memory_bytes_max": LimitRange(16 * _KIB**2, 2**46, is_size=True),
    "connections_max": LimitRange(0, 10_000, is_size=False),
    "disk_bytes_max": LimitRange(_KIB**2, 2**60, is_size=True),
}
"""memory_bytes_max: of the directory's memory; connections_max: sessions at a time; disk_bytes_max:
of pages, and of the log since the last checkpoint, beyond which what needs more is refused (53100).
"""


def read_limit(name: str, text: str) -> int:
    """Return the value that is written; 22023 for one out of range, or of no known unit."""
    limit = tablespace_limits[name]
    found = _SIZE.fullmatch(text.strip())
    unit = None if found is None else _UNITS.get(found[2].lower())
    is_written = found is not None and unit is not None and (limit.is_size or not found[2])
    value = int(found[1]) * unit if is_written and found and unit else 0
    if not is_written or not limit.low <= value <= limit.high:
        sizes = ", such as '64MB'" if limit.is_size else ""
        raise ProgrammingError(
            f"{name}: expected {limit.low:,} to {limit.high:,}{sizes}, found {text!r}",
            sqlstate="22023",
        )
    return value
