"""While a server makes rows of a result, its statement is shown, and KILL STATEMENT ends it."""

from contextlib import suppress

import pytest

import herdpy
from tests.fixtures.engines import Background
from tests.fixtures.servers import running_server

SHOWN = "SELECT id, text FROM sysstatements"
SELDOM = "SELECT a.id FROM t AS a, t AS b, t AS c WHERE a.id * b.id * c.id % 10007 = 7"
"""Some rows, each after many that are none."""


@pytest.mark.parametrize("takes", ["fetchall", "fetch_arrow_table"])
def test_a_statement_whose_rows_are_made_is_shown_and_can_be_killed(takes: str) -> None:
    with running_server() as server, herdpy.connect(server.url, autocommit=True) as root:
        root.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        root.executemany("INSERT INTO t VALUES (?)", [(n,) for n in range(3_000)])
        with herdpy.connect(f"{server.url}/?retry_timeout_s=0", autocommit=True) as reader:
            cursor = reader.execute(SELDOM)
            errors: list[herdpy.Error] = []

            def fetch() -> None:
                with pytest.raises(herdpy.OperationalError) as caught:
                    getattr(cursor, takes)()
                errors.append(caught.value)

            with Background() as background:
                background.start(fetch)
                killed = 0
                while not errors:
                    for number, text in root.execute(SHOWN).fetchall():
                        if text == SELDOM:
                            with suppress(herdpy.ProgrammingError):  # that piece has ended
                                root.execute(f"KILL STATEMENT {number}")
                                killed += 1
            assert errors[0].sqlstate == "57014"
            assert killed
            assert [text for _, text in root.execute(SHOWN).fetchall()] == [SHOWN]
