"""What commands print: boxes and sentences for a terminal, one JSON value a line for programs.

With --json a command prints one line for each thing that it found, on standard output; bytes are
base64. Errors go to standard error, with --json as {"error", "code", "retry", "message"}.
"""

import json
import os
import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from bookie.errors import BookieError, Retry, error_record
from bookie.management.cluster import json_value

_WIDTH_WITHOUT_TERMINAL = 10_000
"""Into a file or a pipe nothing is cut, unless COLUMNS says how wide it is."""
_HINTS = {
    Retry.SAFE: "nothing was changed; it may work later",
    Retry.UNKNOWN: "it may have happened; look before you repeat it",
}


class Advance:
    """How far a long piece of work has come."""

    def __init__(self, progress: Progress | None, total: int | None) -> None:
        self._progress = progress
        self._task = None if progress is None else progress.add_task("", total=total)

    def to(self, done: int, total: int | None = None) -> None:
        """Say that `done` of `total` is done (None: as before)."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done, total=total)


class Output:
    """Where one command prints."""

    def __init__(self, *, is_json: bool) -> None:
        self.is_json = is_json
        self._console = _console(is_error=False)
        self._errors = _console(is_error=True)

    def record(self, record: dict[str, object], text: str | Text | None = None) -> None:
        """Print one thing: as a line of JSON, or `text`, or else name by name."""
        if self.is_json:
            self._line(record)
        elif text is not None:
            self._console.print(text, highlight=False)
        else:
            width = max(map(len, record), default=0)
            for name, value in record.items():
                line = Text(f"{name.replace('_', ' '):>{width}} ", style="dim")
                line.append(_text_of(value), style="not dim")
                self._console.print(line)

    def records(
        self, records: Iterable[dict[str, object]], columns: Sequence[str], none: str
    ) -> None:
        """Print things of one kind: a line of JSON each, or a table; `none` when there are none."""
        if self.is_json:
            for record in records:
                self._line(record)
            return
        table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
        rows = list(records)
        for name in columns:
            is_number = all(isinstance(row.get(name), int | float | None) for row in rows)
            table.add_column(name.replace("_", " "), justify="right" if is_number else "left")
        for row in rows:
            table.add_row(*(Text(_text_of(row.get(name))) for name in columns))
        self._console.print(table if rows else Text(none))

    def say(self, text: str | Text) -> None:
        """Print a sentence; nothing with --json."""
        if not self.is_json:
            self._console.print(text, highlight=False)

    def warn(self, text: str) -> None:
        """Print a sentence on standard error."""
        self._errors.print(Text(text))

    def say_aside(self, text: str) -> None:
        """Print a sentence on standard error; nothing with --json."""
        if not self.is_json:
            self.warn(text)

    def raw(self, data: bytes) -> None:
        """Write bytes as they are."""
        sys.stdout.buffer.write(data)

    @contextmanager
    def progress(self, what: str, total: int | None = None) -> Generator[Advance]:
        """Show a bar on standard error while the block runs, if that is a terminal."""
        if self.is_json or not self._errors.is_terminal:
            yield Advance(None, total)
            return
        with Progress(
            TextColumn(what, markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._errors,
            transient=True,
        ) as progress:
            yield Advance(progress, total)

    @contextmanager
    def exits(self) -> Generator[None]:
        """Turn what a command raises into one clear sentence and an exit code."""
        try:
            yield
        except BookieError as error:
            self._error(error_record(error), error.retry)
            sys.exit(1)
        except BrokenPipeError:
            raise  # the reader of our output has enough (`| head`): click ends without a word
        except OSError as error:
            record: dict[str, object] = {"error": type(error).__name__, "code": error.errno or 0}
            record |= {"retry": Retry.NEVER.value, "message": str(error)}
            self._error(record, Retry.NEVER)
            sys.exit(1)
        except KeyboardInterrupt:
            self.warn("stopped")
            sys.exit(130)

    def _error(self, record: dict[str, object], retry: Retry) -> None:
        if self.is_json:
            print(json.dumps(record, ensure_ascii=False), file=sys.stderr)
            return
        text = Text("error: ", style="bold red")
        text.append(str(record["message"]), style="not bold default")
        text.append(f" ({record['error']}, {record['code']})", style="not bold dim")
        self._errors.print(text)
        if retry in _HINTS:
            self._errors.print(Text(f"hint: {_HINTS[retry]}"))

    def _line(self, record: dict[str, object]) -> None:
        sys.stdout.write(f"{json.dumps(record, ensure_ascii=False, default=json_value)}\n")
        sys.stdout.flush()


def _text_of(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, bytes | bytearray | memoryview):
        return printable(bytes(value))
    if isinstance(value, float):
        return f"{value:,.3f}"
    if isinstance(value, dict):
        return ", ".join(f"{name}={_text_of(part)}" for name, part in value.items()) or "-"
    if isinstance(value, list | tuple):
        return "\n".join(map(_text_of, value)) if value else "-"
    return str(value)


def confirm(question: str, *, is_sure: bool) -> None:
    """Ask at a terminal unless --yes was said; UsageError where there is none to ask at."""
    if is_sure:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("standard input is no terminal to ask at: say --yes")
    click.confirm(question, abort=True, err=True)


def printable(data: bytes) -> str:
    """Return bytes as text when they are printable UTF-8, else as hexadecimal digits."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
    return text if text.isprintable() else f"0x{data.hex()}"


def bytes_text(count: int) -> str:
    """Return a number of bytes with a unit: "1.5 GiB"."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _console(*, is_error: bool) -> Console:
    stream = sys.stderr if is_error else sys.stdout
    is_fixed = stream.isatty() or "COLUMNS" in os.environ
    return Console(
        stderr=is_error,
        width=None if is_fixed else _WIDTH_WITHOUT_TERMINAL,
        soft_wrap=True,
        markup=False,  # entries, ids and reasons are printed: "[b]" is no style, ":x:" no picture
        emoji=False,
    )
