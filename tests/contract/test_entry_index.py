"""The EntryIndex contract, over LMDB and memory."""

import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from errno import ENOMEM
from pathlib import Path

import pytest

from bookie.server.interfaces import EntryIndex, LedgerRecord
from bookie.server.storage.lmdb_index import LmdbIndex
from bookie.server.storage.memory_index import MemoryIndex

MAKERS: dict[str, Callable[[Path], EntryIndex]] = {
    "memory": lambda _: MemoryIndex(),
    "lmdb": lambda path: LmdbIndex(str(path / "index.lmdb")),
    "lmdb that has to grow": lambda path: LmdbIndex(str(path / "index.lmdb"), map_bytes=1 << 16),
}
RECORD = LedgerRecord(b"k" * 20, is_fenced=False, explicit_lac=b"", last_add_confirmed=-1)
FENCED = LedgerRecord(b"o" * 20, is_fenced=True, explicit_lac=b"e" * 40, last_add_confirmed=8)


@pytest.fixture(params=MAKERS)
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EntryIndex]:
    index = MAKERS[request.param](tmp_path)
    yield index
    index.close()


def test_nothing(index: EntryIndex) -> None:
    assert index.get(7, 0) is None
    assert index.last_entry_id(7) is None
    assert index.ledger(7) is None
    assert list(index.entry_ids(7)) == []
    assert list(index.ledger_ids()) == []
    index.delete_ledger(7)
    index.sync()


def test_what_was_put_is_there(index: EntryIndex) -> None:
    index.put([(7, 0, 100), (7, 1, 1 << 62), (8, 5, 300)], [(7, RECORD), (8, FENCED)])
    assert index.get(7, 0) == 100
    assert index.get(7, 1) == 1 << 62
    assert index.get(8, 5) == 300
    assert index.get(8, 0) is None
    assert index.ledger(7) == RECORD
    assert index.ledger(8) == FENCED
    assert index.ledger(9) is None
    assert list(index.ledger_ids()) == [7, 8]


def test_the_last_put_counts(index: EntryIndex) -> None:
    index.put([(7, 0, 100)], [(7, RECORD)])
    index.put([(7, 0, 200)], [(7, FENCED)])
    assert index.get(7, 0) == 200
    assert index.ledger(7) == FENCED
    assert list(index.entry_ids(7)) == [0]


def test_the_highest_ledger_id_outlives_its_ledger(index: EntryIndex) -> None:
    assert index.highest_ledger_id == -1
    index.put([(7, 0, 100)], [(7, RECORD), (9, RECORD)])
    index.put([], [(8, RECORD)])
    assert index.highest_ledger_id == 9
    index.delete_ledger(9)
    assert index.highest_ledger_id == 9


def test_last_entry_ids_of_neighbours(index: EntryIndex) -> None:
    top = 2**63 - 1
    index.put([(6, 3, 1), (7, 9, 2), (7, 300, 3), (9, 1, 4), (top, top, 5)])
    assert [index.last_entry_id(n) for n in (5, 6, 7, 8, 9, 10, top)] == [
        None, 3, 300, None, 1, None, top
    ]  # fmt: skip
    assert list(index.entry_ids(7)) == [9, 300]
    assert list(index.entry_ids(top)) == [top]


def test_locations_of_a_stretch(index: EntryIndex) -> None:
    index.put([(6, 4, 1), (7, 3, 30), (7, 4, 40), (7, 6, 60), (7, 9, 90), (8, 5, 2)])
    assert index.locations(7, 3, 4) == [(3, 30), (4, 40), (6, 60)]
    assert index.locations(7, 5, 100) == [(6, 60), (9, 90)]
    assert index.locations(7, 4, 1) == [(4, 40)]
    assert index.locations(7, 10, 5) == []
    assert index.locations(9, 0, 5) == []
    top = 2**63 - 1
    index.put([(7, top, 90)])
    assert index.locations(7, 8, top) == [(9, 90), (top, 90)]


def test_deleting_a_ledger_leaves_the_others(index: EntryIndex) -> None:
    index.put([(n, e, n * e) for n in (6, 7, 8) for e in range(100)])
    index.put([], [(n, RECORD) for n in (6, 7, 8)])
    index.delete_ledger(7)
    index.delete_ledger(7)
    assert index.last_entry_id(7) is None
    assert index.ledger(7) is None
    assert index.get(7, 50) is None
    assert list(index.ledger_ids()) == [6, 8]
    assert list(index.entry_ids(6)) == list(range(100))
    assert list(index.entry_ids(8)) == list(range(100))


def test_many(index: EntryIndex) -> None:
    count = 20_000
    for start in range(0, count, 5000):
        index.put([(7, e, e + 1) for e in range(start, start + 5000)])
    index.put((), [(n, RECORD) for n in range(10_000)])
    index.sync()
    assert list(index.entry_ids(7)) == list(range(count))
    assert list(index.ledger_ids()) == list(range(10_000))
    assert all(index.get(7, e) == e + 1 for e in range(0, count, 97))
    index.delete_ledger(7)
    assert list(index.entry_ids(7)) == []


def test_changes_beside_an_iteration(index: EntryIndex) -> None:
    index.put([(7, e, e) for e in range(10_000)])
    iterator = index.entry_ids(7)
    assert next(iterator) == 0
    index.put([(7, 20_000, 1)])
    rest = list(iterator)
    assert rest[:9999] == list(range(1, 10_000))


def test_whole_is_said_once_and_for_all(index: EntryIndex) -> None:
    assert not index.is_whole
    index.put([(7, 0, 100)], [(7, RECORD)])
    assert not index.is_whole
    index.set_whole()
    index.set_whole()
    assert index.is_whole
    index.delete_ledger(7)
    assert index.is_whole
    assert list(index.ledger_ids()) == []


def test_older_metadata_is_remembered_until_it_is_taken_back(index: EntryIndex) -> None:
    assert not index.is_metadata_older
    index.put([], [(7, RECORD), (9, RECORD)])
    index.delete_ledger(9)
    index.note_metadata(is_older=True)
    assert index.is_metadata_older
    assert index.highest_ledger_id == 9
    index.note_metadata(is_older=False)
    assert not index.is_metadata_older
    assert index.highest_ledger_id == 7


def test_the_journal_position_is_that_set_last(index: EntryIndex) -> None:
    assert index.journal_position is None
    for position in ((1, 512), (1, 4096), (2, 512)):
        index.put([(7, 0, 100)], [(7, RECORD)], position)
        assert index.journal_position == position
    index.put([(7, 1, 200)])
    assert index.journal_position == (2, 512)


def test_the_owner_is_remembered(index: EntryIndex) -> None:
    assert index.owner is None
    index.set_owner("bookie ü:3181 of cluster 7")
    assert index.owner == "bookie ü:3181 of cluster 7"


class TestMemory:
    """What only the crash-aware one can show."""

    def test_a_crash_takes_what_was_not_synced(self) -> None:
        index = MemoryIndex()
        index.put([(7, 0, 100)], [(7, RECORD)])
        index.sync()
        index.put([(7, 1, 200)])
        index.put([(7, 2, 300)], [(7, FENCED)])
        index.delete_ledger(7)
        for kept, expected in enumerate(
            [([0], RECORD), ([0, 1], RECORD), ([0, 1, 2], FENCED), ([], None)]
        ):
            after = index.crash(lambda count, kept=kept: min(kept, count))
            assert (list(after.entry_ids(7)), after.ledger(7)) == expected


class TestLmdb:
    """What only the one with a file can show."""

    def test_it_is_there_when_it_is_opened_again(self, tmp_path: Path) -> None:
        path = str(tmp_path / "index.lmdb")
        index = LmdbIndex(path, map_bytes=1 << 16)
        index.put([(7, e, e) for e in range(5000)], [(7, FENCED)])
        index.set_whole()
        index.close()
        index.close()
        index = LmdbIndex(path, map_bytes=1 << 16)
        assert index.is_whole
        assert index.highest_ledger_id == 7
        assert index.last_entry_id(7) == 4999
        assert index.ledger(7) == FENCED
        index.put([(8, e, e) for e in range(5000)])
        index.close()

    def test_a_file_that_is_no_index(self, tmp_path: Path) -> None:
        path = tmp_path / "index.lmdb"
        path.write_bytes(b"x" * 8192)
        with pytest.raises(Exception, match="move the file away") as caught:
            LmdbIndex(str(path))
        assert str(path) in str(caught.value)

    def test_no_memory_for_a_larger_map_is_an_os_error(self, tmp_path: Path) -> None:
        script = """
import resource, sys
from bookie.server.storage.lmdb_index import LmdbIndex
index = LmdbIndex(sys.argv[1], map_bytes=1 << 20)
sizes = [int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize")]
limit = (sizes[0] << 10) + (12 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    for ledger_id in range(2000):
        index.put([(ledger_id, entry_id, 7) for entry_id in range(1000)])
except OSError as error:
    print("put", error.errno)
resource.setrlimit(resource.RLIMIT_AS, (limit - (12 << 20), limit))
try:
    LmdbIndex(sys.argv[1] + "2", map_bytes=1 << 30)
except OSError as error:
    print("open", error.errno)
"""
        command = [sys.executable, "-c", script, str(tmp_path / "index.lmdb")]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.stdout.split("\n")[:2] == [f"put {ENOMEM}", f"open {ENOMEM}"], ended.stderr

    def test_what_cannot_be_read_is_an_os_error(self, tmp_path: Path) -> None:
        index = LmdbIndex(str(tmp_path / "index.lmdb"))
        index.close()
        for read in (
            lambda: index.get(7, 0),
            lambda: index.locations(7, 0, 5),
            lambda: index.last_entry_id(7),
            lambda: index.ledger(7),
            lambda: list(index.entry_ids(7)),
            lambda: list(index.ledger_ids()),
            lambda: index.is_whole,
        ):
            with pytest.raises(OSError, match=r"index\.lmdb: "):
                read()

    def test_a_change_that_fails_is_undone(self, tmp_path: Path) -> None:
        index = LmdbIndex(str(tmp_path / "index.lmdb"))
        with pytest.raises(struct.error):
            index.put([(7, 0, 1), (7, 1, -1)])
        assert index.get(7, 0) is None
        index.close()
