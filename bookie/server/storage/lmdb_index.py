"""LmdbIndex: an EntryIndex in one LMDB file.

    locations   ledger id, entry id (u64 each, big-endian) -> u64 location
    ledgers     ledger id (u64, big-endian) -> ledger record (ledger_record.py)

Beside them the key `whole` says that the file is not a new one in the place of one that was lost,
`highest` (u64) is the highest ledger id that had a record, `older` says that the metadata store was
put back to a state before that ledger, `journal` (u64 file number, u64 offset) is where the
journal's mark was to be moved to last, and `owner` names the bookie.

Transactions are atomic and in order; metasync is off, so that a put costs one fsync and is durable
after sync(). The map grows by doubling when it is full. Values are copied out: no view of the map
outlives a call. Format and rules: docs/formats/entry_index.md.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from errno import EIO
from struct import Struct
from typing import Any

import lmdb

from bookie.errors import CorruptFileError
from bookie.runtime.drivers import new_mutex
from bookie.runtime.os_disk import OsDisk
from bookie.server.interfaces import LedgerRecord
from bookie.server.storage.ledger_record import decode_ledger_record, encode_ledger_record
from bookie.server.storage.lmdb_length import missing_page

_LIB_VERSION = 0  # the file format of LMDB 0.9, whatever newer engines the package carries
_MAP_BYTES = 64 * 1024 * 1024
_MAP_BYTES_MAX = 1 << 44
_KEY = Struct(">QQ")
_LOCATION = Struct(">Q")
_PAGE = 4096  # keys per read transaction
_LAST_ENTRY_ID = (1 << 63) - 1
_WHOLE = b"whole"
_HIGHEST = b"highest"
_OLDER = b"older"
_JOURNAL = b"journal"
_OWNER = b"owner"


class LmdbIndex:
    """EntryIndex over the file `path` (an absolute path of the operating system) and path-lock.

    Reads take a mutex for microseconds; it is what lets the map grow while no thread reads.
    """

    def __init__(self, path: str, *, map_bytes: int = _MAP_BYTES) -> None:
        self._path = path
        self._read_mutex = new_mutex()
        self._write_mutex = new_mutex()
        self._is_closed = False
        _check_length(path)
        try:
            self._env: Any = lmdb.open(
                path,
                map_size=map_bytes,
                subdir=False,
                max_dbs=2,
                metasync=False,
                lib_version=_LIB_VERSION,
            )
            self._locations = self._env.open_db(b"locations")
            self._ledgers = self._env.open_db(b"ledgers")
        except lmdb.MemoryError as error:
            raise _failed(path, error) from error
        except lmdb.Error as error:
            raise _damaged(path, str(error)) from error
        self._map_bytes: int = self._env.info()["map_size"]
        self._highest = self._read_highest()

    @contextmanager
    def _reading(self, database: Any) -> Generator[Any]:
        try:
            with self._read_mutex, self._env.begin(database) as txn:
                yield txn
        except lmdb.Error as error:
            raise _failed(self._path, error) from error

    def get(self, ledger_id: int, entry_id: int) -> int | None:
        with self._reading(self._locations) as txn:
            found = txn.get(_KEY.pack(ledger_id, entry_id))
        return None if found is None else _LOCATION.unpack(found)[0]

    def locations(self, ledger_id: int, first: int, count: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        end = _KEY.pack(ledger_id, min(first + count - 1, _LAST_ENTRY_ID))
        with self._reading(self._locations) as txn, txn.cursor() as cursor:
            if cursor.set_range(_KEY.pack(ledger_id, first)):
                for key, value in cursor.iternext():
                    if key > end:
                        break
                    found.append((_KEY.unpack(key)[1], _LOCATION.unpack(value)[0]))
        return found

    def last_entry_id(self, ledger_id: int) -> int | None:
        with self._reading(self._locations) as txn, txn.cursor() as cursor:
            if cursor.set_range(_KEY.pack(ledger_id, _LAST_ENTRY_ID)):
                key = cursor.key()
                if key == _KEY.pack(ledger_id, _LAST_ENTRY_ID):
                    return _LAST_ENTRY_ID
                is_found = cursor.prev()
            else:
                is_found = cursor.last()
            if not is_found:
                return None
            found_ledger_id, entry_id = _KEY.unpack(cursor.key())
        return entry_id if found_ledger_id == ledger_id else None

    def entry_ids(self, ledger_id: int) -> Iterator[int]:
        first = 0
        while first <= _LAST_ENTRY_ID:
            page = self._entry_ids_from(ledger_id, first)
            yield from page
            if len(page) < _PAGE:
                return
            first = page[-1] + 1

    def _entry_ids_from(self, ledger_id: int, first: int) -> list[int]:
        page: list[int] = []
        with self._reading(self._locations) as txn, txn.cursor() as cursor:
            if cursor.set_range(_KEY.pack(ledger_id, first)):
                for key in cursor.iternext(keys=True, values=False):
                    found_ledger_id, entry_id = _KEY.unpack(key)
                    if found_ledger_id != ledger_id or len(page) >= _PAGE:
                        break
                    page.append(entry_id)
        return page

    @property
    def highest_ledger_id(self) -> int:
        return self._highest

    def _read_highest(self) -> int:
        """Return what is kept; of an index that is older than this key, what it has."""
        with self._reading(None) as txn:
            kept = txn.get(_HIGHEST)
        if kept is not None:
            return _LOCATION.unpack(kept)[0]
        with self._reading(self._ledgers) as txn, txn.cursor() as cursor:
            return _LOCATION.unpack(cursor.key())[0] if cursor.last() else -1

    def put(
        self,
        locations: Sequence[tuple[int, int, int]],
        ledgers: Sequence[tuple[int, LedgerRecord]] = (),
        journal: tuple[int, int] | None = None,
    ) -> None:
        pack, pack_location = _KEY.pack, _LOCATION.pack
        entries = [
            (pack(ledger_id, entry_id), pack_location(location))
            for ledger_id, entry_id, location in locations
        ]
        records = [
            (_LOCATION.pack(ledger_id), encode_ledger_record(record))
            for ledger_id, record in ledgers
        ]

        highest = max((ledger_id for ledger_id, _ in ledgers), default=-1)

        def change(txn: Any) -> None:
            with txn.cursor(self._locations) as cursor:
                cursor.putmulti(entries)
            with txn.cursor(self._ledgers) as cursor:
                cursor.putmulti(records)
            if highest > self._highest:
                txn.put(_HIGHEST, _LOCATION.pack(highest))
            if journal is not None:
                txn.put(_JOURNAL, _KEY.pack(*journal))

        self._write(change)
        self._highest = max(self._highest, highest)

    @property
    def is_metadata_older(self) -> bool:
        with self._reading(None) as txn:
            return txn.get(_OLDER) is not None

    def note_metadata(self, *, is_older: bool) -> None:
        def change(txn: Any) -> None:
            if is_older:
                txn.put(_OLDER, b"")
            else:
                txn.delete(_OLDER)
                txn.delete(_HIGHEST)

        self._write(change)
        self.sync()
        self._highest = self._read_highest()

    @property
    def owner(self) -> str | None:
        with self._reading(None) as txn:
            found = txn.get(_OWNER)
        return None if found is None else found.decode("utf-8", "replace")

    def set_owner(self, owner: str) -> None:
        self._write(lambda txn: txn.put(_OWNER, owner.encode()))
        self.sync()

    @property
    def journal_position(self) -> tuple[int, int] | None:
        with self._reading(None) as txn:
            found = txn.get(_JOURNAL)
        if found is None:
            return None
        file_number, offset = _KEY.unpack(found)
        return file_number, offset

    def ledger(self, ledger_id: int) -> LedgerRecord | None:
        with self._reading(self._ledgers) as txn:
            found = txn.get(_LOCATION.pack(ledger_id))
        return None if found is None else decode_ledger_record(found)

    def ledger_ids(self) -> Iterator[int]:
        first = 0
        while True:
            page = self._ledger_ids_from(first)
            yield from page
            if len(page) < _PAGE:
                return
            first = page[-1] + 1

    def _ledger_ids_from(self, first: int) -> list[int]:
        page: list[int] = []
        with self._reading(self._ledgers) as txn, txn.cursor() as cursor:
            if cursor.set_range(_LOCATION.pack(first)):
                for key in cursor.iternext(keys=True, values=False):
                    page.append(_LOCATION.unpack(key)[0])
                    if len(page) >= _PAGE:
                        break
        return page

    def delete_ledger(self, ledger_id: int) -> None:
        start, last = _KEY.pack(ledger_id, 0), _KEY.pack(ledger_id, _LAST_ENTRY_ID)

        def change(txn: Any) -> None:
            with txn.cursor(self._locations) as cursor:
                is_found = cursor.set_range(start)
                while is_found and cursor.key() <= last:
                    is_found = cursor.delete()
            txn.delete(_LOCATION.pack(ledger_id), db=self._ledgers)

        self._write(change)

    def _write(self, change: Callable[[Any], None]) -> None:
        """Run change in a transaction, all or none; again with a larger map when it is full."""
        with self._write_mutex:
            while True:
                try:
                    with self._env.begin(write=True) as txn:
                        change(txn)
                except lmdb.MapFullError as error:
                    if self._map_bytes >= _MAP_BYTES_MAX:
                        raise _failed(self._path, error) from error
                    self._grow()
                except lmdb.Error as error:
                    raise _failed(self._path, error) from error
                else:
                    return

    def _grow(self) -> None:
        try:
            with self._read_mutex:  # the map must not move under a reader
                self._env.set_mapsize(2 * self._map_bytes)
        except lmdb.Error as error:  # LMDB has closed the file: all calls fail from now on
            raise _failed(self._path, error) from error
        self._map_bytes *= 2

    @property
    def is_whole(self) -> bool:
        with self._reading(None) as txn:
            return txn.get(_WHOLE) is not None

    def set_whole(self) -> None:
        self._write(lambda txn: txn.put(_WHOLE, b""))
        self.sync()

    def sync(self) -> None:
        try:
            self._env.sync(True)
        except lmdb.Error as error:
            raise _failed(self._path, error) from error

    def close(self) -> None:
        """Give the file back; no other call may be under way; idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self._env.close()


def _check_length(path: str) -> None:
    name = path.rpartition("/")[2]
    disk = OsDisk(path.removesuffix(name) or ".")
    if not disk.exists(name):
        return
    file = disk.open(name)
    try:
        page = missing_page(file)
    finally:
        file.close()
    if page is not None:
        raise _damaged(path, f"no page {page}, to which it refers: the file was cut off")


def _damaged(path: str, problem: str) -> CorruptFileError:
    return CorruptFileError(
        f"{path}: expected an index that LMDB can open, found: {problem}; move the file away, "
        f"and its -lock: the next start of the bookie makes a new one from the entry logs "
        f"(docs/guides/bookie-disks.md, 'A damaged index')"
    )


def _failed(path: str, error: lmdb.Error) -> OSError:
    """Return what the storage handles; a write did not happen, and may be tried again."""
    code: Any = getattr(error, "code", EIO)  # an errno, or a negative number of LMDB's own
    return OSError(code if code > 0 else EIO, f"{path}: {error}")
