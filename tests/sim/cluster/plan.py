"""What a seed's cluster is like: drawn from the seed alone."""

import random
from dataclasses import asdict, dataclass, replace
from typing import Any

from tests.sim.server import plan as server
from tests.sim.server.plan import draw_plan as draw_server_plan


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldPlan(server.WorldPlan):
    """Nodes, bookies, clients, what goes wrong; of bookies as in tests/sim/ledger/plan.py."""

    node_count: int
    bookie_count: int
    ledger_bytes_max: int
    ledger_age_s: float
    timeout_s: float
    """Of adds and reads at bookies."""
    speculative_read_s: float
    is_change_delayed: bool
    explicit_lac: bool
    recovery_read_ahead: int
    store_trouble: float
    repeat_share: float
    handover_drain_s: float
    hands_over: bool
    """In the end each node is handed the part; else it takes it."""
    slow_link_share: float
    checkpoint_interval_s: float
    is_long: bool
    """Its clients live for longer than sessions with the metadata store do."""
    reader_count: int = 0
    """Programs that read on nodes that follow."""
    churn: float = 0.0
    is_maintained: bool = False
    """Nodes that follow checkpoint and compact all the time, on a slow disk that fails at times."""
    is_secured: bool = False
    """All sessions with the metadata store log in, and its nodes are for them."""
    has_readers: bool = False
    """Drivers then have a login of their own, which may read what they need."""
    tablespace_count: int = 1
    """Each node has a copy of each, and each has leaders and clients of its own."""
    acknowledged_min: int = 0
    """Transactions that clients are told of, before they end."""
    ledgers: tuple[()] = ()
    """None but the tablespace's."""


_LONG: dict[str, Any] = {
    "is_long": True,
    "pause_s": 0.12,
    "client_count": 6,
    "transaction_count": 40,
    "register_share": 0.8,
    "alone_share": 0.0,
    "bulk_share": 0.0,
}
"""For longer than sessions last; most of what is done is about registers."""

_LINE_SHARE_MAX = 0.015
_LINED = 0.55
_TIMEOUT_OF_STOPPED_S = 0.5
_TWO_SHARE = 0.15
"""Of the seeds: their nodes have copies of two tablespaces."""
_SECURED_SHARE = 0.3


def draw_plan(rng: random.Random) -> WorldPlan:
    """Few rows that many want, small ledgers, tight timings."""
    served = replace(
        draw_server_plan(rng),
        tablespace="default",
        is_small_disk=False,
        connections_max=100,
        client_count=rng.choice((4, 5, 6)),
        bulk_share=rng.choice((0.0, 0.0, 0.1, 0.25)),
        sync_s=rng.choice((0.0, 0.000_5, 0.002)),
        checkpoint_log_bytes=rng.choice((64, 128, 256)) * 1024,
        fault_count=rng.choice((6, 9, 14)),
        register_share=rng.choice((0.0, 0.3, 0.7)),
    )
    drawn: dict[str, Any] = {**asdict(served), "is_long": False}
    if rng.random() < 0.2:
        drawn |= _LONG
    plan = WorldPlan(
        **drawn,
        node_count=rng.choice((3, 3, 3, 3, 4, 5)),
        bookie_count=rng.choice((3, 3, 4, 5)),
        ledger_bytes_max=rng.choice((2, 8, 32, 256)) * 1024,
        ledger_age_s=rng.choice((0.15, 10.0)),
        timeout_s=0.25,
        speculative_read_s=rng.choice((0.0, 0.02)),
        is_change_delayed=rng.random() < 0.7,
        explicit_lac=True,
        recovery_read_ahead=rng.choice((1, 2, 16)),
        store_trouble=rng.choice((0.0, 0.0, 0.02, 0.1)),
        repeat_share=rng.choice((0.0, 0.0, 0.0, 0.02)),
        slow_link_share=rng.choice((0.0, 0.0, 0.2)),
        checkpoint_interval_s=30.0,
        handover_drain_s=rng.choice((0.02, 0.2, 2.0)),
        hands_over=rng.random() < 0.5,
    )
    plan = replace(plan, reader_count=2 if plan.is_long else rng.choice((0, 1)))
    plan = replace(plan, checkpoint_interval_s=rng.choice((1.0, 30.0)))
    if rng.random() < _TWO_SHARE:
        line_share = rng.choice((0.0, plan.line_share))
        plan = replace(plan, tablespace_count=2, node_count=3, line_share=line_share)
    # A stop costs the simulation more here, where there are more threads: a fifth of the seeds.
    line_share = min(plan.line_share, _LINE_SHARE_MAX) if rng.random() < _LINED else 0.0
    plan = replace(plan, line_share=line_share)
    if plan.line_share and plan.statement_timeout_s:
        # Threads that are stopped for milliseconds would end few statements within less.
        plan = replace(plan, statement_timeout_s=_TIMEOUT_OF_STOPPED_S)
    is_secured = rng.random() < _SECURED_SHARE
    plan = replace(plan, is_secured=is_secured, has_readers=is_secured and rng.random() < 0.6)
    if plan.is_long or rng.random() < 0.87:
        return plan
    # Jobs of more rows than go one by one, beside what nodes that follow do with theirs.
    return replace(
        plan,
        node_count=3,
        job_rows=12,
        has_small_sizes=True,
        bulk_share=0.3,
        sync_s=0.002,
        is_maintained=True,
    )
