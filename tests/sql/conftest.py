"""The SQL suites run over every transport."""

from collections.abc import Iterator

import pytest

from tests.fixtures.targets import TRANSPORTS, open_target


@pytest.fixture(params=TRANSPORTS)
def target(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database of the test's own."""
    with open_target(request.param) as found:
        yield found
