"""A whole bookie on the disks, threads and sockets of this process: for `bookie serve`, and hosts.

    async with hosted_bookie(store, directories_of(...), config) as node:
        await node.wait()            # until it must not go on

This is where all that a bookie works on is built but for its session: disks, index, executors. A
program that runs one beside something else (a node of herdpy's cluster) names one directory, by
bookie_in(). No signal is handled here, and no logging set up. On the loop that runs it.
"""

import contextlib
import ipaddress
import socket
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from bookie.autorecovery.replicas import LedgerReplicas
from bookie.client.client import LedgerClient
from bookie.config import BookieConfig, parse_ledger_directory
from bookie.errors import BookieStartError
from bookie.metadata.interfaces import VersionedStore
from bookie.runtime.http import Api
from bookie.runtime.interfaces import Tls
from bookie.runtime.os_clock import OsClock
from bookie.runtime.os_disk import OsDisk
from bookie.runtime.os_executors import new_executor
from bookie.runtime.os_input_files import Reread
from bookie.runtime.os_rng import OsRng
from bookie.runtime.os_tls.files import TlsContexts
from bookie.server.identity import BookieDirectories
from bookie.server.node import BookieNode as BookieNode
from bookie.server.storage import entry_log, journal_format
from bookie.server.storage.directories import LedgerDirectory
from bookie.server.storage.lmdb_index import LmdbIndex
from bookie.server.storage.scrubber import STATE_FILE
from bookie.server.wire.client_access import ClientAccess

INDEX_FILE = "index.lmdb"
_STORAGE_THREADS = 4
_BESIDE = ("LOCK", "lost+found", STATE_FILE, f"{STATE_FILE}.new")
"""What may lie in a directory that is to become a bookie's, or has its index alone."""


@asynccontextmanager
async def hosted_bookie(
    store: VersionedStore,
    places: BookieDirectories,
    config: BookieConfig,
    *,
    tls: TlsContexts | None = None,
    access: Reread[ClientAccess] | None = None,
    client_tls: TlsContexts | None = None,
    is_read_only: bool = False,
    api: Callable[[BookieNode], Api] | None = None,
    http_tls: Tls | None = None,
) -> AsyncGenerator[BookieNode]:
    """Have a bookie that serves and is registered in the block; its errors are BookieNode's.

    store: connected, the caller's, as are the rest of BookieNode.start(). client_tls: what its
    scrubber asks the other bookies for TLS with.
    """
    clock, rng = OsClock(), OsRng()
    async with contextlib.AsyncExitStack() as stack:
        journal = stack.enter_context(new_executor("journal"))
        storage = stack.enter_context(new_executor("storage", _STORAGE_THREADS))
        index = LmdbIndex(str(Path(places.data_name) / INDEX_FILE))
        stack.enter_context(contextlib.closing(index))
        node = await BookieNode.start(
            store,
            places.data,
            index,
            clock,
            rng,
            config,
            journal_executor=journal,
            storage_executor=storage,
            directories=places,
            tls=tls,
            access=access,
            is_read_only=is_read_only,
            api=api,
            http_tls=http_tls,
        )
        stack.push_async_callback(node.close)
        client = await LedgerClient.connect(
            store, rng=rng, clock=clock, root=config.ledgers_root, tls=client_tls
        )
        stack.push_async_callback(client.close)
        scrubber = node.bookie.scrubber(
            LedgerReplicas(client, node.bookie_id), places.data, OsRng()
        )
        node.start_scrubber(scrubber)
        stack.push_async_callback(scrubber.close)  # before the client
        yield node


def bookie_in(
    store: VersionedStore, directory: str, config: BookieConfig
) -> AbstractAsyncContextManager[BookieNode]:
    """Return hosted_bookie() of one directory, made if missing; BookieStartError.

    It serves in clear: config.host is an address of this machine, or of a network that keeps
    others out.
    """
    places = directories_of(Path(directory).resolve(), config, (), is_expansion_allowed=False)
    timeout_s = registration_timeout_of(store.session_timeout_s)
    return hosted_bookie(store, places, replace(config, registration_timeout_s=timeout_s))


def check_openness(host: str, where: str, remedy: str) -> None:
    """Refuse to serve other machines in clear; BookieStartError says what to do.

    What counts is the address that is listened on, not how it is written.
    """
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        return  # who listens says it
    reached = sorted(
        {
            str(address[0])
            for *_, address in found
            if not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback
        }
    )
    if reached:
        raise BookieStartError(
            f"{where}: other machines reach {', '.join(reached)}, and could read and write "
            f"all ledgers; {remedy}"
        )


def registration_timeout_of(session_timeout_s: float) -> float:
    """Return how long a bookie is to wait for the node of its former life.

    A killed bookie's session lingers for its time-out; the next start has to wait longer than that.
    """
    return max(BookieConfig().registration_timeout_s, 2 * session_timeout_s)


def check_directory(data: Path) -> None:
    """Refuse a directory that holds files of others and no bookie; BookieStartError.

    An embedded database is one of them: it has a LOCK, too, and would lose it.
    """
    folders = (journal_format.DIRECTORY, entry_log.DIRECTORY)
    is_bookie = any((data / folder).is_dir() for folder in folders)
    strange = [
        path.name
        for path in sorted(data.iterdir())
        if path.name not in (*folders, *_BESIDE) and not path.name.startswith(INDEX_FILE)
    ]
    if strange and ("FORMAT" in strange or not is_bookie):
        raise BookieStartError(
            f"{data}: expected an empty directory or that of a bookie, found {strange[0]!r} in it; "
            "name another one"
        )


def directories_of(
    data: Path, config: BookieConfig, lost: Sequence[Path], *, is_expansion_allowed: bool
) -> BookieDirectories:
    """Make what is missing of a bookie's directories; return their opened disks and names.

    BookieStartError.
    """
    journal = Path(config.journal_directory or data)
    texts = config.ledger_directories or (str(data),)
    weights = {Path(path): weight for path, weight in map(parse_ledger_directory, texts)}
    for path in dict.fromkeys((data, journal, *weights)):
        try:
            path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            option = "--ledgers" if path in weights and config.ledger_directories else "--journal"
            raise BookieStartError(
                f"{'--data' if path == data else option} {path}: expected a directory or none, "
                "found that it, or one above it, is no directory; name another one"
            ) from error
        check_directory(path)
    ledgers = [
        LedgerDirectory(OsDisk(path), str(path), weight=weight, device=path.stat().st_dev)
        for path, weight in weights.items()
    ]
    return BookieDirectories(
        data=OsDisk(data),
        data_name=str(data),
        journal=OsDisk(journal),
        journal_name=str(journal),
        ledgers=tuple(ledgers),
        lost=tuple(str(path.resolve()) for path in lost),
        is_expansion_allowed=is_expansion_allowed,
    )
