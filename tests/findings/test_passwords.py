"""Findings about passwords on the command line: none is shown, and there are ways to give one."""

import os
import pty
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import herdpy

PASSWORD = "s3cret-p4ss"
COMMAND = (sys.executable, "-m", "herdpy.cli")
QUERY = "SELECT 'let ' || 'in' AS x"


@pytest.fixture
def at(serve: Callable[..., Any]) -> str:
    """Return host:port of a server with the user ada, a superuser."""
    server = serve()
    with herdpy.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE USER ada PASSWORD '{PASSWORD}' SUPERUSER")
    return server.url.removeprefix("herd://").rstrip("/")


def run(*arguments: str, home: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "HOME": str(home), "COLUMNS": "200", **environment},
        check=False,
    )


@pytest.mark.finding("N1")
@pytest.mark.parametrize("command", ["backup", "dump"])
def test_a_url_is_printed_without_its_password(at: str, tmp_path: Path, command: str) -> None:
    file = tmp_path / "out"
    found = run(command, f"herd://ada:{PASSWORD}@{at}", str(file), home=tmp_path)
    assert found.returncode == 0
    assert file.stat().st_size
    assert PASSWORD not in found.stdout + found.stderr


@pytest.mark.finding("N1")
def test_the_environment_gives_a_password(at: str, tmp_path: Path) -> None:
    found = run(
        *("shell", f"herd://ada@{at}", "-c", QUERY), home=tmp_path, HERDPY_PASSWORD=PASSWORD
    )
    assert "let in" in found.stdout


@pytest.mark.finding("N1")
@pytest.mark.parametrize("is_named", [False, True])
def test_a_file_gives_a_password(at: str, tmp_path: Path, *, is_named: bool) -> None:
    file = tmp_path / ("named" if is_named else ".herdpy/passwords")
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"other.example:*:*:ada:wrong\n{at}:*:ada:{PASSWORD}\n")
    file.chmod(0o600)
    environment = {"HERDPY_PASSFILE": str(file)} if is_named else {}
    arguments = ("shell", f"herd://ada@{at}", "-c", QUERY)
    assert "let in" in run(*arguments, home=tmp_path, **environment).stdout
    file.chmod(0o640)
    refused = run(*arguments, home=tmp_path, **environment)
    assert refused.returncode == 1
    assert "others can read" in refused.stderr
    assert PASSWORD not in refused.stderr


def talk(at: str, home: Path) -> str:
    """Type the password into a shell on a terminal; return what the terminal showed."""
    child, terminal = pty.fork()
    if not child:
        environment = {**os.environ, "HOME": str(home), "COLUMNS": "200"}
        arguments = ["shell", f"herd://ada@{at}", "-c", QUERY]
        os.execve(sys.executable, [*COMMAND, *arguments], environment)
    shown, has_typed = "", False
    while True:
        if not select.select([terminal], [], [], 60)[0]:
            break
        try:
            data = os.read(terminal, 65_536)
        except OSError:  # the end
            break
        if not data:
            break
        shown += data.decode(errors="replace")
        if "password of ada" in shown and not has_typed:
            has_typed = True
            os.write(terminal, PASSWORD.encode() + b"\n")
    os.waitpid(child, 0)
    os.close(terminal)
    return shown


@pytest.mark.finding("N1")
def test_a_terminal_is_asked_without_showing_what_is_typed(at: str, tmp_path: Path) -> None:
    shown = talk(at, tmp_path)
    assert "let in" in shown
    assert PASSWORD not in shown


@pytest.mark.finding("N1")
def test_the_hint_is_no_python_code(at: str, tmp_path: Path) -> None:
    found = run("shell", f"herd://ada@{at}", "-c", QUERY, home=tmp_path)
    assert found.returncode == 1
    assert "HERDPY_PASSWORD" in found.stderr
    assert "connect(" + '"' not in found.stderr
