"""Member: what a node does for one tablespace of the cluster; it carries out a PartMachine.

    member = Member(copy, service, nodes, ...)
    member.start()
    await member.close()

The copy and the service are the node's: an engine with its threads, and what lets clients in. One
asyncio loop, on which the store and the client of the bookies live, too.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from bookie.client.client import LedgerClient
from bookie.errors import BookieError
from bookie.metadata.interfaces import SessionState, VersionedStore, Watch
from herdpy.cluster.handover.hand_over import HandOver
from herdpy.cluster.handover.wish import ANY_NODE, VersionedWish, Wish, WishRecord
from herdpy.cluster.leader_node import LeaderNode
from herdpy.cluster.listing import ClaimLostError, LedgerListing
from herdpy.cluster.observability.figures import PartFigures
from herdpy.cluster.observability.replica_node import CopyState, ReplicaNode
from herdpy.cluster.part import Do, PartMachine, State, Waits
from herdpy.cluster.registration import Registration
from herdpy.cluster.served_part import Leader, ServedPart
from herdpy.cluster.staleness import Staleness
from herdpy.cluster.tablespace_nodes import TablespaceNodes, TablespaceRecord, Versioned
from herdpy.cluster.tail import LedgerTail, Run
from herdpy.cluster.takeover.silence import Silence
from herdpy.cluster.takeover.step_times import StepTimes
from herdpy.cluster.tenure import Tenure
from herdpy.cluster.upkeep import Ledger, Limits, Upkeep
from herdpy.errors import Error, InternalError, OperationalError, Retry
from herdpy.model.lsn import Lsn

T = TypeVar("T")
_log = logging.getLogger(__name__)
_ALONE_AGAIN_S = 0.5
"""How often the former leader's node is looked for, at least."""
_HEALTH_S = 0.1
"""How often a leader's log is looked at."""
_HAS_NODE = (State.LEADING, State.HANDING_OVER, State.TAKING_OVER)
"""While a leader's node may be this one's."""
_LEVEL_AGAIN_S = 0.02
"""How often a node that is wanted as leader looks whether it is level."""
_LEVEL_LAG_S = 2.0
"""Beyond that what a node knows of the log's end is too old to call itself level."""
_FORCED_TIMEOUTS = 1.0
"""For a leader that is silent to resign by itself, before its node is taken away."""
_HAND_OVER_AGAIN_S = 1.0
_ANSWERED_S = 1.0
"""For which a node that is to end looks for one that is level."""
_GIVEN_AWAY_S = 15.0
"""For the rest of a hand-over, behind the end of transactions; then the node resigns."""
HANDOVER_DRAIN_S = 5.0
"""For which transactions may stay open when a leader hands over."""


class Copy(Protocol):
    """A node's copy of the tablespace. Calls wait, in threads of their own, one at a time."""

    @property
    def failure(self) -> Error | None:
        """Why it can write no more; None: all is well, or it follows."""
        ...

    @property
    def position(self) -> Lsn:
        """Up to where it has the log, while it is open."""
        ...

    @property
    def durable_position(self) -> Lsn | None:
        """Up to where it has what the log surely has; None: it is not open."""
        ...

    def used_leases(self) -> dict[str, float]:
        """Return the snapshot leases that were used on it since the last call, with their seconds.

        Any thread.
        """
        ...

    def shortest_lease_s(self) -> float:
        """Return of how many seconds its shortest lease is; infinite: it has none. Any thread."""
        ...

    def extend_leases(self, ids: Iterable[str]) -> None:
        """Take in that leases are used on another copy. Any thread."""
        ...

    def leases_heard(self, age_s: float | None) -> None:
        """Take in that of all other copies that is known which they said so many seconds ago.

        None: there are none. Any thread.
        """
        ...

    @property
    def byte_count(self) -> int:
        """Of the log's records since it was opened, or leads, but for ticks. Any thread."""
        ...

    def open(self) -> None:
        """Open it to follow."""
        ...

    def follow(self, run: Run) -> None: ...

    def claim(self, epoch: int) -> None:
        """Claim the log, and close its ledgers; the copy is as before. ClaimLostError."""
        ...

    def lead(self, end: Lsn | None) -> None:
        """Take in what is new in the log that was claimed, and write from here on.

        end: up to where the log goes at least, if that is known. CorruptionError: it does not.
        """
        ...

    def probe(self, epoch: int, timeout_s: float) -> None:
        """Find out whether this node could write the log, while it follows; Error: it could not."""
        ...

    def tick(self) -> None:
        """Have the log, that it writes, say something, as soon as it can; no error."""
        ...

    @property
    def ledger(self) -> Ledger | None:
        """The ledger that it writes, while it leads; None: it has none."""
        ...

    def roll(self) -> None:
        """End that ledger and begin the next, or begin one where there is none.

        Error: too few bookies answer (SAFE), or the log has failed.
        """
        ...

    def end_log(self) -> Lsn:
        """Write nothing more, end the ledger, and return where the log ends. Error: not known."""
        ...

    def close(self) -> None:
        """Let go of it, and of the log; repeatable."""
        ...


class Service(Protocol):
    """What lets clients in, on the loop."""

    async def begin(self, part: ServedPart) -> None:
        """Let clients in, to what the copy shows, which is open; the part says who may what."""
        ...

    async def serve(self, tenure: Tenure) -> None:
        """Let them in to a leader, surely; an answer leaves under the tenure, or waits for it."""
        ...

    async def drain(self, timeout_s: float, check: Callable[[], object]) -> None:
        """See handover.hand_over.Draining."""
        ...

    async def stop(self) -> None:
        """Let no client in, and end those that are there; repeatable, also behind an error."""
        ...


class Threads(Protocol):
    """Runs what waits."""

    def __call__(self, function: Callable[[], T]) -> Awaitable[T]: ...


class Member:
    """See the module. `machine` says what it is now; `on_state` is called when that changes."""

    def __init__(
        self,
        name: str,
        node_id: str,
        copy: Copy,
        service: Service,
        *,
        client: LedgerClient,
        store: VersionedStore,
        nodes: TablespaceNodes,
        registration: Registration,
        in_thread: Threads,
        draw: Callable[[], float],
        waits: Waits = Waits(),  # noqa: B008 - immutable
        ledger_limits: Limits = Limits(),  # noqa: B008 - immutable
        handover_drain_s: float = HANDOVER_DRAIN_S,
        inactivity_limit_s: float = 0.0,
        on_state: Callable[[State], object] = lambda _: None,
        figures: PartFigures | None = None,
    ) -> None:
        """inactivity_limit_s: for which a log may be silent; 0: for ever."""
        self.name = name
        self._node_id = node_id
        self._copy = copy
        self._service = service
        self._client = client
        self._store = store
        self._nodes = nodes
        self._registration = registration
        self._in_thread = in_thread
        self._on_state = on_state
        self._figures = figures or PartFigures()
        self._hang_timeouts = waits.hang_timeouts
        self._ledger_limits = ledger_limits
        self._handover_drain_s = handover_drain_s
        self._inactivity_limit_s = inactivity_limit_s
        self._silence = Silence(inactivity_limit_s or math.inf, registration.now_s)
        """Of the log that it follows."""
        self.machine = PartMachine(draw, waits)
        self.times = StepTimes()
        """Of its last take-over."""
        self._leader: LeaderNode | None = None
        self._wish: Wish | None = None
        self._wanted: VersionedWish | None = None
        """What the store said last of a node that is wanted as leader."""
        self._hand_over: HandOver | None = None
        """That is under way, or was last."""
        self._hand_over_again_s = 0.0
        """Before that none begins: what was given up costs those who wait some time each."""
        self._named: Versioned | None = None
        """The record as this node has named itself in it last."""
        self._log_end: Lsn | None = None
        """Up to where the log goes at least, as a hand-over has said; None: none has."""
        self._tenure: Tenure | None = None
        self._part: ServedPart | None = None
        """Of the copy that is open."""
        self._known: Leader | None = None
        self.record: TablespaceRecord | None = None
        """The newest that this node has seen; any thread may read it."""
        self._id = ""
        self._seen_epoch = 0
        self._handed_epoch = 0
        """Of the last hand-over that the machine was told of."""
        self._password = b""
        self._actions: asyncio.Queue[Do | None] = asyncio.Queue()
        """What is to be done next; None: to close."""
        self._step: asyncio.Task[None] | None = None
        """What is under way; what comes next waits for its end."""
        self._worker: asyncio.Task[None] | None = None
        self._replica: ReplicaNode | None = None
        self._telling: asyncio.Task[None] | None = None
        """What the replica's node is kept by."""
        self._timer: asyncio.TimerHandle | None = None
        self._tail: LedgerTail | None = None
        """What is followed now."""
        self._is_taking_in = False  # a run of it
        self._calling = asyncio.Lock()
        """One call of the copy at a time."""
        self._ticking: asyncio.Task[None] | None = None
        """While the log is this node's to write."""
        self._watches: list[Watch] = []
        self._looks: set[asyncio.Task[None]] = set()
        self._told = self.machine.state
        self._has_changed = asyncio.Event()
        """To another state."""
        self._is_closed = False
        self._loop = asyncio.get_running_loop()

    async def start(self) -> None:
        """Begin; close() it in any case.

        ProgrammingError 3D000: there is no such tablespace; OperationalError 58P01: no password.
        """
        found = await self._nodes.read(self.name)
        if self._is_closed:
            return
        self._id = found.record.id
        self._password = await self._nodes.password(self._id)
        if self._is_closed:
            return
        self._seen_epoch, self.record = found.record.epoch, found.record
        leader = self._leader = LeaderNode(
            self._store, self._nodes.leader_path(self._id), self._node_id
        )
        wish = self._wish = Wish(self._store, self._nodes.wish_path(self._id))
        self._watches = [
            wish.watch(lambda: self._look(self._look_at_wish)),
            leader.watch(lambda: self._look(self._look_at_leader)),
            self._store.watch(
                self._nodes.path(self.name), lambda: self._look(self._look_at_record)
            ),
            self._store.on_session(self._on_session),
        ]
        self._replica = ReplicaNode(
            self._store,
            self._nodes.replica_path(self._id, self._node_id),
            self._node_id,
            self.copy_state,
            self._registration.now_s,
            self._used_leases,
        )
        self._telling = self._loop.create_task(self._replica.keep())
        self._worker = self._loop.create_task(self._work())
        self._figures.enter(self.machine.state, self._loop.time())
        self._act(self.machine.begin())
        self._look(self._look_at_leader)
        self._look(self._look_at_record)  # it may have changed before the watch was there

    @property
    def epoch(self) -> int:
        """Under which it leads, or is about to."""
        return self.machine.epoch

    @property
    def leader_id(self) -> str | None:
        """The node that leads; None: none does, as far as this one knows. Any thread."""
        known = self._known
        return None if known is None else known.node_id

    def copy_state(self) -> CopyState:
        """Return what its copy is now; any thread."""
        part = self._part
        lag_s = math.inf if part is None else part.known_lag_s()
        copy = self._copy
        return CopyState(self.machine.state.value, copy.durable_position, lag_s, copy.byte_count)

    def _used_leases(self) -> dict[str, float]:
        """Return what the leader is to be told, as Copy.used_leases(); nothing, while it is it."""
        return {} if self.machine.state in _HAS_NODE else self._copy.used_leases()

    def shortest_lease_s(self) -> float:
        """Return of how many seconds the shortest lease is that this node may end; infinite: none.

        Any thread.
        """
        leads = self.machine.state in (State.LEADING, State.HANDING_OVER)
        return self._copy.shortest_lease_s() if leads else math.inf

    def leases_used(self, ids: Iterable[str]) -> None:
        """Take in that another node says that these snapshot leases are used there.

        They are the leader's to end. A copy that follows takes nothing in: it would report it.
        """
        if self.machine.state in (State.LEADING, State.HANDING_OVER):
            self._copy.extend_leases(ids)

    def leases_heard(self, age_s: float | None) -> None:
        """Take in that leases_used() was told all that other nodes had said so many seconds ago.

        None: there are no others.
        """
        if self.machine.state in (State.LEADING, State.HANDING_OVER):
            self._copy.leases_heard(age_s)

    def want(self) -> None:
        """Lead as soon as it can, also from a leader that lives."""
        self._act(self.machine.on_wanted(self._loop.time()))

    async def give_away(self, drain_s: float) -> None:
        """Hand over to any node that is level, before this one ends; nothing where none says so.

        drain_s: for open transactions to end.
        """
        wish, machine = self._wish, self.machine
        if wish is None or machine.state is not State.LEADING:
            return
        self._handover_drain_s = drain_s
        with suppress(TimeoutError, BookieError, Error):
            async with asyncio.timeout(_ANSWERED_S):
                await wish.make(WishRecord(leader=ANY_NODE, epoch=machine.epoch))
                while machine.state is State.LEADING:
                    await self._until_changed()
        with suppress(TimeoutError):
            async with asyncio.timeout(drain_s + _GIVEN_AWAY_S):
                while machine.state is State.HANDING_OVER:
                    await self._until_changed()

    async def _until_changed(self) -> None:
        self._has_changed.clear()
        await self._has_changed.wait()

    async def close(self) -> None:
        """End, whatever is under way; a leader resigns. Repeatable, also when it was cancelled."""
        if not self._is_closed:
            self._is_closed = True
            for watch in self._watches:
                watch.close()
            if self._timer is not None:
                self._timer.cancel()
            for look in self._looks:
                look.cancel()
            if self._telling is not None:
                self._telling.cancel()
            self._put(None)
        if self._worker is not None:
            await asyncio.shield(self._worker)

    # --- what has happened -----------------------------------------------------------------------

    def _on_session(self, state: SessionState) -> None:
        self._act(self.machine.on_session(state, self._loop.time()))
        if state is SessionState.CONNECTED:  # what happened meanwhile is not told
            self._look(self._look_at_leader)
            self._look(self._look_at_record)
            self._look(self._look_at_wish)

    def _look(self, look: Callable[[], Awaitable[None]]) -> None:
        async def run() -> None:
            with suppress(BookieError, Error):  # the next change, or connection, looks again
                await look()

        task = self._loop.create_task(run())
        self._looks.add(task)
        task.add_done_callback(self._looks.discard)

    async def _look_at_leader(self) -> None:
        leader = self._leader
        assert leader is not None
        found = await leader.read()
        follows = self.machine.state not in _HAS_NODE
        if found == (self._node_id, self._store.session_id) and follows:
            found = None  # it could not resign, and others wait for it
        now_s, has_leader = self._loop.time(), found is not None
        self.times.note_leader(now_s, has_leader=has_leader)
        self._act(self.machine.on_leader(now_s, has_leader=has_leader))
        await self._tell_leader(None if found is None else found[0])

    async def _tell_leader(self, node_id: str | None) -> None:
        """Have this node's clients told which node leads, and where it is."""
        known, limit_s = None, 0.0
        if node_id is not None:
            found = await self._registration.record_of(node_id)
            known = Leader(node_id, None if found is None else found.addresses.get("herd"))
            limit_s = 0.0 if found is None else found.inactivity_limit_s
        self._silence.led_by(node_id, limit_s)
        self._known = known
        if self._part is not None:
            self._part.leader = known

    async def _look_at_wish(self) -> None:
        """Hand over to a node that is wanted and level; or say so, if that is this one."""
        wish = self._wish
        assert wish is not None
        found = self._wanted = await wish.read()
        if found is None or self._is_closed:
            return
        record, machine = found.record, self.machine
        if machine.state is State.LEADING and record.epoch == machine.epoch:
            if record.is_level and record.leader != self._node_id:
                await self._hand_over_to(record.leader)
        elif not record.is_level and record.leader in (self._node_id, ANY_NODE):
            await self._accept(wish, found)

    async def _accept(self, wish: Wish, found: VersionedWish) -> None:
        """Say that this node has what the log has, once it does, if it is wanted still."""
        while self._wanted == found and self.machine.state is State.FOLLOWING:
            part = self._part
            if self._is_level and part is not None and part.lag_s() <= _LEVEL_LAG_S:
                await wish.accept(found, self._node_id)
                return
            await asyncio.sleep(_LEVEL_AGAIN_S)

    async def _hand_over_to(self, successor: str) -> None:
        """Begin to hand over; where that was given up before, not at once."""
        now_s = self._loop.time()
        if now_s < self._hand_over_again_s:
            await asyncio.sleep(self._hand_over_again_s - now_s)
            await self._look_at_wish()
            return
        self._hand_over_again_s = now_s + _HAND_OVER_AGAIN_S
        part, tenure, leader = self._part, self._tenure, self._leader
        assert part is not None
        assert tenure is not None
        assert leader is not None
        self._hand_over = HandOver(
            self.name,
            self._node_id,
            successor,
            part=part,
            service=self._service,
            tenure=tenure,
            leader=leader,
            nodes=self._nodes,
            registration=self._registration,
            drain_s=self._handover_drain_s,
        )
        self._act(self.machine.on_successor())

    def _why_not(self) -> Error | None:
        """Return why the hand-over under way must not go on, as far as it can be given up."""
        hand_over, wanted = self._hand_over, self._wanted
        assert hand_over is not None
        if wanted is None or wanted.record.leader != hand_over.successor:
            return OperationalError(
                f'tablespace "{self.name}": node {hand_over.successor} is not wanted any more',
                sqlstate="55000",
                retry=Retry.SAFE,
            )
        return self._copy.failure

    async def _look_at_record(self) -> None:
        record = self.record = (await self._nodes.read(self.name)).record
        self._take_in_hand_over(record)
        self._take_in_name(record)

    def _take_in_name(self, record: TablespaceRecord) -> bool:
        """Tell the machine, once, that a node has named itself; False: it is no news."""
        if record.epoch <= self._seen_epoch:
            return False
        self._seen_epoch = record.epoch
        self._silence.changed()
        if record.leader != self._node_id:
            self._act(self.machine.on_named(record.epoch, self._loop.time()))
        return True

    def _take_in_hand_over(self, record: TablespaceRecord) -> str | None:
        """Tell the machine, once, that the part was handed over, and return to which node.

        None: it was not, or is no news.
        """
        successor = record.successor
        if successor is None or record.epoch <= self._handed_epoch:
            return None
        self._handed_epoch = record.epoch
        is_successor = successor == self._node_id
        self._act(self.machine.on_handed_over(self._loop.time(), is_successor=is_successor))
        return successor

    # --- actions ---------------------------------------------------------------------------------

    def _act(self, actions: list[Do]) -> None:
        """Do what the machine wants, and see to it that it is woken when it wants to be."""
        if self._is_closed:
            return
        for action in actions:
            self._put(action)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.machine.wakes_at_s is not None:
            self._timer = self._loop.call_at(self.machine.wakes_at_s, self._on_time)
        if self.machine.state is not self._told:
            self._told = self.machine.state
            self._figures.enter(self._told, self._loop.time())
            self._on_state(self._told)
            self._has_changed.set()
            if self._told in (State.LEADING, State.FOLLOWING):
                self._look(self._look_at_wish)  # one that is older than that

    def _put(self, action: Do | None) -> None:
        """Have something done as soon as what is under way has ended, which is asked for here."""
        self._actions.put_nowait(action)
        if self._step is not None:
            self._step.cancel()

    def _on_time(self) -> None:
        self._timer = None
        self.machine.is_behind = not self._is_level
        self.machine.is_silent = self.machine.is_silent and self._silence.is_too_long
        self._act(self.machine.on_time(self._loop.time()))

    @property
    def _is_level(self) -> bool:
        """The copy has what the log has, as far as is known."""
        return self._tail is not None and self._tail.is_level and not self._is_taking_in

    async def _work(self) -> None:
        """Carry out one action behind the end of the other, until it is closed."""
        while (action := await self._actions.get()) is not None:
            if action is Do.STOP:
                await self._end()
                self._act(self.machine.on_stopped(self._loop.time()))
                continue
            begun_s = self._loop.time()
            found = await self._ran(self._do(action))
            now_s = self._loop.time()
            if found is None:
                self.times.done(action, begun_s, now_s)
                self._act(self.machine.on_done(action, now_s))
            elif not isinstance(found, asyncio.CancelledError):
                is_conflict = isinstance(found, (ClaimLostError, _TakenError))
                error = _as_error(action.value, found)
                self._act(self.machine.on_failed(action, error, now_s, is_conflict=is_conflict))
            if self.machine.state is State.LEADING:
                await self._ran(self._watch_log())
        await self._end()

    async def _ran(self, step: Coroutine[Any, Any, None]) -> BaseException | None:
        """Run a step to its end, which comes early when something else is to be done."""
        task = self._step = self._loop.create_task(step)
        if not self._actions.empty():
            task.cancel()
        await asyncio.wait([task])
        self._step = None
        return asyncio.CancelledError() if task.cancelled() else task.exception()

    async def _do(self, action: Do) -> None:
        if action is Do.OPEN:
            await self._open()
        elif action is Do.FOLLOW:
            await self._follow()
        elif action is Do.NAME:
            await self._name()
        elif action is Do.CLAIM:
            await self._through(lambda: self._copy.claim(self.machine.epoch))
            self._figures.claims += 1
        elif action is Do.LEAD:
            assert self._part is not None
            self._part.hold()
            await self._through(lambda: self._copy.lead(self._log_end))
            self._ticking = self._loop.create_task(self._tick())
        elif action is Do.ALONE:
            await self._be_alone()
        elif action is Do.SERVE:
            assert self._tenure is not None
            assert self._part is not None
            self._part.lead(self._tenure)
            await self._service.serve(self._tenure)
        else:
            await self._give_away(action)

    async def _give_away(self, action: Do) -> None:
        """Carry out a step of a hand-over."""
        hand_over = self._hand_over
        assert hand_over is not None
        if action is Do.DRAIN:
            await hand_over.drain(self._why_not)
        elif action is Do.CLOSE:
            self._end_ticks()
            hand_over.position = await self._through(self._copy.end_log)
        elif action is Do.LEAVE:
            await hand_over.leave(self.machine.epoch)
        else:
            await hand_over.tell(self._tell_leader)

    async def _through(self, function: Callable[[], T]) -> T:
        """Run what waits, to its end also when this is cancelled: no other call comes before."""
        async with self._calling:
            running = asyncio.ensure_future(self._in_thread(function))
            await _to_its_end(running)
            return running.result()

    # --- ticks -----------------------------------------------------------------------------------

    async def _tick(self) -> None:
        """Have the log tick as long as it says nothing by itself, until this is cancelled.

        By the copy's thread, on the way of every commit: what hangs there is to be noticed.
        """
        limit_s = self._inactivity_limit_s
        if not limit_s:
            return
        seen, since_s = self._copy.durable_position, self._loop.time()
        while True:
            await asyncio.sleep(limit_s / 12)
            now_s, position = self._loop.time(), self._copy.durable_position
            if position != seen:
                seen, since_s = position, now_s
            elif now_s - since_s >= limit_s / 4:
                since_s = now_s
                try:
                    await self._through(self._copy.tick)
                except Exception as error:  # noqa: BLE001 - the next one may come through
                    _log.error("tablespace %s: a tick failed", self.name, exc_info=error)

    def _end_ticks(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
            self._ticking = None

    async def _watch_leader(self) -> None:
        """See whether the leader is silent, while this node follows, until this is cancelled."""
        silence, machine = self._silence, self.machine
        if not self._inactivity_limit_s:
            return
        pause_s = self._inactivity_limit_s / 12
        while True:
            await asyncio.sleep(pause_s)
            if not (silence.is_too_long and self._is_level and self._known is not None):
                machine.is_silent = False
                continue
            if not machine.is_silent:
                machine.is_silent = await self._could_write()
                if not machine.is_silent:
                    silence.excuse()
                    continue
                self._figures.silences += 1
            self._act(machine.on_silent(self._loop.time()))

    async def _could_write(self) -> bool:
        """Return whether the log would go on if this node led: bookies may be what is slow."""
        silence, timeout_s = self._silence, self._inactivity_limit_s / 3
        text = (
            f"tablespace {self.name}: the log is silent for {silence.proven_s:.1f} s, though the "
        )
        text += f"session of its leader {self.leader_id} lives"
        try:
            await self._through(lambda: self._copy.probe(self._seen_epoch, timeout_s))
        except Exception as error:  # noqa: BLE001 - whatever it is, it would fail in a take-over
            _log.warning("%s; this node could not write it either: %s", text, error)
            return False
        if silence.is_too_long:
            _log.warning("%s: another node takes over", text)
        return silence.is_too_long

    async def _open(self) -> None:
        await self._through(self._copy.open)
        part = ServedPart(self.name, self._node_id, Staleness(self._registration.now_s))
        part.leader, self._part = self._known, part
        await self._service.begin(part)

    async def _follow(self) -> None:
        """Take in what the log has, for ever."""
        assert self._part is not None
        listing = LedgerListing(self._store, self._nodes.ledgers_path(self._id))
        tail = LedgerTail(
            self._client,
            self._store,
            listing,
            password=self._password,
            staleness=self._part.staleness,
            silence=self._silence,
        )
        runs = tail.runs(self._copy.position)
        self._tail, self._is_taking_in = tail, False
        looking = self._loop.create_task(tail.look_for_end())
        watching = self._loop.create_task(self._watch_leader())
        try:
            async for run in runs:
                self._is_taking_in = True
                await self._through(lambda run=run: self._copy.follow(run))
                self._is_taking_in = False
                self.machine.on_progress(self._copy.position)
        finally:
            self._tail, self.machine.is_silent = None, False
            looking.cancel()
            watching.cancel()
            await asyncio.wait([looking, watching])
            await runs.aclose()
            await tail.close()

    async def _name(self) -> None:
        found = await self._nodes.read(self.name)
        successor = self._take_in_hand_over(found.record)
        if successor not in (None, self._node_id):
            raise _HandedOverError(self.name, successor)
        if self._take_in_name(found.record):  # what this node knew was of the leader before
            raise _NamedError(self.name)
        taken = await self._nodes.take_over(self.name, found, self._node_id)
        if taken is None:
            raise _TakenError(self.name)
        self._named, self.machine.epoch = taken, taken.record.epoch
        self.record = taken.record
        self._log_end = taken.record.log_end

    async def _be_alone(self) -> None:
        """Wait until the former leader's node is gone, make this one's, and begin a tenure."""
        leader, named = self._leader, self._named
        assert leader is not None
        assert named is not None
        changed = asyncio.Event()
        watch = leader.watch(changed.set)
        begun_s = self._loop.time()
        try:
            while not await leader.make():
                changed.clear()
                if (found := await leader.read()) is None:
                    continue
                timeout_s = await self._registration.timeout_of(found[0])
                timeouts = self._hang_timeouts
                if self.machine.is_forced:  # it hangs, surely
                    timeouts = min(timeouts, _FORCED_TIMEOUTS)
                if self._loop.time() - begun_s > timeouts * timeout_s:
                    await self._depose(named, timeout_s)
                    continue
                with suppress(TimeoutError):
                    async with asyncio.timeout(_ALONE_AGAIN_S):
                        await changed.wait()
        finally:
            watch.close()
        self._tenure = await self._registration.lead(self.name, named, self._replica)

    async def _depose(self, named: Versioned, timeout_s: float) -> None:
        """Take the node of a leader away that neither resigns nor loses its session.

        It renews nothing since this node has named itself. What it may answer still ends within a
        time-out of its session, which is waited for all the same.
        """
        if await self._nodes.depose(self.name, named):
            _log.warning("tablespace %s: the leader before hangs, and is deposed", self.name)
            await asyncio.sleep(timeout_s)

    async def _watch_log(self) -> None:
        """Look after the ledger that is written, until the log has failed, or the tenure."""
        upkeep, look_s = Upkeep(self._ledger_limits), 0.0
        tenure, held_s = self._tenure, self._loop.time()
        assert tenure is not None
        while (failure := self._copy.failure) is None:
            now_s = self._loop.time()
            if tenure.holds():
                held_s = now_s
            elif tenure.is_over or now_s - held_s >= self._store.session_timeout_s:
                failure = _no_tenure(self.name)  # its clients would wait for ever
                break
            if now_s >= look_s:
                look_s = now_s + self._ledger_limits.look_s
                failure = await self._keep_up(upkeep)
                if failure is not None:
                    break
            await asyncio.sleep(_HEALTH_S)
        self._act(self.machine.on_log_failed(failure))

    async def _keep_up(self, upkeep: Upkeep) -> Error | None:
        """Do what the ledger needs; an error: this node is to lead no more."""
        if not upkeep.is_due(self._copy.ledger, self._loop.time()):
            return None
        try:
            await self._through(self._copy.roll)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again for a while
            return upkeep.failed(_as_error("roll", error), self._loop.time())
        return None

    async def _end(self) -> None:
        """Serve no client, close the copy, resign: each whatever became of the one before.

        The tenure goes on meanwhile, if it holds: transactions that may end have to be answered.
        """
        self._end_ticks()
        await self._ended("the service", self._service.stop())
        if self._tenure is not None:
            self._registration.end(self._tenure)
            self._tenure = None
        self._part = None
        await self._ended("the copy", self._through(self._copy.close))
        if self._leader is not None:
            await self._ended("the leader's node", self._leader.resign())

    async def _ended(self, what: str, end: Coroutine[Any, Any, None]) -> None:
        try:
            await end
        except Exception as error:  # noqa: BLE001 - the next opening decides; the others have to end
            _log.warning("tablespace %s: %s did not end well: %s", self.name, what, error)


async def _to_its_end(future: "asyncio.Future[Any]") -> None:
    """Wait until it is done, also when this is cancelled meanwhile, which comes behind it."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not future.cancelled():
            future.exception()  # no caller waits for it any more
        raise cancelled


def _no_tenure(name: str) -> Error:
    return OperationalError(
        f'tablespace "{name}": the metadata store does not confirm that this node leads',
        sqlstate="57P03",
        retry=Retry.SAFE,
        hint="does the store let the node write its own node (ACLs, quota)?",
    )


class _NamedError(OperationalError):
    """Another node had named itself, which the machine was told."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f'tablespace "{name}": another node is about to lead it',
            sqlstate="40001",
            retry=Retry.SAFE,
        )


class _TakenError(_NamedError):
    """Another node has named itself just now."""


class _HandedOverError(OperationalError):
    """Another node is to lead, as the leader before has it."""

    def __init__(self, name: str, successor: str | None) -> None:
        super().__init__(
            f'tablespace "{name}": it was handed to node {successor}, which has time to lead it',
            sqlstate="40001",
            retry=Retry.SAFE,
        )


def _as_error(what: str, error: BaseException) -> Error:
    """Return what is told of a step that failed."""
    if isinstance(error, Error):
        return error
    if isinstance(error, BookieError):
        return OperationalError(f"{what}: the cluster's store: {error}", sqlstate="58030")
    _log.error("%s failed", what, exc_info=error)
    return InternalError(f"{what} failed: {error!r}")
