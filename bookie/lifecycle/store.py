"""LifecycleStore: reads and moves the lifecycle states in the metadata store, by multi alone.

A state lies at `cookies/<bookie id>/state`, the list of its drain in pieces below. Every write
checks the version of the cookie, and the begin and the cancellation of a drain write the cookie
anew with the same bytes. So a writer that checks its version names none but an Active bookie; and
while the state node of a later drain begins at version 0 again, a slow writer of an earlier drain
does not pass for one of this. A lost answer is decided by content (ADR 0009). Used from its loop's
thread only.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from bookie.errors import (
    BadVersionError,
    CorruptFileError,
    IllegalOperationError,
    MetadataVersionError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    StoreError,
)
from bookie.ledger.types import BookieId
from bookie.lifecycle import codec
from bookie.lifecycle.states import (
    ACTIVE,
    DrainLedger,
    LifecycleRecord,
    LifecycleState,
    Step,
    after,
)
from bookie.metadata.bookies import absence, registration_paths, still_registered
from bookie.metadata.cookies import no_such_bookie
from bookie.metadata.interfaces import Check, Create, Delete, Operation, VersionedStore, Write
from bookie.metadata.ledger_paths import COOKIES, STATE
from bookie.metadata.paths import join
from bookie.metadata.patience import BROKEN, PATIENCE_S, Patience, ask

_log = logging.getLogger(__name__)
_PIECE = "ledgers-"
_ATTEMPTS_MAX = 20
"""Conflicts in a row after which a writer gives up; each needs another writer to have succeeded."""
_CONFLICTS = (BadVersionError, NoNodeError, NodeExistsError, NotEmptyError)


class Found(NamedTuple):
    """The lifecycle of one bookie as read; what a write of it is compared with."""

    bookie_id: BookieId
    record: LifecycleRecord
    version: int | None
    """Of the state node; None: there is none."""
    cookie: bytes
    cookie_version: int
    cookie_ctime_ms: int = 0
    """When the cookie was made: of a bookie that returns after its removal, another time."""


class States(NamedTuple):
    """The lifecycles of all bookies, each list sorted by id."""

    founds: list[Found]
    unreadable: dict[BookieId, str]
    """Why a state cannot be read. Its bookie takes no adds, so that none copies there."""


class LifecycleStore:
    """See the module. Errors of all methods: MetadataStoreError, CorruptFileError."""

    def __init__(self, store: VersionedStore, root: str) -> None:
        self._store = store
        self._root = root
        self._cookies = join(root, COOKIES)

    def cookie_path(self, bookie_id: BookieId) -> str:
        return join(self._cookies, bookie_id)

    def state_path(self, bookie_id: BookieId) -> str:
        return join(self.cookie_path(bookie_id), STATE)

    # --- reading ----------------------------------------------------------------------------------

    async def find(self, bookie_id: BookieId) -> Found | None:
        """Return the newest state; None: the bookie has no cookie."""

        async def question() -> Found | None:
            path = self.cookie_path(bookie_id)
            await self._store.sync(path)
            while True:
                try:
                    cookie, stat = await self._store.read(path)
                except NoNodeError:
                    return None
                try:
                    data, state_stat = await self._store.read(self.state_path(bookie_id))
                except NoNodeError:
                    return Found(bookie_id, ACTIVE, None, cookie, stat.version, stat.ctime_ms)
                # A cancellation in between would pair a state with the cookie of another drain.
                again = await self._store.exists(path)
                if again is not None and again.version == stat.version:
                    record = codec.record_from_bytes(data, self.state_path(bookie_id))
                    return Found(
                        bookie_id, record, state_stat.version, cookie, stat.version, stat.ctime_ms
                    )

        return await ask(self._store, PATIENCE_S, question)

    async def expect(self, bookie_id: BookieId) -> Found:
        """Return the newest state; NoSuchBookieError when the bookie has no cookie."""
        found = await self.find(bookie_id)
        if found is None:
            raise no_such_bookie(bookie_id, await self.bookie_ids())
        return found

    async def bookie_ids(self) -> tuple[BookieId, ...]:
        """Return every bookie that has a cookie now, sorted."""

        async def question() -> list[str]:
            await self._store.sync(self._cookies)
            return await self._store.children(self._cookies)

        try:
            names = await ask(self._store, PATIENCE_S, question)
        except NoNodeError:
            names = []
        return tuple(BookieId(name) for name in names)

    async def all(self) -> States:
        """Return the state of every bookie that has a cookie."""
        founds: list[Found] = []
        unreadable: dict[BookieId, str] = {}
        for bookie_id in await self.bookie_ids():
            try:
                found = await self.find(bookie_id)
            except CorruptFileError as error:
                _log.error("the lifecycle state of bookie %s cannot be read: %s", bookie_id, error)
                unreadable[bookie_id] = str(error)
                continue
            if found is not None:
                founds.append(found)
        return States(founds, unreadable)

    async def leaving(self) -> frozenset[BookieId]:
        """Return the bookies that drain: workers copy from them, and none to them."""
        return frozenset(await self._draining())

    async def spared(self) -> frozenset[BookieId]:
        """Return those that drain and for which no open ledger may be fenced."""
        draining = await self._draining()
        return frozenset(one for one, record in draining.items() if not record.may_fence)

    async def _draining(self) -> dict[BookieId, LifecycleRecord]:
        """Return the admitted drains: one read for each bookie, all together."""
        bookie_ids = await self.bookie_ids()
        records = await asyncio.gather(*map(self._record, bookie_ids))
        return {
            bookie_id: record
            for bookie_id, record in zip(bookie_ids, records, strict=True)
            if record.state is LifecycleState.DRAINING and record.is_admitted
        }

    async def _record(self, bookie_id: BookieId) -> LifecycleRecord:
        """Return what the state node says; ACTIVE where there is none, or it cannot be read."""
        path = self.state_path(bookie_id)
        try:
            data, _ = await ask(self._store, PATIENCE_S, lambda: self._store.read(path))
            return codec.record_from_bytes(data, path)
        except NoNodeError:
            return ACTIVE
        except CorruptFileError as error:
            _log.error("the lifecycle state of bookie %s cannot be read: %s", bookie_id, error)
            return ACTIVE

    async def ledgers(self, bookie_id: BookieId) -> list[DrainLedger]:
        """Return the list of the bookie's drain, ascending; empty: there is none."""
        ledgers: list[DrainLedger] = []
        for path in await self._pieces(bookie_id):
            try:
                data, _ = await ask(
                    self._store, PATIENCE_S, lambda path=path: self._store.read(path)
                )
            except NoNodeError:
                continue  # removed since
            ledgers += codec.ledgers_from_piece(data, path)
        return sorted(set(ledgers))

    async def _pieces(self, bookie_id: BookieId) -> list[str]:
        parent = self.state_path(bookie_id)
        try:
            names = await ask(self._store, PATIENCE_S, lambda: self._store.children(parent))
        except NoNodeError:
            return []
        return [join(parent, name) for name in sorted(names)]

    # --- writing ----------------------------------------------------------------------------------

    async def move(
        self,
        bookie_id: BookieId,
        step: Step,
        change: Callable[[LifecycleRecord], LifecycleRecord],
        *,
        guard: Sequence[Operation] = (),
    ) -> Found:
        """Take a step; change() gets the record as it is and returns the next one's content.

        The machine says the next state, whatever change() says. Read and decided again after a
        conflict. Errors: IllegalOperationError (not allowed from the state found, or no cookie),
        MetadataVersionError (conflicts without end), what a Check of `guard` raises.
        """
        for _ in range(_ATTEMPTS_MAX):
            found = await self.expect(bookie_id)
            state = after(bookie_id, found.record.state, step)
            if state is LifecycleState.ACTIVE:
                is_done = await self._clear(found, guard)
            else:
                record = change(found.record)
                wanted = _with_state(record, state)
                is_done = await self._replace(found, wanted, guard)
            if is_done:
                return await self.expect(bookie_id)
        raise self._contended(bookie_id)

    async def update(
        self, found: Found, record: LifecycleRecord, *, guard: Sequence[Operation] = ()
    ) -> bool:
        """Replace what was found by a record of the same state; False: it is no longer so."""
        if record.state is not found.record.state or found.version is None:
            raise IllegalOperationError(
                f"bookie {found.bookie_id}: expected an update of {found.record.state.value}, "
                f"found {record.state.value}; states change by a step"
            )
        return await self._replace(found, record, guard)

    async def finish(
        self, found: Found, step: Step, record: LifecycleRecord, *, guard: Sequence[Operation]
    ) -> bool:
        """Take a step from exactly what was found; False: it is no longer so, nothing was done."""
        state = after(found.bookie_id, found.record.state, step)
        return await self._replace(found, _with_state(record, state), guard)

    async def write_ledgers(
        self, found: Found, ledgers: Sequence[DrainLedger], *, guard: Sequence[Operation] = ()
    ) -> bool:
        """Replace the list of a drain; False: its state is no longer what was found."""
        parent = self.state_path(found.bookie_id)
        pieces = codec.pieces_of(ledgers)
        there = await self._pieces(found.bookie_id)
        # One node to a multi: all pieces together may be more than one message may hold.
        for number, data in enumerate(pieces):
            path = join(parent, f"{_PIECE}{number:06d}")
            operation: Operation = Write(path, data) if path in there else Create(path, data)
            if not await self._put(found, path, data, operation, guard):
                return False
        kept = {join(parent, f"{_PIECE}{number:06d}") for number in range(len(pieces))}
        for path in there:
            if path not in kept and not await self._put(found, path, None, Delete(path), guard):
                return False
        return True

    async def remove(self, found: Found, *, guard: Sequence[Operation] = ()) -> None:
        """Forget a Drained bookie: cookie, state and all below it in one multi.

        The caller has repeated the scan. IllegalOperationError while the bookie is registered or
        not Drained; MetadataVersionError when its state changed meanwhile.
        """
        bookie_id = found.bookie_id
        if found.record.state is not LifecycleState.DRAINED:
            raise IllegalOperationError(
                f"bookie {bookie_id}: expected it Drained to remove it, found "
                f"{found.record.state.value}; drain it first"
            )
        patience = Patience(self._store, PATIENCE_S)
        for _ in range(_ATTEMPTS_MAX):
            await self.expect_unregistered(bookie_id)
            absent = await absence(self._store, self._root, bookie_id)
            operations: list[Operation] = [*guard, *absent]
            operations += [Delete(path) for path in await self._pieces(bookie_id)]
            operations += [
                Delete(self.state_path(bookie_id), _version(found)),
                Delete(self.cookie_path(bookie_id), found.cookie_version),
            ]
            try:
                await self._store.multi(operations)
                return
            except BROKEN as error:
                await patience.again(error)
            except _CONFLICTS:
                pass
            now = await self.find(bookie_id)
            if now is None:
                return
            if now != found:
                raise MetadataVersionError(
                    f"bookie {bookie_id}: its state or cookie was changed meanwhile, it is "
                    f"{now.record.state.value} now; nothing was removed"
                )
        raise self._contended(bookie_id)

    async def expect_unregistered(self, bookie_id: BookieId) -> None:
        """IllegalOperationError while a bookie is registered, as read after a sync()."""

        async def question() -> bool:
            await self._store.sync(self._root)
            paths = await registration_paths(self._store, self._root, bookie_id)
            return any([await self._store.exists(path) is not None for path in paths])

        if await ask(self._store, PATIENCE_S, question):
            raise still_registered(bookie_id)

    async def _replace(
        self, found: Found, record: LifecycleRecord, guard: Sequence[Operation]
    ) -> bool:
        """Write record where `found` still stands; False: it does not."""
        path = self.state_path(found.bookie_id)
        data = codec.record_to_bytes(record)
        cookie_path, cookie_version = self.cookie_path(found.bookie_id), found.cookie_version
        if found.version is None:
            # The cookie's version tells those that would name the bookie, see active_check().
            begun = Write(cookie_path, found.cookie, cookie_version), Create(path, data)
            operations: list[Operation] = [*guard, *begun]
            version = 0
            cookie_version += 1
        else:
            unchanged = Check(cookie_path, cookie_version)
            operations = [*guard, unchanged, Write(path, data, found.version)]
            version = found.version + 1
        wanted = found._replace(
            record=codec.record_from_bytes(data, path),
            version=version,
            cookie_version=cookie_version,
        )
        return await self._do(found, operations, guard, wanted)

    async def _clear(self, found: Found, guard: Sequence[Operation]) -> bool:
        """Make the bookie Active; False: `found` no longer stands."""
        cookie_path = self.cookie_path(found.bookie_id)
        operations = [
            *guard,
            *(Delete(path) for path in await self._pieces(found.bookie_id)),
            Delete(self.state_path(found.bookie_id), _version(found)),
            Write(cookie_path, found.cookie, found.cookie_version),
        ]
        wanted = found._replace(
            record=ACTIVE, version=None, cookie_version=found.cookie_version + 1
        )
        return await self._do(found, operations, guard, wanted)

    async def _do(
        self,
        found: Found,
        operations: Sequence[Operation],
        guard: Sequence[Operation],
        wanted: Found,
    ) -> bool:
        """Do all or nothing; False after a conflict. A lost answer is decided by content."""
        patience = Patience(self._store, PATIENCE_S)
        while True:
            try:
                await self._store.multi(operations)
                return True
            except _CONFLICTS as error:
                if _is_guards(error, guard):
                    raise
                return False
            except BROKEN as error:
                await patience.again(error)
            now = await self.find(found.bookie_id)
            if now == wanted or (now is not None and _has_gone_on(now, wanted, found)):
                return True
            if now != found:
                return False

    async def _put(
        self,
        found: Found,
        path: str,
        data: bytes | None,
        operation: Operation,
        guard: Sequence[Operation],
    ) -> bool:
        """Write or remove (data None) one piece where the state found still stands."""
        operations = [
            *guard,
            Check(self.cookie_path(found.bookie_id), found.cookie_version),
            Check(self.state_path(found.bookie_id), _version(found)),
            operation,
        ]
        patience = Patience(self._store, PATIENCE_S)
        while True:
            try:
                await self._store.multi(operations)
                return True
            except _CONFLICTS as error:
                if _is_guards(error, guard):
                    raise
            except BROKEN as error:
                await patience.again(error)
                if await self.find(found.bookie_id) == found and not await self._has(path, data):
                    continue
            is_there = await self._has(path, data)
            return is_there and await self.find(found.bookie_id) == found

    async def _has(self, path: str, data: bytes | None) -> bool:
        async def question() -> bytes | None:
            await self._store.sync(path)
            try:
                return (await self._store.read(path))[0]
            except NoNodeError:
                return None

        return await ask(self._store, PATIENCE_S, question) == data

    def _contended(self, bookie_id: BookieId) -> MetadataVersionError:
        return MetadataVersionError(
            f"bookie {bookie_id}: its lifecycle state was changed by others {_ATTEMPTS_MAX} times "
            "in a row; try again"
        )


def _with_state(record: LifecycleRecord, state: LifecycleState) -> LifecycleRecord:
    return replace(record, state=state)


def _has_gone_on(now: Found, wanted: Found, found: Found) -> bool:
    """Tell whether the step was taken, and others have written the state or the cookie since.

    An auditor writes the state; a bookie that has lost a directory, or got one, writes its cookie.
    """
    if now.cookie_ctime_ms != wanted.cookie_ctime_ms or now.cookie_version < wanted.cookie_version:
        return False
    if now.version is None or wanted.version is None:
        return now.version is wanted.version

    def begun(one: Found) -> tuple[object, ...]:
        return one.record.since_ms, one.record.by

    return begun(now) == begun(wanted) != begun(found) and now.version >= wanted.version


def _is_guards(error: StoreError, guard: Sequence[Operation]) -> bool:
    """Tell whether a conflict is one of the guard: the writer was deposed."""
    return any(error.path == operation.path for operation in guard)


def _version(found: Found) -> int:
    if found.version is None:
        raise IllegalOperationError(f"bookie {found.bookie_id}: it is Active and has no state node")
    return found.version
