"""What operators ask for, one JSON model behind commands and HTTP: lifecycle, at-risk, removal.

Every method returns what json can say. Nothing is cached: each call reads the metadata store after
a sync(). Used on one asyncio loop.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from bookie.errors import IllegalOperationError
from bookie.ledger.at_risk import RiskReport
from bookie.ledger.types import BookieId
from bookie.lifecycle.scan import OpenLedgers, Scan, scan
from bookie.lifecycle.states import ACTIVE, LifecycleRecord, LifecycleState, Step
from bookie.lifecycle.store import Found, LifecycleStore
from bookie.metadata import workers
from bookie.metadata.bookies import Mode, read_modes
from bookie.metadata.cookies import no_such_bookie
from bookie.metadata.interfaces import VersionedStore
from bookie.metadata.ledger_paths import DISABLED, VOTES
from bookie.metadata.ledgers import LedgerManager
from bookie.metadata.paths import join
from bookie.metadata.patience import PATIENCE_S, ask
from bookie.runtime.interfaces import Clock, Rng

LEDGERS_SHOWN_MAX = 1000
UNREADABLE = "Unreadable"
"""In the place of a lifecycle: the state node is damaged, or of a newer format."""
_NAMED_IN_ERROR_MAX = 20
_UNTIL_ONE_RUNS = (
    "nothing is copied until one is started elsewhere: `bookie autorecovery`, or a bookie with "
    "--autorecovery (workers of Apache's are not seen here: they register nowhere)"
)
NO_WORKERS = f"an auditor runs and no replication worker is registered: {_UNTIL_ONE_RUNS}"

Json = dict[str, Any]


class Operations:
    """See the module. The caller's names go into the state node: who asked for it."""

    def __init__(self, store: VersionedStore, root: str, rng: Rng, clock: Clock) -> None:
        self._store = store
        self._root = root
        self._clock = clock
        self._ledgers = LedgerManager(store, root, rng, clock)
        self.states = LifecycleStore(store, root)

    # --- looking ----------------------------------------------------------------------------------

    async def statuses(self) -> list[Json]:
        """Return the status of every bookie that has a cookie, sorted by id.

        One whose state cannot be read has UNREADABLE as its lifecycle, and why as its reason.
        """
        registered = await self.registered()
        states = await self.states.all()
        rows = [_status(found, registered) for found in states.founds]
        for bookie_id, reason in states.unreadable.items():
            found = Found(bookie_id, replace(ACTIVE, reason=reason), None, b"", 0)
            rows.append(_status(found, registered) | {"lifecycle": UNREADABLE})
        return sorted(rows, key=lambda row: str(row["bookie_id"]))

    async def status(self, bookie_id: BookieId) -> Json:
        """Return the status of one, with the ledgers of its drain. IllegalOperationError."""
        found = await self.states.expect(bookie_id)
        is_draining = found.record.state is LifecycleState.DRAINING
        ledgers = await self.states.ledgers(bookie_id)
        # Those that an operator has to look at come first.
        ledgers.sort(key=lambda one: (not one.problem, -one.cleared_count, one.ledger_id))
        return _status(found, await self.registered()) | {
            "warning": await self.copying_warning([bookie_id]) if is_draining else "",
            "ledgers": [one._asdict() for one in ledgers[:LEDGERS_SHOWN_MAX]],
            "ledgers_not_shown": max(0, len(ledgers) - LEDGERS_SHOWN_MAX),
        }

    async def at_risk(self, bookie_ids: Iterable[BookieId]) -> Json:
        """Return what the ledgers would lose if these bookies went, given what is lost already."""
        going = tuple(dict.fromkeys(bookie_ids))
        await self.expect_known(going)
        registered = await self.registered()
        writable = [bookie for bookie, mode in registered.items() if mode is Mode.WRITABLE]
        report = RiskReport(going, registered, writable)
        found = await scan(self._ledgers, (), [report])
        return risk_record(report, found) | {"warning": await self.copying_warning(going)}

    async def registered(self) -> dict[BookieId, Mode]:
        """Return how each registered bookie is registered. MetadataStoreError."""
        return await read_modes(self._store, self._root)

    async def naming(self, bookie_id: BookieId) -> tuple[int, ...]:
        """Return the ledgers that name a bookie, or may: those that cannot be read; ascending."""
        return (await self.scanned(bookie_id)).naming(bookie_id)

    async def scanned(self, bookie_id: BookieId) -> Scan:
        """Return the ledgers that name a bookie, and those that cannot be read."""
        return await scan(self._ledgers, [bookie_id])

    async def expect_known(self, bookie_ids: Iterable[BookieId]) -> None:
        """NoSuchBookieError for one without cookie and registration that no ledger names."""
        known = {*await self.states.bookie_ids(), *await self.registered()}
        unknown = [bookie_id for bookie_id in bookie_ids if bookie_id not in known]
        if not unknown:
            return
        found = await scan(self._ledgers, unknown)
        for bookie_id in unknown:
            if not found.ledgers[bookie_id]:
                raise no_such_bookie(bookie_id, known)

    async def expect_given_up(self, bookie_id: BookieId, accepted: Collection[int]) -> None:
        """IllegalOperationError unless the ledgers that name a bookie are those accepted."""
        named = await self.naming(bookie_id)
        known = {*named}
        wrong = [ledger_id for ledger_id in accepted if ledger_id not in known]
        if wrong:
            raise IllegalOperationError(
                f"ledger {wrong[0]}: expected one that names bookie {bookie_id}, whose loss is to "
                "be accepted; it does not name it, or is not there; nothing was changed"
            )
        _expect_none_left(bookie_id, named, accepted)

    async def expect_unnamed(self, bookie_id: BookieId, accepted: Collection[int] = ()) -> None:
        """IllegalOperationError while a ledger names a bookie, but for those that are accepted."""
        _expect_none_left(bookie_id, await self.naming(bookie_id), accepted)

    async def expect_forgettable(self, bookie_id: BookieId) -> None:
        """IllegalOperationError unless a bookie is stopped, and no drain has begun or ended."""
        await self.states.expect_unregistered(bookie_id)
        found = await self.states.find(bookie_id)
        if found is not None and found.version is not None:
            raise IllegalOperationError(
                f"bookie {bookie_id} is {found.record.state.value}: `bookie bookies remove` "
                "forgets a Drained bookie, `bookie bookies cancel` ends a drain; nothing was "
                "changed"
            )

    async def copying_warning(self, going: Collection[BookieId]) -> str:
        """Say why what these bookies have would not be copied; empty: nothing speaks against it."""
        disabled, voted = join(self._root, DISABLED), join(self._root, VOTES)

        async def question() -> tuple[bool, bool]:
            await self._store.sync(voted)
            is_disabled = await self._store.exists(disabled) is not None
            votes = await self._store.exists(voted)
            return is_disabled, votes is not None and votes.child_count > 0

        is_disabled, has_votes = await ask(self._store, PATIENCE_S, question)
        if is_disabled:
            return "AutoRecovery is disabled: nothing is copied until it is enabled"
        if not has_votes:
            return (
                "no AutoRecovery runs (there is no vote for an auditor): nothing is copied until "
                "it is started, beside a bookie or alone"
            )
        names = await workers.registered(self._store, self._root, PATIENCE_S)
        if not names:
            return NO_WORKERS
        if {*names} <= {*going}:
            return (
                "every replication worker that is registered runs beside a bookie that goes, and "
                f"takes no tasks then: {_UNTIL_ONE_RUNS}"
            )
        return ""

    async def open_ledgers(self, bookie_id: BookieId) -> Json:
        """Return the ledgers whose last segment is open and names the bookie, by a scan.

        A writer of ours leaves a bookie that drains by itself; where one does not, its ledger will
        be fenced, or the drain fails.
        """
        open_ledgers = OpenLedgers([bookie_id])
        await scan(self._ledgers, (), [open_ledgers])
        found = sorted(open_ledgers.found[bookie_id])
        return {
            "open_ledgers": found[:LEDGERS_SHOWN_MAX],
            "open_ledgers_not_shown": max(0, len(found) - LEDGERS_SHOWN_MAX),
        }

    # --- steps ------------------------------------------------------------------------------------

    async def drain(self, bookie_id: BookieId, by: str, *, may_fence: bool = True) -> Json:
        """Begin or retry a drain, also of a bookie whose host is down; return its status().

        IllegalOperationError.
        """

        def change(record: LifecycleRecord) -> LifecycleRecord:
            del record  # a retry begins anew: it is admitted again, its list is made again
            return LifecycleRecord(since_ms=self._now_ms(), by=by, may_fence=may_fence)

        await self.states.move(bookie_id, Step.DRAIN, change)
        return await self.status(bookie_id)

    async def cancel(self, bookie_id: BookieId) -> Json:
        """Make a bookie Active again and return its status(); what was copied stays away.

        IllegalOperationError.
        """
        await self.states.move(bookie_id, Step.CANCEL, lambda record: record)
        return await self.status(bookie_id)

    async def mark_drained(
        self, bookie_id: BookieId, by: str, accepted_loss: Sequence[int] = ()
    ) -> Json:
        """Let a failed drain count as done, where a scan finds no ledger but the accepted ones.

        Returns the bookie's status(). IllegalOperationError names the ledgers that are left.
        """
        found = await self.states.expect(bookie_id)
        if found.record.state is not LifecycleState.DRAINING_FAILED:
            await self.states.move(bookie_id, Step.MARK_DRAINED, lambda record: record)  # refuses
        if (await self.registered()).get(bookie_id) is Mode.WRITABLE:
            raise IllegalOperationError(
                f"bookie {bookie_id}: expected it read-only or away, found it writable: it may be "
                "given new ledgers; stop it, or make it read-only"
            )
        accepted = tuple(sorted(set(accepted_loss)))
        await self.expect_given_up(bookie_id, accepted)
        record = replace(
            found.record, since_ms=self._now_ms(), by=by, reason="", accepted_loss=accepted
        )
        if not await self.states.finish(found, Step.MARK_DRAINED, record, guard=()):
            raise IllegalOperationError(
                f"bookie {bookie_id}: its state was changed meanwhile; look and decide again"
            )
        return await self.status(bookie_id)

    async def remove(self, bookie_id: BookieId) -> Json:
        """Forget a Drained bookie after a scan of its own. IllegalOperationError.

        After it the id may return as a new bookie with empty directories.
        """
        found = await self.states.expect(bookie_id)
        if found.record.state is LifecycleState.DRAINED:
            await self.expect_unnamed(bookie_id, found.record.accepted_loss)
        await self.states.remove(found)
        return {"bookie_id": bookie_id, "removed": True}

    def _now_ms(self) -> int:
        return self._clock.wall_us() // 1000


def _expect_none_left(bookie_id: BookieId, named: Iterable[int], accepted: Collection[int]) -> None:
    given_up = {*accepted}  # both may be thousands
    left = [ledger_id for ledger_id in named if ledger_id not in given_up]
    if not left:
        return
    shown = ", ".join(map(str, left[:_NAMED_IN_ERROR_MAX]))
    more = len(left) - _NAMED_IN_ERROR_MAX
    raise IllegalOperationError(
        f"bookie {bookie_id}: expected no ledger to name it, found {len(left)}: {shown}"
        f"{f' and {more} more' if more > 0 else ''}; copy them with `bookie bookies recover "
        f"{bookie_id}`, or name each as lost with --accept-loss (`bookie bookies mark-drained` "
        "after a failed drain, else `bookie cookie delete`)"
    )


def _status(found: Found, registered: dict[BookieId, Mode]) -> Json:
    record = found.record
    is_active = record.state is LifecycleState.ACTIVE
    return {
        "bookie_id": found.bookie_id,
        "lifecycle": record.state.value,
        "registered": registered.get(found.bookie_id, Mode.AWAY).value,
        "joined_ms": found.cookie_ctime_ms or None,
        "since_ms": None if is_active else record.since_ms,
        "by": record.by,
        "may_fence": record.may_fence,
        "is_admitted": record.is_admitted,
        "reason": record.reason,
        "ledgers_total": record.ledgers_total,
        "ledgers_left": record.ledgers_left,
        "accepted_loss": list(record.accepted_loss),
    }


def risk_record(report: RiskReport, found: Scan) -> Json:
    """Return a report as JSON; `before` is what is lost already, without those that go."""

    def side(tallies: dict[Any, Any]) -> Json:
        return {
            risk.value: {
                "ledgers": tally.ledgers,
                "segments": tally.segments,
                "write_sets": tally.write_sets,
                "entries": tally.entries,
                "ledger_ids": tally.ledger_ids,
            }
            for risk, tally in tallies.items()
        }

    return {
        "going": sorted(report.going),
        "lost": sorted(report.lost),
        # Not by kinds: of what is under-replicated already one copy more would go unseen.
        "is_safe": not (found.unreadable or report.copies_going),
        "copies_going": report.copies_going,
        "ledgers_scanned": found.total,
        "ledgers_unreadable": len(found.unreadable),
        "segments_without_destination": report.segments_without_destination,
        "after": side(report.tallies),
        "before": side(report.before),
    }
