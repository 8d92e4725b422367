"""Manifest: what a tablespace consists of, as an append-only file of edits.

docs/formats/manifest.md. File header, 32 bytes: magic "HERDPMAN" · u16 format version 2 · u16 zero
· u32 CRC32C of the first 12 and of the id · the file's id (16 random bytes). In FORMAT 1 the
version is 1 and there is no id. Then frames, little-endian, one behind the other:

    offset  width  type   meaning
    0       4      bytes  magic "HME" and version 0x01
    4       4      u32    length n of the body
    8       4      u32    CRC32C of id, the frame's offset in the file (u64), bytes 0 to 8 and body
    12      n      bytes  body: msgpack of an edit, [kind, ...]; n = 0 is a seal

Fields of edits that FORMAT 1 does not have stand at their ends; without them they are as it says.

An edit is effective only when it is whole. After an edit is synced a seal is written behind it,
not synced and overwritten by the next edit: damage in front of a valid seal was durable once, so
it is damage and not the torn tail of a crash. CorruptionError names file and offset.

One change is one call of append(); the moment of effect inside the process is the assignment of
_tail. Any thread may call; `state` is read without a lock.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from struct import Struct
from typing import Any, NamedTuple, TypeVar

import google_crc32c
import msgspec

from bookie.runtime.drivers import new_mutex
from bookie.runtime.interfaces import DISK_FULL, Disk, File, Rng
from herdpy.errors import (
    CorruptionError,
    DiskFullError,
    Error,
    InvariantViolation,
    NotSupportedError,
    OperationalError,
    damaged,
    expecting_file,
)
from herdpy.model.lsn import START_LSN

T = TypeVar("T")
FILE_ID_BYTES = 16
_FILE_MAGIC = b"HERDPMAN"
_FILE_HEADER = Struct("<8sHH")
_FILE_VERSION, _FILE_VERSION_WITHOUT_ID = 2, 1
_FRAME_MAGIC = b"HME\x01"
_FRAME = Struct("<4sII")
NOTHING_LEFT_HINT = (
    "Put back a copy of the file that fits the others, or restore a backup into a new directory: "
    "`herdpy restore`. Without it nothing can be read."
)
_REWRITE_BYTES_MIN = 64 * 1024
_REWRITE_FACTOR = 4


FILE_LOG, LEDGER_LOG = "file", "ledgers"
"""How a tablespace's log is kept: in its own directory, or in ledgers that a cluster shares."""
_OF_OTHER_KINDS = {
    FILE_LOG: "It is a database of its own, no copy of a cluster's tablespace: a node needs an "
    "empty directory, or its own.",
    LEDGER_LOG: "It is a node's copy of a tablespace of a cluster: its node opens it.",
}


class BitmapRef(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Where the deletion bitmap of a page is."""

    segment: int
    offset: int
    length: int
    dead_count: int


class PageRef(msgspec.Struct, array_like=True, frozen=True):
    """Where a page is and which keys it spans; run 0 is base, higher runs are newer."""

    segment: int
    offset: int
    length: int
    row_count: int
    low_key: bytes
    high_key: bytes
    run: int = 0
    bitmap: BitmapRef | None = None


class TableState(msgspec.Struct, array_like=True, frozen=True):
    """A table's definition (model/schema.py, plain) and its pages, by run and low key."""

    definition: list[Any]
    pages: tuple[PageRef, ...] = ()


class Pin(msgspec.Struct, array_like=True, frozen=True):
    """Tables as a lease sees them, by id, and the segments that their pages lie in, ascending."""

    tables: dict[int, TableState]
    segments: tuple[int, ...]

    @classmethod
    def of(cls, tables: dict[int, TableState]) -> "Pin":
        return cls(tables, tuple(sorted(segments_of(tables))))


class Identity(msgspec.Struct, array_like=True, frozen=True):
    """Which tablespace this is, how its log is kept, and what it was made of.

    uuid is 16 random bytes; none before the upgrade to FORMAT 2. snapshot is the id of what a
    replica was made of, none when its log has everything.
    """

    uuid: bytes = b""
    log_kind: str = FILE_LOG
    snapshot: bytes = b""


class ManifestState(msgspec.Struct, array_like=True, frozen=True):
    """Everything a tablespace consists of; replaced, never changed.

    log_files are (number, first sequence); checkpoint_lsn is an Lsn; segments map number to
    length; engine is the engine's own msgpack (epochs, open transactions, reservations); position
    is the visible position at the checkpoint; log_start is where the log is to be read from, in
    the log's own terms (a file log's Place); pins are leases by id, those of the engine's state at
    the checkpoint; segment_ids and log_ids are the ids of files by number, but for those that
    FORMAT 1 began; writes are what the transactions that are open have changed, in the engine's own
    msgpack, as the checkpoints since their beginnings have added it.
    """

    log_id: bytes
    log_files: tuple[tuple[int, int], ...] = ()
    checkpoint_lsn: tuple[int, int, int] = (-1, 0, 0)
    durable_sequence: int = 0
    tables: dict[int, TableState] = {}
    segments: dict[int, int] = {}
    next_table_id: int = 1
    next_segment: int = 1
    engine: bytes = b""
    position: int = 0
    log_start: Any = None
    log_bytes: dict[int, int] = {}
    pins: dict[str, Pin] = {}
    identity: Identity = Identity()
    segment_ids: dict[int, bytes] = {}
    log_ids: dict[int, bytes] = {}
    writes: dict[str, tuple[bytes, ...]] = {}

    def segment_id(self, number: int) -> bytes:
        """Return the id of a segment; none for one of FORMAT 1."""
        return self.segment_ids.get(number, b"")

    @property
    def listed_log_files(self) -> list[tuple[int, int, bytes]]:
        """The log files as (number, first sequence, id), ascending; no id for one of FORMAT 1."""
        return [(n, first, self.log_ids.get(n, b"")) for n, first in sorted(self.log_files)]

    @property
    def replay_hint(self) -> bytes:
        """log_start as the log's own bytes; b"" for None."""
        return b"" if self.log_start is None else msgspec.msgpack.encode(self.log_start)

    @property
    def is_empty(self) -> bool:
        """Nothing was ever written to the tablespace."""
        return not (self.log_files or self.tables) and self.next_table_id == 1


class NewSegment(NamedTuple):
    """A segment that was written and is to be listed."""

    number: int
    byte_count: int
    file_id: bytes


def in_edit(segments: Iterable[NewSegment]) -> tuple[tuple[tuple[int, int], ...], dict[int, bytes]]:
    """Return the two fields of an edit that list segments: lengths and ids."""
    new = tuple(segments)
    ids = {each.number: each.file_id for each in new if each.file_id}
    return tuple((each.number, each.byte_count) for each in new), ids


class TableEdit(msgspec.Struct, array_like=True, frozen=True):
    """What changes of one table; definition is given when it is new or changed.

    Pages are named by (segment, offset). A dropped table loses everything.
    """

    table_id: int
    definition: list[Any] | None = None
    is_dropped: bool = False
    pages_added: tuple[PageRef, ...] = ()
    pages_removed: tuple[tuple[int, int], ...] = ()
    bitmaps: tuple[tuple[int, int, BitmapRef], ...] = ()


class Snapshot(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """The whole state; the first edit of every file and only there."""

    state: ManifestState


class Checkpoint(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """What one checkpoint changed; segments are (number, length) of the new ones."""

    lsn: tuple[int, int, int]
    position: int
    engine: bytes
    next_table_id: int
    segments: tuple[tuple[int, int], ...] = ()
    tables: tuple[TableEdit, ...] = ()
    log_start: Any = None
    pins: dict[str, Pin] = {}
    """Leases that have pages from here on."""
    unpinned: tuple[str, ...] = ()
    """Leases that have ended."""
    segment_ids: dict[int, bytes] = {}
    writes: dict[str, bytes] = {}
    """Each transaction that is open, with what it has changed since the last one, if anything."""


class LogFileBegun(msgspec.Struct, array_like=True, frozen=True, tag=3):
    """A log file is about to be written; repeating the newest one has no effect."""

    number: int
    first_sequence: int
    byte_count: int = 0
    file_id: bytes = b""


class Compaction(msgspec.Struct, array_like=True, frozen=True, tag=4):
    """Pages replaced by others with the same live rows."""

    segments: tuple[tuple[int, int], ...]
    tables: tuple[TableEdit, ...]
    segment_ids: dict[int, bytes] = {}


class LogFilesDropped(msgspec.Struct, array_like=True, frozen=True, tag=5):
    """Log files that nothing needs any more."""

    numbers: tuple[int, ...]


class LogDurable(msgspec.Struct, array_like=True, frozen=True, tag=6):
    """Every frame up to this sequence is known durable."""

    sequence: int


Edit = Snapshot | Checkpoint | LogFileBegun | Compaction | LogFilesDropped | LogDurable
_DECODER = msgspec.msgpack.Decoder(Edit)


def apply_edit(state: ManifestState, edit: Edit) -> ManifestState:
    """Return the state after the edit; InvariantViolation when it does not fit the state.

    A segment that no page and no bitmap lies in any more leaves the state with the edit.
    """
    builder = _Builder(state)
    builder.apply(edit)
    return builder.state()


def without_pins(state: ManifestState) -> ManifestState:
    """Return the state without leases, and without what only they need."""
    return apply_edit(msgspec.structs.replace(state, pins={}), LogDurable(0))


def without_log(state: ManifestState) -> ManifestState:
    """Return the state as that of a tablespace whose log, of files, begins behind the checkpoint.

    Of a node's copy the checkpoint's Lsn is one in ledgers, which mean nothing elsewhere.
    """
    if state.identity.log_kind != FILE_LOG:
        identity = msgspec.structs.replace(state.identity, log_kind=FILE_LOG)
        beginning = (START_LSN.ledger_id, START_LSN.entry_id, START_LSN.index)
        state = msgspec.structs.replace(state, identity=identity, checkpoint_lsn=beginning)
    return msgspec.structs.replace(
        state,
        log_files=(),
        log_bytes={},
        log_ids={},
        log_start=None,
        durable_sequence=state.checkpoint_lsn[1],
    )


def log_start_of(hint: bytes) -> Any:
    """Invert ManifestState.replay_hint; the hint is msgpack, and any."""
    return msgspec.msgpack.decode(hint) if hint else None


def renumbered(state: ManifestState, by: int) -> ManifestState:
    """Return a state without pins with `by` added to the number of every segment."""
    replace = msgspec.structs.replace

    def moved(page: PageRef) -> PageRef:
        bitmap = page.bitmap
        if bitmap is not None:
            bitmap = replace(bitmap, segment=bitmap.segment + by)
        return replace(page, segment=page.segment + by, bitmap=bitmap)

    return replace(
        state,
        segments={number + by: size for number, size in state.segments.items()},
        segment_ids={number + by: file_id for number, file_id in state.segment_ids.items()},
        next_segment=state.next_segment + by,
        tables={
            table_id: replace(table, pages=tuple(map(moved, table.pages)))
            for table_id, table in state.tables.items()
        },
    )


class _Builder:
    """A state while edits are applied; tables are thawed when an edit first touches them."""

    def __init__(self, state: ManifestState) -> None:
        self._state = state
        self._segments = dict(state.segments)
        self._segment_ids = dict(state.segment_ids)
        self._next_segment = state.next_segment
        self._thawed: dict[int, tuple[list[Any], dict[tuple[int, int], PageRef]]] = {}
        self._dropped: set[int] = set()

    def apply(self, edit: Edit) -> None:
        state, replace = self._state, msgspec.structs.replace
        match edit:
            case Snapshot():
                raise InvariantViolation(
                    "manifest: a snapshot begins a file and stands nowhere else"
                )
            case LogFileBegun():
                begun = (edit.number, edit.first_sequence)
                newest = state.log_files[-1] if state.log_files else (0, 0)
                if newest == begun:
                    return
                if newest[0] >= begun[0] or newest[1] > begun[1]:
                    raise InvariantViolation(f"manifest: log file {begun} behind {newest}")
                self._state = replace(
                    state,
                    log_files=(*state.log_files, begun),
                    log_bytes={**state.log_bytes, edit.number: edit.byte_count},
                    log_ids=state.log_ids | ({edit.number: edit.file_id} if edit.file_id else {}),
                )
            case LogFilesDropped():
                kept = tuple(item for item in state.log_files if item[0] not in edit.numbers)
                sizes = {number: state.log_bytes.get(number, 0) for number, _ in kept}
                ids = {number: state.log_ids[number] for number in sizes.keys() & state.log_ids}
                self._state = replace(state, log_files=kept, log_bytes=sizes, log_ids=ids)
            case LogDurable():
                sequence = max(state.durable_sequence, edit.sequence)
                self._state = replace(state, durable_sequence=sequence)
            case Checkpoint():
                if edit.lsn < state.checkpoint_lsn or edit.next_table_id < state.next_table_id:
                    raise InvariantViolation(
                        f"manifest: a checkpoint goes back: lsn {state.checkpoint_lsn} to "
                        f"{edit.lsn}, next table {state.next_table_id} to {edit.next_table_id}"
                    )
                self._apply_pages(edit)
                pins = {name: pin for name, pin in state.pins.items() if name not in edit.unpinned}
                self._state = replace(
                    state,
                    checkpoint_lsn=edit.lsn,
                    position=edit.position,
                    engine=edit.engine,
                    next_table_id=edit.next_table_id,
                    log_start=edit.log_start,
                    pins={**pins, **edit.pins},
                    writes={
                        name: (*state.writes.get(name, ()), *((added,) if added else ()))
                        for name, added in edit.writes.items()
                    },
                )
            case Compaction():
                self._apply_pages(edit)

    def state(self) -> ManifestState:
        tables = {
            table_id: table
            for table_id, table in self._state.tables.items()
            if table_id not in self._dropped
        }
        for table_id, (definition, pages) in self._thawed.items():
            ordered = sorted(pages.values(), key=lambda page: (page.run, page.low_key))
            tables[table_id] = TableState(definition, tuple(ordered))
        used = segments_of(tables)
        for pin in self._state.pins.values():
            used.update(pin.segments)
        if not used <= self._segments.keys():
            missing = sorted(used - self._segments.keys())
            raise InvariantViolation(f"manifest: pages in unlisted segments {missing}")
        return msgspec.structs.replace(
            self._state,
            tables=tables,
            segments={number: size for number, size in self._segments.items() if number in used},
            segment_ids={
                number: file_id for number, file_id in self._segment_ids.items() if number in used
            },
            next_segment=self._next_segment,
        )

    def _apply_pages(self, changed: Checkpoint | Compaction) -> None:
        self._segment_ids |= changed.segment_ids
        for number, byte_count in changed.segments:
            if number < self._next_segment:
                raise InvariantViolation(f"manifest: segment number {number} was used before")
            self._segments[number] = byte_count
            self._next_segment = number + 1
        for edit in changed.tables:
            if edit.is_dropped:
                self._thawed.pop(edit.table_id, None)
                self._dropped.add(edit.table_id)
            else:
                self._apply_table(edit)

    def _apply_table(self, edit: TableEdit) -> None:
        table_id = edit.table_id
        thawed = self._thawed.get(table_id)
        if thawed is None:
            table = self._state.tables.get(table_id)
            if table_id in self._dropped or (table is None and edit.definition is None):
                raise InvariantViolation(f"manifest: table {table_id} is not known")
            pages = {(page.segment, page.offset): page for page in (table.pages if table else ())}
            thawed = (table.definition if table else [], pages)
        definition, pages = thawed
        try:
            for place in edit.pages_removed:
                del pages[place]
            for segment, offset, bitmap in edit.bitmaps:
                page = pages[segment, offset]
                pages[segment, offset] = msgspec.structs.replace(page, bitmap=bitmap)
        except KeyError as error:
            raise InvariantViolation(
                f"manifest: table {table_id} has no page at {error.args[0]}"
            ) from error
        for page in edit.pages_added:
            pages[page.segment, page.offset] = page
        self._thawed[table_id] = (edit.definition or definition, pages)


def segments_of(tables: dict[int, TableState]) -> set[int]:
    """Return the segments in which their pages and bitmaps lie."""
    used = {page.segment for table in tables.values() for page in table.pages}
    for table in tables.values():
        used.update(page.bitmap.segment for page in table.pages if page.bitmap is not None)
    return used


def check_ids(state: ManifestState) -> None:
    """Raise for an id of a file or tablespace that is neither missing nor of the right length."""
    for each in (state.identity.uuid, *state.segment_ids.values(), *state.log_ids.values()):
        if len(each) not in (0, FILE_ID_BYTES):
            raise InvariantViolation(f"manifest: expected ids of 16 bytes, found {each.hex()}")


def _check_pins(state: ManifestState) -> None:
    """Raise for a lease with pages in segments that it does not name."""
    for name, pin in state.pins.items():
        if pin != Pin.of(pin.tables):
            raise InvariantViolation(f"manifest: lease {name}: not the segments of its pages")


def _frame(file_id: bytes, offset: int, body: bytes) -> bytes:
    head = _FRAME_MAGIC + len(body).to_bytes(4, "little")
    crc = google_crc32c.value(file_id + offset.to_bytes(8, "little") + head + body)
    return head + crc.to_bytes(4, "little") + body


def _body_at(data: bytes, file_id: bytes, offset: int) -> bytes | None:
    """Return the body of the valid frame at offset, None when there is none."""
    if offset + _FRAME.size > len(data):
        return None
    magic, length, _ = _FRAME.unpack_from(data, offset)
    end = offset + _FRAME.size + length
    if magic != _FRAME_MAGIC or end > len(data):
        return None
    body = data[offset + _FRAME.size : end]
    return body if data[offset:end] == _frame(file_id, offset, body) else None


def _file_header(file_id: bytes) -> bytes:
    version = _FILE_VERSION if file_id else _FILE_VERSION_WITHOUT_ID
    head = _FILE_HEADER.pack(_FILE_MAGIC, version, 0)
    return head + google_crc32c.value(head + file_id).to_bytes(4, "little") + file_id


class _Tail(NamedTuple):
    """The end of the manifest: what it says, and where the next edit goes."""

    state: ManifestState
    file: File
    file_id: bytes
    end: int
    snapshot_bytes: int


class _Unhardened(NamedTuple):
    """What load() read and harden() has not made durable: the last edit, and where it begins."""

    last_edit: int
    data: bytes
    is_sealed: bool
    is_torn: bool


class Manifest:
    """The open manifest of one tablespace.

    Constant after __init__: disk, path, rng. Under the mutex: _renaming (a rewritten file whose
    rename did not come to its end), _is_undecided (an append did not come to its end: the file may
    hold an edit that `state` does not), _unhardened (until harden()), failure, rewrite_error.
    """

    def __init__(self, disk: Disk, path: str, rng: Rng, tail: _Tail) -> None:
        self._disk = disk
        self._path = path
        self._rng = rng
        self._mutex = new_mutex()
        self._tail = tail
        self._renaming: _Tail | None = None
        self._is_undecided = False
        self._unhardened: _Unhardened | None = None
        self.is_closed = False
        self.failure: Error | None = None
        self.rewrite_error: OSError | None = None
        """Why the last rewrite was put off; edits go on in the old, longer file."""

    @classmethod
    def create(cls, disk: Disk, path: str, rng: Rng, log_kind: str = FILE_LOG) -> "Manifest":
        """Write the manifest of an empty tablespace where there is none; durable on return."""
        if disk.exists(path):
            raise InvariantViolation(f"manifest {path} exists already")
        log_id, uuid = rng.randbytes(16), rng.randbytes(FILE_ID_BYTES)
        state = ManifestState(log_id, identity=Identity(uuid, log_kind))
        return cls.put(disk, path, state, rng)

    @classmethod
    def put(cls, disk: Disk, path: str, state: ManifestState, rng: Rng) -> "Manifest":
        """Write a manifest of this state in the place of what is there; all or nothing, durable."""
        tail = _write_new(disk, path, state, rng.randbytes(FILE_ID_BYTES))
        try:
            disk.rename(f"{path}.new", path)
            disk.sync_directory(_parent(path))
        except BaseException:
            tail.file.close()
            raise
        return cls(disk, path, rng, tail)

    @staticmethod
    def read(disk: Disk, path: str, log_kind: str | None = FILE_LOG) -> ManifestState:
        """Verify and return what a manifest says; nothing is written. Errors as load().

        log_kind: None takes whichever it is.
        """
        return _checked(disk, path, log_kind)[1].state

    @staticmethod
    def read_valid(disk: Disk, path: str) -> tuple[ManifestState, CorruptionError | None]:
        """Return what the edits before the first damaged one say, and the damage; for salvage.

        Other errors as read(); it is damage, too, when there is no whole edit before it.
        """
        try:
            return _checked(disk, path, FILE_LOG)[1].state, None
        except CorruptionError as error:
            with suppress(OSError):
                state = _valid_part(disk.read(path))
                if state is not None:
                    return state, error
            raise

    @classmethod
    def load(cls, disk: Disk, path: str, rng: Rng, log_kind: str = FILE_LOG) -> "Manifest":
        """Read and verify, and write nothing: harden() comes before the first append().

        CorruptionError: damage. NotSupportedError: the log is not kept as log_kind says.
        """
        data, content = _checked(disk, path, log_kind)
        end = content.end
        file_id, snapshot_bytes = content.file_id, content.snapshot_bytes
        unhardened = _Unhardened(
            content.last_edit,
            data[content.last_edit : end],
            is_sealed=content.is_sealed,
            is_torn=len(data) > end + (_FRAME.size if content.is_sealed else 0),
        )
        file = disk.open(path)
        try:
            tail = _Tail(content.state, file, file_id, end, snapshot_bytes)
            manifest = cls(disk, path, rng, tail)
            manifest._unhardened = unhardened
            return manifest
        except BaseException:  # an interrupt
            file.close()
            raise

    @classmethod
    def open(cls, disk: Disk, path: str, rng: Rng, log_kind: str = FILE_LOG) -> "Manifest":
        manifest = cls.load(disk, path, rng, log_kind)
        try:
            manifest.harden()
        except BaseException:
            manifest.close()
            raise
        return manifest

    def harden(self) -> None:
        """Make durable what load() read, and cut a torn tail off; repeatable.

        A process may have died between a rename or write and its sync: what we act upon must not
        vanish with the next power loss.
        """
        with self._mutex:
            read = self._unhardened
            if read is None:
                return
            file, end = self._tail.file, self._tail.end
            self._disk.sync_directory(_parent(self._path))
            if read.is_torn:
                file.truncate(end)
            if read.is_torn or not read.is_sealed:
                # Written again: if an earlier process saw its fsync fail, the cache shows an edit
                # that the disk never got, and believes it clean.
                file.write_at(read.last_edit, read.data)
                file.sync()
                self._seal(file, end)
            self._unhardened = None

    @property
    def state(self) -> ManifestState:
        return self._tail.state

    @property
    def is_current(self) -> bool:
        """The file is of FORMAT 2, and so is what is listed in it from now on."""
        return bool(self._tail.file_id)

    def new_file_id(self) -> bytes:
        """Return the id of a new file that is to be listed; none while the manifest is FORMAT 1."""
        return self._rng.randbytes(FILE_ID_BYTES) if self.is_current else b""

    def upgrade(self) -> None:
        """Write the file anew as FORMAT 2, if it is not; behind harden(). Errors as append()."""
        with self._mutex:
            if not self.is_current:
                self._fail_on_error(self._upgrade)

    @property
    def byte_count(self) -> int:
        """Bytes of the file up to its last edit."""
        return self._tail.end

    def append(self, edit: Edit) -> ManifestState:
        """Make the edit durable and effective, return the new state.

        DiskFullError: it had no effect and may be repeated. Any other OSError makes the manifest
        unusable: it sets `failure`, raised now and ever after; whether the edit is effective is
        decided by the next open. So it is after an interrupt, until the next append or settle():
        what the edit names must not be removed or replaced before.
        """
        with self._mutex:
            return self._append_or_fail(edit)

    def settle(self) -> None:
        """See that the file says durably what `state` says, though an append was interrupted.

        An edit that did not become effective is overwritten. Errors as append(); repeatable.
        """
        with self._mutex:
            if self._is_undecided:
                self._append_or_fail(LogDurable(0))

    def close(self) -> None:
        """Release the file; idempotent."""
        self.is_closed = True
        self._tail.file.close()

    def _append_or_fail(self, edit: Edit) -> ManifestState:
        return self._fail_on_error(lambda: self._append(edit))

    def _fail_on_error(self, change: Callable[[], T]) -> T:
        if self.failure is not None:
            raise self.failure
        if self._unhardened is not None:
            raise InvariantViolation("manifest: an edit behind one that may not be durable")
        try:
            return change()
        except OSError as error:
            self.failure = OperationalError(
                f"manifest {self._path}: {error}; whether the last change happened is decided "
                "when the database is opened again",
                hint="close the database, look after the disk, open it again",
            )
            raise self.failure from error

    def _append(self, edit: Edit) -> ManifestState:
        if self._renaming is not None:
            self._finish_rename(self._renaming)
        tail = self._tail
        state = apply_edit(tail.state, edit)
        body = msgspec.msgpack.encode(edit)
        # What an interrupted append left here is overwritten; behind a shorter frame none of its
        # bytes can be valid, because the CRC covers the frame's offset.
        was_undecided = self._is_undecided
        self._is_undecided = True
        try:
            tail.file.write_at(tail.end, _frame(tail.file_id, tail.end, body))
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            self._is_undecided = was_undecided  # this edit is not whole, an earlier one may be
            raise _no_space(self._path) from error
        tail.file.sync()
        end = tail.end + _FRAME.size + len(body)
        self._tail = tail = tail._replace(state=state, end=end)
        self._is_undecided = False
        self._seal(tail.file, end)
        if end > max(_REWRITE_BYTES_MIN, _REWRITE_FACTOR * tail.snapshot_bytes):
            self._rewrite(tail)
        return state

    def _seal(self, file: File, end: int) -> None:
        with suppress(OSError):  # a help for the reader, not a promise
            file.write_at(end, _frame(self._tail.file_id, end, b""))

    def _rewrite(self, tail: _Tail) -> None:
        try:
            fresh = _write_new(self._disk, self._path, tail.state, self.new_file_id())
        except OSError as error:
            # The edit is durable in the old file. Try again when it has doubled.
            self.rewrite_error = error
            self._tail = tail._replace(snapshot_bytes=max(tail.snapshot_bytes, tail.end // 2))
            return
        self._renaming = fresh
        self._finish_rename(fresh)

    def _upgrade(self) -> None:
        if self._renaming is not None:
            self._finish_rename(self._renaming)
            if self.is_current:
                return
        state = self._tail.state
        identity = Identity(self._rng.randbytes(FILE_ID_BYTES))
        state = msgspec.structs.replace(state, identity=identity)
        file_id = self._rng.randbytes(FILE_ID_BYTES)
        try:
            self._renaming = _write_new(self._disk, self._path, state, file_id)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            raise _no_space(self._path) from error
        self._finish_rename(self._renaming)
        self._is_undecided = False  # what an interrupted append left was in the old file

    def _finish_rename(self, fresh: _Tail) -> None:
        """Repeatable until _renaming is None: the next append finishes what was interrupted."""
        if self._disk.exists(f"{self._path}.new"):
            self._disk.rename(f"{self._path}.new", self._path)
        self._disk.sync_directory(_parent(self._path))
        old = self._tail.file
        self._tail = fresh
        self._renaming = None
        self.rewrite_error = None
        if old is not fresh.file:
            old.close()


def _no_space(path: str) -> DiskFullError:
    return DiskFullError(f"manifest {path}: no space left on the disk")


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _write_new(disk: Disk, path: str, state: ManifestState, file_id: bytes) -> _Tail:
    """Write and sync path.new with the state as its snapshot; the caller renames it."""
    new_path = f"{path}.new"
    with suppress(FileNotFoundError):
        disk.unlink(new_path)
    header = _file_header(file_id)
    data = header + _frame(file_id, len(header), msgspec.msgpack.encode(Snapshot(state)))
    file = disk.open(new_path, create=True, exclusive=True)
    try:
        file.write_at(0, data + _frame(file_id, len(data), b""))
        file.sync()
    except BaseException:
        file.close()
        with suppress(OSError):  # on a full disk it would stay, and take room
            disk.unlink(new_path)
        raise
    return _Tail(state, file, file_id, len(data), len(data))


class _Content(NamedTuple):
    """What a manifest's file says; its last edit goes from last_edit to end."""

    state: ManifestState
    file_id: bytes
    last_edit: int
    end: int
    snapshot_bytes: int
    is_sealed: bool


def _checked(disk: Disk, path: str, log_kind: str | None) -> tuple[bytes, _Content]:
    """Return a manifest's bytes, and what they say."""
    data = b""
    try:
        with expecting_file(f"manifest {path}"):
            data = disk.read(path)
        return data, _read(data, path, log_kind)
    except CorruptionError as error:
        if _valid_part(data) is None:
            error.hint = NOTHING_LEFT_HINT
        raise


def _read(data: bytes, path: str, log_kind: str | None) -> _Content:
    file_id = _file_id_of(data, path)
    offset = last_edit = len(_file_header(file_id))
    builder: _Builder | None = None
    snapshot_bytes = 0
    try:
        while body := _body_at(data, file_id, offset):
            edit = _DECODER.decode(body)
            if builder is not None:
                builder.apply(edit)
            elif isinstance(edit, Snapshot):
                builder = _Builder(edit.state)
                snapshot_bytes = offset + _FRAME.size + len(body)
            else:
                raise InvariantViolation("expected a snapshot first")
            last_edit = offset
            offset += _FRAME.size + len(body)
        if builder is None:
            raise _damage(path, offset, "expected a whole snapshot, found none")
        state = builder.state()
        _check_pins(state)
        check_ids(state)
    except (msgspec.DecodeError, InvariantViolation) as error:
        raise _damage(path, offset, f"an edit does not fit: {error}") from error
    is_sealed = _body_at(data, file_id, offset) == b""
    position = data.find(_FRAME_MAGIC, offset + (_FRAME.size if is_sealed else 1))
    while position >= 0:
        if _body_at(data, file_id, position) is not None:
            raise _damage(
                path, offset, f"expected a whole edit; a later valid one is at {position}"
            )
        position = data.find(_FRAME_MAGIC, position + 1)
    found_kind = state.identity.log_kind
    if log_kind not in (None, found_kind):
        raise NotSupportedError(
            f"manifest {path}: expected a log that is kept as {log_kind!r}, found one that is kept "
            f"as {found_kind!r}",
            hint=_OF_OTHER_KINDS.get(found_kind, "Open it with the newer herdpy that wrote it."),
        )
    return _Content(state, file_id, last_edit, offset, snapshot_bytes, is_sealed)


def _valid_part(data: bytes) -> ManifestState | None:
    """Return the state after the last edit that is valid and fits those before it.

    The header need not be: frames that are valid under the id in its place prove the id.
    """
    id_start = _FILE_HEADER.size + 4
    for file_id in (data[id_start : id_start + FILE_ID_BYTES], b""):
        state: ManifestState | None = None
        offset = id_start + len(file_id)
        with suppress(msgspec.DecodeError, InvariantViolation):
            while body := _body_at(data, file_id, offset):
                edit = _DECODER.decode(body)
                if state is not None:
                    found = apply_edit(state, edit)
                elif isinstance(edit, Snapshot):
                    found = edit.state
                else:
                    break
                check_ids(found)
                state = found
                offset += _FRAME.size + len(body)
        if state is not None:
            return state
    return None


def _file_id_of(data: bytes, path: str) -> bytes:
    """Return the id in a manifest's header; none for one of FORMAT 1."""
    size = _FILE_HEADER.size + 4
    for file_id in (data[size : size + FILE_ID_BYTES], b""):
        header = _file_header(file_id)
        if data[: len(header)] == header:
            return file_id
    raise _damage(
        path,
        0,
        f"expected a header of version {_FILE_VERSION_WITHOUT_ID} or {_FILE_VERSION}, found "
        f"{data[: size + FILE_ID_BYTES].hex()}",
    )


def _damage(path: str, offset: int, problem: str) -> CorruptionError:
    return damaged(f"damaged manifest {path} at offset {offset}: {problem}")
