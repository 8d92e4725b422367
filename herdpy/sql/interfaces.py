"""What SQL needs of the world above it: a Catalog."""

from collections.abc import Sequence
from typing import Protocol

from herdpy.model.schema import Table


class Catalog(Protocol):
    """The tables one statement can see; never changes while it is held."""

    @property
    def version(self) -> int:
        """Grows with every change; part of the plan cache's key."""
        ...

    def table(self, name: str) -> Table | None:
        """Return the table of that folded name, or None."""
        ...

    def table_names(self) -> Sequence[str]:
        """Return the names, sorted."""
        ...
