"""Clients: programs that use a cluster through the product's driver, and write down what they see.

Four threads and four tasks of a loop; of each half the URL names ZooKeeper, of the others nodes.
A client's functions are the same in both: where a task waits, it waits by wait_for().
"""

import asyncio
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import herdpy
import herdpy.aio
from herdpy.aio.switching import switched, wait_for
from herdpy.errors import Error, Retry
from tests.kill_cluster.history import Record, Recorder
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
from tests.sim.server.clients import TABLES, Awaiting, list_of

CLIENTS = 8
RETRY_S = 60
"""For which a client looks for a leader, and asks what became of a commit."""
_PER_CLIENT = 10_000_000
_PAUSE_S = 0.02
_AGAIN_S = 0.05
_LOCK_S = 1.0
_EXPECTED = {
    "40001",  # a leader's transactions end with it; a row was changed behind a snapshot
    "40P01",  # a deadlock
    "55P03",  # a lock that another transaction has had for too long
    "08001",  # no leader in time
    "08006",  # the connection was lost
    "08007",  # it is not known what became of a COMMIT
    "57P01",  # the leader resigns
    "57P03",  # the leader is not ready
    "25006",  # it leads no more
    "58030",  # its log has failed
}  # fmt: skip


def set_up(connection: herdpy.Connection, events: int) -> None:
    """Make the tables; each event has lists of its own, else they were read at length."""
    for text in TABLES:
        connection.execute(text)
    connection.execute("CREATE TABLE slip (id BIGINT)")  # without a key: a row may be there twice
    numbers = [(number,) for number in range((events + 1) * LISTS)]
    connection.executemany("INSERT INTO list VALUES (?, 0)", numbers)
    accounts = [(number, OPENING_BALANCE) for number in range(ACCOUNTS)]
    connection.executemany("INSERT INTO account VALUES (?, ?)", accounts)
    connection.executemany("INSERT INTO grp VALUES (?, 0)", [(number,) for number in range(GROUP)])
    registers = [(number,) for number in range(REGISTERS)]
    connection.executemany("INSERT INTO register VALUES (?, 0)", registers)


def read_all(connection: herdpy.Connection) -> Record:
    """Return all rows, for the end of a history."""

    def rows(text: str) -> list[Any]:
        return [list(row) for row in connection.execute(text).fetchall()]

    lists: dict[int, list[int]] = {name: [] for (name,) in rows("SELECT k FROM list ORDER BY k")}
    for name, place, element in rows("SELECT k, n, v FROM element ORDER BY k, n"):
        lists[name].append(element)
        if len(lists[name]) != place:
            raise CheckError("lists", f"list {name} has a gap before its place {place}")
    return {
        "journal": [number for (number,) in rows("SELECT id FROM journal ORDER BY id")],
        "slips": [number for (number,) in rows("SELECT id FROM slip ORDER BY id")],
        "bank": rows("SELECT id, balance FROM account ORDER BY id"),
        "lists": [[name, elements] for name, elements in lists.items()],
        "lengths": rows("SELECT k, n FROM list ORDER BY k"),
        "group": [value for (value,) in rows("SELECT v FROM grp ORDER BY id")],
        "registers": rows("SELECT id, v FROM register ORDER BY id"),
    }


class Client:
    """One program, with a connection for transactions and one with autocommit."""

    def __init__(
        self, number: int, url: str, recorder: Recorder, seed: int, window: Callable[[], int]
    ) -> None:
        """window() says which lists are in use: the number of the event."""
        self.number = number
        self.is_aio = number % 2 == 1
        self._url = f"{url}?retry_timeout_s={RETRY_S}"
        self._recorder = recorder
        self._window = window
        self._rng = random.Random(f"{seed} client {number}")
        self._next = number * _PER_CLIENT
        self._open: dict[bool, herdpy.Connection | Awaiting] = {}
        """By whether it has autocommit."""

    def run(self, is_over: threading.Event) -> None:
        """Work until it is over; CheckError: an error that was not foreseen."""
        doings = ((self._transact, 6), (self._insert, 2), (self._look, 3))
        acts, weights = zip(*doings, strict=True)
        while not is_over.is_set():
            self._pause(self._rng.random() * _PAUSE_S)
            self._rng.choices(acts, weights)[0]()
        for each in self._open.values():
            each.close()

    def _pause(self, pause_s: float) -> None:
        if self.is_aio:
            wait_for(asyncio.sleep(pause_s))
        else:
            time.sleep(pause_s)

    def _connection(self, *, autocommit: bool) -> "herdpy.Connection | Awaiting":
        found = self._open.get(autocommit)
        if found is None:
            options = {"autocommit": autocommit, "lock_timeout_s": _LOCK_S}
            if self.is_aio:
                found = Awaiting(wait_for(herdpy.aio.connect(self._url, **options)))
            else:
                found = herdpy.connect(self._url, **options)
            self._open[autocommit] = found
        return found

    def _new_record(self, op: str) -> Record:
        record: Record = {"op": op, "client": self.number, "begin": time.monotonic()}
        if op != "look":
            self._next += 1
            record["n"] = self._next
        return record

    def _note_error(self, record: Record, error: Error) -> None:
        record["sqlstate"] = error.sqlstate
        if error.sqlstate not in _EXPECTED:
            raise CheckError(
                "errors", f"client {self.number}, {record['op']}: {error.sqlstate} {error}"
            ) from error

    def _write(self, record: Record) -> None:
        record["end"] = time.monotonic()
        self._recorder.write(record)

    # --- statements that are transactions of their own -------------------------------------------

    def _insert(self) -> None:
        record = self._new_record("insert")
        try:
            connection = self._connection(autocommit=True)
            rowcount = connection.execute("INSERT INTO slip VALUES (?)", (record["n"],)).rowcount
        except Error as error:
            is_unknown = error.retry is Retry.UNKNOWN
            record["fate"] = (Fate.UNKNOWN if is_unknown else Fate.REFUSED).value
            self._note_error(record, error)
        else:
            record["fate"] = Fate.COMMITTED.value
            if rowcount == -1:  # what the driver says of what it had to ask about
                record["is_asked"] = True
        self._write(record)

    def _look(self) -> None:
        record = self._new_record("look")
        try:
            connection = self._connection(autocommit=True)
            kind = self._rng.randrange(4)
            if kind == 0:
                record["bank"] = self._bank(connection)
            elif kind == 1:
                record["group"] = self._group(connection)
            else:
                rows = connection.execute("SELECT id, v FROM register ORDER BY id").fetchall()
                record["registers"] = [list(row) for row in rows]
        except Error as error:
            self._note_error({"op": "look"}, error)
            self._pause(_AGAIN_S)
        else:
            self._write(record)

    def _bank(self, connection: "herdpy.Connection | Awaiting") -> list[list[int]]:
        rows = connection.execute("SELECT id, balance FROM account ORDER BY id").fetchall()
        return [list(row) for row in rows]

    def _group(self, connection: "herdpy.Connection | Awaiting") -> list[int]:
        return [v for (v,) in connection.execute("SELECT v FROM grp ORDER BY id").fetchall()]

    # --- transactions ----------------------------------------------------------------------------

    def _transact(self) -> None:
        record = self._new_record("tx")
        record["is_repeatable"] = self._rng.random() < 0.5
        is_committing = False
        try:
            connection = self._connection(autocommit=False)
            self._act(connection, record)
            before = connection.live_session().connection
            is_committing = True
            connection.commit()
        except Error as error:
            is_unknown = is_committing and error.retry is Retry.UNKNOWN
            record["fate"] = (Fate.UNKNOWN if is_unknown else Fate.REFUSED).value
            self._note_error(record, error)
            self._write(record)
            self._roll_back()
            return
        record["fate"] = Fate.COMMITTED.value
        if connection.live_session().connection is not before:
            record["is_asked"] = True
        self._write(record)

    def _roll_back(self) -> None:
        connection = self._open.get(False)
        if connection is None:
            return
        try:
            connection.rollback()
        except Error as error:
            self._note_error({"op": "rollback"}, error)
            connection.close()
            del self._open[False]
            self._pause(_AGAIN_S)

    def _act(self, connection: "herdpy.Connection | Awaiting", record: Record) -> None:
        """Run the statements of a transaction of a drawn kind; it writes down its number."""
        if record["is_repeatable"]:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("INSERT INTO journal VALUES (?, ?)", (record["n"], self.number))
        acts = (self._transfer, self._append, self._raise_group, self._read)
        self._rng.choices(acts, (4, 4, 1, 2))[0](connection, record)
        if not record["is_repeatable"] and self._rng.random() < 0.3:
            self._raise_register(connection, record)

    def _transfer(self, connection: "herdpy.Connection | Awaiting", record: Record) -> None:
        source, target = self._rng.sample(range(ACCOUNTS), 2)
        amount = self._rng.randrange(1, 20)
        record["transfer"] = [source, target, amount]
        change = "UPDATE account SET balance = balance + ? WHERE id = ?"
        connection.execute(change, (-amount, source))
        connection.execute(change, (amount, target))

    def _list(self) -> int:
        return self._window() * LISTS + self._rng.randrange(LISTS)

    def _append(self, connection: "herdpy.Connection | Awaiting", record: Record) -> None:
        record["append"] = []
        for index in range(self._rng.choice((1, 1, 2, ELEMENTS))):
            name = self._list()
            if record["is_repeatable"] and self._rng.random() < 0.5:
                self._read_list(connection, record, name)
            element = record["n"] * ELEMENTS + index
            record["append"].append([name, element])
            connection.execute("UPDATE list SET n = n + 1 WHERE k = ?", (name,))
            row = connection.execute("SELECT n FROM list WHERE k = ?", (name,)).fetchone()
            connection.execute("INSERT INTO element VALUES (?, ?, ?)", (name, row[0], element))
            if self._rng.random() < 0.3:
                self._read_list(connection, record, name)

    def _read_list(
        self, connection: "herdpy.Connection | Awaiting", record: Record, name: int
    ) -> None:
        record.setdefault("reads", []).append([name, list(list_of(connection, name))])

    def _raise_group(self, connection: "herdpy.Connection | Awaiting", record: Record) -> None:
        record["raise"] = True
        connection.execute("UPDATE grp SET v = v + 1 WHERE id BETWEEN 0 AND ?", (GROUP,))

    def _read(self, connection: "herdpy.Connection | Awaiting", record: Record) -> None:
        record["bank"] = self._bank(connection)
        for _ in range(2):
            self._read_list(connection, record, self._list())
        record["group"] = self._group(connection)

    def _raise_register(self, connection: "herdpy.Connection | Awaiting", record: Record) -> None:
        register = self._rng.randrange(REGISTERS)
        connection.execute("UPDATE register SET v = v + 1 WHERE id = ?", (register,))
        row = connection.execute("SELECT v FROM register WHERE id = ?", (register,)).fetchone()
        record["register"] = [register, row[0]]


class Load:
    """All clients at work, from its making to end()."""

    def __init__(
        self, urls: Sequence[str], recorder: Recorder, seed: int, window: Callable[[], int]
    ) -> None:
        """urls: each for as many clients, blocking and of a loop."""
        self._is_over = threading.Event()
        self.problems: list[BaseException] = []
        clients = [
            Client(number, urls[number // 2 % len(urls)], recorder, seed, window)
            for number in range(CLIENTS)
        ]
        of_loop = [client for client in clients if client.is_aio]
        self._threads = [
            threading.Thread(target=self._run, args=(client.run, self._is_over))
            for client in clients
            if not client.is_aio
        ]
        self._threads.append(threading.Thread(target=self._run, args=(self._run_loop, of_loop)))
        for thread in self._threads:
            thread.start()

    def _run(self, body: Callable[..., None], argument: object) -> None:
        try:
            body(argument)
        except BaseException as error:
            self.problems.append(error)

    def _run_loop(self, clients: Sequence[Client]) -> None:
        async def run() -> None:
            await asyncio.gather(
                *(switched(lambda client=client: client.run(self._is_over)) for client in clients)
            )

        asyncio.run(run())

    def check(self) -> None:
        """Raise what has stopped a client."""
        if self.problems:
            raise self.problems[0]

    def end(self) -> None:
        """Let the clients end, and wait for them."""
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        self.check()
