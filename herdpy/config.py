"""What a user may tune, as one frozen dataclass; every field has unit, default, range and reason.

docs/reference/config.md is generated from this file and compared by a test.
"""

from dataclasses import dataclass, field, fields
from typing import Any

MIB = 1024 * 1024


def _setting(default: Any, low: float, high: float, unit: str, why: str) -> Any:
    return field(default=default, metadata={"low": low, "high": high, "unit": unit, "why": why})


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
    log_file_bytes_first: int = _setting(
        1 * MIB, 4096, 2**30, "bytes", "size of the first pre-zeroed log file; then doubled"
    )
    log_file_bytes_max: int = _setting(
        64 * MIB, 4096, 2**30, "bytes", "log files stop doubling here"
    )
    transaction_memory_bytes: int = _setting(
        256 * MIB,
        1024,
        2**46,
        "bytes",
        "write set of one transaction, at most half of memory_bytes_max; over it: 53200",
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

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            low, high = item.metadata["low"], item.metadata["high"]
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise TypeError(f"{item.name}: expected a number, found {value!r}")
            if not low <= value <= high:
                raise ValueError(
                    f"{item.name}: expected {low} to {high} {item.metadata['unit']}, found {value}"
                )
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
        return max(int(self.memory_bytes_max * self.vector_share), 16 * MIB)

    @property
    def transaction_bytes_max(self) -> int:
        return min(self.transaction_memory_bytes, self.memory_bytes_max // 2)

    @property
    def version_bytes_max(self) -> int:
        return min(self.version_memory_bytes, self.memory_bytes_max // 2)
