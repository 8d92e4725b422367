"""`herdpy node`: one node of a cluster, until SIGTERM or Ctrl-C."""

import asyncio
import logging
import signal
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from rich.console import Console

from bookie.runtime.os_executors import new_executor, new_loop
from bookie.runtime.os_log import LineWriter
from herdpy.cli.cluster.options import as_herdpy_errors, session
from herdpy.cli.logs import set_up_logs
from herdpy.cli.serve import frequent_switches, listening, rare_collections
from herdpy.cli.settings import Loaded
from herdpy.cli.system import make_room, notify
from herdpy.cluster.database_copy import DatabaseCopy
from herdpy.cluster.node import Node, World
from herdpy.config import ServerConfig
from herdpy.driver.local import disk_of_directory, new_world
from herdpy.errors import OperationalError, ProgrammingError
from herdpy.model.governor import Governor
from herdpy.server.server import Server

_log = logging.getLogger(__name__)
_ANY_ADDRESS = ("0.0.0.0", "::", "")  # noqa: S104 - to be refused as an address for clients


def run_node(
    zookeeper: str,
    root: str,
    data: Path,
    node_id: str | None,
    loaded: Loaded,
    *,
    console: Console,
) -> None:
    """Be a node until a signal; herdpy.Error when that cannot begin, or must not go on."""
    address = _address(loaded)
    log = set_up_logs(loaded.server.log_level, loaded.server.log_format)
    make_room(loaded.server)
    with (
        rare_collections(),
        frequent_switches(loaded.server.switch_interval_us / 1e6),
        asyncio.Runner(loop_factory=new_loop) as runner,
        as_herdpy_errors("node"),
    ):
        runner.run(_live(zookeeper, root, data, node_id, address, loaded, console, [log]))


def _address(loaded: Loaded) -> str:
    """Return where clients reach this node's server, which is registered before it listens."""
    server = loaded.server
    if loaded.node.advertised_address:
        return loaded.node.advertised_address
    if server.port == 0:
        raise ProgrammingError(
            "server.port: expected the port that clients are to find, found 0",
            sqlstate="22023",
            hint="a node registers its address before it listens: name a port",
        )
    if server.host in _ANY_ADDRESS:
        raise ProgrammingError(
            f"server.host: {server.host!r} is no address that clients reach",
            sqlstate="22023",
            hint="name what they are to connect to: --advertised-address HOST:PORT",
        )
    host = f"[{server.host}]" if ":" in server.host else server.host
    return f"{host}:{server.port}"


async def _live(
    zookeeper: str,
    root: str,
    data: Path,
    node_id: str | None,
    address: str,
    loaded: Loaded,
    console: Console,
    lines: Sequence[LineWriter],
) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    stopping = loop.create_task(stop.wait())
    services: list[LeaderService] = []

    def new_service(copy: DatabaseCopy) -> LeaderService:
        service = LeaderService(copy, loaded.server, lines)
        services.append(service)
        return service

    async with session(zookeeper, loaded.node.session_timeout_s) as store:
        node = Node(
            store,
            _world(data),
            root=root,
            node_id=node_id,
            address=address,
            config=loaded.node,
            database=loaded.database,
            new_service=new_service,
        )
        starting = loop.create_task(node.start())
        try:
            await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                await starting
                console.print(f"node {node.id} of {zookeeper}{root}, for clients at {address}")
                console.print("stop with Ctrl-C", style="dim")
                notify("READY=1", f"STATUS=node {node.id} of {zookeeper}{root}")
                failing = loop.create_task(node.wait_failed())
                await asyncio.wait([failing, stopping], return_when=asyncio.FIRST_COMPLETED)
                if failing.done():
                    raise failing.result()
                failing.cancel()
            notify("STOPPING=1", "STATUS=open transactions have time to end")
            _log.info("node %s: stopping", node.id)
            for service in services:
                service.drain_s = loaded.server.drain_timeout_s
        finally:
            stopping.cancel()
            starting.cancel()
            await asyncio.gather(starting, stopping, return_exceptions=True)
            await node.close()


def _world(data: Path) -> World:
    clock, rng, driver = new_world()
    where = str(data.resolve())
    return World(
        open_disk=lambda folder: disk_of_directory(f"{where}/{folder}" if folder else where),
        where=where,
        clock=clock,
        rng=rng,
        driver=driver,
        new_executor=new_executor,
        governor=Governor(),
    )


class LeaderService:
    """The server of a node, while it leads (herdpy.cluster.member.Service)."""

    def __init__(
        self, copy: DatabaseCopy, config: ServerConfig, lines: Sequence[LineWriter]
    ) -> None:
        self._copy = copy
        self._config = config
        self._lines = lines
        self._server: Server | None = None
        self.drain_s = 0.0
        """What open transactions get when it stops; where another node leads they end at once."""

    async def serve(self) -> None:
        config, database = self._config, self._copy.database
        if database is None:
            raise OperationalError("the copy was closed meanwhile", sqlstate="57P01")
        name = f"herdpy {version('herdpy-db')}"
        server = self._server = Server(database, name=name, config=config, lines=self._lines)
        if config.http_port >= 0:
            with listening("node", config.http_host, config.http_port, "--http-port"):
                await server.start_http(config.http_host, config.http_port)
        with listening("node", config.host, config.port, "--port"):
            await server.start(config.host, config.port)
        if config.grpc_port >= 0:
            with listening("node", config.host, config.grpc_port, "--grpc-port"):
                await server.start_grpc(config.host, config.grpc_port)

    async def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.drain(self.drain_s)
            await server.close()
