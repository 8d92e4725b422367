"""What a seed's world is like, and each ledger in it: drawn from the seed alone."""

import random
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerPlan:
    """One ledger, and the clients that use it."""

    ensemble_size: int
    write_quorum_size: int
    ack_quorum_size: int
    start_s: float
    """When its writer comes."""
    entry_count: int
    window: int
    """Adds under way at once."""
    pause_s: float
    """Between adds, on average."""
    payload_bytes_max: int
    digest: str
    is_deferred: bool
    will_close: bool
    """The writer closes when all is written; else it stays, idle."""
    writer_dies: bool
    recoverer_count: int
    recover_at: float
    """When the first recoverer comes: in parts of the entries acknowledged."""
    tailer_count: int
    script: str | None = None
    """See tests/sim/ledger/scripts.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldPlan:
    """Bookies, network, faults, and the ledgers."""

    bookie_count: int
    sync_s: float
    """How long a job on a healthy disk takes, on average."""
    slow_link_share: float
    churn: float
    """How rough the network between clients and bookies is all the time."""
    fault_count: int
    store_trouble: float
    """How often a request to the metadata store goes wrong."""
    repeat_share: float
    """How often what a client sent comes a second time, later."""
    timeout_s: float
    """Of a client's adds and reads."""
    speculative_read_s: float
    recovery_read_ahead: int
    is_change_delayed: bool
    explicit_lac: bool
    ledgers: tuple[LedgerPlan, ...]

    @property
    def lost_bookies_max(self) -> int:
        """How many may lose their disks: an ack quorum always leaves one, and an ensemble fits."""
        return max(
            0,
            min(
                min(ledger.ack_quorum_size - 1, self.bookie_count - ledger.ensemble_size)
                for ledger in self.ledgers
            ),
        )


def draw_plan(rng: random.Random) -> WorldPlan:
    """Small ledgers, tight timings, and the widths that clusters use more often than others."""
    ledgers = tuple(_draw_ledger(rng, number) for number in range(rng.choice((1, 2, 3, 4))))
    patient = any(ledger.script == "split recovery" for ledger in ledgers)
    widest = max(ledger.ensemble_size for ledger in ledgers)
    return WorldPlan(
        bookie_count=max(rng.choice((3, 4, 4, 5, 5, 6, 6, 7)), widest),
        sync_s=rng.choice((0.000_5, 0.001, 0.001, 0.002, 0.01)),
        slow_link_share=rng.choice((0.0, 0.2, 0.5)),
        churn=rng.choice((0.0, 0.0, 0.0, 0.15, 0.4)),
        fault_count=rng.choice((0, 1, 2, 4, 6, 8, 12, 16)),
        store_trouble=rng.choice((0.0, 0.0, 0.02, 0.1)),
        repeat_share=rng.choice((0.0, 0.0, 0.02, 0.1)),
        timeout_s=0.5 if patient else 0.25,
        speculative_read_s=0.06 if patient else rng.choice((0.0, 0.005, 0.02, 0.06)),
        recovery_read_ahead=rng.choice((1, 1, 2, 16)),
        is_change_delayed=rng.random() < 0.25,
        explicit_lac=rng.random() < 0.3,
        ledgers=ledgers,
    )


def _draw_ledger(rng: random.Random, number: int) -> LedgerPlan:
    if rng.random() < 0.5:
        sizes = rng.choice(((3, 3, 2), (3, 3, 2), (2, 2, 2), (3, 2, 2), (2, 2, 1), (4, 3, 2)))
    else:
        ensemble = rng.randint(1, 5)
        quorum = rng.randint(1, ensemble)
        sizes = (ensemble, quorum, rng.randint(1, quorum))
    pause_s = rng.choice((0.0, 0.0, 0.001, 0.005, 0.02, 0.06))
    few = (0, 1, 2, 3, 5, 8)
    plan = LedgerPlan(
        ensemble_size=sizes[0],
        write_quorum_size=sizes[1],
        ack_quorum_size=sizes[2],
        start_s=rng.random() * 0.05 if number else 0.0,
        entry_count=rng.choice(few if pause_s > 0.01 else (*few, 13, 20, 30)),
        window=rng.choice((1, 2, 4, 8, 16)),
        pause_s=pause_s,
        payload_bytes_max=rng.choice((8, 40, 200, 3000)) if rng.random() < 0.95 else 40_000,
        digest=rng.choice(("CRC32C", "CRC32C", "CRC32", "HMAC", "DUMMY")),
        is_deferred=rng.random() < 0.06,
        will_close=rng.random() < 0.3,
        writer_dies=rng.random() < 0.2,
        recoverer_count=rng.choice((1, 1, 1, 2, 2, 3)),
        recover_at=rng.choice((0.0, 0.3, 0.6, 0.9, 1.0)),
        tailer_count=rng.choice((0, 0, 1, 1, 2)),
    )
    if rng.random() < 0.1:
        plan = _scripted(rng, plan)
    return plan


def _scripted(rng: random.Random, plan: LedgerPlan) -> LedgerPlan:
    """Make room for a script: a living writer, one recoverer, no end of its own."""
    script = rng.choice(("lost fence", "split recovery"))
    if script == "lost fence":
        sizes = rng.choice(((1, 1, 1), (2, 2, 2), (2, 1, 1), (3, 1, 1), (3, 2, 2)))
    else:
        sizes = rng.choice(((2, 2, 2), (2, 2, 2), (3, 2, 2), (4, 2, 2)))
    return replace(
        plan,
        script=script,
        ensemble_size=sizes[0],
        write_quorum_size=sizes[1],
        ack_quorum_size=sizes[2],
        entry_count=3 if script == "lost fence" else rng.choice((1, 1, 3)),
        pause_s=0.06 if script == "lost fence" else 0.0,
        payload_bytes_max=40,
        is_deferred=False,
        will_close=False,
        writer_dies=False,
        recoverer_count=1,
        recover_at=0.0,
    )
