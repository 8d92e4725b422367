"""`herdpy serve`: a directory as a server, until SIGTERM or Ctrl-C."""

import asyncio
import contextlib
import gc
import logging
import signal
import sys
from collections.abc import Callable, Generator
from importlib.metadata import version
from pathlib import Path

from rich.console import Console

from bookie.runtime.os_executors import run, stop_event
from bookie.runtime.os_log import LineWriter, takes_a_line
from bookie.runtime.os_process import precise_timers
from herdpy.cli.logs import set_up_logs
from herdpy.cli.settings import Loaded
from herdpy.cli.system import make_room, notify
from herdpy.config import ServerConfig
from herdpy.driver.dsn import Target
from herdpy.driver.local import open_database
from herdpy.engine.database import Database
from herdpy.errors import Error
from herdpy.server.listening import listening
from herdpy.server.login.audit_file import AuditFile, open_audit
from herdpy.server.server import Server

_log = logging.getLogger(__name__)

_STANDARD_OUTPUT = 1
_COLLECTOR = (10_000, 10, 10)
"""Objects more than before until the youngest are looked at; one of ten times also older ones."""


def run_server(
    directory: Path, loaded: Loaded, *, console: Console, load_again: Callable[[], Loaded]
) -> None:
    """Serve until a signal; herdpy.Error when that cannot begin."""
    log = set_up_logs(loaded.server.log_level, loaded.server.log_format)
    make_room(loaded.server)
    database = open_database(Target(str(directory.resolve())), loaded.database)
    try:
        with (
            rare_collections(),
            frequent_switches(loaded.server.switch_interval_us / 1e6),
        ):
            run(_serve(database, directory, loaded.server, console, load_again, log))
    finally:
        database.close()


@contextlib.contextmanager
def rare_collections() -> Generator[None]:
    """Let the collector of garbage look less often, and never at what was loaded.

    What a statement makes is hardly ever garbage in circles; looking for them every 700 objects is
    a third of the work of many inserts.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTOR)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@contextlib.contextmanager
def frequent_switches(interval_s: float) -> Generator[None]:
    """Have a thread that computes give up the interpreter sooner to those that wait for it.

    The loop waits for it each time it comes back from the network; with Python's 5 ms a statement
    that is planned would be in the way of every row that is read meanwhile. This thread, the
    loop's, is to ask for it exactly then; the others, later by Linux's 50 µs, leave it to the loop
    for what a request takes (ADR 54).
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(interval_s)
    try:
        with precise_timers():
            yield
    finally:
        sys.setswitchinterval(before)


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


async def _serve(
    database: Database,
    directory: Path,
    config: ServerConfig,
    console: Console,
    load_again: Callable[[], Loaded],
    log: LineWriter,
) -> None:
    audit = open_audit(config.audit_log, database.clock) if config.audit_log else None
    write_audit, lines = (None, [log]) if audit is None else (audit.write, [log, audit.lines])
    name = f"herdpy {version('herdpy-db')}"
    server = Server(database, name=name, config=config, write_audit=write_audit, lines=lines)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, _reload, server, audit, load_again)
    stop = stop_event()
    try:
        http_port = None
        if config.http_port >= 0:
            with listening("serve", config.http_host, config.http_port, "--http-port"):
                http_port = await server.start_http(config.http_host, config.http_port)
        with listening("serve", config.host, config.port, "--port"):
            bound_host, bound_port = await server.start(config.host, config.port)
        url = f"herd://{_in_url(bound_host)}:{bound_port}"
        console.print(f"serving {directory} at {url}")
        if config.grpc_port >= 0:
            with listening("serve", config.host, config.grpc_port, "--grpc-port"):
                grpc_port = await server.start_grpc(config.host, config.grpc_port)
            url = f"herd+grpc://{_in_url(bound_host)}:{grpc_port}"
            console.print(f"gRPC for clients of any language at {url}")
        if http_port is not None:
            pages = f"http://{_in_url(config.http_host)}:{http_port}"
            console.print(f"metrics and health at {pages}/metrics, /readyz")
        console.print("stop with Ctrl-C", style="dim")
        notify("READY=1", f"STATUS=serving {directory}")
        await stop.wait()
        notify("STOPPING=1", "STATUS=open transactions have time to end")
        if takes_a_line(_STANDARD_OUTPUT):  # else who should read it would hold up the end
            console.print(
                f"stopping: {server.connection_count} connections have "
                f"{config.drain_timeout_s:g} s to end their transactions",
            )
        await server.drain(config.drain_timeout_s)
    finally:
        await server.close()
        if audit is not None:
            audit.close()


def _reload(server: Server, audit: AuditFile | None, load_again: Callable[[], Loaded]) -> None:
    """Take up settings, new certificates, and a new audit log when the old one was renamed."""
    if audit is not None:
        audit.reopen()
    try:
        config = load_again().server
        left = server.reload(config)
    except Error as error:
        _log.error("reload: settings and certificates stay as they were: %s", error)
        return
    logging.getLogger().setLevel(config.log_level.upper())
    if left:
        _log.warning("reload: these count from the next start on: %s", ", ".join(left))
    _log.info("reloaded")
