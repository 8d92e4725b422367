"""The part of a node, event by event: what it does, and what it never does."""

import random

import pytest

from bookie.metadata.interfaces import SessionState
from herdpy.cluster.part import HAND_OVER, TAKE_OVER, Do, PartMachine, State, Waits
from herdpy.errors import Error, OperationalError
from herdpy.model.lsn import Lsn

WAITS = Waits(candidate_s=0.2, other_s=6.0, other_max_s=300.0, again_first_s=0.1, again_max_s=1.0)
FAILED = OperationalError("the bookies are away", sqlstate="58030")


class Script:
    """A machine, a clock, and the steps that are under way."""

    def __init__(self, chance: float = 0.5) -> None:
        self.now_s = 100.0
        self.machine = PartMachine(lambda: chance, WAITS)
        self.doing: list[Do] = []
        self.take(self.machine.begin())

    def take(self, actions: list[Do]) -> None:
        self.doing = actions or self.doing

    def done(self, *steps: Do) -> None:
        for step in steps:
            assert self.doing == [step]
            if step is Do.NAME:
                self.machine.epoch += 1
            self.doing = []
            self.take(self.machine.on_done(step, self.now_s))

    def fail(self, step: Do, *, is_conflict: bool = False) -> None:
        assert self.doing == [step]
        self.doing = []
        self.take(self.machine.on_failed(step, FAILED, self.now_s, is_conflict=is_conflict))

    def leader(self, *, is_there: bool) -> None:
        self.take(self.machine.on_leader(self.now_s, has_leader=is_there))

    def named(self, epoch: int) -> None:
        self.take(self.machine.on_named(epoch, self.now_s))

    def session(self, state: SessionState) -> None:
        self.take(self.machine.on_session(state, self.now_s))

    def stopped(self) -> None:
        assert self.doing == [Do.STOP]
        self.doing = []
        self.take(self.machine.on_stopped(self.now_s))

    def wait(self) -> float:
        """Let the time come that the machine waits for, and return how long that was."""
        until_s = self.machine.wakes_at_s
        assert until_s is not None
        waited_s, self.now_s = until_s - self.now_s, until_s
        self.take(self.machine.on_time(self.now_s))
        return waited_s

    @property
    def state(self) -> State:
        return self.machine.state


def following() -> Script:
    script = Script()
    script.done(Do.OPEN)
    assert (script.state, script.doing) == (State.FOLLOWING, [Do.FOLLOW])
    return script


def taking_over(until: Do) -> Script:
    """Return one that has begun a step of a take-over."""
    script = following()
    script.leader(is_there=False)
    assert script.wait() == pytest.approx(0.1)
    script.done(*TAKE_OVER[: TAKE_OVER.index(until)])
    assert (script.state, script.doing) == (State.TAKING_OVER, [until])
    return script


def leading() -> Script:
    script = taking_over(Do.SERVE)
    script.done(Do.SERVE)
    assert (script.state, script.machine.wakes_at_s) == (State.LEADING, None)
    return script


def test_a_node_follows_for_as_long_as_another_one_leads() -> None:
    script = following()
    assert script.machine.wakes_at_s is None
    script.leader(is_there=True)
    script.named(7)
    assert (script.state, script.doing) == (State.FOLLOWING, [Do.FOLLOW])


def test_the_steps_of_a_take_over_come_one_behind_the_other() -> None:
    assert leading().doing == []


def test_a_copy_that_is_behind_lets_others_lead_until_it_is_level() -> None:
    script = following()
    script.machine.is_behind = True
    script.leader(is_there=False)
    for _ in range(20):
        assert 0 < script.wait() <= WAITS.candidate_s
        assert (script.state, script.doing) == (State.FOLLOWING, [Do.FOLLOW])
    script.machine.is_behind = False
    script.wait()
    assert (script.state, script.doing) == (State.TAKING_OVER, [Do.NAME])


@pytest.mark.parametrize("is_wanted", [False, True])
def test_a_copy_that_stays_behind_takes_over_in_the_end_or_when_it_is_wanted(
    is_wanted: bool,
) -> None:
    script = following()
    script.machine.is_behind = True
    script.leader(is_there=False)
    begun_s = script.now_s
    if is_wanted:
        script.take(script.machine.on_wanted(script.now_s))
    while script.state is State.FOLLOWING:
        script.wait()
    waited_s = 0.0 if is_wanted else WAITS.behind_s
    assert waited_s <= script.now_s - begun_s <= waited_s + WAITS.candidate_s
    assert script.doing == [Do.NAME]


@pytest.mark.parametrize("step", [Do.NAME, Do.CLAIM])
def test_who_loses_a_race_follows_and_lets_the_other_one_come_to_lead(step: Do) -> None:
    script = taking_over(step)
    script.fail(step, is_conflict=True)
    assert (script.state, script.doing) == (State.FOLLOWING, [Do.FOLLOW])
    assert script.wait() >= WAITS.other_s  # and then it tries itself
    assert script.doing == [Do.NAME]


@pytest.mark.parametrize("step", [Do.NAME, Do.CLAIM])
def test_a_store_that_fails_is_asked_again_ever_later(step: Do) -> None:
    script = taking_over(step)
    waits: list[float] = []
    for _ in range(6):
        script.fail(step)
        assert script.state is State.FOLLOWING
        waits.append(script.wait())
        script.done(*TAKE_OVER[: TAKE_OVER.index(step)])
    assert waits == sorted(waits)
    assert waits[-1] <= WAITS.again_max_s + WAITS.candidate_s


@pytest.mark.parametrize("step", [Do.LEAD, Do.ALONE, Do.SERVE])
def test_a_copy_that_may_have_changed_is_opened_again(step: Do) -> None:
    script = taking_over(step)
    script.fail(step)
    assert (script.state, script.doing) == (State.RESIGNING, [Do.STOP])
    script.stopped()
    assert (script.state, script.machine.reason) == (State.FAILED, FAILED)
    script.wait()
    assert (script.state, script.doing) == (State.BOOTING, [Do.OPEN])


def test_a_copy_that_does_not_open_is_tried_again_ever_later_and_says_why() -> None:
    script = Script()
    waits: list[float] = []
    for _ in range(8):
        script.fail(Do.OPEN)
        script.stopped()
        assert script.machine.reason is FAILED
        waits.append(script.wait())
    assert waits == sorted(waits)
    assert waits[0] < WAITS.again_first_s <= 2 * waits[0] < waits[-1] <= WAITS.again_max_s


def test_a_copy_that_cannot_follow_is_opened_again() -> None:
    script = following()
    script.fail(Do.FOLLOW)
    assert script.doing == [Do.STOP]


@pytest.mark.parametrize("step", TAKE_OVER)
def test_a_node_that_is_overtaken_serves_no_client(step: Do) -> None:
    """N1 has named itself and pauses, N2 names itself with a greater epoch, N1 wakes."""
    script = taking_over(step)
    script.named(script.machine.epoch + 2)
    if step is Do.NAME:
        script.done(Do.NAME)  # its epoch is below the other's: what was named is not there
    elif step is Do.CLAIM:
        script.done(Do.CLAIM)
    else:
        assert (script.state, script.doing) == (State.RESIGNING, [Do.STOP])
        return
    assert (script.state, script.doing) == (State.FOLLOWING, [Do.FOLLOW])
    assert script.wait() >= WAITS.other_s


def test_a_node_that_names_itself_behind_another_one_goes_on() -> None:
    script = taking_over(Do.NAME)
    script.named(1)
    script.machine.epoch = 1  # so that its own is 2
    script.done(Do.NAME, Do.CLAIM, Do.LEAD, Do.ALONE, Do.SERVE)
    assert script.state is State.LEADING


@pytest.mark.parametrize("cause", ["named", "lost", "log"])
def test_a_leader_that_is_none_any_more_resigns_and_boots_anew(cause: str) -> None:
    script = leading()
    if cause == "named":
        script.named(script.machine.epoch + 1)
    elif cause == "lost":
        script.session(SessionState.LOST)
        script.session(SessionState.CONNECTED)
    else:
        script.take(script.machine.on_log_failed(FAILED))
    assert (script.state, script.doing) == (State.RESIGNING, [Do.STOP])
    script.leader(is_there=False)
    script.stopped()
    script.wait()
    script.done(Do.OPEN)
    waited_s = script.wait()
    assert script.doing == [Do.NAME]
    if cause == "named":  # the other one has to come to lead first
        assert waited_s > WAITS.other_s / 2
    else:  # fenced is not deposed
        assert waited_s <= WAITS.candidate_s


def test_the_end_of_a_leader_that_came_to_lead_is_not_waited_out() -> None:
    script = following()
    script.named(3)
    script.leader(is_there=True)
    script.leader(is_there=False)
    assert script.wait() <= WAITS.candidate_s


def test_a_node_without_its_session_waits_until_it_has_one() -> None:
    script = following()
    script.session(SessionState.SUSPENDED)
    script.leader(is_there=False)
    script.wait()
    assert script.doing == [Do.FOLLOW]
    script.session(SessionState.CONNECTED)
    script.wait()
    assert script.doing == [Do.NAME]


def test_a_suspended_leader_goes_on_for_as_long_as_a_session_lives() -> None:
    script = leading()
    script.session(SessionState.SUSPENDED)
    assert (script.state, script.doing) == (State.LEADING, [])
    script.session(SessionState.CONNECTED)
    assert script.machine.wakes_at_s is None
    script.session(SessionState.SUSPENDED)
    assert script.wait() == WAITS.session_s
    assert (script.state, script.doing) == (State.RESIGNING, [Do.STOP])


@pytest.mark.parametrize("step", TAKE_OVER)
def test_a_candidate_that_the_store_leaves_for_too_long_begins_anew(step: Do) -> None:
    script = taking_over(step)
    script.session(SessionState.SUSPENDED)
    assert script.doing == [step]
    assert script.wait() == WAITS.session_s
    assert script.doing == [Do.STOP]


def test_an_operator_has_a_node_take_over_from_one_that_lives() -> None:
    script = following()
    script.leader(is_there=True)
    script.take(script.machine.on_wanted(script.now_s))
    assert script.wait() == 0.0
    script.done(*TAKE_OVER)
    assert script.state is State.LEADING


def test_a_wish_that_is_met_or_older_than_another_one_is_forgotten() -> None:
    script = leading()
    script.take(script.machine.on_wanted(script.now_s))
    script.named(script.machine.epoch + 1)
    script.stopped()
    script.wait()
    script.leader(is_there=True)
    script.done(Do.OPEN)
    assert (script.state, script.machine.wakes_at_s) == (State.FOLLOWING, None)


@pytest.mark.parametrize("claim_s", [4.0, 8.0, 100.0])
def test_take_overs_that_take_long_come_to_an_end_beside_each_other(claim_s: float) -> None:
    """Each node that is waited for too shortly would be deposed by the next one, for ever."""
    nodes = [PartMachine(random.Random(n).random, WAITS) for n in range(3)]
    now_s, epoch = 0.0, 0
    ends: dict[int, tuple[float, Do]] = dict.fromkeys(range(3), (0.0, Do.OPEN))
    for node in nodes:
        node.begin()
        node.on_leader(now_s, has_leader=False)
    steps_s = {Do.NAME: 0.01, Do.CLAIM: claim_s, Do.LEAD: 1.0, Do.STOP: 0.01}
    for _ in range(5000):
        times = [(at_s, n) for n, (at_s, _) in ends.items()]
        times += [(node.wakes_at_s, n) for n, node in enumerate(nodes) if node.wakes_at_s]
        now_s, n = min(times)
        node = nodes[n]
        if n in ends and ends[n][0] <= now_s:
            step = ends.pop(n)[1]
            if step is Do.NAME:
                epoch = node.epoch = epoch + 1
            follow = node.on_stopped(now_s) if step is Do.STOP else node.on_done(step, now_s)
            if step is Do.NAME:
                for m, other in enumerate(nodes):
                    if m != n and Do.STOP in other.on_named(epoch, now_s):
                        ends[m] = (now_s + steps_s[Do.STOP], Do.STOP)
        else:
            follow = node.on_time(now_s)
        for step in follow:
            if step is not Do.FOLLOW:
                ends[n] = (now_s + steps_s.get(step, 0.01), step)
        if node.state is State.LEADING:
            assert now_s < 60 * claim_s
            return
    pytest.fail("no node comes to lead")


def handing_over(until: Do) -> Script:
    """Return one that has begun a step of a hand-over."""
    script = leading()
    script.take(script.machine.on_successor())
    script.done(*HAND_OVER[: HAND_OVER.index(until)])
    assert (script.state, script.doing) == (State.HANDING_OVER, [until])
    return script


def test_a_leader_hands_over_and_follows_at_once() -> None:
    script = handing_over(Do.TELL)
    script.done(Do.TELL)
    assert (script.state, script.doing) == (State.RESIGNING, [Do.STOP])
    script.stopped()
    assert (script.state, script.doing) == (State.BOOTING, [Do.OPEN])


def test_only_a_leader_with_its_session_hands_over() -> None:
    for script in (following(), taking_over(Do.SERVE)):
        state = script.state
        assert script.machine.on_successor() == []
        assert script.state is state
    script = leading()
    script.session(SessionState.SUSPENDED)
    assert script.machine.on_successor() == []
    assert script.state is State.LEADING


def test_a_hand_over_that_is_given_up_leaves_a_leader() -> None:
    script = handing_over(Do.DRAIN)
    script.fail(Do.DRAIN)
    assert (script.state, script.doing) == (State.LEADING, [])
    script.take(script.machine.on_successor())
    assert script.doing == [Do.DRAIN]


@pytest.mark.parametrize("step", HAND_OVER[1:])
def test_a_hand_over_that_fails_once_the_log_is_closed_ends_the_leader(step: Do) -> None:
    script = handing_over(step)
    script.fail(step)
    assert (script.state, script.doing) == (State.RESIGNING, [Do.STOP])
    script.stopped()
    assert (script.state, script.machine.reason) == (State.FAILED, FAILED)


@pytest.mark.parametrize("step", HAND_OVER)
def test_a_leader_that_is_overtaken_stops_unless_it_has_let_go(step: Do) -> None:
    script = handing_over(step)
    script.named(script.machine.epoch + 1)
    assert script.doing == [Do.STOP if step in (Do.DRAIN, Do.CLOSE) else step]


@pytest.mark.parametrize("step", HAND_OVER)
def test_a_session_that_is_over_ends_a_hand_over(step: Do) -> None:
    script = handing_over(step)
    script.session(SessionState.LOST)
    assert script.doing == [Do.STOP]


def test_the_successor_takes_over_at_once_and_others_give_it_time() -> None:
    script = following()
    script.machine.is_behind = True  # what it lacks is in ledgers that are closed
    script.take(script.machine.on_handed_over(script.now_s, is_successor=True))
    assert script.wait() == 0.0
    assert (script.state, script.doing) == (State.TAKING_OVER, [Do.NAME])
    script = following()
    script.leader(is_there=False)
    script.take(script.machine.on_handed_over(script.now_s, is_successor=False))
    assert script.wait() >= WAITS.successor_s
    assert script.doing == [Do.NAME]


def silent(script: Script) -> None:
    """Have the leader be silent, as its owner knows."""
    script.leader(is_there=True)
    script.machine.is_silent = True
    script.take(script.machine.on_silent(script.now_s))


def test_a_node_takes_over_from_a_leader_that_is_silent_while_its_session_lives() -> None:
    script = following()
    silent(script)
    assert script.wait() <= WAITS.candidate_s
    assert script.machine.is_forced
    script.done(*TAKE_OVER)
    assert script.state is State.LEADING


def test_a_leader_that_ticks_again_in_time_is_left_alone() -> None:
    script = following()
    silent(script)
    script.machine.is_silent = False
    script.wait()
    assert (script.state, script.doing) == (State.FOLLOWING, [Do.FOLLOW])
    assert script.machine.wakes_at_s is None


def test_another_node_that_has_named_itself_has_its_time_before_a_leader_is_taken_for_silent() -> (
    None
):
    script = following()
    script.named(script.machine.epoch + 1)
    script.machine.is_silent = True
    script.take(script.machine.on_silent(script.now_s))
    assert script.wait() >= WAITS.other_s
    assert script.machine.is_forced


def test_a_take_over_without_a_leader_or_by_a_wish_forces_nothing() -> None:
    assert not taking_over(Do.ALONE).machine.is_forced
    script = following()
    silent(script)
    script.take(script.machine.on_wanted(script.now_s))
    script.wait()
    assert not script.machine.is_forced


@pytest.mark.parametrize("state", [SessionState.SUSPENDED, SessionState.LOST])
def test_a_node_without_its_session_takes_over_from_no_silent_leader(state: SessionState) -> None:
    script = following()
    silent(script)
    script.session(state)
    script.wait()
    assert script.doing == [Do.FOLLOW]
    script.session(SessionState.CONNECTED)
    script.wait()
    assert script.doing == [Do.NAME]


def test_only_a_node_that_follows_takes_note_of_a_silent_leader() -> None:
    for script in (taking_over(Do.NAME), leading()):
        wakes_at_s = script.machine.wakes_at_s
        silent(script)
        assert script.machine.wakes_at_s == wakes_at_s


def test_news_of_a_step_that_is_over_changes_nothing() -> None:
    script = taking_over(Do.ALONE)
    assert script.machine.on_done(Do.LEAD, script.now_s) == []
    assert script.machine.on_failed(Do.OPEN, FAILED, script.now_s, is_conflict=False) == []
    assert script.machine.on_log_failed(FAILED) == []
    assert script.doing == [Do.ALONE]


@pytest.mark.parametrize("number", range(300))
def test_whatever_happens_one_step_is_under_way_and_a_node_without_leader_comes_to_lead(
    number: int,
) -> None:
    rng = random.Random(number)
    script = Script(rng.random())
    machine = script.machine
    for _ in range(rng.choice((5, 40, 150))):
        script.now_s += rng.choice((0.0, 0.01, 1.0)) * rng.random()
        draw = rng.random()
        before = list(script.doing)
        if draw < 0.35 and script.doing and script.doing != [Do.FOLLOW]:
            _end(script, rng)
        elif draw < 0.4 and script.doing == [Do.FOLLOW]:
            script.fail(Do.FOLLOW)
        elif draw < 0.5:
            script.leader(is_there=rng.random() < 0.5)
        elif draw < 0.6:
            script.named(machine.epoch + rng.randrange(3))
        elif draw < 0.7:
            script.session(rng.choice(list(SessionState)))
        elif draw < 0.72:
            script.take(machine.on_wanted(script.now_s))
        elif draw < 0.75:
            script.take(machine.on_successor())
        elif draw < 0.77:
            machine.is_silent = rng.random() < 0.5
            script.take(machine.on_silent(script.now_s))
        elif draw < 0.78:
            script.take(machine.on_handed_over(script.now_s, is_successor=rng.random() < 0.5))
        elif draw < 0.8:
            script.take(machine.on_log_failed(FAILED))
        elif machine.wakes_at_s is not None:
            script.wait()
        if before == [Do.STOP]:
            assert script.doing in ([Do.STOP], [])
        assert len(script.doing) <= 1
        assert machine.state is not State.HANDING_OVER or machine.step in HAND_OVER
        assert machine.state is not State.LEADING or machine._newest_epoch <= machine.epoch
    # In the calm: no leader, a session, and every step succeeds.
    script.session(SessionState.CONNECTED)
    script.leader(is_there=False)
    for _ in range(40):
        if script.state is State.LEADING:
            break
        if script.doing and script.doing != [Do.FOLLOW]:
            _end(script, None)
        else:
            script.wait()
    assert script.state is State.LEADING


def _end(script: Script, rng: random.Random | None) -> None:
    """End the step that is under way: well, or by chance not."""
    (step,) = script.doing
    if step is Do.STOP:
        script.stopped()
    elif rng is not None and rng.random() < 0.3:
        script.fail(step, is_conflict=rng.random() < 0.5)
    else:
        if step is Do.NAME and rng is None:
            script.machine.epoch = max(script.machine.epoch, script.machine._newest_epoch)
        script.done(step)


def test_the_reason_of_a_failure_is_forgotten_when_it_leads() -> None:
    script = taking_over(Do.NAME)
    script.fail(Do.NAME)
    reason: Error | None = script.machine.reason
    assert reason is FAILED
    script.wait()
    script.done(*TAKE_OVER)
    assert script.machine.reason is None


def test_a_copy_that_fails_at_one_place_again_and_again_waits_longer_and_longer() -> None:
    """Though it takes in what is before that each time."""
    script, waits = following(), list[float]()
    for _ in range(4):
        script.machine.on_progress(Lsn(7, 20, 0))
        script.fail(Do.FOLLOW)
        script.stopped()
        waits.append(script.wait())
        script.done(Do.OPEN)
    assert waits == sorted(waits)
    assert waits[-1] >= 4 * waits[0]
    script.machine.on_progress(Lsn(7, 21, 0))
    script.fail(Do.FOLLOW)
    script.stopped()
    assert script.wait() == waits[0]
