"""StepTimes: what a node says of its take-over, by hand."""

from herdpy.cluster.part import Do
from herdpy.cluster.takeover.step_times import StepTimes


def test_each_step_is_told_and_the_wait_before_them() -> None:
    times = StepTimes()
    times.note_leader(9.0, has_leader=True)
    times.note_leader(10.0, has_leader=False)
    times.note_leader(10.1, has_leader=False)  # looked for again: gone since 10.0 all the same
    times.done(Do.OPEN, 1.0, 2.0)
    times.done(Do.NAME, 10.25, 10.5)
    times.done(Do.CLAIM, 10.5, 11.5)
    assert times.fields() == {"waited_s": 0.25, "named_s": 0.25, "claimed_s": 1.0}


def test_a_successor_that_begins_before_it_sees_the_end_of_the_leader_has_not_waited() -> None:
    times = StepTimes()
    times.note_leader(10.1, has_leader=False)
    times.done(Do.NAME, 10.0, 10.5)
    assert times.fields() == {"waited_s": 0.0, "named_s": 0.5}


def test_what_was_told_of_the_take_over_before_is_forgotten() -> None:
    times = StepTimes()
    times.note_leader(1.0, has_leader=False)
    times.done(Do.NAME, 1.5, 2.0)
    times.done(Do.CLAIM, 2.0, 3.0)
    times.note_leader(4.0, has_leader=True)
    times.done(Do.NAME, 8.0, 8.5)  # from a leader that lives: it was wanted
    assert times.fields() == {"named_s": 0.5}
