"""What click knows of the command line; see commands.py."""

import platform
import sys
from importlib.metadata import version
from pathlib import Path

import click

from herdpy.cli.console import error_console, output_console, print_error
from herdpy.cli.output import MODES
from herdpy.cli.shell import Shell
from herdpy.driver.connection import connect
from herdpy.driver.dsn import DEFAULT_PORT
from herdpy.errors import Error


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(
    version("herdpy-db"), message=f"herdpy %(version)s (Python {platform.python_version()})"
)
def app() -> None:
    """herdpy: a SQL database in a directory."""


@app.command()
@click.argument("directory", default=":memory:")
@click.option("-c", "commands", multiple=True, metavar="SQL", help="Run statements and exit.")
@click.option(
    "-f",
    "file",
    type=click.Path(allow_dash=True, dir_okay=False, exists=True),
    help="Run the statements of a file (- is standard input) and exit.",
)
@click.option(
    "--mode", type=click.Choice(MODES), default="box", show_default=True, help="How rows look."
)
def shell(directory: str, commands: tuple[str, ...], file: str | None, mode: str) -> None:
    """Open DIRECTORY, made if missing, and run SQL: typed in, or from -c, -f or a pipe.

    DIRECTORY may be a server's URL, too: herd://localhost:7000. Without it the database is in
    memory and gone at the end. Every statement commits by
    itself unless BEGIN has opened a transaction. The first error ends -c, -f and a pipe.
    """
    is_interactive = not commands and file is None and sys.stdin.isatty()
    console, errors = output_console(), error_console()
    try:
        texts = list(commands)
        if file is not None:
            texts.append(_read(file))
        elif not is_interactive and not commands:
            texts.append(sys.stdin.read())
        is_new = directory != ":memory:" and "://" not in directory and not Path(directory).exists()
        with connect(directory, autocommit=True) as connection:
            ran = Shell(connection, console, errors, mode=mode)
            try:
                if is_interactive:
                    from herdpy.cli.prompt import converse

                    converse(ran, directory, is_new=is_new)
                    has_failed = False
                else:
                    where = file or ("" if commands else "-")
                    has_failed = not all(ran.run_script(text, where) for text in texts)
            finally:
                ran.close()
    except Error as error:
        print_error(errors, error)
        sys.exit(1)
    except (OSError, UnicodeDecodeError) as error:
        errors.print(f"[bold red]error:[/] {_reason(error)}", highlight=False)
        sys.exit(1)
    sys.exit(1 if has_failed else 0)


def _read(file: str) -> str:
    if file == "-":
        return sys.stdin.read()
    return Path(file).read_text(encoding="utf-8-sig")


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"the input is not UTF-8: byte {error.start} is 0x{error.object[error.start]:02x}"
    return str(error)


@app.command()
@click.argument("directory", default="./demo-data")
def demo(directory: str) -> None:
    """Load five real tables into DIRECTORY, query them, kill a writer, count what is there."""
    from herdpy.cli.demo.tour import run_demo

    sys.exit(run_demo(directory))


@app.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="0: any free one; the first line of the output says which.",
)
@click.option(
    "--connections-max",
    type=click.IntRange(1, 10_000),
    default=500,
    show_default=True,
    help="More are refused with 53300.",
)
@click.option(
    "--drain-timeout",
    "drain_timeout_s",
    type=click.FloatRange(0, 86_400),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How long open transactions may take to end after SIGTERM.",
)
def serve(
    directory: Path, host: str, port: int, connections_max: int, drain_timeout_s: float
) -> None:
    """Serve DIRECTORY, made if missing: connect("herd://localhost:7000") opens it.

    Until there are users and passwords only this machine can reach it: HOST has to be a loopback
    address.
    """
    from herdpy.cli.serve import run_server

    try:
        run_server(
            directory,
            host,
            port,
            connections_max=connections_max,
            drain_timeout_s=drain_timeout_s,
            console=output_console(),
        )
    except Error as error:
        print_error(error_console(), error)
        sys.exit(1)
