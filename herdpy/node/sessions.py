"""A session with the metadata store, and its errors as herdpy's."""

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from bookie.errors import BookieError, StoreUnreachableError
from bookie.errors import Retry as BookieRetry
from herdpy.errors import OperationalError, Retry

if TYPE_CHECKING:
    from bookie.metadata.interfaces import VersionedStore

_SESSION_TIMEOUT_S = 6.0
_CONNECT_TIMEOUT_S = 15.0


@asynccontextmanager
async def session(
    zookeeper: str,
    timeout_s: float = _SESSION_TIMEOUT_S,
    connect_timeout_s: float = _CONNECT_TIMEOUT_S,
) -> "AsyncGenerator[VersionedStore]":
    """Have a session with the store in the block; OperationalError 08001: it does not answer."""
    from bookie.metadata.zookeeper import ZooKeeperStore  # of an extra

    try:
        store = await ZooKeeperStore.connect(
            zookeeper, timeout_s, connect_timeout_s=connect_timeout_s
        )
    except StoreUnreachableError as error:
        raise OperationalError(str(error), sqlstate="08001", retry=Retry.SAFE) from None
    try:
        yield store
    finally:
        await store.close()


@contextmanager
def as_herdpy_errors(what: str) -> Generator[None]:
    """Let errors of the store and of bookies be herdpy's."""
    try:
        yield
    except BookieError as error:
        raise as_herdpy_error(what, error) from error


def as_herdpy_error(what: str, error: BookieError) -> OperationalError:
    """Return an error of the store or of bookies as herdpy's; `what` says who met it."""
    is_safe = error.retry is BookieRetry.SAFE
    return OperationalError(
        f"{what}: {error}", sqlstate="58030", retry=Retry.SAFE if is_safe else Retry.UNKNOWN
    )
