"""`herdpy node`: one node of a cluster, until SIGTERM or Ctrl-C."""

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

from rich.console import Console

from bookie.runtime.os_executors import new_executor, run, stop_event
from bookie.runtime.os_log import LineWriter
from herdpy.cli.audit_file import AuditFile
from herdpy.cli.cluster.options import is_place
from herdpy.cli.cluster.place import ClusterPlace, as_herdpy_errors
from herdpy.cli.logs import set_up_logs
from herdpy.cli.serve import frequent_switches, listening, open_audit, rare_collections
from herdpy.cli.settings import Loaded
from herdpy.cli.system import make_room, notify
from herdpy.cluster.database_copy import DatabaseCopy
from herdpy.cluster.node import Node, World
from herdpy.cluster.node_identity import check_id
from herdpy.cluster.observability.figures import NodeFigures
from herdpy.cluster.served_part import ServedPart
from herdpy.cluster.tenure import Tenure
from herdpy.config import ServerConfig
from herdpy.driver.local import disk_of_directory, new_world
from herdpy.errors import Error, OperationalError, ProgrammingError
from herdpy.model.governor import Governor
from herdpy.server.operations.health import HealthServer
from herdpy.server.server import Server
from herdpy.server.shared_port import SharedPort

_log = logging.getLogger(__name__)
_LISTEN_AGAIN_S = 0.5
_ANY_ADDRESS = ("0.0.0.0", "::", "")  # noqa: S104 - to be refused as an address for clients


def run_node(
    place: ClusterPlace,
    data: Path,
    node_id: str | None,
    load: Callable[[], Loaded],
    *,
    console: Console,
) -> None:
    """Be a node until a signal; herdpy.Error when that cannot begin, or must not go on.

    load: gives the settings, and again at SIGHUP.
    """
    if node_id is not None:
        check_id(node_id)
    loaded = load()
    address = _address(loaded)
    log = set_up_logs(loaded.server.log_level, loaded.server.log_format)
    if loaded.server.log_level != "debug":  # it tells of each try to connect
        logging.getLogger("bookie.kazoo").setLevel(logging.ERROR)
    make_room(loaded.server)
    world = _world(data)
    config = loaded.server
    audit = open_audit(config.audit_log, world.clock) if config.audit_log else None
    services = _Services(config, [log], audit, lambda: load().server)
    try:
        with (
            rare_collections(),
            frequent_switches(config.switch_interval_us / 1e6),
            as_herdpy_errors("node"),
        ):
            run(_live(place, world, node_id, address, loaded, services, console))
    finally:
        if audit is not None:
            audit.close()


def _address(loaded: Loaded) -> str:
    """Return where clients reach this node's server, which is registered before it listens."""
    server = loaded.server
    advertised = loaded.node.advertised_address
    if advertised and not is_place(advertised):
        raise ProgrammingError(
            f"node.advertised_address: expected HOST:PORT, found {advertised[:80]!r}",
            sqlstate="22023",
            hint="name what clients are to connect to, such as db1.example.org:7000",
        )
    if advertised:
        return advertised
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


async def _check_ports(config: ServerConfig) -> None:
    """Say now which address cannot be had: a node that leads and cannot listen serves no client."""
    for host, port, option in (
        (config.host, config.port, "--port"),
        (config.host, config.grpc_port, "--grpc-port"),
        (config.http_host, config.http_port, "--http-port"),
    ):
        if port > 0:
            with listening("node", host, port, option):
                server = await asyncio.get_running_loop().create_server(
                    asyncio.Protocol, host, port, start_serving=False
                )
            server.close()
            await server.wait_closed()


def _world(data: Path) -> World:
    clock, rng, driver = new_world()
    where = str(data.resolve())
    return World(
        open_disk=lambda folder: disk_of_directory(f"{where}/{folder}" if folder else where),
        where=where,
        clock=clock,
        elapsed=clock.elapsed,
        rng=rng,
        driver=driver,
        new_executor=new_executor,
        governor=Governor(),
    )


async def _live(
    place: ClusterPlace,
    world: World,
    node_id: str | None,
    address: str,
    loaded: Loaded,
    services: "_Services",
    console: Console,
) -> None:
    loop = asyncio.get_running_loop()
    stop = stop_event()

    def reload() -> None:
        place.look_at_files()
        services.reload()

    loop.add_signal_handler(signal.SIGHUP, reload)
    await _check_ports(loaded.server)
    await services.start_health()
    stopping = loop.create_task(stop.wait())
    connected = place.session(loaded.node.session_timeout_s)
    try:
        async with connected as store:
            node = Node(
                store,
                world,
                root=place.root,
                node_id=node_id,
                address=address,
                config=loaded.node,
                database=loaded.database,
                new_service=services.new,
                version=version("herdpy-db"),
                has_tls=bool(loaded.server.tls_certificate),
                bookie_tls=place.bookie_tls,
                figures=services.figures,
            )
            starting = loop.create_task(node.start())
            failing = loop.create_task(node.wait_failed())
            try:
                await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
                if starting.done():
                    await starting
                    where = f"{place.zookeeper}{place.root}"
                    console.print(f"node {node.id} of {where}, for clients at {address}")
                    console.print("stop with Ctrl-C", style="dim")
                    notify("READY=1", f"STATUS=node {node.id} of {where}")
                    await asyncio.wait([failing, stopping], return_when=asyncio.FIRST_COMPLETED)
                    if failing.done():
                        raise failing.result()
                notify("STOPPING=1", "STATUS=open transactions have time to end")
                _log.info("node %s: stopping", node.id)
                services.drain_s = loaded.server.drain_timeout_s
                await node.give_away(services.drain_s)
            finally:
                for task in (starting, failing):
                    task.cancel()
                await asyncio.gather(starting, failing, return_exceptions=True)
                await node.close()
                _log.info("node %s: ended", node.id)
    finally:
        stopping.cancel()
        await services.health.close()


class _Services:
    """What the servers of this process share: settings, logs; one for each opening of a copy."""

    def __init__(
        self,
        config: ServerConfig,
        lines: Sequence[LineWriter],
        audit: AuditFile | None,
        load_again: Callable[[], ServerConfig],
    ) -> None:
        self.config = config
        self.write_audit = None if audit is None else audit.write
        self.lines = [*lines] if audit is None else [*lines, audit.lines]
        self.figures = NodeFigures()
        self.health = HealthServer(self.figures)
        """As long as the process, whichever server there is."""
        self._audit = audit
        self._load_again = load_again
        self.drain_s = 0.0
        """What open transactions get when a server stops: none where the copy has to be closed."""
        self.servers: dict[Server, None] = {}
        self.port = SharedPort()
        self._of_grpc: Server | None = None
        self._passing = asyncio.Lock()

    def new(self, tablespace: str, copy: DatabaseCopy) -> "NodeService":
        self.port.carry(tablespace)
        return NodeService(self, tablespace, copy)

    async def listen_for_grpc(self) -> None:
        """Let one server listen for gRPC, the oldest that clients are let in to.

        OperationalError: the port is taken; the next call tries again.
        """
        host, port = self.config.host, self.config.grpc_port
        async with self._passing:
            if self._of_grpc in self.servers or port < 0:
                return
            oldest = next((each for each in self.servers if each.is_listening), None)
            if oldest is not None:
                with listening("node", host, port, "--grpc-port"):
                    await oldest.start_grpc(host, port)
            self._of_grpc = oldest

    async def start_health(self) -> None:
        """Serve the pages of health.py, where the settings say so; OperationalError."""
        host, port = self.config.http_host, self.config.http_port
        if port >= 0:
            with listening("node", host, port, "--http-port"):
                await self.health.start(host, port)

    def reload(self) -> None:
        """Take up settings, certificates, and a new audit log when the old one was renamed."""
        if self._audit is not None:
            self._audit.reopen()
        try:
            config = self._load_again()
            for server in self.servers:
                server.reload(config)
        except Error as error:
            _log.error("reload: settings and certificates stay as they were: %s", error)
            return
        self.config = config
        logging.getLogger().setLevel(config.log_level.upper())
        _log.info("reloaded")


class NodeService:
    """The server of a node, while its copy is open (herdpy.cluster.member.Service)."""

    def __init__(self, shared: _Services, tablespace: str, copy: DatabaseCopy) -> None:
        self._shared = shared
        self._tablespace = tablespace
        self._copy = copy
        self._server: Server | None = None
        self._listening: asyncio.Task[None] | None = None
        self._trying = asyncio.Lock()
        self._listens = False

    async def begin(self, part: ServedPart) -> None:
        shared, database = self._shared, self._copy.database
        if database is None:
            raise OperationalError("the copy was closed meanwhile", sqlstate="57P01")
        server = self._server = Server(
            database,
            name=f"herdpy {version('herdpy-db')}",
            config=shared.config,
            write_audit=shared.write_audit,
            lines=shared.lines,
            part=part,
            tablespace=self._tablespace,
            port=shared.port,
        )
        shared.servers[server] = None
        server.show_at(shared.health)
        self._listening = asyncio.get_running_loop().create_task(self._try_to_listen(server))

    async def serve(self, tenure: Tenure) -> None:
        server = self._server
        assert server is not None
        await self._listen(server)

    async def drain(self, timeout_s: float, check: Callable[[], object]) -> None:
        server = self._server
        assert server is not None
        await server.drain_transactions(timeout_s, check)

    async def _try_to_listen(self, server: Server) -> None:
        """Let clients in as soon as it may: users, without whom it may not, come by the log."""
        is_told = False
        while True:
            try:
                await self._listen(server)
                return
            except Error as error:
                if not is_told:
                    _log.warning("node: no client is let in yet: %s", error)
                is_told = True
            await asyncio.sleep(_LISTEN_AGAIN_S)

    async def _listen(self, server: Server) -> None:
        """Let clients in; nothing to do where they are."""
        config = self._shared.config
        async with self._trying:
            if self._listens:
                return
            with listening("node", config.host, config.port, "--port"):
                await server.start(config.host, config.port)
            self._listens = True
            await self._shared.listen_for_grpc()

    def close(self) -> None:
        self._shared.port.forget(self._tablespace)

    async def stop(self) -> None:
        server, self._server = self._server, None
        trying, self._listening = self._listening, None
        if trying is not None:
            trying.cancel()
            await asyncio.wait([trying])
        self._listens = False
        if server is not None:
            del self._shared.servers[server]
            await server.drain(self._shared.drain_s)
            server.hide_at(self._shared.health)
            await server.close()
            try:
                await self._shared.listen_for_grpc()
            except Error as error:  # which is not this copy's, that is to be closed
                _log.error("node: no other tablespace is served by gRPC: %s", error)
