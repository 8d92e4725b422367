"""The endpoints of one bookie: its state, disks, files and collection. BookKeeper's, at its paths.

In a process without a bookie they are there as well, and say where the bookie's own are.
"""

import asyncio
import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any

from bookie.config import AutoRecoveryConfig, BookieConfig
from bookie.errors import IllegalOperationError, IncorrectParameterError, UnsupportedOperationError
from bookie.management.access import Role
from bookie.management.cluster import ClusterOperations
from bookie.management.long_tasks import Json, LongTasks
from bookie.management.routing import Argument, Call, Endpoint, Kind
from bookie.server.node import BookieNode
from bookie.server.storage import entry_log, journal_format
from bookie.server.storage.collector import CompactionKind, Compactions
from bookie.server.storage.journal import read_mark
from bookie.server.storage.scrubber import Scrubber

BOOKIE = "/api/v1/bookie"
CONFIG = "/api/v1/config/server_config"
_GC = "gc"
_FILE_TYPES = ("journal", "entrylog", "index")
_INDEX_FRONT = "index"


class BookieEndpoints:
    """See the module. node: None in a process without a bookie."""

    def __init__(
        self,
        node: BookieNode | None,
        config: BookieConfig | AutoRecoveryConfig,
        cluster: ClusterOperations,
        long_tasks: LongTasks,
    ) -> None:
        self._node = node
        self._config = config
        self._cluster = cluster
        self._long_tasks = long_tasks

    def table(self) -> tuple[Endpoint, ...]:
        read, admin = Role.READ, Role.ADMIN
        majors = "Of logs that are collected daily."
        minors = "Of logs that are collected hourly."
        return (
            Endpoint("GET", CONFIG, read, "The settings of this process; they hold no secret.",
                     self._settings),
            _refused("PUT", CONFIG, "Settings are read once, at the start: start again with --set "
                     "NAME=VALUE"),
            Endpoint("GET", f"{BOOKIE}/state", read,
                     "Whether this bookie serves and takes writes.", self._state),
            Endpoint("GET", f"{BOOKIE}/state/readonly", read, "Whether this bookie is read-only.",
                     self._read_only),
            Endpoint("PUT", f"{BOOKIE}/state/readonly", admin,
                     "Make this bookie read-only, or writable if nothing else forbids it.",
                     self._set_read_only,
                     body=(Argument("readOnly", Kind.FLAG, "As it is to be.", is_required=True),)),
            Endpoint("GET", f"{BOOKIE}/info", read, "This bookie's disk space, in bytes.",
                     self._info),
            Endpoint("GET", f"{BOOKIE}/last_log_mark", read,
                     "Where replay of the journal would begin: file and offset, by directory.",
                     self._mark),
            Endpoint("GET", f"{BOOKIE}/list_disk_file", read, "This bookie's files, by kind.",
                     self._files,
                     query=(Argument("file_type", Kind.TEXT, "journal, entrylog or index."),)),
            Endpoint("GET", f"{BOOKIE}/sanity", admin,
                     "Write a ledger to this bookie alone, read it back, delete it.",
                     self._sanity),
            Endpoint("PUT", f"{BOOKIE}/gc", admin,
                     "Remove deleted ledgers and compact logs now, in the background. Without a "
                     "flag a major compaction, or a minor one while major ones are suspended; with "
                     "one that is true that kind alone; with both a major one, which takes what a "
                     "minor one would.", self._begin_gc,
                     body=(Argument("forceMajor", Kind.FLAG, majors),
                           Argument("forceMinor", Kind.FLAG, minors))),
            Endpoint("GET", f"{BOOKIE}/gc", read, "Whether a collection that was asked for runs.",
                     self._gc),
            Endpoint("GET", f"{BOOKIE}/gc_details", read, "What was compacted when.",
                     self._gc_details),
            Endpoint("PUT", f"{BOOKIE}/gc/suspend_compaction", admin,
                     "Begin no compaction by time, until it is resumed or the bookie starts again.",
                     partial(self._suspend, is_suspended=True),
                     body=(Argument("suspendMajor", Kind.FLAG, majors),
                           Argument("suspendMinor", Kind.FLAG, minors))),
            Endpoint("GET", f"{BOOKIE}/gc/suspend_compaction", read,
                     "Whether compaction is suspended.", self._suspended),
            Endpoint("PUT", f"{BOOKIE}/gc/resume_compaction", admin, "Compact by time again.",
                     partial(self._suspend, is_suspended=False),
                     body=(Argument("resumeMajor", Kind.FLAG, majors),
                           Argument("resumeMinor", Kind.FLAG, minors))),
            Endpoint("GET", f"{BOOKIE}/scrub", read,
                     "How far the check of all entries is, and the ledgers with entries that are "
                     "lost or could not be mended.", self._scrub),
            Endpoint("PUT", f"{BOOKIE}/scrub", admin,
                     "Check all entries now, in the background, and mend what is damaged. "
                     "is_begun is false when a check is under way: it goes on where it is.",
                     self._begin_scrub),
            _refused("PUT", f"{BOOKIE}/expand_storage", "Start the bookie again with the new "
                     "directory among its --ledgers, and with --expand"),
            _refused("PUT", f"{BOOKIE}/entry_location_compact", "The index (LMDB) uses freed pages "
                     "again by itself; there is nothing to compact"),
            _refused("GET", f"{BOOKIE}/entry_location_compact", "The index (LMDB) uses freed pages "
                     "again by itself; there is nothing to compact"),
        )  # fmt: skip

    @property
    def _here(self) -> BookieNode:
        if self._node is None:
            raise UnsupportedOperationError(
                "expected a bookie in this process, found AutoRecovery alone; ask the HTTP port of "
                "the bookie itself"
            )
        return self._node

    async def _settings(self, call: Call) -> object:
        return dataclasses.asdict(self._config)

    async def _state(self, call: Call) -> object:
        node = self._here
        state = node.serving.lifecycle_state
        return {
            "running": node.unhealthy_reason() is None,
            "readOnly": node.serving.is_read_only,
            "shuttingDown": node.is_closing,
            "availableForHighPriorityWrites": node.bookie.takes_priority,
            "lifecycle": None if state is None else state.value,
        }

    async def _read_only(self, call: Call) -> object:
        return {"readOnly": self._here.serving.is_read_only}

    async def _set_read_only(self, call: Call) -> object:
        node, is_read_only = self._here, call.body["readOnly"]
        if node.is_started_read_only and not is_read_only:
            raise IllegalOperationError(
                f"bookie {node.bookie_id}: it was started with --read-only, and stays so; start it "
                "again without"
            )
        node.serving.set_read_only(is_read_only=is_read_only)
        return await self._read_only(call)

    async def _info(self, call: Call) -> object:
        total, free = self._here.bookie.space()
        return {"freeSpace": free, "totalSpace": total}

    async def _mark(self, call: Call) -> object:
        directories = self._here.directories

        def mark() -> object:
            found = read_mark(directories.journal)
            file, offset = (0, 0) if found is None else found.position
            return {directories.journal_name: {"file": file, "offset": offset}}

        return await asyncio.get_running_loop().run_in_executor(None, mark)

    async def _files(self, call: Call) -> object:
        wanted = call.query.get("file_type")
        if wanted is not None and wanted not in _FILE_TYPES:
            raise IncorrectParameterError(
                f"file_type: expected {', '.join(_FILE_TYPES)}, found {wanted[:20]!r}"
            )
        directories = self._here.directories

        def names() -> dict[str, list[str]]:
            found: dict[str, list[str]] = {}
            if wanted in (None, "journal"):
                found["journal"] = directories.journal.list(journal_format.DIRECTORY)
            if wanted in (None, "entrylog"):
                folders = [one.disk for one in directories.ledgers]
                found["entrylog"] = [n for disk in folders for n in disk.list(entry_log.DIRECTORY)]
            if wanted in (None, "index"):
                names = directories.data.list("")
                found["index"] = [name for name in names if name.startswith(_INDEX_FRONT)]
            return found

        return await asyncio.get_running_loop().run_in_executor(None, names)

    async def _sanity(self, call: Call) -> object:
        node = self._here
        if node.serving.is_read_only:
            return {"passed": True, "readOnly": True}
        return await self._cluster.sanity(node.bookie_id) | {"readOnly": False}

    # --- collection -------------------------------------------------------------------------------

    async def _begin_gc(self, call: Call) -> object:
        collector = self._here.collector
        kind = _forced(call.body, collector.compactions)

        async def work(record: Json) -> None:
            record["compaction"] = kind
            record["removed_ledgers"] = len(await collector.collect())
            if kind is not None:
                await collector.compact_by(kind)

        return self._long_tasks.begin(_GC, work)

    async def _gc(self, call: Call) -> object:
        last = self._long_tasks.last(_GC) if self._here else {}
        return {"is_in_force_gc": self._long_tasks.is_running(_GC), "last": last}

    async def _gc_details(self, call: Call) -> object:
        compactions = self._here.collector.compactions
        now_s, now_ms = asyncio.get_running_loop().time(), self._cluster.clock.wall_us() // 1000

        def time_ms(at_s: float | None) -> int | None:
            return None if at_s is None else now_ms - round((now_s - at_s) * 1000)

        major, minor = compactions["major"], compactions["minor"]
        details: dict[str, Any] = {
            "forceCompacting": self._long_tasks.is_running(_GC),
            "majorCompacting": major.is_running,
            "minorCompacting": minor.is_running,
            "lastMajorCompactionTime": time_ms(major.last_s),
            "lastMinorCompactionTime": time_ms(minor.last_s),
            "majorCompactionCounter": major.count,
            "minorCompactionCounter": minor.count,
        }
        return [details]

    async def _suspend(self, call: Call, *, is_suspended: bool) -> object:
        compactions = self._here.collector.compactions
        wanted = [name for name, is_wanted in call.body.items() if is_wanted]
        if not wanted:
            raise IncorrectParameterError(
                "body: expected a flag for Major or Minor that is true, found none"
            )
        for name in wanted:
            compactions["major" if name.endswith("Major") else "minor"].is_suspended = is_suspended
        return await self._suspended(call)

    async def _suspended(self, call: Call) -> object:
        compactions = self._here.collector.compactions
        return {
            "isMajorGcSuspended": compactions["major"].is_suspended,
            "isMinorGcSuspended": compactions["minor"].is_suspended,
        }

    # --- scrub ------------------------------------------------------------------------------------

    @property
    def _scrubber(self) -> Scrubber:
        scrubber = self._here.scrubber
        if scrubber is None:
            raise UnsupportedOperationError("this bookie runs without a scrub of its entries")
        return scrubber

    async def _scrub(self, call: Call) -> object:
        return self._scrubber.status()

    async def _begin_scrub(self, call: Call) -> object:
        return {"is_begun": self._scrubber.begin(), **self._scrubber.status()}


def _forced(
    flags: Mapping[str, bool], compactions: Mapping[CompactionKind, Compactions]
) -> CompactionKind | None:
    """Return which compaction is asked for, None: neither. A flag unsaid: unless suspended."""

    def is_wanted(kind: CompactionKind, flag: str, other: str) -> bool:
        is_default = not (flags.get(other, False) or compactions[kind].is_suspended)
        return flags.get(flag, is_default)

    if is_wanted("major", "forceMajor", "forceMinor"):
        return "major"
    return "minor" if is_wanted("minor", "forceMinor", "forceMajor") else None


def _refused(method: str, path: str, replacement: str) -> Endpoint:
    """Return an endpoint of BookKeeper's that does nothing here, and says what does."""

    async def refuse(call: Call) -> object:
        raise UnsupportedOperationError(f"{method} {path}: not done over HTTP. {replacement}")

    role = Role.READ if method == "GET" else Role.ADMIN
    summary = f"Refused with 501. {replacement}."
    return Endpoint(method, path, role, summary, refuse, replacement=replacement)
