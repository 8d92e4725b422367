"""What click knows of the command line; see commands.py."""

import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from herdpy.cli.backup_commands import COMMANDS as BACKUP_COMMANDS
from herdpy.cli.cluster.commands import COMMANDS as CLUSTER_COMMANDS
from herdpy.cli.cluster.tablespace_commands import COMMANDS as TABLESPACE_COMMANDS
from herdpy.cli.console import error_console, output_console, reporting
from herdpy.cli.output import MODES
from herdpy.cli.passwords import connect_here
from herdpy.cli.settings import Loaded, load_here, setting_options
from herdpy.cli.shell import Shell
from herdpy.driver.connection import Connection


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
        with reporting(), connect_here(directory, autocommit=True) as connection:

            def connect_to(tablespace: str) -> Connection:
                return connect_here(directory, autocommit=True, tablespace=tablespace)

            ran = Shell(connection, console, errors, connect_to, mode=mode)
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
    except (OSError, UnicodeDecodeError) as error:
        errors.print(Text.assemble(("error:", "bold red"), f" {_reason(error)}"))
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
@setting_options
@reporting()
def serve(
    directory: Path, config: Path | None, assignments: tuple[str, ...], **chosen: Any
) -> None:
    """Serve DIRECTORY, made if missing: connect("herd://localhost:7000") opens it.

    Settings come from options, the environment (HERDPY_SERVER_PORT), a file (--config) and
    defaults, in this order; `herdpy config show` tells which. Where others reach it, it needs TLS
    and a user with a password. SIGHUP: certificates and some settings are read again, the audit
    log is opened again.
    """
    from herdpy.cli.serve import run_server

    def load() -> Loaded:
        return load_here(config, assignments, os.environ, chosen)

    run_server(directory, load(), console=output_console(), load_again=load)


@app.group("config")
def config_commands() -> None:
    """Show what a server is set to."""


@config_commands.command("show")
@setting_options
@reporting()
def show_config(config: Path | None, assignments: tuple[str, ...], **chosen: Any) -> None:
    """Print every setting that `herdpy serve` would use here, as TOML, and where it comes from."""
    click.echo(load_here(config, assignments, os.environ, chosen).shown(), nl=False)


for _command in (*BACKUP_COMMANDS, *CLUSTER_COMMANDS, *TABLESPACE_COMMANDS):
    app.add_command(_command)
