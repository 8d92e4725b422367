"""Where a node of a cluster is to be found, and what cannot be such a place."""

import asyncio
import re
from collections.abc import Mapping
from urllib.parse import quote, urlencode

from herdpy.config import NodeConfig, ServerConfig
from herdpy.driver.dsn import DEFAULT_ROOT
from herdpy.errors import ProgrammingError
from herdpy.server.listening import listening

DEFAULT_ZOOKEEPER = "127.0.0.1:2181"
_PATH = re.compile(r"(/[^/\s]+)+")
_PLACE = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/,@\[\]]+):([0-9]{1,5})")
_PORT_MAX = 65_535
_ANY_ADDRESS = ("0.0.0.0", "::", "")  # noqa: S104 - to be refused as an address for clients


def is_path(text: str) -> bool:
    """Return whether it is a path of the metadata store such as "/herd"."""
    return _PATH.fullmatch(text) is not None


def is_place(text: str) -> bool:
    """Return whether it is "host:port" or "[::1]:port", of a port that there can be."""
    found = _PLACE.fullmatch(text)
    return found is not None and 0 < int(found[2]) <= _PORT_MAX


def are_places(text: str) -> bool:
    """Return whether it is one such place, or several with commas between."""
    return all(map(is_place, text.split(",")))


def dsn_of(
    zookeeper: str,
    root: str,
    tablespace: str,
    user: str = "",
    options: Mapping[str, str] | None = None,
) -> str:
    """Return the URL by which programs connect to a tablespace, whichever node leads it."""
    given = {} if root == DEFAULT_ROOT else {"root": root}
    pairs = urlencode(given | dict(options or {}), safe="/:", quote_via=quote)
    who = f"{quote(user, safe='')}@" if user else ""
    query = f"?{pairs}" if pairs else ""
    return f"herd+zk://{who}{zookeeper}/{quote(tablespace, safe='')}{query}"


def address_for_clients(server: ServerConfig, node: NodeConfig) -> str:
    """Return where clients reach a node's server, which is registered before it listens.

    ProgrammingError 22023: the settings name no such place.
    """
    advertised = node.advertised_address
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
            hint="name what they are to connect to: node.advertised_address, or "
            "--advertised-address HOST:PORT",
        )
    host = f"[{server.host}]" if ":" in server.host else server.host
    return f"{host}:{server.port}"


async def check_port(host: str, port: int, option: str) -> None:
    """Say now that an address cannot be had, before anything is written; OperationalError."""
    with listening("node", host, port, option):
        found = await asyncio.get_running_loop().create_server(asyncio.Protocol, host, port)
    found.close()
    await found.wait_closed()
