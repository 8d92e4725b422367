"""The identity of a bookie: its id, what it publishes, and the cookie that its directories carry.

One bookie has one root directory (of its Disk) with `journal` and `entries` below it; each has a
VERSION file. Source: docs/formats/zookeeper.md.
"""

from bookie.config import BookieConfig
from bookie.errors import BookieStartError
from bookie.ledger.types import BookieId, parse_bookie_id
from bookie.metadata.cookies import Cookie, CookieDirectory
from bookie.metadata.service_info import Address, ServiceInfo
from bookie.server.storage import entry_log, journal_format


def bookie_id_of(config: BookieConfig) -> BookieId:
    """Return the id of the configuration; BookieStartError when it says none."""
    if config.bookie_id is not None:
        return parse_bookie_id(config.bookie_id)
    if config.port == 0:
        raise BookieStartError(
            "bookie: port 0 (any free one) gives another id at every start; expected a bookie_id, "
            "or a port that stays"
        )
    return parse_bookie_id(f"{advertised_host(config)}:{config.port}")


def advertised_host(config: BookieConfig) -> str:
    """Return what clients connect to."""
    return config.advertised_address or config.host


def service_info_of(config: BookieConfig, port: int, http_port: int | None) -> ServiceInfo:
    """Return what the bookie publishes, with the ports that it really has."""
    host = advertised_host(config)
    http = None if http_port is None else Address(host, http_port)
    return ServiceInfo.of_bookie(Address(host, port), http)


def cookie_of(bookie_id: BookieId, directory: str, instance_id: str | None) -> Cookie:
    """Return the cookie of a bookie whose root directory has this absolute path."""
    return Cookie(
        bookie_id,
        (f"{directory}/{journal_format.DIRECTORY}",),
        (f"{directory}/{entry_log.DIRECTORY}",),
        instance_id,
    )


def cookie_directories(directory: str) -> tuple[CookieDirectory, ...]:
    """Return where the cookie lies on the Disk, and what it calls these directories."""
    return tuple(
        CookieDirectory(name, f"{directory}/{name}")
        for name in (journal_format.DIRECTORY, entry_log.DIRECTORY)
    )
