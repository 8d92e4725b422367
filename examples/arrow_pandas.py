"""Results as Arrow tables, as a stream of Arrow batches, and as a pandas data frame."""

import herdpy

with herdpy.connect(autocommit=True) as conn:
    conn.execute("CREATE TABLE point (id INTEGER PRIMARY KEY, x DOUBLE PRECISION, side TEXT)")
    conn.executemany(
        "INSERT INTO point VALUES (?, ?, ?)",
        ((n, n / 2, "left" if n % 2 else "right") for n in range(100_000)),
    )
    table = conn.execute("SELECT id, x FROM point WHERE id < 3 ORDER BY id").fetch_arrow_table()
    print(table.schema.to_string().replace("\n", ", "))
    stream = conn.execute("SELECT x FROM point").fetch_record_batch(rows=30_000)
    print(sum(batch.num_rows for batch in stream))
    frame = conn.execute(
        "SELECT side, avg(x) AS mean FROM point GROUP BY side ORDER BY side"
    ).to_df()
    print(frame.to_string(index=False))

# Prints:
# id: int32, x: double
# 100000
#  side    mean
#  left 25000.0
# right 24999.5
