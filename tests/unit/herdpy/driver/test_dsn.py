"""What a target names."""

import os

import pytest

from herdpy.driver.dsn import parse_target
from herdpy.errors import InterfaceError, NotSupportedError


def test_memory() -> None:
    assert parse_target(":memory:").path is None


def test_every_spelling_of_a_directory_is_one_path(in_directory) -> None:
    (in_directory / "data").mkdir()
    (in_directory / "link").symlink_to("data")
    real = str((in_directory / "data").resolve())
    spellings = ["data", "./data", "data/", "link", in_directory / "data", f"{real}/../data"]
    assert {parse_target(spelling).path for spelling in spellings} == {real}
    assert not (in_directory / "missing").exists()
    assert parse_target("missing").path == os.path.join(os.path.realpath("."), "missing")


@pytest.mark.parametrize("target", ["herd://host:7000/ts", "herd+zk://zk1,zk2/herd", "HTTP://x"])
def test_servers_are_refused(target: str) -> None:
    with pytest.raises(NotSupportedError, match="not supported yet") as caught:
        parse_target(target)
    assert caught.value.sqlstate == "0A000"
    assert "directory" in str(caught.value.hint)


@pytest.mark.parametrize("target", ["", "a\0b", b"data", None, 5, True])
def test_what_is_no_target(target) -> None:
    with pytest.raises(InterfaceError, match="expected a path"):
        parse_target(target)


def test_windows_drive_and_colons_are_paths() -> None:
    assert parse_target("c:/data").path is not None
    assert parse_target("a:b//c").path is not None
