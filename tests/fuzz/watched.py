"""What the fuzzers of herdpy's server have in common: what was not handled, memory, a command."""

import argparse
import asyncio
import logging
import random
from collections.abc import Callable, Coroutine

from herdpy.server.server import Server
from tests.fuzz.wire import GROWTH_BYTES_MAX, FindingError, resident_bytes


class _Errors(logging.Handler):
    """Keeps what is logged as an error: a bug is told to its sender alone, and else only there."""

    def __init__(self, kept: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._kept = kept

    def emit(self, record: logging.LogRecord) -> None:
        self._kept.append(record.getMessage())


class Watched:
    """Of one run on the running loop; FindingError as soon as something is found."""

    def __init__(self) -> None:
        self._unhandled: list[str] = []
        self._settled_bytes = 0
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self._unhandled.append(str(context)))
        logging.getLogger("herdpy").addHandler(_Errors(self._unhandled))

    async def catch_up(self, server: Server, jobs_max: int) -> None:
        """Let the server's workers do what waits for them, but for so many."""
        await asyncio.sleep(0)
        while len(server._hub.workers.jobs) > jobs_max:  # noqa: ASYNC110 - lets the workers keep up
            await asyncio.sleep(0.001)

    def check(self) -> None:
        """Look for exceptions that were not handled, and errors in the log."""
        if self._unhandled:
            raise FindingError(f"not handled, or in the log: {self._unhandled[0]}")

    def settle(self) -> None:
        """Take the memory of now for what is needed anyhow."""
        self._settled_bytes = resident_bytes()

    def growth(self) -> str:
        """Return how much memory has come since settle(), as text."""
        grown = resident_bytes() - self._settled_bytes
        if grown > GROWTH_BYTES_MAX:
            raise FindingError(f"resident memory grew by {grown} bytes")
        return f"memory grew by {grown / 2**20:.1f} MB"


def command(
    about: str | None,
    what: str,
    run: Callable[[int, int], Coroutine[None, None, str]],
    *,
    runs: int,
    runs_per_item: int,
    items_min: int = 1,
) -> int:
    """Read --runs and --seed, and run: `what` is one item, of which each counts so many runs."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument(
        "--runs", type=int, default=runs, help=f"one in {runs_per_item} is one of the {what}"
    )
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(2**32)
    count = max(items_min, arguments.runs // runs_per_item)
    print(f"fuzz-wire: seed {seed}, {count} {what}", flush=True)
    try:
        print(asyncio.run(run(seed, count)))
    except Exception as error:
        print(f"FOUND with --seed {seed}: {type(error).__name__}: {error}")
        raise
    return 0
