"""Clients: what programs do to the server through the product's driver, and what they see."""

import asyncio
import random
from collections.abc import Callable
from functools import partial
from typing import Any

from herdpy.aio.connection import AsyncConnection
from herdpy.aio.connection import connect as connect_aio
from herdpy.aio.cursor import AsyncCursor
from herdpy.aio.pool import Pool as AsyncPool
from herdpy.aio.stream import LoopWaits
from herdpy.aio.switching import switched, wait_for
from herdpy.driver.connection import Connection, connect
from herdpy.driver.pool import Pool
from herdpy.errors import Error, IntegrityError, Retry
from herdpy.storage.tablespace_list import DEFAULT
from tests.sim.loop import Node
from tests.sim.server.checkers import (
    ACCOUNTS,
    ELEMENTS,
    GROUP,
    LISTS,
    OPENING_BALANCE,
    REGISTERS,
    CheckError,
    Fate,
)
from tests.sim.server.world import Told, World
from tests.sim.switching import in_thread

_PER_CLIENT = 1_000_000
_PER_ATTEMPT = 1_000
_GHOST = 500_000
"""Added to its number where a transaction takes back what it does, to a savepoint."""
_TWIN = 700_000
_IN_JOB = 10_000
"""Added to its number where a statement writes down two: both are there, or none."""
_RETRY_S = 0.3
_JOB_ATTEMPTS = 5
_AGAIN_S = 0.02
_CALM_S_MAX = 30.0
TABLES = (
    "CREATE TABLE journal (id BIGINT PRIMARY KEY, client BIGINT)",
    "CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT)",
    "CREATE TABLE list (k BIGINT PRIMARY KEY, n BIGINT)",
    "CREATE TABLE element (k BIGINT, n BIGINT, v BIGINT, PRIMARY KEY (k, n))",
    "CREATE TABLE grp (id BIGINT PRIMARY KEY, v BIGINT)",
    "CREATE TABLE register (id BIGINT PRIMARY KEY, v BIGINT)",
)
FILLED = (
    "DROP TABLE journal",
    "CREATE TABLE journal (id BIGINT PRIMARY KEY, client BIGINT, "
    "place BIGINT GENERATED ALWAYS AS IDENTITY)",
)
INDEXES = (
    *FILLED,
    "CREATE INDEX ON account (balance)",
    "CREATE UNIQUE INDEX ON list (n, k)",
    "CREATE UNIQUE INDEX ON element (v, k, n)",
    "CREATE INDEX ON grp (v)",
    "CREATE INDEX ON register (v)",
    "CREATE TABLE seat (id BIGINT PRIMARY KEY, name TEXT UNIQUE, n BIGINT)",
    "ALTER TABLE account ADD CONSTRAINT bound CHECK (balance > -1000000000)",
    "ALTER TABLE element ADD CHECK (n > 0)",
)
SEATS = 6
ALTERATIONS = (
    "ALTER TABLE register ALTER v TYPE BIGINT",
    "ALTER TABLE grp ALTER v TYPE BIGINT USING v, ALTER v SET DEFAULT 0",
    "ALTER TABLE register ALTER v SET DEFAULT 0",
    "ALTER TABLE account DROP CONSTRAINT bound, ADD CONSTRAINT bound CHECK (balance > -1000000000)",
)
"""What changes no row that is there; in worlds with indexes."""
_ALTER_SHARE = 0.1
EXPECTED = {
    "40001",  # a statement that was run again too often
    "40P01",  # a deadlock
    "55P03",  # a lock that another transaction has had for too long
    "57014",  # cancelled, KILL STATEMENT, a time-out
    "57P01",  # KILL, or the server is closed
    "08001",  # the server does not answer
    "08003",  # the connection was closed
    "08004",  # no login in time
    "08006",  # the connection was lost
    "08007",  # it is not known what became of a COMMIT
    "25006",  # a node of a cluster that follows
    "25P03",  # idle in a transaction for too long
    "53100",  # the disk is full
    "53200",  # no memory
    "53300",  # too many connections
    "57P03",  # the database is held, its log is opened anew
    "58000",  # a file of the database failed
    "58030",  # the log failed
}


def url(world: World, tablespace: str | None = None, number: int = 0) -> str:
    """Return the server's URL as a client says it, with the tablespace of clients, or another."""
    path = tablespace or world.plan.tablespace
    return f"{world.places(number)}/{path}?tls=off&spin_us=0&retry_timeout_s=10"


class Awaiting:
    """A connection of herdpy.aio for a function that waits by wait_for()."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    def execute(self, text: str, parameters: Any = ()) -> "AwaitingCursor":
        return AwaitingCursor(wait_for(self._connection.execute(text, parameters)))

    def executemany(self, text: str, items: list[Any]) -> "AwaitingCursor":
        return AwaitingCursor(wait_for(self._connection.executemany(text, items)))

    def ingest(self, table: str, data: list[Any]) -> int:
        return wait_for(self._connection.ingest(table, data))

    def commit(self) -> None:
        wait_for(self._connection.commit())

    def rollback(self) -> None:
        wait_for(self._connection.rollback())

    def close(self) -> None:
        wait_for(self._connection.close())

    def cancel(self) -> None:
        self._connection.blocking.cancel()

    def live_session(self) -> Any:
        return self._connection.blocking.live_session()


class AwaitingPool:
    """A pool of herdpy.aio likewise."""

    def __init__(self, pool: AsyncPool) -> None:
        self._pool = pool

    def run(self, work: "Callable[[Awaiting], object]", *, retry_timeout_s: float) -> None:
        async def awaited(connection: AsyncConnection) -> object:
            return await switched(partial(work, Awaiting(connection)))

        wait_for(self._pool.run(awaited, retry_timeout_s=retry_timeout_s))

    def close(self) -> None:
        wait_for(self._pool.close())


class AwaitingCursor:
    """What execute() of it gives."""

    def __init__(self, cursor: AsyncCursor) -> None:
        self._cursor = cursor

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount

    def fetchone(self) -> Any:
        return wait_for(self._cursor.fetchone())

    def fetchall(self) -> list[Any]:
        return wait_for(self._cursor.fetchall())


class Client:
    """One program: a node of its own, with a connection that it makes anew when it is lost."""

    def __init__(self, world: World, number: int) -> None:
        """Some clients of a world with is_aio use herdpy.aio, some of one with is_pooled a pool."""
        self.is_aio = world.plan.is_aio and number % 2 == 1
        self.is_pooled = world.plan.is_pooled and number % 4 < 2
        self.is_relaxed = world.plan.is_relaxed and number % 2 == 0
        self.world = world
        self.number = number
        self.node: Node = world.loop.add_node(f"c{number}")
        self._locators = world.new_locators(self.node)
        self.rng = world.new_rng()
        self.registers = world.new_rng()
        self.connection: Connection | Awaiting | None = None
        self.alone: Connection | Awaiting | None = None
        """With autocommit: each statement is a transaction."""
        self.pool: Pool | AwaitingPool | None = None
        self.current: Connection | Awaiting | None = None
        """Where the transaction is that runs, or ran last."""
        self._positions: dict[int, Any] = {}
        """How far its connections have seen the log."""
        self._is_repeatable = False  # the transaction has one snapshot
        self.is_committed_by_pool = False
        """Its pool's COMMIT is under way, or comes next."""

    def start(self) -> "asyncio.Task[None]":
        return in_thread(self.node, self._run)

    def connect(self, **options: Any) -> "Connection | Awaiting":
        """Return a connection; an Error when there is none to be had."""
        if self.is_aio:
            made = Awaiting(
                wait_for(
                    connect_aio(url(self.world, number=self.number), **self._options(), **options)
                )
            )
        else:
            made = connect(url(self.world, number=self.number), **self._options(), **options)
        return made

    def _options(self) -> dict[str, Any]:
        return {
            "waits": LoopWaits(random.Random(self.rng.getrandbits(64)), self._locators),
            "lock_timeout_s": 1.0,
            "statement_timeout_s": self.world.plan.statement_timeout_s,
            "idle_in_transaction_timeout_s": self.world.plan.idle_timeout_s,
        }

    def _run(self) -> None:
        plan = self.world.plan
        index = 0
        while self.world.has_more(index):
            wait_for(asyncio.sleep(self.rng.random() * plan.pause_s))
            self.world.admit()
            number = self.number * _PER_CLIENT + index
            index += 1
            if self.rng.random() < plan.bulk_share:
                self.rng.choice((self._ingest, self._pipe, self._stage, self._read_leased))(number)
            elif self.rng.random() < plan.alone_share:
                self._insert_alone(number)
            elif self.registers.random() < plan.register_share:
                if plan.has_indexes and self.registers.random() < _ALTER_SHARE:
                    self._alter()
                else:
                    self._read_registers()
            elif self.is_pooled:
                self._transact_in_pool(number)
            else:
                self._transact(number)
        self._close()

    def _close(self) -> None:
        for opened in (self.connection, self.alone, self.pool):
            if opened is not None:
                opened.close()
        self.connection = self.alone = self.pool = self.current = None
        self._positions.clear()

    def _insert_alone(self, number: int) -> None:
        """Write a number down by a statement that is a transaction of its own."""
        text = "INSERT INTO journal VALUES (?, ?)"
        self._do_alone([number], lambda connection: connection.execute(text, (number, self.number)))

    def _ingest(self, number: int) -> None:
        """Write two numbers down at once."""
        rows = self._twins(number)
        if self.rng.random() < 0.5:
            data = [{"id": each, "client": client} for each, client in rows]
            self._do_alone([number, number + _TWIN], lambda conn: conn.ingest("journal", data))
        else:
            text = "INSERT INTO journal VALUES (?, ?)"
            self._do_alone([number, number + _TWIN], lambda conn: conn.executemany(text, rows))
        self.world.happen("rows of a bulk")

    def _twins(self, number: int) -> list[tuple[int, int]]:
        self.world.history.twins[number] = number + _TWIN
        return [(number, self.number), (number + _TWIN, self.number)]

    def _pipe(self, number: int) -> None:
        """Write two numbers down by statements that go to the server together."""
        rows = self._twins(number)

        def pipe(connection: Connection | Awaiting) -> None:
            assert isinstance(connection, Connection)
            with connection.pipeline() as pipeline:
                for row in rows:
                    pipeline.execute("INSERT INTO journal VALUES (?, ?)", row)

        if self.is_aio:
            self._ingest(number)
        else:
            self._do_alone([number, number + _TWIN], pipe)
            self.world.happen("a pipeline")

    def _alter(self) -> None:
        """Have a table's definition changed, or its rows written anew, beside all others."""
        try:
            self._alone().execute(self.registers.choice(ALTERATIONS))
        except Error as error:
            self._note(error)
            self._close()
            wait_for(asyncio.sleep(self.registers.random() * _AGAIN_S))
        else:
            self.world.happen("a table that was altered")

    def _read_registers(self) -> None:
        """Read one register, or all, by statements that are a transaction of their own each."""
        history, rng = self.world.history, self.registers
        try:
            connection = self._alone()
            for _ in range(rng.choice((1, 3, 9))):
                newest = [*history.newest]
                if rng.random() < 0.7:
                    register = rng.randrange(REGISTERS)
                    text = "SELECT id, v FROM register WHERE id = ?"
                    found = connection.execute(text, (register,)).fetchall()
                else:
                    found = connection.execute("SELECT id, v FROM register").fetchall()
                history.saw_registers(dict(found), newest)
                wait_for(asyncio.sleep(rng.random() * 0.01))
        except Error as error:
            self._note(error)
            self._close()
            wait_for(asyncio.sleep(rng.random() * _AGAIN_S))
        else:
            self.world.acknowledge()
            self.world.happen("a register that was read")

    def _do_alone(
        self, numbers: list[int], act: "Callable[[Connection | Awaiting], object]"
    ) -> None:
        """Do what is a transaction of its own, which writes numbers down."""
        history = self.world.history
        for number in numbers:
            history.end(number, Fate.RUNNING)
        try:
            connection = self._alone()
            told = self.world.host.told
            act(connection)
        except Error as error:
            for number in numbers:
                self._failed(number, error, is_committing=True)
            return
        for number in numbers:
            history.end(number, Fate.UNKNOWN if self.is_relaxed else Fate.COMMITTED)
        if self.is_relaxed:
            self.world.happen("a commit that does not wait for the disk")
        self.world.acknowledge()
        # The position does not have what does not wait for the disk yet.
        self._note_position(connection, None if self.is_relaxed else told)

    def _alone(self) -> "Connection | Awaiting":
        """Return the connection with autocommit."""
        if self.alone is None:
            durability = "none" if self.is_relaxed else "sync"
            self.alone = self.connect(autocommit=True, durability=durability)
        return self.alone

    def _stage(self, number: int) -> None:
        """Write numbers down by a job that is staged and committed, again until that is told.

        A job commits once, however often it is asked.
        """
        if self.is_aio:
            self._ingest(number)
            return
        self._twins(number)
        numbers = [number, number + _TWIN]
        for each in range(1, self.world.plan.job_rows - 1):
            numbers.append(number + each * _IN_JOB)
            self.world.history.twins[numbers[-1]] = number
        rows = [{"id": each, "client": self.number} for each in numbers]
        job = f"job {number}"
        history = self.world.history
        is_committing = False
        for attempt in range(_JOB_ATTEMPTS):
            for each in numbers:  # the client may go away behind a COMMIT, in any attempt
                history.end(each, Fate.UNKNOWN)
            try:
                connection = self._alone()
                assert isinstance(connection, Connection)
                if not is_committing or connection.commit_position(job) is None:
                    run = connection.begin_staging("journal", job=job)
                    with connection.stage(run, 0, attempt) as stage:
                        stage.add(rows)
                        token = stage.finish()
                    is_committing = True
                    connection.commit_staging(run, [token])
            except Error as error:
                self._failed(number, error, is_committing=True)
                wait_for(asyncio.sleep(self.rng.random() * _AGAIN_S))
                continue
            for each in numbers:
                history.end(each, Fate.COMMITTED)
            self.world.acknowledge()
            self.world.happen("a staged job")
            return
        for each in numbers:
            history.end(each, Fate.UNKNOWN)

    def _read_leased(self, _: int) -> None:
        """Read the same twice, at a lease, while others change it."""
        if self.is_aio:
            return
        try:
            connection = self._alone()
            assert isinstance(connection, Connection)
            with connection.lease(60) as lease:
                seen = [self._read_at(connection, lease.id) for _ in range(2)]
        except Error as error:
            self._note(error)
            return
        if seen[0] != seen[1]:
            raise CheckError("snapshot", f"of one lease {seen[0]}, and {seen[1]} later")
        self.world.happen("a lease")

    @property
    def _accounts(self) -> str:
        """All accounts, with an index by that: with a LIMIT nothing else is faster."""
        text = "SELECT id, balance FROM account"
        if not self.world.plan.has_indexes:
            return text
        return f"{text} WHERE balance > -1000000000 ORDER BY balance LIMIT 1000"

    def _read_at(self, connection: Connection, lease: str) -> tuple[list[Any], list[Any]]:
        wait_for(asyncio.sleep(self.rng.random() * 0.005))
        connection.execute("BEGIN")
        try:
            connection.execute(f"SET TRANSACTION SNAPSHOT '{lease}'")
            group = [v for (v,) in connection.execute("SELECT v FROM grp").fetchall()]
            self.world.history.saw_group(group)
            text = "SELECT sum(balance), count(*) FROM account"
            if self.world.plan.has_indexes:
                text = self._accounts
            found = sorted(connection.execute(text).fetchall())
        finally:
            connection.rollback()
        return found, group

    def _transact(self, number: int) -> None:
        """Do one transaction, whatever happens; note what is known of it."""
        world, history = self.world, self.world.history
        history.end(number, Fate.RUNNING)
        reads: list[tuple[int, int, tuple[int, ...]]] = []
        is_committing = False
        try:
            connection = self.connection
            if connection is None:
                connection = self.connection = self.connect()
            self._act(connection, number, reads)
            if self.rng.random() < 0.5:
                world.host.hear(connection.live_session().lsn)
            raised = self._raise_register(connection) if not self._is_repeatable else None
            is_committing = True
            told = world.host.told
            connection.commit()
        except Error as error:
            self._failed(number, error, is_committing=is_committing)
            return
        history.end(number, Fate.COMMITTED)
        if raised is not None:
            history.raised(*raised)
        history.reads += reads
        self.world.acknowledge()
        world.say(f"{number} is committed")
        self._note_position(connection, told)

    def _transact_in_pool(self, first: int) -> None:
        """Let a pool do a transaction, again where that is safe; each attempt has its number."""
        history = self.world.history
        reads: list[tuple[int, int, tuple[int, ...]]] = []
        attempts: list[int] = []

        def work(connection: "Connection | Awaiting") -> None:
            if attempts:
                history.end(attempts[-1], Fate.REFUSED)
                self.world.happen("a transaction that a pool repeats")
            number = first + len(attempts) * _PER_ATTEMPT
            attempts.append(number)
            history.end(number, Fate.RUNNING)
            reads.clear()
            self.is_committed_by_pool = False
            self._act(connection, number, reads)
            self.is_committed_by_pool = True

        if self.pool is None:
            options = {
                "connections_max": 2,
                "timeout_s": _RETRY_S,
                "autocommit": self.rng.random() < 0.5,  # then its transactions are blocks
                **self._options(),
            }
            if self.is_aio:
                self.pool = AwaitingPool(AsyncPool(url(self.world, number=self.number), **options))
            else:
                self.pool = Pool(url(self.world, number=self.number), **options)
        try:
            self.pool.run(work, retry_timeout_s=_RETRY_S)
        except Error as error:
            self._failed((attempts or [first])[-1], error, is_committing=True)
            return
        finally:
            self.is_committed_by_pool = False
        history.end(attempts[-1], Fate.COMMITTED)
        history.reads += reads
        self.world.acknowledge()

    def _failed(self, number: int, error: Error, *, is_committing: bool) -> None:
        world, history = self.world, self.world.history
        world.say(f"{number}: {error.sqlstate} {error.retry.name} {error.message}")
        self._note(error)
        is_unknown = is_committing and error.retry is Retry.UNKNOWN
        history.end(number, Fate.UNKNOWN if is_unknown else Fate.REFUSED)
        connection = self.connection
        if connection is None:
            return
        try:
            connection.rollback()
        except Error as lost:
            world.say(f"{number}: rollback: {lost.sqlstate} {lost.message}")
            self._close()
            wait_for(asyncio.sleep(self.rng.random() * _AGAIN_S))

    def _note(self, error: Error) -> None:
        if error.sqlstate not in EXPECTED:
            raise CheckError("errors", f"{error.sqlstate} {error}") from error
        self.world.happen(f"error {error.sqlstate}")
        if error.sqlstate == "57014" and "which node leads" in error.message:
            self.world.happen("a wait for an answer that was held, cancelled")

    def _note_position(self, connection: "Connection | Awaiting", told: Told | None) -> None:
        """Look at the position behind a COMMIT; `told`: what the host had told, that it is behind.

        None: it may be told before the COMMIT is durable.
        """
        position = connection.live_session().lsn
        before = self._positions.get(id(connection))
        if before is not None and position < before:
            raise CheckError("position", f"{position} behind {before} of one connection")
        self._positions[id(connection)] = position
        if told is None:
            self.world.host.hear(position)
        else:
            self.world.host.tell(position, told)

    # --- transactions ----------------------------------------------------------------------------

    def _act(self, connection: "Connection | Awaiting", number: int, reads: list[Any]) -> None:
        """Run the statements of a transaction of a drawn kind, and write down its number."""
        self.current = connection
        self._is_repeatable = self.rng.random() < self.world.plan.repeatable_share
        if self._is_repeatable:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            self.world.history.repeatable.add(number)
            self.world.happen("REPEATABLE READ")
        kinds: list[tuple[Callable[[], None], int]] = [
            (partial(self._transfer, connection, number), 4),
            (partial(self._append, connection, number, reads), 4),
            (partial(self._raise_group, connection, number), 2),
            (partial(self._read, connection, number, reads), 2),
        ]
        if self.world.plan.has_indexes:
            kinds.append((partial(self._take_seat, connection, number), 3))
        doings, weights = zip(*kinds, strict=True)
        if self.rng.random() < 0.5:
            connection.execute("INSERT INTO journal VALUES (?, ?)", (number, self.number))
            self.rng.choices(doings, weights)[0]()
        else:
            for act in self.rng.choices(doings, weights, k=self.rng.choice((1, 1, 2))):
                act()
                if self.rng.random() < 0.2:
                    self._take_back(connection, number)
                if self.rng.random() < 0.2:
                    wait_for(asyncio.sleep(self.rng.random() * 0.002))
            connection.execute("INSERT INTO journal VALUES (?, ?)", (number, self.number))

    def _transfer(self, connection: "Connection | Awaiting", number: int) -> None:
        history = self.world.history
        if number in history.transfers:
            return
        source, target = self.rng.sample(range(ACCOUNTS), 2)
        if self.registers.random() < 0.6:  # both ways between two: they deadlock
            source, target = self.registers.sample(range(2), 2)
        amount = self.rng.randrange(1, 20)
        history.transfers[number] = source, target, amount
        change = "UPDATE account SET balance = balance + ? WHERE id = ?"
        connection.execute(change, (-amount, source))
        connection.execute(change, (amount, target))

    def _append(self, connection: "Connection | Awaiting", number: int, reads: list[Any]) -> None:
        appended = self.world.history.appended[number]
        for _ in range(self.rng.choice((1, 1, 2))):
            if len(appended) == ELEMENTS:
                return
            name = self.rng.randrange(LISTS)
            element = number * ELEMENTS + len(appended)
            if self._is_repeatable and self.rng.random() < 0.5:
                self._read_list(connection, number, name, reads)
            appended.append((name, element))
            connection.execute("UPDATE list SET n = n + 1 WHERE k = ?", (name,))
            row = connection.execute("SELECT n FROM list WHERE k = ?", (name,)).fetchone()
            assert row is not None
            connection.execute("INSERT INTO element VALUES (?, ?, ?)", (name, row[0], element))
            if self.rng.random() < 0.3:
                self._read_list(connection, number, name, reads)

    def _take_seat(self, connection: "Connection | Awaiting", number: int) -> None:
        """Take a name that one row has at most, or give it up; and look who has which."""
        name, other = (f"seat {self.rng.randrange(SEATS)}" for _ in range(2))
        text, parameters = self.rng.choice(
            [
                ("INSERT INTO seat VALUES (?, ?, 1)", (number, name)),
                ("INSERT INTO seat VALUES (?, ?, 1) ON CONFLICT (name) DO NOTHING", (number, name)),
                ("INSERT INTO seat VALUES (?, ?, 1) ON CONFLICT (name) DO UPDATE SET"
                 " id = excluded.id, n = seat.n + 1", (number, name)),
                ("UPDATE seat SET name = ? WHERE name = ?", (other, name)),
                ("DELETE FROM seat WHERE name = ?", (name,)),
            ]
        )  # fmt: skip
        try:
            connection.execute(text, parameters)
            self.world.happen("a seat")
        except IntegrityError:
            self.world.happen("a seat that is taken")
        self._read_seats(connection)

    def _read_seats(self, connection: "Connection | Awaiting") -> None:
        if not self._is_repeatable:
            return  # two statements do not see one state
        names = connection.execute("SELECT name FROM seat WHERE n > 0").fetchall()
        text = "SELECT name FROM seat WHERE name > '' ORDER BY name LIMIT 1000"
        by_index = connection.execute(text).fetchall()
        self.world.history.saw_seats([name for (name,) in names], [name for (name,) in by_index])

    def _raise_register(self, connection: "Connection | Awaiting") -> tuple[int, int] | None:
        """Raise a register in some transactions; return which, and the value that it has then."""
        if self.registers.random() >= self.world.plan.register_share:
            return None
        register = self.registers.randrange(REGISTERS)
        connection.execute("UPDATE register SET v = v + 1 WHERE id = ?", (register,))
        row = connection.execute("SELECT v FROM register WHERE id = ?", (register,)).fetchone()
        assert row is not None
        return register, row[0]

    def _take_back(self, connection: "Connection | Awaiting", number: int) -> None:
        """Change rows behind a savepoint, and go back to it: nothing of it is ever there."""
        connection.execute("SAVEPOINT s")
        connection.execute("INSERT INTO journal VALUES (?, ?)", (number + _GHOST, self.number))
        if self.rng.random() < 0.5:
            change = "UPDATE account SET balance = balance + 1000 WHERE id = ?"
            connection.execute(change, (self.rng.randrange(ACCOUNTS),))
        connection.execute("ROLLBACK TO SAVEPOINT s")
        if self.rng.random() < 0.5:
            connection.execute("RELEASE SAVEPOINT s")
        self.world.happen("savepoint")

    def _raise_group(self, connection: "Connection | Awaiting", number: int) -> None:
        history = self.world.history
        if number in history.raises:
            return
        history.raises.add(number)
        try:
            connection.execute("UPDATE grp SET v = v + 1 WHERE id BETWEEN 0 AND ?", (GROUP,))
        except Error as error:
            if error.sqlstate != "57014" or self.rng.random() < 0.3:
                raise
            history.raises.discard(number)
            self.world.happen("a transaction that goes on behind a cancelled statement")

    def _read(self, connection: "Connection | Awaiting", number: int, reads: list[Any]) -> None:
        history = self.world.history
        kind = self.rng.randrange(3)
        if kind == 0 and number not in history.transfers:
            history.saw_bank(connection.execute(self._accounts).fetchall())
        elif kind == 1 and number not in history.raises:
            history.saw_group([v for (v,) in connection.execute("SELECT v FROM grp").fetchall()])
        else:
            self._read_list(connection, number, self.rng.randrange(LISTS), reads)

    def _read_list(
        self, connection: "Connection | Awaiting", number: int, name: int, reads: list[Any]
    ) -> None:
        history = self.world.history
        elements = list_of(connection, name)
        history.saw_list(elements, number)
        if self._is_repeatable:
            before = [seen for _, where, seen in reads if where == name]
            history.saw_again(elements, before[-1] if before else elements, number)
        reads.append((number, name, elements))


def list_of(connection: "Connection | Awaiting", name: int) -> tuple[int, ...]:
    """Return the elements of a list in their order."""
    found = connection.execute("SELECT n, v FROM element WHERE k = ? ORDER BY n", (name,))
    rows = found.fetchall()
    if [n for n, _ in rows] != list(range(1, len(rows) + 1)):
        raise CheckError("lists", f"list {name} has gaps: {rows}")
    return tuple(v for _, v in rows)


def fill(world: World) -> None:
    """Make the tables, and what stands in them at first. In a thread of a client."""
    if world.makes_tablespace:
        text = f"CREATE TABLESPACE IF NOT EXISTS {world.plan.tablespace}"
        in_the_calm(world, lambda connection: connection.execute(text), DEFAULT, autocommit=True)

    def make(connection: Connection) -> None:
        for text in (*TABLES, *(INDEXES if world.plan.has_indexes else ())):
            connection.execute(text)
        for number in range(ACCOUNTS):
            connection.execute("INSERT INTO account VALUES (?, ?)", (number, OPENING_BALANCE))
        for number in range(LISTS):
            connection.execute("INSERT INTO list VALUES (?, 0)", (number,))
        for number in range(GROUP):
            connection.execute("INSERT INTO grp VALUES (?, 0)", (number,))
        for number in range(REGISTERS):
            connection.execute("INSERT INTO register VALUES (?, 0)", (number,))
        connection.commit()

    in_the_calm(world, make)


def connect_as_operator(world: World) -> Connection:
    """Return a connection, with patience for little; an Error."""
    return connect(url(world), waits=LoopWaits(world.new_rng()), autocommit=True)


def in_the_calm(
    world: World,
    body: Callable[[Connection], object],
    tablespace: str | None = None,
    *,
    autocommit: bool = False,
) -> None:
    """Run body as soon as there is a server that does it; CheckError when none comes."""
    options: dict[str, Any] = {"lock_timeout_s": 1.0, "autocommit": autocommit}
    end_s = world.loop.time() + _CALM_S_MAX
    while True:
        try:
            waits = LoopWaits(world.new_rng())
            with connect(url(world, tablespace), waits=waits, **options) as connection:
                body(connection)
            return
        except Error as error:
            if error.sqlstate not in EXPECTED or world.loop.time() > end_s:
                raise CheckError("liveness", f"in the calm: {error}") from error
            wait_for(asyncio.sleep(_AGAIN_S))


def check_end(world: World) -> None:
    """Read everything, and compare it with what all clients saw. In a thread of a client."""

    def check(connection: Connection) -> None:
        def rows(text: str) -> list[Any]:
            return connection.execute(text).fetchall()

        if world.plan.has_indexes:
            ((count, places),) = rows("SELECT count(*), count(DISTINCT place) FROM journal")
            if count != places:
                raise CheckError("content", f"{count} rows of the journal have {places} places")
        world.history.check_end(
            [number for (number,) in rows("SELECT id FROM journal")],
            dict(rows("SELECT id, balance FROM account")),
            {name: list_of(connection, name) for name in range(LISTS)},
            dict(rows("SELECT k, n FROM list")),
            [v for (v,) in rows("SELECT v FROM grp")],
        )
        if world.plan.has_indexes:
            names = [name for (name,) in rows("SELECT name FROM seat WHERE n > 0")]
            by_index = rows("SELECT name FROM seat WHERE name > '' ORDER BY name LIMIT 1000")
            world.history.saw_seats(names, [name for (name,) in by_index])

    in_the_calm(world, check)
