"""The DB-API suites run over every transport and over both faces of the driver.

The blocking face meets the database in process and one of the others, herdpy.aio's one of all, in
turn; all of them: `make faces`. What is
marked sync_face is about the blocking face alone.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures import faces
from tests.fixtures.servers import RunningServer, running_server
from tests.fixtures.targets import TRANSPORTS, open_target


@pytest.fixture(params=TRANSPORTS)
def target(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database of the test's own."""
    with open_target(request.param) as found:
        yield found


@pytest.fixture
def server() -> Iterator[RunningServer]:
    """A server of the test's own, with an empty database."""
    with running_server() as found:
        yield found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    faces.parametrize(metafunc)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    faces.choose(config, items, Path(__file__).parent)


@pytest.fixture(autouse=True)
def face(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The face that herdpy.connect() and herdpy.Pool are of."""
    name: str = getattr(request, "param", "sync")
    with faces.open_face(name, monkeypatch):
        yield name
