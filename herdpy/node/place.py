"""ClusterPlace: which cluster a command, or a node, means, and how it is let in there.

By ZooKeeper's servers and the root there; by a login, by TLS to ZooKeeper and to the bookies. Made
of the options of commands, and by programs (of_files()). Passwords come from files that only their
owner reads, or from the environment: what stands on a command line all users of the machine can
see.
"""

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bookie.errors import BookieError, BookieStartError, StoreAccessError, StoreUnreachableError
from bookie.errors import Retry as BookieRetry
from bookie.runtime.os_input_files import kept
from herdpy.driver.dsn import DEFAULT_ROOT
from herdpy.errors import OperationalError, ProgrammingError, Retry

if TYPE_CHECKING:
    from bookie.metadata.acl import Identity
    from bookie.metadata.zookeeper import ZooKeeperStore
    from bookie.metadata.zookeeper_login import Login
    from bookie.runtime.os_tls.files import TlsContexts

LOGIN_VARIABLE = "HERDPY_ZOOKEEPER_LOGIN"
ALL_READERS = "anyone"
"""In the place of a file of readers: no login is needed."""
_SESSION_TIMEOUT_S = 6.0
_CONNECT_TIMEOUT_S = 15.0
_LOOK_AT_FILES_S = 60.0
"""As bookies look at theirs by default (tls_cert_files_refresh_duration_s)."""


class PlaceFiles(NamedTuple):
    """Absolute paths, empty where there is none."""

    login: str = ""
    tls_trust: str = ""
    tls: tuple[str, ...] = ()
    """Certificate and key."""


@dataclass(frozen=True, slots=True)
class ClusterPlace:
    """See the module."""

    zookeeper: str
    """"host:port,host:port"."""
    root: str = DEFAULT_ROOT
    logins: "tuple[Login, ...]" = ()
    is_secured: bool = False
    """Nodes that are made in ZooKeeper are for these logins."""
    readers: "tuple[Identity, ...]" = ()
    """Who may read, too, what drivers need of them."""
    zookeeper_tls: "TlsContexts | None" = None
    """None: ZooKeeper is spoken to in clear."""
    bookie_tls: "TlsContexts | None" = None
    files: "PlaceFiles | None" = None
    """Of which login and TLS with ZooKeeper were read; None: they are of no files."""
    node_tls_trust: str = ""
    """PEM file: who has signed the nodes' certificates, for connect() of a RunningNode; empty: the
    system's authorities."""
    node_tls: tuple[str, str] | None = None
    """PEM files, certificate and key, that connect() shows nodes; None: the node's own."""

    @classmethod
    def of_files(
        cls,
        zookeeper: str,
        root: str = DEFAULT_ROOT,
        *,
        zookeeper_login: str | Path | None = None,
        is_secured: bool = False,
        zookeeper_readers: str | None = None,
        zookeeper_tls_trust: str | None = None,
        zookeeper_tls: tuple[str, str] | None = None,
        bookie_tls_trust: str | None = None,
        bookie_tls: tuple[str, str] | None = None,
        node_tls_trust: str = "",
        node_tls: tuple[str, str] | None = None,
    ) -> "ClusterPlace":
        """Return the place that these name, as options of the same names do for `herdpy node`.

        zookeeper_login: file of the login; None: of the environment (HERDPY_ZOOKEEPER_LOGIN), or
        none. is_secured: what is made there is for it alone (--zk-enable-security), and to be read
        by the logins of the file zookeeper_readers, or "anyone". The rest are PEM files: who has
        signed the certificates of ZooKeeper, bookies and nodes, and what they are shown,
        (certificate, key). ProgrammingError 22023: a file cannot be used, or one is missing.
        """
        logins = read_logins(None if zookeeper_login is None else Path(zookeeper_login))
        if is_secured and not logins:
            raise ProgrammingError(
                "--zk-enable-security: expected a login for which nodes are made, found none",
                sqlstate="22023",
                hint=f"name it: --zookeeper-login FILE, or {LOGIN_VARIABLE}",
            )
        return cls(
            zookeeper,
            root,
            logins=logins,
            is_secured=is_secured,
            readers=read_readers(zookeeper_readers),
            zookeeper_tls=read_tls(
                zookeeper_tls_trust, zookeeper_tls, "--zookeeper-tls-trust", "TLS to ZooKeeper"
            ),
            bookie_tls=read_tls(
                bookie_tls_trust, bookie_tls, "--bookie-tls-trust", "TLS to bookies"
            ),
            files=PlaceFiles(
                "" if zookeeper_login is None else absolute(zookeeper_login),
                "" if zookeeper_tls_trust is None else absolute(zookeeper_tls_trust),
                tuple(map(absolute, zookeeper_tls or ())),
            ),
            node_tls_trust=node_tls_trust,
            node_tls=node_tls,
        )

    def url_options(self) -> dict[str, str]:
        """Return by which options of herd+zk:// URLs a driver of this machine is let in as this is.

        ProgrammingError 22023: by none, since what this has is of no files.
        """
        files = self.files or PlaceFiles()
        if (self.logins and not files.login) or (self.zookeeper_tls and not files.tls_trust):
            what = "the login for ZooKeeper" if not files.login and self.logins else "its TLS"
            raise ProgrammingError(
                f"node: {what} is of no file that a URL could name",
                sqlstate="22023",
                hint="make the place by ClusterPlace.of_files(), with zookeeper_login=, or connect "
                "by a URL of your own: docs/reference/url.md",
            )
        found: dict[str, str] = {}
        if files.login:
            found["zookeeper_login"] = files.login
        if files.tls_trust:
            found |= {"zookeeper_tls": "on", "zookeeper_tls_authority": files.tls_trust}
        if files.tls:
            found["zookeeper_tls_certificate"], found["zookeeper_tls_key"] = files.tls
        return found

    @asynccontextmanager
    async def session(
        self,
        timeout_s: float = _SESSION_TIMEOUT_S,
        connect_timeout_s: float = _CONNECT_TIMEOUT_S,
    ) -> "AsyncGenerator[ZooKeeperStore]":
        """Have a session with ZooKeeper in the block; files of TLS are read again meanwhile.

        OperationalError 08001: it does not answer; 28000: it refuses the login.
        """
        from bookie.metadata.zookeeper import ZooKeeperStore  # of an extra
        from herdpy.cluster.tablespace_nodes import readable

        async with kept((self.zookeeper_tls, self.bookie_tls), _LOOK_AT_FILES_S):
            try:
                store = await ZooKeeperStore.connect(
                    self.zookeeper,
                    timeout_s,
                    connect_timeout_s=connect_timeout_s,
                    logins=self.logins,
                    is_secured=self.is_secured,
                    readable=readable(self.root, self.readers),
                    tls=self.zookeeper_tls,
                )
            except StoreUnreachableError as error:
                is_safe = error.retry is BookieRetry.SAFE
                retry = Retry.SAFE if is_safe else Retry.NEVER
                raise OperationalError(str(error), sqlstate="08001", retry=retry) from None
            except StoreAccessError as error:
                raise OperationalError(str(error), sqlstate="28000") from None
            try:
                yield store
            finally:
                await store.close()

    def look_at_files(self) -> None:
        """Read the files of TLS again that have changed; on the loop of the session."""
        for each in (self.zookeeper_tls, self.bookie_tls):
            if each is not None:
                each.check()


@contextmanager
def as_herdpy_errors(what: str) -> Generator[None]:
    """Let errors of the store and of bookies be herdpy's."""
    try:
        yield
    except StoreAccessError as error:
        raise OperationalError(
            f"{what}: {error}",
            sqlstate="42501",
            hint=f"log in as the nodes do: --zookeeper-login FILE, or {LOGIN_VARIABLE}; a wrong "
            "password of the scheme digest shows as this, too",
        ) from error
    except BookieError as error:
        raise as_herdpy_error(what, error) from error


def as_herdpy_error(what: str, error: BookieError) -> OperationalError:
    """Return an error of the store or of bookies as herdpy's; `what` says who met it."""
    is_safe = error.retry is BookieRetry.SAFE
    return OperationalError(
        f"{what}: {error}", sqlstate="58030", retry=Retry.SAFE if is_safe else Retry.UNKNOWN
    )


def read_logins(path: Path | None) -> "tuple[Login, ...]":
    """Return the logins of a file, or else of the environment; none: ().

    ProgrammingError 22023: these are none, without what is secret of them.
    """
    return _logins(path, "--zookeeper-login", LOGIN_VARIABLE)


def read_readers(given: str | None) -> "tuple[Identity, ...]":
    """Return who may read: the users of a file of logins, or anyone; ProgrammingError 22023."""
    if given is None:
        return ()
    if given == ALL_READERS:
        from bookie.metadata.acl import ANYONE  # of an extra

        return (ANYONE,)
    logins = _logins(Path(given), "--zookeeper-readers", None)
    return tuple(login.identity for login in logins)


def read_tls(
    trust: str | None, certificate: tuple[str, str] | None, option: str, what: str
) -> "TlsContexts | None":
    """Return what servers are asked for TLS with; None: they are spoken to in clear.

    option: that trust comes from, "-trust" at its end. ProgrammingError 22023 names the file.
    """
    if trust is None and certificate is None:
        return None
    from bookie.runtime.os_tls.files import OptionError, contexts_of_options  # of an extra

    try:
        return contexts_of_options(trust, certificate, option, what)
    except OptionError as error:
        raise ProgrammingError(str(error), sqlstate="22023") from None


def _logins(path: Path | None, option: str, variable: str | None) -> "tuple[Login, ...]":
    from bookie.metadata import zookeeper_login  # of an extra

    try:
        return zookeeper_login.read_logins(option, None if path is None else str(path), variable)
    except BookieStartError as error:
        raise ProgrammingError(str(error), sqlstate="22023") from None


def absolute(path: str | Path) -> str:
    """Return a path for any working directory; of what a link names, which may change."""
    return str(Path(path).absolute())
