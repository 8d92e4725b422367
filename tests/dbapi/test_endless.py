"""Queries whose rows do not end: a time-out ends them, over every transport, and LIMIT does."""

import pytest

import herdpy

ENDLESS = [
    "SELECT sum(g % 7) FROM generate_series(1, 9223372036854775807) AS g",
    "SELECT count(*) FROM generate_series(1, 9223372036854775807) AS g, generate_series(1, g) AS h",
    "SELECT sum(g / 1000) FROM (SELECT generate_series(1, 9223372036854775807)) AS q (g)",
    "WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT 1 - n FROM r) SELECT count(*) FROM r",
    "WITH RECURSIVE r (n) AS (SELECT 1::bigint UNION SELECT n + 1 FROM r) SELECT max(n) FROM r",
]


@pytest.mark.parametrize("text", ENDLESS)
def test_a_time_out_ends_what_does_not_end(target: str, text: str) -> None:
    with herdpy.connect(target, autocommit=True) as connection:
        connection.execute("SET statement_timeout = '100ms'")
        with pytest.raises(herdpy.Error) as caught:
            connection.execute(text).fetchall()
        assert caught.value.sqlstate == "57014"
        connection.execute("SET statement_timeout = 0")
        assert connection.execute("SELECT count(*) FROM generate_series(1, 3)").fetchone() == (3,)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT g FROM generate_series(5, 9223372036854775807) AS g LIMIT 2",
        "WITH RECURSIVE r (n) AS (SELECT 5 UNION ALL SELECT n + 1 FROM r) SELECT n FROM r LIMIT 2",
    ],
)
def test_a_limit_ends_them_too(target: str, text: str) -> None:
    with herdpy.connect(target, autocommit=True) as connection:
        assert connection.execute(text).fetchall() == [(5,), (6,)]
