"""`herdpy serve`: a directory as a server, until SIGTERM or Ctrl-C."""

import asyncio
import contextlib
import ipaddress
import signal
from importlib.metadata import version
from pathlib import Path

from rich.console import Console

from bookie.client.blocking import new_loop
from herdpy.config import Config
from herdpy.driver.dsn import Target
from herdpy.driver.local import open_database
from herdpy.engine.database import Database
from herdpy.errors import OperationalError
from herdpy.server.server import Server


def run_server(
    directory: Path,
    host: str,
    port: int,
    *,
    connections_max: int,
    drain_timeout_s: float,
    console: Console,
) -> None:
    """Serve until a signal; herdpy.Error when that cannot begin."""
    check_loopback(host)
    database = open_database(Target(str(directory.resolve())), Config())
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(
                _serve(
                    database,
                    directory,
                    host,
                    port,
                    connections_max=connections_max,
                    drain_timeout_s=drain_timeout_s,
                    console=console,
                )
            )
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
    database: Database,
    directory: Path,
    host: str,
    port: int,
    *,
    connections_max: int,
    drain_timeout_s: float,
    console: Console,
) -> None:
    name = f"herdpy {version('herdpy-db')}"
    server = Server(database, name=name, connections_max=connections_max)
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        try:
            bound_host, bound_port = await server.start(host, port)
        except OSError as error:
            raise OperationalError(
                f"serve: cannot listen on {host}:{port}: {error.strerror or error}",
                hint="choose another port (--port)",
            ) from error
        shown = f"[{bound_host}]" if ":" in bound_host else bound_host
        console.print(f"serving {directory} at herd://{shown}:{bound_port}", highlight=False)
        console.print("stop with Ctrl-C", style="dim", highlight=False)
        await stop.wait()
        console.print(
            f"stopping: {server.connection_count} connections have "
            f"{drain_timeout_s:g} s to end their transactions",
            highlight=False,
        )
        await server.drain(drain_timeout_s)
    finally:
        await server.close()
