"""EntryLogs: the files of a bookie's entries: their numbers, open handles, maps, and removal.

They lie in one or several directories; a number is used once, in one of them. Any thread may call:
reads go on while logs are added and removed. A log that is removed stays readable for the threads
that are reading it; the next reader gets FileNotFoundError and asks the index anew.
"""

from collections import OrderedDict
from collections.abc import Container, Generator, Iterable, Sequence
from contextlib import contextmanager
from errno import ENOENT
from typing import NamedTuple

from bookie.errors import BookieError, CorruptFileError
from bookie.runtime.drivers import new_mutex
from bookie.runtime.interfaces import File
from bookie.runtime.paths import os_error
from bookie.server.storage.directories import LedgerDirectory
from bookie.server.storage.entry_log import (
    DIRECTORY,
    LOG_NUMBER_MAX,
    EntryLogReader,
    EntryLogWriter,
    LogRecord,
    number_of,
    path_of,
    read_records,
    split_location,
)

_HANDLES_MAX = 256
_MAP_ROWS_MAX = 1_000_000  # about 150 bytes each; maps beyond it are read whenever asked for


class _Handle:
    """An open log; closed when it is retired and no thread reads it."""

    __slots__ = ("file", "is_retired", "users")

    def __init__(self, file: File) -> None:
        self.file = file
        self.users = 0
        self.is_retired = False


class _Place(NamedTuple):
    """Where a log is, and as what."""

    directory: LedgerDirectory
    suffix: str


class EntryLogs:
    """The entry logs of one bookie."""

    def __init__(self, directories: Sequence[LedgerDirectory]) -> None:
        self.directories = tuple(directories)
        self._mutex = new_mutex()
        # Under _mutex.
        self._places: dict[int, _Place] = {}
        self._handles: OrderedDict[int, _Handle] = OrderedDict()
        self._next_number = 1
        self._maps: dict[int, dict[int, int]] = {}
        self._map_rows = 0

    def open(self, first_number: int = 1) -> None:
        """List the directory; unfinished compactions go. New logs begin at first_number.

        first_number is what a mark says: logs that were removed had numbers before it, and these
        are not given again.
        """
        self._next_number = max(self._next_number, first_number)
        for directory in self.directories:
            self._list(directory)

    def _list(self, directory: LedgerDirectory) -> None:
        disk = directory.disk
        for name in disk.list(DIRECTORY):
            unfinished = number_of(name, "compacting")
            if unfinished is not None:
                self._next_number = max(self._next_number, unfinished + 1)
                try:
                    disk.unlink(f"{DIRECTORY}/{name}")
                except OSError as error:
                    self.survive(directory, error)
            for suffix in ("log", "compacted"):
                number = number_of(name, suffix)
                if number is not None:
                    self._enter(number, _Place(directory, suffix))
                    self._next_number = max(self._next_number, number + 1)

    def _enter(self, number: int, place: _Place) -> None:
        known = self._places.get(number)
        if known is not None and known.directory is not place.directory:
            raise CorruptFileError(
                f"{path_of(number, place.suffix)}: expected one entry log of this number, found "
                f"one in {known.directory.name} and one in {place.directory.name}; take the copy "
                f"away that does not belong there"
            )
        self._places[number] = place

    def survive(self, directory: LedgerDirectory, error: OSError) -> None:
        """Go on without writing to a directory that failed; with no other one raise the error."""
        directory.note_failure(error)
        if len(self.directories) == 1:
            raise error

    def numbers(self, suffix: str = "log") -> list[int]:
        """Return the numbers of the logs, ascending."""
        with self._mutex:
            return sorted(n for n, place in self._places.items() if place.suffix == suffix)

    @property
    def next_number(self) -> int:
        """The number of the next log."""
        return self._next_number

    def skip_numbers(self, last_number: int) -> None:
        """Begin no log of a number up to this one: the index refers to logs that are lost."""
        with self._mutex:
            self._next_number = max(self._next_number, last_number + 1)

    def new_number(self) -> int:
        """Return a number that no log has had."""
        with self._mutex:
            number = self._next_number
            if number > LOG_NUMBER_MAX:
                raise BookieError(
                    f"entry logs: expected numbers up to {LOG_NUMBER_MAX}, found all used; "
                    f"format this bookie and let its ledgers be replicated again"
                )
            self._next_number += 1
            return number

    def best_directory(self, avoided: Container[LedgerDirectory] = ()) -> LedgerDirectory | None:
        """Return where the next log is to go, None when all are avoided.

        Of the good ones that which holds least for its weight; without good ones one that is full,
        and only without these one that failed.
        """
        left = [d for d in self.directories if d not in avoided]
        left = [d for d in left if d.failure is None] or left
        if len(left) < 2:
            return left[0] if left else None
        return min(left, key=lambda d: (not d.is_good, self._held_bytes(d) / d.weight))

    def _held_bytes(self, directory: LedgerDirectory) -> float:
        with self._mutex:
            paths = [path_of(n, p.suffix) for n, p in self._places.items() if p[0] is directory]
        try:
            return sum(map(directory.disk.size, paths))
        except OSError:
            return float("inf")

    def begin(
        self, directory: LedgerDirectory, journal: tuple[int, int] = (0, 0)
    ) -> EntryLogWriter:
        """Return a new log for flushes in this directory; journal: as LogHeader."""
        number = self.new_number()
        writer = EntryLogWriter(directory.disk, number, journal=journal)
        with self._mutex:
            self._enter(number, _Place(directory, "log"))
        return writer

    def admit(self, number: int, directory: LedgerDirectory, suffix: str) -> None:
        """Know a log, in this directory, by this suffix from now on."""
        with self._mutex:
            self._enter(number, _Place(directory, suffix))

    def _place(self, number: int) -> _Place:
        """Return where a log is; FileNotFoundError."""
        with self._mutex:
            place = self._places.get(number)
        if place is None:
            raise os_error(ENOENT, path_of(number))
        return place

    def directory_of(self, number: int) -> LedgerDirectory:
        """Return where a log lies; FileNotFoundError."""
        return self._place(number).directory

    def path(self, number: int) -> str:
        """Return the name that messages give a log."""
        with self._mutex:
            place = self._places.get(number)
        if place is None:
            return path_of(number)
        name = place.directory.name
        return f"{name}/{path_of(number, place.suffix)}" if name else path_of(number, place.suffix)

    def reader(self, number: int) -> EntryLogReader:
        """Return a reader of the whole log; the caller closes it."""
        directory, suffix = self._place(number)
        return EntryLogReader(directory.disk, number, suffix)

    def read(self, locations: Sequence[int]) -> list[LogRecord]:
        """Return the record at the first location and those of the others close behind it.

        FileNotFoundError: the log is gone; CorruptFileError: the record is not what was written.
        """
        number, _ = split_location(locations[0])
        with self._use(number) as file:
            return read_records(file, locations, self.path(number))

    @contextmanager
    def _use(self, number: int) -> Generator[File]:
        directory, suffix = self._place(number)
        with self._mutex:
            handle = self._handles.get(number)
            if handle is None:
                opened = directory.disk.open(path_of(number, suffix))
                handle = self._handles[number] = _Handle(opened)
                self._trim()
            self._handles.move_to_end(number)
            handle.users += 1
        try:
            yield handle.file
        finally:
            with self._mutex:
                handle.users -= 1
                if handle.is_retired and handle.users == 0:
                    handle.file.close()

    def _trim(self) -> None:
        while len(self._handles) > _HANDLES_MAX:
            self._retire(next(iter(self._handles)))

    def _retire(self, number: int) -> None:
        handle = self._handles.pop(number, None)
        if handle is not None:
            handle.is_retired = True
            if handle.users == 0:
                handle.file.close()

    def remove(self, number: int) -> None:
        """Unlink a log that nothing points to; the caller makes that durable with sync()."""
        directory, suffix = self._place(number)
        directory.disk.unlink(path_of(number, suffix))
        with self._mutex:  # only now: a reader may have opened it just before
            self._retire(number)
            self._map_rows -= len(self._maps.pop(number, ()))
            self._places.pop(number, None)

    def remove_all(self, numbers: Iterable[int]) -> int:
        """Remove logs that nothing points to, durably, where their directories let it be done.

        Returns how many went; what stayed comes again in the next pass, or after the next start.
        """
        changed: dict[LedgerDirectory, None] = {}
        removed = 0
        for number in numbers:
            try:
                directory = self.directory_of(number)
            except FileNotFoundError:
                continue
            try:
                self.remove(number)
            except FileNotFoundError:
                pass
            except OSError as error:
                self.survive(directory, error)
            else:
                removed += 1
                changed[directory] = None
        for directory in changed:
            try:
                directory.disk.sync_directory(DIRECTORY)
            except OSError as error:
                self.survive(directory, error)
        return removed

    def ledger_map(self, number: int) -> dict[int, int] | None:
        """Return the bytes by ledger id of a sealed log; None when it cannot be told.

        From the map at its end; when that is damaged, from reading all of it, but only if every
        record up to the map is there: a log that cannot be read whole lists nothing (#4607).
        """
        with self._mutex:
            known = self._maps.get(number)
        if known is not None:
            return known
        reader = self.reader(number)
        try:
            found = reader.ledger_map()
            if found is None and reader.is_sealed:
                found = {}
                for record in reader.records():
                    if record.is_damaged:
                        return None
                    record.count_in(found)
                if not reader.is_read_whole:
                    return None
        finally:
            reader.close()
        if found is not None:
            with self._mutex:
                if number not in self._maps and self._map_rows + len(found) <= _MAP_ROWS_MAX:
                    self._maps[number] = found
                    self._map_rows += len(found)
        return found

    def close(self) -> None:
        with self._mutex:
            for number in list(self._handles):
                self._retire(number)
