"""An index file that was cut off is refused before a read of it is a SIGBUS; a sound one is not."""

import os
import random
import shutil
from pathlib import Path
from struct import pack

import lmdb
import pytest

from bookie.errors import CorruptFileError
from bookie.runtime.os_disk import OsDisk
from bookie.server.interfaces import LedgerRecord
from bookie.server.storage.lmdb_index import LmdbIndex
from bookie.server.storage.lmdb_length import missing_page

LEDGERS = range(5)


def missing(path: Path) -> int | None:
    file = OsDisk(path.parent).open(path.name)
    try:
        return missing_page(file)
    finally:
        file.close()


def use(index: LmdbIndex) -> None:
    """Read all of an index, and change all of it."""
    for ledger_id in LEDGERS:
        assert len(index.locations(ledger_id, 0, 4000)) == len(list(index.entry_ids(ledger_id)))
        index.ledger(ledger_id)
    for ledger_id in LEDGERS:
        index.put([(ledger_id, entry_id, 7) for entry_id in range(0, 4000, 3)])
        index.delete_ledger(ledger_id)
    index.sync()


def work(index: LmdbIndex, rng: random.Random) -> None:
    count = rng.choice([10, 3000])
    places = [(rng.choice(LEDGERS), rng.randrange(4000), n) for n in range(count)]
    record = LedgerRecord(bytes(rng.choice([10, 9000])), is_fenced=False, explicit_lac=b"")
    index.put(places, [(rng.choice(LEDGERS), record)])
    if rng.random() < 0.6:
        index.delete_ledger(rng.choice(LEDGERS))
    index.sync()


def test_a_sound_file_that_ends_before_its_last_page_is_taken(tmp_path: Path) -> None:
    path = str(tmp_path / "index.lmdb")
    rng = random.Random(1)
    LmdbIndex(path).close()
    short_count = 0
    for _ in range(20):
        with (
            lmdb.open(path, subdir=False, max_dbs=2, map_size=1 << 26, lib_version=0) as env,
            env.begin(write=True) as txn,
        ):
            database = env.open_db(b"locations", txn)
            for _ in range(1000):
                key = pack(">QQ", rng.choice(LEDGERS), rng.randrange(4000))
                txn.put(key, bytes(8), db=database)
            cursor = txn.cursor(database)
            is_found = cursor.set_range(pack(">QQ", rng.choice(LEDGERS), 0))
            while is_found and rng.random() < 0.999:
                is_found = cursor.delete()
        with lmdb.open(path, subdir=False, readonly=True, lib_version=0) as env:
            counted = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
        if (tmp_path / "index.lmdb").stat().st_size < counted:
            short_count += 1
            copy = shutil.copy(path, tmp_path / "copy.lmdb")
            index = LmdbIndex(str(copy))
            use(index)
            index.close()
    assert short_count > 0


@pytest.mark.parametrize("seed", range(3))
def test_a_file_that_was_cut_off_is_refused(seed: int, tmp_path: Path) -> None:
    path, cut = tmp_path / "index.lmdb", tmp_path / "cut.lmdb"
    rng = random.Random(seed)
    index = LmdbIndex(str(path))
    for _ in range(6):
        work(index, rng)
    index.close()
    refused = 0
    lengths = range(4096, path.stat().st_size, 9 * 1024)
    for length in lengths:
        shutil.copy(path, cut)
        os.truncate(cut, length)
        if missing(cut) is None:
            opened = LmdbIndex(str(cut))
            use(opened)
            opened.close()
        else:
            refused += 1
            with pytest.raises(CorruptFileError, match="cut off; move the file away"):
                LmdbIndex(str(cut))
    assert refused > 0.8 * len(lengths)


def test_what_is_no_index_is_not_looked_into(tmp_path: Path) -> None:
    path = tmp_path / "index.lmdb"
    for content in (b"", b"hello", bytes(4096), bytes(9000), b"\xff" * 9000):
        path.write_bytes(content)
        assert missing(path) is None


def test_a_page_size_of_nothing_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "index.lmdb"
    LmdbIndex(str(path)).close()
    content = bytearray(path.read_bytes())
    content[40:44] = bytes(4)  # of the first meta page
    path.write_bytes(content)
    assert missing(path) is None
    with pytest.raises(CorruptFileError, match="move the file away"):
        LmdbIndex(str(path))
