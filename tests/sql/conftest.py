"""The SQL suites run over every transport and over both faces of the driver.

The blocking face meets the database in process and one of the others, herdpy.aio's, of which the
*.test files are, one of all, in turn; everything over all of
them: `make faces`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures import faces
from tests.fixtures.targets import TRANSPORTS, open_target


@pytest.fixture(params=TRANSPORTS)
def target(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database of the test's own."""
    with open_target(request.param) as found:
        yield found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    faces.parametrize(metafunc)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    faces.choose(config, items, Path(__file__).parent, "test_files.py")


@pytest.fixture(autouse=True)
def face(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The face that herdpy.connect() and herdpy.Pool are of."""
    name: str = getattr(request, "param", "sync")
    with faces.open_face(name, monkeypatch):
        yield name
