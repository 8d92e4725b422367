"""The typed-in shell: editing, history and completion, through prompt_toolkit's own pipe."""

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from rich.console import Console

import herdpy
from herdpy.cli.prompt import NameCompleter, history_path, make_prompt, open_history, prompt_text
from herdpy.cli.shell import Shell


@pytest.fixture
def shell() -> Iterator[Shell]:
    with herdpy.connect(autocommit=True) as connection:
        connection.execute('CREATE TABLE flights (carrier TEXT, "Tail" TEXT, dep_delay INTEGER)')
        made = Shell(
            connection, Console(file=io.StringIO()), Console(file=io.StringIO()), herdpy.connect
        )
        yield made
        made.close()


def typed(shell: Shell, keys: str) -> str:
    with create_pipe_input() as pipe:
        pipe.send_text(keys)
        prompt = make_prompt(shell, history=InMemoryHistory(), input=pipe, output=DummyOutput())
        return prompt.prompt("")


def completions(shell: Shell, text: str) -> list[str]:
    found = NameCompleter(shell).get_completions(Document(text), CompleteEvent())
    return [item.text for item in found]


def test_enter_goes_on_until_the_semicolon(shell: Shell) -> None:
    assert typed(shell, "SELECT ';'\n FROM x;\n") == "SELECT ';'\n FROM x;"


@pytest.mark.parametrize("text", [".tables", "SELECT 1;", "", "SELECT 1; SELECT 2;", "exit", "\\q"])
def test_enter_runs_what_is_complete(shell: Shell, text: str) -> None:
    assert typed(shell, f"{text}\n") == text


def test_ctrl_c_and_ctrl_d(shell: Shell) -> None:
    with pytest.raises(KeyboardInterrupt):
        typed(shell, "SELECT\x03")
    with pytest.raises(EOFError):
        typed(shell, "\x04")


def test_completions(shell: Shell) -> None:
    assert completions(shell, "SELECT dep_") == ["dep_delay"]
    assert "flights" in completions(shell, "SELECT * FROM fl")
    assert completions(shell, "SELECT flights.c") == ["flights.carrier"]
    assert completions(shell, "SELECT f.dep") == ["f.dep_delay"]
    assert completions(shell, 'SELECT "T') == ['"Tail"']
    assert completions(shell, "sel") == ["select"]
    assert completions(shell, "SEL") == ["SELECT"]
    assert completions(shell, ".sch") == [".schema"]
    assert completions(shell, ".schema fl") == ["flights"]


def test_the_prompt_shows_an_open_transaction(shell: Shell) -> None:
    assert prompt_text(shell) == "herdpy> "
    shell.run_input("BEGIN;")
    assert prompt_text(shell) == "herdpy*> "
    shell.run_input("ROLLBACK;")
    assert prompt_text(shell) == "herdpy> "


def test_history_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    open_history().append_string("SELECT 1;")
    path = history_path()
    assert path == tmp_path / "state" / "herdpy" / "history"
    assert "SELECT 1;" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600


def test_history_keeps_no_passwords(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    history = open_history()
    for text in ("SELECT 1;", "CREATE USER a\nPassWord 'geheim';", "SELECT 2;"):
        history.append_string(text)
    kept = history_path().read_text()
    assert "SELECT 1;" in kept
    assert "SELECT 2;" in kept
    assert "geheim" not in kept


def test_without_a_place_for_history_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert isinstance(open_history(), InMemoryHistory)
