"""Golden bytes of docs/formats/{journal,entry_log,entry_index}.md, and what is refused."""

from struct import pack

import pytest
from google_crc32c import value

from bookie.errors import CorruptFileError
from bookie.runtime.memory_disk import MemoryDisk
from bookie.server.interfaces import LedgerRecord
from bookie.server.storage import entry_log, journal, journal_format
from bookie.server.storage.entry_log import EntryLogReader, EntryLogWriter, LogHeader, RecordKind
from bookie.server.storage.journal_format import JournalFileReader, Kind, Position, Record
from bookie.server.storage.ledger_record import (
    decode_ledger_record,
    encode_ledger_body,
    encode_ledger_record,
    merge_ledger_records,
)
from tests.sim.disk import SimulatedDisk

PACKET = pack(">qqqq", 7, 3, 2, 20) + b"hello"
LEDGER = LedgerRecord(b"key", is_fenced=True, explicit_lac=pack(">qq", 7, 3), last_add_confirmed=3)


def hexes(text: str) -> bytes:
    return bytes.fromhex(text)


class TestJournal:
    HEADER = hexes("626f6f6b69654a31 00000001 0000000000000005 9a650954")
    BATCH = hexes(
        "42415443 e2c3d1e9 0000000000000005 0000000000000200 0000000000000200 00000002 00000030"
        "00000002 0000000b 9311d825  00000001 00000025 e9857074"
        "0000000000000007 6b6579"
        "0000000000000007 0000000000000003 0000000000000002 0000000000000014 68656c6c6f"
    )
    RECORDS = (
        journal_format.record_of(Kind.MASTER_KEY, 7, b"key"),
        Record(Kind.ENTRY, value(PACKET), PACKET),
    )

    def disk(self, content: bytes) -> MemoryDisk:
        disk = MemoryDisk()
        disk.make_directory("journal")
        file = disk.open("journal/00000005.journal", create=True)
        file.write_at(0, content)
        file.close()
        return disk

    def test_golden_bytes(self) -> None:
        header = journal_format.encode_file_header(5)
        assert header == self.HEADER.ljust(512, b"\0")
        batch = journal_format.encode_batch(Position(5, 512), 512, self.RECORDS)
        assert batch == self.BATCH.ljust(512, b"\0")
        reader = JournalFileReader(self.disk(header + batch), 5)
        found = reader.batch(512)
        assert found is not None
        assert (found.records, found.end, found.damaged_at) == (list(self.RECORDS), 1024, None)
        reader.close()

    @pytest.mark.parametrize("offset", range(len(BATCH)))
    def test_any_byte_that_changed_is_noticed(self, offset: int) -> None:
        content = bytearray(self.HEADER.ljust(512, b"\0") + self.BATCH.ljust(512, b"\0"))
        content[512 + offset] ^= 1
        reader = JournalFileReader(self.disk(bytes(content)), 5)
        found = reader.batch(512)
        assert found is None or found.damaged_at is not None
        reader.close()

    def test_what_another_use_of_the_file_left_does_not_count(self) -> None:
        old = journal_format.encode_batch(Position(4, 512), 512, self.RECORDS)
        moved = journal_format.encode_batch(Position(5, 1024), 512, self.RECORDS)
        for batch in (old, moved):
            reader = JournalFileReader(self.disk(self.HEADER.ljust(512, b"\0") + batch), 5)
            assert reader.batch(512) is None
            reader.close()

    def test_the_mark(self) -> None:
        disk = MemoryDisk()
        disk.make_directory("journal")
        assert journal.read_mark(disk) is None
        mark = journal.Mark(Position(5, 1024), 2, 4096)
        journal.write_mark(disk, mark)
        assert disk.read("journal/MARK") == hexes(
            "626f6f6b69654d31 00000001 0000000000000005 0000000000000400 00000002"
            "0000000000001000 be6c278a"
        )
        assert journal.read_mark(disk) == mark
        for offset in range(44):
            file = disk.open("journal/MARK")
            byte = file.read_at(offset, 1)[0]
            file.write_at(offset, bytes([byte ^ 1]))
            with pytest.raises(CorruptFileError, match="MARK"):
                journal.read_mark(disk)
            file.write_at(offset, bytes([byte]))
            file.close()


class TestEntryLog:
    RECORDS = hexes(
        "01 000000 00000025 e9857074 8ceb063a 0000000200000218"
        "0000000000000007 0000000000000003 0000000000000002 0000000000000014 68656c6c6f"
        "02 000000 00000027 2f65cd6f 4a0bbb6d 0000000200000255"
        "0000000000000007 01 01 0003 0000000000000003 6b6579 0000000000000007 0000000000000003"
    )
    END = hexes(
        "0000000000000007 000000000000007c"
        "626f6f6b69655431 00000002 00000001 000000000000027c b9cbcf2d 60e7260b"
    )

    def disk(self) -> MemoryDisk:
        disk = MemoryDisk()
        disk.make_directory("entries")
        writer = EntryLogWriter(disk, 2)
        location = writer.append(RecordKind.ENTRY, 7, PACKET, value(PACKET))
        assert location == 2 << 32 | 512 + 24
        body = encode_ledger_body(7, LEDGER)
        writer.append(RecordKind.LEDGER, 7, body, value(body))
        writer.seal()
        writer.close()
        return disk

    def test_golden_bytes(self) -> None:
        assert entry_log.encode_log_header(LogHeader(2, (1,))) == hexes(
            "626f6f6b69654531 00000001 00000002 00000001 00000001 6081c88c"
        ).ljust(512, b"\0")
        assert entry_log.encode_log_header(LogHeader(2, (), (5, 1024))) == hexes(
            "626f6f6b69654531 00000001 00000002 00000000 ddac59e1"
        ).ljust(492, b"\0") + hexes("0000000000000005 0000000000000400 260bef4d")
        disk = self.disk()
        assert disk.read("entries/00000002.log")[512:] == self.RECORDS + self.END
        reader = EntryLogReader(disk, 2)
        first, second = reader.records()
        assert (first.body, first.ids, first.is_damaged) == (PACKET, (7, 3), False)
        assert second.body == encode_ledger_body(7, LEDGER)
        assert reader.is_read_whole
        assert reader.ledger_map() == {7: len(self.RECORDS)}
        reader.close()

    def test_the_journal_position_that_ends_a_flush_is_of_no_ledger(self) -> None:
        disk = MemoryDisk()
        disk.make_directory("entries")
        writer = EntryLogWriter(disk, 2)
        writer.append(RecordKind.ENTRY, 7, PACKET, value(PACKET))
        entry_bytes = writer.byte_count - 512
        writer.append_journal((5, 1024))
        writer.sync()
        assert disk.read("entries/00000002.log")[512 + entry_bytes :] == hexes(
            "03 000000 00000010 260bef4d 43659979 00000002000002550000000000000005 0000000000000400"
        )
        writer.seal()
        writer.close()
        reader = EntryLogReader(disk, 2)
        _, found = reader.records()
        assert (found.kind, found.journal, found.is_damaged) == (
            RecordKind.JOURNAL,
            (5, 1024),
            False,
        )
        assert reader.ledger_map() == {7: entry_bytes}
        reader.close()
        disk = MemoryDisk()  # the same by a start that seals it
        disk.make_directory("entries")
        writer = EntryLogWriter(disk, 2)
        writer.append(RecordKind.ENTRY, 7, PACKET, value(PACKET))
        writer.append_journal((5, 1024))
        writer.sync()
        writer.close()
        assert entry_log.seal_leftover(disk, 2, 0)
        reader = EntryLogReader(disk, 2)
        assert reader.ledger_map() == {7: entry_bytes}
        reader.close()

    def test_the_journal_position_of_a_header(self) -> None:
        disk = MemoryDisk()
        disk.make_directory("entries")
        writer = EntryLogWriter(disk, 2, sources=range(3, 67), journal=(5, 1024))
        writer.sync()
        writer.close()
        for offset, expected in ((None, (5, 1024)), (499, (0, 0)), (511, (0, 0))):
            if offset is not None:
                file = disk.open("entries/00000002.log")
                file.write_at(offset, bytes([file.read_at(offset, 1)[0] ^ 1]))
                file.close()
            reader = EntryLogReader(disk, 2)
            assert reader.header == LogHeader(2, tuple(range(3, 67)), expected)
            reader.close()

    @pytest.mark.parametrize("offset", range(24 + len(PACKET)))
    def test_any_byte_of_a_record_that_changed_is_noticed(self, offset: int) -> None:
        disk = self.disk()
        file = disk.open("entries/00000002.log")
        byte = file.read_at(512 + offset, 1)[0]
        file.write_at(512 + offset, bytes([byte ^ 1]))
        if offset in (1, 2, 3):  # unused
            return file.close()
        with pytest.raises(CorruptFileError, match=r"00000002\.log at offset 536"):
            entry_log.read_records(file, [2 << 32 | 536])
        return file.close()

    @pytest.mark.parametrize("offset", range(len(END)))
    def test_any_byte_of_the_end_that_changed_is_noticed(self, offset: int) -> None:
        disk = self.disk()
        file = disk.open("entries/00000002.log")
        at = 512 + len(self.RECORDS) + offset
        file.write_at(at, bytes([file.read_at(at, 1)[0] ^ 1]))
        file.close()
        reader = EntryLogReader(disk, 2)
        assert reader.ledger_map() is None
        assert len(list(reader.records())) == 2
        reader.close()

    def test_the_records_are_durable_before_the_trailer_is_written(self) -> None:
        disk = SimulatedDisk(7)
        disk.make_directory("entries")
        writer = EntryLogWriter(disk, 1)
        writer.append(RecordKind.ENTRY, 7, PACKET, value(PACKET))
        disk.trace = []
        writer.seal()
        writer.close()
        steps = [step for step, _, _ in disk.trace]
        assert steps == ["write", "sync", "sync_directory", "write", "sync"]

    def test_a_header_of_another_log_or_version(self) -> None:
        disk = self.disk()
        disk.rename("entries/00000002.log", "entries/00000003.log")
        with pytest.raises(CorruptFileError, match="log 2"):
            EntryLogReader(disk, 3)
        with pytest.raises(CorruptFileError, match="version 1"):
            entry_log.decode_log_header(bytes(512), "x")

    def test_reading_ahead_returns_the_neighbours(self) -> None:
        file = self.disk().open("entries/00000002.log")
        second = 2 << 32 | 536 + len(PACKET) + 24
        first, other = entry_log.read_records(file, [2 << 32 | 536, second, 2 << 32 | 1 << 20])
        assert first.body == PACKET
        assert other.kind == RecordKind.LEDGER
        file.close()

    def test_a_large_entry_is_read_whole(self) -> None:
        disk = MemoryDisk()
        disk.make_directory("entries")
        writer = EntryLogWriter(disk, 1)
        body = bytes(range(256)) * 4000
        location = writer.append(RecordKind.ENTRY, 7, body, value(body))
        writer.sync()
        file = disk.open("entries/00000001.log")
        assert entry_log.read_records(file, [location])[0].body == body
        file.close()
        writer.close()


class TestLedgerRecord:
    def test_golden_bytes(self) -> None:
        data = hexes("0101 0003 0000000000000003 6b6579 0000000000000007 0000000000000003")
        assert encode_ledger_record(LEDGER) == data
        assert decode_ledger_record(data) == LEDGER

    @pytest.mark.parametrize("data", ["", "02010003", "0104000300000000000000036b6579", "01010009"])
    def test_other_bytes(self, data: str) -> None:
        with pytest.raises(CorruptFileError, match="version 1"):
            decode_ledger_record(bytes.fromhex(data))

    def test_merging_goes_in_any_order(self) -> None:
        zero = LedgerRecord(bytes(20), is_fenced=False, explicit_lac=b"", last_add_confirmed=9)
        for one, other in ((zero, LEDGER), (LEDGER, zero)):
            merged = merge_ledger_records(one, other)
            assert merged == LEDGER._replace(last_add_confirmed=9)
