"""OsClock: the operating system's clocks."""

import time


class OsClock:
    """Clock over time.monotonic and time.time_ns."""

    __slots__ = ()

    def monotonic(self) -> float:
        return time.monotonic()

    def wall_us(self) -> int:
        return time.time_ns() // 1000
