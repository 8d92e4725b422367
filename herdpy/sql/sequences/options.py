"""Options of CREATE and ALTER SEQUENCE, and of identity columns, to a sequence's definition.

As PostgreSQL's init_params(): what is wrong is 22023.
"""

from collections.abc import Mapping
from dataclasses import replace

from herdpy.errors import ProgrammingError
from herdpy.model.sequences import SequenceDefinition
from herdpy.model.types import INTEGER_BOUNDS, Kind

Options = Mapping[str, int | bool | None]
"""By the word of the option: INCREMENT, MINVALUE, … of which None takes a bound away."""
_NAMES = {Kind.SMALLINT: "smallint", Kind.INTEGER: "integer", Kind.BIGINT: "bigint"}


def new_sequence(kind: Kind, options: Options) -> SequenceDefinition:
    """Return the definition of a new sequence of integers of a kind."""
    return _checked(options, kind, SequenceDefinition(kind), is_new=True)


def altered_sequence(
    before: SequenceDefinition, kind: Kind | None, options: Options
) -> SequenceDefinition:
    """Return a definition with other options; a bound that is its kind's own changes with it."""
    return _checked(options, before.kind if kind is None else kind, before, is_new=False)


def check_restart(sequence: SequenceDefinition, value: int) -> None:
    """Raise 22023 for a value that the sequence cannot go on from."""
    _check_bounds(sequence, "RESTART", value)


def _checked(
    options: Options, kind: Kind, before: SequenceDefinition, *, is_new: bool
) -> SequenceDefinition:
    increment = options.get("INCREMENT", before.increment)
    if not increment:
        raise _wrong("INCREMENT must not be zero")
    low, high = INTEGER_BOUNDS[kind]
    low_before, high_before = INTEGER_BOUNDS[before.kind]
    is_up = increment > 0
    default_minimum, default_maximum = (1, high) if is_up else (low, -1)
    minimum, maximum = before.minimum, before.maximum
    if "MAXVALUE" in options or is_new or (kind is not before.kind and maximum == high_before):
        given = options.get("MAXVALUE")
        maximum = default_maximum if given is None else given
    if "MINVALUE" in options or is_new or (kind is not before.kind and minimum == low_before):
        given = options.get("MINVALUE")
        minimum = default_minimum if given is None else given
    for word, bound in (("MAXVALUE", maximum), ("MINVALUE", minimum)):
        if not low <= bound <= high:
            raise _wrong(f"{word} ({bound}) is out of range for sequence data type {_NAMES[kind]}")
    if minimum >= maximum:
        raise _wrong(f"MINVALUE ({minimum}) must be less than MAXVALUE ({maximum})")
    start = options.get("START")
    if start is None:
        start = (minimum if is_up else maximum) if is_new else before.start
    cache = options.get("CACHE", before.cache)
    if not cache or cache < 1:
        raise _wrong(f"CACHE ({cache}) must be greater than zero")
    cycles = bool(options.get("CYCLE", before.cycles))
    made = replace(
        before,
        kind=kind,
        start=start,
        increment=increment,
        minimum=minimum,
        maximum=maximum,
        cache=cache,
        cycles=cycles,
    )
    _check_bounds(made, "START", start)
    return made


def _check_bounds(sequence: SequenceDefinition, word: str, value: int) -> None:
    if value < sequence.minimum:
        raise _wrong(f"{word} value ({value}) cannot be less than MINVALUE ({sequence.minimum})")
    if value > sequence.maximum:
        raise _wrong(f"{word} value ({value}) cannot be greater than MAXVALUE ({sequence.maximum})")


def _wrong(message: str) -> ProgrammingError:
    return ProgrammingError(message, sqlstate="22023")
