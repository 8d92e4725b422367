"""What a test of sessions may hold in its hand: the clock, and the driver that tells of waits."""

import pytest

from tests.fixtures.engines import WatchedDriver
from tests.sim.clock import SimulatedClock


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def driver() -> WatchedDriver:
    return WatchedDriver()
