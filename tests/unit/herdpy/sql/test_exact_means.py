"""avg() of integers and DECIMALs by DuckDB is the exact quotient, its last digit half from zero."""

from decimal import Decimal
from fractions import Fraction
from random import Random

import herdpy

Value = int | Decimal
Row = tuple[int, int, int, Decimal, Decimal]


def test_means_of_drawn_groups_are_exact() -> None:
    chance = Random(7)
    rows: list[Row] = []
    for group in range(400):
        most = chance.choice([2**63 - 1, 1_000, 10, 3])
        for _ in range(chance.choice([1, 2, 3, 6, 7, 9, 11, 13, 64])):
            small = Decimal(chance.randint(-min(most, 10**17), min(most, 10**17))).scaleb(-4)
            large = Decimal(chance.randint(-(10**30), 10**30)).scaleb(-10)
            rows.append((len(rows), group, chance.randint(-most, most), small, large))
    with herdpy.connect(":memory:") as connection:
        connection.execute(
            "CREATE TABLE t (id BIGINT PRIMARY KEY, g BIGINT, b BIGINT, d DECIMAL(18,4), "
            "e DECIMAL(38,10))"
        )
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", rows)
        found = connection.execute("SELECT g, avg(b), avg(d), avg(e) FROM t GROUP BY g").fetchall()
    assert len(found) == 400
    for group, *means in found:
        of_group = [row for row in rows if row[1] == group]
        for column, mean in enumerate(means, 2):
            assert Fraction(mean) == exact_mean([row[column] for row in of_group], mean)


def exact_mean(values: list[Value], like: Decimal) -> Fraction:
    """Return the mean with as many digits behind the point as another number."""
    exponent = like.as_tuple().exponent
    assert isinstance(exponent, int)
    steps = 10**-exponent
    scaled = sum(map(Fraction, values), Fraction()) / len(values) * steps
    whole, rest = divmod(abs(scaled.numerator), scaled.denominator)
    whole += 2 * rest >= scaled.denominator
    return Fraction(-whole if scaled < 0 else whole, steps)
