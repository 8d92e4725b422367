"""Governor: the one budget of memory of a process: who holds how much of it, who may have more.

Accounts form a tree: the process, its databases, and in each of them the kinds of what they hold
(memtables, caches, transactions, statements, jobs). A Reservation is what one transaction,
statement or job holds of an account, or of several at once, such as its kind's and its user's. It
asks before the memory is taken, in steps, so that a row costs a comparison. A refusal has changed
nothing: who gets it spills, waits, or fails with 53200. What cannot be refused, because it is there
already, is set by its owner instead.

Threads: any; all figures are under one mutex, which is held for some additions and no wait. Not to
be called where the collector of garbage may call it: there let_go() is. A reservation's own figure
is set before the sums of its accounts, so an interrupt leaves a sum that settle() makes right.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

from bookie.runtime.drivers import new_mutex
from herdpy.errors import InvariantViolation, MemoryLimitError

STEP_BYTES = 64 * 1024
"""A reservation grows by as much at least, where there is room."""


class AccountFigures(NamedTuple):
    """An account at one moment; bytes_max None: bounded by those above it alone."""

    path: str
    bytes_used: int
    bytes_max: int | None
    bytes_peak: int
    reservations: int
    refused: int
    """Charges that it had no room for."""
    waits: int
    waited_s: float


class Held(NamedTuple):
    """What one transaction, statement or job holds of an account."""

    path: str
    holder: str
    byte_count: int


class Account:
    """A node of the tree; made by Governor.root or child(). Read by any thread without a lock."""

    __slots__ = (
        "_governor",
        "_own",
        "bytes_max",
        "bytes_peak",
        "bytes_used",
        "children",
        "is_view",
        "measure",
        "name",
        "parent",
        "refused",
        "reservations",
        "title",
        "waited_s",
        "waits",
    )

    def __init__(
        self,
        governor: "Governor",
        parent: "Account | None",
        name: str,
        bytes_max: int | None,
        *,
        is_view: bool = False,
        title: str | None = None,
    ) -> None:
        # Constant after __init__.
        self._governor = governor
        self.name = name
        self.title = title
        """What errors call it, None: by its name. Where a directory is, is not for clients."""
        self.is_view = is_view
        """What it holds is held by another account, too, which counts for those above."""
        # Set by its owner.
        self.bytes_max = bytes_max
        self.measure: Callable[[], int] | None = None
        """Returns what to set() when figures are asked for; any thread, takes no reservation."""
        # The governor's mutex.
        self.parent = parent
        self._own = 0  # what set() said
        self.bytes_used = 0
        """With all below it."""
        self.bytes_peak = 0
        self.refused = 0
        self.waits = 0
        self.waited_s = 0.0
        self.children: dict[str, Account] = {}
        self.reservations: dict[int, Reservation] = {}
        """By their numbers."""

    @property
    def governor(self) -> "Governor":
        return self._governor

    @property
    def path(self) -> str:
        return self.name if self.parent is None else f"{self.parent.path}/{self.name}"

    def child(self, name: str, bytes_max: int | None = None, *, is_view: bool = False) -> "Account":
        """Return the account of this name below it, made if missing, with this bound.

        is_view, of a new one: it shows by another division what other accounts hold, such as whose
        it is; it bounds it, and is not added to what is above.
        """
        with self._governor.mutex:
            found = self.children.get(name)
            if found is None:
                found = Account(self._governor, self, name, bytes_max, is_view=is_view)
                self.children[name] = found
            found.bytes_max = bytes_max
            return found

    def set(self, byte_count: int) -> None:
        """Say how much there is now beside reservations, over the bound or not; repeatable."""
        governor = self._governor
        with governor.mutex:
            grown, self._own = byte_count - self._own, byte_count
            governor.add(self, grown)

    def note_wait(self, seconds: float) -> None:
        """Count that someone waited for room here."""
        with self._governor.mutex:
            self.waits += 1
            self.waited_s += seconds

    def has_room(self, byte_count: int) -> bool:
        """Return whether it and all above it have room for so many more bytes now."""
        return self._governor.first_over((self,), byte_count) is None

    def reserve(
        self, holder: str, bytes_max: int | None = None, *others: "Account"
    ) -> "Reservation":
        """Return an empty reservation of this account and others; `holder` is how it is shown.

        bytes_max: what it may hold at the most, however much room there is.
        """
        return Reservation(self._governor, (self, *others), holder, bytes_max)

    def close(self) -> None:
        """Take it out of the tree with all below it; repeatable."""
        governor, parent = self._governor, self.parent
        with governor.mutex:
            if parent is not None and parent.children.get(self.name) is self:
                del parent.children[self.name]
                if not self.is_view:
                    governor.add(parent, -self.bytes_used)
            self.parent = None  # what is given back here later is no other account's
        for account in self.walk():
            account.measure = None  # a reservation that lives longer keeps no database alive

    def rename(self, name: str) -> None:
        """Have another name among those below its parent, which none of these has."""
        parent = self.parent
        with self._governor.mutex:
            if parent is not None and name not in parent.children:
                parent.children[name] = parent.children.pop(self.name)
                self.name = name

    def figures(self) -> AccountFigures:
        """Return it at this moment, as of the governor's last settle(). Any thread."""
        return AccountFigures(
            self.path,
            self.bytes_used,
            self.bytes_max,
            self.bytes_peak,
            len(self.reservations),
            self.refused,
            self.waits,
            self.waited_s,
        )

    def children_now(self) -> "list[Account]":
        """Return those right below it. Any thread."""
        return list(self.children.values())

    def walk(self, without: str | None = None) -> "Iterator[Account]":
        """Yield it and all below it, but for the child of the name `without` and those below."""
        yield self
        for child in list(self.children.values()):
            if child.name != without:
                yield from child.walk()


class Reservation:
    """What one holder has of some accounts. One thread at a time; close() gives it back."""

    __slots__ = ("_governor", "_number", "accounts", "byte_count", "bytes_max", "holder", "refuser")

    def __init__(
        self,
        governor: "Governor",
        accounts: Sequence[Account],
        holder: str,
        bytes_max: int | None,
    ) -> None:
        # Constant after __init__.
        self._governor = governor
        self._number = next(governor.numbers)
        self.accounts = tuple(accounts)
        self.holder = holder
        self.bytes_max = bytes_max
        # Its holder's.
        self.byte_count = 0
        """What it may take up without asking again."""
        self.refuser: Account | None = None
        """What had no room when it was last refused; None: its own bound."""

    def grow_to(self, byte_count: int) -> bool:
        """Have so many bytes in all, or more; False: nothing has changed, refusal() says why."""
        if byte_count <= self.byte_count:
            return True
        limit = self.bytes_max
        if limit is not None and byte_count > limit:
            self.refuser = None
            self._governor.refuse(self.accounts[0])
            return False
        wanted = max(byte_count, self.byte_count + STEP_BYTES)
        if limit is not None:
            wanted = min(wanted, limit)
        refuser = self._governor.grow(self, wanted, byte_count)
        if refuser is None:
            return True
        self.refuser = refuser
        return False

    def hold(self, byte_count: int) -> None:
        """Have so many bytes in all, whatever the bounds: of what is there already."""
        self._governor.resize(self, byte_count)

    def shrink_to(self, byte_count: int) -> None:
        """Give back what is over so many bytes."""
        if byte_count < self.byte_count:
            self._governor.resize(self, byte_count)

    def close(self) -> None:
        """Give everything back; repeatable."""
        self._governor.resize(self, 0)

    def let_go(self) -> None:
        """As close(), by and by: takes no lock, so that the collector of garbage may call it."""
        self._governor.abandoned.append(self)

    def refusal(self, what: str, hint: str) -> MemoryLimitError:
        """Return the error (53200) that says which bound grow_to() has met."""
        refuser = self.refuser
        if refuser is None:
            return MemoryLimitError(
                f"{what} would hold more than the {self.bytes_max:,} bytes that one may", hint=hint
            )
        whose = refuser.title or refuser.name
        return MemoryLimitError(
            f"{what} found no memory: {whose} holds {refuser.bytes_used:,} bytes of the "
            f"{refuser.bytes_max or 0:,} that it may",
            hint=hint,
        )


class Governor:
    """One per process, passed in. bytes_max: of the whole process; None: what its databases may."""

    def __init__(self, bytes_max: int | None = None) -> None:
        # Constant after __init__.
        self.mutex = new_mutex()
        self.numbers = count(1)
        self.root = Account(self, None, "process", bytes_max, title="the process")
        self.abandoned: deque[Reservation] = deque()
        """Reservations to be closed by the next who comes."""

    def open(self, name: str, bytes_max: int | None, title: str = "the database") -> Account:
        """Return a new account below the root; a number is put behind a name that is taken.

        title: what errors call it.
        """
        with self.mutex:
            children = self.root.children
            chosen = name
            while chosen in children:
                chosen = f"{name}#{next(self.numbers)}"
            found = Account(self, self.root, chosen, bytes_max, title=title)
            children[chosen] = found
            return found

    # --- figures ---------------------------------------------------------------------------------

    def figures(
        self, top: Account | None = None, *, without: str | None = None
    ) -> list[AccountFigures]:
        """Return the accounts, those above before those below them; of `top` and below it.

        Not of what is below the account of the name `without`, right below `top`, nor of itself.
        Everything is measured: a caller that lists many accounts settles once, and reads each.
        """
        self.settle()
        return [account.figures() for account in (top or self.root).walk(without)]

    def held(self) -> list[Held]:
        """Return who holds what, the most first."""
        found = [
            Held(account.path, reservation.holder, reservation.byte_count)
            for account in self.root.walk()
            for reservation in list(account.reservations.values())
        ]
        return sorted(found, key=lambda item: -item.byte_count)

    def settle(self) -> None:
        """Measure what is measured, and make every sum that of its parts."""
        for account in list(self.root.walk()):
            if account.measure is not None:
                account.set(account.measure())
        self._close_abandoned()
        with self.mutex:
            self._sum(self.root)

    def _sum(self, account: Account) -> int:
        held = sum(item.byte_count for item in account.reservations.values())
        below = sum(map(self._sum, account.children.values()))
        account.bytes_used = account._own + held + below  # noqa: SLF001 - its own kind
        return 0 if account.is_view else account.bytes_used

    # --- for accounts and reservations -----------------------------------------------------------

    def add(self, account: Account | None, byte_count: int) -> None:
        """Add to an account and all above it. The mutex is held."""
        while account is not None:
            account.bytes_used += byte_count
            if account.bytes_used > account.bytes_peak:
                account.bytes_peak = account.bytes_used
            account = None if account.is_view else account.parent

    def first_over(self, accounts: Sequence[Account], byte_count: int) -> Account | None:
        """Return the first account, or one above it, without room for so much more."""
        for leaf in accounts:
            account: Account | None = leaf
            while account is not None:
                limit = account.bytes_max
                if limit is not None and account.bytes_used + byte_count > limit:
                    return account
                account = None if account.is_view else account.parent
        return None

    def grow(self, reservation: Reservation, wanted: int, needed: int) -> Account | None:
        """Let it have `wanted` bytes in all, or just those needed; else return what is over."""
        if self.abandoned:
            self._close_abandoned()
        with self.mutex:
            accounts, now = reservation.accounts, reservation.byte_count
            refuser = self.first_over(accounts, wanted - now)
            if refuser is not None and needed < wanted:
                wanted = needed
                refuser = self.first_over(accounts, wanted - now)
            if refuser is None:
                self._resize(reservation, wanted)
            else:
                refuser.refused += 1
            return refuser

    def refuse(self, account: Account) -> None:
        """Count what a reservation's own bound has refused."""
        with self.mutex:
            account.refused += 1

    def resize(self, reservation: Reservation, byte_count: int) -> None:
        with self.mutex:
            self._resize(reservation, byte_count)

    def _resize(self, reservation: Reservation, byte_count: int) -> None:
        if byte_count < 0:
            raise InvariantViolation(f"I13: a reservation of {byte_count} bytes")
        grown = byte_count - reservation.byte_count
        reservation.byte_count = byte_count
        for account in reservation.accounts:
            if byte_count:
                account.reservations[reservation._number] = reservation  # noqa: SLF001 - its own kind
            else:
                account.reservations.pop(reservation._number, None)  # noqa: SLF001 - its own kind
            self.add(account, grown)

    def _close_abandoned(self) -> None:
        abandoned = self.abandoned
        while abandoned:
            try:
                reservation = abandoned.pop()
            except IndexError:  # another thread took the last one
                return
            reservation.close()
