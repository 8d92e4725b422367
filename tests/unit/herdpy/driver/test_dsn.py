"""What a target names."""

import os

import pytest

from herdpy.driver.dsn import RemoteTarget, parse_target
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


@pytest.mark.parametrize("target", ["herd+zk://zk1,zk2/herd", "HTTP://x"])
def test_other_schemes_are_refused(target: str) -> None:
    with pytest.raises(NotSupportedError, match="not supported") as caught:
        parse_target(target)
    assert caught.value.sqlstate == "0A000"
    assert "directory" in str(caught.value.hint)


@pytest.mark.parametrize("target", ["", "a\0b", b"data", None, 5, True])
def test_what_is_no_target(target) -> None:
    with pytest.raises(InterfaceError, match="expected a path"):
        parse_target(target)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("herd://host", RemoteTarget(host="host", port=7000, tablespace="default")),
        ("HERD://host:1/", RemoteTarget(host="host", port=1, tablespace="default")),
        ("herd://[::1]:7001/a%20b", RemoteTarget(host="::1", port=7001, tablespace="a b")),
        (
            "herd://h/t?connect_timeout_s=2.5&application_name=etl",
            RemoteTarget(
                host="h", port=7000, tablespace="t", connect_timeout_s=2.5, application_name="etl"
            ),
        ),
        (
            "herd://h/t?retry_timeout_s=0",
            RemoteTarget(host="h", port=7000, tablespace="t", retry_timeout_s=0.0),
        ),
    ],
)
def test_urls(url: str, expected: RemoteTarget) -> None:
    assert parse_target(url) == expected


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("herd://", "expected herd://host"),
        ("herd://h/a/b", "expected herd://host"),
        ("herd://h/a#b", "expected herd://host"),
        ("herd://h:99999", "is no URL"),
        ("herd://[::1", "is no URL"),
        ("herd://h/?connect_timeout=2", "did you mean 'connect_timeout_s'"),
        ("herd://h/?zzz=2", "known: connect_timeout_s, application_name"),
        ("herd://h/?connect_timeout_s=0", "expected seconds"),
        ("herd://h/?retry_timeout_s=-1", "expected seconds up to 86400, or 0"),
        ("herd://h/?retry_timeout=2", "did you mean 'retry_timeout_s'"),
        ("herd://h/?connect_timeout_s=nan", "expected seconds"),
        ("herd://h/?connect_timeout_s", "is no URL"),
        ("herd://h/?application_name=a&application_name=b", "given twice"),
    ],
)
def test_urls_that_are_wrong(url: str, message: str) -> None:
    with pytest.raises(InterfaceError) as caught:
        parse_target(url)
    assert message in str(caught.value)


def test_a_password_is_refused_and_not_shown() -> None:
    with pytest.raises(NotSupportedError) as caught:
        parse_target("herd://user:secret@host")
    assert "secret" not in str(caught.value)


def test_windows_drive_and_colons_are_paths() -> None:
    assert parse_target("c:/data").path is not None
    assert parse_target("a:b//c").path is not None
