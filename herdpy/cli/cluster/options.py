"""What names a cluster on the command line, and a session with its metadata store."""

import re
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import click

from bookie.errors import BookieError, StoreUnreachableError
from bookie.errors import Retry as BookieRetry
from bookie.metadata.interfaces import VersionedStore
from bookie.metadata.zookeeper import ZooKeeperStore
from herdpy.cluster.cluster_record import DEFAULT_ROOT
from herdpy.errors import OperationalError, Retry

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])
_ZOOKEEPER = "127.0.0.1:2181"
_ROOT = re.compile(r"(/[^/\s]+)+")
_PLACE = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/,@\[\]]+):([0-9]{1,5})")
_PORT_MAX = 65_535
_SESSION_TIMEOUT_S = 6.0
_CONNECT_TIMEOUT_S = 15.0


def is_place(text: str) -> bool:
    """Return whether it is "host:port" or "[::1]:port", of a port that there can be."""
    found = _PLACE.fullmatch(text)
    return found is not None and 0 < int(found[2]) <= _PORT_MAX


def _checked(is_right: Callable[[str], object], expected: str) -> Callable[..., str]:
    def check(_: click.Context, __: click.Parameter, value: str) -> str:
        if not is_right(value):
            raise click.BadParameter(f"expected {expected}, found {value[:80]!r}")
        return value

    return check


checked_path = _checked(_ROOT.fullmatch, "a path such as /herd")

zookeeper_option = click.option(
    "--zookeeper",
    envvar="HERDPY_ZOOKEEPER",
    show_envvar=True,
    default=_ZOOKEEPER,
    show_default=True,
    metavar="HOST:PORT,...",
    callback=_checked(
        lambda value: all(map(is_place, value.split(","))),
        "host:port, or several with commas between",
    ),
    help="The servers of ZooKeeper.",
)
root_option = click.option(
    "--root",
    envvar="HERDPY_ROOT",
    show_envvar=True,
    default=DEFAULT_ROOT,
    show_default=True,
    metavar="PATH",
    callback=checked_path,
    help="The node of ZooKeeper that has the cluster.",
)

json_option = click.option("--json", "is_json", is_flag=True, help="Print one JSON record.")


def cluster_options(command: Command) -> Command:
    """Give a command `zookeeper` and `root`."""
    return zookeeper_option(root_option(command))


@asynccontextmanager
async def session(
    zookeeper: str,
    timeout_s: float = _SESSION_TIMEOUT_S,
    connect_timeout_s: float = _CONNECT_TIMEOUT_S,
) -> AsyncGenerator[VersionedStore]:
    """Have a session with the store in the block; OperationalError 08001: it does not answer."""
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
        is_safe = error.retry is BookieRetry.SAFE
        raise OperationalError(
            f"{what}: {error}",
            sqlstate="58030",
            retry=Retry.SAFE if is_safe else Retry.UNKNOWN,
        ) from error


def herdpy_command(*arguments: str) -> list[str]:
    """Return the command that runs this very `herdpy`."""
    return [sys.executable, "-m", "herdpy.cli", *arguments]
