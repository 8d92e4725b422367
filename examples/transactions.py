"""Transfers that are there wholly or not at all, and run again when the database says so."""

import herdpy


def transfer(conn: herdpy.Connection, source: str, target: str, amount: int) -> None:
    """Move money; run again after what has surely had no effect (deadlock, lock time-out)."""
    while True:
        try:
            with conn.transaction():
                for name, change in ((source, -amount), (target, amount)):
                    conn.execute(
                        "UPDATE account SET cents = cents + ? WHERE name = ?", (change, name)
                    )
                (left,) = conn.execute(
                    "SELECT cents FROM account WHERE name = ?", (source,)
                ).fetchone()
                if left < 0:
                    raise ValueError(f"{source} would have {left} cents")
            return
        except herdpy.OperationalError as error:
            if error.retry is not herdpy.Retry.SAFE:
                raise


with herdpy.connect("./bank", autocommit=True) as conn:
    conn.execute("CREATE TABLE account (name TEXT PRIMARY KEY, cents BIGINT NOT NULL)")
    conn.execute("INSERT INTO account VALUES ('ada', 1000), ('bob', 500)")
    transfer(conn, "ada", "bob", 250)
    try:
        transfer(conn, "bob", "ada", 10_000)
    except ValueError as error:
        print(f"rolled back: {error}")
    print(conn.execute("SELECT name, cents FROM account ORDER BY name").fetchall())

# Prints:
# rolled back: bob would have -9250 cents
# [('ada', 750), ('bob', 750)]
