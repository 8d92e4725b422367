"""What names a cluster on the command line, and a session with its metadata store."""

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from herdpy.driver.dsn import DEFAULT_ROOT
from herdpy.node.addresses import DEFAULT_ZOOKEEPER, are_places, is_path

Command = TypeVar("Command", bound=Callable[..., Any])


def _checked(is_right: Callable[[str], object], expected: str) -> Callable[..., str]:
    def check(_: click.Context, __: click.Parameter, value: str) -> str:
        if not is_right(value):
            raise click.BadParameter(f"expected {expected}, found {value[:80]!r}")
        return value

    return check


checked_path = _checked(is_path, "a path such as /herd")

zookeeper_option = click.option(
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


def herdpy_command(*arguments: str) -> list[str]:
    """Return the command that runs this very `herdpy`."""
    return [sys.executable, "-m", "herdpy.cli", *arguments]
