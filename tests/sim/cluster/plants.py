"""The faults that the lives of a cluster have to find, each by a checker that it names."""

import asyncio
import math
from contextlib import suppress
from typing import Any

from bookie.client.record_frames import join
from bookie.errors import BookieError
from bookie.metadata.acl import OPEN, Acl, StoreAccess
from bookie.metadata.interfaces import Check, Write
from bookie.metadata.patience import BROKEN
from herdpy.cluster.chain import LedgerChain
from herdpy.cluster.handover.hand_over import HandOver
from herdpy.cluster.listing import LedgerListing
from herdpy.cluster.member import Member
from herdpy.cluster.registration import Registration
from herdpy.cluster.tablespace_nodes import TablespaceNodes, Versioned
from herdpy.cluster.tail import LedgerTail
from herdpy.cluster.tenure import Tenure
from herdpy.driver.remote.retrying import RetryingSession
from herdpy.engine.maintenance import recovery
from herdpy.engine.state.applier import Applier
from herdpy.engine.state.memory import TablespaceMemory
from herdpy.log.ledger_log import LedgerLog
from herdpy.log.record import BeginLedger, encode
from herdpy.model.lsn import Lsn
from herdpy.proto.server_machine import ServerMachine
from tests.fixtures.plants import Plant

DATA = ("durability", "content", "refusal", "bank", "lists", "position", "digest", "atomicity")
OF_FOLLOWERS = ("chain", "staleness", "monotonic")


def _keep_the_memory(_right: Any) -> Any:
    """What a copy had of its node's memory is not given back when it is closed."""

    def close(_self: TablespaceMemory) -> None:
        pass

    return close


def _open_without_recovery(right: Any) -> Any:
    """What was last said of a ledger is taken for its end; its writer goes on."""

    async def recover(self: LedgerChain, ledger_id: int) -> int:
        metadata = await self._client.metadata(ledger_id)
        if metadata.last_entry_id >= 0:
            return metadata.last_entry_id
        reader = await self._client.open(ledger_id, self._password, recover=False)
        try:
            return await reader.read_last_confirmed()
        finally:
            await reader.close()

    return recover


def _recover_the_last_alone(right: Any) -> Any:
    async def claim(self: LedgerChain, epoch: int) -> None:
        listed = (await self._listing.read()).ledgers
        async with self._changing:
            for ledger_id in listed:
                self.ends[ledger_id] = await self._recover(ledger_id)
            await self._listing.claim(epoch)
            self._epoch = epoch
            for ledger_id in self.ledgers:
                self.ends.setdefault(ledger_id, 0)

    return claim


def _list_at_any_version(right: Any) -> Any:
    """The list is written over, whatever it is by now."""

    async def put(self: LedgerListing, info: Any) -> bool:
        stat = await self._store.exists(self.path)
        assert stat is not None
        self._version = stat.version
        return await right(self, info)

    return put


def _delete_on_doubt(right: Any) -> Any:
    async def may_be_listed(self: LedgerListing, ledger_id: int, epoch: int) -> bool:
        return False

    return may_be_listed


def _same_epoch(right: Any) -> Any:
    async def take_over(
        self: TablespaceNodes, name: str, found: Versioned, leader: str
    ) -> Versioned | None:
        return found

    return take_over


def _record_before_listing(right: Any) -> Any:
    async def begin(self: LedgerChain) -> int:
        """Have a ledger written that is on no list yet."""
        previous = self.ledgers[-1] if self.ledgers else -1
        header = BeginLedger(self._epoch, previous, self.ends.get(previous, -1))
        width = self._width()
        custom = {"tablespace": self._tablespace, "epoch": str(self._epoch).encode()}
        writer = await self._client.create_ledger(
            width, width, min(2, width), password=self._password, custom=custom
        )
        await writer.add(join([encode(header)]))
        self._writer, self._refusal = writer, None
        listed = self._listing.add(writer.ledger_id)
        self._listing.info = self._listing.info.with_ledger(writer.ledger_id)
        listed.close()
        return writer.ledger_id

    return begin


def _roll_without_close(right: Any) -> Any:
    async def end(self: LedgerChain) -> int:
        writer, ledger_id = self._writer, self.ledgers[-1]
        if writer is None:
            return await right(self)
        self.ends[ledger_id] = last = writer.lac
        self._writer = None
        return last

    return end


def _acknowledge_at_the_sending(right: Any) -> Any:
    """What was given to the bookies is taken for durable."""

    def send_all(self: LedgerLog) -> None:
        right(self)
        if self._in_flight:
            self.durable_lsn = self._in_flight[-1].last
            self._bell.ring()

    return send_all


def _acknowledge_all_at_the_end(right: Any) -> Any:
    """Whatever was sent before a ledger ended is taken for a part of it."""

    def end(self: LedgerLog) -> bool:
        found = self._chain.end
        self._chain.end = lambda: max(found(), self._next_entry)  # type: ignore[method-assign]
        try:
            return right(self)
        finally:
            self._chain.end = found  # type: ignore[method-assign]

    return end


def _ignore_a_lost_entry(right: Any) -> Any:
    """An entry that failed is not there, and those behind it are acknowledged all the same."""

    def on_added(self: LedgerLog, frame: Any, entry_id: int, error: BookieError | None) -> None:
        right(self, frame, frame.entry_id if error is not None else entry_id, None)

    return on_added


def _leave_open(right: Any) -> Any:
    return lambda tablespace, left: None


def _one_entry_less(right: Any) -> Any:
    """The last entry of each ledger is not replayed."""

    async def entries(self: LedgerChain, after: Lsn) -> Any:
        held = None
        async for found in right(self, after):
            if held is not None:
                yield held
            held = found

    return entries


def _leave_before_closed(right: Any) -> Any:
    """A ledger is left as soon as another one is listed behind it."""

    async def runs_of(self: LedgerTail, ledger_id: int, before: Any, after: Lsn) -> Any:
        async for run in right(self, ledger_id, before, after):
            yield run
            if (await self._listing.read()).ledgers[-1] > ledger_id:
                return

    return runs_of


def _keep_the_offset(right: Any) -> Any:
    """The entries of the next ledger are read from where the one before was left."""

    async def runs_of(self: LedgerTail, ledger_id: int, before: Any, after: Lsn) -> Any:
        is_next = ledger_id != after.ledger_id and self._reader is not None
        skipped = 3 if is_next else 0
        async for run in right(self, ledger_id, before, after):
            kept = [each for each in run if each[0].entry_id > skipped]
            if kept:
                yield kept

    return runs_of


def _take_over_where_it_is(right: Any) -> Any:
    """What the former leader wrote, and this node has not seen yet, is not looked for."""

    def replay(self: LedgerLog, after: Lsn) -> Any:
        self.last_lsn = self.durable_lsn = after
        return iter(())

    return replay


def _always(right: Any) -> Any:
    return lambda tenure: True


def _longer_than_a_session(right: Any) -> Any:
    """A tenure lasts as if clocks ran apart by far more than they may."""
    return lambda tenure, sent_s, timeout_s: right(tenure, sent_s, 4 * timeout_s)


def _check_the_leader_s_node(right: Any) -> Any:
    """The leader's node is looked for in the place of the record: there is one, of any node."""

    async def renew(self: Registration) -> bool:
        store, led = self._store, list(self._led)
        session_id, sent_s = store.session_id, self.now_s()
        paths = [self._nodes.leader_path(each.named.record.id) for each in led]
        try:
            await store.multi(
                [Write(self._path, self._record_now()), *(Check(path, 0) for path in paths)]
            )
        except (BookieError, *BROKEN):
            return False
        for each in led:
            if each.session_id == session_id:
                each.tenure.renew(sent_s, store.session_timeout_s)
        return True

    return renew


def _adopt_at_once(right: Any) -> Any:
    """A commit of pages waits for nothing that the copy does with its pages."""
    return lambda applier, record: []


def _of_any_ledger(right: Any) -> Any:
    """The end of the ledger that is read is taken for the log's, whatever is listed behind it."""

    async def look_for_end(self: LedgerTail) -> None:
        assert self._staleness is not None
        while True:
            sent_s, reader = self._staleness.now_s(), self._reader
            with suppress(BookieError):
                if reader is not None:
                    lac = await reader.read_last_confirmed()
                    self._staleness.saw_end(sent_s, (reader.ledger_id, lac))
            await asyncio.sleep(0.1)

    return look_for_end


def _answers_behind_it(right: Any) -> Any:
    """A leader that has handed over lets what has waited run, and answers it, for a while."""

    async def tell(self: HandOver, tell_leader: Any) -> None:
        self._tenure.is_over, self._tenure.until_s = False, math.inf
        self._part.go_on()
        await right(self, tell_leader)
        await asyncio.sleep(0.2)

    return tell


def _as_if_it_had_not_begun(right: Any) -> Any:
    """Whatever runs while a connection is ended is told as what was never begun."""

    def refuse(self: ServerMachine, error: Any, *, has_begun: bool = True) -> Any:
        return right(self, error, has_begun=False)

    return refuse


def _reached_at_once(right: Any) -> Any:
    """A position is not looked at."""
    return lambda session, position, timeout_s=0.0: 0.0


def _never(right: Any) -> Any:
    """Each copy finds that it could not write the log either."""

    async def could_write(self: Member) -> bool:
        return False

    return could_write


def _open_wishes(right: Any) -> Any:
    """The node by which another leader is wanted is for all to write."""

    def acl_of_new(self: StoreAccess, path: str) -> Acl:
        return OPEN if "/wishes/" in path else right(self, path)

    return acl_of_new


PLANTS: dict[str, Plant] = {
    "a silent leader that is left alone": Plant(Member, "_could_write", _never, ("liveness",)),
    "a wish that all may write": Plant(StoreAccess, "acl_of_new", _open_wishes, ("access",)),
    "staleness by a ledger that is not the last": Plant(
        LedgerTail, "look_for_end", _of_any_ledger, ("staleness",)
    ),
    "no position is waited for": Plant(
        RetryingSession, "await_position", _reached_at_once, ("monotonic",)
    ),
    "a leader that answers behind its hand-over": Plant(
        HandOver, "tell", _answers_behind_it, ("register",)
    ),
    "what runs is told as not begun": Plant(ServerMachine, "refuse", _as_if_it_had_not_begun, DATA),
    "answers without a tenure": Plant(Tenure, "holds", _always, ("register",)),
    "a tenure that outlasts the session": Plant(
        Tenure, "renew", _longer_than_a_session, ("register",)
    ),
    "a tenure for any leader's node": Plant(
        Registration, "_renew", _check_the_leader_s_node, ("register",)
    ),
    "a closed copy that keeps its memory": Plant(
        TablespaceMemory, "close", _keep_the_memory, ("memory",)
    ),
    "a follower that waits for no maintenance": Plant(
        Applier, "tables_given_pages", _adopt_at_once, ("memory",)
    ),
    "ledgers not recovered by a take-over": Plant(
        LedgerChain, "_recover", _open_without_recovery, (*DATA, "chain", "errors", "liveness")
    ),
    "list read before the claim": Plant(
        LedgerChain, "claim", _recover_the_last_alone, (*DATA, "chain", "liveness")
    ),
    "list written over at any version": Plant(
        LedgerListing, "_put", _list_at_any_version, (*DATA, "chain")
    ),
    "ledger deleted behind an unknown compare-and-set": Plant(
        LedgerListing, "may_be_listed", _delete_on_doubt, (*DATA, "chain", "liveness")
    ),
    "same epoch on a second take-over": Plant(
        TablespaceNodes, "take_over", _same_epoch, (*DATA, "chain", "liveness")
    ),
    "records before the ledger is listed": Plant(
        LedgerChain, "begin", _record_before_listing, (*DATA, "chain")
    ),
    "roll without a close": Plant(
        LedgerChain, "end", _roll_without_close, (*DATA, "chain", "liveness")
    ),
    "acknowledged at the sending": Plant(
        LedgerLog, "_send_all", _acknowledge_at_the_sending, (*DATA, "chain", "errors", "liveness")
    ),
    "all acknowledged at a ledger's end": Plant(
        LedgerLog, "_end", _acknowledge_all_at_the_end, (*DATA, "chain")
    ),
    "COMMIT acknowledged behind a lost entry": Plant(
        LedgerLog, "_on_added", _ignore_a_lost_entry, (*DATA, "chain")
    ),
    "no ROLLBACK by the new leader": Plant(
        recovery, "end_abandoned", _leave_open, (*DATA, "liveness", "errors")
    ),
    "a ledger left by a follower before it is CLOSED": Plant(
        LedgerTail, "_runs_of", _leave_before_closed, (*DATA, *OF_FOLLOWERS, "errors", "liveness")
    ),
    "offset kept at a ledger switch": Plant(
        LedgerTail, "_runs_of", _keep_the_offset, (*DATA, *OF_FOLLOWERS, "errors", "liveness")
    ),
    "a take-over that does not read the rest": Plant(
        LedgerLog, "replay", _take_over_where_it_is, (*DATA, "chain", "errors")
    ),
    "last entry not replayed": Plant(
        LedgerChain, "entries", _one_entry_less, (*DATA, "chain", "errors")
    ),
}
