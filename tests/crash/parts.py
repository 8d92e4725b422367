"""Parts: what comes between two parts of a long statement, COMMIT or ROLLBACK.

There the engine holds no lock but those of the transaction, and a thread of the product lets others
in. A simulation has no others: it has the world act in that place.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from herdpy.engine.state.tablespace import Tablespace


class Parts:
    """How often something comes between, in the histories of a seed; apart from all other chance.

    `act` is the living world's; it is run wherever a tablespace lets others in, while placed().
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"parts of {seed}")
        self.act: Callable[[Tablespace], object] = lambda _: None
        self._share = self.rng.choice((0.0, 0.1, 0.3))
        self._long_share = self.rng.choice((0.0, 0.04, 0.1))

    def draw(self) -> bool:
        """Return whether something comes between two parts."""
        return self.rng.random() < self._share

    def draw_long(self) -> bool:
        """Return whether a transaction that changes much begins."""
        return self.rng.random() < self._long_share

    @contextmanager
    def placed(self) -> Iterator[None]:
        before = Tablespace.let_others_in
        # Of a tablespace with one session, too: another may come there.
        Tablespace.let_others_in = lambda tablespace: self.act(tablespace)  # type: ignore[method-assign]
        try:
            yield
        finally:
            Tablespace.let_others_in = before  # type: ignore[method-assign]
