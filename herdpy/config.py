"""What a user may tune, as frozen dataclasses; every field has unit, default, range and reason.

Config is a database's, ServerConfig a server's, NodeConfig that of a node of a cluster. Their
values come from arguments, or from a file, the environment and flags (cli/settings.py).
docs/reference/config.md is generated from this file and compared by a test.
"""

from dataclasses import dataclass, field, fields, replace
from typing import Any

from herdpy.limits import timeout_seconds_max

MIB = 1024 * 1024
INACTIVITY_LIMIT_S_MIN = 5.0
"""Less would take a machine that is busy for one that hangs."""


def _setting(default: Any, low: float, high: float, unit: str, why: str) -> Any:
    return field(default=default, metadata={"low": low, "high": high, "unit": unit, "why": why})


def _text(default: str, why: str, choices: tuple[str, ...] = ()) -> Any:
    """Return a field of text; with choices it is one of them."""
    return field(default=default, metadata={"choices": choices, "unit": "text", "why": why})


def _check(config: Any) -> None:
    """Raise TypeError or ValueError, naming the field."""
    for item in fields(config):
        value, meta = getattr(config, item.name), item.metadata
        if meta["unit"] == "text":
            if not isinstance(value, str):
                raise TypeError(f"{item.name}: expected text, found {value!r}")
            if meta["choices"] and value not in meta["choices"]:
                raise ValueError(
                    f"{item.name}: expected one of {', '.join(meta['choices'])}, found {value!r}"
                )
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(f"{item.name}: expected a number, found {value!r}")
        if not meta["low"] <= value <= meta["high"]:
            raise ValueError(
                f"{item.name}: expected {meta['low']} to {meta['high']} {meta['unit']}, "
                f"found {value}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Settings of one open database. A second connect() must ask for equal ones."""

    memory_bytes_max: int = _setting(
        1024 * MIB, 16 * MIB, 2**46, "bytes", "one budget for memtables, caches and DuckDB"
    )
    memtable_share: float = _setting(
        0.4, 0.05, 0.8, "share", "of memory_bytes_max; over it: checkpoint"
    )
    cache_share: float = _setting(
        0.2, 0.0, 0.8, "share", "of memory_bytes_max, for row and batch caches"
    )
    vector_share: float = _setting(
        0.4, 0.05, 0.8, "share", "of memory_bytes_max, DuckDB's memory_limit"
    )
    checkpoint_log_bytes: int = _setting(
        64 * MIB, 64 * 1024, 2**40, "bytes", "log since the last checkpoint that triggers the next"
    )
    checkpoint_interval_s: float = _setting(
        30.0,
        1.0,
        86_400.0,
        "seconds",
        "between checkpoints at most while the log grows, by a 64th of checkpoint_log_bytes: "
        "what is replayed when it is opened; "
        "longer: less is written",
    )
    log_file_bytes_first: int = _setting(
        1 * MIB, 4096, 2**30, "bytes", "size of the first pre-zeroed log file; then doubled"
    )
    log_file_bytes_max: int = _setting(
        64 * MIB, 4096, 2**30, "bytes", "log files stop doubling here"
    )
    disk_reserve_bytes: int = _setting(
        64 * MIB,
        0,
        2**40,
        "bytes",
        "of the disk, kept so that DELETE, DROP, COMMIT and checkpoints work when it is full; at "
        "most a 16th of the disk, or 2 MiB; 0: none",
    )
    transaction_memory_bytes: int = _setting(
        256 * MIB,
        1024,
        2**46,
        "bytes",
        "changes that a transaction holds in memory, at most half of memory_bytes_max",
    )
    version_memory_bytes: int = _setting(
        256 * MIB,
        1024,
        2**46,
        "bytes",
        "for old snapshots, at most half of memory_bytes_max; over it 72000 for the oldest",
    )
    vector_results_max: int = _setting(
        32, 1, 10_000, "results", "unfinished vector results (2-3 MB each); the next is 53200"
    )
    vector_spill_bytes_max: int = _setting(
        16 * 1024 * MIB,
        1 * MIB,
        2**46,
        "bytes",
        "that big queries together spill to default/temp, of a node to temp; the one that needs "
        "more fails with 53200",
    )
    vector_threads: int = _setting(0, 0, 1024, "threads", "DuckDB's threads; 0 = cores - 1")
    plan_cache_entries_max: int = _setting(1_000, 0, 10**6, "plans", "parsed statements kept")
    plan_cache_bytes_max: int = _setting(
        16 * MIB, 0, 2**40, "bytes", "statement text kept with them"
    )
    compaction_bytes_per_s: int = _setting(
        32 * MIB, 64 * 1024, 2**40, "bytes/s", "budget of background compaction"
    )
    vector_rows_min: int = _setting(
        10_000, 0, 2**40, "rows", "estimated rows from which a filter scans by the vector path"
    )

    staging_timeout_s: float = _setting(
        3_600.0, 1, 30 * 86_400, "seconds", "until a staging that is not used is given up"
    )
    staging_bytes_max: int = _setting(
        64 * 1024 * MIB, 1 * MIB, 2**46, "bytes", "staged by one job before it commits; then 53400"
    )

    def __post_init__(self) -> None:
        _check(self)
        if self.memtable_share + self.cache_share + self.vector_share > 1.0 + 1e-9:
            raise ValueError("memtable_share + cache_share + vector_share: expected at most 1")
        if self.log_file_bytes_first > self.log_file_bytes_max:
            raise ValueError("log_file_bytes_first: expected at most log_file_bytes_max")

    @property
    def memtable_bytes_max(self) -> int:
        return int(self.memory_bytes_max * self.memtable_share)

    @property
    def cache_bytes_max(self) -> int:
        return int(self.memory_bytes_max * self.cache_share)

    @property
    def vector_bytes_max(self) -> int:
        return max(int(self.memory_bytes_max * self.vector_share), self.vector_bytes_min)

    @property
    def vector_bytes_min(self) -> int:
        """Below it DuckDB runs next to nothing."""
        return 16 * MIB

    @property
    def transaction_bytes_max(self) -> int:
        return min(self.transaction_memory_bytes, self.memory_bytes_max // 2)

    @property
    def version_bytes_max(self) -> int:
        return min(self.version_memory_bytes, self.memory_bytes_max // 2)


RELOADED = (
    "login_timeout_s", "logins_max", "logins_of_address_max", "login_failure_delay_s",
    "grpc_requests_per_s",
    "drain_timeout_s", "slow_statement_s", "log_level", "statement_timeout_s", "lock_timeout_s",
    "idle_in_transaction_timeout_s", "unread_result_timeout_s", "unread_export_timeout_s",
)  # fmt: skip
"""Settings of ServerConfig that count at once when they are read again; others at a restart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    host: str = _text("127.0.0.1", "where to listen: an address of this machine, or its name")
    port: int = _setting(7000, 0, 65_535, "port", "of the frame protocol; 0: any free one")
    grpc_port: int = _setting(
        -1, -1, 65_535, "port", "of the gRPC service, on the same host; 0: any free one, -1: none"
    )
    http_host: str = _text("127.0.0.1", "where /metrics, /livez, /readyz and /status are served")
    http_port: int = _setting(
        -1, -1, 65_535, "port", "of those pages; 0: any free one, -1: they are not served"
    )
    connections_max: int = _setting(
        500, 1, 10_000, "connections", "open at once; more are refused with 53300"
    )
    superuser_reserved_connections: int = _setting(
        3,
        0,
        1_000,
        "connections",
        "of connections_max, that only superusers of default get, at most all but one; and as many "
        "workers, at least one, for their KILL and system tables while all others are taken",
    )
    logins_max: int = _setting(
        200,
        1,
        10_000,
        "connections",
        "that have not logged in yet; for one more the oldest of the address that has most goes",
    )
    logins_of_address_max: int = _setting(
        100,
        1,
        10_000,
        "connections",
        "of them from one address, or IPv6 network; for one more its oldest goes, with 53300",
    )
    grpc_requests_per_s: int = _setting(
        800,
        0,
        1_000_000,
        "requests",
        "of one user over gRPC a second while clients of the frame protocol are answered, more "
        "wait; a call counts as four of a session's; 0: no limit",
    )
    login_timeout_s: float = _setting(
        10.0, 0.01, 3_600, "seconds", "from a connection's first byte, TLS included, to its login"
    )
    login_failure_delay_s: float = _setting(
        0.5, 0, 60, "seconds", "until a login that failed is told so, which slows down guessing"
    )
    statement_timeout_s: float = _setting(
        0.0,
        0,
        timeout_seconds_max,
        "seconds",
        "statement_timeout of sessions that ask for none, and whose role has none; 0: no limit",
    )
    lock_timeout_s: float = _setting(
        30.0, 0, timeout_seconds_max, "seconds", "lock_timeout of such sessions; 0: no limit"
    )
    idle_in_transaction_timeout_s: float = _setting(
        600.0,
        0,
        timeout_seconds_max,
        "seconds",
        "idle_in_transaction_session_timeout of such sessions; 0: no limit",
    )
    unread_result_timeout_s: float = _setting(
        60.0,
        0.1,
        86_400,
        "seconds",
        "a big query's result of which nothing is read is ended after this while others wait for "
        "its place",
    )
    unread_export_timeout_s: float = _setting(
        60.0,
        0.1,
        86_400,
        "seconds",
        "a backup or dump of which nothing is read is ended after this: it keeps deleted files",
    )
    authentication: str = _text(
        "auto",
        "clients that need no user: required: none; trust: all on this machine, with all "
        "rights; auto: all on this machine until the first password was ever set",
        ("auto", "required", "trust"),
    )
    tls_certificate: str = _text(
        "", "file (PEM) of the server's certificate and those up to its authority; empty: no TLS"
    )
    tls_key: str = _text("", "file (PEM) of the certificate's key, which has no password")
    tls_client_authority: str = _text(
        "", "file (PEM): clients must show a certificate that one of these has signed"
    )
    token_lifetime_s: float = _setting(
        3_600.0, 1, 2_592_000, "seconds", "that a token counts which Login of the gRPC service gave"
    )
    tls_client_check: str = _text(
        "verify-ca",
        "of that certificate: verify-ca: who signed it; verify-full: and that it names the user; "
        "cert: the same, and no password is asked for",
        ("verify-ca", "verify-full", "cert"),
    )
    audit_log: str = _text(
        "", "file that says who logged in, failed to, and changed tables, users and rights"
    )
    workers: int = _setting(
        64, 1, 1_000, "threads", "statements outside transactions that run at once; others wait"
    )
    waiting_max: int = _setting(
        1_000, 0, 100_000, "statements", "that wait for a worker; more are refused with 53000"
    )
    request_bytes_max: int = _setting(
        512 * MIB,
        1 * MIB,
        2**46,
        "bytes",
        "received and not yet answered, over all connections; who exceeds it is ended with 53200",
    )
    parameter_bytes_max: int = _setting(
        512 * MIB,
        1 * MIB,
        2**46,
        "bytes",
        "memory that large parameters of running statements take; the next one fails with 53200",
    )
    response_bytes_max: int = _setting(
        512 * MIB,
        1 * MIB,
        2**46,
        "bytes",
        "of answers that clients do not take; the one that stalls longest is cut off",
    )
    results_max: int = _setting(
        10_000, 1, 10**7, "results", "open over all connections; the next is 53400"
    )
    spin_us: int = _setting(
        300,
        0,
        10_000,
        "microseconds",
        "to look for the next request before the loop sleeps, where that pays; 0: none",
    )
    switch_interval_us: int = _setting(
        10,
        10,
        1_000_000,
        "microseconds",
        "that a thread computes before it gives the interpreter to another; Python's are 5,000",
    )
    loop_sync_us: int = _setting(
        1_000,
        0,
        1_000_000,
        "microseconds",
        "that a sync of the log may take for the loop to do the next; 0: always in a thread",
    )
    drain_timeout_s: float = _setting(
        10.0, 0, 86_400, "seconds", "for open transactions to end after SIGTERM"
    )
    slow_statement_s: float = _setting(
        1.0, 0, 86_400, "seconds", "statements that take longer are logged; 0: none is"
    )
    log_level: str = _text(
        "info", "of what is logged, at least", ("debug", "info", "warning", "error")
    )
    log_format: str = _text("text", "lines of text, or one JSON object a line", ("text", "json"))

    def __post_init__(self) -> None:
        _check(self)

    def reloaded(self, new: "ServerConfig") -> "tuple[ServerConfig, list[str]]":
        """Return what counts once new settings are read, and which of them count from a restart."""
        now = replace(self, **{name: getattr(new, name) for name in RELOADED})
        names = (item.name for item in fields(self))
        return now, [name for name in names if getattr(now, name) != getattr(new, name)]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    session_timeout_s: float = _setting(
        6.0,
        0.2,
        60,
        "seconds",
        "of silence after which ZooKeeper ends a node's session, and another one leads; within "
        "ZooKeeper's own bounds, from 2 of its ticks on; the same on all nodes",
    )
    ledger_bytes_max: int = _setting(
        256 * MIB, 64 * 1024, 2**40, "bytes", "of records in a ledger, behind which the next begins"
    )
    handover_drain_s: float = _setting(
        5.0,
        0,
        3600,
        "seconds",
        "for open transactions to end when another node is to lead, while new ones wait",
    )
    inactivity_limit_s: float = _setting(
        15.0,
        0,
        3600,
        "seconds",
        "for which a log may say nothing, though its leader's session lives, until another node "
        "leads; the leader ticks it three times as often; 0: for ever; the same on all nodes",
    )
    advertised_address: str = _text(
        "", "HOST:PORT at which clients reach the node's server; empty: where it listens"
    )
    bookie_directory: str = _text(
        "", "directory of a bookie that runs in the node's process; empty: there is none"
    )
    bookie_port: int = _setting(
        3181, 1, 65_535, "port", "of that bookie, on server.host; it is a part of the bookie's name"
    )
    bookie_access: str = _text(
        "machine",
        "who reaches that bookie, which serves in clear: machine: it has to listen on loopback; "
        "network: others, too, in a network that keeps strangers out",
        ("machine", "network"),
    )

    def __post_init__(self) -> None:
        _check(self)
        if 0 < self.inactivity_limit_s < INACTIVITY_LIMIT_S_MIN:
            raise ValueError(
                f"inactivity_limit_s: expected 0, or {INACTIVITY_LIMIT_S_MIN:g} seconds or more, "
                f"found {self.inactivity_limit_s}"
            )
