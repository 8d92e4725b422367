"""Is there an order of operations that explains what they answered, and keeps the order of time?

Wing and Gong's search, with Lowe's memory: operations are put in order one by one, each only when
the model allows its answer then; one that is over may not come behind one that began later; and
what led nowhere from the same state, with the same operations behind it, is not tried again.

    found = first_misfit(operations, step, initial)     # None: linearizable

An operation without an end may have happened at any time since it began, the end of all included,
where it disturbs no other.
"""

import math
from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple

NEVER = math.inf
"""The end of an operation whose answer nothing is known of."""
TRIED_MAX = 5_000_000


class UndecidedError(AssertionError):
    """Too many orders were tried."""


class Operation(NamedTuple):
    """begin, end: by one clock; what ends at the moment when another begins overlaps it."""

    begin: float
    end: float
    call: Any
    """What the model understands; with the answer."""


Step = Callable[[Any, Any], Hashable | None]
"""step(state, call) returns the state behind a call, or None: the call answers otherwise then."""


class _Place:
    """A call, or its end, in the order of time: a list with links to both sides."""

    __slots__ = ("after", "before", "end", "number", "operation")

    def __init__(self, operation: Operation | None, number: int, end: "_Place | None") -> None:
        self.operation = operation
        self.number = number
        self.end = end
        """Of a call; None: this is an end."""
        self.before: _Place
        self.after: _Place | None = None

    def take_out(self) -> None:
        self.before.after = self.after
        if self.after is not None:
            self.after.before = self.before

    def put_back(self) -> None:
        self.before.after = self
        if self.after is not None:
            self.after.before = self


class _Placed(NamedTuple):
    """Which operations have their place: those that end have numbers, those that do not, others."""

    first: int
    """All numbers under it have theirs."""
    rest: int
    """As bits from `first` on."""
    endless: int
    """As bits."""

    def plus(self, place: _Place) -> "_Placed":
        assert place.operation is not None
        if place.operation.end == NEVER:
            return self._replace(endless=self.endless | 1 << place.number)
        first, rest = self.first, self.rest | 1 << (place.number - self.first)
        while rest & 1:
            first, rest = first + 1, rest >> 1
        return self._replace(first=first, rest=rest)


def first_misfit(
    operations: Iterable[Operation], step: Step, initial: Hashable, tried_max: int = TRIED_MAX
) -> str | None:
    """Return None when they are linearizable, else what could not be explained; UndecidedError."""
    head = _in_time(operations)
    state: Any = initial
    placed = _Placed(0, 0, 0)
    tried: set[tuple[_Placed, Hashable]] = set()
    path: list[tuple[_Place, Any, _Placed]] = []
    longest, misfit = -1, ""
    place = head.after
    while place is not None:
        assert place.operation is not None
        if place.end is not None:
            following = step(state, place.operation.call)
            if following is not None:
                key = (placed.plus(place), following)
                if key not in tried:
                    if len(tried) == tried_max:
                        raise UndecidedError(f"not decided after {tried_max} tries; {misfit}")
                    tried.add(key)
                    path.append((place, state, placed))
                    placed, state = key
                    place.take_out()
                    place.end.take_out()
                    place = head.after
                    continue
            place = place.after
            continue
        if len(path) > longest:
            longest = len(path)
            misfit = f"behind {longest} that are explained, with the state {state!r}: "
            misfit += f"{place.operation}"
        if not path:
            return misfit
        place, state, placed = path.pop()
        assert place.end is not None
        place.end.put_back()
        place.put_back()
        place = place.after
    return None


def _in_time(operations: Iterable[Operation]) -> _Place:
    """Return what stands before the first call; calls come before ends of the same moment."""
    moments: list[tuple[float, bool, int, _Place]] = []
    numbers = {True: 0, False: 0}
    for index, operation in enumerate(sorted(operations, key=lambda each: each[:2])):
        is_endless = operation.end == NEVER
        number = numbers[is_endless]
        numbers[is_endless] += 1
        end = _Place(operation, number, None)
        moments.append((operation.begin, False, index, _Place(operation, number, end)))
        moments.append((operation.end, True, index, end))
    head = last = _Place(None, -1, None)
    for *_, place in sorted(moments, key=lambda moment: moment[:3]):
        last.after, place.before = place, last
        last = place
    return head
