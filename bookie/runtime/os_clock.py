"""OsClock: the operating system's clocks."""

import time

_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux's CLOCK_MONOTONIC stands still while the machine sleeps, that of macOS does not."""


class OsClock:
    """Clock over time.monotonic and time.time_ns."""

    __slots__ = ()

    monotonic = staticmethod(time.monotonic)

    def elapsed(self) -> float:
        """Return seconds from an arbitrary start, those in which the machine slept as well."""
        return time.clock_gettime(_ELAPSED)

    def wall_us(self) -> int:
        return time.time_ns() // 1000
