"""What click knows of `herdpy backup`, `restore`, `dump` and `doctor`."""

import sys
from collections.abc import Callable
from pathlib import Path

import click

from herdpy.cli.console import error_console, output_console, print_error
from herdpy.errors import Error

_FILE = click.Path(dir_okay=False, path_type=Path)
_OVERWRITE = click.option("--overwrite", is_flag=True, help="Replace FILE when it exists.")


def _run(step: Callable[[], object]) -> None:
    """Run a step; an error is printed and ends with 1."""
    try:
        step()
    except Error as error:
        print_error(error_console(), error)
        sys.exit(1)


@click.command()
@click.argument("source")
@click.argument("file", type=_FILE)
@_OVERWRITE
def backup(source: str, file: Path, overwrite: bool) -> None:
    """Write a backup of SOURCE, a directory or a server's URL, to FILE.

    It is the database at one moment: of a server (herd://localhost:7000) while others go on
    writing. FILE is there when it is complete, durable and verified.
    """
    from herdpy.cli.backup import run_backup

    _run(lambda: run_backup(source, file, output_console(), overwrite=overwrite))


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path, exists=True))
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option("--replace", is_flag=True, help="Replace the database that is in DIRECTORY.")
def restore(file: Path, directory: Path, replace: bool) -> None:
    """Make DIRECTORY the database of the backup FILE.

    All of FILE is verified before anything is written. With --replace the old database is whole
    until the new one is: nothing lies between.
    """
    from herdpy.cli.backup import run_restore

    _run(lambda: run_restore(file, directory, output_console(), replace=replace))


@click.command()
@click.argument("source")
@click.argument("file", type=_FILE, required=False)
@_OVERWRITE
def dump(source: str, file: Path | None, overwrite: bool) -> None:
    """Write SOURCE, a directory or a server's URL, as SQL to FILE or standard output.

    `herdpy shell ./new -f FILE` runs it. All tables are as they are at one moment.
    """
    from herdpy.cli.backup import run_dump

    _run(lambda: run_dump(source, file, output_console(), overwrite=overwrite))


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
def doctor(directory: Path) -> None:
    """Verify all files of DIRECTORY, which no process may have open, and change none of them.

    Every damage is named with its file and offset. The exit code is 1 when there is any.
    """
    from herdpy.cli.doctor import run_doctor

    _run(lambda: sys.exit(run_doctor(directory, output_console())))


COMMANDS = (backup, restore, dump, doctor)
