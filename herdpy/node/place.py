"""ClusterPlace: which cluster a command means, and how it is let in there.

By ZooKeeper's servers and the root there; by a login, by TLS to ZooKeeper and to the bookies. Made
of the options of options.py. Passwords come from files that only their owner reads, or from the
environment: what stands on a command line all users of the machine can see.
"""

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bookie.errors import BookieError, BookieStartError, StoreAccessError, StoreUnreachableError
from bookie.errors import Retry as BookieRetry
from bookie.runtime.os_input_files import kept, read_given
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
    of_certificate = option.removesuffix("-trust")
    if trust is None:
        if certificate is not None:
            raise ProgrammingError(
                f"{of_certificate}: expected {option} FILE with it", sqlstate="22023"
            )
        return None
    from bookie.runtime.os_tls.files import TrustError, client_contexts

    try:
        return client_contexts(trust, certificate, what)
    except BookieStartError as error:
        named = option if isinstance(error, TrustError) else of_certificate
        raise ProgrammingError(f"{named}: {error}", sqlstate="22023") from None


def _logins(path: Path | None, option: str, variable: str | None) -> "tuple[Login, ...]":
    from bookie.metadata.zookeeper_login import parse_logins  # of an extra

    try:
        text, where = read_given(option, path, variable)
        return parse_logins(text, where) if where else ()
    except BookieStartError as error:
        raise ProgrammingError(str(error), sqlstate="22023") from None
