"""Sequences in a tablespace: values given away, reserved and set. All with the monitor held.

Applier has the counters: how many steps of a sequence are reserved is in the log, and in the
manifest; which of them is next only a leader knows, and who comes after it begins behind all that
are reserved.
"""

from herdpy.engine.state.applier import Applier
from herdpy.engine.state.tablespace import Tablespace
from herdpy.errors import DataError
from herdpy.limits import sequence_reservation_max
from herdpy.log.record import Reserve, SetSequence
from herdpy.model.schema import Table
from herdpy.model.sequences import SequenceDefinition

_RESERVATION = 32
"""Values that are reserved at once, at the least: so many may be lost by a crash."""


def next_value(applier: Applier, sequence: Table) -> int | None:
    """Give away the next value that is reserved; None: there is none. 2200H: it has no more."""
    number = sequence.id
    step = _next_step(applier, number)
    if step >= applier.reserved.get(number, 0):
        return None
    value = _value_at(applier, sequence, step)
    applier.next_row_id[number] = step + 1
    return value


def reserve(tablespace: Tablespace, sequence: Table) -> None:
    """Log that more values are given away; 2200H: there are none. LogSpaceError."""
    applier, number = tablespace.applier, sequence.id
    step = _next_step(applier, number)
    _value_at(applier, sequence, step)
    applier.next_row_id[number] = step
    count = min(max(_RESERVATION, _definition(sequence).cache), sequence_reservation_max)
    tablespace.log_numbers(Reserve(table_id=number, upto=step + count))


def set_value(tablespace: Tablespace, sequence: Table, value: int, *, is_called: bool) -> None:
    """Log that a sequence goes on behind a value, or from it on; 22003: out of its bounds."""
    applier, number, definition = tablespace.applier, sequence.id, _definition(sequence)
    if not definition.minimum <= value <= definition.maximum:
        raise DataError(
            f'setval: value {value} is out of bounds for sequence "{sequence.name}" '
            f"({definition.minimum}..{definition.maximum})",
            sqlstate="22003",
        )
    step = max(_next_step(applier, number), applier.reserved.get(number, 0))
    tablespace.log_numbers(*setting(number, step, value, is_called=is_called))
    applier.next_row_id[number] = step + is_called


def give_back(tablespace: Tablespace) -> None:
    """Log that sequences go on from where they are: what is reserved is given away by no one.

    For a tablespace that takes no statement any more, and opens again without a gap. LogSpaceError.
    """
    applier, given_back = tablespace.applier, list[int]()
    records: list[Reserve | SetSequence] = []
    for table in applier.state.catalog.tables():
        if table.sequence is None:
            continue
        step, reserved = _next_step(applier, table.id), applier.reserved.get(table.id, 0)
        if step < reserved:
            value, is_called = last_value(applier, table)
            records += setting(table.id, reserved, value, is_called=is_called)
            given_back.append(table.id)
    if records:
        tablespace.log_numbers(*records)
        for number in given_back:
            applier.next_row_id[number] = applier.reserved[number]


def last_value(applier: Applier, sequence: Table) -> tuple[int, bool]:
    """Return the value given away last, and True; before there is one the first, and False."""
    step = _next_step(applier, sequence.id)
    set_step, base = _base(applier, sequence)
    if step == set_step:
        return base, False
    definition = _definition(sequence)
    value = definition.value_at(base, step - 1 - set_step)
    if value is None:  # more was reserved than there is
        value = definition.value_at(base, definition.steps_left(base))
    assert value is not None
    return value, True


def setting(number: int, step: int, value: int, *, is_called: bool) -> list[Reserve | SetSequence]:
    """Return the records by which a value stands at a step, and is given away or not."""
    records: list[Reserve | SetSequence] = [SetSequence(number, step, value)]
    return [*records, Reserve(number, step + 1)] if is_called else records


def _definition(sequence: Table) -> SequenceDefinition:
    assert sequence.sequence is not None
    return sequence.sequence


def _next_step(applier: Applier, number: int) -> int:
    step = applier.next_row_id.get(number)
    if step is None:  # it is new, or no leader's
        step = applier.reserved.get(number, 0)
    set_step, _ = applier.set_at.get(number, (0, 0))
    return step if step > set_step else set_step


def _base(applier: Applier, sequence: Table) -> tuple[int, int]:
    """Return the step at which the sequence was set, or began, and its value there."""
    return applier.set_at.get(sequence.id) or (0, _definition(sequence).start)


def _value_at(applier: Applier, sequence: Table, step: int) -> int:
    set_step, base = _base(applier, sequence)
    definition = _definition(sequence)
    value = definition.value_at(base, step - set_step)
    if value is None:
        word = "maximum" if definition.increment > 0 else "minimum"
        raise DataError(
            f'nextval: reached {word} value of sequence "{sequence.name}" ({definition.bound})',
            sqlstate="2200H",
            hint="ALTER SEQUENCE … RESTART, or give it other bounds or CYCLE.",
        )
    return value
