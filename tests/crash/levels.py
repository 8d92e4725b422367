"""Levels: which transactions of a seed are REPEATABLE READ, and when savepoints are used.

Apart from all other chance, so that what a seed does beside it is what it did before.
"""

import random


class Levels:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"levels of {seed}")
        self._repeatable_share = self.rng.choice((0.0, 0.3, 0.7))
        self._contended_share = self.rng.choice((0.0, 0.03, 0.1))
        self._savepoint_share = self.rng.choice((0.0, 0.2, 0.5))

    def draw_contended(self) -> bool:
        """Return whether a transaction of contended.py is run."""
        return self.rng.random() < self._contended_share

    def draw_repeatable(self) -> bool:
        """Return whether a transaction that begins has one snapshot for all its statements."""
        return self.rng.random() < self._repeatable_share

    def draw_savepoint(self) -> bool:
        """Return whether a transaction makes a savepoint, goes back to one or ends one."""
        return self.rng.random() < self._savepoint_share

    def draw_verb(self) -> str:
        return self.rng.choice(("SAVEPOINT", "SAVEPOINT", "ROLLBACK TO", "ROLLBACK TO", "RELEASE"))

    def draw_name(self) -> str:
        return self.rng.choice("xxy")
