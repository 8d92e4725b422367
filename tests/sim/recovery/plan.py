"""What a seed's world is like: bookies, ledgers, who heals, and what goes wrong; from the seed."""

import random
from dataclasses import dataclass

from tests.sim.ledger.plan import LedgerPlan, WorldPlan

_WIDTHS = ((3, 3, 2), (3, 3, 2), (2, 2, 2), (3, 2, 2), (4, 3, 2), (4, 3, 3), (5, 3, 2))
_SAFE_WIDTHS = ((3, 3, 3), (4, 3, 3), (5, 3, 3))
"""Two bookies may be lost at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryPlan:
    """One seed of tests/sim/recovery."""

    world: WorldPlan
    lone_healer_count: int
    """AutoRecovery processes without a bookie: their workers place by policy."""
    has_local_healers: bool
    """Every bookie has one beside it, which dies and comes back with it."""
    lost_count: int
    """Bookies that go for good."""
    is_lost_at_once: bool
    returning_count: int
    """Bookies that crash and come back."""
    read_only_count: int
    healer_crash_count: int
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


def draw_plan(rng: random.Random) -> RecoveryPlan:
    """Small ledgers of usual widths; bookies enough that every ledger can be made whole."""
    is_busy = rng.random() < 0.3
    widths = _SAFE_WIDTHS if rng.random() < 0.2 else _WIDTHS
    ledgers = tuple(_draw_ledger(rng, widths, is_busy) for _ in range(rng.choice((2, 3, 4, 6))))
    widest = max(ledger.ensemble_size for ledger in ledgers)
    lost_max = min(ledger.ack_quorum_size - 1 for ledger in ledgers)
    lost_count = min(lost_max, rng.choice((1, 1, 2)))
    read_only_count = rng.choice((0, 0, 1))
    has_local = rng.random() < 0.6
    return RecoveryPlan(
        world=WorldPlan(
            bookie_count=widest + lost_count + read_only_count + rng.choice((0, 0, 1, 2)),
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
        lost_count=lost_count,
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
        are_entries_checked=rng.random() < 0.3,
        copy_bytes_per_s=10_000 if is_busy else rng.choice((None, None, 50_000)),
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
