"""The audit log where what it goes to takes nothing, and where it cannot be written."""

import contextlib
import json
import logging
import os
from itertools import count
from pathlib import Path

import pytest

from bookie.runtime.os_clock import OsClock
from bookie.runtime.os_log import takes_a_line
from herdpy.server.login.audit import line_of
from herdpy.server.login.audit_file import AuditFile

CLOCK = OsClock()


def fill(audit: AuditFile) -> int:
    """Write events until the pipe takes none, and its thread waits; return how many."""
    for number in count():
        if not takes_a_line(audit._descriptor):
            return number
        audit.write(line_of(CLOCK, "login", session=number))
        while audit.lines.waiting_count and takes_a_line(audit._descriptor):
            pass
    raise AssertionError


def test_no_event_waits_for_who_reads_the_log_and_none_is_lost_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "audit"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    audit = AuditFile(str(path), CLOCK, bytes_max=100_000)
    total = fill(audit) + 4_000  # more than the file keeps
    for number in range(total - 4_000, total):
        audit.write(line_of(CLOCK, "login", session=number))
    lost = audit.lines.lost_count
    assert 0 < lost < total
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
    events = [json.loads(line) for line in found.splitlines()]
    kept = [each["session"] for each in events if each["event"] == "login"]
    assert kept == list(range(total - lost))
    assert [each["event"] for each in events[len(kept) :]] == ["lines_lost", "logout"]
    assert events[len(kept)]["count"] == lost


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
    assert "takes no lines, or too slowly: the last" in caplog.text
    os.close(reader)  # which ends the thread that writes: EPIPE
    worker = audit.lines._worker
    assert worker is not None
    worker.join()
    os.close(audit._descriptor)


def test_a_reader_that_is_too_slow_is_said_once_and_when_all_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "audit"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    audit = AuditFile(str(path), CLOCK, bytes_max=100_000)
    event = line_of(CLOCK, "login", session=1)
    with caplog.at_level(logging.WARNING):
        fill(audit)
        for _ in range(3):
            lost = audit.lines.lost_count
            while audit.lines.lost_count == lost:
                audit.write(event)
            waiting = audit.lines.waiting_count
            os.read(reader, 8_192)
            while audit.lines.waiting_count == waiting:
                pass  # some lines go
        while audit.lines.waiting_count:
            with contextlib.suppress(BlockingIOError):
                os.read(reader, 65_536)
        audit.write(event)
    assert [each.levelname for each in caplog.records] == ["ERROR", "WARNING"]
    assert "takes lines again" in caplog.text
    while audit.lines.waiting_count:
        with contextlib.suppress(BlockingIOError):
            os.read(reader, 65_536)
    audit.close()
    os.close(reader)
