"""Shell: runs scripts and typed input on one connection and writes what comes of them.

Scripts and what is typed run in a thread of their own, so that Ctrl-C reaches the main thread at
once: it cancels the statement (conn.cancel), what would follow is not run, and the shell goes on.
One Shell belongs to the main thread.
"""

import shlex
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeVar

from rich.console import Console
from rich.text import Text

from herdpy.cli.console import print_error
from herdpy.cli.csv_import import import_csv
from herdpy.cli.output import MODES, write_rows
from herdpy.driver.box import ROWS_SHOWN_MAX, count_text, make_table
from herdpy.driver.connection import Connection
from herdpy.driver.cursor import Cursor
from herdpy.driver.types import describe
from herdpy.errors import Error, ProgrammingError, QueryCanceledError, closest, did_you_mean
from herdpy.features import TABLES
from herdpy.model import types
from herdpy.model.schema import Table
from herdpy.sql.reading.script import Piece, complete_statements, split_statements
from herdpy.sql.text import create_table_text, later_texts, name_text

T = TypeVar("T")

_CANCEL_AGAIN_S = 0.1
_VERBS = {"INSERT": "inserted", "UPSERT": "upserted", "UPDATE": "updated", "DELETE": "deleted"}
PLAIN_WORDS = {
    "help": ".help", "quit": ".quit", "exit": ".quit",
    "\\?": ".help", "\\q": ".quit", "\\d": ".tables", "\\dt": ".tables",
}  # fmt: skip
"""What hands that know other shells type alone on a line."""
_RESTRICTIONS = ("\\restrict ", "\\unrestrict ")
"""Of pg_dump: that what follows has no commands of psql, which scripts here never have."""
_VIEWS = "SELECT view_name, columns, definition FROM sysviews ORDER BY view_name"
_TABLE_COLUMNS = (
    describe("table", types.TEXT),
    describe("columns", types.INTEGER),
    describe("key", types.TEXT),
)


class Shell:
    """`.` commands set `mode`, `rows_max` (0: no limit) and `has_timer`."""

    def __init__(
        self,
        connection: Connection,
        console: Console,
        errors: Console,
        connect_to: Callable[[str], Connection],
        *,
        mode: str = "box",
        has_timer: bool = False,
    ) -> None:
        """`connect_to` opens another tablespace of the database; the caller closes `connection`."""
        self.connection = connection
        self._connect_to = connect_to
        self._opened: Connection | None = None
        """What .tablespace has opened, and connection is then."""
        self.console = console
        self.errors = errors
        self.mode = mode
        self.rows_max = ROWS_SHOWN_MAX
        self.has_timer = has_timer
        self.is_quitting = False
        self._is_cancelled = False
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="herdpy-shell")

    def close(self) -> None:
        """Stop what runs, roll back what is open, and end the thread."""
        self.connection.cancel()
        self._thread.shutdown()
        if self.connection.in_transaction:
            self.connection.rollback()
            self.errors.print("the open transaction was rolled back", style="yellow")
        if self._opened is not None:
            self._opened.close()

    # --- input -----------------------------------------------------------------------------------

    def run_script(self, text: str, where: str = "") -> bool:
        """Run statements and `.` commands to the first error or .quit; return whether it went well.

        `where` names the script in errors, with the line.
        """
        return self._in_thread(partial(self._run_lines, text, where))

    def run_input(self, text: str) -> None:
        """Run what was typed: a `.` command or statements; errors are printed."""
        self._in_thread(partial(self._run_typed, text))

    def _in_thread(self, function: Callable[[], T]) -> T:
        """Run a function in the statement thread; Ctrl-C cancels its statement and what follows."""
        self._is_cancelled = False
        # No KeyboardInterrupt from here on: raised between two lines it would lose the statement.
        before = signal.signal(signal.SIGINT, self._on_interrupt)
        try:
            future: Future[T] = self._thread.submit(function)
            while True:
                try:
                    return future.result(_CANCEL_AGAIN_S)  # also where a cancel came too late
                except TimeoutError:
                    if future.done():
                        raise
                if self._is_cancelled:  # a cancel before the statement has begun is lost
                    self.connection.cancel()
        finally:
            signal.signal(signal.SIGINT, before)

    def _run_lines(self, text: str, where: str) -> bool:
        buffer, first_line = "", 1
        for number, line in enumerate(text.splitlines(keepends=True), 1):
            if line.startswith(_RESTRICTIONS) and not split_statements(buffer):
                continue
            if not buffer.strip():
                buffer, first_line = "", number
                if line.startswith("."):
                    if not self.run_command(line, f"{where}:{number}" if where else ""):
                        return False
                    if self.is_quitting:
                        return True
                    continue
            buffer += line
            pieces = complete_statements(buffer) if ";" in line else None
            if pieces is not None:
                if not self._run_pieces(pieces, buffer, where, first_line):
                    return False
                buffer = ""
        return self._run_text(buffer, where, first_line)

    def _run_typed(self, text: str) -> None:
        line = text.strip()
        word, _, name = line.rstrip("; ").partition(" ")
        if not name and word.lower() in PLAIN_WORDS:
            self.run_command(PLAIN_WORDS[word.lower()])
        elif is_command(line):
            self.run_command(f".schema {name}" if word == "\\d" else line)
        else:
            self._run_text(text, "", 1)

    def _run_text(self, text: str, where: str, first_line: int) -> bool:
        try:
            pieces = split_statements(text)
        except ProgrammingError:
            pieces = [Piece(text.strip(), len(text) - len(text.lstrip()), False)]
        return self._run_pieces(pieces, text, where, first_line)

    def _run_pieces(self, pieces: Sequence[Piece], text: str, where: str, first_line: int) -> bool:
        for piece in pieces:
            line = first_line + text.count("\n", 0, piece.start)
            is_command = piece.text.startswith(".")  # on one line with statements
            run = self.run_command if is_command else self.run_statement
            if not run(piece.text, f"{where}:{line}" if where else ""):
                return False
            if self.is_quitting:
                break
        return True

    # --- statements ------------------------------------------------------------------------------

    def run_statement(self, text: str, where: str = "") -> bool:
        """Run one statement and write its result; return False when it failed or was cancelled."""

        def run() -> str:
            cursor = self.connection.cursor()
            try:
                cursor.execute(text)
                return self._write_result(cursor, text)
            finally:
                cursor.close()

        return self._run_long(run, text, where)

    def _run_long(self, run: Callable[[], str], text: str, where: str) -> bool:
        """Run a statement, and write the line that it returns; False: it failed, or Ctrl-C."""
        begun_s = time.perf_counter()
        try:
            self._check_cancelled()  # between two statements of a script
            footer = run()
        except Error as error:
            if self._is_cancelled and isinstance(error, QueryCanceledError):
                self.errors.print("cancelled", style="yellow")
            else:
                print_error(self.errors, error, text, where)
            return False
        if self.has_timer:
            took = f"{(time.perf_counter() - begun_s) * 1000:,.1f} ms"
            footer = f"{footer} · {took}" if footer else took
        if footer and self.console.is_terminal:
            self.console.print(Text(footer, style="dim"))
        elif footer:  # a line for each statement of a script
            self.console.file.write(f"{footer}\n")
        if self._is_cancelled:  # what comes behind it in a script is not run
            self.errors.print("it was done before it could be cancelled", style="yellow")
        return not self._is_cancelled

    def _write_result(self, cursor: Cursor, text: str) -> str:
        description = cursor.description
        if description is not None:
            return write_rows(
                self.console,
                description,
                lambda count: self._fetch(cursor, count),
                self.mode,
                self.rows_max,
            )
        if self.mode != "box":
            return ""
        verb = _VERBS.get(text.split(None, 1)[0].upper())
        return f"{count_text(cursor.rowcount)} {verb}" if verb else "ok"

    def _fetch(self, cursor: Cursor, count: int) -> list[tuple[Any, ...]]:
        rows = cursor.fetchmany(count)
        self._check_cancelled()
        return rows

    def _check_cancelled(self) -> None:
        if self._is_cancelled:
            raise QueryCanceledError("the statement was cancelled")

    def _on_interrupt(self, _signal: int, _frame: object) -> None:
        self._is_cancelled = True
        self.connection.cancel()

    # --- commands --------------------------------------------------------------------------------

    def run_command(self, line: str, where: str = "") -> bool:
        """Run a `.` command; return False when there is no such one, or it failed."""
        name, *arguments = _words(line)
        command = COMMANDS.get(name)
        try:
            if command is None:
                raise ProgrammingError(
                    f"there is no command {name}",
                    hint=did_you_mean(name, COMMANDS, ".help lists the commands."),
                )
            if not command.least <= len(arguments) <= command.most:
                raise ProgrammingError(f"usage: {name} {command.usage}".rstrip())
            if command.run is Shell.import_file:
                return self.import_file(*arguments, where=where)
            command.run(self, *arguments)
        except Error as error:
            print_error(self.errors, error, where=where)
            return False
        return True

    def import_file(self, path: str, name: str, *, where: str = "") -> bool:
        """Insert the rows of a CSV file into a table, all or none; return whether it went well."""
        table = _find(self.tables(), name.strip(';"'))

        def run() -> str:
            count = import_csv(self.connection, path, table, self._check_cancelled)
            return f"{count_text(count)} inserted" if self.mode == "box" else ""

        return self._run_long(run, "", where)

    def tables(self) -> list[Table]:
        """Return the tables that a statement can name now, by name."""
        return self.connection.live_session().perform(TABLES)

    def views(self) -> list[tuple[str, str, str]]:
        """Return (name, columns, query) of the views; none of a server that is older than views."""
        try:
            found = self.connection.execute(_VIEWS).fetchall()
        except ProgrammingError as error:
            if error.sqlstate != "42P01":
                raise
            return []
        return [(name, columns, query) for name, columns, query in found]

    def show_tables(self) -> None:
        rows = [
            (
                table.name,
                len(table.visible_columns),
                None if table.is_heap else ", ".join(map(name_text, table.key_names)),
            )
            for table in self.tables()
        ]
        rows += [(name, None, "(view)") for name, _, _ in self.views()]
        if rows:
            self.console.print(make_table(_TABLE_COLUMNS, rows, self.console.width))
        else:
            self.console.print("no tables yet", style="dim")

    def show_schema(self, name: str | None = None) -> None:
        tables, views = self.tables(), self.views()
        if name is not None:
            name = name.strip(';"')
            views = [view for view in views if view[0] == name]
            tables = [] if views else [_find(tables, name)]
        for table in tables:
            for text in (create_table_text(table), *later_texts(table)):
                self.console.out(f"{text};")
        for view, columns, query in views:
            self.console.out(f"CREATE VIEW {name_text(view)} ({columns}) AS\n{query};")

    def use_tablespace(self, name: str) -> None:
        """Run what follows in another tablespace, on a connection of its own."""
        if self.connection.in_transaction:
            raise ProgrammingError(
                ".tablespace: a transaction is open", sqlstate="25001", hint="COMMIT or ROLLBACK."
            )
        before, self._opened = self._opened, self._connect_to(name.rstrip(";"))
        self.connection = self._opened
        if before is not None:
            before.close()

    def set_timer(self, word: str) -> None:
        if word not in ("on", "off"):
            raise ProgrammingError(f".timer: expected on or off, found {word}")
        self.has_timer = word == "on"

    def set_mode(self, mode: str) -> None:
        if mode not in MODES:
            raise ProgrammingError(f".mode: expected {', '.join(MODES)}, found {mode}")
        self.mode = mode

    def set_rows(self, word: str) -> None:
        if word != "all" and not (word.isdecimal() and int(word) > 0):
            raise ProgrammingError(f".rows: expected a number from 1 on, or all, found {word}")
        self.rows_max = 0 if word == "all" else int(word)

    def show_help(self) -> None:
        for name, command in COMMANDS.items():
            line = Text(f"  {f'{name} {command.usage}':<24}", style="bold")
            self.console.print(line.append(command.help, style="not bold"))
        self.console.print("  Statements end with ; and may take several lines.")

    def quit(self) -> None:
        self.is_quitting = True


def is_command(line: str) -> bool:
    """Tell whether a line is a command of this shell, or of psql, which no statement begins as."""
    return line.startswith((".", "\\"))


def _words(line: str) -> list[str]:
    """Return the words of a `.` command; quotes hold one with spaces together."""
    name, *rest = line.split(None, 1)
    try:
        return [name, *shlex.split(rest[0])] if rest else [name]
    except ValueError:
        return line.split()


def _find(tables: list[Table], name: str) -> Table:
    """Return the table of a name, of any case when no other case is meant; 42P01 without one."""
    exact = [table for table in tables if table.name == name]
    folded = {table.name.lower(): table for table in tables}
    found = exact[0] if exact else folded.get(name.lower())
    if found is None:
        close = closest(name.lower(), folded)
        raise ProgrammingError(
            f'table "{name}" does not exist',
            sqlstate="42P01",
            hint=f"Did you mean {folded[close].name}?" if close else ".tables lists the tables.",
        )
    return found


class _Command(NamedTuple):
    run: Callable[..., object]
    usage: str
    help: str
    least: int = 0
    most: int = 0


COMMANDS = {
    ".help": _Command(Shell.show_help, "", "this list"),
    ".import": _Command(Shell.import_file, "FILE TABLE", "insert the rows of a CSV file", 2, 2),
    ".mode": _Command(Shell.set_mode, "|".join(MODES), "how rows look", 1, 1),
    ".quit": _Command(Shell.quit, "", "leave (so does Ctrl-D)"),
    ".rows": _Command(Shell.set_rows, "N|all", "how many rows a box shows", 1, 1),
    ".schema": _Command(Shell.show_schema, "[TABLE]", "what makes one table or view, or all", 0, 1),
    ".tables": _Command(Shell.show_tables, "", "the tables and views"),
    ".tablespace": _Command(Shell.use_tablespace, "NAME", "go on in another tablespace", 1, 1),
    ".timer": _Command(Shell.set_timer, "on|off", "time every statement", 1, 1),
}
"""The `.` commands by name; a statement never begins with a dot."""
