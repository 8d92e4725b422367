"""Consoles of the command line, and errors as they are shown."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from herdpy.driver.dsn import without_passwords
from herdpy.errors import Error
from herdpy.model.printable import escaped

_WIDTH_WITHOUT_TERMINAL = 10_000
"""Into a file or a pipe nothing is cut, unless COLUMNS says how wide it is."""
_CONTEXT_WIDTH_MAX = 100


def output_console() -> Console:
    """Return the console of standard output: as wide as the terminal, plain into files."""
    return _console(is_error=False)


def error_console() -> Console:
    return _console(is_error=True)


def _console(*, is_error: bool) -> Console:
    stream = sys.stderr if is_error else sys.stdout
    is_fixed = stream.isatty() or "COLUMNS" in os.environ
    return Console(
        stderr=is_error,
        width=None if is_fixed else _WIDTH_WITHOUT_TERMINAL,
        soft_wrap=True,
        # Paths, addresses and messages hold brackets and colons of their own.
        markup=False,
        emoji=False,
        highlight=False,
    )


@contextmanager
def reporting() -> Generator[None]:
    """Print an error of the block, or of a command that this decorates, and exit with 1."""
    try:
        yield
    except Error as error:
        print_error(error_console(), error)
        sys.exit(1)


def print_error(console: Console, error: Error, statement: str = "", where: str = "") -> None:
    """Print message, SQLSTATE, the line with a caret under the position, and the hint."""
    message = Text()
    if where:
        message.append(f"{where}: ", style="dim")
    message.append("error: ", style="bold red")
    message.append(f"{_shown(error.message)} ")
    message.append(f"({error.sqlstate})", style="dim")
    console.print(message)
    if statement and error.position is not None:
        line, caret = caret_lines(statement, error.position)
        console.print(Text(f"  {line}"))
        console.print(Text(f"  {caret}", style="bold red"))
    if error.hint:
        hint = Text("hint: ", style="bold")
        hint.append(_shown(error.hint))
        console.print(hint)


def _shown(text: str) -> str:
    """Return a message as a terminal may have it: it can quote data, and a URL that was typed."""
    return "\n".join(map(escaped, without_passwords(text).split("\n")))


def caret_lines(statement: str, position: int) -> tuple[str, str]:
    """Return the line that holds a 1-based position, cut around it, and a caret under it."""
    index = min(max(position - 1, 0), len(statement))
    start = statement.rfind("\n", 0, index) + 1
    end = statement.find("\n", index)
    line = statement[start : len(statement) if end < 0 else end].rstrip()
    line = "".join(c if c.isprintable() else " " for c in line)
    column = index - start
    if len(line) > _CONTEXT_WIDTH_MAX:
        first = max(0, min(column - _CONTEXT_WIDTH_MAX // 2, len(line) - _CONTEXT_WIDTH_MAX))
        cut = line[first : first + _CONTEXT_WIDTH_MAX]
        is_cut_right = first + _CONTEXT_WIDTH_MAX < len(line)
        line = f"{'…' if first else ''}{cut}{'…' if is_cut_right else ''}"
        column = column - first + (1 if first else 0)
    return line, f"{' ' * cell_len(line[:column])}^"
