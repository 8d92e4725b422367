"""A directory as a database: write in transactions, read back, print."""

import herdpy

with herdpy.connect("./tea") as conn:
    conn.execute("CREATE TABLE tea (name TEXT PRIMARY KEY, grams INTEGER NOT NULL)")
    conn.executemany("INSERT INTO tea VALUES (?, ?)", [("assam", 250), ("sencha", 100)])

with herdpy.connect("./tea", autocommit=True) as conn:
    with conn.transaction():
        conn.execute("UPDATE tea SET grams = grams - 5 WHERE name = ?", ("sencha",))
    conn.sql("SELECT name, grams FROM tea ORDER BY name").show()

# Prints:
# ╭────────┬─────────╮
# │ name   │   grams │
# │ text   │ integer │
# ├────────┼─────────┤
# │ assam  │     250 │
# │ sencha │      95 │
# ╰────────┴─────────╯
# 2 rows
