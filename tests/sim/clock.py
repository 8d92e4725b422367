"""SimulatedClock: a Clock that stands still until a test moves it."""


class SimulatedClock:
    """Clock of a simulation; single-threaded. Both clocks move together, by advance() alone."""

    def __init__(self, *, wall_us: int = 1_700_000_000_000_000) -> None:
        self._monotonic_s = 0.0
        self._wall_us = wall_us

    def monotonic(self) -> float:
        return self._monotonic_s

    def wall_us(self) -> int:
        return self._wall_us

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass; they cannot be negative."""
        if seconds < 0:
            raise ValueError(f"advance: expected seconds, 0 or more, found {seconds}")
        self._monotonic_s += seconds
        self._wall_us += round(seconds * 1_000_000)
