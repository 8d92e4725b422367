"""DiskSpace: whether the disk is full, which is a state of a tablespace and no failure of it.

It is full while the rows in memory need more pages than are free, or the reserve is not whole. Then
a statement that can be refused is refused with 53100. What frees space, or ends what was begun,
goes on, and may use up spare log files and then the reserve: DELETE, DROP, TRUNCATE, COMMIT,
ROLLBACK, checkpoints, closing. Maintenance and each refused statement look again, so that it ends
by itself; the reserve is filled again first.

While it is not full the log leaves as much free as its records are going to need as pages. So what
was accepted fits, unless another program has taken more than the reserve meanwhile.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

from bookie.runtime.drivers import new_mutex
from bookie.runtime.interfaces import Clock, Disk
from herdpy.engine.state.disk_reserve import ReserveFile, is_disk_full, reserve_bytes_of
from herdpy.errors import DiskFullError, Error

_log = logging.getLogger(__name__)
T = TypeVar("T")

_MARGIN_BYTES_MIN = 16 * 1024
_MARGIN_SHARE = 16
"""Of the reserve: so much more must be free before the disk counts as full no longer."""
_SMALL_BYTES = 256 * 1024
"""Of records: if the log has no room even for these, the disk is full."""


class SpareFiles(Protocol):
    """Files that are kept for later use; the log's."""

    def free_spares(self) -> bool:
        """Remove them; False: there were none."""
        ...


class DiskFigures(NamedTuple):
    """A tablespace's disk when it was last looked at."""

    is_full: bool
    since_us: int | None
    """Since when it is full; None: it is not."""
    total_bytes: int
    free_bytes: int
    """Without the reserve."""
    needed_bytes: int
    """For the pages of what is in memory; estimated, and not exact while it is far below free."""
    reserve_bytes: int
    reserve_held_bytes: int
    refused: int
    """Statements, since the database was opened."""


class SharedReserve:
    """The reserve of a directory, and the tablespaces that have it together."""

    def __init__(self, file: ReserveFile) -> None:
        self.mutex = new_mutex()
        """Of the reserve, and of all those spaces."""
        self.file = file
        self.spaces: dict[DiskSpace, None] = {}
        """Of those that are open: the rows of each need room for their pages."""


class DiskSpace:
    """Any thread; `is_full` is read without the mutex, the rest is under it.

    It may take the log's lock for files, and never the monitor.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        where: str,
        clock: Clock,
        spares: SpareFiles,
        needed: Callable[[int], int],
        *,
        reserve_bytes: int,
        shared: "SharedReserve | None" = None,
    ) -> None:
        """reserve_bytes: as configured. `where` is how messages name the database.

        With `shared` the reserve is that: a directory has one for all its tablespaces.

        needed(enough) estimates the next checkpoint's bytes; below `enough` any such number does.
        """
        self._disk = disk
        self._where = where
        self._clock = clock
        self._needed_for = needed
        self.spares = spares
        """The log's; replaced with the log."""
        self._path = f"{directory}/reserve"
        self._owns_reserve = shared is None
        self.shared = shared or SharedReserve(ReserveFile(disk, self._path, 0))
        self._mutex = self.shared.mutex
        self._configured = reserve_bytes
        self._margin = _MARGIN_BYTES_MIN
        self._total = self._free = self._needed = self.own_needed = 0
        self._since_us: int | None = None
        self._refused = 0
        self._is_short = False  # a statement found no room in the log since room_to_free()
        self._lent: int | None = None  # beside pages, to a checkpoint or compaction that runs
        self.is_full = False
        self.is_low = False
        """A checkpoint is due, since its pages would take half of what is free."""

    def open(self) -> None:
        """Take up the reserve, or make it. Once, when the state is what the log says."""
        with self._mutex:
            self.shared.spaces[self] = None
            self._measure()
            byte_count = self._reserve.byte_count
            if self._owns_reserve:
                byte_count = reserve_bytes_of(self._configured, self._total)
                self.shared.file = ReserveFile(self._disk, self._path, byte_count)
                self._reserve.load()
            self._margin = max(_MARGIN_BYTES_MIN, byte_count // _MARGIN_SHARE)
            self._look()

    def close(self) -> None:
        """Count for the others no more; repeatable."""
        with self._mutex:
            self.shared.spaces.pop(self, None)

    def look(self) -> bool:
        """Measure, fill the reserve again if there is room, and return whether the disk is full."""
        with self._mutex:
            return self._look()

    def check_room(self) -> None:
        """Raise 53100 for a statement that can be refused, while the disk is full."""
        if self.is_full:
            with self._mutex:
                if self._look():
                    raise self._refusal()

    def log_room(self, byte_count: int) -> int:
        """Return how long a log file may be at most that takes records of so many bytes.

        It leaves free what they need as pages. 53100: there is no such room.
        """
        with self._mutex:
            self._look()
            room = self._log_room
            if room < min(byte_count, _SMALL_BYTES):
                self._become(is_full=True)
            if not self.is_full and room >= byte_count:
                return room
            self._is_short = True
            raise self._refusal()

    def file_room(self) -> int:
        """Return how long a log file may be at most if its records need no longer one.

        Of records that may use what is kept for a full disk. It leaves alone what log_room() does.
        """
        with self._mutex:
            self._measure()
            return 0 if self.is_full else self._log_room

    def refused(self) -> DiskFullError:
        """Return what a statement is told that can be refused, and found no room in the log."""
        with self._mutex:
            self._look()
            if self._needed + self._margin > self._free:
                self._become(is_full=True)
            self._is_short = True
            return self._refusal()

    def make_room(self, byte_count: int = 0) -> None:
        """Have the room for a checkpoint, and for so much beside, out of spares and the reserve.

        For what is beside, half of the reserve stays. Before given_back() the reserve is filled
        again only in room that the step will not need.
        53100: there is not so much, and nothing of the reserve was given up for it.
        """
        with self._mutex:
            self._lent = byte_count
            missing = self._missing_for(byte_count)
            if missing > 0 and self.spares.free_spares():
                missing = self._missing_for(byte_count)
            is_enough = missing <= self._reserve.held_bytes - self._kept(byte_count)
            while missing > 0 and is_enough and self._reserve.give_up():
                self._become(is_full=True)
                missing = self._missing_for(byte_count)
            if not is_enough:
                raise self._refusal()

    def given_back(self) -> None:
        """Note that the step has ended for which there was to be room; repeatable."""
        self._lent = None

    def give_up(self) -> bool:
        """Make some room for a step that frees space; False: there is nothing left to give up."""
        if self.spares.free_spares():
            return True
        with self._mutex:
            if not self._reserve.give_up():
                return False
            self._measure()
            self._become(is_full=True)
            return True

    def freeing(self, step: Callable[[], T]) -> T:
        """Run a step that frees space, or ends what was begun, in what is given up for it.

        It has no effect when it fails for want of room, and is repeated while there is something
        to give up; then, and otherwise, its error is raised.
        """
        while True:
            try:
                return step()
            except (Error, OSError) as error:
                if not (is_disk_full(error) and self.give_up()):
                    raise

    def lend(self, byte_count: int) -> bool:
        """Return whether so much fits, beside pages of the rows in memory, for a step that begins.

        It measures. The reserve is filled as after make_room(), until given_back().
        """
        with self._mutex:
            if self._missing_for(byte_count) > 0:
                return False
            self._lent = byte_count
            return True

    def room_to_free(self) -> int:
        """Return what a step may write that frees more; measures.

        Half of the reserve counts if the disk is full, or a statement has found no room in the log
        since the last such step. Else it does not: to give it up makes the disk full meanwhile, and
        statements would be refused that have room.
        """
        with self._mutex:
            room = -self._missing_for(0)
            if self.is_full or self._is_short:
                room += self._reserve.held_bytes - self._kept(1)
            self._is_short = False
            return room

    def figures(self) -> DiskFigures:
        """Return what was found when it was last looked at."""
        with self._mutex:
            reserve = self._reserve
            return DiskFigures(
                self.is_full,
                self._since_us,
                self._total,
                self._free,
                self._needed,
                reserve.byte_count,
                reserve.held_bytes,
                self._refused,
            )

    @property
    def _reserve(self) -> ReserveFile:
        return self.shared.file

    # --- the mutex is held -----------------------------------------------------------------------

    def _kept(self, byte_count: int) -> int:
        """Return what stays of the reserve for statements and checkpoints."""
        return self._reserve.byte_count // 2 if byte_count else 0

    def _missing_for(self, byte_count: int) -> int:
        self._measure(byte_count)
        return self._needed + byte_count - self._free

    def _measure(self, beside: int = 0) -> None:
        try:
            self._total, self._free = self._disk.space()
        except OSError:  # what it refuses will be told to who writes
            return
        half = max(self._free - self._missing - self._margin, 0) // 2
        self.own_needed = self._needed_for(max(min(half, self._free - beside), 0))
        others = sum(each.own_needed for each in self.shared.spaces if each is not self)
        self._needed = self.own_needed + others
        self.is_low = self._needed > half

    @property
    def _log_room(self) -> int:
        """Each byte of a log file may become one of a page; what is lent is another's."""
        return max(self._free - self._needed - (self._lent or 0), 0) // 2

    @property
    def _missing(self) -> int:
        return self._reserve.byte_count - self._reserve.held_bytes

    def _look(self) -> bool:
        self._measure()
        reserve = self._reserve
        if reserve.is_lacking:
            lent = 0 if self._lent is None else self._lent + self._margin
            if not lent and self._free - self._missing < self._needed and self.spares.free_spares():
                self._measure()
            if self._free - self._missing >= self._needed + lent and reserve.fill():
                self._measure()
        margin = self._margin if self.is_full else 0
        self._become(is_full=reserve.is_lacking or self._needed + margin > self._free)
        return self.is_full

    def _become(self, *, is_full: bool) -> None:
        if is_full == self.is_full:
            return
        self.is_full = is_full
        if is_full:
            self._since_us = self._clock.wall_us()
            _log.warning(
                "the disk of %s is full: %s; writes are refused (53100) until there is room again",
                self._where,
                self._said(),
            )
            return
        since_us, self._since_us = self._since_us, None
        seconds = 0.0 if since_us is None else (self._clock.wall_us() - since_us) / 1e6
        _log.warning(
            "the disk of %s has room again after %.1f s: %s", self._where, seconds, self._said()
        )

    def _said(self) -> str:
        reserve = self._reserve
        return (
            f"{self._free:,} bytes are free, the rows in memory need about {self._needed:,}, the "
            f"reserve has {reserve.held_bytes:,} of {reserve.byte_count:,}"
        )

    def _refusal(self) -> DiskFullError:
        """Return what is told, with the figures by which it was decided."""
        self._refused += 1
        return DiskFullError(
            f"no space left on the disk of {self._where}: {self._said()}; the statement had "
            "no effect",
            hint="Free some space on that disk, or DELETE, TRUNCATE or DROP what is not "
            "needed: these, COMMIT, ROLLBACK and checkpoints still work. Writes go on by "
            "themselves when there is room.",
        )
