"""What must be true of a server's life, told by what its clients saw; each checker has a name.

durability  what was acknowledged is there, whatever happened since
refusal     what was refused is not there, and has never been
token       what a client was told about a lost COMMIT, by its token, is what happened
bank        the sum of all accounts is the same in every statement; each balance is what the
            transfers that are there make of it
lists       what a reader sees of a list is what stood there at one moment: a prefix of what it
            became, with all elements that a transaction had put there by one COMMIT or none; no
            cycle of writes and reads of what was written (G0, G1a, G1b, G1c), and none with one
            read of what a snapshot did not show yet (G-single)
snapshot    a transaction with REPEATABLE READ sees a list as it was, and what it puts there itself
atomicity   a statement that changes several rows changes all of them or none
register    a value that was read or acknowledged is not read older by any statement that begins
            behind that; no two transactions were acknowledged that made the same value
unique      no two rows have one unique value, and by the index each is found that is there
position    the position of a connection, and of the server, never goes back; a COMMIT is behind all
            positions that clients had been told before it began, and no crash takes one back
content     what is there is what the model says
digest      the whole state after a restart is the state before: rows, counters, tokens, roles
liveness    every call ends, and when the faults have ended all goes well again
errors      nothing fails in a way that was not foreseen
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import pairwise

from tests.sim.ledger.checkers import CheckError as LedgerCheckError

CHECKERS = (
    "durability",
    "refusal",
    "token",
    "bank",
    "lists",
    "snapshot",
    "register",
    "atomicity",
    "unique",
    "position",
    "content",
    "digest",
    "liveness",
    "errors",
)
ACCOUNTS = 12
OPENING_BALANCE = 100
LISTS = 5
REGISTERS = 3
GROUP = 12


class CheckError(LedgerCheckError):
    """A checker found something."""

    def __init__(self, checker: str, message: str) -> None:
        assert checker in CHECKERS
        Exception.__init__(self, f"[{checker}] {message}")
        self.checker = checker


class Fate(Enum):
    """What a client knows of a transaction."""

    RUNNING = "running"
    COMMITTED = "committed"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class History:
    """What clients did and saw. A transaction has a number of its own, which it writes down."""

    def __init__(self) -> None:
        self.fates: dict[int, Fate] = {}
        self.appended: dict[int, list[tuple[int, int]]] = defaultdict(list)
        """By transaction: lists and elements, in order."""
        self.reads: list[tuple[int, int, tuple[int, ...]]] = []
        """(transaction, list, elements) of each read of a transaction that committed."""
        self.transfers: dict[int, tuple[int, int, int]] = {}
        """By transaction: from, to, amount."""
        self.raises: set[int] = set()
        """Transactions that raise every row of the group."""
        self.twins: dict[int, int] = {}
        """Numbers that are written down together, by something that is one statement."""
        self.repeatable: set[int] = set()
        """Transactions with one snapshot."""
        self.newest = [0] * REGISTERS
        """The newest value that any client was told of a register; they only rise."""
        self._raised: set[tuple[int, int]] = set()

    def end(self, number: int, fate: Fate) -> None:
        self.fates[number] = fate

    def count(self, fate: Fate) -> int:
        return sum(each is fate for each in self.fates.values())

    # --- what is seen while clients run ----------------------------------------------------------

    def saw_bank(self, rows: Sequence[tuple[int, int]]) -> None:
        """A statement read all accounts, each once."""
        balances = dict(rows)
        total = sum(balances.values())
        if (
            len(rows) != ACCOUNTS
            or len(balances) != ACCOUNTS
            or total != ACCOUNTS * OPENING_BALANCE
        ):
            raise CheckError("bank", f"{len(rows)} accounts have {total}: {balances}")

    def saw_seats(self, names: Sequence[str], by_index: Sequence[str]) -> None:
        """A statement read all names of seats, another one of its snapshot by their index."""
        if len(set(names)) < len(names) or sorted(names) != list(by_index):
            raise CheckError("unique", f"seats {sorted(names)}, by their index {list(by_index)}")

    def saw_group(self, values: Sequence[int]) -> None:
        """A statement read all rows of the group, which statements raise together."""
        if len(values) != GROUP or len(set(values)) != 1:
            raise CheckError("atomicity", f"the rows of the group are {list(values)}")

    def saw_list(self, elements: Sequence[int], own: int) -> None:
        """A statement of transaction `own` read a list: an element is its transaction's number.

        No element is of a transaction that was refused (G1a).
        """
        for element in elements:
            number = number_of(element)
            if number != own and self.fates.get(number) is Fate.REFUSED:
                raise CheckError("lists", f"G1a: {element} is of a transaction that was refused")

    def saw_again(self, elements: Sequence[int], before: Sequence[int], own: int) -> None:
        """A transaction with one snapshot read a list twice: only its own elements are new."""
        new = [each for each in elements if each not in before and number_of(each) != own]
        if new or elements[: len(before)] != before:
            raise CheckError("snapshot", f"of one snapshot {elements}, and {before} before")

    def saw_registers(self, values: Mapping[int, int], newest: Sequence[int]) -> None:
        """A statement read registers; `newest`: what had been told of them before it began."""
        for register, value in values.items():
            if value < newest[register]:
                raise CheckError(
                    "register",
                    f"register {register} is {value}, {newest[register]} was told before",
                )
            self.newest[register] = max(self.newest[register], value)

    def raised(self, register: int, value: int) -> None:
        """A transaction was acknowledged that has raised a register to this value."""
        if (register, value) in self._raised:
            raise CheckError("register", f"register {register} was raised to {value} twice")
        self._raised.add((register, value))
        self.newest[register] = max(self.newest[register], value)

    # --- what is there in the end ----------------------------------------------------------------

    def check_end(
        self,
        journal: Iterable[int],
        balances: Mapping[int, int],
        lists: Mapping[int, tuple[int, ...]],
        lengths: Mapping[int, int],
        group: Sequence[int],
    ) -> None:
        """Compare what a last reader found with all that was seen before."""
        there = set(journal)
        self._check_fates(there)
        self.saw_bank([*balances.items()])
        self._check_balances(there, balances)
        self.saw_group(group)
        raised = len(self.raises & there)
        if group[0] != raised:
            raise CheckError("content", f"the group is at {group[0]}, {raised} have raised it")
        self._check_lists(there, lists)
        if dict(lengths) != {name: len(elements) for name, elements in lists.items()}:
            raise CheckError("content", f"lists {lists} are said to be of {dict(lengths)} elements")

    def _check_fates(self, there: set[int]) -> None:
        for number, fate in self.fates.items():
            if fate is Fate.COMMITTED and number not in there:
                raise CheckError("durability", f"transaction {number} was acknowledged and is gone")
            if fate is Fate.REFUSED and number in there:
                raise CheckError("refusal", f"transaction {number} was refused and is there")
        for one, other in self.twins.items():
            if (one in there) != (other in there):
                raise CheckError("atomicity", f"of {one} and {other} one is there")
        if unasked := there - self.fates.keys():
            raise CheckError("content", f"no client has begun {sorted(unasked)}")

    def _check_balances(self, there: set[int], balances: Mapping[int, int]) -> None:
        expected = dict.fromkeys(range(ACCOUNTS), OPENING_BALANCE)
        for number, (source, target, amount) in self.transfers.items():
            if number in there:
                expected[source] -= amount
                expected[target] += amount
        if expected != dict(balances):
            raise CheckError("bank", f"expected {expected}, found {dict(balances)}")

    def _check_lists(self, there: set[int], lists: Mapping[int, tuple[int, ...]]) -> None:
        for number, elements in self.appended.items():
            for name, element in elements:
                if (element in lists[name]) != (number in there):
                    what = "is gone from" if number in there else "is in"
                    raise CheckError("content", f"element {element} {what} list {name}")
        for reader, name, seen in self.reads:
            final = lists[name]
            own = {element for where, element in self.appended[reader] if where == name}
            others = tuple(element for element in seen if element not in own)
            rest = tuple(e for e in final if e not in own)
            if others != rest[: len(others)]:
                raise CheckError("lists", f"{seen} is no prefix of list {name}, {final}")
            self._check_whole(name, others)
        edges = self._edges(there, lists)
        find_cycle(edges)
        find_single(edges, self._overwritten(there, lists))

    def _check_whole(self, name: int, seen: Sequence[int]) -> None:
        for number in {number_of(element) for element in seen}:
            put = [element for where, element in self.appended[number] if where == name]
            if not set(put) <= set(seen):
                raise CheckError("lists", f"G1b: of {put}, put by one COMMIT, {seen} has a part")

    def _edges(
        self, there: set[int], lists: Mapping[int, tuple[int, ...]]
    ) -> dict[int, dict[int, str]]:
        """Return which transaction comes before which: by writes of a list, and reads of these."""
        edges: dict[int, dict[int, str]] = defaultdict(dict)

        def add(before: int, after: int, why: str) -> None:
            if before != after:
                edges[before].setdefault(after, why)

        for name, elements in lists.items():
            for before, after in pairwise(elements):
                add(number_of(before), number_of(after), f"ww of list {name}")
        for reader, name, seen in self.reads:
            if reader in there and seen:
                add(number_of(seen[-1]), reader, f"wr of list {name}")
        return edges

    def _overwritten(
        self, there: set[int], lists: Mapping[int, tuple[int, ...]]
    ) -> Iterator[tuple[int, int]]:
        """Yield (reader, writer): a snapshot did not show what the writer put there next."""
        for reader, name, seen in self.reads:
            if reader not in there or reader not in self.repeatable:
                continue
            elements = lists[name]
            behind = elements[elements.index(seen[-1]) + 1 :] if seen else elements
            writers = (number_of(element) for element in behind)
            following = next((writer for writer in writers if writer != reader), None)
            if following is not None:
                yield reader, following


ELEMENTS = 4
"""A transaction puts so many elements into lists, at the most."""


def number_of(element: int) -> int:
    """Return the transaction that an element is of."""
    return element // ELEMENTS


def find_cycle(edges: Mapping[int, Mapping[int, str]]) -> None:
    """Raise CheckError when transactions come before each other."""
    done: set[int] = set()
    for root in edges:
        path: list[int] = []
        on_path: set[int] = set()
        stack: list[tuple[int, Iterable[int]]] = [(root, iter(edges.get(root, {})))]
        if root in done:
            continue
        path.append(root)
        on_path.add(root)
        while stack:
            node, following = stack[-1]
            step = next(iter(following), None)  # type: ignore[call-overload]
            if step is None:
                stack.pop()
                done.add(node)
                on_path.discard(path.pop())
            elif step in on_path:
                cycle = [*path[path.index(step) :], step]
                why = [edges[a][b] for a, b in pairwise(cycle)]
                raise CheckError("lists", f"{_kind(why)}: {cycle} by {why}")
            elif step not in done:
                path.append(step)
                on_path.add(step)
                stack.append((step, iter(edges.get(step, {}))))


def find_single(
    edges: Mapping[int, Mapping[int, str]], overwritten: Iterable[tuple[int, int]]
) -> None:
    """Raise CheckError when a reader did not see what came before it all the same (G-single)."""
    for reader, writer in overwritten:
        seen, frontier = {writer}, [writer]
        while frontier:
            for step in edges.get(frontier.pop(), {}):
                if step == reader:
                    raise CheckError(
                        "lists", f"G-single: {reader} did not see {writer}, which came before it"
                    )
                if step not in seen:
                    seen.add(step)
                    frontier.append(step)


def _kind(why: Iterable[str]) -> str:
    return "G0" if all(each.startswith("ww") for each in why) else "G1c"
