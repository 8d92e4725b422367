"""Where a ledger's metadata lies below the root, and which ledger a path is of.

Four layouts, as in Apache BookKeeper; LAYOUT says which one a cluster has (cluster.py):
HIERARCHICAL (the default) splits ids below 2**31 - 1 2-4-4 and longer ones 3-4-4-4-4,
LONG_HIERARCHICAL all 3-4-4-4-4, LEGACY_HIERARCHICAL all 2-4-4, FLAT does not split.
docs/formats/zookeeper.md has examples.
"""

import re
from enum import Enum
from typing import NamedTuple

from bookie.errors import IncorrectParameterError
from bookie.metadata.paths import join

SHORT_ID_LIMIT = 2**31 - 1
"""Ids from here on are long."""
LONG_ID_LIMIT = 2**63
AVAILABLE = "available"
READ_ONLY = "readonly"
COOKIES = "cookies"
STATE = "state"
"""Below a bookie's cookie while it is not Active: its lifecycle state."""
LAYOUT = "LAYOUT"
INSTANCE_ID = "INSTANCEID"
UNDER_REPLICATION = "underreplication"
TASK_LOCKS = f"{UNDER_REPLICATION}/locks"
WORKERS = f"{UNDER_REPLICATION}/workers"
VOTES = f"{UNDER_REPLICATION}/auditorelection"
DISABLED = f"{UNDER_REPLICATION}/disable"
ID_GENERATION = "idgen"
LONG_ID_GENERATION = "idgen-long"
DISABLE_HEALTH_CHECK = "disableHealthCheck"
SPECIAL_NAMES = (
    AVAILABLE,
    COOKIES,
    LAYOUT,
    INSTANCE_ID,
    UNDER_REPLICATION,
    ID_GENERATION,
    LONG_ID_GENERATION,
    DISABLE_HEALTH_CHECK,
)
"""Children of the root that are no ledgers."""


class Layout(Enum):
    """The value is the class that Apache BookKeeper's LAYOUT names."""

    HIERARCHICAL = "org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory"
    LONG_HIERARCHICAL = "org.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory"
    FLAT = "org.apache.bookkeeper.meta.FlatLedgerManagerFactory"
    LEGACY_HIERARCHICAL = "org.apache.bookkeeper.meta.LegacyHierarchicalLedgerManagerFactory"


class Shape(NamedTuple):
    """How a decimal id is cut: digits of each part; the last part is "L" and its digits."""

    widths: tuple[int, ...]
    limit: int
    """Ids below it can be written so."""

    @property
    def digits(self) -> int:
        return sum(self.widths)


SHORT = Shape((2, 4, 4), SHORT_ID_LIMIT)
LONG = Shape((3, 4, 4, 4, 4), LONG_ID_LIMIT)
UNSPLIT = Shape((10,), SHORT_ID_LIMIT)
_SHAPES = {
    Layout.HIERARCHICAL: (SHORT, LONG),
    Layout.LONG_HIERARCHICAL: (LONG,),
    Layout.FLAT: (UNSPLIT,),
    Layout.LEGACY_HIERARCHICAL: (SHORT,),
}


def shapes_of(layout: Layout) -> tuple[Shape, ...]:
    """Return the shapes that the layout uses, that of the smaller ids first."""
    return _SHAPES[layout]


def ledger_path(root: str, layout: Layout, ledger_id: int) -> str:
    """Return the path of a ledger's metadata; IncorrectParameterError beyond the layout's ids."""
    for shape in _SHAPES[layout]:
        if 0 <= ledger_id < shape.limit:
            return "/".join([root, *_cut(ledger_id, shape)])
    limit = _SHAPES[layout][-1].limit
    raise IncorrectParameterError(
        f"ledger id: expected 0 to {limit - 1} in a {layout.name} layout, found {ledger_id}"
    )


def ledger_id_of(parts: tuple[str, ...], shape: Shape) -> int | None:
    """Return the id that the names below the root spell, or None if they spell none."""
    if len(parts) != len(shape.widths) or not parts[-1].startswith("L"):
        return None
    texts = [*parts[:-1], parts[-1][1:]]
    if not all(is_part(text, width) for text, width in zip(texts, shape.widths, strict=True)):
        return None
    ledger_id = int("".join(texts))
    # A short tree never holds a long id, whatever its digits could say.
    return ledger_id if ledger_id < shape.limit else None


def is_part(name: str, width: int) -> bool:
    """Tell whether a name is `width` digits, as the directories above ledgers are."""
    return re.fullmatch(f"[0-9]{{{width}}}", name) is not None


def _cut(ledger_id: int, shape: Shape) -> list[str]:
    text = f"{ledger_id:0{shape.digits}d}"
    parts: list[str] = []
    for width in shape.widths:
        parts.append(text[:width])
        text = text[width:]
    parts[-1] = "L" + parts[-1]
    return parts


def task_name(ledger_id: int) -> str:
    """Return what a ledger's task, its lock and its status are called (BookKeeper's)."""
    return f"urL{ledger_id:010d}"


def task_lock_path(root: str, ledger_id: int) -> str:
    """Return the ephemeral node of the worker that replicates a ledger (BookKeeper's)."""
    return join(root, f"{TASK_LOCKS}/{task_name(ledger_id)}")
