"""`herdpy serve`: a directory as a server, until SIGTERM or Ctrl-C."""

import asyncio
import contextlib
import ipaddress
import signal
from importlib.metadata import version
from pathlib import Path

from rich.console import Console

from bookie.client.blocking import new_loop
from herdpy.cli.settings import Loaded
from herdpy.config import ServerConfig
from herdpy.driver.dsn import Target
from herdpy.driver.local import open_database
from herdpy.engine.database import Database
from herdpy.errors import OperationalError
from herdpy.server.server import Server


def run_server(directory: Path, loaded: Loaded, *, console: Console) -> None:
    """Serve until a signal; herdpy.Error when that cannot begin."""
    check_loopback(loaded.server.host)
    database = open_database(Target(str(directory.resolve())), loaded.database)
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(_serve(database, directory, loaded.server, console))
    finally:
        database.close()


def check_loopback(host: str) -> None:
    """Refuse addresses that others reach: nobody is asked for a password yet."""
    if host == "localhost":
        return
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(host).is_loopback:
            return
    raise OperationalError(
        f"serve: expected a loopback address to listen on, found {host!r}: this server knows no "
        "users yet, and whoever reached it could read and write everything",
        sqlstate="0A000",
        hint="listen on 127.0.0.1, and let others in by an SSH tunnel",
    )


async def _serve(
    database: Database, directory: Path, config: ServerConfig, console: Console
) -> None:
    server = Server(database, name=f"herdpy {version('herdpy-db')}", config=config)
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        try:
            bound_host, bound_port = await server.start(config.host, config.port)
        except OSError as error:
            raise OperationalError(
                f"serve: cannot listen on {config.host}:{config.port}: {error.strerror or error}",
                hint="choose another port (--port)",
            ) from error
        shown = f"[{bound_host}]" if ":" in bound_host else bound_host
        console.print(f"serving {directory} at herd://{shown}:{bound_port}", highlight=False)
        console.print("stop with Ctrl-C", style="dim", highlight=False)
        await stop.wait()
        console.print(
            f"stopping: {server.connection_count} connections have "
            f"{config.drain_timeout_s:g} s to end their transactions",
            highlight=False,
        )
        await server.drain(config.drain_timeout_s)
    finally:
        await server.close()
