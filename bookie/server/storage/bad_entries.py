"""Entries that are damaged or missing here and could not be mended: what is known of them.

Kept in the scrub's state file, so in the bounds of this module: of one ledger a hundred of each
fate by their ids, the others counted.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, cast

_ENTRIES_MAX = 100
_REASON_MAX = 500


class Fate(StrEnum):
    """What the other bookies say of an entry that this one cannot read."""

    LOST = "lost"
    """Every other bookie that should have it denies it, or there is none."""
    UNREADABLE = "unreadable"
    """All of them answered, and none has it sound: where it is not denied it cannot be read."""
    UNMENDED = "unmended"
    """One of them was silent, the copy was not taken here, or the entry is of an open end."""


class BadLedger:
    """Such entries of one ledger."""

    __slots__ = ("_counts", "_entries", "reason")

    def __init__(self) -> None:
        self._entries: dict[Fate, dict[int, None]] = {fate: {} for fate in Fate}
        """The first hundred."""
        self._counts = dict.fromkeys(Fate, 0)
        self.reason = ""
        """Of the last one."""

    def note(self, entry_id: int, reason: str, fate: Fate) -> None:
        self.clear(entry_id)
        entries = self._entries[fate]
        if len(entries) < _ENTRIES_MAX:
            entries[entry_id] = None
        self.count_one(reason, fate)

    def count_one(self, reason: str, fate: Fate) -> None:
        """Note what has no entry id."""
        self._counts[fate] += 1
        self.reason = reason[:_REASON_MAX]

    def clear(self, entry_id: int) -> None:
        for fate, entries in self._entries.items():
            if entry_id in entries:
                del entries[entry_id]
                self._counts[fate] -= 1

    def count(self, fate: Fate) -> int:
        return self._counts[fate]

    def first(self, fate: Fate) -> int:
        """Return the id of the first entry; -1: none is known by its id."""
        return next(iter(self._entries[fate]), -1)

    @property
    def is_empty(self) -> bool:
        return not any(self._counts.values())

    def record(self, ledger_id: int) -> dict[str, object]:
        """Return what the report says, as JSON."""
        found: dict[str, object] = {"ledger_id": ledger_id}
        for fate in Fate:
            found[f"{fate}_count"] = self._counts[fate]
            found[fate.value] = list(self._entries[fate])
        return found | {"reason": self.reason}

    @classmethod
    def of_record(cls, found: Mapping[str, Any]) -> "BadLedger":
        """Return what record() wrote; ValueError, KeyError, TypeError when it did not."""
        ledger = cls()
        if type(found["ledger_id"]) is not int:
            raise ValueError(f"expected the id of a ledger, found {found}")
        ledger.reason = str(found["reason"])
        for fate in Fate:
            count, entries = found[f"{fate}_count"], cast("list[object]", found[fate.value])
            if type(count) is not int or count < len(entries):
                raise ValueError(f"expected entries and how many they are, found {found}")
            for entry_id in entries:
                if type(entry_id) is not int:
                    raise ValueError(f"expected ids of entries, found {entry_id!r}")
                ledger._entries[fate][entry_id] = None
            ledger._counts[fate] = count
        return ledger
