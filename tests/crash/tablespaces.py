"""Tablespaces: those beside `default`: made, changed, dropped and written to, over every crash.

Which there are, with names, limits and roles, is as before a statement or as behind it; behind it,
once it has been acknowledged. Each has a world and a model of its own, so that whatever happens in
`default` happens in it, too, while statements about it go on, and they while it writes. What a
directory then holds is what its list says, and what was dropped holds neither files nor memory.
"""

import random
from collections import Counter
from collections.abc import Callable
from errno import EIO, ENOSPC
from typing import NamedTuple

from msgspec.structs import replace

from herdpy.engine.instance import Instance
from herdpy.engine.maintenance.directory import DIRECTORY, FORMAT, LOCK, UNFINISHED
from herdpy.engine.session.session import Session
from herdpy.engine.state.system_tables import SYSTEM_TABLES
from herdpy.errors import Error, LogFailedError, Retry
from herdpy.exec.result import Result
from herdpy.model.settings import Settings
from herdpy.storage.tablespace_list import (
    NO_LIMITS,
    STAGED,
    TABLESPACES,
    TablespaceEntry,
    TablespaceLimits,
)
from tests.crash import checks, operations
from tests.crash.leases import LeaseBook
from tests.crash.model import GRANTS, ROLES, SYSTEM, Content, Model
from tests.crash.world import World
from tests.fixtures.engines import TABLESPACE
from tests.sim.disk import SimulatedCrash

CREATE, ALTER, DROP = "CREATE TABLESPACE", "ALTER TABLESPACE", "DROP TABLESPACE"
CHANGES = (CREATE, ALTER, DROP)
_NAMES, _NAMES_NEW = "xyz", "xxyz"  # often one that was there before
_COUNT_MAX = 2
_STEPS_GUESS = {CREATE: 45, ALTER: 8, DROP: 30}
_FULL, _IN_USE, _DOUBT, _KILLED = "53100", "55006", "58030", "57P01"
_PLACES = ("write", "sync", "rename", "sync_directory", "make_directory", "remove_directory")
"""Steps of a statement about tablespaces at which others may go on."""
_FAULTS = (
    ("open", ENOSPC, TABLESPACES),
    ("write", EIO, TABLESPACES),
    ("sync", EIO, TABLESPACES),
    ("rename", EIO, TABLESPACES),
    ("sync_directory", EIO, ""),
    ("unlink", EIO, ""),
)


class Known(NamedTuple):
    """A tablespace that is there, or may be."""

    name: str
    limits: TablespaceLimits
    has_owner: bool
    """It was made with OWNER."""
    model: Model
    leases: LeaseBook
    id: bytes | None = None
    """None: it was not seen yet."""


Listed = dict[str, Known]


class _Outcome(NamedTuple):
    sqlstate: str | None
    is_known: bool = True
    """False: only an opening of the directory tells."""


class Tablespaces:
    """Of one history, apart from all other chance; it lives longer than any process of it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"tablespaces of {seed}")
        self._share = self.rng.choice((0.0, 0.0, 0.1, 0.2, 0.4))
        if TABLESPACE is not None:
            self._share = 0.0  # the life's own sessions are not of `default`, which alone may
        self.more_lives = self.rng.choice((0, 1, 2)) if self._share else 0
        """How many short lives there are beside those of the style."""
        self.done: Counter[str] = Counter()
        self._listed: Listed = {}
        self._unsure: Listed | None = None
        """What may be there as well, when the directory is opened again."""
        self._root: World
        self._is_changing = False
        """The instance makes, opens, changes or removes one: for another it would wait."""
        self._is_inside = False
        """Nothing may happen at a step of that: something does already, or no life has begun."""
        self._failure: BaseException | None = None
        """Of what happened at such a step: the product may not see it."""

    # --- of the directory ------------------------------------------------------------------------

    def draw(self) -> bool:
        return self.rng.random() < self._share

    def draw_power_loss(self) -> bool | None:
        """Return whether the power fails, and not the process alone; None: as is drawn for all."""
        return None if self._unsure is None else self.rng.random() < 0.6

    def draw_later(self) -> int:
        """Return how many steps later than others a crash of an opening is to come."""
        return self.rng.choice((0, 10, 40)) if self._listed or self._unsure else 0

    def open(
        self,
        world: World,
        *,
        session_count: int = 2,
        check: Callable[[World], object] = checks.check_survived,
    ) -> None:
        """Open the directory and some of the tablespaces; check() what is found in `default`."""
        self._root = world
        self._is_changing, self._is_inside = False, True
        self._failure = None
        world.shared.beside = self._beside
        world.shared.on_step = self._on_step
        world.open(session_count=session_count)
        check(world)
        self._take_up()
        for known in list(self._listed.values()):
            if self.rng.random() < 0.7:
                self._open(known)
        self._is_inside = False

    def open_all(self) -> None:
        self._is_inside = True
        for known in list(self._listed.values()):
            world = self._world_of(known) or self._open(known)
            assert world is not None, f"tablespace {known.name} could not be opened"
        self._is_inside = False
        self._check()

    def listing(self) -> tuple[list[str], bytes]:
        """Return what lies in the directory, and the bytes of the list."""
        disk = self._root.disk
        names = disk.list("")
        return names, disk.read(TABLESPACES) if TABLESPACES in names else b""

    def _take_up(self) -> None:
        """Take up what the list says; AssertionError if it is not allowed."""
        found = self._entries()
        choices = [self._listed] if self._unsure is None else [self._listed, self._unsure]
        for choice in choices:
            if choice.keys() == found.keys() and all(
                entry.limits == choice[name].limits and choice[name].id in (None, entry.id)
                for name, entry in found.items()
            ):
                break
        else:
            expected = " or ".join(str([(k.name, k.limits) for k in c.values()]) for c in choices)
            shown = [(entry.name, entry.limits) for entry in found.values()]
            raise AssertionError(f"tablespaces: found {shown}, expected {expected}")
        self._listed = {name: known._replace(id=found[name].id) for name, known in choice.items()}
        self._unsure = None
        self._check_directory()

    def _entries(self) -> dict[str, TablespaceEntry]:
        """Return what is listed beside `default`, and beside the one where the life itself is."""
        entries = [each.entry for each in self._instance.tablespaces.states()[1:]]
        return {each.name: each for each in entries if each.name != TABLESPACE}

    @property
    def _instance(self) -> Instance:
        return self._root.database.instance

    def _world_of(self, known: Known) -> World | None:
        return None if known.id is None else self._root.shared.worlds.get(known.id.hex())

    def _open(self, known: Known) -> World | None:
        """Open a tablespace as its first client does; None: the disk does not let it."""
        if self._is_changing:
            return None
        self._root.say(f"open tablespace {known.name}")
        failure = self._changing(
            "opening of a tablespace", lambda: self._instance.tablespaces.database(known.name)
        )
        if failure is not None:
            self._check_fault(failure, is_opening=True)
            return None
        return self._enter(known)

    def _enter(self, known: Known) -> World:
        """Return the world of a tablespace that has been opened, with what is in it checked."""
        database = self._instance.tablespaces.opened(known.name)
        self._listed[known.name] = known._replace(id=database.entry.id)
        world = self._root.of_another(self.rng, known.model, known.leases)
        world.open(session_count=self.rng.choice((1, 2)), database=database)
        self._root.disk.heal()  # or the checks would meet what the disk was told
        checks.check_survived(world)
        self.done["tablespace opened"] += 1
        return world

    def _check_fault(
        self, error: Error, *, is_opening: bool = False, was_filled: bool = False
    ) -> None:
        """Raise what is neither of the disk nor of an edit whose outcome is not known.

        is_opening: a full disk is not to keep a tablespace from being opened. was_filled: it was
        full before there was room again, in the middle of a statement.
        """
        root = self._root
        root.disk.exists(FORMAT)  # else the power has failed, and nothing else
        is_full = error.sqlstate == _FULL
        is_fault = root.shared.has_fault and (
            is_full or (error.sqlstate or "")[:2] == "58" or isinstance(error, LogFailedError)
        )
        is_filled = root.shared.is_filled or was_filled
        may_be_full = is_filled and not (is_opening and root.style.is_freeing_certain)
        is_doubt = is_opening and self._unsure is not None and error.sqlstate == _DOUBT
        if not (is_fault or is_doubt or (is_full and may_be_full)):
            raise error
        root.say(f"failed: {error}")
        self.done["tablespace failed"] += 1

    def begin(self) -> None:
        """Have one from the beginning, in most histories; the crash that is planned comes later."""
        if not self._share or self.rng.random() < 0.4:
            return
        disk = self._root.disk
        planned, before = disk.crash_at, disk.step_count
        disk.crash_at = None
        self._create()
        self._raise_failure()
        if planned is not None:
            disk.crash_at = max(planned, before + 1) + disk.step_count - before

    # --- what happens ----------------------------------------------------------------------------

    def live(self) -> None:
        """Do one thing with tablespaces."""
        chance = self.rng.random()
        if chance < 0.05:
            self._root.say("remove what is left of tablespaces")
            self._instance.tablespaces._remove_again()
            self._check_directory()
        elif not self._listed or (chance < 0.15 and len(self._listed) < _COUNT_MAX):
            self._create()
        elif chance < 0.6:
            self._change()
        else:
            self._write()
        self._raise_failure()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _change(self) -> None:
        known = self.rng.choice(list(self._listed.values()))
        world = self._world_of(known)
        chance = self.rng.random()
        if chance < 0.5:
            self._alter(known)
        elif chance < 0.9:
            self._drop(known, world)
        elif world is not None and not world.is_busy:
            world.close()

    def _write(self, *, is_nested: bool = False) -> None:
        known = self.rng.choice(list(self._listed.values()))
        world = self._world_of(known) or self._open(known)
        if world is None or (self._root.shared.is_filled and self._root.style.is_tight):
            return  # what each of two may have in memory would have to fit into the reserve
        for _ in range(1 if is_nested else self.rng.choice((1, 3, 6))):
            if world.database.is_closed:
                return  # it was dropped between
            free = [each for each in world.connections if not each.is_busy]
            missing = [name for name in "abh" if name not in world.model.visible.names]
            if free and missing and self.rng.random() < 0.5:
                world.run(free[0], operations.create(missing[0]))
            elif free and self.rng.random() < 0.1:
                name = world.database.name
                statement = operations.grant(self.rng, name, has_owner=known.has_owner)
                world.run(self.rng.choice(free), statement)
            else:
                world.act(is_nested=is_nested)
            self.done["in another tablespace"] += 1

    def _beside(self) -> None:
        """Let something happen in any tablespace, or with one, while a statement is at work."""
        if self._is_inside or not self.draw():
            return
        if not self._listed or (len(self._listed) < _COUNT_MAX and self.rng.random() < 0.1):
            self._create()
        elif self.rng.random() < 0.3:
            self._change()
        else:
            self._write(is_nested=True)
        self._raise_failure()

    def _on_step(self, op: str, path: str) -> None:
        """Let something happen at a step of a statement about tablespaces."""
        is_place = op in _PLACES and not ("/log" in path or "/segments" in path)
        if not (self._is_changing and is_place) or self._is_inside or self._failure is not None:
            return
        if self.rng.random() >= 0.15:
            return
        self._is_inside = True
        try:
            if self._listed and self.rng.random() < 0.5:
                self._write(is_nested=True)
            else:
                self._root.act(is_nested=True)
        except SimulatedCrash:
            raise
        except BaseException as error:
            self._failure = error  # the product would take it for one of the disk
        self._is_inside = False
        self.done["at a step of a tablespace statement"] += 1

    # --- statements ------------------------------------------------------------------------------

    def _create(self) -> None:
        if self._is_changing:
            return
        root, rng = self._root, self.rng
        root.model.refresh()
        free = [each for each in root.connections if not each.is_busy and each.work is None]
        if free and (operations.OWNER[0],) not in root.model.visible.rows[SYSTEM[ROLES]]:
            root.run(free[0], operations.owner())
        root.database.tablespace.apply_rest()  # here, since others may go on between its parts
        if self._is_changing:
            return
        name, limits = rng.choice(_NAMES_NEW), self._draw_limits()
        has_owner = rng.random() < 0.6
        text = f"{CREATE} {name}{' OWNER o' if has_owner else ''}"
        if limits != NO_LIMITS:
            text += f" WITH {_shown(limits)}"
        first = Content()
        if has_owner:
            first.rows[SYSTEM[ROLES]] = {operations.OWNER[:1]: operations.OWNER}
        made = Known(name, limits, has_owner, Model(first), LeaseBook())
        refusal = "42710" if name in self._listed else None
        access = root.database.tablespace.state.catalog.access
        if has_owner and access.role(operations.OWNER[0]) is None:
            refusal = "42704"
        outcome = self._execute(CREATE, text, refusal, {**self._listed, name: made})
        if outcome == _DONE:
            self._enter(made)
            self._check()

    def _draw_limits(self) -> TablespaceLimits:
        rng = self.rng
        return TablespaceLimits(
            rng.choice((None, 64 * 2**20, 96 * 2**20)),
            rng.choice((None, 7, 9)),
            rng.choice((None, 2**30, 2**31)),
        )

    def _alter(self, known: Known) -> None:
        if self._is_changing:
            return
        rng = self.rng
        changed, refusal = known, None
        if rng.random() < 0.5:
            name = rng.choice(_NAMES)
            clause = f"RENAME TO {name}"
            refusal = "42710" if name in self._listed else None
            changed = known._replace(name=name)
        elif rng.random() < 0.7:
            drawn = {k: v for k, v in _items(self._draw_limits()) if v is not None}
            if not drawn:
                return
            changed = known._replace(limits=replace(known.limits, **drawn))
            clause = f"SET {_shown(TablespaceLimits(**drawn))}"
        else:
            names = rng.sample([name for name, _ in _items(NO_LIMITS)], rng.choice((1, 2)))
            changed = known._replace(limits=replace(known.limits, **dict.fromkeys(names)))
            clause = f"RESET ({', '.join(names)})"
        after = {
            (changed if n == known.name else k).name: changed if n == known.name else k
            for n, k in self._listed.items()
        }
        self._execute(ALTER, f"{ALTER} {known.name} {clause}", refusal, after)
        self._check()

    def _drop(self, known: Known, world: World | None) -> None:
        if self._is_changing:
            return
        is_forced = self.rng.random() < 0.6
        is_busy = world is not None and world.is_busy
        if is_forced and is_busy:
            return  # it waits until a statement has ended, and a checkpoint
        if world is not None and not is_busy and not is_forced and self.rng.random() < 0.7:
            world.disconnect()
        is_refused = world is not None and world.connections and not is_forced
        unread = self._unread(world) if world is not None and is_forced else None
        text = f"{DROP} {known.name}{' WITH (FORCE)' if is_forced else ''}"
        after = {name: each for name, each in self._listed.items() if name != known.name}
        worlds = self._root.shared.worlds
        if world is not None and not is_refused:
            del worlds[world.database.entry.folder]  # nothing happens in it meanwhile
        outcome = self._execute(DROP, text, _IN_USE if is_refused else None, after)
        if world is None or is_refused:
            self._check()
            return
        if outcome.sqlstate == _FULL:
            self._root._check_not_refused(DROP)
        if outcome == _DONE or world.database.is_closed:
            if unread is not None:
                unread.close()  # by the program that has it, as it closes its connection
            self._check_ended(world)
        else:
            worlds[world.database.entry.folder] = world
            if not world.connections:
                world.connect(self.rng.choice((1, 2)))
        self._check()

    def _unread(self, world: World) -> Result | None:
        """Return a result, half read, that has a place among those of big queries."""
        free = [each for each in world.connections if each.work is None]
        if not (self._root.with_vector and free and "a" in world.model.visible.names):
            return None
        result = free[0].session.execute("SELECT k, count(*) FROM a GROUP BY k", None)
        result.fetch_many(1)
        self.done["unread result"] += 1
        return result

    def _execute(self, kind: str, text: str, refusal: str | None, after: Listed) -> _Outcome:
        """Run a statement; when it has succeeded, or may have, take up what is there behind it."""
        root = self._root
        doubted = self._unsure
        if doubted is not None and refusal not in ("42704",):
            refusal = _DOUBT
        if refusal is None:
            self._unsure = after
            share = 0.2 if kind == CREATE else 0.4
            if root.disk.crash_at is not None and self.rng.random() < share:
                steps = self.rng.randrange(1, _STEPS_GUESS[kind])
                root.disk.crash_at = min(root.disk.crash_at, root.disk.step_count + steps)
        if root.style.has_faults and self.rng.random() < 0.3:
            root.inject(_FAULTS, self.rng)
        root.say(text)
        session = root.database.session(Settings(), autocommit=True)
        was_filled, fills = root.shared.is_filled, root.done["fill"]
        failure = self._changing(kind, lambda: session.execute(text, None))
        session.close()
        root.shared.act_count += 1
        self.done[kind] += 1
        self.done[f"{kind} on a full disk"] += root.shared.is_filled
        if failure is None:
            assert refusal is None, f"{text}: expected {refusal}"
            self._listed, self._unsure = after, None
            return _DONE
        sqlstate = failure.sqlstate
        root.say(f"… {sqlstate}")
        if refusal is not None:
            if sqlstate != refusal:
                raise failure
            self.done[f"{kind} refused"] += 1
            return _Outcome(sqlstate)
        self._check_fault(failure, was_filled=was_filled or root.done["fill"] > fills)
        assert kind == DROP or not isinstance(failure, LogFailedError), f"{text}: {failure}"
        is_known = sqlstate != _DOUBT or failure.retry is not Retry.UNKNOWN
        if is_known:
            self._unsure = None
        else:
            self.done["tablespace in doubt"] += 1
        return _Outcome(sqlstate, is_known)

    def _changing(self, activity: str, step: Callable[[], object]) -> Error | None:
        """Have the instance make, open, change or remove a tablespace; return its error."""
        failure = None
        self._is_changing = True
        with self._root.doing(activity):
            try:
                step()
            except Error as error:
                failure = error
        self._is_changing = False
        return failure

    # --- checks ----------------------------------------------------------------------------------

    def _check(self) -> None:
        """What the instance says and holds is what is known."""
        worlds = self._root.shared.worlds
        entries = self._entries()
        assert entries.keys() == self._listed.keys(), f"{[*entries]} for {[*self._listed]}"
        for name, known in self._listed.items():
            entry = entries[name]
            assert entry.id == known.id or known.id is None, f"{name} has another id"
            assert entry.limits == known.limits, f"{name}: {entry.limits} for {known.limits}"
            world = self._world_of(known)
            if world is not None:
                self._check_served(known, world)
        for account in self._accounts_of_others():
            assert account in [world.database.name for world in worlds.values()], (
                f"memory of tablespace {account}, which is not open"
            )
        self._check_directory()

    def _accounts_of_others(self) -> list[str]:
        account = self._instance.memory.children.get("tablespaces")
        if account is None:
            return []
        children = account.children_now()
        found, used = account.bytes_used, sum(each.bytes_used for each in children)
        assert found == used, f"{found} bytes of memory for {used} of {children}"
        return [each.name for each in children]

    def _check_served(self, known: Known, world: World) -> None:
        """Name, limits and rights count where they are looked at."""
        database = world.database
        assert database.entry.limits == known.limits
        assert (database.name, database.tablespace.name) == (known.name, known.name)
        assert database.memory.account.name == known.name
        limit, config = known.limits.memory_bytes_max, self._instance.config.memory_bytes_max
        assert database.memory.account.bytes_max == min(limit or config, config)
        assert database.replica.disk_bytes_max == known.limits.disk_bytes_max
        login = database.login(operations.OWNER[0])
        assert (login is not None) == known.has_owner, f"the owner of {known.name} is {login}"
        if login is not None:
            assert login.verifier == operations.VERIFIER
            assert database.is_superuser(login.user.name)
        snapshot = database.tablespace.snapshot(None)
        rights = list(snapshot.source(SYSTEM_TABLES[GRANTS]).range(None, None))
        snapshot.close()
        spaces = {name for _, kind, name, *_ in rights if kind == "tablespace"}
        assert spaces <= {known.name}, f"rights on {spaces} in {known.name}"

    def _check_ended(self, world: World) -> None:
        """A tablespace that was closed by DROP has ended its sessions, and holds nothing."""
        database, root = world.database, self._root
        for connection in world.connections:
            found = _refusal(connection.session)
            assert found == _KILLED, f"a session of a dropped tablespace met {found}"
        holders = [each.refusals for each in self._instance.results.holders]
        assert database.refusals not in holders, "a dropped tablespace has places of results"
        world.forget()
        left = [path for path in root.disk.open_paths if path.startswith(database.entry.folder)]
        assert not left, f"files of a dropped tablespace are open: {left}"
        memory = database.memory
        assert memory.account.parent is None, "memory of a dropped tablespace is counted"
        # What is in caches goes with its readers.
        kinds = (memory.transactions, memory.statements, memory.jobs)
        held = [each for kind in kinds for each in kind.reservations.values()]
        assert not held, f"memory of a dropped tablespace is held: {[e.holder for e in held]}"
        reserve = self._instance.reserve
        assert reserve is not None
        assert database.space not in reserve.spaces, "a dropped tablespace needs room for pages"
        self.done["dropped while open"] += 1

    def _check_directory(self) -> None:
        """Nothing lies in the directory that the list does not know."""
        listed, disk = self._instance.tablespaces.listed, self._root.disk
        may_stay = self._root.shared.has_fault
        folders = {each.folder for each in listed.present} - {DIRECTORY}
        known = folders | {FORMAT, LOCK, DIRECTORY, TABLESPACES}
        if may_stay:
            known |= {each.folder for each in listed.leftovers} | {STAGED}
        names = set(disk.list(""))
        assert names <= known, f"files and folders of no use: {sorted(names - known)}"
        assert folders <= names, f"folders are gone: {sorted(folders - names)}"
        is_room_certain = not self._root.shared.is_filled or self._root.style.is_freeing_certain
        if not may_stay and is_room_certain:
            assert not listed.leftovers, f"left of tablespaces: {listed.leftovers}"
        for world in self._root.others():
            unfinished = f"{world.database.entry.folder}/{UNFINISHED}"
            assert may_stay or not disk.exists(unfinished), f"{unfinished} is there"


_DONE = _Outcome(None)


def _refusal(session: Session) -> str | None:
    try:
        session.execute("SELECT 1", None)
    except Error as error:
        return error.sqlstate
    return None


def _items(limits: TablespaceLimits) -> list[tuple[str, int | None]]:
    return [(name, getattr(limits, name)) for name in limits.__struct_fields__]


def _shown(limits: TablespaceLimits) -> str:
    found = [f"{name} = {value}" for name, value in _items(limits) if value is not None]
    return f"({', '.join(found)})"
