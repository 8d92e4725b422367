"""EntryLogs: the files of a bookie's entries: their numbers, open handles, maps, and removal.

Any thread may call: reads go on while logs are added and removed. A log that is removed stays
readable for the threads that are reading it; the next reader gets FileNotFoundError and asks the
index anew.
"""

from collections import OrderedDict
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from bookie.errors import BookieError
from bookie.runtime.drivers import new_mutex
from bookie.runtime.interfaces import Disk, File
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


class EntryLogs:
    """The entry logs of one disk."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._mutex = new_mutex()
        # Under _mutex.
        self._suffixes: dict[int, str] = {}
        self._handles: OrderedDict[int, _Handle] = OrderedDict()
        self._next_number = 1
        self._maps: dict[int, dict[int, int]] = {}
        self._map_rows = 0

    def open(self, first_number: int = 1) -> None:
        """List the directory; unfinished compactions go. New logs begin at first_number.

        first_number is what a mark says: logs that were removed had numbers before it, and these
        are not given again.
        """
        disk = self._disk
        self._next_number = max(self._next_number, first_number)
        for name in disk.list(DIRECTORY):
            unfinished = number_of(name, "compacting")
            if unfinished is not None:
                disk.unlink(f"{DIRECTORY}/{name}")
                self._next_number = max(self._next_number, unfinished + 1)
            for suffix in ("log", "compacted"):
                number = number_of(name, suffix)
                if number is not None:
                    self._suffixes[number] = suffix
                    self._next_number = max(self._next_number, number + 1)

    def numbers(self, suffix: str = "log") -> list[int]:
        """Return the numbers of the logs, ascending."""
        with self._mutex:
            return sorted(n for n, found in self._suffixes.items() if found == suffix)

    @property
    def next_number(self) -> int:
        """The number of the next log."""
        return self._next_number

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

    def begin(self) -> EntryLogWriter:
        """Return a new log for flushes."""
        number = self.new_number()
        writer = EntryLogWriter(self._disk, number)
        with self._mutex:
            self._suffixes[number] = "log"
        return writer

    def admit(self, number: int, suffix: str) -> None:
        """Know a log by this suffix from now on."""
        with self._mutex:
            self._suffixes[number] = suffix

    def path(self, number: int) -> str:
        with self._mutex:
            return path_of(number, self._suffixes.get(number, "log"))

    def reader(self, number: int) -> EntryLogReader:
        """Return a reader of the whole log; the caller closes it."""
        with self._mutex:
            suffix = self._suffixes.get(number, "log")
        return EntryLogReader(self._disk, number, suffix)

    def read(self, locations: Sequence[int]) -> list[LogRecord]:
        """Return the record at the first location and those of the others close behind it.

        FileNotFoundError: the log is gone; CorruptFileError: the record is not what was written.
        """
        number, _ = split_location(locations[0])
        with self._use(number) as file:
            return read_records(file, locations)

    @contextmanager
    def _use(self, number: int) -> Generator[File]:
        path = self.path(number)
        with self._mutex:
            handle = self._handles.get(number)
            if handle is None:
                handle = self._handles[number] = _Handle(self._disk.open(path))
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
        self._disk.unlink(self.path(number))
        with self._mutex:  # only now: a reader may have opened it just before
            self._retire(number)
            self._map_rows -= len(self._maps.pop(number, ()))
            self._suffixes.pop(number, None)

    def sync(self) -> None:
        """Make removals and renames durable."""
        self._disk.sync_directory(DIRECTORY)

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
                    size = record.total_bytes
                    found[record.ledger_id] = found.get(record.ledger_id, 0) + size
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
