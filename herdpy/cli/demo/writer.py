"""The demo's victim: python -m herdpy.cli.demo.writer DIRECTORY writes until it is killed.

Each thread commits numbered batches of rows and, when a commit has returned, and not before,
reports it on standard output as one line "<writer> <number>". A line is one write of a few bytes,
which a pipe keeps whole.
"""

import os
import sys
import threading

from herdpy.driver.connection import Connection, connect

WRITERS = 4
ROWS_PER_COMMIT = 5
CREATE_TEXT = (
    "CREATE TABLE boarding (writer INTEGER, batch INTEGER, seat INTEGER, passenger TEXT,"
    " PRIMARY KEY (writer, batch, seat))"
)
_INSERT_TEXT = "INSERT INTO boarding VALUES (?, ?, ?, ?)"


def write(connection: Connection, writer: int) -> None:
    """Commit and report batches for ever."""
    batch = 0
    while True:
        batch += 1
        rows = [
            (writer, batch, seat, f"passenger {seat} of batch {batch}")
            for seat in range(1, ROWS_PER_COMMIT + 1)
        ]
        connection.executemany(_INSERT_TEXT, rows)
        os.write(1, b"%d %d\n" % (writer, batch))


def main(directory: str) -> None:
    """Start the writers; returns never."""
    threads = [
        threading.Thread(
            target=write, args=(connect(directory, autocommit=True), writer), daemon=True
        )
        for writer in range(1, WRITERS + 1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(sys.argv[1])
