"""Files that are read again when they change; bad ones leave the old ones in use, and say so."""

import asyncio
import logging
import os
from pathlib import Path

import pytest

from bookie.errors import BookieStartError
from bookie.runtime.os_input_files import Reread, read_text
from tests.sim.loop import SimulatedLoop


def reread(path: Path) -> Reread[int]:
    def make() -> int:
        text = read_text(str(path))
        if not text.isdigit():
            raise BookieStartError(f"{path}: expected a number, found {text!r}")
        return int(text)

    return Reread("numbers", [str(path)], make)


def test_a_change_is_seen_once(tmp_path: Path) -> None:
    path = tmp_path / "n"
    path.write_text("1")
    found = reread(path)
    seen: list[int] = []
    found.on_change(lambda: seen.append(found.current))
    assert not found.check()
    path.write_text("22")
    assert found.check()
    assert not found.check()
    assert (found(), seen) == (22, [22])


def test_a_file_of_the_same_length_and_time_is_another_by_its_inode(tmp_path: Path) -> None:
    """So are secrets swapped: by a link, within one tick of the clock."""
    for name in ("1", "2"):
        (tmp_path / name).write_text(name)
        os.utime(tmp_path / name, ns=(10**18, 10**18))
    link = tmp_path / "n"
    link.symlink_to("1")
    found = reread(link)
    (tmp_path / "new").symlink_to("2")
    (tmp_path / "new").rename(link)
    assert found.check()
    assert found() == 2


def test_bad_files_leave_the_old_ones_and_are_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "n"
    path.write_text("1")
    found = reread(path)
    for text in ("x", "x", "y"):
        path.write_text(text)
        assert not found.check()
        assert not found.check()
    path.unlink()
    assert not found.check()
    assert found() == 1
    assert found.failure is not None
    assert [r.levelno for r in caplog.records] == [logging.ERROR] * 3
    assert "found 'x'" in caplog.messages[0]
    assert "the old ones stay in use" in caplog.messages[0]
    path.write_text("1")  # as it was
    assert found.check()
    assert found.failure is None


def test_bytes_that_are_no_text_are_bad_files_too(tmp_path: Path) -> None:
    path = tmp_path / "n"
    path.write_text("1")
    found = reread(path)
    path.write_bytes(b"\xff\xfe")
    assert not found.check()
    assert found() == 1


def test_the_first_files_have_to_be_good(tmp_path: Path) -> None:
    (tmp_path / "n").write_text("x")
    with pytest.raises(BookieStartError, match="found 'x'"):
        reread(tmp_path / "n")


def test_it_looks_by_the_clock_of_the_loop(tmp_path: Path) -> None:
    path = tmp_path / "n"
    path.write_text("1")
    found = reread(path)

    async def main() -> list[int]:
        keeper = asyncio.get_running_loop().create_task(found.keep(60.0))
        seen: list[int] = []
        await asyncio.sleep(1.0)
        path.write_text("22")
        for _ in range(3):
            seen.append(found())
            await asyncio.sleep(58.0)
        keeper.cancel()
        return seen

    loop = SimulatedLoop(0)
    try:
        assert loop.run_until_complete(main(), time_limit_s=1000.0) == [1, 1, 22]
    finally:
        loop.close()
