"""VectorEngines: DuckDB for a directory or a node: an instance for all, one for who has limits.

What DuckDB bounds, memory and spilling, it bounds by instance. So a user whose role has a maximum
of query_memory or temp_file_limit gets one of its own, for all its queries together, with a folder
of its own to spill to; and so does a tablespace with limits, for all its other users. All of those
have half of DuckDB's memory at the most, and the instance for all the other half as soon as there
is one. In the same way users have half of what their tablespace may have. Any thread.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from bookie.runtime.drivers import new_mutex
from bookie.runtime.interfaces import Clock
from herdpy.config import Config
from herdpy.errors import MemoryLimitError, Retry
from herdpy.limits import vector_statements_max
from herdpy.model.access import User
from herdpy.model.role_settings import NO_MAXIMA, QUERY_MEMORY, TEMP_FILE_LIMIT, Maxima
from herdpy.storage.tablespace_list import DEFAULT

if TYPE_CHECKING:
    from herdpy.exec.vector.duck import Aside, VectorEngine

_IDLE_S = 10.0
"""An instance without results, not asked for so long, gives its memory to another user's."""


class Owner(NamedTuple):
    """A user with limits, of one tablespace: another one's of that name and id is another user."""

    tablespace: str
    """Its folder, or on a node its id."""
    user: User | None
    """None: all of a tablespace with limits that have none of their own."""


class Bounds(NamedTuple):
    """What the queries of a tablespace may have together; None: no limit of its own."""

    memory_bytes: int | None = None
    spill_bytes: int | None = None


NO_BOUNDS = Bounds()


class _Own:
    """The instance of one user, or tablespace."""

    __slots__ = ("engine", "limits", "memory_bytes", "used_s")

    def __init__(
        self, engine: "VectorEngine", limits: tuple[int | None, int | None], memory_bytes: int
    ) -> None:
        self.engine = engine
        self.limits = limits
        self.memory_bytes = memory_bytes
        self.used_s = 0.0


class VectorEngines:
    """close() ends all."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        temp_directory: str | None,
        run_aside: "Aside" = lambda call, _stop: call(),
        on_refused: Callable[[str], object] = lambda _limit: None,
    ) -> None:
        """run_aside, on_refused: see VectorEngine; of the instance for all."""
        self._on_refused = on_refused
        self._run_aside = run_aside
        self._config = config
        self._clock = clock
        self._temp_directory = temp_directory
        # Own mutex.
        self._mutex = new_mutex()
        self._shared: VectorEngine | None = None
        self._own: dict[Owner, _Own] = {}
        self._retired: list[tuple[str | None, VectorEngine]] = []
        """Those whose results are still being read, with their tablespaces; None: of all."""

    def shared(self) -> "VectorEngine":
        """Return what runs the queries of all who have no limits."""
        return self._shared or self._make_shared()

    def of(
        self,
        owner: Owner,
        maxima: Maxima,
        on_refused: Callable[[User | None, str], object],
        bounds: Bounds = NO_BOUNDS,
    ) -> "VectorEngine":
        """Return what runs an owner's queries; 53200: others with limits have all the memory.

        `bounds` are those of the tablespace.
        """
        with self._mutex:
            limits = self._limits(owner, maxima, bounds)
            now_s = self._clock.monotonic()
            own = self._own.get(owner)
            if own is None or own.limits != limits:
                own = self._make_own(owner, limits, now_s, on_refused, bounds)
            own.used_s = now_s
            return own.engine

    def forget(self, tablespace: str) -> None:
        """Let go of the instances of a tablespace's users; what reads results goes on."""
        with self._mutex:
            for owner in list(self._own):
                if owner.tablespace == tablespace:
                    self._retire(owner)

    def close_of(self, tablespace: str) -> None:
        """End the instances of a tablespace that is closed, and what reads their results."""
        self.forget(tablespace)
        with self._mutex:
            gone = [engine for whose, engine in self._retired if whose == tablespace]
            self._retired = [each for each in self._retired if each[0] != tablespace]
        for engine in gone:
            engine.close()

    def closing_steps(self) -> list[Callable[[], object]]:
        """Return what ends each instance; all repeatable."""
        with self._mutex:
            own = [each.engine for each in self._own.values()]
            shared = [] if self._shared is None else [self._shared]
            retired = [engine for _, engine in self._retired]
            return [engine.close for engine in (*shared, *own, *retired)]

    def memory_of(self, owner: Owner) -> int:
        """Return the memory that DuckDB may take for a user with limits; 0: it has no instance."""
        own = self._own.get(owner)
        return 0 if own is None else own.memory_bytes

    def usage_of(self, owner: Owner | None) -> tuple[int, int]:
        """Return the bytes of memory and of disk that DuckDB has for a user, or for all others."""
        if owner is None:
            engine = self._shared
        else:
            own = self._own.get(owner)
            engine = None if own is None else own.engine
        return (0, 0) if engine is None else engine.usage()

    def spilled_in(self, tablespace: str) -> int:
        """Return what the same have on the disk; at once where nothing runs."""
        own = [each for owner, each in self._own.copy().items() if owner.tablespace == tablespace]
        return sum(each.engine.usage()[1] for each in own if not each.engine.is_idle)

    def usage_in(self, tablespace: str) -> tuple[int, int]:
        """Return the same of all instances that are a tablespace's or its users'."""
        own = [each for owner, each in self._own.copy().items() if owner.tablespace == tablespace]
        usages = [each.engine.usage() for each in own]
        return sum(memory for memory, _ in usages), sum(spilled for _, spilled in usages)

    @property
    def _half_bytes(self) -> int:
        return self._config.vector_bytes_max // 2

    def _limits(
        self, owner: Owner, maxima: Maxima, bounds: Bounds
    ) -> tuple[int | None, int | None]:
        """Return what the owner may have, of memory and of disk. Under the mutex."""
        memory, spill = maxima.get(QUERY_MEMORY), maxima.get(TEMP_FILE_LIMIT)
        if bounds.memory_bytes is not None:
            is_divided = owner.user is not None or bool(self._users_of(owner.tablespace))
            whole = bounds.memory_bytes
            part = self._half_of(whole) if is_divided else whole
            memory = part if memory is None else min(memory, part)
        if bounds.spill_bytes is not None:
            spill = bounds.spill_bytes if spill is None else min(spill, bounds.spill_bytes)
        return memory, spill

    def _half_of(self, byte_count: int) -> int:
        return max(byte_count // 2, self._config.vector_bytes_min)

    def _users_of(self, tablespace: str) -> list[_Own]:
        """Return the instances of a tablespace's users. Under the mutex."""
        return [
            each
            for owner, each in self._own.items()
            if owner.tablespace == tablespace and owner.user is not None
        ]

    def _make_shared(self) -> "VectorEngine":
        with self._mutex:
            if self._shared is None:
                bytes_max = self._half_bytes if self._own else self._config.vector_bytes_max
                self._shared = self._engine(
                    bytes_max,
                    self._config.vector_spill_bytes_max,
                    self._temp_directory,
                    self._on_refused,
                )
            return self._shared

    def _make_own(
        self,
        owner: Owner,
        limits: tuple[int | None, int | None],
        now_s: float,
        on_refused: Callable[[User | None, str], object],
        bounds: Bounds,
    ) -> _Own:
        """Make an instance within half of the memory, in place of idle ones. Under the mutex."""
        memory_max, spill_max = limits
        spill_bytes = self._config.vector_spill_bytes_max
        spill_bytes = spill_bytes if spill_max is None else min(spill_max, spill_bytes)
        wanted = self._half_bytes if memory_max is None else min(memory_max, self._half_bytes)
        self._retire(owner)
        for other, each in list(self._own.items()):
            if self._left(owner, bounds) >= wanted:
                break
            if each.engine.is_idle and now_s - each.used_s >= _IDLE_S:
                self._retire(other)
        memory_bytes = min(wanted, self._left(owner, bounds))
        if memory_bytes < min(wanted, self._config.vector_bytes_min):
            raise MemoryLimitError(
                f"queries of {len(self._own)} users and tablespaces with limits have the "
                f"{self._half_bytes:,} bytes that there are for such",
                retry=Retry.SAFE,
                hint="Try again when they have ended, or lower query_memory of their roles, or "
                "memory_bytes_max of the tablespaces.",
            )
        if not self._own and self._shared is not None:  # it goes on with half of the memory
            self._retired.append((None, self._shared))
            self._shared = None
        folder = self._temp_directory
        if folder is not None:
            prefix = "" if owner.tablespace == DEFAULT else f"{owner.tablespace}-"
            whose = "all" if owner.user is None else f"user-{owner.user.id}"
            folder = f"{folder}/{prefix}{whose}" if spill_bytes else None
        told = partial(on_refused, owner.user)
        engine = self._engine(memory_bytes, spill_bytes, folder, told)
        own = self._own[owner] = _Own(engine, limits, memory_bytes)
        return own

    def _left(self, owner: Owner, bounds: Bounds) -> int:
        """Return what an owner may have beside the others, of all and of its tablespace."""
        left = self._half_bytes - sum(each.memory_bytes for each in self._own.values())
        if owner.user is None or bounds.memory_bytes is None:
            return left
        of_users = sum(each.memory_bytes for each in self._users_of(owner.tablespace))
        return min(left, self._half_of(bounds.memory_bytes) - of_users)

    def _retire(self, owner: Owner) -> None:
        """Take a user's instance away; what reads results of it goes on. Under the mutex."""
        own = self._own.pop(owner, None)
        if own is not None:
            self._retired.append((owner.tablespace, own.engine))
        kept: list[tuple[str | None, VectorEngine]] = []
        for whose, engine in self._retired:
            if engine.is_idle and (own is None or engine is not own.engine):
                engine.close()
            else:
                kept.append((whose, engine))
        self._retired = kept

    def _engine(
        self,
        memory_bytes: int,
        spill_bytes: int,
        folder: str | None,
        on_refused: Callable[[str], object],
    ) -> "VectorEngine":
        from herdpy.exec.vector import load_duckdb

        load_duckdb()
        from herdpy.exec.vector.duck import VectorEngine

        return VectorEngine(
            memory_bytes,
            self._config.vector_threads,
            folder,
            results_max=self._config.vector_results_max + vector_statements_max,
            spill_bytes_max=spill_bytes,
            run_aside=self._run_aside,
            on_refused=on_refused,
        )


class TablespaceVectors:
    """The engines as one tablespace has them. Any thread."""

    def __init__(
        self,
        engines: VectorEngines,
        tablespace: str,
        on_refused: Callable[[User | None, str], object],
    ) -> None:
        """`tablespace` is as an Owner has it; on_refused tells the user whose own limit was met."""
        self._engines = engines
        self._tablespace = tablespace
        self._on_refused = on_refused
        self.bounds = NO_BOUNDS
        """Set by the tablespace; with other ones it gets another instance."""

    def of(self, user: User | None, maxima: Maxima) -> "VectorEngine":
        """Return what runs a user's queries; 53200: others with limits have all the memory."""
        engines, bounds = self._engines, self.bounds
        if user is not None and (QUERY_MEMORY in maxima or TEMP_FILE_LIMIT in maxima):
            return engines.of(Owner(self._tablespace, user), maxima, self._on_refused, bounds)
        if bounds == NO_BOUNDS:
            return engines.shared()
        return engines.of(self._all, NO_MAXIMA, self._on_refused, bounds)

    @property
    def _all(self) -> Owner:
        return Owner(self._tablespace, None)

    def memory_of(self, user: User) -> int:
        """Return the memory that DuckDB may take for a user with limits; 0: it has no instance."""
        return self._engines.memory_of(Owner(self._tablespace, user))

    def usage_of(self, user: User | None) -> tuple[int, int]:
        """Return the bytes of memory and of disk that DuckDB has for a user, or for all others."""
        if user is not None:
            return self._engines.usage_of(Owner(self._tablespace, user))
        return self._engines.usage_of(None if self.bounds == NO_BOUNDS else self._all)

    def usage(self) -> tuple[int, int]:
        """Return the same of all that only the tablespace has: (0, 0) of one without limits."""
        return self._engines.usage_in(self._tablespace)

    def spilled(self) -> int:
        """Return the bytes of disk of the same, as far as it runs queries now."""
        return self._engines.spilled_in(self._tablespace)

    def close(self) -> None:
        """Let go of what only its users have."""
        self._engines.forget(self._tablespace)
