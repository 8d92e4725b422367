"""The herdpy command as a process: -c, -f, pipes, exit codes, a terminal, Ctrl-C."""

import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest

import herdpy

pytestmark = pytest.mark.integration

COMMAND = (sys.executable, "-W", "error", "-m", "herdpy.cli")


def run(*arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "COLUMNS": "80"}
    return subprocess.run(
        [*COMMAND, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )


def test_version() -> None:
    found = run("--version")
    assert found.returncode == 0
    assert found.stdout.startswith(f"herdpy {herdpy.__version__} (Python 3.")


def test_commands_and_files_and_pipes(tmp_path: Path) -> None:
    directory = str(tmp_path / "db")
    found = run("shell", directory, "-c", "CREATE TABLE a (x BIGINT); INSERT INTO a VALUES (1)")
    assert (found.returncode, found.stdout, found.stderr) == (0, "ok\n1 row inserted\n", "")
    script = tmp_path / "a.sql"
    script.write_text("INSERT INTO a VALUES (2);\n.mode csv\nSELECT x FROM a ORDER BY x;\n")
    found = run("shell", directory, "-f", str(script))
    assert (found.returncode, found.stdout) == (0, "1 row inserted\nx\n1\n2\n")
    found = run("shell", directory, "--mode", "json", stdin="SELECT count(*) AS n FROM a")
    assert (found.returncode, found.stdout) == (0, '[{"n": 2}]\n')


def test_an_error_ends_with_one_and_keeps_what_was_done(tmp_path: Path) -> None:
    directory = str(tmp_path / "db")
    text = "CREATE TABLE a (x BIGINT PRIMARY KEY); INSERT INTO a VALUES (1); SELECT y FROM a; nix"
    found = run("shell", directory, "-c", text)
    assert found.returncode == 1
    assert found.stdout == "ok\n1 row inserted\n"
    assert found.stderr.splitlines()[:3] == [
        'error: column "y" does not exist (42703)',
        "  SELECT y FROM a",
        "         ^",
    ]
    with herdpy.connect(directory) as connection:
        assert connection.execute("SELECT x FROM a").fetchall() == [(1,)]


def test_a_transaction_left_open_is_not_kept(tmp_path: Path) -> None:
    directory = str(tmp_path / "db")
    found = run("shell", directory, "-c", "CREATE TABLE a (x BIGINT); BEGIN", "-c", "nix")
    assert found.returncode == 1
    text = "BEGIN; INSERT INTO a VALUES (1); SELECT nix"
    assert run("shell", directory, "-c", text).returncode == 1
    assert run("shell", directory, "--mode", "csv", "-c", "SELECT * FROM a").stdout == "x\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("shell", "/proc/nowhere"), "cannot be opened or made"),
        (("shell", "."), "is no herdpy database"),
        (("shell", "-f", "nowhere.sql"), "nowhere.sql"),
        (("shel",), "shel"),
        (("shell", "--mode", "xml"), "xml"),
    ],
)
def test_wrong_use_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.txt").touch()
    found = run(*arguments)
    assert found.returncode in (1, 2)
    assert words in found.stderr
    assert "Traceback" not in found.stderr


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "a.db").write_bytes(b"SQLite format 3\0")
    found = run("shell", str(tmp_path / "a.db"), "-c", "SELECT 1")
    assert found.returncode == 1
    assert "is a file: expected a directory" in found.stderr


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    script = tmp_path / "a.sql"
    script.write_bytes(b"SELECT '\xff'")
    found = run("shell", "-f", str(script))
    assert found.returncode == 1
    assert found.stderr == "error: the input is not UTF-8: byte 8 is 0xff\n"


def test_a_missing_extra_names_the_command_that_installs_it() -> None:
    code = (
        "import sys; sys.modules['prompt_toolkit'] = None;"
        "sys.argv = ['herdpy', 'shell']; from herdpy.cli.commands import main; main()"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert found.returncode == 1
    assert "pip install 'herdpy-db[cli]'" in found.stderr
    assert "Traceback" not in found.stderr


class Terminal:
    """A shell in a pseudo-terminal."""

    def __init__(self, directory: Path, state: Path) -> None:
        self.pid, self._file = pty.fork()
        if self.pid == 0:
            environment = {**os.environ, "TERM": "xterm", "XDG_STATE_HOME": str(state)}
            environment |= {"PROMPT_TOOLKIT_NO_CPR": "1"}
            os.execve(COMMAND[0], [*COMMAND, "shell", str(directory)], environment)
        self._text = b""

    def expect(self, words: bytes) -> None:
        """Read until the words came; the test's time-out is the limit."""
        while words not in self._text:
            self._text += os.read(self._file, 65_536)
        self._text = self._text[self._text.index(words) + len(words) :]

    def type(self, keys: bytes) -> None:
        """Type; expect the prompt first, for before it the terminal itself reads Ctrl-D."""
        os.write(self._file, keys)

    def insist(self, keys: bytes, words: bytes) -> bytes:
        """Type until the words came: a Ctrl-C between prompt and statement belongs to neither.

        Return what came before them.
        """
        while words not in self._text:
            self.type(keys)
            while words not in self._text and select.select([self._file], [], [], 1)[0]:
                self._text += os.read(self._file, 65_536)
        before = self._text[: self._text.index(words)]
        self.expect(words)
        return before

    def wait(self) -> int:
        """Read to the end and return the exit code."""
        try:
            while os.read(self._file, 65_536):
                pass
        except OSError:  # what Linux says at the end of a pseudo-terminal
            pass
        os.close(self._file)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path / "db", tmp_path / "state")


def test_a_session_in_a_terminal(terminal: Terminal, tmp_path: Path) -> None:
    terminal.expect(b"a new database in")
    terminal.expect(b"herdpy>")
    terminal.type(b"CREATE TABLE a\r(x BIGINT);\r")
    terminal.expect(b"ok")
    terminal.expect(b"herdpy>")
    terminal.type(b"BEGIN;\r")
    terminal.expect(b"herdpy*>")
    terminal.type(b"INSERT INTO a SELECT 1;\r")
    terminal.expect(b"1 row inserted")
    terminal.expect(b"herdpy*>")
    terminal.type(b"\x04")
    terminal.expect(b"the open transaction was rolled back")
    assert terminal.wait() == 0
    assert "(x BIGINT);" in (tmp_path / "state" / "herdpy" / "history").read_text()
    with herdpy.connect(str(tmp_path / "db")) as connection:
        assert connection.execute("SELECT * FROM a").fetchall() == []


def test_ctrl_c_stops_the_statement_and_not_the_shell(terminal: Terminal) -> None:
    terminal.expect(b"herdpy>")
    terminal.type(b"CREATE TABLE a (x BIGINT PRIMARY KEY);\r")
    terminal.expect(b"ok")
    terminal.expect(b"herdpy>")
    values = b", ".join(b"(%d)" % number for number in range(300))
    terminal.type(b"INSERT INTO a VALUES " + values + b";\r")
    terminal.expect(b"300 rows inserted")
    terminal.expect(b"herdpy>")
    found = b""
    while b"cancelled" not in found:
        # 300 ** 4 rows would take minutes.
        terminal.type(b"SELECT count(*) FROM a, a b, a c, a d WHERE a.x + b.x + c.x + d.x = 7;\r")
        terminal.expect(b"7")
        terminal.expect(b"\x1b[?2004l")  # the prompt has ended and the statement begins
        # A Ctrl-C that the prompt still takes leaves the line, and there is nothing to cancel.
        found = terminal.insist(b"\x03", b"herdpy>")
    terminal.type(b"SELECT 41 + 1 AS answer;\r")
    terminal.expect(b"42")
    terminal.type(b".quit\r")
    assert terminal.wait() == 0
