"""BookieHealth: in which order to ask replicas: available ones, then read-only, slow, and lost.

Source: docs/protocols/reading.md. A bookie counts as slow for a while after a read had to go on
without it. Used on one loop.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from bookie.ledger.types import BookieId
from bookie.metadata.interfaces import Watch

SLOW_S = 30.0
"""How long a bookie that kept a read waiting is asked after the others."""


class RegisteredBookies(Protocol):
    """What is needed of a BookieDirectory."""

    @property
    def writable(self) -> tuple[BookieId, ...]: ...

    @property
    def read_only(self) -> tuple[BookieId, ...]: ...

    def on_change(self, callback: Callable[[], None]) -> Watch: ...


class BookieHealth:
    """See the module. Its owner calls close()."""

    def __init__(self, bookies: RegisteredBookies) -> None:
        self._bookies = bookies
        self._loop = asyncio.get_running_loop()
        self._ranks: dict[BookieId, int] = {}
        self._slow_until: dict[BookieId, float] = {}
        self._watch = bookies.on_change(self._read)
        self._read()

    def _read(self) -> None:
        self._ranks = dict.fromkeys(self._bookies.read_only, 1)
        self._ranks |= dict.fromkeys(self._bookies.writable, 0)

    def note_slow(self, bookie: BookieId) -> None:
        self._slow_until[bookie] = self._loop.time() + SLOW_S

    def rank(self, bookie: BookieId) -> int:
        """Return 0 for available, 1 read-only, 2 slow, 3 not registered."""
        if self._slow_until:
            until = self._slow_until.get(bookie)
            if until is not None:
                if until > self._loop.time():
                    return 2
                del self._slow_until[bookie]
        return self._ranks.get(bookie, 3)

    def close(self) -> None:
        self._watch.close()
