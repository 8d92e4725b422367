"""BookieNode: a whole bookie, from its cookies to its registration, and back in good order.

Start: the directory is locked, cookies are checked (a wiped or foreign disk must not serve, G5),
the journal is replayed, the server listens, and only then the bookie registers. Running: a full
disk, an operator or its lifecycle state makes it read-only (serving.py) and registers it so;
deleted ledgers are collected; a lost session registers again. The end: close(), or by itself, with
the error that wait() raises, when another holds the bookie's id, when its cookie is gone (it was
removed from the cluster), or when the journal can no longer be trusted. Used on one asyncio loop.
Source of the order: Apache BookKeeper's EmbeddedServer and BookieImpl.start.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from bookie.config import BookieConfig
from bookie.errors import BookieError, BookieStartError, IllegalOperationError
from bookie.ledger.types import BookieId
from bookie.metadata.cluster import read_layout
from bookie.metadata.cookies import CookieStore, check_cookies
from bookie.metadata.interfaces import VersionedStore
from bookie.metadata.ledgers import LedgerManager
from bookie.metadata.registration import Registration, RegistrationState
from bookie.runtime.http import Api
from bookie.runtime.interfaces import Clock, DirectoryLock, Disk, DiskLockedError, Rng, Tls
from bookie.runtime.os_executors import Executor
from bookie.runtime.os_input_files import Reread
from bookie.runtime.os_tls.files import TlsContexts
from bookie.server.bookie import Bookie
from bookie.server.cluster_ledgers import ClusterLedgers
from bookie.server.disk_watch import DiskWatch
from bookie.server.health import HealthServer
from bookie.server.identity import (
    BookieDirectories,
    bookie_id_of,
    ledger_name,
    service_info_of,
)
from bookie.server.interfaces import EntryIndex
from bookie.server.lifecycle_watch import LifecycleWatch
from bookie.server.metrics import Figure, ServerMetrics, families
from bookie.server.serving import ServingState
from bookie.server.storage.collector import Collector
from bookie.server.storage.directories import forget_lost, read_lost, write_lost
from bookie.server.storage.recovery import LostDirectories
from bookie.server.storage.scrubber import Scrubber
from bookie.server.wire.client_access import ClientAccess
from bookie.server.wire.server import BookieServer

_log = logging.getLogger(__name__)

LOCK_FILE = "LOCK"
_FIGURES = {
    "bookie_journal_JOURNAL_QUEUE_SIZE": "records that wait for the journal's fsync under way",
    "bookie_journal_JOURNAL_QUEUE_BYTES": "bytes in the journal's queue and its job under way",
    "bookie_journal_JOURNAL_SYNC": "fsyncs of the journal since the start",
    "bookie_write_cache_size": "bytes of entries that are not in an entry log yet",
    "bookie_read_cache_size": "bytes of entries read from the logs, and read ahead",
    "bookie_flush": "write caches flushed since the start",
    "bookie_NUM_OPEN_LEDGERS": "ledgers of which the state is in memory",
    "bookie_damaged_reads": "reads that found an entry damaged, since the start",
    "bookie_failed_ledger_directories": "ledger directories of which the last write failed",
}


class BookieNode:
    """Made by start(); the owner awaits close(), or wait() for an end that it did not ask for."""

    def __init__(self, store: VersionedStore, config: BookieConfig, bookie_id: BookieId) -> None:
        self._store = store
        self._config = config
        self._closers: list[Callable[[], Awaitable[None]]] = []
        """What was started, in order; closed from the end."""
        self._instance_id: str | None = None
        self._cookie_ctime_ms: int | None = None
        self._mode_changed = asyncio.Event()
        self._is_started = False
        self._early_error: BookieError | None = None
        """Why the bookie has to stop before it was started."""
        self._closing: asyncio.Task[None] | None = None
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.bookie_id = bookie_id
        self.metrics = ServerMetrics()
        self.port = 0
        self.http_port: int | None = None
        self.scrubber: Scrubber | None = None
        """None: its entries are not scrubbed."""

    _ledgers: ClusterLedgers
    bookie: Bookie
    directories: BookieDirectories
    serving: ServingState
    is_started_read_only: bool
    server: BookieServer
    collector: Collector
    registration: Registration
    disk_watch: DiskWatch

    @classmethod
    async def start(
        cls,
        store: VersionedStore,
        disk: Disk,
        index: EntryIndex,
        clock: Clock,
        rng: Rng,
        config: BookieConfig,
        *,
        journal_executor: Executor,
        storage_executor: Executor,
        directory: str = "",
        directories: BookieDirectories | None = None,
        tls: Tls | None = None,
        access: Reread[ClientAccess] | None = None,
        is_read_only: bool = False,
        api: "Callable[[BookieNode], Api] | None" = None,
        http_tls: Tls | None = None,
    ) -> "BookieNode":
        """Return a bookie that serves and is registered.

        `directory`: the absolute path of the Disk's root, as the cookie calls it. `directories`:
        where journal and entry logs are, if not there. access: what clients may do by their
        certificates, which `tls` asks for. is_read_only: an operator's wish from the first request
        on, until serving.set_read_only(). api: makes what answers operators at the HTTP port; None:
        probes and metrics alone. http_tls: what HTTP is served with. Store, index
        and executors stay the caller's, who closes them after close(). Errors: BookieStartError
        (cookie of another bookie or of a wiped disk, another owner of the directory or of the id,
        no cluster), CorruptFileError, OSError, errors of the store. Nothing is left behind then.
        """
        if config.is_tls_required and tls is None:
            raise BookieStartError(
                "is_tls_required: expected a certificate to serve TLS with, found none; give "
                "--tls CERTIFICATE KEY, or take the setting out"
            )
        node = cls(store, config, bookie_id_of(config))
        try:
            places = node.directories = directories or BookieDirectories.of_one(disk, directory)
            node._lock_directories(places)
            await node._check_cookies(places)
            manager = LedgerManager(store, config.ledgers_root, rng, clock)
            node._ledgers = ClusterLedgers(
                store, config.ledgers_root, manager, node.bookie_id, node._instance_id
            )
            lost = None
            if read_lost(places.journal):
                lost = LostDirectories(await node._ledgers.named_ledger_ids())
            node.bookie = await Bookie.open(
                places.journal,
                index,
                clock,
                rng,
                config,
                journal_executor=journal_executor,
                storage_executor=storage_executor,
                ledgers=places.ledgers,
                lost=lost,
                owner=f"bookie {node.bookie_id} of cluster {node._instance_id}",
            )
            node._closers.append(node.bookie.close)
            if lost is not None:
                forget_lost(places.journal)
            node.bookie.on_read_only_change(node._bookie_changed)
            node.serving = ServingState(node.bookie, node.bookie_id)
            node.is_started_read_only = is_read_only
            node.serving.set_read_only(is_read_only=is_read_only)
            node.collector = node.bookie.collector(node._ledgers)
            await node._follow_lifecycle()
            node._start_disk_watch()
            await node._listen(clock, tls, access, storage_executor)
            if config.http_port is not None:
                await node._listen_http(None if api is None else api(node), http_tls)
            await node._register()
            node._start_collector()
            if node._early_error is not None:
                raise node._early_error
            node._is_started = True
        except BaseException:
            await node._close_all()
            raise
        _log.info("bookie %s serves on %s:%d", node.bookie_id, config.host, node.port)
        return node

    # --- the steps of the start -------------------------------------------------------------------

    def _lock_directories(self, places: BookieDirectories) -> None:
        for name, disk in places.roots.items():
            try:
                lock = disk.lock(LOCK_FILE, f"bookie {self.bookie_id}")
            except DiskLockedError as error:
                raise BookieStartError(
                    f"bookie {self.bookie_id}: {name}/{LOCK_FILE} is held by {error.owner or '?'}: "
                    "expected a directory that no other process uses; stop that one first"
                ) from error
            self._closers.append(partial(_unlock, lock))

    async def _check_cookies(self, places: BookieDirectories) -> None:
        root = self._config.ledgers_root
        cookies = CookieStore(self._store, root)
        instance_id = await cookies.instance_id()
        if instance_id is None:
            # Formatted by old tools, or no cluster at all: then no cookie may bind us to it.
            try:
                await read_layout(self._store, root)
            except IllegalOperationError as error:
                raise BookieStartError(f"bookie {self.bookie_id}: {error}") from error
        self._instance_id = instance_id
        # Before it is checked: what is made anew after this was not checked.
        self._cookie_ctime_ms = await cookies.ctime_ms(self.bookie_id)
        is_new = await check_cookies(
            cookies,
            places.data,
            places.cookie(self.bookie_id, instance_id),
            places.cookie_directories,
            allow_expansion=places.is_expansion_allowed,
            lost=[ledger_name(name) for name in places.lost],
            on_loss=partial(write_lost, places.journal),
        )
        if is_new:
            self._cookie_ctime_ms = await cookies.ctime_ms(self.bookie_id)
            _log.info("bookie %s is new: its cookie was made", self.bookie_id)

    async def _follow_lifecycle(self) -> None:
        watch = LifecycleWatch(
            self._store,
            self._config.ledgers_root,
            self.bookie_id,
            self._cookie_ctime_ms,
            self.serving.on_lifecycle,
            self._removed,
        )
        self._closers.append(watch.close)
        await watch.start()

    async def _listen(
        self,
        clock: Clock,
        tls: Tls | None,
        access: Reread[ClientAccess] | None,
        executor: Executor,
    ) -> None:
        self.server = BookieServer(
            self.bookie,
            self._config,
            clock,
            tls=tls,
            metrics=self.metrics,
            executor=executor,
            access=access,
        )
        if access is not None:
            access.on_change(self.server.access_changed)
        if isinstance(tls, TlsContexts):
            self._show_certificate(tls)
        self.port = await self.server.start()
        self._closers.append(self.server.close)
        self.metrics.add_source(self._figures)
        self.metrics.gauge(
            "bookie_SERVER_STATUS",
            "1: takes writes, 0: read-only, -1: not registered",
            self._server_status,
        )
        self.metrics.gauge(
            "bookie_ledger_dir_usage",
            "used share of the ledger directories",
            lambda: self.disk_watch.usage,
        )

    def _show_certificate(self, tls: TlsContexts) -> None:
        self.metrics.gauge(
            "bookkeeper_server_TLS_CERTIFICATE_SECONDS_LEFT",
            "how long the certificate of the bookie's port is valid yet",
            lambda: tls.seconds_left,
        )
        self.metrics.gauge(
            "bookkeeper_server_TLS_FILES_REFUSED",
            "1: there are new files of TLS that cannot be used, the old ones stay in use",
            lambda: float(tls.failure is not None),
        )

    async def _listen_http(self, api: Api | None, tls: Tls | None) -> None:
        config = self._config
        assert config.http_port is not None
        server = HealthServer(
            lambda: families(self.metrics), self.unhealthy_reason, self.unready_reason, api
        )
        self.http_port = await server.start(config.host, config.http_port, tls)
        self._closers.append(server.close)

    async def _register(self) -> None:
        config = self._config
        self.registration = Registration(
            self._store,
            config.ledgers_root,
            self.bookie_id,
            service_info_of(config, self.port, self.http_port, self._store.access),
            owner_wait_s=config.registration_timeout_s,
            instance_id=self._instance_id,
        )
        self._closers.append(self.registration.close)
        await self.registration.start(is_read_only=self.bookie.is_read_only)
        self.registration.on_state(self._registration_changed)
        follower = asyncio.get_running_loop().create_task(self._follow_mode())
        follower.add_done_callback(self._follower_ended)

        async def stop_following() -> None:
            follower.cancel()
            await asyncio.gather(follower, return_exceptions=True)

        self._closers.append(stop_following)

    def _start_disk_watch(self) -> None:
        self.disk_watch = DiskWatch(
            self.bookie.space, self._config, self.serving.on_disk, self.bookie.ledger_directories
        )
        self.disk_watch.start()

        async def close() -> None:
            self.disk_watch.close()

        self._closers.append(close)

    def _start_collector(self) -> None:
        self.collector.start()
        self._closers.append(self.collector.close)
        self.metrics.gauge(
            "bookie_collection_stopped",
            "1: the metadata store was put back to an older state, nothing is collected",
            lambda: float(self.collector.is_stopped),
        )

    def start_scrubber(self, scrubber: Scrubber) -> None:
        """Check and mend the entries in the background from now on (bookie.scrubber())."""
        self.scrubber = scrubber
        scrubber.start()
        self._closers.append(scrubber.close)
        self.metrics.add_source(scrubber.figures)

    # --- what changes while it runs ---------------------------------------------------------------

    def _removed(self) -> None:
        self.serving.on_removed()
        self._end(
            BookieError(
                f"bookie {self.bookie_id}: its cookie is gone from the metadata store, or "
                "another one of its id: it was removed and takes no part any more. Start it with "
                "empty directories to let it return as a new bookie"
            )
        )

    def _bookie_changed(self) -> None:
        self._mode_changed.set()
        failure = self.bookie.failure
        if failure is not None:
            self._end(
                BookieError(
                    f"bookie {self.bookie_id}: its journal failed in "
                    f"{self.directories.journal_name} ({failure}): what the disk holds is unknown "
                    "until it is replayed; mend the disk and start the bookie again"
                )
            )

    async def _follow_mode(self) -> None:
        """Let the registration say what the bookie does."""
        while True:
            await self._mode_changed.wait()
            self._mode_changed.clear()
            await self.registration.set_read_only(self.bookie.is_read_only)

    def _follower_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._end(
                BookieError(f"bookie {self.bookie_id}: its registration cannot follow it: {error}")
            )

    # --- what is known of it ----------------------------------------------------------------------

    @property
    def is_closing(self) -> bool:
        return self._closing is not None

    def unhealthy_reason(self) -> str | None:
        """Say why requests cannot be served; None: they can."""
        if self._closing is not None:
            return "the bookie is closing"
        if self.bookie.failure is not None:
            return f"the journal failed: {self.bookie.failure}"
        return None

    def unready_reason(self) -> str | None:
        """Say why the bookie is not to be used; None: it serves and is registered."""
        reason = self.unhealthy_reason()
        if reason is not None:
            return reason
        registration: Registration | None = getattr(self, "registration", None)
        if registration is None:
            return "the bookie has not registered yet"
        # While UNSURE it serves on: its session may well live.
        if registration.state in (RegistrationState.REGISTERED, RegistrationState.UNSURE):
            return None
        return f"the bookie's registration is {registration.state.value}"

    def _figures(self) -> list[Figure]:
        values = self.bookie.figures()
        return [Figure(name, _FIGURES.get(name, name), value) for name, value in values.items()]

    def _server_status(self) -> float:
        if self.unready_reason() is not None:
            return -1.0
        return 0.0 if self.bookie.is_read_only else 1.0

    # --- the end ----------------------------------------------------------------------------------

    def _registration_changed(self, state: RegistrationState) -> None:
        _log.info("bookie %s: its registration is %s", self.bookie_id, state.value)
        if state is RegistrationState.REFUSED:
            error = self.registration.error
            self._end(error or BookieStartError(f"bookie {self.bookie_id}: it was refused"))

    def _end(self, error: BookieError) -> None:
        """Stop by itself, because of this."""
        if self._closing is not None:
            return
        if not self._is_started:
            self._early_error = self._early_error or error
            return
        _log.critical("bookie %s stops: %s", self.bookie_id, error)
        self._closing = asyncio.get_running_loop().create_task(self._close_for(error))

    async def _close_for(self, error: BookieError | None) -> None:
        try:
            await self._close_all()
        finally:
            if not self._ended.done():
                if error is None:
                    self._ended.set_result(None)
                else:
                    self._ended.set_exception(error)
                    self._ended.exception()  # not every owner asks

    async def wait(self) -> None:
        """Wait for the end; raises why the bookie stopped by itself."""
        await asyncio.shield(self._ended)

    async def close(self) -> None:
        """Deregister, answer what is under way, flush, give everything back; idempotent."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close_for(None))
        await asyncio.shield(self._closing)

    async def _close_all(self) -> None:
        """Close what was started, the last first; the first error is raised in the end."""
        first: Exception | None = None
        while self._closers:
            try:
                await self._closers.pop()()
            except Exception as error:  # noqa: BLE001 - the others must be closed all the same
                _log.exception("bookie %s: an error while it closed", self.bookie_id)
                first = first or error
        if first is not None:
            raise first


async def _unlock(lock: DirectoryLock) -> None:
    lock.close()
