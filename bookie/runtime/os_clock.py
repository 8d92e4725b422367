"""OsClock: the operating system's clocks."""

import time


class OsClock:
    """Clock over time.monotonic and time.time_ns."""

    __slots__ = ()

    monotonic = staticmethod(time.monotonic)

    def wall_us(self) -> int:
        return time.time_ns() // 1000
