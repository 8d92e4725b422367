"""BlockingChain: a LedgerChain for the threads of a log, over the loop on which its client lives.

Errors of the ledger store become herdpy's here. Any thread but the loop's own.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol, TypeVar

from bookie.errors import BookieError
from bookie.errors import Retry as BookieRetry
from herdpy.cluster.chain import LedgerChain
from herdpy.errors import LogFailedError, OperationalError, Retry
from herdpy.log.ledger_log import OnAdded
from herdpy.model.lsn import Lsn

T = TypeVar("T")
_ENTRIES_MAX = 64
_BYTES_MAX = 4 * 1024 * 1024
"""Handed from the loop to the thread that replays, at once, and the last entry beyond it."""


class Loop(Protocol):
    """The loop, as another thread has it."""

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it there, and wait for its value or error."""
        ...

    def post(self, function: Callable[[], object]) -> None:
        """Have it called there soon, in the order of the calls."""
        ...


class BlockingChain:
    """Implements herdpy.log.ledger_log.Chain."""

    def __init__(self, loop: Loop, chain: LedgerChain) -> None:
        self._loop = loop
        self._chain = chain

    @property
    def is_narrow(self) -> bool:
        """See LedgerChain. Any thread: what it says may be old in a moment, whoever asks."""
        return self._chain.is_narrow

    @property
    def is_missing(self) -> bool:
        """As is_narrow."""
        return self._chain.is_missing

    def claim(self, epoch: int) -> None:
        with _errors("claiming the log"):
            self._loop.call(self._chain.claim(epoch))

    def probe(self, epoch: int, timeout_s: float) -> None:
        """See LedgerChain. Error: this node could not write the log."""
        with _errors("trying the bookies"):
            try:
                self._loop.call(self._chain.probe(epoch, timeout_s))
            except TimeoutError:
                raise OperationalError(
                    f"trying the bookies: expected an entry to be acknowledged in {timeout_s:g} s, "
                    "it was not",
                    sqlstate="58030",
                    retry=Retry.SAFE,
                ) from None

    def replay(self, after: Lsn) -> Iterator[tuple[int, int, list[bytes]]]:
        entries = self._chain.entries(after)
        try:
            while True:
                with _errors("reading the log"):
                    found = self._loop.call(_some(entries))
                if not found:
                    return
                yield from found
        finally:
            self._loop.call(_close(entries))

    def begin(self) -> int:
        with _errors("beginning a ledger"):
            return self._loop.call(self._chain.begin())

    def send(self, payload: bytes, on_added: OnAdded) -> None:
        self._loop.post(partial(self._chain.send, payload, on_added))

    def end(self) -> int:
        with _errors("ending a ledger", is_known=False):
            return self._loop.call(self._chain.end())

    def close(self) -> None:
        with _errors("letting go of the log"):
            self._loop.call(self._chain.abandon())


async def _some(
    entries: AsyncIterator[tuple[int, int, list[bytes]]],
) -> list[tuple[int, int, list[bytes]]]:
    """Return the next entries; none at the end."""
    found: list[tuple[int, int, list[bytes]]] = []
    byte_count = 0
    async for each in entries:
        found.append(each)
        byte_count += sum(map(len, each[2]))
        if len(found) == _ENTRIES_MAX or byte_count >= _BYTES_MAX:
            break
    return found


async def _close(entries: Any) -> None:
    await entries.aclose()


@contextmanager
def _errors(what: str, *, is_known: bool = True) -> Generator[None]:
    """is_known: after a SAFE error nothing has happened, of commits either."""
    try:
        yield
    except BookieError as error:
        message = f"{what}: {error}"
        if is_known and error.retry is BookieRetry.SAFE:
            raise OperationalError(message, sqlstate="58030", retry=Retry.SAFE) from error
        raise LogFailedError(message) from error
