"""`herdpy backup`, `restore` and `dump`: files out of databases and databases out of files."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from herdpy.cli.passwords import connect_here
from herdpy.driver.dsn import without_passwords
from herdpy.driver.exports import begin_export, restore
from herdpy.errors import OperationalError

Tick = Callable[[int, int], None]


@contextmanager
def progress_bar(console: Console, what: str) -> Generator[Tick]:
    """Give a function that shows (bytes done, bytes in all), on terminals only."""
    if not console.is_terminal:
        yield lambda _done, _total: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(),
               TransferSpeedColumn())  # fmt: skip
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=None)

        def tick(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total or None)

        yield tick


def run_backup(source: str, file: Path, console: Console, *, overwrite: bool) -> None:
    """Back up a directory, or a server's database by its URL; herdpy.Error."""
    check_there(source)
    with connect_here(source) as connection, progress_bar(console, "backup") as tick:
        length = connection.backup(file, overwrite=overwrite, progress=tick)
    shown = without_passwords(source)
    console.print(f"backed up {shown} to {file}: {length:,} bytes, verified", highlight=False)


def run_dump(source: str, file: Path | None, console: Console, *, overwrite: bool) -> None:
    """Dump a directory, or a server's database, to a file or to standard output; herdpy.Error."""
    check_there(source)
    with connect_here(source) as connection:
        if file is None:
            export = begin_export(connection.live_session(), "dump")
            try:
                for piece in export.pieces():
                    sys.stdout.buffer.write(piece)
                sys.stdout.buffer.flush()
            finally:
                export.close()
            return
        with progress_bar(console, "dump") as tick:
            length = connection.dump(file, overwrite=overwrite, progress=tick)
    shown = without_passwords(source)
    console.print(f"dumped {shown} to {file}: {length:,} bytes", highlight=False)


def run_restore(file: Path, directory: Path, console: Console, *, replace: bool) -> None:
    """Make a directory the database of a backup; herdpy.Error."""
    with progress_bar(console, "restore") as tick:
        restore(file, directory, replace=replace, progress=tick)
    console.print(f"restored {file} to {directory}", highlight=False)


def check_there(source: str) -> None:
    """Refuse a directory that is not there: opening it would make one."""
    if "://" not in source and not (Path(source) / "FORMAT").exists():
        raise OperationalError(
            f"{without_passwords(source)} is no herdpy database: it has no file FORMAT",
            sqlstate="58P01",
        )
