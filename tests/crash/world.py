"""World: one tablespace over a simulated disk, driven by one thread, with its model beside it.

That of `default` opens and closes the directory. Another tablespace has a world of its own while it
is open (tablespaces.py); what all worlds of a directory have in common is Shared.

Statements of different sessions really overlap, without threads: wherever the engine holds no
lock that a statement needs (a commit about to sync, a wait for a row lock, a checkpoint that
writes its segment), the world may run a statement of another session, or a checkpoint, and only
then go on. Everything follows from the seed.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from errno import EIO, ENOSPC
from typing import Any, NamedTuple

from bookie.runtime.ticket import Ticket
from herdpy.config import Config
from herdpy.engine.database import Database
from herdpy.engine.instance import Instance
from herdpy.engine.session.session import Session
from herdpy.engine.state.commit_tokens import UsedToken
from herdpy.engine.state.snapshots import Snapshot
from herdpy.engine.state.state import State
from herdpy.engine.state.system_tables import SYSTEM_TABLES
from herdpy.engine.state.tablespace import Tablespace
from herdpy.engine.state.transaction_snapshot import TransactionSnapshot
from herdpy.engine.state.transactions import Transaction, TransactionState
from herdpy.engine.statements.plan_cache import Prepared
from herdpy.errors import Error, LogFailedError
from herdpy.exec.result import Result
from herdpy.log.log_files import numbered_files
from herdpy.log.record import BeginLease
from herdpy.log.syncer import InlineSyncer
from herdpy.model.access import User
from herdpy.model.durability import Durability
from herdpy.model.settings import Settings
from herdpy.sql.compile import parameter_types
from herdpy.storage.segment import segment_name
from tests.crash import operations
from tests.crash.leases import LeaseBook
from tests.crash.levels import Levels
from tests.crash.model import GRANTS, ROLES, SHAPES, Model, RefusedError, Row, Work, ordered
from tests.crash.operations import Operation
from tests.crash.parts import Parts
from tests.fixtures.engines import TABLESPACE, attempt, attempt_and_wait, tablespace_of
from tests.fixtures.shared_plans import SharedPlans
from tests.fixtures.small_sizes import MONITOR_ROWS
from tests.sim.clock import SimulatedClock
from tests.sim.disk import SimulatedDisk
from tests.sim.driver import SimulatedDriver

_CONFIG = Config(
    log_file_bytes_first=4096,
    log_file_bytes_max=8192,
    disk_reserve_bytes=2 * 1024 * 1024,
    vector_threads=1,
)
_SPILLING = replace(_CONFIG, transaction_memory_bytes=1500)
"""A transaction may hold a change or two in memory."""
# Rows are looked after by 16 KiB of log, and statements of a history have a few at the most.
_MANY_BYTES = 192 * 1024
_FEW_BYTES = 48 * 1024
_DEPTH_MAX = 3
_LOCK_TIMEOUT_S = 1.0
# What a statement of a history may fail with although the model allows it: a lock wait that ran
# out, and a deadlock. Nothing of the statement happened; after a deadlock nothing of all.
_LOCKED, _DEADLOCK = "55P03", "40P01"
_CONFLICT = "40001"  # with a change since the snapshot of a transaction, which is over then
_FULL = "53100"
_DUPLICATE = "23505"
_CANCELLED = "57014"
_GONE = "42704"  # a job whose table was dropped meanwhile
_SPARES_MAX = 3  # two, and a file that was made and could not be listed
_FAULTS = (
    ("write", ENOSPC, "/log/"),
    ("open", ENOSPC, "/log/"),
    ("write", ENOSPC, "/segments/"),
    ("open", ENOSPC, "/segments/"),
    ("write", ENOSPC, "MANIFEST"),
    ("write", EIO, "/log/"),
    ("sync", EIO, "/log/"),
    ("write", EIO, "/segments/"),
    ("sync", EIO, "/segments/"),
    ("sync", EIO, "MANIFEST"),
    ("sync_directory", EIO, ""),
    ("rename", EIO, ""),
    ("unlink", EIO, ""),
)


class Style(NamedTuple):
    """What the histories of a seed are like."""

    durabilities: tuple[Durability, ...] = (Durability.SYNC,)
    """Drawn from for sessions and for transactions."""
    is_uniform: bool = False
    """Mostly statements whose log frames are equally long, so that old frames fit behind new."""
    short_lives: int = 1
    """How many short lives, each ended by a power failure, follow the first crash."""
    has_faults: bool = False
    """Now and then the disk is full, or fails."""
    has_small_disk: bool = False
    """Another program takes all the room, now and then, and gives it back."""
    config: Config = _CONFIG

    @property
    def is_tight(self) -> bool:
        """The reserve has room for one statement's pages, and not once more for each lease."""
        return 0 < self.config.disk_reserve_bytes < _MANY_BYTES

    @property
    def is_freeing_certain(self) -> bool:
        """On a full disk whatever frees space, or ends what was begun, finds room."""
        return self.config.disk_reserve_bytes >= _MANY_BYTES


def _small_disk(reserve_bytes: int, log_file_bytes: int) -> Style:
    config = replace(
        _CONFIG,
        log_file_bytes_first=log_file_bytes,
        log_file_bytes_max=2 * log_file_bytes,
        disk_reserve_bytes=reserve_bytes,
        checkpoint_log_bytes=64 * 1024,
    )
    return Style(has_small_disk=True, short_lives=2, config=config)


STYLES = (
    Style(),
    Style(),
    Style(),
    Style((Durability.SYNC, Durability.SYNC, Durability.OS, Durability.NONE)),
    Style((Durability.SYNC, Durability.SYNC, Durability.OS, Durability.NONE)),
    Style((Durability.OS, Durability.OS, Durability.SYNC)),
    Style((Durability.OS,), is_uniform=True, short_lives=5),
    Style(has_faults=True, short_lives=2),
    _small_disk(_MANY_BYTES, 4096),
    _small_disk(_FEW_BYTES, 128 * 1024),  # with room in the log, so that pages are what lacks
    _small_disk(0, 4096),
)


class Shared:
    """What the worlds of all tablespaces of a directory have in common."""

    def __init__(self) -> None:
        self.activities: list[str] = []
        self.has_fault = False
        """The disk was told to fail."""
        self.is_filled = False
        """The disk has hardly any room."""
        self.act_count = 0
        self.turns: list[World] = []
        """Whose statements run, the innermost last."""
        self.worlds: dict[str, World] = {}
        """Those that are open, by their folders."""
        self.beside: Callable[[], object] = lambda: None
        """Has something happen in any tablespace; run where others may go on."""
        self.on_step: Callable[[str, str], object] = lambda op, path: None
        """Is told each step of the disk, before it, that is of no open tablespace."""


class Spills:
    """Which statements of a seed may hold next to nothing in memory; apart from all other chance.

    So what a seed does beside it is what it did before.
    """

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(f"spills of {seed}")
        self._share = self._rng.choice((0.0, 0.0, 0.3, 0.8))

    def draw(self) -> bool:
        return self._rng.random() < self._share


class LifeOver(BaseException):
    """The database stopped for good after a fault of the disk; only opening it again helps."""


class PumpSyncer:
    """A syncer in the caller that first lets others go on: their commits may join the sync."""

    def __init__(self, world: "World", inner: InlineSyncer) -> None:
        self._world = world
        self._inner = inner

    def request(self, durability: Durability) -> None:
        world = self._world
        world.note_logged()
        with world.doing("commit"):
            if world.rng.random() < 0.15:
                world.interleave()
            self._inner.request(durability)
            if durability is not Durability.NONE:
                world.has_rollback = False
        world.model.refresh()

    def ask(self, durability: Durability) -> None:
        self.request(durability)

    def sync(self) -> None:
        """Do the sync that a caller below on the stack has asked for."""
        self._inner.request(Durability.SYNC)
        self._world.database.tablespace.apply_rest()
        self._world.has_rollback = False
        self._world.model.refresh()


class _Savepoint(NamedTuple):
    """What a transaction had done there, and what was held then."""

    name: str
    work: Work
    held: "tuple[_Held, ...]"


class Connection:
    """A session, what its open transaction did so far, and what runs in it now."""

    def __init__(self, name: str, session: Session, durability: Durability) -> None:
        self.name = name
        self.session = session
        self.durability = durability
        self.work: Work | None = None  # of the open transaction
        self.savepoints: list[_Savepoint] = []
        self.is_busy = False
        self.to_log: Callable[[], Work | None] | None = None  # at the next sync request
        self.logged: Work | None = None
        # Of the statement that runs now:
        self.look: Callable[[], object] | None = None  # when it has locked all and logged a part
        self.is_spilling = False
        self.is_to_fail = False  # half logged
        self.is_cancelled = False
        self.cut_before: int | None = None  # an earlier statement that is to be undone

    def transaction(self) -> Transaction | None:
        session = self.session
        return session.statement or session.transaction


class _Held(NamedTuple):
    """A snapshot, or a result half read, and what it has to go on showing."""

    what: str
    read: Callable[[], dict[str, list[Row]]]
    expected: dict[str, list[Row]]
    close: Callable[[], object]
    owner: Connection | None = None
    """Whose transaction it reads in: when that is rolled back, it has nothing to show."""


class World:
    """See the module. SimulatedCrash flies through every method; AssertionError is a finding."""

    def __init__(
        self,
        disk: SimulatedDisk,
        rng: random.Random,
        model: Model,
        say: Callable[[str], object] | None,
        *,
        style: Style,
        with_vector: bool = False,
        leases: LeaseBook | None = None,
        spills: Spills | None = None,
        parts: Parts | None = None,
        levels: Levels | None = None,
        shared: Shared | None = None,
    ) -> None:
        """Without `shared` it is the world of `default`, and of the disk's life."""
        self.levels = levels or Levels(0)
        self.spills = spills or Spills(0)
        self.parts = parts or Parts(0)
        self.leases = leases or LeaseBook()
        self.disk = disk
        self.rng = rng
        self.model = model
        self.clock = SimulatedClock()
        self.with_vector = with_vector
        self.style = style
        self.has_rollback = False  # appended, perhaps not written yet
        self.done: Counter[str] = Counter()  # what happened, by name; to see a vacuous run
        self.is_first = True  # it opened the directory
        self.filled: dict[tuple[int, int], object] = {}
        """By sequence and value, the row id that it was given away with, of rows that survived."""
        self.default: Database  # which is the directory, of the first world
        self.database: Database  # of which the history is
        self.syncer: PumpSyncer
        self.connections: list[Connection] = []
        self._say = say
        self._stack: list[Connection] = []
        self._held: list[_Held] = []
        self._is_maintaining = False
        self._is_alone = False  # no other session may act now
        self._token_count = 0
        self.shared = shared or Shared()
        if shared is None:
            disk.latency = self._on_any_disk
            self.parts.act = self._between_any_parts
            disk.trace = []

    def restart(self, *, is_power_lost: bool | None = None) -> "World":
        """Return the world of the next process, after a power failure or (seldom) a kill.

        None: as is drawn.
        """
        drawn = self.rng.random() < 0.9
        is_power_lost = drawn if is_power_lost is None else is_power_lost
        self.say(f"restart{' after a power failure' if is_power_lost else ''}")
        disk = self.disk.restart(self.rng.getrandbits(64), is_power_lost=is_power_lost)
        if disk.capacity_bytes is not None:
            if self.style.config.disk_reserve_bytes and self.rng.random() < 0.5:
                # What was not synced may be back, and no disk holds more than it can.
                disk.capacity_bytes = max(disk.capacity_bytes, disk.used_bytes)
            else:
                disk.capacity_bytes = None
        world = World(
            disk,
            self.rng,
            self.model,
            self._say,
            style=self.style,
            with_vector=self.with_vector,
            leases=self.leases,
            spills=self.spills,
            parts=self.parts,
            levels=self.levels,
        )
        world.shared.is_filled = disk.capacity_bytes is not None
        return world

    def of_another(self, rng: random.Random, model: Model, leases: LeaseBook) -> "World":
        """Return the world of another tablespace of the directory; open() comes next."""
        return World(
            self.disk,
            rng,
            model,
            self._say,
            style=self.style,
            leases=leases,
            spills=self.spills,
            parts=self.parts,
            levels=self.levels,
            shared=self.shared,
        )

    def crash_site(self) -> tuple[str, str]:
        """Return kind of step and activity of the crash that has just happened."""
        assert self.disk.trace
        kind, path, _ = self.disk.trace[-1]
        activity = self.shared.activities[-1] if self.shared.activities else "statement"
        if activity == "commit" and self.has_rollback and "/log/" in path:
            activity = "rollback"  # its record is among what is written or synced
        return kind, activity

    def say(self, text: str) -> None:
        if self._say is not None:
            self._say(f"{self.disk.step_count:5} {'  ' * len(self._stack)}{text}")

    @contextmanager
    def doing(self, activity: str) -> Iterator[None]:
        """Name what the disk is used for. After a crash the names stay, for the report."""
        self.shared.activities.append(activity)
        yield
        self.shared.activities.pop()

    # --- life ------------------------------------------------------------------------------------

    def open(
        self,
        *,
        session_count: int = 2,
        log_retention: bool = False,
        database: Database | None = None,
    ) -> None:
        """Open the directory, or take a tablespace of it that its instance has opened."""
        self.is_first = database is None
        if database is None:
            database = self.default = self._open_directory()
            if TABLESPACE is not None:
                database = tablespace_of(database, TABLESPACE)
        self.database = database
        self.shared.worlds[database.entry.folder] = self
        tablespace = database.tablespace
        database.plans = SharedPlans(lambda: tablespace.state.catalog)  # type: ignore[assignment]
        self._attach()
        begin_lease = tablespace.begin_lease

        def begin_lease_noted(
            record: BeginLease, user: User | None, maximum: int | None = None
        ) -> Ticket[None]:
            self.leases.begins(record.id, self.model.logged_content())
            return begin_lease(record, user, maximum)

        tablespace.begin_lease = begin_lease_noted  # type: ignore[method-assign]
        if log_retention:
            tablespace.log.drop_before = lambda lsn: None  # type: ignore[method-assign]
        self.connect(session_count)

    def connect(self, session_count: int) -> None:
        """Begin new sessions, in place of those that have ended."""
        prefix = "" if self.is_first else f"{self.database.name}."
        self.connections = []
        for index in range(session_count):
            durability = self.rng.choice(self.style.durabilities)
            settings = Settings(durability=durability, lock_timeout_s=_LOCK_TIMEOUT_S)
            session = self.database.session(settings, autocommit=True)
            self.connections.append(Connection(f"{prefix}s{index}", session, durability))

    def disconnect(self) -> None:
        """End all sessions; what they have open is rolled back."""
        self.check_held(close_all=True)
        for connection in self.connections:
            connection.work = None
            connection.session.close()
        self.connections = []

    @property
    def is_busy(self) -> bool:
        """A statement or a job of the tablespace is at work, further up."""
        return bool(self._stack) or self._is_maintaining

    def forget(self) -> None:
        """Let go of all sessions, and of what is read: the tablespace was closed without it."""
        for held in self._held:
            held.close()
        self._held = []
        for connection in self.connections:
            connection.work = None
            connection.session.close()
        self.connections = []

    def _open_directory(self) -> Database:
        is_new = not self.disk._names.get("FORMAT")
        with self.doing("creation" if is_new else "recovery"):
            return Instance(
                disk=self.disk,
                clock=self.clock,
                rng=random.Random(self.rng.getrandbits(64)),
                driver=SimulatedDriver(self.clock, lambda _: self._pump_any()),
                config=self.style.config,
                where="the simulated disk",
                is_threaded=False,
            ).start()

    def _attach(self) -> None:
        """Stand between the tablespace and its log."""
        tablespace = self.database.tablespace
        inner = tablespace.syncer
        assert isinstance(inner, InlineSyncer)
        tablespace.syncer = self.syncer = PumpSyncer(self, inner)
        prepare = tablespace.log.prepare

        def prepare_named(byte_count: int, file_bytes_max: int | None = None) -> None:
            with self.doing("log roll"):
                self.done["log roll"] += 1
                prepare(byte_count, file_bytes_max)

        tablespace.log.prepare = prepare_named  # type: ignore[method-assign]

    def others(self) -> "list[World]":
        """Return the worlds of the other tablespaces that are open."""
        return [world for world in self.shared.worlds.values() if world is not self]

    def reopen(self) -> None:
        """Give the tablespace its log anew, also after it failed; sessions go on.

        With `default` all of them that are open.
        """
        self.say("reopen")
        self.disk.heal()
        shared = self.shared
        if self.is_first:
            shared.activities.clear()
            shared.turns.clear()
            if shared.is_filled and not self.style.is_freeing_certain:
                self.make_room()  # on a full disk it may fail, and then all is held
        self._stack.clear()
        self._is_maintaining = self._is_alone = False
        space = self.database.tablespace
        before, durable = space.state, space.durable_lsn
        self.check_held(close_all=True)
        with self.doing("reopen"):
            self.database.reopen()
        self._attach()
        state = space.state
        assert state.lsn >= before.lsn, "I4: a position went back"
        assert state.position > before.position, "I4: the visible position went back"
        assert space.durable_lsn >= durable, "I1: the durable position went back"
        for connection in self.connections:
            connection.is_busy = False
            connection.work = None
            with suppress(LogFailedError):  # of a COMMIT that was under way: told once
                connection.session.rollback()
            connection.session.rollback()
        self.done["reopen"] += 1
        if self.is_first:
            for world in self.others():
                world.reopen()

    def close(self) -> None:
        """Close the database as a user would; open transactions are rolled back.

        With `default` all other tablespaces are closed.
        """
        self.say("close")
        self.disk.heal()
        worlds = [self, *self.others()] if self.is_first else [self]
        for world in worlds:
            world.check_held(close_all=True)
            world.check_registry("a snapshot stayed registered (I14)")
            for connection in world.connections:
                connection.work = None
        with self.doing("close"):
            try:
                (self.default if self.is_first else self.database).close()
            except Error as error:
                self._sqlstate(error)
                raise
        for world in worlds:
            world.model.all_durable()
            del self.shared.worlds[world.database.entry.folder]

    def check_registry(self, problem: str) -> None:
        """Only leases that are not in pages hold versions."""
        space = self.database.tablespace
        held = [lease for lease in space.applier.leases if not lease.is_pages]
        open_ones = [each.session.transaction for each in self.connections]
        taken = [each for each in open_ones if each is not None and _has_snapshot(each)]
        assert len(space.registry) == len(held) + len(taken), problem

    # --- overlapping -----------------------------------------------------------------------------

    def _on_any_disk(self, op: str, path: str) -> None:
        world = self.shared.worlds.get(path.partition("/")[0])
        if world is None:
            self.shared.on_step(op, path)
        else:
            world._on_disk(op, path)

    def _between_any_parts(self, tablespace: Tablespace) -> None:
        for world in self.shared.worlds.values():
            if world.database.tablespace is tablespace:
                world._between_parts()
                return

    def _pump_any(self) -> bool:
        turns = self.shared.turns
        return (turns[-1] if turns else self)._pump()

    def _on_disk(self, op: str, path: str) -> None:
        # Only a checkpoint or compaction writes segments, and then it holds no lock but its own.
        is_open_place = self._is_maintaining and "/segments/" in path and op in ("write", "sync")
        if is_open_place and self.rng.random() < 0.5:
            self.interleave()

    def _between_parts(self) -> None:
        """Let others go on between two parts of a statement, COMMIT or ROLLBACK."""
        connection = self._stack[-1] if self._stack else None
        transaction = connection.transaction() if connection is not None else None
        if connection is None or transaction is None:
            return
        if transaction.state is not TransactionState.ACTIVE:
            self.note_logged()  # its session comes to ask for a sync only behind the last part
        elif not transaction.is_undone:
            self._in_statement(connection, transaction)
            return
        if self.parts.draw():
            self.done["between parts of an end"] += 1
            if connection.look is not None:  # it may end because of what it has found by now
                connection.look()
                connection.look = None
            self.interleave()

    def _in_statement(self, connection: Connection, transaction: Transaction) -> None:
        """Let others go on while a statement locks, or logs what it has found."""
        is_logging = transaction.cut not in (None, connection.cut_before)
        if is_logging and connection.look is not None and not connection.is_spilling:
            connection.look()
            connection.look = None
        if not (is_logging and connection.is_to_fail) and not self.parts.draw():
            return
        chance = self.parts.rng.random()
        self.shared.act_count += 1
        if chance < 0.4:
            # What others commit before it logs is not in its snapshot, but in the model's.
            if connection.look is not None and self.model.has_pending:
                return  # the checkpoint's sync would end a COMMIT that is under way
            self._is_alone = connection.look is not None
            self.checkpoint()
            self._is_alone = False
        elif chance < (0.75 if is_logging else 0.5):
            self.say(f"{connection.name}: cancel")
            connection.is_cancelled = True
            connection.session.cancel()
        elif is_logging and not connection.is_spilling:
            # Before, or if it is to be worked out again, others' changes are none it has to see.
            self.interleave()
        self.done["between parts of a statement"] += 1

    def crash_soon(self, rng: random.Random) -> None:
        """Bring the crash forward that is planned."""
        if self.disk.crash_at is not None:
            self.disk.crash_at = min(
                self.disk.crash_at, self.disk.step_count + rng.randrange(1, 20)
            )

    def interleave(self) -> None:
        if self._is_alone:
            return
        self.shared.beside()
        for _ in range(self.rng.choice((1, 1, 2))):
            self.act(is_nested=True)

    def _pump(self) -> bool:
        """Let others go on while one waits; now and then a lock is waited for in vain."""
        if self.model.has_pending:  # its writer has asked for the sync already
            with self.doing("commit"):
                self.syncer.sync()
            return True
        if self.rng.random() < 0.2:
            return False
        open_ones = [c for c in self.connections if not c.is_busy and c.work is not None]
        if not open_ones or len(self._stack) > _DEPTH_MAX:
            return False
        connection = self.rng.choice(open_ones)
        self.shared.act_count += 1
        if self.rng.random() < 0.7:
            self.end(connection, is_commit=self.rng.random() < 0.7)
        else:
            self.run(connection, operations.draw(self.rng, with_vector=False))
        return True

    def act(self, *, is_nested: bool = False) -> None:
        """Do one random thing."""
        rng = self.rng
        self.shared.act_count += 1
        if self.style.has_small_disk:
            self._change_room(is_nested=is_nested)
        free = [connection for connection in self.connections if not connection.is_busy]
        if len(self._stack) > _DEPTH_MAX or not free:
            return
        chance = rng.random()
        if chance < 0.05:
            self.checkpoint()
        elif chance < 0.09:
            self.compact()
        elif chance < 0.12:
            self.hold_snapshot()
        elif chance < 0.15 and not is_nested:
            self.check_held()
        elif chance < 0.17 and self.style.has_faults:
            self.inject()
        elif chance > 0.96 and not (self.style.is_uniform or self.style.is_tight):
            self.lease(rng.choice(free))
        else:
            connection = rng.choice(free)
            if connection.work is None and chance < 0.27:
                self.begin(connection)
            elif connection.work is not None and chance < 0.35:
                self.end(connection, is_commit=rng.random() < 0.6)
            elif connection.work is not None and self.levels.draw_savepoint():
                self.savepoint(connection)
            else:
                self.run(connection, self._draw(is_nested=is_nested))

    def _change_room(self, *, is_nested: bool) -> None:
        """Fill the disk, or make it large again, now and then; and look as maintenance does."""
        if self.is_first and self.shared.is_filled and self.rng.random() < 0.03:
            self.make_room()
        elif (
            self.is_first
            and not self.shared.is_filled
            and not is_nested
            and self.rng.random() < 0.1
        ):
            self.fill()
        if self.rng.random() < 0.7:
            self.database.replica.space.look()
        if self.shared.is_filled and self.rng.random() < 0.08:
            self.checkpoint()

    def fill(self) -> None:
        """Have another program take the room of the disk.

        Only when nothing is in memory: what is would have to fit into the reserve.
        """
        worlds = list(self.shared.worlds.values())
        open_works = (each.work is not None for world in worlds for each in world.connections)
        if any(world._is_maintaining for world in worlds) or any(open_works):
            return
        for world in worlds:
            if not world.database.is_closed:  # meanwhile
                world.checkpoint()
        left = self.rng.choice((0, 0, 3_000, 20_000, 60_000))
        self.say(f"the disk is filled but for {left} bytes")
        self.disk.capacity_bytes = self.disk.used_bytes + left
        self.shared.is_filled = True
        self.done["fill"] += 1
        if self.style.is_tight:
            # The log would take all of it, and pages have no such room.
            for _ in range(12):
                if not (connection := self.connections[0]).is_busy:
                    operation = operations.insert(
                        self.rng, "h", count=100, is_many=True, is_upsert=False
                    )
                    self.run(connection, operation)
                self.database.replica.space.look()
            self.checkpoint()

    def make_room(self) -> None:
        self.say("the disk has room again")
        self.disk.capacity_bytes = None
        self.shared.is_filled = False
        self.done["room again"] += 1
        space = self.database.replica.space
        assert not space.look(), "the disk is full although it has room"
        self.check_reserve()

    def check_reserve(self) -> None:
        """The reserve is whole, and the file is as long as it is said to be."""
        path, wanted = "default/reserve", self.style.config.disk_reserve_bytes
        found = self.disk.size(path) if self.disk.exists(path) else 0
        assert found == wanted, f"the reserve has {found} of {wanted} bytes though there is room"

    def _check_not_refused(self, what: str) -> None:
        """A statement has met 53100: it must be one that a full disk may refuse."""
        if self.shared.is_filled and self.style.is_freeing_certain:
            raise AssertionError(f"{what} was refused by a full disk")

    def _draw(self, *, is_nested: bool) -> Operation:
        if self.style.is_uniform and self.rng.random() < 0.9:
            return operations.uniform(self.rng)
        if self.shared.is_filled and self.rng.random() < 0.5:
            return operations.draw_for_full_disk(self.rng)
        return operations.draw(self.rng, with_vector=self.with_vector and not is_nested)

    # --- actions ---------------------------------------------------------------------------------

    @contextmanager
    def _in(self, connection: Connection) -> Iterator[None]:
        connection.is_busy = True
        self.shared.turns.append(self)
        connection.logged = connection.to_log = connection.look = None
        connection.is_spilling = connection.is_to_fail = connection.is_cancelled = False
        self._stack.append(connection)
        yield
        self._stack.pop()
        self.shared.turns.pop()
        connection.is_busy = False

    def note_logged(self) -> None:
        """Run when a session asks for the sync of what it has just logged."""
        if not self._stack:
            return  # close() of a session
        connection = self._stack[-1]
        transaction = connection.transaction()
        if connection.to_log is None or transaction is None:
            return
        if not (transaction.is_autocommit or (transaction.id and _has_logged(transaction))):
            return  # a commit that had nothing to log; an autocommit statement asks only if it had
        work = connection.to_log()
        connection.to_log = None
        if work is not None:
            connection.logged = work
            self.model.logged(work, lambda: _has_succeeded(transaction))

    def begin(self, connection: Connection, *, is_repeatable: bool | None = None) -> None:
        """Begin a transaction; is_repeatable: with one snapshot; None: as is drawn."""
        durability = self.rng.choice(self.style.durabilities)
        self.say(f"{connection.name}: begin {durability.value}")
        with self._in(connection):
            connection.session.begin(durability.value)
        connection.work = Work(is_sync=durability is Durability.SYNC)
        connection.savepoints = []
        if self.levels.draw_repeatable() if is_repeatable is None else is_repeatable:
            self._repeat(connection, connection.work)
        self.done["begin"] += 1

    def _repeat(self, connection: Connection, work: Work) -> None:
        """Have a transaction read one snapshot, and note what is committed when it is taken."""
        with self._in(connection):
            connection.session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        transaction = connection.transaction()
        assert transaction is not None
        snapshot = transaction.reads_at
        assert isinstance(snapshot, TransactionSnapshot)
        take = snapshot._take

        def noted() -> State:
            found = take()
            self.model.refresh()
            if work.base is None:  # there is no other one
                work.base = self.model.visible.copy()
            return found

        snapshot._take = noted  # type: ignore[method-assign]
        work.is_repeatable = True
        self.done["repeatable read"] += 1

    def savepoint(self, connection: Connection, verb: str = "", name: str = "") -> None:
        """Make a savepoint, go back to one, or end one; as is drawn where it is not given."""
        verb, name = verb or self.levels.draw_verb(), name or self.levels.draw_name()
        work = connection.work
        assert work is not None
        self.say(f"{connection.name}: {verb} {name}")
        places = [place for place, each in enumerate(connection.savepoints) if each.name == name]
        is_made = verb == "SAVEPOINT"
        found = ""
        with self._in(connection):
            try:
                connection.session.execute(f"{verb} {name}")
            except Error as error:
                found = self._sqlstate(error)
        if found == _FULL:
            if not is_made:
                self._check_not_refused(verb)
            return
        assert found == ("" if places or is_made else "3B001"), f"{verb} failed with {found}"
        if is_made:
            made = _Savepoint(name, work.copy(), tuple(self._held))
            connection.savepoints.append(made)
        elif places and verb == "RELEASE":
            del connection.savepoints[places[-1] :]
        elif places:
            del connection.savepoints[places[-1] + 1 :]
            kept = connection.savepoints[-1]
            work.become(kept.work.copy())
            self._let_go(connection, before=kept.held)
        self.done[verb.lower()] += not found

    def end(self, connection: Connection, *, is_commit: bool) -> None:
        work = connection.work
        assert work is not None
        transaction = connection.session.transaction
        has_spilled = transaction is not None and transaction.has_spilled
        if has_spilled and is_commit and self._is_maintaining:
            return  # it waits for who maintains
        self.say(f"{connection.name}: {'commit' if is_commit else 'rollback'}")
        with self._in(connection):
            if not is_commit:
                self._let_go(connection)
                connection.session.rollback()
                self.has_rollback = self.has_rollback or not work.is_empty
                self.done["rollback"] += 1
            else:
                connection.to_log = lambda: work
                self._give_token(connection.session, work)
                self.model.check_no_conflict(work)
                try:
                    with self._maintaining(is_on=has_spilled):
                        connection.session.commit()
                except Error as error:
                    found = self._sqlstate(error)
                    assert found == _FULL, f"commit failed with {found}"
                    self._check_not_refused("COMMIT")
                    self.done["commit on a full disk"] += 1
                    return
                if connection.logged is None:
                    assert work.is_empty, "a commit logged nothing although there were changes"
                else:
                    self.model.acknowledged(work)
                self.done["commit"] += 1
        connection.work = None

    @contextmanager
    def _maintaining(self, *, is_on: bool) -> Iterator[None]:
        """Let nobody else maintain, and no statement spill, which would wait for each other."""
        before, self._is_maintaining = self._is_maintaining, self._is_maintaining or is_on
        try:
            yield
        finally:
            self._is_maintaining = before

    def _give_token(self, session: Session, work: Work) -> None:
        """Let every second commit carry a token that is new, where frames may differ in length."""
        self._token_count += 1
        session.token = work.token = None
        if self._token_count % 2 and not self.style.is_uniform:
            work.token = (session.token_session, self._token_count)
            session.token = UsedToken(work.token, 0)
            self.done["token"] += 1

    @contextmanager
    def _known(self, session: Session, operation: Operation) -> Iterator[None]:
        """Have a statement planned as one that comes again; the plan is of this very catalog."""
        text, parameters = operation.text, operation.parameters
        session.interrupt = None  # of a statement before, which was perhaps cancelled
        latest = self.database.plans.latest
        compiled = session.planner.prepare(text, parameters).compiled
        version = self.database.tablespace.state.catalog.version
        latest[text] = Prepared(compiled, version, parameter_types(parameters))
        try:
            yield
        finally:
            latest.clear()

    def _execute_again(self, session: Session, operation: Operation) -> int:
        """Run a statement that came before."""
        with self._known(session, operation):
            row = attempt_and_wait(session, operation.text, operation.parameters)
            self.done["row at once"] += row is not None
            result = row or session.execute(operation.text, operation.parameters)
        return result.row_count

    def _write_at_once(self, session: Session, operation: Operation) -> int | None:
        """Write as a server's loop does, if that can be."""
        with self._known(session, operation):
            begun = attempt(session, operation.text, operation.parameters)
            if begun is None:
                return None
            if begun.outcome is not None:
                self.syncer.ask(begun.transaction.durability)
            if begun.outcome is not None and not begun.outcome.is_done:
                self.syncer.sync()  # it stands behind another one that waits for the disk
            session.end_write(begun)
        self.done["at once"] += 1
        return begun.row_count

    def run(
        self,
        connection: Connection,
        operation: Operation,
        *,
        may_spill: bool | None = None,
        is_to_fail: bool = False,
        is_again: bool = False,
    ) -> None:
        """Run one statement and compare its outcome with the model's.

        is_again: it is one that came before.

        may_spill: whether it may hold next to nothing in memory; None: as is drawn.
        is_to_fail: it is cancelled between its parts, if it has some, behind a checkpoint or not.
        """
        self.say(f"{connection.name}: {operation.text} {operation.parameters}")
        if operation.select is not None:
            self._select(connection, operation)
            return
        # Between the parts of a COMMIT a snapshot from before it is as right as one from behind it,
        # which nobody can tell from outside.
        self.database.tablespace.apply_rest()
        own = connection.work
        if operation.stage is not None and (own is not None or self._is_maintaining):
            return  # it is a transaction of its own; and it waits for who maintains
        work = own or Work(is_sync=connection.durability is Durability.SYNC)
        expected: int | str | None = None
        seen: tuple[Work, int | str] | None = None

        def look() -> tuple[Work, int | str]:
            nonlocal seen
            seen = found = self._effect(operation, work.copy())
            return found

        def effect() -> Work:
            nonlocal expected
            after, expected = seen or look()
            work.become(after)
            return work

        def execute() -> int | str:
            session = connection.session
            try:
                if operation.stage is not None:
                    session.token = None
                    return self._stage(session, operation.stage)
                if operation.is_many:
                    if own is None:
                        self._give_token(session, work)
                    return session.execute_many(operation.text, operation.parameters).row_count
                if own is None:
                    self._give_token(session, work)
                if self.done["statement"] % 3 == 1 or is_again:
                    return self._execute_again(session, operation)
                if self.done["statement"] % 3 == 0:
                    count = self._write_at_once(session, operation)
                    if count is not None:
                        return count
                return session.execute(operation.text, operation.parameters).row_count
            except Error as error:
                return self._sqlstate(error)

        # A job reads files between its look at the rows and its end: others' statements go between.
        first: int | str | None = None
        if operation.stage is not None:
            _, first = self._effect(operation, Work(is_sync=False))
        can_spill = operation.stage is None and not self._is_maintaining
        is_spilling = can_spill and (self.spills.draw() if may_spill is None else may_spill)
        database = self.database
        space, acts = self.database.replica.space, self.shared.act_count
        reserve = space.figures().reserve_held_bytes
        with self._in(connection), self._maintaining(is_on=is_spilling):
            if own is None:
                connection.to_log = effect
            transaction = connection.transaction()
            connection.cut_before = None if transaction is None else transaction.cut
            connection.look, connection.is_to_fail = look, is_to_fail
            connection.is_spilling = is_spilling
            before, database.config = database.config, _SPILLING if is_spilling else _CONFIG
            entry = database.entry
            try:
                found = execute()
            finally:
                is_altered = database.entry is not entry
                database.config = (
                    database.instance.config_of(database.entry) if is_altered else before
                )
        self.done["statement"] += 1
        is_alone = acts == self.shared.act_count
        if operation.frees_space:
            if found == _FULL:
                self._check_not_refused(operation.text)
        elif is_alone and operation.stage is None and not is_spilling:
            left = space.figures().reserve_held_bytes
            # Of more rows than one part the COMMIT comes by itself, and a COMMIT may use it.
            is_long = isinstance(found, int) and found > MONITOR_ROWS
            has_commit = own is None and (is_long or operation.is_rewritten)
            assert has_commit or left >= reserve, (
                f"{operation.text} took {reserve - left} bytes of the reserve"
            )
        is_gone = operation.stage is not None and found == _GONE
        is_cancelled = connection.is_cancelled and found == _CANCELLED
        if found in (_LOCKED, _DEADLOCK, _FULL) or is_gone or is_cancelled:
            self.say(f"{connection.name}: … {found}")
            self.done[found] += 1
            assert expected is None, f"{operation.text}: failed with {found} after it was logged"
            if found == _DEADLOCK:
                self._give_up(connection)
            return
        if found == _CONFLICT and own is not None and own.is_repeatable:
            self.say(f"{connection.name}: … {found}")
            assert self.model.may_conflict(operation.table, own), f"{operation.text}: no conflict"
            self.done["conflict"] += 1
            self._give_up(connection)
            return
        transaction = connection.session.transaction
        self.done["spilled"] += transaction is not None and transaction.has_spilled
        if expected is None:
            if isinstance(first, str) and found == first:
                return
            if operation.stage is not None and found == _DUPLICATE and not is_alone:
                return  # of a row that others have made and removed again meanwhile
            effect()
        assert found == expected, (
            f"{operation.text} {operation.parameters}: expected {expected}, found {found}"
        )
        self.model.check_no_conflict(work)
        if own is None and not work.is_empty:
            assert connection.logged is work, f"{operation.text}: nothing was logged"
            self.model.acknowledged(work)

    def _give_up(self, connection: Connection) -> None:
        """End a transaction that was rolled back, and wants to be told so."""
        self._let_go(connection)
        connection.session.rollback()
        connection.work = None

    def _effect(self, operation: Operation, work: Work) -> tuple[Work, int | str]:
        """Return `work` with what a statement does now, and its row count or SQLSTATE."""
        try:
            return work, operation.run_on(self.model, work)
        except RefusedError as refused:
            return work, refused.sqlstate

    def _stage(self, session: Session, stage: Callable[[Session], None]) -> int:
        """Run a staging; who maintains the pages would wait for it, and so has to come later."""
        pages = {i: item.pages for i, item in self.database.tablespace.state.tables.items()}
        self._is_maintaining = True
        try:
            stage(session)
        finally:
            self._is_maintaining = False
        self.done["staging"] += 1
        after = self.database.tablespace.state.tables
        adopted = [i for i in pages if i in after and after[i].is_unlisted]
        self.done["adoption"] += any(after[i].pages is not pages[i] for i in adopted)
        return -1

    def _sqlstate(self, error: Error) -> str:
        """Return what a history can go on after; LifeOver after a disk that failed on demand."""
        sqlstate = error.sqlstate
        if self.shared.has_fault and sqlstate != _FULL and sqlstate[:2] in ("58", "08"):
            raise LifeOver(str(error)) from error
        may_be_full = sqlstate == _FULL and (self.shared.has_fault or self.shared.is_filled)
        if sqlstate[:2] in ("XX", "58", "08", "53") and not may_be_full:
            raise error
        return sqlstate

    def _select(self, connection: Connection, operation: Operation) -> None:
        assert operation.select is not None
        try:
            _, rows = self.model.table(operation.table, connection.work)
        except RefusedError as refused:
            found = ""
            try:
                connection.session.execute(operation.text, operation.parameters)
            except Error as error:
                found = error.sqlstate or ""
            if found != refused.sqlstate:
                raise AssertionError(
                    f"{operation.text}: expected {refused.sqlstate}, found {found!r}"
                ) from None
            return
        expected = ordered(operation.select(rows))
        try:
            result = connection.session.execute(operation.text, operation.parameters)
        except Error as error:
            self._sqlstate(error)
            raise
        if self.rng.random() < 0.5 and not SHAPES[operation.table].is_heap:
            name = operation.table
            first = result.fetch_many(self.rng.randrange(3))
            self._held.append(
                _Held(
                    f"a cursor on {name}",
                    owner=None if connection.work is None else connection,
                    read=lambda: {name: ordered([*first, *result.rows()])},
                    expected={name: expected},
                    close=result.close,
                )
            )
            return
        rows_found = ordered(_take(result))
        assert rows_found == expected, (
            f"{operation.text} {operation.parameters}: {_differ(rows_found, expected)}"
        )
        self.done["select"] += 1

    def checkpoint(self) -> None:
        if self._is_maintaining:
            return
        self.say("checkpoint")
        self._is_maintaining = True
        with self.doing("checkpoint"):
            try:
                self.done["checkpoint"] += self.database.run_checkpoint()
            except Error as error:
                self._check_fault(error)
        self._is_maintaining = False
        self.model.refresh()
        self.say("checkpoint is done")
        if self.style.has_small_disk:
            self.check_files()

    def check_files(self) -> None:
        """Nothing lies in the directory that is of no use; no checkpoint or compaction runs."""
        listed = self.database.replica.manifest.state
        known = {segment_name(number) for number in listed.segments}
        folder = self.database.entry.folder
        left = set(self.disk.list(f"{folder}/segments")) - known
        assert not left, f"segments that no manifest lists: {sorted(left)}"
        logs = {number for number, _ in listed.log_files}
        spare = [path for n, path in numbered_files(self.disk, f"{folder}/log") if n not in logs]
        assert len(spare) <= _SPARES_MAX, f"log files of no use: {spare}"

    def _check_fault(self, error: Error, *, gives_way: bool = False) -> None:
        """A checkpoint or compaction may fail with the disk; the database goes on without it.

        gives_way: it may also do so because statements that free space, or end what was begun, ran
        meanwhile: the room it was found to have is not kept from them, since it can begin again.
        """
        reserve_bytes = self.style.config.disk_reserve_bytes
        may_be_full = self.shared.is_filled and not reserve_bytes
        if self.shared.is_filled and self.style.is_tight:
            # Before anything is written, and when what goes on has used the reserve up.
            needed = self.database.replica.space.figures().needed_bytes
            may_be_full = "the rows in memory need" in error.message and needed < 3 * reserve_bytes
        if gives_way and reserve_bytes and error.sqlstate == "53100":
            may_be_full = True
        if error.sqlstate[:2] == "XX" or not (self.shared.has_fault or may_be_full):
            raise error
        self.done["maintenance failed"] += 1
        self.say(f"failed: {error}")

    def lease(self, connection: Connection) -> None:
        """Take a lease, or end one."""
        leasing, leases = connection.session.leasing, self.database.tablespace.applier.leases
        before = self.leases.unsure  # among them those that their takers still wait for
        there = [lease.id for lease in leases if not (lease.is_ended or lease.id in before)]
        is_end = bool(there) and self.rng.random() < 0.15 * (1 + len(there))
        number = self.rng.choice(there) if is_end else ""
        self.say(f"{connection.name}: {f'end lease {number}' if is_end else 'take a lease'}")

        def execute() -> str | None:
            try:
                if is_end:
                    self.leases.ends(number)
                    leasing.end(number)
                    return None
                self.leases.begun(leasing.take(60).id)
            except Error as error:
                if self._sqlstate(error) != _FULL:
                    raise
                if is_end:
                    self._check_not_refused("the end of a lease")
                return _FULL
            return None

        with self._in(connection):
            found = execute()
        if found is None:
            self.done["lease ended" if is_end else "lease"] += 1
            if is_end:
                self.leases.ended(number)
        elif is_end:
            self.leases.stays(number)
        else:
            for each in self.leases.unsure - before:
                self.leases.failed(each)

    def inject(
        self, faults: tuple[tuple[str, int, str], ...] = _FAULTS, rng: random.Random | None = None
    ) -> None:
        """Let the disk fail once or a few times, soon."""
        rng = rng or self.rng
        kind, code, path = rng.choice(faults)
        times = rng.choice((1, 1, 3))
        self.say(f"fault: {kind} of {path or 'anything'} fails with errno {code}, {times} times")
        self.disk.fail(kind, code, after=rng.randrange(3), times=times, path=path)
        self.shared.has_fault = True
        self.done["fault"] += 1

    def compact(self) -> None:
        if self._is_maintaining:
            return
        self.say("compaction")
        self._is_maintaining = True
        acts = self.shared.act_count
        with self.doing("compaction"):
            try:
                self.done["compaction"] += self.database.run_compaction()
            except Error as error:
                self._check_fault(error, gives_way=self.shared.act_count > acts)
        self._is_maintaining = False

    # --- snapshots that must not change (I9) -----------------------------------------------------

    def hold_snapshot(self) -> None:
        self.say("hold a snapshot")
        self.model.refresh()
        snapshot = self.database.tablespace.snapshot(None)
        held = _Held(
            f"a snapshot at {snapshot.state.position}",
            lambda: content_of(snapshot),
            self.model.visible.plain(),
            snapshot.close,
        )
        self._held.append(held)
        self.done["hold"] += 1

    def _let_go(self, connection: Connection, before: "tuple[_Held, ...]" = ()) -> None:
        """Close what is read in a connection's transaction, which is rolled back.

        But for what was held `before` the savepoint that it goes back to.
        """
        gone = [each for each in self._held if each.owner is connection and each not in before]
        for held in gone:
            held.close()
        self._held = [held for held in self._held if held not in gone]

    def check_held(self, *, close_all: bool = False) -> None:
        """Read what is held again; let go of some of it, or all."""
        self.leases.check(self.database)
        kept: list[_Held] = []
        for held in self._held:
            found = held.read()
            if found != held.expected:
                raise AssertionError(f"I9: {held.what} changed: {_differ(found, held.expected)}")
            # A cursor is used up by reading.
            if close_all or held.what.startswith("a cursor") or self.rng.random() < 0.3:
                held.close()
            else:
                kept.append(held)
        self._held = kept


def _has_logged(transaction: Transaction) -> bool:
    """Return False when its only statement found no room in the log: it has an id, and no more."""
    return bool(transaction.writes or transaction.defined) or transaction.has_spilled


def _has_snapshot(transaction: Transaction) -> bool:
    snapshot = transaction.reads_at
    is_open = transaction.state is TransactionState.ACTIVE
    return is_open and snapshot is not None and snapshot.taken is not None


def _has_succeeded(transaction: Transaction) -> bool:
    """It is visible; of a large one those who wait are told when it has no more locks."""
    return transaction.state is TransactionState.ENDED and not transaction.is_undone


def _take(result: Result) -> list[Row]:
    rows = list(result.rows())
    result.close()
    return rows


def _differ(found: Any, expected: Any) -> str:
    if isinstance(found, dict):
        names = [n for n in {**found, **expected} if found.get(n) != expected.get(n)]
        return "; ".join(f"{n}: {_differ(found.get(n, []), expected.get(n, []))}" for n in names)
    extra = [row for row in found if row not in expected]
    missing = [row for row in expected if row not in found]
    return f"too much {extra[:8]}, missing {missing[:8]}, {len(found)} rows for {len(expected)}"


def content_of(snapshot: Snapshot) -> dict[str, list[Row]]:
    """Return all rows of a snapshot, by table name, in the order of Model's plain()."""
    found: dict[str, list[Row]] = {}
    for table in snapshot.state.catalog.tables():
        if table.has_rows:
            rows = snapshot.source(table).range(None, None)
            found[table.name] = ordered(row[: SHAPES[table.name].width] for row in rows)
    found[ROLES] = ordered(snapshot.source(SYSTEM_TABLES[ROLES]).range(None, None))
    rights = snapshot.source(SYSTEM_TABLES[GRANTS]).range(None, None)
    found[GRANTS] = ordered(row[:1] + row[3:4] for row in rights if row[1] == "tablespace")
    return found
