"""The databases that this process has open, and who uses them; builds disk, clock, rng, threads.

The only place in herdpy where the real world is made. Connections to one real path share one
engine, which the last of them closes. Any thread may call.
"""

import atexit
import logging
import warnings
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from bookie.errors import BookieStartError
from bookie.runtime.drivers import Mutex, ThreadDriver, new_mutex, run_detached
from bookie.runtime.interfaces import Disk
from bookie.runtime.memory_disk import MemoryDisk
from bookie.runtime.os_backoff import Backoff
from bookie.runtime.os_clock import OsClock
from bookie.runtime.os_disk import OsDisk
from bookie.runtime.os_process import precise_timers, process_generation
from bookie.runtime.os_rng import OsRng
from bookie.runtime.ticket import Ticket
from herdpy.config import Config
from herdpy.driver.abandoned_claims import abandoned_claims
from herdpy.driver.dsn import (
    MEMORY,
    Address,
    Target,
    ZooKeeper,
    address_of,
    without_passwords,
)
from herdpy.engine.database import Database
from herdpy.engine.instance import Instance
from herdpy.engine.maintenance.directory import FORMAT
from herdpy.engine.session.session import Session
from herdpy.errors import Error, OperationalError, ProgrammingError, ProtocolError
from herdpy.model.governor import Governor
from herdpy.model.settings import Settings

if TYPE_CHECKING:
    from bookie.client.blocking import LoopThread
    from bookie.metadata.zookeeper_login import Login
    from bookie.runtime.interfaces import Tls
    from herdpy.cluster.leader_lookup import NodePlace
    from herdpy.cluster.node import World
    from herdpy.driver.grpc_stream import GrpcStream, GrpcTls

_log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What connect() was asked for. The first two fields belong to the database."""

    memory_bytes_max: int | None
    """None: nothing asked for."""
    settings: Settings
    autocommit: bool

    def config(self) -> Config:
        if self.memory_bytes_max is None:
            return Config()
        try:
            return Config(memory_bytes_max=self.memory_bytes_max)
        except (TypeError, ValueError) as error:
            raise ProgrammingError(f"connect: {error}", sqlstate="22023") from error


class EndedAtExit(Protocol):
    """Has threads that must not run while the interpreter ends."""

    def end(self) -> None:
        """End it as far as that is possible then; nothing in a forked child."""
        ...


class _Shared:
    """One database of this process; all fields under its mutex."""

    __slots__ = ("__weakref__", "claims", "database", "mutex", "options")

    def __init__(self) -> None:
        self.mutex = new_mutex()
        self.database: Database | None = None
        self.options: Options | None = None
        self.claims: set[DatabaseClaim] = set()
        _all_shared.add(self)


_all_shared: weakref.WeakSet[_Shared] = weakref.WeakSet()
_ended_at_exit: "set[EndedAtExit]" = set()


def _close_at_exit() -> None:
    """Close what the program leaves open, and wait for what another thread is closing.

    A thread that comes back from C++ while the interpreter ends, ends the process by SIGABRT.
    """
    close_abandoned()
    for each in list(_ended_at_exit):
        with suppress(Exception):  # as below
            each.end()
    for shared in list(_all_shared):
        database = shared.database
        if database is not None:
            with suppress(Exception):  # there is no caller left to tell
                database.close()


atexit.register(_close_at_exit)


class _Registry:
    """The shared databases by real path, of one process; a forked child begins a new one."""

    def __init__(self) -> None:
        self.generation = process_generation()
        self.mutex = new_mutex()
        self.governor = Governor()
        """Of the memory of all databases that the process opens."""
        self.closing = new_mutex()
        """Held while claims of collected connections are closed."""
        self.by_path: weakref.WeakValueDictionary[str, _Shared] = weakref.WeakValueDictionary()


_registry = _Registry()


def _current_registry() -> _Registry:
    global _registry
    if _registry.generation != process_generation():
        # The parent's threads are gone and may have left its mutexes locked. A child has one
        # thread at this point unless it raced here, and then one registry wins below.
        _registry = _Registry()
    return _registry


def _shared(path: str | None) -> _Shared:
    if path is None:
        return _Shared()
    registry = _current_registry()
    return _under(registry.mutex, lambda: registry.by_path.setdefault(path, _Shared()))


def _under(mutex: Mutex, body: Callable[[], T]) -> T:
    # On one line, so that an interrupt raised "at a line" never falls between body and release.
    with mutex: return body()  # noqa: E701 - as above  # fmt: skip


class DatabaseClaim:
    """One connection's claim on a database. close() may be repeated and ends every half step."""

    __slots__ = ("_generation", "_session", "_shared", "target")
    rng = None

    def __init__(self, target: Target) -> None:
        self.target = target
        self._generation = process_generation()
        self._session: Session | None = None
        self._shared = _shared(target.path)

    @property
    def in_transaction(self) -> bool:
        return self._session is not None and self._session.in_transaction

    @property
    def where(self) -> str:
        return self.target.where

    def abandon(self) -> None:
        """Close for a connection that was collected while open."""
        abandon(self)

    def is_ours(self) -> bool:
        """Return False in a forked child, where the database belongs to the parent."""
        return process_generation() == self._generation

    def open(self, options: Options) -> Session:
        """Open the database, or join it, and return a new session of it."""
        if abandoned_claims:  # of a connection that is gone the caller may ask for other options
            close_abandoned()
        return _under(self._shared.mutex, lambda: self._open(self._shared, options))

    def _open(self, shared: _Shared, options: Options) -> Session:
        shared.claims.add(self)
        if shared.database is None:
            shared.options = options
            shared.database = open_database(self.target, options.config())
        elif shared.options is not None:
            _check_same(shared.options, options, self.target)
        database = shared.database.instance.tablespaces.database(self.target.tablespace)
        self._session = database.session(options.settings, autocommit=options.autocommit)
        return self._session

    def close(self) -> None:
        """Close the session, and the database behind the last one. Nothing in a forked child."""
        if not self.is_ours():
            return
        if self._session is not None:
            self._session.close()
        _under(self._shared.mutex, lambda: self._leave(self._shared))

    def _leave(self, shared: _Shared) -> None:
        shared.claims.discard(self)
        if not shared.claims and shared.database is not None:
            shared.database.close()
            shared.database = None


def _check_same(opened: Options, asked: Options, target: Target) -> None:
    pairs: list[tuple[str, object, object]] = [
        ("durability", opened.settings.durability.value, asked.settings.durability.value)
    ]
    if asked.memory_bytes_max is not None:
        ours, theirs = opened.config().memory_bytes_max, asked.config().memory_bytes_max
        pairs.append(("memory_bytes_max", ours, theirs))
    for name, ours, theirs in pairs:
        if ours != theirs:
            raise ProgrammingError(
                f"connect: {target.where} is open in this process with {name}={ours!r}, "
                f"asked for {theirs!r}",
                sqlstate="55006",
                hint=f"connect with {name}={ours!r}, or close the other connections first",
            )


def open_database(target: Target, config: Config) -> Database:
    """Open a directory, made if missing, or a database in memory; the caller closes it."""
    clock, rng, driver = OsClock(), OsRng(), ThreadDriver()
    governor = _current_registry().governor
    if target.path is None:
        instance = Instance(
            disk=MemoryDisk(),
            clock=clock,
            rng=rng,
            driver=driver,
            config=replace(config, disk_reserve_bytes=0),
            where=MEMORY,
            governor=governor,
        )
        return instance.start()
    disk = _make_directory(target.path, target.where)
    if disk.exists(FORMAT):  # nothing is said of a directory that is no database
        for warning in exposed(disk, target.where, count_max=1):
            _log.warning(warning)
    instance = Instance(
        disk=disk,
        clock=clock,
        rng=rng,
        driver=driver,
        config=config,
        where=target.where,
        temp_directory=f"{target.path}/default/temp",
        governor=governor,
    )
    # One line: behind a call that ends on another line an interrupt would lose what was opened.
    return instance.start()


def open_grpc_stream(
    host: str, port: int, timeout_s: float, tls: "GrpcTls | None" = None
) -> "GrpcStream":
    """Connect to a server's gRPC port; OSError."""
    from herdpy.driver.grpc_stream import GrpcStream

    return GrpcStream(host, port, timeout_s, ThreadDriver(), run_detached, tls)


_ZOOKEEPER_S = 5.0
"""How long a first answer of a ZooKeeper is waited for."""
_ZOOKEEPER_SESSION_S = 3.0
"""Nothing is lost with the session; but a server that takes a connection and does not answer, as
one may that starts, is given up only after that, and others are tried."""


class ZooKeeperDirectory:
    """Tells where leaders are, by one session with a ZooKeeper, in a thread of its own."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        """Read the files that it names; OperationalError. Nothing is asked yet."""
        from bookie.client.blocking import LoopThread
        from bookie.metadata.zookeeper import ZooKeeperStore
        from herdpy.cluster.leader_lookup import LeaderLookup

        logins = _logins_of(zookeeper)
        tls = _tls_of(zookeeper) if zookeeper.has_tls else None

        def open_store() -> Coroutine[Any, Any, ZooKeeperStore]:
            return ZooKeeperStore.connect(
                zookeeper.hosts,
                _ZOOKEEPER_SESSION_S,
                connect_timeout_s=_ZOOKEEPER_S,
                logins=logins,
                tls=tls,
            )

        self._generation = process_generation()
        self._lookup = LeaderLookup(open_store, str(zookeeper))
        self._thread = LoopThread(ThreadDriver())
        end_at_exit(self)

    def find(
        self,
        root: str,
        tablespace: str,
        read: str,
        done: Callable[[list[Address] | Error], object],
    ) -> None:
        """Begin to look; done() is called once, in the thread of the session."""

        def tell(found: "list[NodePlace] | Error") -> None:
            if isinstance(found, Error):
                done(found)
                return
            addresses: list[Address] = []
            for each in found:
                address = address_of(each.address)
                if address is None:
                    text = f"{root}: expected host:port of a node, found {each.address!r:.80}"
                    done(ProtocolError(text))
                    return
                addresses.append(address._replace(has_tls=each.has_tls))
            done(addresses)

        self._thread.post(partial(self._lookup.begin, root, tablespace, read, tell))

    def close(self) -> Ticket[None]:
        """Begin to end the session and its thread; the Ticket is done when they are gone."""
        closing: Ticket[None] = Ticket()
        try:
            run_detached(partial(self._end, closing))
        except RuntimeError:  # the interpreter ends
            self._end(closing)
        return closing

    def end(self) -> None:
        """End the session and its thread, which takes its time when ZooKeeper is away.

        In a forked child nothing is ended: the thread is only the parent's.
        """
        keep_at_exit(self)
        if process_generation() != self._generation:
            return
        try:
            self._thread.call(self._lookup.close())
        finally:
            self._thread.close()

    def _end(self, closing: Ticket[None]) -> None:
        try:
            self.end()
        finally:
            closing.complete(None)


def open_zookeeper(zookeeper: ZooKeeper) -> ZooKeeperDirectory:
    """Return what tells where leaders are; its caller closes it. OperationalError."""
    return ZooKeeperDirectory(zookeeper)


def _logins_of(zookeeper: ZooKeeper) -> "tuple[Login, ...]":
    from bookie.metadata.zookeeper_login import read_logins

    try:
        return read_logins("zookeeper_login", zookeeper.login or None, None)
    except BookieStartError as error:
        raise OperationalError(f"connect: {error}", sqlstate="28000") from None


def _tls_of(zookeeper: ZooKeeper) -> "Tls":
    """Return what gives a context for each connection, of the files as they are then."""
    from bookie.runtime.os_tls.files import client_contexts

    certificate = None
    if zookeeper.tls_certificate:
        certificate = zookeeper.tls_certificate, zookeeper.tls_key or zookeeper.tls_certificate
    try:
        contexts = client_contexts(
            zookeeper.tls_authority or None, certificate, f"TLS with {zookeeper}"
        )
    except BookieStartError as error:
        raise OperationalError(
            f"connect: no TLS with {zookeeper}: {error}", sqlstate="08001"
        ) from None
    return contexts.newest


def disk_of_file(path: str) -> tuple[OsDisk, str]:
    """Return the disk of the directory that a real path lies in, and the path's last name."""
    parent, _, name = path.rpartition("/")
    return OsDisk(parent or "/"), name


def disk_of_directory(path: str, what: str = "connect") -> OsDisk:
    """Return the disk of a directory, which is made when its parent is there.

    `what` begins the messages.
    """
    return _make_directory(path, without_passwords(path), what)


def disk_of_existing(path: str) -> OsDisk:
    """Return the disk of a directory that is there; OSError."""
    disk = OsDisk(path)
    disk.list("")
    return disk


def exposed(disk: OsDisk, where: str, count_max: int = 1_000) -> list[str]:
    """Return what to say of a database's files that others than their owner reach; they stay so."""
    found = list(islice(disk.open_to_others(), count_max))
    if not found:
        return []
    path, mode = found[0]
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return [
        f"{path}{more} can be read or changed by other users of this machine (mode {mode:04o}): "
        f"chmod -R go-rwx {where}"
    ]


def new_world() -> tuple[OsClock, OsRng, ThreadDriver]:
    """Return what a client of a cluster's ledgers runs on, beside its loop."""
    return OsClock(), OsRng(), ThreadDriver()


def node_world(path: str) -> "World":
    """Return what a node of a cluster runs on; `path` is its directory, made when it is opened."""
    from bookie.runtime.os_executors import new_executor
    from herdpy.cluster.node import World

    clock = OsClock()
    return World(
        open_disk=lambda folder: disk_of_directory(f"{path}/{folder}" if folder else path, "node"),
        where=path,
        clock=clock,
        elapsed=clock.elapsed,
        rng=OsRng(),
        driver=ThreadDriver(),
        new_executor=new_executor,
        governor=_current_registry().governor,
    )


def new_loop_thread(name: str) -> "LoopThread":
    """Return a loop that runs in a thread of its own; its caller closes it."""
    from bookie.client.blocking import LoopThread

    return LoopThread(ThreadDriver(), name, precise_timers)


def end_at_exit(what: "EndedAtExit") -> None:
    """Have end() called when the interpreter ends, unless keep_at_exit() came before."""
    _ended_at_exit.add(what)


def keep_at_exit(what: "EndedAtExit") -> None:
    """Undo end_at_exit(); repeatable."""
    _ended_at_exit.discard(what)


def new_rng() -> OsRng:
    return OsRng()


def remove_quietly(disk: Disk, name: str) -> None:
    """Remove a file as far as the disk lets us."""
    with suppress(OSError):
        disk.unlink(name)


def remove_folder_quietly(disk: Disk, name: str) -> None:
    """Remove an empty folder as far as the disk lets us."""
    with suppress(OSError):
        disk.remove_directory(name)


class ThreadWaiting:
    """How a pool waits in the thread that calls; any thread."""

    __slots__ = ("_clock", "_driver")

    def __init__(self) -> None:
        self._driver = ThreadDriver()
        self._clock = OsClock()

    def new_pauses(self, budget_s: float) -> Backoff:
        return Backoff(budget_s)

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def wait(self, ticket: Ticket[Any], deadline: float) -> bool:
        return self._driver.wait(ticket, deadline)


def new_waiting() -> ThreadWaiting:
    """Return what a pool waits with in the threads that use it."""
    return ThreadWaiting()


def _make_directory(path: str, where: str, what: str = "connect") -> OsDisk:
    """Return the disk of a directory, which is made, durably, when its parent is there.

    `where` is how messages name it, `what` how they begin.
    """
    is_there = False
    try:
        parent, _, name = path.rpartition("/")
        if name:
            above = OsDisk(parent or "/")
            is_there = above.exists(name)
            if not is_there:
                above.make_directory(name)
                above.sync_directory("")
        disk = OsDisk(path)
        disk.list("")  # a file in its place, or no right to read, is found here
        return disk
    except OSError as error:
        if is_there and isinstance(error, NotADirectoryError):
            raise OperationalError(
                f"{what}: {where} is a file: expected a directory",
                sqlstate="58030",
                hint="Name a directory, or a path where one is to be made.",
            ) from error
        raise OperationalError(
            f"{what}: {where} cannot be opened or made: {error.strerror or error}",
            sqlstate="58P01" if isinstance(error, FileNotFoundError) else "58030",
            hint="the parent must be a directory, and this one readable and writable",
        ) from error


# Connections that were collected while open.


def abandon(claim: DatabaseClaim) -> None:
    """Close the claim of a collected connection.

    The collector runs between any two lines of any thread, which may hold any lock: another thread
    closes it.
    """
    if not claim.is_ours():
        return
    had_transaction = claim.in_transaction
    abandoned_claims[claim] = None
    try:
        run_detached(close_abandoned)
    except RuntimeError:
        pass  # the next call of any connection does it
    if had_transaction:
        warnings.warn(
            f"a herdpy connection to {claim.where!r} was collected with an open "
            "transaction, which is rolled back; close connections, or use `with`",
            ResourceWarning,
            stacklevel=2,
        )


def close_abandoned() -> None:
    """Close what abandon() had to leave; one thread at a time, the others wait for it."""
    _under(_current_registry().closing, _close_claims)


def _close_claims() -> None:
    for claim in list(abandoned_claims):
        try:
            claim.close()
        except Error:
            pass  # the engine keeps its failure and tells the next statement
        abandoned_claims.pop(claim, None)
