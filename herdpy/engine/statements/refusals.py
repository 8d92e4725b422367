"""Refusals: how often limits have refused, ended or held up what users asked for, for syslimits.

What a limit's own place counts of all users (results, connections) is not here. Users, not their
names: another role that gets the name later begins at 0. Any thread, without a lock: one of two at
the same instant may go uncounted.
"""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from herdpy.errors import Error
from herdpy.model.access import Access, User
from herdpy.model.role_settings import QUERY_MEMORY, TEMP_FILE_LIMIT

_OF_QUERIES = {"vector_bytes_max": QUERY_MEMORY, "vector_spill_bytes_max": TEMP_FILE_LIMIT}
"""Limits of all queries, and those of a role in their place."""


class Refusals:
    def __init__(self) -> None:
        # By limit and user; of all with None.
        self._refused: Counter[tuple[str, User | None]] = Counter()
        self._waits: Counter[tuple[str, User | None]] = Counter()

    def count(self, limit: str, user: User | None = None) -> int:
        """Return how many a limit has refused or ended, of one user or of all."""
        return self._refused[limit, user]

    def users_of(self, limit: str) -> list[User]:
        """Return the users of whom a limit has refused or ended something."""
        return [user for name, user in list(self._refused) if name == limit and user is not None]

    def wait_count(self, limit: str, user: User | None = None) -> int:
        """Return how many have had to wait, of one user or of all."""
        return self._waits[limit, user]

    def add(self, limit: str, user: User | None = None) -> None:
        """Count one, in all and of a user."""
        self._refused[limit, None] += 1
        if user is not None:
            self._refused[limit, user] += 1

    def add_wait(self, limit: str, user: User | None = None) -> None:
        """Count one that has to wait, in all and of a user."""
        self._waits[limit, None] += 1
        if user is not None:
            self._waits[limit, user] += 1

    def add_query(self, user: User | None, limit: str) -> None:
        """Count a query that needed more than it may; `user`: who has limits of its own."""
        self.add(limit)
        if user is not None:
            self._refused[_OF_QUERIES[limit], user] += 1

    def forget_dropped(self, access: Access) -> None:
        """Forget the counts of users that are no more.

        One that is just being counted may come back; the next call forgets it.
        """
        for counts in (self._refused, self._waits):
            for key in list(counts):
                if key[1] is not None and not access.has(key[1]):
                    counts.pop(key, None)

    @contextmanager
    def counted(self, limit: str, user: User | None) -> Generator[None]:
        """Count what is refused inside for being one too many (53400)."""
        try:
            yield
        except Error as error:
            if error.sqlstate == "53400":
                self.add(limit, user)
            raise
