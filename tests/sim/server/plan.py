"""What a seed's world is like: drawn from the seed alone."""

import random
from dataclasses import dataclass

from tests.sim.lines import CHANGES, LINED, OUTCOMES


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldPlan:
    """A server, its clients, what goes wrong."""

    client_count: int
    transaction_count: int
    """Of each client."""
    pause_s: float
    """Between the transactions of a client, at most."""
    worker_count: int
    durability: str
    """sync: what is acknowledged outlives a power failure."""
    sync_s: float
    """How long a step of the disk takes, at most."""
    worker_pause_s: float
    """Before a worker begins a job, at most."""
    loop_sync_us: int
    log_file_bytes: int
    checkpoint_log_bytes: int
    transaction_memory_bytes: int
    preemption: float
    fault_count: int
    link_delay_s: float
    is_small_disk: bool
    connections_max: int
    is_aio: bool
    """Half of the clients use herdpy.aio."""
    alone_share: float
    """Of the transactions: theirs is a statement with autocommit."""
    repeatable_share: float
    """Of the transactions: theirs is one snapshot."""
    is_pooled: bool
    """The other half lend connections from a pool, which repeats what is safe to repeat."""
    tablespace: str
    statement_timeout_s: float
    """Of the clients' statements; 0: none."""
    idle_timeout_s: float
    """A client's connection may be idle in a transaction for so long; 0: for ever."""
    bulk_share: float
    """Of the transactions: theirs is a bulk, a pipeline, a staged job or a lease."""
    is_relaxed: bool
    """Half of the clients do not wait for the disk where a statement is a transaction."""
    register_share: float
    """Of the transactions: theirs raises a register, or reads some."""
    has_small_sizes: bool
    """Pages of few rows, statements in parts of three rows."""
    line_share: float
    """Of the statements of the log and what applies it, before which a thread is stopped."""
    line_modules: tuple[str, ...]
    """Where these statements stand."""
    has_indexes: bool
    """The tables have indexes, and accounts are read by one."""
    job_rows: int = 2
    """That a staged job has."""


def draw_plan(rng: random.Random) -> WorldPlan:
    """Few rows that many want, small files, tight timings."""
    return WorldPlan(
        client_count=rng.choice((2, 3, 4, 6)),
        transaction_count=rng.choice((8, 15, 25)),
        pause_s=rng.choice((0.0, 0.001, 0.01)),
        worker_count=rng.choice((1, 2, 4)),
        durability="sync",
        sync_s=rng.choice((0.0, 0.000_5, 0.002, 0.01)),
        worker_pause_s=rng.choice((0.0, 0.000_1, 0.001)),
        loop_sync_us=0,
        log_file_bytes=rng.choice((16, 64, 256)) * 1024,
        checkpoint_log_bytes=rng.choice((64, 128, 256)) * 1024,
        transaction_memory_bytes=rng.choice((64 * 1024 * 1024, 4 * 1024)),
        preemption=rng.choice((0.0, 0.0, 0.02, 0.1)),
        fault_count=rng.choice((0, 2, 3, 5, 8)),
        link_delay_s=rng.choice((0.000_05, 0.000_5, 0.003)),
        is_small_disk=rng.random() < 0.15,
        connections_max=rng.choice((100, 100, 100, 100, 3)),
        is_aio=rng.random() < 0.3,
        alone_share=rng.choice((0.0, 0.3, 0.8)),
        repeatable_share=rng.choice((0.0, 0.3, 0.7)),
        is_pooled=rng.random() < 0.5,
        tablespace=rng.choice(("default", "default", "default", "sales")),
        statement_timeout_s=rng.choice((0.0, 0.0, 0.0, 0.000_2, 0.000_5, 0.003)),
        idle_timeout_s=rng.choice((0.0, 0.0, 0.0, 0.001)),
        bulk_share=rng.choice((0.0, 0.0, 0.2, 0.5)),
        is_relaxed=rng.random() < 0.2,
        has_small_sizes=rng.random() < 0.25,
        register_share=rng.choice((0.0, 0.2, 0.5)),
        line_share=rng.choice((*[0.0] * 3, 0.02, 0.1, 0.3, 0.3)),
        has_indexes=rng.random() < 0.4,
        line_modules=rng.choice((LINED, OUTCOMES, CHANGES)),
    )
