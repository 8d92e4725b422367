"""Where a command finds a password, and that it shows none."""

from pathlib import Path

import pytest

import herdpy
from herdpy.cli.console import error_console, print_error
from herdpy.cli.passwords import connect_with
from herdpy.driver.dsn import without_passwords
from herdpy.errors import Error, OperationalError
from herdpy.model.printable import escaped, escaped_json, masked
from tests.fixtures.servers import running_server


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("herd://ada:secret@host:7000/t?tls=on", "herd://ada:***@host:7000/t?tls=on"),
        ("herd+grpc://ada:a b/c@d:e@host", "herd+grpc://ada:***@host"),
        ("herd:/ada:secret@host", "herd:/ada:***@host"),
        ("HERD://:secret@host", "HERD://:***@host"),
        ("cannot open herd://ada:sec\nret@host: no", "cannot open herd://ada:***@host: no"),
        ("herd://host/?password=secret&tls=on", "herd://host/?password=***&tls=on"),
        ("herd://ada@host:7000/t", "herd://ada@host:7000/t"),
        ("./data:with@signs", "./data:with@signs"),
    ],
)
def test_passwords_are_taken_out(text: str, shown: str) -> None:
    assert without_passwords(text) == shown


def test_unprintable_text() -> None:
    text = "a\x1b\n\x9b\u202e\ud800\U000e0001z"
    assert escaped(text) == r"a\x1b\n\x9b\u202e\ud800\U000e0001z"
    assert masked(text, kept="\n") == "a?\n????z"
    assert escaped_json(text) == r"a\u001b\u000a\u009b\u202e\ud800\udb40\udc01z"
    assert escaped("plain") == masked("plain") == escaped_json("plain") == "plain"


def test_an_error_on_a_terminal_has_no_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = OperationalError("at herd://a:secret@h\x1b[2J", hint="two\nlines\x07")
    print_error(error_console(), error)
    shown = capsys.readouterr().err
    assert "herd://a:***@h\\x1b[2J" in shown
    assert "hint: two\nlines\\x07" in shown


@pytest.mark.parametrize(
    ("lines", "is_found"),
    [
        ("{at}:default:ada:{password}", True),
        ("# a comment\n\n*:*:*:*:{password}\n", True),
        ("{at}:default:bob:other\n{at}:default:ada:{password}", True),
        ("{at}:default:ada:wrong\n*:*:*:*:{password}", False),
        ("{at}:other:ada:{password}", False),
    ],
)
def test_lines_of_the_file(tmp_path: Path, lines: str, *, is_found: bool) -> None:
    password = "with:colons\\and backslashes"
    with running_server(login_failure_delay_s=0) as server:
        with herdpy.connect(server.url, autocommit=True) as root:
            root.execute("CREATE USER ada PASSWORD ?", (password,))
        at = f"127.0.0.1:{server.port}"
        file = tmp_path / "passwords"
        written = password.replace("\\", "\\\\").replace(":", "\\:")
        file.write_text(lines.format(at=at, password=written))
        file.chmod(0o600)
        found = {"HERDPY_PASSFILE": str(file)}
        if is_found:
            connect_with(f"herd://ada@{at}", found, None).close()
        else:
            with pytest.raises(Error) as caught:
                connect_with(f"herd://ada@{at}", found, None)
            assert caught.value.sqlstate == ("28P01" if "wrong" in lines else "28000")


@pytest.mark.parametrize(
    ("content", "mode", "reason"),
    [
        (b"a:b:c", 0o600, "line 1 has 3 fields"),
        (b"*:*:*:*:p", 0o604, "others can read or change it"),
        (b"*:*:*:*:p", 0o620, "others can read or change it"),
        (b"\xff", 0o600, "not UTF-8"),
        (None, 0o600, "No such file"),
    ],
)
def test_files_that_are_refused(
    tmp_path: Path, content: bytes | None, mode: int, reason: str
) -> None:
    file = tmp_path / "passwords"
    if content is not None:
        file.write_bytes(content)
        file.chmod(mode)
    with pytest.raises(OperationalError, match=reason) as caught:
        connect_with("herd://ada@127.0.0.1:1", {"HERDPY_PASSFILE": str(file)}, None)
    assert caught.value.hint


def test_who_is_asked_when(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    asked: list[str] = []

    def ask(question: str) -> str:
        asked.append(question)
        return "secret"

    with running_server(login_failure_delay_s=0) as server:
        connect_with(server.url, {}, ask).close()
        with herdpy.connect(server.url, autocommit=True) as root:
            root.execute("CREATE USER ada PASSWORD 'secret'")
        at = f"127.0.0.1:{server.port}"
        connect_with(f"herd://ada:secret@{at}", {"HERDPY_PASSWORD": "wrong"}, ask).close()
        connect_with(f"herd://ada@{at}", {"HERDPY_PASSWORD": "secret"}, ask).close()
        assert asked == []
        connect_with(f"herd://ada@{at}", {}, ask).close()
        assert asked == [f"password of ada at herd://{at}/default: "]
        with pytest.raises(Error) as caught:
            connect_with(f"herd://ada@{at}", {"HERDPY_PASSWORD": "wrong"}, ask)
        assert caught.value.sqlstate == "28P01"
        assert len(asked) == 1
