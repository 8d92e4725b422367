"""The identity of a bookie: its id, what it publishes, and the cookie that its directories carry.

One bookie has a disk for its journal and one or several for its entry logs, or one for all, with
`journal` and `entries` below their roots; each of these has a VERSION file. Source:
docs/formats/zookeeper.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bookie.config import BookieConfig
from bookie.errors import BookieStartError
from bookie.ledger.types import BookieId, parse_bookie_id
from bookie.metadata.acl import StoreAccess
from bookie.metadata.cookies import Cookie, CookieDirectory
from bookie.metadata.service_info import Address, ServiceInfo
from bookie.runtime.interfaces import Disk
from bookie.server.storage import entry_log, journal_format
from bookie.server.storage.directories import LedgerDirectory


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


def service_info_of(
    config: BookieConfig, port: int, http_port: int | None, access: StoreAccess | None = None
) -> ServiceInfo:
    """Return what the bookie publishes, with the ports that it really has."""
    host = advertised_host(config)
    http = None if http_port is None else Address(host, http_port)
    return ServiceInfo.of_bookie(Address(host, port), http, access)


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieDirectories:
    """Where one bookie keeps what. The names are absolute paths of the roots of the disks."""

    data: Disk
    """The lock; the index lies there, too."""
    data_name: str
    journal: Disk
    journal_name: str
    ledgers: tuple[LedgerDirectory, ...]
    lost: tuple[str, ...] = ()
    """Ledger directories that are gone for good: start without them."""
    is_expansion_allowed: bool = False
    """Ledger directories that the cookie does not name are new ones."""

    @classmethod
    def of_one(cls, disk: Disk, name: str) -> "BookieDirectories":
        """Keep all in one directory."""
        ledgers = (LedgerDirectory(disk, name),)
        return cls(data=disk, data_name=name, journal=disk, journal_name=name, ledgers=ledgers)

    @property
    def roots(self) -> dict[str, Disk]:
        """All disks, each once, by name."""
        return {
            self.data_name: self.data,
            self.journal_name: self.journal,
            **{directory.name: directory.disk for directory in self.ledgers},
        }

    def cookie(self, bookie_id: BookieId, instance_id: str | None) -> Cookie:
        """Return the cookie of a bookie with these directories."""
        names = [directory.name for directory in self.ledgers]
        return cookie_of(bookie_id, self.journal_name, names, instance_id)

    @property
    def cookie_directories(self) -> tuple[CookieDirectory, ...]:
        """Where the cookie lies."""
        journal, entries = journal_format.DIRECTORY, entry_log.DIRECTORY
        return (
            CookieDirectory(journal, f"{self.journal_name}/{journal}", self.journal),
            *[CookieDirectory(entries, ledger_name(d.name), d.disk) for d in self.ledgers],
        )


def ledger_name(root: str) -> str:
    """Return what cookies call the ledger directory of a disk with this root."""
    return f"{root}/{entry_log.DIRECTORY}"


def cookie_of(
    bookie_id: BookieId, journal: str, ledgers: Sequence[str], instance_id: str | None
) -> Cookie:
    """Return the cookie of a bookie whose disks have roots of these absolute paths."""
    return Cookie(
        bookie_id,
        (f"{journal}/{journal_format.DIRECTORY}",),
        tuple(map(ledger_name, ledgers)),
        instance_id,
    )
