"""HostedNode: a node of a cluster with all that it needs in its process, on one asyncio loop.

    hosted = HostedNode(node)
    await hosted.start()
    await hosted.wait()          # until it must not go on; or its owner
    await hosted.close()         # hands over what it leads, and ends

`herdpy node` and herdpy.Node.start() run this and nothing else. It handles no signals, sets up no
logging and changes no setting of the process: those are the program's.
"""

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from bookie.config import BookieConfig
from bookie.errors import BookieError
from bookie.hosting import bookie_in, check_openness
from bookie.runtime.os_log import LineWriter
from herdpy.cluster.cluster_record import read_cluster
from herdpy.cluster.node import Node as ClusterNode
from herdpy.config import ServerConfig
from herdpy.driver.local import node_world
from herdpy.errors import Error, InternalError, OperationalError, check_extra
from herdpy.node.addresses import check_port
from herdpy.node.place import as_herdpy_error, as_herdpy_errors
from herdpy.node.services import NodeServices
from herdpy.server.login.audit_file import AuditFile, open_audit

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from bookie.hosting import BookieNode
    from herdpy.node.node import Node

_log = logging.getLogger(__name__)


class HostedNode:
    """See the module. Made on its loop; close() it in any case."""

    def __init__(self, node: "Node", lines: "Sequence[LineWriter]" = ()) -> None:
        """lines: what writes the process's logs, whose losses are shown."""
        self._asked = node
        self._lines = lines
        self._loop = asyncio.get_running_loop()
        self._stack = AsyncExitStack()
        """What was started, closed from the end."""
        self._audit: AuditFile | None = None
        self._services: NodeServices | None = None
        self._node: ClusterNode | None = None
        self._starting: asyncio.Task[None] | None = None
        self._is_started = False
        self.failure: Error | None = None
        """Why it could not go on; None: it does, or was closed by its owner."""
        self._watching: list[asyncio.Task[None]] = []
        self._closing: asyncio.Task[None] | None = None
        self._ended: asyncio.Future[None] = self._loop.create_future()

    @property
    def id(self) -> str:
        """Of the node; "": not known yet."""
        return "" if self._node is None else self._node.id

    @property
    def parts(self) -> dict[str, str]:
        """What it is now for each tablespace that it has a copy of, by name. Any thread."""
        node = self._node
        return {} if node is None else {name: part.value for name, part in node.parts.items()}

    async def start(self) -> None:
        """Become a node of the cluster, with a bookie beside it if one is asked for.

        Error: as cluster.node.Node.start(), 08001: ZooKeeper does not answer, 58000: a port is
        taken. Nothing was written then but what the bookie needs.
        """
        starting = self._starting = self._loop.create_task(self._start())
        with as_herdpy_errors("node"):
            await starting
        self._is_started = True
        _log.info("node %s: started, for clients at %s", self.id, self._asked.address)

    async def _start(self) -> None:
        asked, stack = self._asked, self._stack
        if asked.server.grpc_port >= 0:
            check_extra("server", "a gRPC port")
        bookie = asked.bookie_config()
        if bookie is not None and asked.settings.bookie_access == "machine":
            check_openness(
                bookie.host,
                f"a bookie at {bookie.host}",
                "expected an address of this machine alone, as 127.0.0.1; in a network that keeps "
                "strangers out: node.bookie_access=network, or a `bookie serve` with TLS",
            )
        world = node_world(asked.data)
        if asked.server.audit_log:
            self._audit = open_audit(asked.server.audit_log, world.clock)
            stack.callback(self._audit.close)
        audit = self._audit
        services = self._services = NodeServices(
            asked.server,
            world.clock,
            lines=[*self._lines] if audit is None else [*self._lines, audit.lines],
            write_audit=None if audit is None else audit.write,
        )
        stack.push_async_callback(services.close)
        stack.push_async_callback(services.health.close)
        await services.listen()
        await services.start_health()
        if bookie is not None:
            await check_port(bookie.host, bookie.port, "--bookie-port, node.bookie_port")
        timeout_s = asked.settings.session_timeout_s
        store = await stack.enter_async_context(asked.place.session(timeout_s))
        if bookie is not None:
            await self._start_bookie(bookie, (await read_cluster(store, asked.root)).ledgers)
        node = self._node = ClusterNode(
            store,
            world,
            root=asked.root,
            node_id=asked.id,
            address=asked.address,
            config=asked.settings,
            database=asked.database,
            new_service=services.new,
            version=version("herdpy-db"),
            has_tls=bool(asked.server.tls_certificate),
            bookie_tls=asked.place.bookie_tls,
            figures=services.figures,
        )
        stack.push_async_callback(node.close)
        await node.start()
        self._watch(node.wait_failed())

    async def _start_bookie(self, config: BookieConfig, ledgers: str) -> None:
        """Have a bookie of the cluster's BookKeeper, by a session of its own, until the end."""
        asked, stack = self._asked, self._stack
        store = await stack.enter_async_context(
            asked.place.session(asked.settings.session_timeout_s)
        )
        try:
            found = await stack.enter_async_context(
                bookie_in(
                    store, asked.settings.bookie_directory, replace(config, ledgers_root=ledgers)
                )
            )
        except OSError as error:
            raise OperationalError(
                f"node: the bookie in {asked.settings.bookie_directory}: {error}", sqlstate="58030"
            ) from error
        self._watch(_failure_of(found))

    def reload(self, config: ServerConfig) -> list[str]:
        """Take up certificates that were read again, and settings; return those it cannot.

        Error: all is as before.
        """
        self._asked.place.look_at_files()
        return [] if self._services is None else self._services.reload(config)

    def reopen_audit(self) -> None:
        """Go on in a new file of the audit log where the old one was renamed."""
        if self._audit is not None:
            self._audit.reopen()

    # --- the end ---------------------------------------------------------------------------------

    def _watch(self, failing: "Coroutine[Any, Any, Error]") -> None:
        """End with an error as soon as there is one."""

        async def watch() -> None:
            error = await failing
            if self._closing is None:
                _log.error("node %s: it cannot go on: %s", self.id, error)
                self.failure = error
                self._closing = self._loop.create_task(self._close())

        self._watching.append(self._loop.create_task(watch()))

    async def wait(self) -> None:
        """Wait until it has ended: by close(), or with the failure that is raised then."""
        await asyncio.shield(self._ended)
        if self.failure is not None:
            raise self.failure

    async def close(self) -> None:
        """Have other nodes lead what this one leads, if any are level, and end; repeatable.

        Open transactions have drain_timeout_s to end. What started is given back, also where the
        start failed, or was cancelled.
        """
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        try:
            for task in self._watching:
                task.cancel()
            if self._starting is not None and not self._starting.done():
                self._starting.cancel()
                await asyncio.wait([self._starting])
            services, node = self._services, self._node
            try:
                if node is not None and services is not None and self._may_hand_over:
                    _log.info("node %s: stopping", node.id)
                    services.drain_s = services.config.drain_timeout_s
                    await node.give_away(services.drain_s)
            finally:
                with as_herdpy_errors("node"):
                    await self._stack.aclose()
            if node is not None:
                _log.info("node %s: ended", node.id)
        finally:
            self._ended.set_result(None)

    @property
    def _may_hand_over(self) -> bool:
        return self._is_started and self.failure is None


async def _failure_of(bookie: "BookieNode") -> Error:
    """Return why a bookie has ended by itself, as soon as it has."""
    try:
        await bookie.wait()
    except BookieError as error:
        return as_herdpy_error("node: its bookie", error)
    return InternalError("node: its bookie ended")
