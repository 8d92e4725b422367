"""What clients of a cluster did and saw, as lines of JSON, and the judgement of it.

The checkers are those of the simulated server (tests/sim/server/checkers.py), but that of registers
(linearizability.py): here it is known when each call began and ended. Times are seconds of the
machine's monotonic clock, which all processes share; `begin` is read before a call, `end` behind
its answer. A line is one of

    {"op": "tx", "n", "fate", ...}       a transaction; with what it did: transfer, append, raise,
                                         register, and what it saw: reads, bank, group
    {"op": "insert", "n", "fate", ...}   a statement that is a transaction of its own
    {"op": "look", ...}                  a statement that reads: registers, bank or group
    {"op": "event", "kind", "names", ...}    what was done to the cluster
    {"op": "leading", "node", "steps", ...}  a node has come to lead, and how long each step took
    {"op": "end", "node", ...}           all rows in the end, as one node has them

Those of clients have `client`, `begin`, `end`, and `sqlstate` when the call failed. `is_asked`: the
answer was lost, and what became of it is what the next leader said.
"""

import json
import math
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.kill_cluster.linearizability import NEVER, Operation, first_misfit
from tests.sim.server.checkers import CheckError, Fate, History

Record = dict[str, Any]
_LAST = math.nextafter(NEVER, 0)
"""When the rows are read in the end: behind all answers."""
_CLIENTS_OPS = ("tx", "insert", "look")


class Recorder:
    """Writes a history; any thread."""

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._mutex = threading.Lock()
        self._output = file.open("w")
        self._last_s: dict[int, float] = {}

    def write(self, record: Record) -> None:
        text = json.dumps(record, separators=(",", ":"))
        with self._mutex:
            self._output.write(f"{text}\n")
            if is_answered(record):
                self._last_s[record["client"]] = record["begin"]

    def all_answered_since(self, moment_s: float, clients: int) -> bool:
        """Tell whether each client has begun something since that went well."""
        with self._mutex:
            last = list(self._last_s.values())
        return len(last) == clients and min(last) > moment_s

    def close(self) -> None:
        self._output.close()


def read(file: Path) -> Iterator[Record]:
    with file.open() as lines:
        for line in lines:
            yield json.loads(line)


def is_answered(record: Record) -> bool:
    """Tell whether it is of a client, and went well."""
    return record["op"] == "look" or record.get("fate") == Fate.COMMITTED.value


class Verdict(NamedTuple):
    """What a history that is in order has."""

    acknowledged: int
    refused: int
    unknown: int
    """It is not known what became of them; both would be right."""
    unknown_there: int
    asked: int
    """Whose answer was lost, and which had happened, as the next leader said."""
    looks: int
    states: int
    """Nodes that had the same rows in the end."""
    errors: Counter[str]
    """By SQLSTATE."""


def check(records: Iterable[Record]) -> Verdict:
    """Judge a history; CheckError (tests.sim.server) names the checker that has found a fault."""
    records = list(records)
    history = History()
    of_clients = [each for each in records if each["op"] in _CLIENTS_OPS]
    for record in of_clients:
        _take(history, record)
    for record in of_clients:
        _see(history, record)
    ends = [each for each in records if each["op"] == "end"]
    _check_ends(history, ends, of_clients)
    _check_registers(of_clients, ends[0])
    there = _numbers_there(ends[0])
    unknown = [number for number, fate in history.fates.items() if fate is Fate.UNKNOWN]
    return Verdict(
        acknowledged=history.count(Fate.COMMITTED),
        refused=history.count(Fate.REFUSED),
        unknown=len(unknown),
        unknown_there=len(there.intersection(unknown)),
        asked=sum(each.get("is_asked", False) for each in of_clients),
        looks=sum(each["op"] == "look" for each in of_clients),
        states=len({each["node"] for each in ends}),
        errors=Counter(each["sqlstate"] for each in of_clients if "sqlstate" in each),
    )


def _take(history: History, record: Record) -> None:
    """Note what a client did."""
    if record["op"] == "look":
        return
    number = record["n"]
    if number in history.fates:
        raise CheckError("content", f"two transactions of the history are called {number}")
    history.end(number, Fate(record["fate"]))
    if "transfer" in record:
        source, target, amount = record["transfer"]
        history.transfers[number] = source, target, amount
    for name, element in record.get("append", ()):
        history.appended[number].append((name, element))
    if record.get("raise"):
        history.raises.add(number)
    if record.get("is_repeatable"):
        history.repeatable.add(number)


def _see(history: History, record: Record) -> None:
    """Judge what a client saw; all fates are known."""
    if "bank" in record:
        history.saw_bank([(each, balance) for each, balance in record["bank"]])
    if "group" in record:
        history.saw_group(record["group"])
    before: dict[int, tuple[int, ...]] = {}
    for name, seen in record.get("reads", ()):
        number, elements = record["n"], tuple(seen)
        history.saw_list(elements, number)
        if record["is_repeatable"]:
            history.saw_again(elements, before.get(name, elements), number)
            before[name] = elements
        if history.fates[number] is Fate.COMMITTED:
            history.reads.append((number, name, elements))


def _raise_or_read(state: int, call: tuple[str, int]) -> int | None:
    """A register that is raised by one; both calls answer with what is there behind them."""
    kind, value = call
    before = value - 1 if kind == "raise" else value
    return value if state == before else None


def _check_registers(records: Iterable[Record], end: Record) -> None:
    """Judge whether registers are linearizable: raises by transactions, and reads."""
    there, final = _numbers_there(end), dict(end["registers"])
    operations: dict[int, list[Operation]] = {
        register: [Operation(_LAST, NEVER, ("read", value))] for register, value in final.items()
    }
    for record in records:
        moments = record["begin"], record["end"]
        if "registers" in record:
            for register, value in record["registers"]:
                operations[register].append(Operation(*moments, ("read", value)))
        elif "register" in record and record["n"] in there:
            register, value = record["register"]
            is_known = record["fate"] == Fate.COMMITTED.value
            ended = record["end"] if is_known else NEVER
            operations[register].append(Operation(record["begin"], ended, ("raise", value)))
    for register, found in operations.items():
        misfit = first_misfit(found, _raise_or_read, 0)
        if misfit is not None:
            raise CheckError("register", f"register {register} is not linearizable: {misfit}")


def _numbers_there(end: Record) -> set[int]:
    return {*end["journal"], *end["slips"]}


def _check_ends(history: History, ends: Sequence[Record], records: Iterable[Record]) -> None:
    """Judge the rows that are there in the end, on each node."""
    if not ends:
        raise CheckError("liveness", "the history has no end: the rows were read from no node")
    first = ends[0]
    for end in ends[1:]:
        for name in sorted(first.keys() | end.keys()):
            if name not in ("node", "op") and first.get(name) != end.get(name):
                raise CheckError(
                    "digest", f"{name} on {first['node']} is not what it is on {end['node']}"
                )
    numbers = [*first["journal"], *first["slips"]]
    doubled = [number for number, count in Counter(numbers).items() if count > 1]
    if doubled:
        raise CheckError("token", f"inserts happened twice: {sorted(doubled)[:10]}")
    history.check_end(
        numbers,
        dict(first["bank"]),
        {name: tuple(elements) for name, elements in first["lists"]},
        dict(first["lengths"]),
        first["group"],
    )
    registers = dict(first["registers"])
    there = _numbers_there(first)
    raised = Counter(
        record["register"][0] for record in records if "register" in record and record["n"] in there
    )
    if dict(raised) != {register: value for register, value in registers.items() if value}:
        raise CheckError("content", f"registers are {registers}, raised were {dict(raised)}")
