"""What names a cluster on the command line, and says how a command is let in there."""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from herdpy.cli.console import reporting
from herdpy.driver.dsn import DEFAULT_ROOT
from herdpy.node.addresses import DEFAULT_ZOOKEEPER, are_places, is_path
from herdpy.node.place import ALL_READERS, LOGIN_VARIABLE, ClusterPlace

Command = TypeVar("Command", bound=Callable[..., Any])


def _checked(is_right: Callable[[str], object], expected: str) -> Callable[..., str]:
    def check(_: click.Context, __: click.Parameter, value: str) -> str:
        if not is_right(value):
            raise click.BadParameter(f"expected {expected}, found {value[:80]!r}")
        return value

    return check


checked_path = _checked(is_path, "a path such as /herd")

_FILE = click.Path(exists=True, dir_okay=False)
_OPTIONS = (
    click.option(
        "--zookeeper",
        envvar="HERDPY_ZOOKEEPER",
        show_envvar=True,
        default=DEFAULT_ZOOKEEPER,
        show_default=True,
        metavar="HOST:PORT,...",
        callback=_checked(
            are_places,
            "host:port, or several with commas between",
        ),
        help="The servers of ZooKeeper.",
    ),
    click.option(
        "--root",
        envvar="HERDPY_ROOT",
        show_envvar=True,
        default=DEFAULT_ROOT,
        show_default=True,
        metavar="PATH",
        callback=checked_path,
        help="The node of ZooKeeper that has the cluster.",
    ),
    click.option(
        "--zookeeper-login",
        envvar="HERDPY_ZOOKEEPER_LOGIN_FILE",
        show_envvar=True,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Log in to ZooKeeper: lines `digest USER:PASSWORD` or `sasl USER:PASSWORD`, in a file "
        f"that only its owner reads. The line itself may be in {LOGIN_VARIABLE}.",
    ),
    click.option(
        "--zk-enable-security",
        "is_secured",
        envvar="HERDPY_ZK_ENABLE_SECURITY",
        show_envvar=True,
        is_flag=True,
        help="Nodes that are made in ZooKeeper are for this login alone, and for readers. Needs a "
        "login.",
    ),
    click.option(
        "--zookeeper-readers",
        envvar="HERDPY_ZOOKEEPER_READERS",
        show_envvar=True,
        metavar="FILE",
        help="Who may read then where leaders are, as drivers do, and nothing else: the logins of "
        f"this file, which drivers have, too; or {ALL_READERS!r}.  [default: only nodes]",
    ),
    click.option(
        "--zookeeper-tls-trust",
        envvar="HERDPY_ZOOKEEPER_TLS_TRUST",
        show_envvar=True,
        type=_FILE,
        metavar="FILE",
        help="PEM file: talk to ZooKeeper by TLS, at its secureClientPort; the certificates of its "
        "servers are signed by these.",
    ),
    click.option(
        "--zookeeper-tls",
        nargs=2,
        type=_FILE,
        metavar="CERTIFICATE KEY",
        help="PEM files: shown to ZooKeeper (ssl.clientAuth). Needs --zookeeper-tls-trust.",
    ),
    click.option(
        "--bookie-tls-trust",
        envvar="HERDPY_BOOKIE_TLS_TRUST",
        show_envvar=True,
        type=_FILE,
        metavar="FILE",
        help="PEM file: talk to the bookies by TLS; their certificates are signed by these.",
    ),
    click.option(
        "--bookie-tls",
        nargs=2,
        type=_FILE,
        metavar="CERTIFICATE KEY",
        help="PEM files: shown to bookies that ask clients for a certificate. Needs "
        "--bookie-tls-trust.",
    ),
)

json_option = click.option("--json", "is_json", is_flag=True, help="Print one JSON record.")


def cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command what names a cluster; it gets `place`, and prints what it raises."""

    @functools.wraps(command)
    def wrapped(
        *arguments: Any,
        zookeeper: str,
        root: str,
        zookeeper_login: Path | None,
        is_secured: bool,
        zookeeper_readers: str | None,
        zookeeper_tls_trust: str | None,
        zookeeper_tls: tuple[str, str] | None,
        bookie_tls_trust: str | None,
        bookie_tls: tuple[str, str] | None,
        **options: Any,
    ) -> None:
        with reporting():
            place = ClusterPlace.of_files(
                zookeeper,
                root,
                zookeeper_login=zookeeper_login,
                is_secured=is_secured,
                zookeeper_readers=zookeeper_readers,
                zookeeper_tls_trust=zookeeper_tls_trust,
                zookeeper_tls=zookeeper_tls,
                bookie_tls_trust=bookie_tls_trust,
                bookie_tls=bookie_tls,
            )
            command(*arguments, place=place, **options)

    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


def herdpy_command(*arguments: str) -> list[str]:
    """Return the command that runs this very `herdpy`."""
    return [sys.executable, "-m", "herdpy.cli", *arguments]
