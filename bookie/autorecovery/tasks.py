"""TaskStore: what auditors, workers and tools keep below `underreplication`.

Tasks, locks, the switch, the delay and the times of checks are BookKeeper's own nodes, so that its
auditor and workers do their half beside ours (docs/formats/zookeeper.md). `status` is ours: why a
ledger cannot be replicated now, at most STATUS_COUNT_MAX of them. Every write may be repeated after
a lost answer: what is there decides (ADR 0009). Source: ZkLedgerUnderreplicationManager.
"""

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from bookie.autorecovery.formats import (
    Task,
    check_layout,
    check_time_bytes,
    check_time_of,
    holder_of,
    layout_bytes,
    lock_bytes,
)
from bookie.errors import (
    BadVersionError,
    CorruptFileError,
    DeposedAuditorError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)
from bookie.ledger.types import BookieId
from bookie.metadata import task_locks, workers
from bookie.metadata.interfaces import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    Operation,
    VersionedStore,
    Watch,
    Write,
)
from bookie.metadata.ledger_paths import (
    DISABLED,
    TASK_LOCKS,
    UNDER_REPLICATION,
    VOTES,
    task_lock_path,
    task_name,
)
from bookie.metadata.paths import join, parent_of
from bookie.metadata.patience import BROKEN, PATIENCE_S, Patience, ask

STATUS_COUNT_MAX = 1000
STATUS_TEXT_MAX = 500
"""Characters of a reason."""
_HOLDER_CHARS_MAX = 200
T = TypeVar("T")
OnChange = Callable[[], None]
_NextOperation = Callable[[], Awaitable[Operation | None]]
_TASK_NAME = re.compile(r"urL(\d{1,19})")

Guard = Sequence[Check]
"""Checks that go with every write: those of an auditor's vote; empty for tools and workers."""


class CheckKind(Enum):
    """The periodic checks whose last time is kept; the value is the node's name."""

    ALL_LEDGERS = "checkallledgersctime"
    PLACEMENT = "placementpolicycheckctime"
    ENTRIES = "replicascheckctime"


@dataclass(frozen=True, slots=True)
class Status:
    """Why a ledger is not replicated now."""

    ledger_id: int
    worker: str
    reason: str
    is_loss: bool
    """No bookie that answers has some entry: it is lost unless one that is away has it."""
    failure_count: int
    time_ms: int


class TaskStore:
    """See the module. Used from its loop's thread. Errors: MetadataStoreError, CorruptFileError."""

    def __init__(self, store: VersionedStore, root: str, patience_s: float = PATIENCE_S) -> None:
        self._store = store
        self._patience_s = patience_s
        self._base = join(root, UNDER_REPLICATION)
        self._tasks = join(self._base, "ledgers")
        self._root = root
        self._locks = join(root, TASK_LOCKS)
        self._statuses = join(self._base, "status")
        self._disable = join(root, DISABLED)
        self._delay = join(self._base, "lostBookieRecoveryDelay")
        self.votes_path = join(root, VOTES)

    async def prepare(self) -> None:
        """Make the nodes that are missing; CorruptFileError for a layout that is not ours."""
        layout_path = join(self._base, "LAYOUT")
        await self._create(self._base)
        await self._create(layout_path, layout_bytes())
        data, _ = await self._ask(lambda: self._store.read(layout_path))
        check_layout(data, layout_path)
        for path in (self._tasks, self._locks, self.votes_path):
            await self._create(path)
        # Apache's shell reads it where it asks for an audit, and expects it there.
        await self._create(self._delay, b"0")

    # --- tasks ------------------------------------------------------------------------------------

    def task_path(self, ledger_id: int) -> str:
        parts = (f"{ledger_id >> shift & 0xFFFF:04x}" for shift in (48, 32, 16, 0))
        return "/".join((self._tasks, *parts, task_name(ledger_id)))

    async def ledger_ids(self) -> AsyncIterator[int]:
        """Yield the ledgers that have a task, ascending; tasks made or removed meanwhile may be."""
        async for ledger_id in self._walk(self._tasks, 4):
            yield ledger_id

    async def read(self, ledger_id: int) -> tuple[Task, int] | None:
        """Return a ledger's task and its version; None: it has none."""
        path = self.task_path(ledger_id)
        try:
            data, stat = await self._ask(lambda: self._store.read(path))
        except NoNodeError:
            return None
        return Task.from_bytes(data, path), stat.version

    async def publish(
        self, ledger_id: int, missing: Sequence[BookieId], now_ms: int, guard: Guard = ()
    ) -> None:
        """Make a task, or add to the one there is.

        One that names these bookies already is written all the same: a worker that found its
        ledger whole before one of them was lost must not remove it. Errors: DeposedAuditorError
        when a check of the guard fails; nothing was written then.
        """
        path = self.task_path(ledger_id)

        async def operation() -> Operation:
            try:
                data, stat = await self._store.read(path)
            except NoNodeError:
                return Create(path, Task(tuple(missing), now_ms).to_bytes())
            merged = Task.from_bytes(data, path).merged(tuple(missing))
            return Write(path, merged.to_bytes(), stat.version)

        await self._guarded(operation, guard)

    async def finish(self, ledger_id: int, owner: str, version: int) -> bool:
        """Remove a task that was read under `owner`'s lock, and the lock; False: it is to stay.

        It is when it was published again, or the lock is no longer the owner's in this session. The
        lock goes in the same transaction: what is published after it is never taken for this task.
        """
        path = self.task_path(ledger_id)
        lock = Delete(task_lock_path(self._root, ledger_id), task_locks.VERSION)
        patience = Patience(self._store, self._patience_s)
        is_lost = False
        """True once an answer was lost: it may have told that both are removed."""
        while await self.is_lock_held(ledger_id, owner):
            try:
                await self._store.multi([lock, Delete(path, version)])
                break
            except NoNodeError as error:
                if error.path == path:  # removed by hand
                    await self.unlock(ledger_id, owner)
                    break
            except BadVersionError:
                return False
            except BROKEN as error:
                is_lost = True
                await patience.again(error)
        else:
            if not is_lost or await self.read(ledger_id) is not None:
                return False
        await self._prune(parent_of(path))
        return True

    async def _prune(self, path: str) -> None:
        """Remove the directories above a task that it leaves empty; one more does no harm."""
        while path != self._tasks:
            try:
                found = await self._store.exists(path)
                if found is not None and found.child_count:
                    return
                await self._store.delete(path)
            except NoNodeError:
                pass
            except (NotEmptyError, *BROKEN):
                return
            path = parent_of(path)

    # --- locks ------------------------------------------------------------------------------------

    async def lock(self, ledger_id: int, owner: str) -> bool:
        """Take a ledger's lock for `owner` in this session; False: another has it."""
        path = task_lock_path(self._root, ledger_id)
        return await task_locks.take(self._store, path, lock_bytes(owner), self._patience_s)

    @property
    def session_id(self) -> int:
        """The session of the store, as this process knows it: locks are gone with theirs."""
        return self._store.session_id

    async def is_lock_held(self, ledger_id: int, owner: str) -> bool:
        """Tell whether `owner` has a ledger's lock, in this session."""
        path = task_lock_path(self._root, ledger_id)
        return await task_locks.owns(self._store, path, lock_bytes(owner), self._patience_s)

    async def unlock(self, ledger_id: int, owner: str) -> None:
        """Give a lock back; does nothing where it is not this owner's, or its session is gone."""
        path = task_lock_path(self._root, ledger_id)
        await task_locks.give_back(self._store, path, lock_bytes(owner), self._patience_s)

    async def locked(self) -> list[int]:
        """Return the ledgers that some worker has locked, ascending."""
        return _ids(await self._children(self._locks))

    async def holders(self, ledger_ids: Collection[int]) -> Mapping[int, str]:
        """Return what those locks that there are for these ledgers call their owners."""
        holders: dict[int, str] = {}
        for ledger_id in await self.locked():
            if ledger_id not in ledger_ids:
                continue
            path = task_lock_path(self._root, ledger_id)
            try:
                data, _ = await self._ask(lambda path=path: self._store.read(path))
            except NoNodeError:
                continue  # given back since
            holders[ledger_id] = holder_of(data)[:_HOLDER_CHARS_MAX]
        return holders

    # --- workers ----------------------------------------------------------------------------------

    async def register_worker(self, name: str) -> None:
        """Let a worker be seen while this session lives; to be repeated."""
        await workers.register(self._store, self._root, name, self._patience_s)

    async def unregister_worker(self, name: str) -> None:
        await workers.unregister(self._store, self._root, name, self._patience_s)

    async def workers(self) -> tuple[str, ...]:
        """Return the workers that are registered, sorted: ours alone, Apache's register nowhere."""
        return await workers.registered(self._store, self._root, self._patience_s)

    # --- the switch, the delay, the times of checks -----------------------------------------------

    async def is_enabled(self) -> bool:
        return await self._ask(lambda: self._store.exists(self._disable)) is None

    async def enable(self) -> None:
        """Let auditors publish and workers replicate again."""
        await self._delete(self._disable)

    async def disable(self) -> None:
        """Stop auditors from publishing and workers from taking tasks, until enable()."""
        await self.prepare()
        await self._create(self._disable)

    def watch_switch(self, callback: OnChange) -> Watch:
        return self._store.watch(self._disable, callback)

    async def lost_bookie_delay_s(self) -> int:
        """Return how long one lost bookie is waited for; 0 where nothing was said."""
        try:
            data, _ = await self._ask(lambda: self._store.read(self._delay))
        except NoNodeError:
            return 0
        try:
            return max(0, int(data.decode("ascii")))
        except ValueError:
            raise CorruptFileError(
                f"{self._delay}: expected seconds, found {data!r}; "
                "`bookie replication delay SECONDS` mends it"
            ) from None

    async def set_lost_bookie_delay(self, delay_s: int) -> None:
        """Set how long one lost bookie is waited for."""
        await self.prepare()
        data = b"%d" % delay_s
        await self._ask(lambda: self._store.write(self._delay, data, ANY_VERSION))

    async def request_audit(self) -> None:
        """Let the auditor check the bookies now.

        A write of the delay, of the same value too, makes any auditor do so, Apache's as well.
        """
        await self.set_lost_bookie_delay(await self.lost_bookie_delay_s())

    def watch_delay(self, callback: OnChange) -> Watch:
        return self._store.watch(self._delay, callback)

    async def check_time_ms(self, kind: CheckKind) -> int:
        """Return when a check was last done; 0: never."""
        path = join(self._base, kind.value)
        try:
            data, _ = await self._ask(lambda: self._store.read(path))
        except NoNodeError:
            return 0
        return check_time_of(data, path)

    async def forget_check_times(self) -> None:
        """Let every periodic check that is not switched off be due."""
        for kind in CheckKind:
            await self._delete(join(self._base, kind.value))

    async def set_check_time(self, kind: CheckKind, time_ms: int, guard: Guard) -> None:
        """Note that a check was done; DeposedAuditorError."""
        await self.write_note(kind.value, check_time_bytes(time_ms), guard)

    async def announce(self, data: bytes, guard: Guard) -> None:
        """Write who the auditor is, as Apache's tools read it; DeposedAuditorError."""

        async def operation() -> Operation | None:
            found, stat = await self._store.read(self.votes_path)
            return None if found == data else Write(self.votes_path, data, stat.version)

        await self._guarded(operation, guard)

    # --- statuses ---------------------------------------------------------------------------------

    async def report(self, status: Status, *, is_first_only: bool = False) -> bool:
        """Keep why a ledger is not replicated; False: there are too many already.

        is_first_only: what is kept of the ledger stands.
        """
        path = join(self._statuses, task_name(status.ledger_id))
        record = {
            "worker": status.worker,
            "reason": status.reason[:STATUS_TEXT_MAX],
            "is_loss": status.is_loss,
            "failure_count": status.failure_count,
            "time_ms": status.time_ms,
        }
        data = json.dumps(record).encode()
        await self._create(self._statuses)
        if await self._ask(lambda: self._store.exists(path)) is None:
            if len(await self._children(self._statuses)) >= STATUS_COUNT_MAX:
                return False
            await self._create(path)
        elif is_first_only:
            return True

        async def write() -> None:
            await self._store.write(path, data, ANY_VERSION)

        try:
            await self._ask(write)
        except NoNodeError:
            pass  # cleared meanwhile: the ledger is replicated
        return True

    async def clear_report(self, ledger_id: int) -> None:
        path = join(self._statuses, task_name(ledger_id))
        # Few ledgers have one, and a delete that finds nothing costs the store as much as a write.
        if await self._ask(lambda: self._store.exists(path)) is not None:
            await self._delete(path)

    async def statuses(self) -> list[Status]:
        """Return what is known of ledgers that could not be replicated, by ledger."""
        found: list[Status] = []
        for ledger_id in _ids(await self._children(self._statuses)):
            path = join(self._statuses, task_name(ledger_id))
            try:
                data, _ = await self._ask(lambda path=path: self._store.read(path))
                record = json.loads(data)
                found.append(Status(ledger_id=ledger_id, **record))
            except NoNodeError:
                continue
            except (ValueError, TypeError):
                continue  # made and not written yet
        return found

    # --- notes ------------------------------------------------------------------------------------

    async def read_note(self, name: str) -> bytes:
        """Return what an auditor keeps for the next one, below `underreplication`; b"": nothing."""
        path = join(self._base, name)

        async def question() -> bytes:
            await self._store.sync(path)
            return (await self._store.read(path))[0]

        try:
            return await self._ask(question)
        except NoNodeError:
            return b""

    async def write_note(self, name: str, data: bytes, guard: Guard) -> None:
        """Keep this from now on; DeposedAuditorError."""
        path = join(self._base, name)

        async def operation() -> Operation | None:
            try:
                found, stat = await self._store.read(path)
            except NoNodeError:
                return Create(path, data)
            return None if found == data else Write(path, data, stat.version)

        await self._guarded(operation, guard)

    # --- what the above is made of ----------------------------------------------------------------

    async def _guarded(self, operation: _NextOperation, guard: Guard) -> None:
        """Do an operation together with the guard's checks, decided anew until it is done.

        None is nothing to do. DeposedAuditorError when a check fails.
        """
        patience = Patience(self._store, self._patience_s)
        while True:
            path = ""
            try:
                wanted = await operation()
                if wanted is None:
                    return
                path = wanted.path
                await self._store.multi([*guard, wanted])
                return
            except (NoNodeError, BadVersionError) as error:
                if any(error.path == check.path for check in guard):
                    raise _deposed(error.path) from error
                if isinstance(error, NoNodeError):
                    await self._make_parent(parent_of(path), guard)
            except NodeExistsError:
                pass
            except BROKEN as error:
                await patience.again(error)
                continue
            # What was read is behind what was refused.
            await self._ask(lambda path=path: self._store.sync(path))

    async def _make_parent(self, path: str, guard: Guard) -> None:
        async def operation() -> Operation | None:
            return None if await self._store.exists(path) is not None else Create(path)

        await self._guarded(operation, guard)

    async def _walk(self, path: str, depth: int) -> AsyncIterator[int]:
        for name in await self._children(path):
            if depth:
                async for ledger_id in self._walk(join(path, name), depth - 1):
                    yield ledger_id
            else:
                match = _TASK_NAME.fullmatch(name)
                if match is not None:
                    yield int(match[1])

    async def _children(self, path: str) -> list[str]:
        try:
            return await self._ask(lambda: self._store.children(path))
        except NoNodeError:
            return []

    async def _create(self, path: str, data: bytes = b"") -> None:
        async def question() -> None:
            if await self._store.exists(path) is None:
                await self._store.create(path, data)

        try:
            await self._ask(question)
        except NodeExistsError:
            pass

    async def _delete(self, path: str) -> None:
        try:
            await self._ask(lambda: self._store.delete(path))
        except NoNodeError:
            pass

    async def _ask(self, question: Callable[[], Awaitable[T]]) -> T:
        return await ask(self._store, self._patience_s, question)


def vote_guard(vote_path: str) -> Guard:
    """Return what makes a multi fail once a vote is gone: it is written once, by its create."""
    return (Check(vote_path, 0),)


def _deposed(vote_path: str) -> DeposedAuditorError:
    return DeposedAuditorError(
        f"{vote_path}: expected this auditor's vote, found none: its session ended or the vote was "
        "removed, and another auditor acts; nothing was written"
    )


def _ids(names: Sequence[str]) -> list[int]:
    matches = [_TASK_NAME.fullmatch(name) for name in names]
    return sorted(int(match[1]) for match in matches if match is not None)
