"""What a seed's world is like: bookies, ledgers, who heals, and what goes wrong; from the seed."""

import random
from dataclasses import dataclass, replace
from enum import Enum

from tests.sim.ledger.plan import LedgerPlan, WorldPlan

_WIDTHS = ((3, 3, 2), (3, 3, 2), (2, 2, 2), (3, 2, 2), (4, 3, 2), (4, 3, 3), (5, 3, 2))
_SAFE_WIDTHS = ((3, 3, 3), (4, 3, 3), (5, 3, 3))
"""Two bookies may be lost at once."""


class Choice(Enum):
    """Which bookie is drained."""

    ANY = "any"
    EMPTIEST = "emptiest"
    """The one that fewest ledgers name: its drain ends soon."""
    NEWEST = "newest"
    """One that the newest ledger names."""
    OPEN = "open"
    """The one that most open ledgers name, of those whose writers die if there are such."""
    TARGET = "target"
    """One that next to no ledger names, and a copy or a recovery adds to, by a process that is cut
    off from the metadata store then: it names the bookie when it comes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainPlan:
    """One drain, and what becomes of it."""

    start_s: float
    choice: Choice
    is_down: bool
    """The bookie crashes just before, and comes back in the midst of its drain."""
    is_slow: bool
    """The bookie hears of it late: it has lost its connection to the metadata store."""
    slow_s: float
    may_fence: bool
    is_cancelled: bool
    cancel_after_s: float
    is_removed: bool
    is_installed: bool
    """The id returns as a new bookie after its removal."""
    is_recoverers_target: bool
    """Where a target is chosen: of a recovery, else of a copy."""
    accepts_loss: bool
    """When it fails the operator names the ledgers that are left as lost: first too few of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryByHand:
    """What an operator copies with `bookie bookies recover`."""

    start_s: float
    will_fence: bool
    dies: bool
    """The process, once, on its way."""
    is_back_and_forth: bool
    """Not a bookie is emptied: a ledger is taken away from one, and back."""
    is_back_slow: bool
    """The way back takes as long as a collection is waited for; else it begins with one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rot:
    """An entry that is damaged where it lies."""

    start_s: float
    will_scrub: bool
    """The bookie is told to check its entries; else a read meets the damage."""
    is_other_garbled: bool
    """Another bookie answers something else for the same entry, while faults last."""


class Loss(Enum):
    """How a bookie loses what it has."""

    MACHINE = "machine"
    DIRECTORY = "directory"
    """One of its disks; it goes on without."""
    COOKIE = "cookie"
    """A tool deletes its cookie: it has to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryPlan:
    """One seed of tests/sim/recovery."""

    world: WorldPlan
    lone_healer_count: int
    """AutoRecovery processes without a bookie: their workers place by policy."""
    has_local_healers: bool
    """Every bookie has one beside it, which dies and comes back with it."""
    losses: tuple[Loss, ...]
    """Of bookies that lose what they have for good."""
    is_lost_at_once: bool
    returning_count: int
    """Bookies that crash and come back."""
    read_only_count: int
    healer_crash_count: int
    death_writes: tuple[int, ...]
    """At which of their writes to the metadata store auditors and workers die."""
    vote_loss_count: int
    """Votes of acting auditors that an operator removes."""
    lock_loss_count: int
    """Sessions of workers that end in mid-work."""
    delete_count: int
    grace_s: float
    bookie_check_interval_s: float
    """Long ones leave to the first audit what it finds."""
    lost_bookie_delay_s: int
    switch_is_used: bool
    """AutoRecovery is off for a while."""
    copy_bytes_per_s: int | None
    are_entries_checked: bool
    """The auditor asks for lists of entries: copies that were never made are found, too."""
    drains: tuple[DrainPlan, ...]
    by_hand: RecoveryByHand | None
    rot: Rot | None
    is_decommissioned: bool
    """A lost bookie is forgotten."""
    stale_ledgers: frozenset[int]
    """By number: their creators' metadata servers lag behind, so they know older bookies."""
    is_first_recovered_slowly: bool
    """The first ledger is recovered over slow links, and a member crashes meanwhile: entries lie on
    a bookie that the metadata does not name yet."""
    is_first_left_open: bool
    """The first ledger is recovered after a member lost a directory, while the other is away."""
    has_apache_worker: bool
    returned_copy_wait_s: float
    flush_interval_s: float
    poll_interval_s: float


def draw_plan(rng: random.Random) -> RecoveryPlan:
    """Small ledgers of usual widths; bookies enough that every ledger can be made whole."""
    is_busy = rng.random() < 0.3
    widths = _SAFE_WIDTHS if rng.random() < 0.25 else _WIDTHS
    ledgers = tuple(_draw_ledger(rng, widths, is_busy) for _ in range(rng.choice((2, 3, 4, 6))))
    drains = _draw_drains(rng)
    if drains:
        first = len(ledgers) // 2
        slow = [drain for drain in drains if drain.is_slow] or drains
        beside = [_beside_a_drain(rng, ledger, rng.choice(slow)) for ledger in ledgers[first:]]
        ledgers = (*ledgers[:first], *beside)
    if not all(drain.may_fence for drain in drains):
        ledgers = (*ledgers[:-2], *map(_abandoned, ledgers[-2:]))
    is_slow = rng.random() < 0.12
    if is_slow:
        ledgers = (_recovered_slowly(ledgers[0]), *ledgers[1:])
        drains = (*map(_of_a_recovery, drains[:1]), *drains[1:])
    lost_max = min(ledger.ack_quorum_size for ledger in ledgers) - 1
    rot = _draw_rot(rng) if rng.random() < 0.15 else None
    losses = tuple(
        rng.choices(list(Loss), (0.7, 0.18, 0.12), k=min(lost_max, rng.choice((1, 1, 2))))
        if not is_slow and rot is None  # or too few are left for the recovery to go on
        else ()
    )
    is_directory_lost = Loss.DIRECTORY in losses
    is_left_open = is_directory_lost and lost_max == 1
    if is_left_open:
        ledgers = (_left_open(ledgers[0]), *ledgers[1:])
    widest = max(ledger.ensemble_size for ledger in ledgers)
    read_only_count = rng.choice((0, 0, 1))
    has_local = rng.random() < 0.6
    by_hand = _draw_by_hand(rng) if rng.random() < 0.3 else None
    return RecoveryPlan(
        world=WorldPlan(
            bookie_count=widest
            + len(losses)
            + read_only_count
            + len(drains)
            + (by_hand is not None)
            + rng.choice((0, 0, 1, 2)),
            sync_s=rng.choice((0.000_5, 0.001, 0.002)),
            slow_link_share=rng.choice((0.0, 0.0, 0.2)),
            churn=0.0,
            fault_count=0,
            store_trouble=rng.choice((0.0, 0.0, 0.01, 0.05)),
            repeat_share=0.0,
            timeout_s=0.25,
            speculative_read_s=0.06,
            recovery_read_ahead=rng.choice((1, 4)),
            is_change_delayed=False,
            explicit_lac=False,
            ledgers=ledgers,
        ),
        lone_healer_count=rng.choice((1, 2, 3)) if has_local else rng.choice((2, 3)),
        has_local_healers=has_local,
        losses=losses,
        is_lost_at_once=rng.random() < 0.3,
        returning_count=rng.choice((0, 0, 1, 2)),
        read_only_count=read_only_count,
        healer_crash_count=rng.choice((0, 0, 1, 3)),
        vote_loss_count=rng.choice((0, 1, 2)),
        lock_loss_count=rng.choice((0, 0, 1, 2)),
        delete_count=rng.choice((0, 0, 1)),
        grace_s=rng.choice((0.1, 0.4)),
        bookie_check_interval_s=rng.choice((1.0, 4.0)),
        lost_bookie_delay_s=rng.choice((0, 0, 0, 1)),
        switch_is_used=rng.random() < 0.1,
        are_entries_checked=is_directory_lost or rng.random() < 0.3,
        drains=drains,
        by_hand=by_hand,
        rot=rot,
        is_decommissioned=Loss.MACHINE in losses and rng.random() < 0.3,
        death_writes=tuple(rng.randrange(1, 300) for _ in range(rng.choice((0, 0, 1, 3)))),
        stale_ledgers=frozenset(
            number for number in range(len(ledgers)) if drains and rng.random() < 0.15
        ),
        is_first_recovered_slowly=is_slow,
        is_first_left_open=is_left_open,
        has_apache_worker=rng.random() < (0.55 if drains else 0.1),
        returned_copy_wait_s=0.1 if is_slow else rng.choice((0.4, 1.0)),
        flush_interval_s=0.02 if is_directory_lost else rng.choice((0.02, 0.2)),
        poll_interval_s=0.1 if any(d.is_slow for d in drains) else rng.choice((0.1, 0.2)),
        copy_bytes_per_s=10_000 if is_busy else rng.choice((None, None, 50_000)),
    )


def _draw_drains(rng: random.Random) -> tuple[DrainPlan, ...]:
    """Return up to three, often begun together."""
    count = rng.choice((0, 0, 1, 1, 1, 2, 3))
    are_together = rng.random() < 0.5
    start_s = 0.05 + rng.random() * rng.choice((0.2, 1.0))
    return tuple(
        _draw_drain(rng, start_s if are_together else 0.05 + rng.random()) for _ in range(count)
    )


def _draw_drain(rng: random.Random, start_s: float) -> DrainPlan:
    is_slow = rng.random() < 0.35
    may_fence = is_slow or rng.random() < 0.6
    is_removed = rng.random() < 0.5
    choices = (Choice.ANY, Choice.EMPTIEST, Choice.NEWEST, *[Choice.TARGET] * 3)
    if is_slow:
        choices = (Choice.EMPTIEST,)
    choice = rng.choice(choices) if may_fence else Choice.OPEN
    is_target = choice is Choice.TARGET
    return DrainPlan(
        start_s=min(start_s, 0.2) if is_slow or is_target else start_s,
        choice=choice,
        is_down=not (is_slow or is_target) and rng.random() < 0.3,
        is_slow=is_slow,
        slow_s=rng.choice((0.3, 0.9, 0.9)),
        may_fence=may_fence,
        is_cancelled=not is_target and rng.random() < 0.15,
        cancel_after_s=rng.random(),
        is_removed=is_removed,
        # A cookie that is made anew begins at version 0: one who is silent for so long sees none.
        is_installed=is_removed and not is_target and rng.random() < 0.6,
        is_recoverers_target=rng.random() < 0.5,
        accepts_loss=rng.random() < 0.5,
    )


def _of_a_recovery(plan: DrainPlan) -> DrainPlan:
    """Drain what a recovery brings in."""
    return replace(
        plan,
        start_s=0.05,
        choice=Choice.TARGET,
        is_recoverers_target=True,
        is_down=False,
        is_slow=False,
        is_cancelled=False,
        is_installed=False,
    )


def _draw_by_hand(rng: random.Random) -> RecoveryByHand:
    return RecoveryByHand(
        start_s=0.1 + rng.random(),
        will_fence=rng.random() < 0.6,
        dies=rng.random() < 0.4,
        is_back_and_forth=rng.random() < 0.4,
        is_back_slow=rng.random() < 0.3,
    )


def _draw_rot(rng: random.Random) -> Rot:
    return Rot(
        start_s=0.2 + 0.6 * rng.random(),
        will_scrub=rng.random() < 0.7,
        is_other_garbled=rng.random() < 0.6,
    )


def _beside_a_drain(rng: random.Random, plan: LedgerPlan, drain: DrainPlan) -> LedgerPlan:
    """Let a ledger be created shortly before a drain, or under way; late if its bookie is.

    Most of those of a bookie that hears late are made just before it does, on many bookies: then it
    has taken entries of a ledger that is younger than what a server may show that lags behind.
    """
    if drain.is_slow and rng.random() < 0.85:
        start_s = drain.start_s + drain.slow_s - 0.03 - 0.07 * rng.random()
        count = max(plan.entry_count, 5)
        return replace(plan, ensemble_size=5, start_s=start_s, entry_count=count, pause_s=0.0)
    low, high = rng.choice(((-0.1, 0.0), (0.0, 1.0)))
    start_s = drain.start_s + low + (high - low) * rng.random()
    return replace(plan, start_s=max(0.0, start_s), pause_s=min(plan.pause_s, 0.02))


def _abandoned(plan: LedgerPlan) -> LedgerPlan:
    """Its writer dies and leaves it open: where none may be fenced a drain of its bookie fails."""
    return replace(
        plan,
        ensemble_size=max(4, plan.ensemble_size),
        start_s=0.0,
        entry_count=max(2, plan.entry_count),
        will_close=False,
        writer_dies=True,
        recoverer_count=0,
    )


def _draw_ledger(
    rng: random.Random, widths: tuple[tuple[int, int, int], ...], is_busy: bool
) -> LedgerPlan:
    """A busy one is written for as long as its first segments are being copied."""
    ensemble, write_quorum, ack_quorum = rng.choice(widths)
    return LedgerPlan(
        ensemble_size=ensemble,
        write_quorum_size=write_quorum,
        ack_quorum_size=ack_quorum,
        start_s=rng.random() * 0.05,
        entry_count=30 if is_busy else rng.choice((0, 1, 2, 5, 8, 20)),
        window=rng.choice((1, 4, 8)),
        pause_s=rng.choice((0.06, 0.1)) if is_busy else rng.choice((0.0, 0.002, 0.02, 0.1)),
        payload_bytes_max=3000 if is_busy else rng.choice((8, 200, 3000)),
        digest=rng.choice(("CRC32C", "CRC32C", "CRC32", "HMAC", "DUMMY")),
        is_deferred=False,
        will_close=is_busy or rng.random() < 0.5,
        writer_dies=not is_busy and rng.random() < 0.25,
        recoverer_count=0 if is_busy else rng.choice((0, 0, 1)),
        recover_at=rng.choice((0.3, 1.0)),
        tailer_count=0,
    )


def _recovered_slowly(plan: LedgerPlan) -> LedgerPlan:
    """Many entries are beyond the LAC, and the writer closes nothing."""
    return replace(
        plan,
        start_s=0.0,
        entry_count=12,
        window=12,
        pause_s=0.0,
        payload_bytes_max=200,
        will_close=False,
        writer_dies=False,
        recoverer_count=1,
    )


def _left_open(plan: LedgerPlan) -> LedgerPlan:
    """One denial of a member is enough to end the ledger there."""
    return replace(
        plan,
        ensemble_size=2,
        write_quorum_size=2,
        ack_quorum_size=2,
        start_s=0.0,
        entry_count=5,
        pause_s=0.002,
        payload_bytes_max=200,
        will_close=False,
        recoverer_count=1,
    )
