"""Refusals: how often limits have refused or ended what users asked for, for syslimits.

What a limit's own place counts (results, connections) is not here. Any thread, without a lock: one
of two at the same instant may go uncounted.
"""

from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager

from herdpy.errors import Error
from herdpy.model.access import User
from herdpy.model.role_settings import QUERY_MEMORY, TEMP_FILE_LIMIT

_OF_QUERIES = {"vector_bytes_max": QUERY_MEMORY, "vector_spill_bytes_max": TEMP_FILE_LIMIT}
"""Limits of all queries, and those of a role in their place."""


class Refusals:
    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    @property
    def counts(self) -> Mapping[tuple[str, str], int]:
        """By limit and user's name; of all with user ""."""
        return self._counts.copy()

    def add(self, limit: str, user: User | None = None) -> None:
        """Count one, in all and of a user."""
        self._counts[limit, ""] += 1
        if user is not None:
            self._counts[limit, user.name] += 1

    def add_query(self, user: User | None, limit: str) -> None:
        """Count a query that needed more than it may; `user`: who has limits of its own."""
        self.add(limit)
        if user is not None:
            self._counts[_OF_QUERIES[limit], user.name] += 1

    @contextmanager
    def counted(self, limit: str, user: User | None) -> Generator[None]:
        """Count what is refused inside for being one too many (53400)."""
        try:
            yield
        except Error as error:
            if error.sqlstate == "53400":
                self.add(limit, user)
            raise
