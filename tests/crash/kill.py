"""`python -m tests.crash.kill --rounds 10 [--seed N]`: real processes, real files, SIGKILL.

Four threads of a child move money between accounts; each transfer is one transaction that changes
two accounts and inserts the transfer's id, and its id goes down a pipe after commit() has
returned. The parent kills the child at a random moment, opens the directory itself and checks: the
total is what it was, every acknowledged transfer is there once, the balances are exactly those
that the transfers in the table make. The next child goes on with the same directory. Log files and
checkpoints are small, so that rolls, checkpoints and spare files are going on all the time.
"""

import argparse
import os
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
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import Progress

import herdpy
from herdpy.config import Config
from herdpy.driver import local

ACCOUNTS = 40
START_BALANCE = 1000
THREADS = 4
_ID_BYTES = 12
_CONFIG = Config(log_file_bytes_first=4096, log_file_bytes_max=16 * 1024)
object.__setattr__(_CONFIG, "checkpoint_log_bytes", 12 * 1024)  # less than a user may ask for


class Tally(NamedTuple):
    """What all rounds did."""

    rounds: int
    acknowledged: int
    survived: int
    log_files: int
    """PendingWrite in all, most of them dropped again."""
    checkpoints: int
    """That wrote a segment."""


class BrokenPromiseError(AssertionError):
    """The directory does not hold what was promised."""


def _small_config(self: local.Options) -> Config:
    return _CONFIG


def connect(directory: str) -> Any:
    """Connect with a configuration of small files, which no option of connect() can ask for."""
    if not callable(vars(local.Options).get("config")):
        raise LookupError("herdpy.driver.local.Options.config is not there any more")
    local.Options.config = _small_config  # type: ignore[method-assign]
    return herdpy.connect(directory, autocommit=True)


def set_up(directory: str) -> None:
    with closing(connect(directory)) as connection:
        cursor = connection.cursor()
        cursor.execute("CREATE TABLE accounts (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL)")
        cursor.execute(
            "CREATE TABLE transfers (id BIGINT PRIMARY KEY, source BIGINT NOT NULL, "
            "target BIGINT NOT NULL, amount BIGINT NOT NULL)"
        )
        cursor.executemany(
            "INSERT INTO accounts VALUES (?, ?)",
            [(number, START_BALANCE) for number in range(ACCOUNTS)],
        )


# --- the child -----------------------------------------------------------------------------------


def work(directory: str, round_number: int, seed: int) -> None:
    """Transfer until killed. Every id on stdout is of a commit that has returned."""
    first = connect(directory)
    gate = threading.Barrier(THREADS)
    threads = [
        threading.Thread(
            target=_transfer,
            args=(directory, gate, round_number * THREADS + number, seed),
            daemon=True,
        )
        for number in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first.close()


def _transfer(directory: str, gate: threading.Barrier, stream: int, seed: int) -> None:
    try:
        rng = random.Random(f"{seed} {stream}")
        connection = connect(directory)
        cursor = connection.cursor()
        gate.wait()
        for count in range(10_000_000):
            source, target = rng.sample(range(ACCOUNTS), 2)
            amount = rng.randrange(1, 50)
            transfer = stream * 10_000_000 + count
            try:
                # A killed process loses nothing that the operating system has.
                with connection.transaction(rng.choice(("sync", "os"))):
                    cursor.execute(
                        "UPDATE accounts SET balance = balance - ? WHERE id = ?", (amount, source)
                    )
                    cursor.execute(
                        "UPDATE accounts SET balance = balance + ? WHERE id = ?", (amount, target)
                    )
                    cursor.execute(
                        "INSERT INTO transfers VALUES (?, ?, ?, ?)",
                        (transfer, source, target, amount),
                    )
            except herdpy.Error as error:
                if error.sqlstate not in ("40P01", "40001"):
                    raise
                continue
            # One write of few bytes into a pipe is atomic, so a kill cannot cut an id in two.
            os.write(1, b"%*d\n" % (_ID_BYTES, transfer))
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(3)


# --- the parent ----------------------------------------------------------------------------------


def run_round(directory: str, number: int, seed: int, rng: random.Random) -> list[int]:
    """Run a child, kill it, and return the transfers that it said were committed."""
    child = subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.crash.kill", "--child", directory),
            *("--seed", str(seed), "--rounds", str(number)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert child.stdout is not None
    assert child.stderr is not None
    lines: list[bytes] = []
    # Killed after so many acknowledgements, and then a little later, between any two steps.
    wanted = rng.choice((0, 1, rng.randrange(50), rng.randrange(600), rng.randrange(2000)))
    while len(lines) < wanted and (line := child.stdout.readline()):
        lines.append(line)
    time.sleep(rng.random() * (0.02 if wanted else 0.6))
    child.send_signal(signal.SIGKILL)
    rest, complaints = child.communicate()
    if child.returncode != -signal.SIGKILL or complaints:
        raise BrokenPromiseError(f"the child ended with {child.returncode}: {complaints.decode()}")
    lines += rest.splitlines(keepends=True)
    return [int(line) for line in lines]


def check(directory: str, acknowledged: set[int], known: set[int]) -> set[int]:
    """Open the directory and return its transfers; BrokenPromiseError when it is not as promised.

    `known` are those that a check before has seen: they must never vanish or be joined by old ones.
    """
    with closing(connect(directory)) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT id, balance FROM accounts ORDER BY id")
        balances = dict(cursor.fetchall())
        cursor.execute("SELECT id, source, target, amount FROM transfers ORDER BY id")
        transfers = cursor.fetchall()
        cursor.execute("SELECT count(*), sum(balance) FROM accounts")
        found = cursor.fetchall()
    if found != [(ACCOUNTS, ACCOUNTS * START_BALANCE)]:
        raise BrokenPromiseError(
            f"expected {ACCOUNTS} accounts, {ACCOUNTS * START_BALANCE} in all: {found}"
        )
    ids = [row[0] for row in transfers]
    if len(set(ids)) != len(ids):
        raise BrokenPromiseError("a transfer is there twice")
    if missing := (acknowledged | known) - set(ids):
        raise BrokenPromiseError(
            f"{len(missing)} acknowledged transfers are lost: {sorted(missing)[:10]}"
        )
    expected = dict.fromkeys(range(ACCOUNTS), START_BALANCE)
    for _, source, target, amount in transfers:
        expected[source] -= amount
        expected[target] += amount
    if expected != balances:
        wrong = {key: (expected[key], balances.get(key)) for key in expected}
        wrong = {key: pair for key, pair in wrong.items() if pair[0] != pair[1]}
        raise BrokenPromiseError(f"half a transfer: account: (by its transfers, found): {wrong}")
    return set(ids)


def run(rounds: int, seed: int, console: Console) -> Tally:
    rng = random.Random(seed)
    directory = tempfile.mkdtemp(prefix="herdpy-kill-")
    acknowledged: set[int] = set()
    known: set[int] = set()
    set_up(directory)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("kill", total=rounds)
        for number in range(rounds):
            try:
                acknowledged.update(run_round(directory, number, seed, rng))
                known = check(directory, acknowledged, known)
            except (BrokenPromiseError, herdpy.Error) as error:
                raise BrokenPromiseError(
                    f"round {number}, directory kept at {directory}: {error}"
                ) from error
            progress.update(task, advance=1)
    names = os.listdir(f"{directory}/default/log")
    newest = max(int(name.removeprefix("spare-").partition(".")[0]) for name in names)
    segments = os.listdir(f"{directory}/default/segments")
    last_segment = max((int(name.partition(".")[0]) for name in segments), default=0)
    shutil.rmtree(directory)
    return Tally(rounds, len(acknowledged), len(known), newest, last_segment)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.kill", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--child", metavar="DIRECTORY", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        work(options.child, options.rounds, options.seed)
        return 0
    console = Console()
    try:
        tally = run(options.rounds, options.seed, console)
    except BrokenPromiseError as error:
        console.print(f"[red]{error}[/red]", highlight=False)
        return 1
    console.print(
        f"{tally.rounds} kills: {tally.acknowledged} transfers acknowledged, 0 lost; "
        f"{tally.survived} there in all, none by halves; "
        f"{tally.log_files} log files and {tally.checkpoints} segments were begun",
        highlight=False,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
