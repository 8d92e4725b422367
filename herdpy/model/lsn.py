"""Lsn: the position of a record in the log of a tablespace."""

from typing import NamedTuple

FILE_LEDGER_ID = -1
"""The ledger id of every file log, so that it orders before every ledger."""


class Lsn(NamedTuple):
    """(ledger, entry, index in frame); tuples order as the log does.

    In the file log ledger_id is FILE_LEDGER_ID and entry_id the frame's sequence number.
    """

    ledger_id: int
    entry_id: int
    index: int  # pyright: ignore[reportIncompatibleMethodOverride] - the design's word

    def __str__(self) -> str:
        return f"{self.ledger_id}.{self.entry_id}.{self.index}"

    @classmethod
    def of_text(cls, text: str) -> "Lsn":
        """Return what str() has made a text of; ValueError."""
        ledger_id, entry_id, index = map(int, text.split("."))
        return cls(ledger_id, entry_id, index)


START_LSN = Lsn(FILE_LEDGER_ID, 0, 0)
"""Before every record: the first frame has sequence 1."""
