"""What `bookie serve` refuses before it writes, and what it logs."""

import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bookie.admin.replication import autorecovery
from bookie.admin.serve import check_ports, log_to_stderr, serve, settings_of
from bookie.config import BookieConfig
from bookie.errors import BookieStartError
from bookie.hosting import check_directory, directories_of
from bookie.ledger.types import BookieId
from bookie.metadata.kazoo_client import OrderedClient


@pytest.mark.parametrize(
    "names",
    [
        (),
        ("lost+found",),
        ("LOCK", "index.lmdb", "SCRUB"),  # journal and entry logs have directories of their own
        ("LOCK", "index.lmdb", "SCRUB.new"),
        ("journal", "entries", "notes.txt"),
    ],
)
def test_a_directory_that_may_be_a_bookies(tmp_path: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (tmp_path / name).mkdir()
    check_directory(tmp_path)


@pytest.mark.parametrize("names", [("FORMAT", "LOCK"), ("FORMAT", "journal"), ("notes.txt",)])
def test_a_directory_of_another_program_is_refused(tmp_path: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (tmp_path / name).mkdir()
    with pytest.raises(BookieStartError, match=f"found '{names[0]}' in it; name another one"):
        check_directory(tmp_path)


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BookieStartError, match=rf"cannot listen on 127.0.0.1:{port}: .*--port"):
            check_ports("127.0.0.1", {"--port": port})
        with pytest.raises(BookieStartError, match=rf"127.0.0.1:{port}: .*--http-port"):
            check_ports("127.0.0.1", {"--port": 0, "--http-port": port})


@pytest.mark.parametrize(
    ("texts", "session_timeout_s", "expected_s"),
    [((), 10.0, 30.0), ((), 60.0, 120.0), (("registration_timeout_s=5",), 60.0, 5.0)],
)
def test_a_start_outwaits_the_session_of_a_killed_bookie(
    texts: tuple[str, ...], session_timeout_s: float, expected_s: float
) -> None:
    """Else it takes its own last life for another bookie, and refuses."""
    settings = settings_of(("gc_interval_s=7", *texts), session_timeout_s)
    assert settings == {"gc_interval_s": 7.0, "registration_timeout_s": expected_s}


@pytest.fixture
def kazoo_logger() -> Iterator[logging.Logger]:
    """Give the logger that kazoo's client writes to; its level comes back at the end."""
    logger = OrderedClient("127.0.0.1:1", 1.0).logger
    before = logger.level
    yield logger
    logger.setLevel(before)


def test_tries_to_reconnect_are_not_logged(kazoo_logger: logging.Logger) -> None:
    assert kazoo_logger.isEnabledFor(logging.WARNING)
    log_to_stderr()
    assert not kazoo_logger.isEnabledFor(logging.WARNING)
    assert kazoo_logger.isEnabledFor(logging.ERROR)


def test_disks_for_journal_and_entry_logs(tmp_path: Path) -> None:
    config = BookieConfig(
        journal_directory=str(tmp_path / "j"),
        ledger_directories=(str(tmp_path / "l1"), f"{tmp_path / 'l2'}=3"),
    )
    gone = tmp_path / "gone"
    places = directories_of(tmp_path / "data", config, [gone], is_expansion_allowed=True)
    assert list(places.roots) == [str(tmp_path / name) for name in ("data", "j", "l1", "l2")]
    assert [(Path(d.name).name, d.weight) for d in places.ledgers] == [("l1", 1.0), ("l2", 3.0)]
    assert len({directory.device for directory in places.ledgers}) == 1
    assert (places.lost, places.is_expansion_allowed) == ((str(gone),), True)
    (tmp_path / "l1" / "strange").write_bytes(b"")
    with pytest.raises(BookieStartError, match="strange"):
        directories_of(tmp_path / "data", config, [], is_expansion_allowed=False)


def test_one_directory_for_all(tmp_path: Path) -> None:
    places = directories_of(tmp_path, BookieConfig(), [], is_expansion_allowed=False)
    assert list(places.roots) == [str(tmp_path)]
    cookie = places.cookie(BookieId("b:1"), None)
    assert cookie.journal_directories == (f"{tmp_path}/journal",)
    assert cookie.ledger_directories == (f"{tmp_path}/entries",)


@pytest.mark.parametrize(
    ("option", "settings"),
    [
        ("--ledgers", {"ledger_directories": ("{}",)}),
        ("--ledgers", {"ledger_directories": ("{}/below",)}),
        ("--journal", {"journal_directory": "{}"}),
    ],
)
def test_a_file_in_the_place_of_a_directory_is_named(
    tmp_path: Path, option: str, settings: dict[str, Any]
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    given = {
        name: value.format(file) if isinstance(value, str) else (value[0].format(file),)
        for name, value in settings.items()
    }
    config = BookieConfig(port=3181, **given)
    with pytest.raises(BookieStartError, match=rf"^{option} {file}.*is no directory"):
        directories_of(tmp_path / "data", config, (), is_expansion_allowed=False)


@pytest.mark.parametrize(
    ("line", "mode", "said"),
    [
        ("read token 0123456789abcdef", 0o640, "found mode 0640; chmod 600"),
        ("read token 0123456789abcdef", 0o604, "found mode 0604; chmod 600"),
        ("admin certificate ops", 0o600, "found no --http-tls-trust"),
    ],
)
def test_access_files_that_give_nothing_or_too_much_are_refused(
    tmp_path: Path, line: str, mode: int, said: str
) -> None:
    file = tmp_path / "access"
    file.write_text(f"{line}\n")
    file.chmod(mode)
    arguments = ["--data", tmp_path / "data", "--http-port", "1", "--http-access", file]
    result = CliRunner().invoke(serve, [*map(str, arguments), "--zookeeper", "127.0.0.1:1"])
    assert result.exit_code
    assert said in " ".join(result.output.split())


def test_a_secret_of_webhooks_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("0123456789abcdef")
    file.chmod(0o644)
    arguments = ["--data", tmp_path / "data", "--autorecovery", "--webhook", "http://ops.example/",
                 "--webhook-secret", file, "--zookeeper", "127.0.0.1:1"]  # fmt: skip
    result = CliRunner().invoke(serve, [*map(str, arguments)])
    assert result.exit_code
    assert f"--webhook-secret {file}" in " ".join(result.output.split())


def test_an_access_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    file = tmp_path / "access"
    file.write_bytes(b"read token \xff\xfe\n")
    file.chmod(0o600)
    arguments = ["--data", tmp_path / "data", "--http-port", "1", "--http-access", file]
    result = CliRunner().invoke(serve, [*map(str, arguments), "--zookeeper", "127.0.0.1:1"])
    assert result.exit_code
    assert f"--http-access {file}: expected text in UTF-8" in result.output
    assert isinstance(result.exception, SystemExit)


def test_the_environment_names_receivers_of_webhooks(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("a secret of sixteen")
    file.chmod(0o600)
    runner = CliRunner(env={"BOOKIE_WEBHOOKS": "http://ops.example/a ftp://ops.example/SECRET"})
    result = runner.invoke(autorecovery, ["--webhook-secret", str(file)])
    assert result.exit_code == 1
    assert "another text that begins with 'ftp://op'" in " ".join(result.output.split())
    assert "SECRET" not in result.output


@pytest.mark.usefixtures("kazoo_logger")
def test_a_port_that_is_taken_names_the_options_of_its_command() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(autorecovery, ["--http-port", port])
    assert result.exit_code == 1
    assert "(--http-port, --http-host)" in " ".join(result.output.split())
