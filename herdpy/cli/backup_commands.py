"""`herdpy backup`, `restore`, `dump` and `doctor`: databases as files, and whether they are whole.

The driver's modules are loaded by the command that runs: `herdpy --help` needs none of them.
"""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from herdpy.cli.console import error_console, output_console, reporting
from herdpy.cli.passwords import connect_here
from herdpy.driver.dsn import without_passwords
from herdpy.errors import OperationalError, ProgrammingError

_FILE = click.Path(dir_okay=False, path_type=Path)
_DIRECTORY = click.Path(file_okay=False, path_type=Path)
_TABLESPACE = click.option(
    "--tablespace", help="Which one of SOURCE; of a server it is in the URL. Without it: default."
)
_SALVAGED = click.option(
    "--tablespace",
    help="Which one of SOURCE; of a server it is in the URL. Without it: default. With --salvage "
    "also by its folder's name.",
)
_OVERWRITE = click.option("--overwrite", is_flag=True, help="Replace FILE when it exists.")


@click.command()
@click.argument("source")
@click.argument("file", type=_FILE)
@_OVERWRITE
@_TABLESPACE
@reporting()
def backup(source: str, file: Path, overwrite: bool, tablespace: str | None) -> None:
    """Write a backup of SOURCE, a directory or a server's URL, to FILE.

    It is one tablespace at one moment, with its users and rights: of a server
    (herd://localhost:7000) while others go on writing. FILE is there when it is
    complete, durable and verified.
    """
    console = output_console()
    _check_there(source)
    opened = connect_here(source, tablespace=tablespace)
    with opened as connection, _progress_bar(console, "backup") as tick:
        length = connection.backup(file, overwrite=overwrite, progress=tick)
    shown = without_passwords(source)
    console.print(f"backed up {shown} to {file}: {length:,} bytes, verified")


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path, exists=True))
@click.argument("directory", type=_DIRECTORY)
@click.option("--replace", is_flag=True, help="Replace the database that is in DIRECTORY.")
@reporting()
def restore(file: Path, directory: Path, replace: bool) -> None:
    """Make DIRECTORY the database of the backup FILE.

    All of FILE is verified before anything is written. With --replace the old database is whole
    until the new one is: nothing lies between.
    """
    from herdpy.driver import exports

    console = output_console()
    with _progress_bar(console, "restore") as tick:
        exports.restore(file, directory, replace=replace, progress=tick)
    console.print(f"restored {file} to {directory}")


@click.command()
@click.argument("source")
@click.argument("file", type=_FILE, required=False)
@_OVERWRITE
@click.option("--salvage", is_flag=True, help="Write what is whole of a damaged directory.")
@_SALVAGED
@reporting()
def dump(
    source: str, file: Path | None, overwrite: bool, salvage: bool, tablespace: str | None
) -> None:
    """Write SOURCE, a directory or a server's URL, as SQL to FILE or standard output.

    `herdpy shell ./new -f FILE` runs it. All tables are as they are at one moment. With --salvage
    SOURCE is a directory that no process may have open: what of it is damaged is named and left
    out, and the exit code is 1 when there is any.
    """
    if salvage:
        _salvage(source, file, overwrite=overwrite, tablespace=tablespace)
        return
    console = output_console()
    _check_there(source)
    with connect_here(source, tablespace=tablespace) as connection:
        if file is None:
            export = connection.live_session().export("dump")
            try:
                for piece in export.pieces():
                    sys.stdout.buffer.write(piece)
                sys.stdout.buffer.flush()
            finally:
                export.close()
            return
        with _progress_bar(console, "dump") as tick:
            length = connection.dump(file, overwrite=overwrite, progress=tick)
    shown = without_passwords(source)
    console.print(f"dumped {shown} to {file}: {length:,} bytes")


def _salvage(source: str, file: Path | None, *, overwrite: bool, tablespace: str | None) -> None:
    from herdpy.driver.doctor import salvaging
    from herdpy.driver.exports import export_to_file

    if "://" in source:
        raise ProgrammingError(
            "dump --salvage: expected a directory, found a server's URL",
            sqlstate="22023",
            hint="Stop the server and name its directory.",
        )
    # What is said must not lie between the statements.
    console = error_console() if file is None else output_console()
    with _progress_bar(console, "read") as tick, salvaging(source, tick, tablespace) as found:
        if file is None:
            for piece in found.pieces():
                sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
        else:
            outside = str(Path(source).resolve())
            export_to_file(
                lambda: found, "dump", file, outside=outside, overwrite=overwrite, progress=None
            )
    _print_damages(console, found.damages)
    for name, count in found.row_counts.items():
        lost = found.lost.get(name, 0)
        missing = f", {lost:,} in pages that cannot be read" if lost else ""
        console.print(Text(f"{name}: {count:,} rows saved{missing}"))
    if found.damages:
        console.print("not all is saved: what is missing is named above")
        sys.exit(1)
    console.print("all is saved: there is no damage")


def _print_damages(console: Console, damages: list[str]) -> None:
    for damage in damages:
        console.print(Text("damage: ", style="bold red").append(damage, style="default"))


@click.command()
@click.argument("directory", type=_DIRECTORY)
@reporting()
def doctor(directory: Path) -> None:
    """Verify all files of DIRECTORY, which no process may have open, and change none of them.

    Every damage is named with its file and offset. The exit code is 1 when there is any.
    """
    from herdpy.driver.doctor import examine

    console = output_console()
    with _progress_bar(console, "doctor") as tick:
        report = examine(directory, tick)
    _print_damages(console, report.damages)
    for note in report.notes:
        console.print(Text(f"note: {note}", style="dim"))
    console.print(
        f"{directory}: {report.table_count:,} tables, {report.page_count:,} pages with "
        f"{report.row_count:,} rows in {report.segment_count:,} segments of "
        f"{report.byte_count:,} bytes, {report.log_record_count:,} log records behind them",
    )
    if report.damages:
        console.print(f"{len(report.damages):,} damages")
        for advice in report.advice:
            console.print(Text("advice: ", style="bold").append(advice, style="default"))
        sys.exit(1)
    console.print("no damage")


@contextmanager
def _progress_bar(console: Console, what: str) -> Generator[Callable[[int, int], None]]:
    """Give a function that shows (bytes done, bytes in all), on terminals only."""
    if not console.is_terminal:
        yield lambda _done, _total: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(),
               TransferSpeedColumn())  # fmt: skip
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total or None)


def _check_there(source: str) -> None:
    """Refuse a directory that is not there: opening it would make one."""
    if "://" not in source and not (Path(source) / "FORMAT").exists():
        raise OperationalError(
            f"{without_passwords(source)} is no herdpy database: it has no file FORMAT",
            sqlstate="58P01",
        )


COMMANDS = (backup, restore, dump, doctor)
