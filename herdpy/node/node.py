"""herdpy.Node: a node of a cluster in a program's own process; also what `herdpy node` is told.

    node = herdpy.Node("./n1", zookeeper="127.0.0.1:2181", server=herdpy.ServerConfig(port=7000))
    with node.start() as running:
        with running.connect() as connection: ...

What is started is a HostedNode, on a loop in a thread of its own.
"""

import asyncio
import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from bookie.errors import ClientClosedError, IllegalOperationError
from bookie.runtime.drivers import new_mutex
from bookie.runtime.os_process import process_generation
from herdpy.config import Config, NodeConfig, ServerConfig
from herdpy.driver import local
from herdpy.driver.connection import Connection, connect
from herdpy.driver.dsn import DEFAULT_ROOT, DEFAULT_TABLESPACE, local_path
from herdpy.errors import Error, OperationalError, ProgrammingError, check_extra
from herdpy.node.addresses import (
    DEFAULT_ZOOKEEPER,
    address_for_clients,
    are_places,
    dsn_of,
    is_path,
)
from herdpy.node.place import ClusterPlace, absolute

if TYPE_CHECKING:
    from bookie.client.blocking import LoopThread
    from bookie.config import BookieConfig
    from herdpy.node.hosted import HostedNode

_log = logging.getLogger(__name__)


class Node:
    """What a node of a cluster is to be in this process; start() makes it one.

    Node(data, *, zookeeper="127.0.0.1:2181", root="/herd", id=None, server=None, database=None,
    settings=None, place=None): nothing is opened, asked or written by that.

    data: the node's directory, with its id and its copies; made if missing. zookeeper: "host:port",
    or several with commas between. root: where the cluster is there. id: the node's in the cluster;
    None: the directory's, of a new one by chance. server: how it serves clients; its port is one
    that is free, another one for each node of a process. database: of its copies. settings: of the
    node, also of a bookie beside it. None: the defaults. place: which cluster, in the place of
    zookeeper and root, where a login or TLS is needed: ClusterPlace.of_files().
    """

    def __init__(
        self,
        data: "str | os.PathLike[str]",
        *,
        zookeeper: str = DEFAULT_ZOOKEEPER,
        root: str = DEFAULT_ROOT,
        id: str | None = None,  # noqa: A002 - its name everywhere else, too
        server: ServerConfig | None = None,
        database: Config | None = None,
        settings: NodeConfig | None = None,
        place: ClusterPlace | None = None,
    ) -> None:
        """Take that; ProgrammingError 22023: a value that cannot be.

        InterfaceError: the extra `bookie` is not installed.
        """
        check_extra("bookie", "a node of a cluster")
        from herdpy.cluster.node_identity import check_id  # of the extra

        self.data, _ = local_path(data, "node: expected the directory of a node")
        if place is not None and (zookeeper, root) != (DEFAULT_ZOOKEEPER, DEFAULT_ROOT):
            raise ProgrammingError(
                "node: expected zookeeper and root, or a place that names them, found both",
                sqlstate="22023",
            )
        self.place = place or ClusterPlace(zookeeper, root)
        self.zookeeper, self.root = self.place.zookeeper, self.place.root
        if not are_places(self.zookeeper):
            raise ProgrammingError(
                f"node: zookeeper: expected host:port, or several with commas between, found "
                f"{self.zookeeper[:80]!r}",
                sqlstate="22023",
            )
        if not is_path(self.root):
            raise ProgrammingError(
                f"node: root: expected a path such as {DEFAULT_ROOT}, found {self.root[:80]!r}",
                sqlstate="22023",
            )
        if id is not None:
            check_id(id)
        self.id = id
        self.server = server or ServerConfig()
        self.database = database or Config()
        self.settings = settings or NodeConfig()
        self.address = address_for_clients(self.server, self.settings)
        self._tls_options = _tls_options(self.place, self.server)
        """Of its URLs. Paths in it are those of the working directory of now."""
        self._check_bookie()

    def start(self) -> "RunningNode":
        """Become a node of the cluster in this process, and return it; close() it, or use `with`.

        Returns when the node is registered: which tablespaces it has copies of, it has read by
        then or reads soon. Its threads are the process's: it handles no signals, sets up no
        logging, and changes nothing else of the process. Any thread, as often as there are nodes:
        each has its directory, its ports, its id. Ctrl-C gives it up.

        OperationalError 08001: ZooKeeper does not answer (SAFE); 58P01: there is no cluster at the
        root; 55006: another process has the directory or the id; 55000: the directory is another
        node's or cluster's; 58000: a port is taken; F0000: a file of TLS cannot be used; 58030: a
        directory cannot be used, or a bookie beside it. Nothing is left running, and the directory
        holds what it did, and a lock.
        """
        thread = local.new_loop_thread(f"herdpy-node-{self.id or 'new'}")
        hosted: HostedNode | None = None
        try:
            hosted = thread.call(self._host())
            thread.call(hosted.start())
            return RunningNode(self, hosted, thread)
        except BaseException:
            _end(hosted, thread)
            raise

    async def _host(self) -> "HostedNode":
        from herdpy.node.hosted import HostedNode  # of an extra

        return HostedNode(self)

    def __repr__(self) -> str:
        return f"<herdpy.Node {self.id or '(no id yet)'} in {self.data}>"

    # --- for the node that is started ------------------------------------------------------------

    def _check_bookie(self) -> None:
        """Refuse a bookie's directory inside the node's: neither takes one with other files."""
        directory = self.settings.bookie_directory
        if not directory:
            return
        if self.place.bookie_tls is not None:
            raise ProgrammingError(
                "node.bookie_directory: a bookie in the node's process serves in clear, and TLS to "
                "bookies is asked for",
                sqlstate="22023",
                hint="run it as `bookie serve` with TLS, or leave --bookie-tls-trust out",
            )
        path, where = local_path(directory, "node.bookie_directory: expected a directory")
        if f"{path}/".startswith(f"{self.data}/") or f"{self.data}/".startswith(f"{path}/"):
            raise ProgrammingError(
                f"node.bookie_directory: expected a directory beside the node's, found {where}; "
                f"the node's is {self.data}",
                sqlstate="22023",
                hint="name two, such as n1 and n1-bookie",
            )

    def url_options(self) -> dict[str, str]:
        """Return by which options of URLs a driver of this machine is let in; ProgrammingError."""
        return self.place.url_options() | self._tls_options

    def bookie_config(self) -> "BookieConfig | None":
        """Return how its bookie serves, but for its ledgers' root; None: there is none."""
        from bookie.config import BookieConfig  # of an extra

        settings = self.settings
        if not settings.bookie_directory:
            return None
        host = settings.advertised_address.rpartition(":")[0].strip("[]")
        return BookieConfig(
            host=self.server.host, port=settings.bookie_port, advertised_address=host or None
        )


def _tls_options(place: ClusterPlace, server: ServerConfig) -> dict[str, str]:
    """Return by which options of URLs a program speaks TLS with nodes as this one is."""
    if not server.tls_certificate:
        return {}
    options = {"tls": "on"}
    if place.node_tls_trust:
        options["tls_authority"] = absolute(place.node_tls_trust)
    if server.tls_client_authority:
        certificate, key = place.node_tls or (server.tls_certificate, server.tls_key)
        options |= {"tls_certificate": absolute(certificate), "tls_key": absolute(key)}
    return options


class RunningNode:
    """A node of a cluster in this process, until close(). Any thread but the node's own.

    That one runs handlers of its log, for example: close(), wait() and reload() raise 55000 there,
    since they would wait for themselves. So do wait() and reload() in a forked child, which has no
    node; close() does nothing there.
    """

    def __init__(self, node: Node, hosted: "HostedNode", thread: "LoopThread") -> None:
        self._node = node
        self._hosted = hosted
        self._thread = thread
        self._mutex = new_mutex()
        self._is_closed = False
        """close() has begun. Set under the mutex, once."""
        self._generation = process_generation()
        local.end_at_exit(self)

    @property
    def id(self) -> str:
        """Its id in the cluster."""
        return self._hosted.id

    @property
    def address(self) -> str:
        """Where clients reach it, "host:port", also those of other processes."""
        return self._node.address

    @property
    def parts(self) -> dict[str, str]:
        """What it is now for each tablespace that it has a copy of, by name.

        booting, following, taking over, leading, handing over, resigning or failed. Moments later
        it may be another part.
        """
        return self._hosted.parts

    @property
    def failure(self) -> Error | None:
        """Why it has ended by itself; None: it goes on, or was closed."""
        return self._hosted.failure

    def dsn(self, tablespace: str = DEFAULT_TABLESPACE, *, user: str = "") -> str:
        """Return the URL of a tablespace of the cluster, whichever node leads it.

        With the files by which the node itself is let in (ClusterPlace.of_files()), so it is for
        programs of this machine that may read them; no secret is in it. user: of the tablespace.
        ProgrammingError 22023: the node's login to ZooKeeper, or its trust, is of no file.
        """
        return dsn_of(
            self._node.zookeeper, self._node.root, tablespace, user, self._node.url_options()
        )

    def connect(
        self, tablespace: str = DEFAULT_TABLESPACE, *, user: str = "", **options: Any
    ) -> Connection:
        """Connect to a tablespace of the cluster, as herdpy.connect(dsn()) does with the options.

        user: of the tablespace, whose password is an option: `password="…"`. The connection goes on
        at another node when this one does not lead, or ends; it is the caller's, who closes it.
        """
        return connect(self.dsn(tablespace, user=user), **options)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the node has ended, by close() or by itself; False: it runs on.

        timeout_s: how long at most; None: there is no end of it. Error: why it has ended by
        itself, such as 55006: another process has its id. Then it is to be closed, too.
        """
        self._check_caller("wait")
        try:
            return self._thread.call(self._wait(timeout_s))
        except ClientClosedError:  # it has ended, to its thread
            if self.failure is not None:
                raise self.failure from None
            return True

    async def _wait(self, timeout_s: float | None) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self._hosted.wait()
        except TimeoutError:
            return False
        return True

    def reload(self, server: ServerConfig) -> list[str]:
        """Take up the settings that count at once, certificates, and a renamed audit log's file.

        Return the names of those that differ and count from the next start on. OperationalError: a
        file of TLS cannot be used; settings and certificates are as before.
        """
        self._check_caller("reload")
        if self._is_closed:
            raise OperationalError(
                f"node {self.id} was closed: it cannot be used any more", sqlstate="55000"
            )

        async def reload() -> list[str]:
            self._hosted.reopen_audit()
            return self._hosted.reload(server)

        return self._thread.call(reload())

    def _check_caller(self, call: str) -> None:
        """Raise OperationalError 55000 where a call would wait without an end."""
        if process_generation() != self._generation:
            raise OperationalError(
                f"node {self.id}: {call}() in a forked child, which has no node",
                sqlstate="55000",
                hint="the node is the parent's; start programs by subprocess, or multiprocessing's "
                "spawn",
            )
        try:
            self._thread.check_caller()
        except IllegalOperationError:
            raise OperationalError(
                f"node {self.id}: {call}() in the node's own thread, which would wait for itself",
                sqlstate="55000",
                hint="call it in another thread: this one runs handlers of logs, for example",
            ) from None

    def close(self) -> None:
        """Have other nodes lead what this one leads, if any are level, and end; repeatable.

        What open transactions have, and how long it may take, are settings: `drain_timeout_s` of
        the server. Its bookie ends behind it. While ZooKeeper is away it ends after some seconds.
        While another thread closes it this waits for the same end; so does a handler of a signal
        that comes meanwhile. Error: something could not be closed; all else is.
        """
        if process_generation() != self._generation:
            return
        self._check_caller("close")
        with self._mutex:
            is_first, self._is_closed = not self._is_closed, True
        if is_first:
            local.keep_at_exit(self)
            _end(self._hosted, self._thread)
        else:
            with suppress(ClientClosedError):  # it has ended
                self._thread.call(self._hosted.close())

    def end(self) -> None:
        """End its threads as the interpreter ends, for a program that has not closed it."""
        if self._is_closed or process_generation() != self._generation:
            return
        self._is_closed = True
        _log.warning(
            "node %s: the program ends and has not closed it, so for the cluster it is one that "
            "was killed: use `with`, or close()",
            self.id,
        )
        self._thread.abandon()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else self.address
        return f"<herdpy.RunningNode {self.id}: {state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _end(hosted: "HostedNode | None", thread: "LoopThread") -> None:
    try:
        if hosted is not None:
            thread.call(hosted.close())
    finally:
        thread.close()
