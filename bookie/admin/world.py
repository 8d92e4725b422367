"""What the commands share: the loop, the metadata store, a client of the ledgers, options."""

import asyncio
import functools
import math
import re
import ssl
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click

from bookie.admin.output import Output
from bookie.client.client import LedgerClient
from bookie.config import ClientConfig
from bookie.management.cluster import ClusterOperations
from bookie.metadata import zookeeper_login
from bookie.metadata.cluster import DEFAULT_ROOT, read_layout
from bookie.metadata.interfaces import VersionedStore
from bookie.metadata.zookeeper import ZooKeeperStore
from bookie.metadata.zookeeper_login import Login
from bookie.runtime.os_clock import OsClock
from bookie.runtime.os_rng import OsRng
from bookie.runtime.os_tls import files as tls_files
from bookie.runtime.os_tls.files import TlsContexts

DEFAULT_ZOOKEEPER = "127.0.0.1:2181"
LOGIN_VARIABLE = "BOOKIE_ZOOKEEPER_LOGIN"
LOGIN_FILE_VARIABLE = "BOOKIE_ZOOKEEPER_LOGIN_FILE"
SESSION_TIMEOUT_S = 10.0
_SILENT_S = 2.0
"""After so long an operator at a terminal is told what the command waits for."""
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+)(:(\d{1,5}))?")
_ROOT = re.compile(r"(/[^/\s]+)+")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cluster:
    """The metadata of one cluster: ZooKeeper's servers ("h1:2181,h2:2181") and the root there."""

    zookeeper: str
    root: str
    tls: TlsContexts | None = None
    """What clients of its bookies ask for TLS with; None: they speak in clear."""
    logins: tuple[Login, ...] = ()
    """How sessions log in to ZooKeeper."""
    is_secured: bool = False
    """Nodes that are made are for these logins alone."""
    zookeeper_tls: TlsContexts | None = None
    """What ZooKeeper is asked for TLS with; None: it is spoken to in clear."""

    @property
    def uri(self) -> str:
        """As Apache BookKeeper's tools take it."""
        return f"zk+null://{self.zookeeper.replace(',', ';')}{self.root}"

    @staticmethod
    def of(zookeeper: str, root: str | None) -> "Cluster":
        """Take hosts and root, or Apache's URI ("zk+hierarchical://h1:2181;h2:2181/ledgers").

        BadParameter for what is neither.
        """
        if "://" not in zookeeper:
            return Cluster._checked(zookeeper, root or DEFAULT_ROOT)
        try:
            parts = urlsplit(zookeeper)
        except ValueError:  # brackets that do not hold an IPv6 address
            parts = None
        if parts is None or not parts.scheme.startswith("zk") or not parts.netloc:
            raise click.BadParameter(
                f"expected hosts or zk+hierarchical://host:port/root, found {zookeeper!r}",
                param_hint="--zookeeper",
            )
        hosts = parts.netloc.replace(";", ",")
        return Cluster._checked(hosts, root or parts.path.rstrip("/") or DEFAULT_ROOT)

    @staticmethod
    def _checked(hosts: str, root: str) -> "Cluster":
        for host in hosts.split(","):
            match = _HOST.fullmatch(host)
            if match is None or (match[3] is not None and not 0 < int(match[3]) <= 65535):
                raise click.BadParameter(
                    f"expected host:port, or several with commas between, found {hosts!r}",
                    param_hint="--zookeeper",
                )
        root = root.rstrip("/")
        if not _ROOT.fullmatch(root):
            raise click.BadParameter(
                f"expected a path like {DEFAULT_ROOT}, found {root!r}", param_hint="--root"
            )
        return Cluster(hosts, root)

    @asynccontextmanager
    async def session(self, timeout_s: float = SESSION_TIMEOUT_S) -> AsyncGenerator[ZooKeeperStore]:
        """Open a session for the block; StoreUnreachableError when ZooKeeper does not answer."""
        telling = asyncio.get_running_loop().call_later(_SILENT_S, self._tell_of_waiting)
        try:
            store = await ZooKeeperStore.connect(
                self.zookeeper,
                timeout_s,
                logins=self.logins,
                is_secured=self.is_secured,
                tls=self.zookeeper_tls,
            )
        finally:
            telling.cancel()
        try:
            yield store
        finally:
            await store.close()

    def _tell_of_waiting(self) -> None:
        if sys.stderr.isatty():
            click.echo(f"waiting for ZooKeeper at {self.zookeeper}", err=True)

    @asynccontextmanager
    async def existing(self) -> AsyncGenerator[ZooKeeperStore]:
        """Open a session for the block; IllegalOperationError when there is no cluster at root."""
        async with self.session() as store:
            await read_layout(store, self.root)
            yield store

    @asynccontextmanager
    async def client(self, config: ClientConfig | None = None) -> AsyncGenerator[LedgerClient]:
        """Open a ledger client with a session of its own for the block."""
        async with self.existing() as store, self.client_of(store, config) as client:
            yield client

    @asynccontextmanager
    async def client_of(
        self, store: VersionedStore, config: ClientConfig | None = None
    ) -> AsyncGenerator[LedgerClient]:
        """Open a ledger client over a session for the block."""
        client = await LedgerClient.connect(
            store,
            root=self.root,
            config=config or ClientConfig(),
            rng=OsRng(),
            clock=OsClock(),
            tls=self.tls,
        )
        try:
            yield client
        finally:
            await client.close()


class Seconds(click.FloatRange):
    """A range of seconds. click takes NaN for a number within every range."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        found = float(super().convert(value, param, ctx))
        if math.isnan(found):
            self.fail(f"{value!r} is no number of seconds", param, ctx)
        return found


def operations(cluster: Cluster, store: ZooKeeperStore) -> ClusterOperations:
    """Return what is asked of a cluster over a session."""
    return ClusterOperations(store, cluster.root, OsRng(), OsClock(), cluster.tls)


def json_option(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command --json; it gets `output`, and what it raises becomes an exit code."""

    @click.option("--json", "is_json", is_flag=True, help="Print JSON, one value a line.")
    @functools.wraps(command)
    def wrapped(*arguments: Any, is_json: bool, **options: Any) -> None:
        output = Output(is_json=is_json)
        with output.exits():
            command(*arguments, output=output, **options)

    return wrapped


def cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command what names a cluster, and --json; it gets `cluster` and `output`."""

    @click.option(
        "--zookeeper",
        envvar="BOOKIE_ZOOKEEPER",
        show_envvar=True,
        default=DEFAULT_ZOOKEEPER,
        show_default=True,
        metavar="HOSTS",
        help="ZooKeeper's servers, with commas between; or Apache's zk+… URI.",
    )
    @click.option(
        "--root",
        envvar="BOOKIE_ROOT",
        show_envvar=True,
        metavar="PATH",
        help=f"The ZooKeeper node with the cluster's metadata.  [default: {DEFAULT_ROOT}]",
    )
    @click.option(
        "--zookeeper-login",
        envvar=LOGIN_FILE_VARIABLE,
        show_envvar=True,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Log in to ZooKeeper: lines `digest USER:PASSWORD` or `sasl USER:PASSWORD`, in a file "
        f"that only its owner reads. The line itself may be in {LOGIN_VARIABLE}.",
    )
    @click.option(
        "--zk-enable-security",
        "is_secured",
        envvar="BOOKIE_ZK_ENABLE_SECURITY",
        show_envvar=True,
        is_flag=True,
        help="As BookKeeper's zkEnableSecurity: nodes that are made in ZooKeeper are for this "
        "login alone. Needs --zookeeper-login.",
    )
    @click.option(
        "--zookeeper-tls-trust",
        envvar="BOOKIE_ZOOKEEPER_TLS_TRUST",
        show_envvar=True,
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help="PEM file: talk to ZooKeeper by TLS, at its secureClientPort; the certificates of its "
        "servers are signed by these.",
    )
    @click.option(
        "--zookeeper-tls",
        nargs=2,
        type=click.Path(exists=True, dir_okay=False),
        metavar="CERTIFICATE KEY",
        help="PEM files: shown to ZooKeeper (ssl.clientAuth). Needs --zookeeper-tls-trust.",
    )
    @json_option
    @functools.wraps(command)
    def wrapped(
        *arguments: Any,
        zookeeper: str,
        root: str | None,
        zookeeper_login: Path | None,
        is_secured: bool,
        zookeeper_tls_trust: str | None,
        zookeeper_tls: tuple[str, str] | None,
        **options: Any,
    ) -> None:
        cluster = replace(
            Cluster.of(zookeeper, root),
            logins=read_logins(zookeeper_login),
            is_secured=is_secured,
            zookeeper_tls=client_contexts(
                zookeeper_tls_trust, zookeeper_tls, "--zookeeper-tls-trust", "TLS to ZooKeeper"
            ),
        )
        command(*arguments, cluster=cluster, **options)

    return wrapped


def read_logins(path: Path | None) -> tuple[Login, ...]:
    """Return the logins of a file, or else of the environment; none: (). BookieStartError."""
    return zookeeper_login.read_logins(
        "--zookeeper-login", None if path is None else str(path), LOGIN_VARIABLE
    )


def client_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that talks to bookies cluster_options(), and --tls-trust and --tls."""

    @click.option(
        "--tls-trust",
        envvar="BOOKIE_TLS_TRUST",
        show_envvar=True,
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help="PEM file: talk to the bookies by TLS; their certificates are signed by these.",
    )
    @click.option(
        "--tls",
        nargs=2,
        type=click.Path(exists=True, dir_okay=False),
        metavar="CERTIFICATE KEY",
        help="PEM files: shown to bookies that ask clients for a certificate. Needs --tls-trust.",
    )
    @cluster_options
    @functools.wraps(command)
    def wrapped(
        *arguments: Any,
        cluster: Cluster,
        tls_trust: str | None,
        tls: tuple[str, str] | None,
        **options: Any,
    ) -> None:
        secured = replace(cluster, tls=client_contexts(tls_trust, tls))
        command(*arguments, cluster=secured, **options)

    return wrapped


def client_contexts(
    trust_path: str | None,
    certificate: tuple[str, str] | None,
    option: str = "--tls-trust",
    what: str = "TLS to bookies",
) -> TlsContexts | None:
    """Return what a client asks for TLS with; BadParameter names what cannot be used.

    option: that trust_path comes from; the certificate's begins so, too. It looks for new files
    only in what kept() is given.
    """
    try:
        return tls_files.contexts_of_options(trust_path, certificate, option, what)
    except tls_files.OptionError as error:
        raise click.BadParameter(error.reason, param_hint=error.option) from error


def client_context(
    trust_path: str | None, certificate: tuple[str, str] | None, option: str = "--tls-trust"
) -> ssl.SSLContext | None:
    """Return client_contexts(), of these files for good: for a command that ends soon."""
    contexts = client_contexts(trust_path, certificate, option)
    return None if contexts is None else contexts.current


password_option = click.option(
    "--password",
    envvar="BOOKIE_PASSWORD",
    show_envvar=True,
    default="",
    help="The ledger's password.  [default: empty]",
)
