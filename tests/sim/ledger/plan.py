"""Plan: what a seed's ledger is like, who uses it, and how rough its world is."""

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Drawn from the seed alone."""

    bookie_count: int
    ensemble_size: int
    write_quorum_size: int
    ack_quorum_size: int
    entry_count: int
    window: int
    """Adds under way at once."""
    pause_s: float
    """Between adds, on average."""
    payload_bytes_max: int
    digest: str
    is_deferred: bool
    is_change_delayed: bool
    will_close: bool
    """The writer closes when all is written; else it stays, idle."""
    writer_dies: bool
    recoverer_count: int
    recover_at: float
    """When the first recoverer comes: in parts of the entries acknowledged."""
    tailer_count: int
    slow_link_share: float
    fault_count: int
    store_trouble: float
    """How often a request to the metadata store goes wrong."""
    explicit_lac: bool
    repeat_share: float
    """How often what a client sent comes a second time, later."""

    @property
    def lost_bookies_max(self) -> int:
        """How many may lose their disks: an ack quorum always leaves one, and an ensemble fits."""
        spare = self.bookie_count - self.ensemble_size
        return max(0, min(self.ack_quorum_size - 1, spare))


def draw_plan(rng: random.Random) -> Plan:
    """Small ledgers, tight timings, and the widths that clusters use more often than others."""
    bookie_count = rng.choice((3, 4, 4, 5, 5, 6, 6, 7))
    if rng.random() < 0.4:
        sizes = rng.choice(((3, 3, 2), (3, 2, 2), (2, 2, 1), (4, 3, 2), (5, 3, 2), (3, 2, 1)))
    else:
        ensemble = rng.randint(1, 5)
        quorum = rng.randint(1, ensemble)
        sizes = (ensemble, quorum, rng.randint(1, quorum))
    ensemble_size, write_quorum_size, ack_quorum_size = sizes
    bookie_count = max(bookie_count, ensemble_size)
    style = rng.random()
    return Plan(
        bookie_count=bookie_count,
        ensemble_size=ensemble_size,
        write_quorum_size=write_quorum_size,
        ack_quorum_size=ack_quorum_size,
        entry_count=rng.choice((0, 1, 2, 3, 5, 8, 13, 20)) if style < 0.9 else 40,
        window=rng.choice((1, 2, 4, 8)),
        pause_s=rng.choice((0.0, 0.0, 0.001, 0.005, 0.02)),
        payload_bytes_max=rng.choice((8, 40, 200, 3000)) if rng.random() < 0.9 else 40_000,
        digest=rng.choice(("CRC32C", "CRC32C", "CRC32", "HMAC", "DUMMY")),
        is_deferred=rng.random() < 0.06,
        is_change_delayed=rng.random() < 0.25,
        will_close=rng.random() < 0.35,
        writer_dies=rng.random() < 0.25,
        recoverer_count=rng.choice((1, 1, 1, 2, 2, 3)),
        recover_at=rng.choice((0.0, 0.3, 0.6, 0.9, 1.0)),
        tailer_count=rng.choice((0, 0, 1, 1, 2)),
        slow_link_share=rng.choice((0.0, 0.2, 0.5)),
        fault_count=rng.choice((0, 1, 2, 3, 4, 6, 8, 12)),
        store_trouble=rng.choice((0.0, 0.0, 0.05, 0.15)),
        explicit_lac=rng.random() < 0.3,
        repeat_share=rng.choice((0.0, 0.0, 0.02, 0.1)),
    )
