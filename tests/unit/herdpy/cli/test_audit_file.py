"""The audit log where what it goes to takes nothing, and where it cannot be written."""

import json
import logging
import os
from contextlib import suppress
from pathlib import Path

import pytest

from bookie.runtime.os_clock import OsClock
from herdpy.cli.audit_file import AuditFile
from herdpy.server.login.audit import line_of

CLOCK = OsClock()


def fill(path: Path) -> int:
    """Write to a pipe until it takes nothing; return how many bytes."""
    writer, count = os.open(path, os.O_WRONLY | os.O_NONBLOCK), 0
    for size in (4_096, 1):
        with suppress(BlockingIOError):
            while True:
                count += os.write(writer, b" " * size)
    os.close(writer)
    return count


def test_no_event_waits_for_who_reads_the_log_and_none_is_lost_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "audit"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    filled = fill(path)
    audit = AuditFile(str(path), CLOCK, bytes_max=100_000)
    count = 4_000  # more than it keeps
    for number in range(count):
        audit.write(line_of(CLOCK, "login", session=number))
    lost = audit.lines.lost_count
    assert 0 < lost < count
    assert [each.levelname for each in caplog.records] == ["ERROR"]
    assert "is full" in caplog.text
    found = b""
    while b"lines_lost" not in found:
        try:
            found += os.read(reader, 65_536)
        except BlockingIOError:
            continue
    audit.write(line_of(CLOCK, "logout"))
    audit.close()
    found += os.read(reader, 65_536)
    os.close(reader)
    events = [json.loads(line) for line in found[filled:].splitlines()]
    kept = [each["session"] for each in events if each["event"] == "login"]
    assert kept == list(range(count - lost))
    assert [each["event"] for each in events[len(kept) :]] == ["lines_lost", "logout"]
    assert events[len(kept)]["count"] == lost


def test_a_reader_that_is_slow_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "audit"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    fill(path)
    audit = AuditFile(str(path), CLOCK, bytes_max=100_000)
    for _ in range(5):
        lost = audit.lines.lost_count
        while audit.lines.lost_count == lost:
            audit.write(line_of(CLOCK, "login"))
        waiting = audit.lines.waiting_bytes
        os.read(reader, 4_096)
        while audit.lines.waiting_bytes == waiting:
            pass
    os.close(reader)
    audit.close()
    assert [each for each in caplog.text.splitlines() if "is full" in each][1:] == []


def test_a_full_disk_is_said_once_and_what_it_cost_is_in_the_new_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "audit"
    path.symlink_to("/dev/full")
    audit = AuditFile(str(path), CLOCK)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            audit.write(line_of(CLOCK, "login"))
            audit.lines.flush()
        path.unlink()
        audit.reopen()
        audit.write(line_of(CLOCK, "logout"))
        audit.close()
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(each["event"], each.get("count")) for each in events] == [
        ("lines_lost", 3),
        ("logout", None),
    ]
    assert audit.lines.lost_count == 3
    assert [each.levelname for each in caplog.records] == ["ERROR", "WARNING"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_is_not_taken_at_the_end_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "audit"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    audit = AuditFile(str(path), CLOCK)
    for number in range(4_000):
        audit.write(line_of(CLOCK, "login", session=number))
    audit.close()
    assert "takes no lines: the last" in caplog.text
    os.close(reader)  # which ends the thread that writes: EPIPE
    worker = audit.lines._worker
    assert worker is not None
    worker.join()
    os.close(audit._descriptor)
