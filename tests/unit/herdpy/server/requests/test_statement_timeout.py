"""What statement_timeout covers: a statement to its last row, however slowly it is read.

As in PostgreSQL, where a statement runs until its rows are sent, and backups and dumps have no
limit.
"""

import random
from collections.abc import Iterator

import pytest

from herdpy.errors import QueryCanceledError
from herdpy.server.requests.exports import OpenExport
from herdpy.server.requests.results import OpenResult
from tests.fixtures.engines import Engine, engine, rows
from tests.sim.clock import SimulatedClock
from tests.sim.driver import SimulatedDriver

LIMIT_S = 5.0


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def still(clock: SimulatedClock) -> Iterator[Engine]:
    """A database whose time passes only by hand, with a table."""
    with engine(clock=clock, driver=SimulatedDriver(clock, lambda ticket: False)) as made:
        session = made.session(autocommit=True)
        session.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)").close()
        rng = random.Random(7)  # what does not shrink in a backup
        items = [(number, rng.randbytes(250).hex()) for number in range(9_000)]
        session.execute_many("INSERT INTO t VALUES (?, ?)", items).close()
        session.close()
        yield made


def test_the_rows_behind_a_fetch(still: Engine, clock: SimulatedClock) -> None:
    session = still.session(autocommit=True, statement_timeout_s=LIMIT_S)
    result = OpenResult(session.execute("SELECT id, v FROM t"))
    assert result.inline() is None
    assert result.rows(100)[1] is False
    clock.advance(LIMIT_S)
    with pytest.raises(QueryCanceledError) as caught:
        result.rows(10_000)
    assert caught.value.sqlstate == "57014"
    result.close()
    assert rows(session, "SELECT count(*) FROM t") == [(9_000,)]  # with a time of its own
    session.close()


@pytest.mark.parametrize("kind", ["backup", "dump"])
def test_not_the_pieces_of_an_export(still: Engine, clock: SimulatedClock, kind: str) -> None:
    session = still.session(autocommit=True, statement_timeout_s=LIMIT_S)
    export = OpenExport(session.export(kind), session.database.clock)
    is_last, pieces = False, 0
    while not is_last:
        clock.advance(LIMIT_S)
        _, is_last = export.next()
        pieces += 1
    assert pieces > 1
    export.close()
    session.close()
