"""Locks on rows and tables: granted in order of request, deadlocks found when a wait begins.

Every method runs under the tablespace's monitor. A lock that is free is granted at once; otherwise
the request queues and its Ticket is completed when the lock has been handed over, so none barges
in and N waiters wake one after the other. Each step can be repeated after an interrupt.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from itertools import repeat
from operator import is_
from typing import Protocol

from bookie.runtime.ticket import Ticket
from herdpy.errors import DeadlockError
from herdpy.model.types import Key

Resource = tuple[int, Key] | tuple[int] | tuple[str]
"""(table id, key) is a row, (table id,) a table, (name,) a table's name."""


class Mode(IntEnum):
    """How a resource is held: many SHARED or one EXCLUSIVE."""

    SHARED = 1
    EXCLUSIVE = 2


_MANY_LOCKS = 1_000  # of an owner: above, they are given up together

Lock = Callable[[Resource, Mode], None]
"""Acquires a lock for the statement that runs, or raises that it must wait."""


class Owner(Protocol):
    """What holds locks: a transaction."""

    locks: list[Resource]
    waits_for: "Waiter | None"
    is_undone: bool
    abort_error: Exception | None


class Waiter:
    """A queued request."""

    __slots__ = ("mode", "owner", "resource", "ticket")

    def __init__(self, owner: Owner, resource: Resource, mode: Mode) -> None:
        self.owner = owner
        self.resource = resource
        self.mode = mode
        self.ticket: Ticket[None] = Ticket()


class LockTable:
    """Who holds what, and who waits for it."""

    def __init__(self) -> None:
        self._exclusive: dict[Resource, Owner] = {}
        self._shared: dict[Resource, dict[Owner, None]] = {}
        self._queues: dict[Resource, deque[Waiter]] = {}

    def acquire(self, owner: Owner, resource: Resource, mode: Mode) -> Ticket[None] | None:
        """Return None when `owner` now holds the lock, else the Ticket of its place in the queue.

        DeadlockError (40P01) when waiting would close a circle; nothing is queued then. An owner
        that was rolled back under its session is told why.
        """
        if owner.is_undone and owner.abort_error is not None:
            raise owner.abort_error
        holder = self._exclusive.get(resource)
        if holder is owner:
            return None
        if mode is Mode.SHARED and owner in self._shared.get(resource, ()):
            return None
        waiter = owner.waits_for
        if waiter is not None:
            if waiter.resource == resource and waiter.mode is mode and not waiter.ticket.is_done:
                return waiter.ticket
            self.abandon(owner)
        if resource not in self._queues and self._is_free(owner, resource, mode):
            owner.locks.append(resource)
            self._grant(owner, resource, mode)
            return None
        waiter = Waiter(owner, resource, mode)
        # An upgrade must go first: those in the queue wait for its share.
        is_upgrade = mode is Mode.EXCLUSIVE and owner in self._shared.get(resource, ())
        self._check_deadlock(waiter, is_first=is_upgrade)
        owner.waits_for = waiter
        queue = self._queues.setdefault(resource, deque())
        if is_upgrade:
            queue.appendleft(waiter)
        else:
            queue.append(waiter)
        self._settle(resource)
        return None if waiter.ticket.is_done else waiter.ticket

    def is_taken(self, owner: Owner | None, resource: Resource) -> bool:
        """Return whether another owner has the resource EXCLUSIVE, or waits for it."""
        holder = self._exclusive.get(resource)
        if holder is not None:
            return holder is not owner
        return resource in self._queues

    def acquire_if_free(self, owner: Owner, resource: Resource, mode: Mode) -> bool:
        """Acquire what can be had at once; False: nothing happened, nothing is waited for."""
        is_held = owner.waits_for is not None or resource in self._queues
        if is_held or not self._is_free(owner, resource, mode):
            return False
        return self.acquire(owner, resource, mode) is None

    def acquire_row_if_free(self, owner: Owner, table_id: int, key: Key) -> bool:
        """Acquire a table SHARED and a row of it EXCLUSIVE, if both can be had at once.

        False: not both, and nothing is waited for; also for a row that `owner` has.
        """
        exclusive, queues = self._exclusive, self._queues
        table, row = (table_id,), (table_id, key)
        if owner.waits_for is not None or row in exclusive or row in self._shared:
            return False
        if owner.is_undone:
            return False  # acquire() says why
        if queues and (table in queues or row in queues):
            return False
        holder = exclusive.get(table)
        if holder is None:
            if owner not in self._shared.get(table, ()):
                owner.locks.append(table)
                self._shared.setdefault(table, {})[owner] = None  # _grant(), at once
        elif holder is not owner:
            return False
        owner.locks.append(row)
        exclusive[row] = owner
        return True

    def acquire_rows(self, owner: Owner, table_id: int, keys: Iterable[Key]) -> Ticket[None] | None:
        """Acquire rows EXCLUSIVE one after the other; stops at the first that has to wait."""
        resources: dict[Resource, Owner] = dict.fromkeys(zip(repeat(table_id), keys), owner)
        exclusive = self._exclusive
        is_free = owner.waits_for is None and not owner.is_undone and not self._queues
        # Of two views the shorter one is looked up in the other.
        is_apart = is_free and exclusive.keys().isdisjoint(resources.keys())
        if is_apart and not self._has_shared(resources):
            owner.locks += resources  # as acquire() does with each
            exclusive.update(resources)
            return None
        if set(map(exclusive.get, resources)) == {owner}:
            return None  # of a statement that is run again, when the log had no room for it
        for resource in resources:
            wait = self.acquire(owner, resource, Mode.EXCLUSIVE)
            if wait is not None:
                return wait
        return None

    def _has_shared(self, rows: Iterable[Resource]) -> bool:
        """Return whether one of the rows is held SHARED; tables and names mostly are, no rows."""
        return any(len(resource) == 2 for resource in self._shared) and not (
            self._shared.keys().isdisjoint(rows)
        )

    def release_all(self, owner: Owner) -> None:
        """Give up every lock and every place in a queue; repeatable."""
        self.release_some(owner, len(owner.locks))

    def release_some(self, owner: Owner, count_max: int) -> bool:
        """Give up so many locks at the most, the newest first; True: none is left. Repeatable."""
        if owner.waits_for is not None:
            self.abandon(owner)
        held = owner.locks
        is_last = len(held) <= count_max
        exclusive, shared, queues = self._exclusive, self._shared, self._queues
        part: Iterable[Resource] = held if is_last else held[-count_max:]
        if is_last and len(held) > _MANY_LOCKS and not queues and self._has_all(owner):
            exclusive.clear()
            part = list(shared)
        elif len(held) > _MANY_LOCKS and not queues and _are_all(owner, map(exclusive.get, part)):
            deque(map(exclusive.pop, part, repeat(None)), maxlen=0)  # as below, all at once
            part = list(filter(shared.__contains__, part))
        for resource in part:
            if exclusive.get(resource) is owner:
                del exclusive[resource]
            if shared and (holders := shared.get(resource)) is not None:
                holders.pop(owner, None)
                if not holders:
                    shared.pop(resource, None)
            if queues and resource in queues:
                self._settle(resource)
        if is_last:
            held.clear()
        else:
            del held[-count_max:]
        return is_last

    def _has_all(self, owner: Owner) -> bool:
        """Return whether all that is held EXCLUSIVE is one owner's."""
        exclusive = self._exclusive
        is_enough = len(exclusive) <= len(owner.locks)
        return is_enough and _are_all(owner, exclusive.values())

    def wake_all(self) -> None:
        """Complete every Ticket and grant nothing: no lock is granted any more; repeatable."""
        for queue in list(self._queues.values()):
            for waiter in list(queue):
                waiter.ticket.complete(None)

    def abandon(self, owner: Owner) -> None:
        """Leave the queue without the lock (time-out, cancel); repeatable."""
        waiter = owner.waits_for
        if waiter is None:
            return
        queue = self._queues.get(waiter.resource)
        if queue is not None:
            if waiter in queue:
                queue.remove(waiter)
            self._settle(waiter.resource)
        owner.waits_for = None

    def owners(self) -> list[Owner]:
        """Return everyone who holds a lock or waits for one, perhaps several times."""
        owners = [owner for holders in self.held().values() for owner in holders]
        return owners + [waiter.owner for queue in self._queues.values() for waiter in queue]

    def in_the_way_of(self, owner: Owner) -> list[Owner]:
        """Return whom an owner waits for; empty: it waits for no one."""
        waiter = owner.waits_for
        return [] if waiter is None else list(self._holders(waiter))

    def held(self) -> dict[Resource, list[Owner]]:
        """Return the holders of every lock, for tests and diagnosis."""
        result: dict[Resource, list[Owner]] = {r: [o] for r, o in self._exclusive.items()}
        for resource, owners in self._shared.items():
            result.setdefault(resource, []).extend(owners)
        return result

    def _is_free(self, owner: Owner, resource: Resource, mode: Mode) -> bool:
        holder = self._exclusive.get(resource)
        if holder is not None and holder is not owner:
            return False
        if mode is Mode.SHARED:
            return True
        sharers = self._shared.get(resource)
        return not sharers or (len(sharers) == 1 and owner in sharers)

    def _grant(self, owner: Owner, resource: Resource, mode: Mode) -> None:
        if mode is Mode.EXCLUSIVE:
            self._exclusive[resource] = owner
        else:
            self._shared.setdefault(resource, {})[owner] = None

    def _settle(self, resource: Resource) -> None:
        """Hand the lock to the head of the queue as long as it is free for it."""
        queue = self._queues.get(resource)
        while queue:
            waiter = queue[0]
            # It was granted, or given up, before an interrupt, and its owner may have ended since.
            if waiter.ticket.is_done or waiter.owner.waits_for is not waiter:
                waiter.ticket.complete(None)
                queue.popleft()
                continue
            if not self._is_free(waiter.owner, resource, waiter.mode):
                return
            if not waiter.owner.locks or waiter.owner.locks[-1] != resource:
                waiter.owner.locks.append(resource)
            self._grant(waiter.owner, resource, waiter.mode)
            waiter.owner.waits_for = None
            waiter.ticket.complete(None)  # before it leaves the queue, so that it is surely told
            queue.popleft()
        self._queues.pop(resource, None)

    def _holders(self, waiter: Waiter) -> Iterator[Owner]:
        """Yield everyone else whose lock the waiter's request does not go with."""
        owner = waiter.owner
        holder = self._exclusive.get(waiter.resource)
        if holder is not None and holder is not owner:
            yield holder
        if waiter.mode is Mode.EXCLUSIVE:
            for sharer in self._shared.get(waiter.resource, ()):
                if sharer is not owner:
                    yield sharer

    def _check_deadlock(self, waiter: Waiter, *, is_first: bool) -> None:
        """Raise 40P01 when the waiter would wait for itself; with is_first, before the queue.

        Who waits waits for the holders and for all ahead in the queue. A walk along one queue
        covers everyone ahead, so that N waiters for one row cost N steps and not their square.
        """
        seen: set[int] = set()
        covered: set[int] = set()
        frontier = list(self._holders(waiter))
        if not is_first:
            frontier += [other.owner for other in self._queues.get(waiter.resource, ())]
            covered.update(map(id, self._queues.get(waiter.resource, ())))
        while frontier:
            owner = frontier.pop()
            if owner is waiter.owner:
                raise DeadlockError(
                    "deadlock: this transaction waits for a lock whose holder waits for it",
                    hint="The transaction was rolled back; run it again.",
                )
            if id(owner) in seen:
                continue
            seen.add(id(owner))
            other = owner.waits_for
            if other is None:
                continue
            frontier.extend(self._holders(other))
            if id(other) in covered:
                continue
            for ahead in self._queues.get(other.resource, ()):
                covered.add(id(ahead))
                if ahead is other:
                    break
                frontier.append(ahead.owner)


def _are_all(owner: Owner, holders: Iterable[Owner | None]) -> bool:
    return all(map(is_, holders, repeat(owner)))
