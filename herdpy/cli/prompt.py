"""The typed-in shell: prompt_toolkit's editing, history, highlighting and completion.

The history is the user's, not the database's: $XDG_STATE_HOME/herdpy/history (default below
~/.local/state), readable by its owner only. Enter runs what is complete and goes on with what is
not; Ctrl-C drops the line, Ctrl-D on an empty one leaves.
"""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import PostgresLexer
from rich.text import Text

from herdpy.cli.shell import COMMANDS, PLAIN_WORDS, Shell, is_command
from herdpy.driver.dsn import without_passwords
from herdpy.errors import Error
from herdpy.model.schema import Table
from herdpy.sql.reading.script import complete_statements
from herdpy.sql.text import name_text

_KEYWORD_TEXT = """
ALL AND ANALYZE AS ASC BEGIN BETWEEN BIGINT BOOLEAN BY BYTEA CASE CAST COMMIT COUNT CREATE CROSS
CURRENT_TIMESTAMP DATE DECIMAL DEFAULT DELETE DESC DISTINCT DOUBLE DROP ELSE END EXCEPT EXISTS
EXPLAIN FALSE FROM FULL GROUP HAVING IF IN INNER INSERT INTEGER INTERSECT INTO IS JOIN KEY LEFT
LIKE LIMIT NOT NULL OFFSET ON OR ORDER OUTER OVER PARTITION PRECISION PRIMARY RESET RIGHT ROLLBACK
SELECT SET SHOW TABLE TABLES TEXT THEN TIMESTAMP TRUE UNION UPDATE UPSERT USING VALUES VARCHAR WHEN
WHERE WITH RELEASE SAVEPOINT ALTER GRANT OWNER PASSWORD PUBLIC REVOKE ROLE TABLESPACE TO USER
"""
_KEYWORDS = _KEYWORD_TEXT.split()
_MAY_HAVE_PASSWORD = re.compile(
    r"password|\b(create|alter)\b[^;]*\b(user|role)\b|://[^/\s]*@", re.IGNORECASE
)
_WORD = re.compile(r"[\w.\"]*$")


def history_path() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "herdpy" / "history"


def open_history() -> History:
    """Return the user's history, or one for this time only where it cannot be kept."""
    path = history_path()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.chmod(0o600)  # of an older one, too
    except OSError:
        return InMemoryHistory()
    return _KeptHistory(str(path))


class _KeptHistory(FileHistory):
    """A file of what was typed, but for what may hold a password."""

    def store_string(self, string: str) -> None:
        if not _MAY_HAVE_PASSWORD.search(string):
            super().store_string(string)


def converse(shell: Shell, directory: str, *, is_new: bool) -> None:
    """Read and run until .quit or Ctrl-D."""
    shell.has_timer = True
    what = "a new database" if is_new else "a database"
    place = "memory: gone at the end" if directory == ":memory:" else without_passwords(directory)
    shell.console.print(
        Text.assemble(
            ("herdpy", "bold"),
            f": {what} in {place}. ",
            (".help for help, Ctrl-D to leave.", "dim"),
        )
    )
    prompt = make_prompt(shell)
    while not shell.is_quitting:
        try:
            text = prompt.prompt(lambda: prompt_text(shell))
        except KeyboardInterrupt:
            continue
        except EOFError:
            break
        try:
            if text.strip():
                shell.run_input(text)
        except KeyboardInterrupt:
            shell.errors.print("cancelled", style="yellow")


def make_prompt(shell: Shell, **settings: Any) -> "PromptSession[str]":
    """Return the line editor; settings go to prompt_toolkit (tests give input and output)."""
    return PromptSession(
        history=settings.pop("history", None) or open_history(),
        lexer=PygmentsLexer(PostgresLexer),
        completer=NameCompleter(shell),
        complete_while_typing=False,
        multiline=Condition(lambda: not is_ready(get_app().current_buffer.text)),
        prompt_continuation=lambda width, *_: f"{'…> ':>{width}}",
        **settings,
    )


def prompt_text(shell: Shell) -> str:
    """Return the prompt; a star shows an open transaction."""
    return "herdpy*> " if shell.connection.in_transaction else "herdpy> "


def is_ready(text: str) -> bool:
    """Tell whether Enter runs the text: a command, nothing, or statements with their end."""
    word = text.strip().lower()
    return is_command(word) or word in PLAIN_WORDS or complete_statements(text) is not None


class NameCompleter(Completer):
    """Completes `.` commands, keywords (in the case they were begun in), tables and columns."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Yield what may replace the word before the cursor."""
        before = document.text_before_cursor
        match = _WORD.search(before)
        word = match[0] if match else ""
        for text, kind in self._candidates(before, word):
            yield Completion(text, start_position=-len(word), display_meta=kind)

    def _candidates(self, before: str, word: str) -> Iterator[tuple[str, str]]:
        line = before.lstrip()
        if line.startswith(".") and line == word:
            yield from ((name, "command") for name in COMMANDS if name.startswith(word))
            return
        tables = self._tables()
        if line.startswith("."):
            yield from _matching(((table.name, "table") for table in tables), word)
            return
        qualifier, dot, _ = word.rpartition(".")
        if dot:
            qualified = [table for table in tables if table.name == qualifier] or tables
            names = (
                (f"{qualifier}.{name_text(column.name)}", f"column of {table.name}")
                for table in qualified
                for column in table.visible_columns
            )
            yield from _matching(names, word)
            return
        yield from _matching(((name_text(table.name), "table") for table in tables), word)
        columns = (
            (name_text(column.name), f"column of {table.name}")
            for table in tables
            for column in table.visible_columns
        )
        yield from _matching(columns, word)
        if word:
            keywords = (key.lower() if word[0].islower() else key for key in _KEYWORDS)
            yield from ((key, "") for key in keywords if key.lower().startswith(word.lower()))

    def _tables(self) -> list[Table]:
        try:
            return self._shell.tables()
        except Error:  # a database that stopped: completing is no place to tell
            return []


def _matching(names: Iterable[tuple[str, str]], word: str) -> Iterator[tuple[str, str]]:
    """Yield each name that begins with the word once, the first meaning of it."""
    seen: set[str] = set()
    for name, kind in names:
        if name.lower().startswith(word.lower()) and name not in seen:
            seen.add(name)
            yield name, kind
