"""A log that goes to a pipe of which nothing is read."""

import contextlib
import fcntl
import logging
import os
import re
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from bookie.runtime.drivers import Bell, ThreadDriver
from bookie.runtime.os_log import WAITING_BYTES_MAX, LineWriter, LogLines, takes_a_line
from bookie.server.metrics import log_figures

LINE = "x" * 10_000


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Give the two ends of a pipe: to read from, to write to."""
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


@contextlib.contextmanager
def file_bytes_max(byte_count: int) -> Iterator[None]:
    """Have files grow no further; what would is EFBIG, and not the end of the process."""
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (byte_count, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)


def record(message: str, *arguments: object) -> logging.LogRecord:
    return logging.LogRecord("herdpy", logging.WARNING, "x.py", 1, message, arguments, None)


def read_all(descriptor: int, handler: LogLines) -> list[str]:
    """Read what is written until the handler is closed."""
    found: list[bytes] = []

    def read() -> None:
        while data := os.read(descriptor, 65_536):
            found.append(data)
            if data.endswith(b"last\n"):
                return

    reader = ThreadDriver().spawn("reader", read)
    handler.close()
    reader.join()
    return b"".join(found).decode().splitlines()


def test_lines_come_in_order_and_all_before_the_end(pipe: tuple[int, int]) -> None:
    handler = LogLines(pipe[1])
    for number in range(1_000):
        handler.handle(record("line %d", number))
    handler.handle(record("last"))
    assert read_all(pipe[0], handler) == [*(f"line {n}" for n in range(1_000)), "last"]


def test_who_logs_waits_for_no_reader_and_what_is_lost_is_counted(pipe: tuple[int, int]) -> None:
    handler = LogLines(pipe[1])
    count = 2 * WAITING_BYTES_MAX // len(LINE)
    for _ in range(count):
        handler.handle(record(LINE))  # no one reads: all of them would not return before
    while takes_a_line(pipe[1]):
        pass  # its thread fills the pipe
    kept: list[bytes] = []
    while b"lost" not in (kept or [b""])[-1]:
        kept.append(os.read(pipe[0], 65_536))
    handler.handle(record("last"))
    text = b"".join(kept).decode() + "\n".join(read_all(pipe[0], handler))
    lines = [line for line in text.splitlines() if line == LINE]
    assert WAITING_BYTES_MAX - 2 * len(LINE) < len(lines) * len(LINE) < count * len(LINE)
    assert [(each.name, each.value) for each in log_figures(handler.lines)] == [
        ("bookie_log_lines_lost", count - len(lines)),
        ("bookie_log_waiting_bytes", 0),
    ]
    told = re.findall(
        r"\((\d+) lines? of the log (?:is|are) lost: what they go to took none\)", text
    )
    assert sum(map(int, told)) == count - len(lines)  # some may be, before the pipe takes its part
    assert handler.lines.lost_count == count - len(lines)
    assert text.endswith("last")


def test_a_record_that_cannot_be_formatted_is_told(pipe: tuple[int, int]) -> None:
    handler = LogLines(pipe[1])
    handler.handle(record("%d of two", "none"))
    handler.handle(record("last"))
    first, last = read_all(pipe[0], handler)
    assert first.startswith("WARNING herdpy: this cannot be formatted: TypeError(")
    assert last == "last"


def test_a_reader_that_has_gone_is_no_error(pipe: tuple[int, int]) -> None:
    gone, to_it = os.pipe()
    os.close(gone)
    handler = LogLines(to_it)
    handler.handle(record("to no one"))
    handler.close()
    handler.close()
    assert takes_a_line(pipe[1])
    os.close(to_it)


def test_lines_that_cannot_be_written_are_counted_and_told_once_it_goes_again(
    pipe: tuple[int, int],
) -> None:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    errors: list[OSError | None] = []
    lines = LineWriter(
        descriptor,
        name="lines",
        bytes_max=1_000,
        loss_line=lambda count: b"%d lost\n" % count,
        on_error=errors.append,
    )
    for _ in range(3):
        assert lines.put(b"one\n")
        lines.flush()
    assert (lines.lost_count, lines.waiting_count, lines.waiting_bytes) == (3, 0, 0)
    lines.between(lambda: os.dup2(pipe[1], descriptor) >= 0)
    assert lines.put(b"two\n")
    assert not lines.put(b"x" * 1_000 + b"\n")
    assert lines.close()
    assert not lines.put(b"three\n")
    assert os.read(pipe[0], 1_000) == b"3 lost\ntwo\n1 lost\n"
    assert lines.lost_count == 5
    assert [type(each) for each in errors] == [OSError, type(None)]
    os.close(descriptor)


def test_a_step_is_done_though_one_like_it_is_under_way(pipe: tuple[int, int]) -> None:
    lines = LineWriter(pipe[1], name="lines", bytes_max=1_000, loss_line=lambda _count: b"")
    has_begun, may_end = Bell(), Bell()
    found: list[str] = []

    def step() -> bool:
        has_begun.ring()
        may_end.wait()
        found.append("first")
        return False

    lines.between(step)
    has_begun.wait()
    lines.between(lambda: bool(found.append("second")))
    lines.between(lambda: bool(found.append("third")))  # the second will do
    may_end.ring()
    assert lines.close()
    assert found == ["first", "second"]


def test_a_line_that_was_cut_is_ended_in_the_file_where_it_is(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "ab"]
    files = [os.open(path, os.O_WRONLY | os.O_CREAT) for path in paths]
    lines = LineWriter(files[0], name="lines", bytes_max=1_000, loss_line=lambda _count: b"lost\n")
    with file_bytes_max(10):
        assert lines.put(b"one\n")
        assert lines.put(b"another\n")
        lines.flush()
    lines.between(lambda: os.dup2(files[1], files[0]) >= 0)
    assert lines.put(b"two\n")
    assert lines.close()
    assert [path.read_bytes() for path in paths] == [b"one\nanothe", b"lost\ntwo\n"]
    for each in files:
        os.close(each)


def test_the_end_does_not_wait_for_all_that_a_slow_reader_would_take(pipe: tuple[int, int]) -> None:
    lines = LineWriter(
        pipe[1],
        name="lines",
        bytes_max=WAITING_BYTES_MAX,
        loss_line=lambda _count: b"",
        end_max_s=0.2,
    )
    while lines.put(b"x" * 1_000 + b"\n"):
        pass
    has_ended = Bell()

    def read() -> None:
        while not has_ended.wait(0.02):  # 20 s for all of it
            os.read(pipe[0], 4_096)
        os.set_blocking(pipe[0], False)
        while lines.waiting_count:
            with contextlib.suppress(BlockingIOError):
                os.read(pipe[0], 65_536)

    reader = ThreadDriver().spawn("reader", read)
    assert not lines.close()
    assert lines.waiting_count
    has_ended.ring()
    reader.join()


def test_a_descriptor_may_have_any_number(pipe: tuple[int, int]) -> None:
    high = fcntl.fcntl(pipe[1], fcntl.F_DUPFD_CLOEXEC, 1_024)
    lines = LineWriter(high, name="lines", bytes_max=1_000, loss_line=lambda _count: b"")
    assert lines.put(b"one\n")
    assert lines.close()
    assert os.read(pipe[0], 1_000) == b"one\n"
    assert takes_a_line(high)
    os.close(high)
    assert not takes_a_line(high)
