"""The closed list of what differs from PostgreSQL, on herdpy: each example of each deviation.

tests/pg_oracle/deviations.py has the list, docs/reference/sql.md shows it.
"""

from collections.abc import Iterator

import pytest

import herdpy
from herdpy.driver.connection import Connection
from herdpy.sql.functions import FUNCTIONS, SPECIAL
from tests.pg_oracle.deviations import DEVIATIONS, Deviation
from tests.sql.runner import shown
from tests.style.test_layers import ROOT

PAGE = ROOT / "docs" / "reference" / "sql.md"


@pytest.fixture
def connection(target: str) -> Iterator[Connection]:
    connection = herdpy.connect(target, autocommit=True)
    yield connection
    connection.close()


@pytest.mark.parametrize("deviation", DEVIATIONS, ids=lambda each: each.rule)
def test_deviation(connection: Connection, deviation: Deviation) -> None:
    for text, expected, _ in deviation.examples:
        if isinstance(expected, str):
            with pytest.raises(herdpy.Error) as caught:
                connection.execute(text).fetchall()
            assert caught.value.sqlstate == expected, text
        else:
            cursor = connection.execute(text)
            if expected is not None:
                rows = [" | ".join(map(shown, row)) for row in cursor.fetchall()]
                assert rows == expected, text


def test_the_page_lists_every_function() -> None:
    page = PAGE.read_text()
    for name in (*FUNCTIONS, *SPECIAL):
        assert f"`{name}" in page, name
