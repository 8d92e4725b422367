"""`herdpy backup`, `restore`, `dump` and `doctor`: databases as files, and whether they are whole.

The driver's modules are loaded by the command that runs: `herdpy --help` needs none of them.
"""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.text import Text

from herdpy.cli.console import error_console, output_console, reporting
from herdpy.cli.passwords import connect_here
from herdpy.driver.dsn import without_passwords
from herdpy.errors import OperationalError, ProgrammingError
from herdpy.model.tablespace_limits import tablespace_limits

if TYPE_CHECKING:
    from herdpy.engine.maintenance.doctor import ExaminedTablespace

_STANDARD = Path("-")
"""Standard output, as other commands have it."""
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
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--overwrite", is_flag=True, help="Replace FILE, or what is in FOLDER.")
@_TABLESPACE
@click.option(
    "--all", "is_all", is_flag=True, help="Each tablespace, into a FOLDER in the place of FILE."
)
@reporting()
def backup(source: str, file: Path, overwrite: bool, tablespace: str | None, is_all: bool) -> None:
    """Write a backup of SOURCE, a directory or a server's URL, to FILE.

    It is one tablespace at one moment, with its users and rights: of a server
    (herd://localhost:7000) while others go on writing. FILE is there when it is
    complete, durable and verified.

    With --all it is a folder with a backup of each tablespace, each at a moment of its own; for
    superusers of the tablespace default. The last file in it is BACKUP: it is complete then.
    """
    if is_all:
        _check_all_alone("backup", tablespace=tablespace)
    if file == _STANDARD:
        raise ProgrammingError(
            "backup: expected a file, found -: what is written is verified where it stands",
            sqlstate="22023",
            hint="herdpy dump SOURCE writes SQL to standard output.",
        )
    console = output_console()
    _check_there(source)
    opened = connect_here(source, tablespace=tablespace)
    with opened as connection, _progress_bar(console, "backup") as tick:
        write = connection.backup_all if is_all else connection.backup
        length = write(file, overwrite=overwrite, progress=tick)
    shown = without_passwords(source)
    console.print(f"backed up {shown} to {file}: {length:,} bytes, verified")


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True))
@click.argument("directory", type=_DIRECTORY)
@click.option("--replace", is_flag=True, help="Replace the database that is in DIRECTORY.")
@click.option(
    "--tablespace", help="Of a folder of backup --all: only this one, which becomes default."
)
@reporting()
def restore(file: Path, directory: Path, replace: bool, tablespace: str | None) -> None:
    """Make DIRECTORY the database of the backup FILE, or of a folder of `herdpy backup --all`.

    All of it is verified before anything is written. With --replace the old database is whole
    until the new one is: nothing lies between. A folder makes a new DIRECTORY only, with all
    tablespaces, their names, limits and rights.
    """
    from herdpy.driver import restoring

    console = output_console()
    with _progress_bar(console, "restore") as tick:
        restoring.restore(file, directory, tablespace=tablespace, replace=replace, progress=tick)
    one = "" if tablespace is None else f"tablespace {tablespace} of "
    console.print(f"restored {one}{file} to {directory}")


@click.command()
@click.argument("source")
@click.argument("file", type=_FILE, required=False)
@_OVERWRITE
@click.option("--salvage", is_flag=True, help="Write what is whole of a damaged directory.")
@_SALVAGED
@click.option("--all", "is_all", is_flag=True, help="All tablespaces, with their limits.")
@reporting()
def dump(
    source: str,
    file: Path | None,
    overwrite: bool,
    salvage: bool,
    tablespace: str | None,
    is_all: bool,
) -> None:
    """Write SOURCE, a directory or a server's URL, as SQL to FILE or standard output.

    `herdpy shell ./new -f FILE` runs it. All tables are as they are at one moment. With --salvage
    SOURCE is a directory that no process may have open: what of it is damaged is named and left
    out, and the exit code is 1 when there is any. With --all it is all tablespaces, each at a
    moment of its own; for superusers of the tablespace default.
    """
    if file == _STANDARD:
        file = None
    if is_all:
        _check_all_alone("dump", tablespace=tablespace, salvage=salvage)
    if salvage:
        _salvage(source, file, overwrite=overwrite, tablespace=tablespace)
        return
    from herdpy.driver.all_dumps import AllDumps

    console = output_console()
    _check_there(source)
    with connect_here(source, tablespace=tablespace) as connection:
        if file is None:
            session = connection.live_session()
            export = AllDumps(session) if is_all else session.export("dump")
            try:
                for piece in export.pieces():
                    sys.stdout.buffer.write(piece)
                sys.stdout.buffer.flush()
            finally:
                export.close()
            return
        with _progress_bar(console, "dump") as tick:
            write = connection.dump_all if is_all else connection.dump
            length = write(file, overwrite=overwrite, progress=tick)
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

    A database, or the directory of a node of a cluster, with its copies of tablespaces. Every
    damage is named with its file and offset. The exit code is 1 when there is any.
    """
    from herdpy.driver.doctor import examine

    console = output_console()
    with _progress_bar(console, "doctor") as tick:
        report = examine(directory, tick)
    _print_damages(console, report.damages)
    for note in report.notes:
        console.print(Text(f"note: {note}", style="dim"))
    if report.node is not None:
        console.print(Text(f"{directory}: of {report.node}"))
    if len(report.tablespaces) > 1 or report.node is not None:
        for each in report.tablespaces:
            console.print(Text(_tablespace_line(each)))
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


def _tablespace_line(found: "ExaminedTablespace") -> str:
    values = [(name, getattr(found.limits, name)) for name in tablespace_limits]
    limits = [f"{name} {value:,}" for name, value in values if value is not None]
    counts = (
        [f"{found.table_count:,} tables, {found.role_count:,} roles, {found.right_count:,} rights"]
        if found.table_count is not None
        else ["damaged"]
    )
    lines = [f"tablespace {found.name} in {found.folder}/: {', '.join(counts + limits)}"]
    if (lsn := found.needs_log_from) is not None:
        lines.append(
            "  it has no checkpoint: it needs every ledger of its log"
            if lsn.ledger_id < 0
            else f"  its checkpoint is at {lsn}: of its log it needs ledger {lsn.ledger_id}, from "
            f"entry {lsn.entry_id} on, and those listed behind it"
        )
    return "\n".join(lines)


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


def _check_all_alone(command: str, *, tablespace: str | None, salvage: bool = False) -> None:
    """Refuse --all beside what is of one tablespace."""
    if tablespace is not None or salvage:
        beside = "--salvage" if salvage else f"--tablespace {tablespace}"
        raise ProgrammingError(
            f"{command}: --all is of all tablespaces, found {beside} beside it",
            sqlstate="22023",
            hint="Leave one of the two out.",
        )


def _check_there(source: str) -> None:
    """Refuse a directory that is not there: opening it would make one."""
    if "://" not in source and not (Path(source) / "FORMAT").exists():
        raise OperationalError(
            f"{without_passwords(source)} is no herdpy database: it has no file FORMAT",
            sqlstate="58P01",
        )


COMMANDS = (backup, restore, dump, doctor)
