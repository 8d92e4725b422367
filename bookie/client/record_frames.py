"""Record frames, for writers that make their entries themselves: many small records in one entry.

As append_many() packs them and `split` takes them apart; bookie/ledger/record_frame.py.
"""

from bookie.ledger.record_frame import LENGTH_BYTES, join, split

__all__ = ["LENGTH_BYTES", "join", "split"]
