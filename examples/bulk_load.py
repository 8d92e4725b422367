"""Load many rows: a generator into executemany(), one commit for each batch."""

import itertools

import herdpy

readings = ((n // 60, n % 60, 20.0 + n % 7) for n in range(90_000))

with herdpy.connect("./plant", autocommit=True) as conn:
    conn.execute(
        "CREATE TABLE reading (minute INTEGER, sensor INTEGER, celsius DOUBLE PRECISION,"
        " PRIMARY KEY (minute, sensor))"
    )
    while batch := list(itertools.islice(readings, 10_000)):
        conn.executemany("INSERT INTO reading VALUES (?, ?, ?)", batch)
    conn.checkpoint()  # not needed for safety: it makes the next open quick
    hot = "SELECT count(*) AS hot FROM reading WHERE celsius > 25 AND minute >= 1400"
    print(conn.execute(hot).fetchone())
    for (line,) in conn.execute(f"EXPLAIN {hot}"):
        print(line)

# Prints:
# (857,)
# Vector path (DuckDB over the pages)
#   Output: count(*) AS hot
#     Aggregate all rows
#       Filter: celsius > 25.0 AND minute >= 1400
#         Scan of reading: 2 of 3 columns, 2 of 22 pages
#           Zone maps leave out 20: celsius > 25.0 AND minute >= 1400
