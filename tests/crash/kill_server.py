"""`python -m tests.crash.kill_server --rounds 10 [--seed N]`: SIGKILL of a server under clients.

Eight threads move money between accounts over the network, each transfer a transaction of its own
whose id is in it. The server is killed at a random moment and started again on the same directory
and port; then it says what it holds: every acknowledged transfer once, no half ones, the total as
it was. Commits that were not answered are settled by their tokens, by the driver, which asks the
next server: what it says happened is there, what it says did not is not. One client in four does
not ask, and each of its unanswered commits is there wholly or not at all.
"""

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import Progress

import herdpy
from herdpy.errors import Retry
from tests.crash.kill import (
    ACCOUNTS,
    START_BALANCE,
    BrokenPromiseError,
)
from tests.fixtures.ports import own_port

CLIENTS = 8


class Tally(NamedTuple):
    """What all rounds did."""

    rounds: int
    acknowledged: int
    refused: int
    """Commits that were not answered and, as the next server said, never happen."""
    unknown: int
    """Commits that were not answered, of clients that did not ask."""
    survived: int


def start(directory: str, port: int) -> "subprocess.Popen[bytes]":
    """Start a server and wait until it serves."""
    server = subprocess.Popen(
        [sys.executable, "-m", "herdpy.cli", "serve", directory, "--port", str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=Path(__file__).parents[2],
    )
    assert server.stdout is not None
    said: list[bytes] = []
    for line in server.stdout:
        said.append(line)
        if line.startswith(b"serving"):
            return server
    server.wait()
    raise BrokenPromiseError(f"the server did not start: {b''.join(said).decode()}")


def set_up(url: str) -> None:
    with closing(herdpy.connect(url, autocommit=True)) as connection:
        connection.execute("CREATE TABLE accounts (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL)")
        connection.execute(
            "CREATE TABLE transfers (id BIGINT PRIMARY KEY, source BIGINT NOT NULL, "
            "target BIGINT NOT NULL, amount BIGINT NOT NULL)"
        )
        connection.executemany(
            "INSERT INTO accounts VALUES (?, ?)",
            [(each, START_BALANCE) for each in range(ACCOUNTS)],
        )


class Client:
    """One thread of transfers, until its server is gone."""

    def __init__(self, url: str, stream: int, seed: int) -> None:
        self.acknowledged: list[int] = []
        self.refused: list[int] = []
        self.unknown: list[int] = []
        self.problem: BaseException | None = None
        self._is_asking = stream % 4 != 0
        self._url = f"{url}?retry_timeout_s={60 if self._is_asking else 0}"
        self._is_over = threading.Event()
        self._first = stream * 10_000_000
        self._rng = random.Random(f"{seed} {stream}")
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> None:
        """Begin no transfer any more."""
        self._is_over.set()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        try:
            connection = herdpy.connect(self._url, autocommit=True)
            with closing(connection):
                number = self._first
                while not self._is_over.is_set() and self._transfer(connection, number):
                    number += 1
        except herdpy.OperationalError:
            pass  # killed before the connection was there
        except BaseException as error:
            self.problem = error

    def _transfer(self, connection: herdpy.Connection, transfer: int) -> bool:
        rng = self._rng
        source, target = rng.sample(range(ACCOUNTS), 2)
        amount = rng.randrange(1, 50)
        is_asked = False
        try:
            connection.execute("BEGIN")
            connection.execute(
                "UPDATE accounts SET balance = balance - ? WHERE id = ?", (amount, source)
            )
            connection.execute(
                "UPDATE accounts SET balance = balance + ? WHERE id = ?", (amount, target)
            )
            connection.execute(
                "INSERT INTO transfers VALUES (?, ?, ?, ?)", (transfer, source, target, amount)
            )
            if rng.random() < 0.02:
                connection.rollback()
                return True
            is_asked = True
            connection.commit()
        except herdpy.Error as error:
            if error.sqlstate in ("40P01", "40001"):
                connection.rollback()
                return True
            if not isinstance(error, herdpy.OperationalError):
                raise
            if is_asked:
                is_refused = self._is_asking and error.retry is Retry.SAFE
                (self.refused if is_refused else self.unknown).append(transfer)
            return False
        self.acknowledged.append(transfer)
        return True


def check(url: str, acknowledged: set[int], unknown: set[int], known: set[int]) -> set[int]:
    """Return the transfers that the server has; BrokenPromiseError when it is not as promised."""
    with closing(herdpy.connect(url, autocommit=True)) as connection:
        balances = dict(connection.execute("SELECT id, balance FROM accounts").fetchall())
        transfers = connection.execute(
            "SELECT id, source, target, amount FROM transfers"
        ).fetchall()
    ids = {row[0] for row in transfers}
    if sum(balances.values()) != ACCOUNTS * START_BALANCE or len(balances) != ACCOUNTS:
        raise BrokenPromiseError(f"{sum(balances.values())} in {len(balances)} accounts")
    if len(ids) != len(transfers):
        raise BrokenPromiseError("a transfer is there twice")
    if missing := (acknowledged | known) - ids:
        raise BrokenPromiseError(f"acknowledged transfers are lost: {sorted(missing)[:10]}")
    if strange := ids - acknowledged - unknown - known:
        raise BrokenPromiseError(f"transfers that no client committed: {sorted(strange)[:10]}")
    expected = dict.fromkeys(range(ACCOUNTS), START_BALANCE)
    for _, source, target, amount in transfers:
        expected[source] -= amount
        expected[target] += amount
    if expected != balances:
        raise BrokenPromiseError("half a transfer: balances and transfers differ")
    return ids


def run(rounds: int, seed: int, console: Console) -> Tally:
    """Kill so many servers; BrokenPromiseError."""
    rng = random.Random(seed)
    directory = tempfile.mkdtemp(prefix="herdpy-kill-server-")
    port = own_port()
    url = f"herd://127.0.0.1:{port}"
    acknowledged: set[int] = set()
    refused: set[int] = set()
    unknown: set[int] = set()
    known: set[int] = set()
    server = start(directory, port)
    try:
        set_up(url)
        with Progress(console=console, disable=not console.is_terminal) as progress:
            task = progress.add_task("kill-server", total=rounds)
            for number in range(rounds):
                clients = [Client(url, number * CLIENTS + each, seed) for each in range(CLIENTS)]
                if rng.random() < 0.5:  # else the log alone tells
                    with closing(herdpy.connect(url, autocommit=True)) as connection:
                        connection.checkpoint()
                time.sleep(rng.random() * 0.5)
                server.send_signal(signal.SIGKILL)
                server.communicate()
                for client in clients:
                    client.end()
                server = start(directory, port)
                for client in clients:
                    client.join()
                    if client.problem is not None:
                        raise BrokenPromiseError(f"round {number}: {client.problem!r}")
                    acknowledged.update(client.acknowledged)
                    refused.update(client.refused)
                    unknown.update(client.unknown)
                try:
                    known = check(url, acknowledged, unknown, known)
                    if known & refused:
                        raise BrokenPromiseError(f"refused and there: {sorted(known & refused)}")
                except BrokenPromiseError as error:
                    raise BrokenPromiseError(
                        f"round {number}, directory kept at {directory}: {error}"
                    ) from error
                progress.update(task, advance=1)
    finally:
        server.kill()
        server.communicate()
    shutil.rmtree(directory)
    return Tally(rounds, len(acknowledged), len(refused), len(unknown), len(known))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.kill_server", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    console = Console()
    try:
        tally = run(options.rounds, options.seed, console)
    except BrokenPromiseError as error:
        console.print(f"[red]{error}[/red]", highlight=False)
        return 1
    console.print(
        f"{tally.rounds} kills of a server under {CLIENTS} clients: {tally.acknowledged} transfers "
        f"acknowledged, 0 lost; {tally.refused} refused by their tokens, none there; "
        f"{tally.unknown} not answered; {tally.survived} there in all, none by halves",
        highlight=False,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
