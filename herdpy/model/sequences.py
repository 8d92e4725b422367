"""Sequences: what one counts, and which value stands at which step.

A sequence counts steps, which only grow: how many are given away is what the log says (RESERVE).
The value at a step follows from the definition and from where the sequence was set last.
"""

from dataclasses import dataclass
from typing import Any

from herdpy.model.types import INTEGER_BOUNDS, Kind


@dataclass(frozen=True, slots=True)
class SequenceDefinition:
    """A sequence's definition; `kind` is an integer's, whose range bounds it.

    `cache` is how many values are reserved at once, at the least.
    """

    kind: Kind = Kind.BIGINT
    start: int = 1
    increment: int = 1
    minimum: int = 1
    maximum: int = INTEGER_BOUNDS[Kind.BIGINT][1]
    cache: int = 1
    cycles: bool = False

    @property
    def bound(self) -> int:
        """The last value before the sequence is exhausted, or begins anew."""
        return self.maximum if self.increment > 0 else self.minimum

    @property
    def first(self) -> int:
        """The value that it begins anew with when it cycles."""
        return self.minimum if self.increment > 0 else self.maximum

    def steps_left(self, base: int) -> int:
        """Return how many steps there are behind a base before the bound."""
        return abs(self.bound - base) // abs(self.increment)

    def value_at(self, base: int, steps: int) -> int | None:
        """Return the value so many steps behind a base; None: none is left.

        Step 0 is the base itself, which lies in the bounds.
        """
        left = self.steps_left(base)
        if steps <= left:
            return base + steps * self.increment
        if not self.cycles:
            return None
        round_steps = abs(self.bound - self.first) // abs(self.increment) + 1
        return self.first + (steps - left - 1) % round_steps * self.increment


def sequence_to_plain(sequence: SequenceDefinition) -> list[Any]:
    """Return numbers only, for msgpack; see docs/formats/record.md."""
    return [
        sequence.kind.value,
        sequence.start,
        sequence.increment,
        sequence.minimum,
        sequence.maximum,
        sequence.cache,
        sequence.cycles,
    ]


def sequence_from_plain(plain: list[Any]) -> SequenceDefinition:
    """Invert sequence_to_plain; ValueError or TypeError for what it does not make."""
    kind, *rest = plain
    return SequenceDefinition(Kind(kind), *rest)
