"""The lease keeper: one small process of a Spark application, which owns the leases of its load()s.

Planners (leases.py) start it with the first lease and tell it of each one; it renews the newest of
them while the application lives, so that a stage which starts late finds its snapshot, tells the
next load() which lease it may share, and releases all when the application ends, however it ends.
It is no thread of the program, because a program may hold none of this code: Spark Connect and
plain spark-submit run it in processes of Spark's own. ADR 38.

Requests and answers are lines of JSON over a Unix socket in a folder of the user's own; passwords
stay in this process's memory. Run as a file, by `python -P`; it needs herdpy and nothing of
pyspark. A failure here never fails a read: a lease that is not renewed ends by its seconds.
"""

import json
import os
import select
import socket
import sys
import time  # noqa: TID251 - a program of its own, on Spark's machines
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import herdpy

RENEWED_MAX = 20
"""How many leases of one application are renewed, the last used ones; others end by themselves."""
HELD_MAX = 1_000
"""How many leases are remembered: more than a server has, and no more than a request takes."""
REQUEST_BYTES_MAX = 64 * 1024
_RENEWALS_PER_LIFE = 3
_TOO_OLD = "72000"
_POLL_S = 1.0
_CALL_S = 5.0


@dataclass
class Held:
    """A lease of the application."""

    lease: str
    url: str
    password: str | None
    seconds: float
    renewed_s: float

    @property
    def due_s(self) -> float:
        """When it is to be renewed."""
        return self.renewed_s + self.seconds / _RENEWALS_PER_LIFE


class Book:
    """Which leases there are, the last used one last. Pure: times are given. One thread."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}

    def __iter__(self) -> Iterator[Held]:
        return iter(list(self._held.values()))

    def note(self, held: Held) -> None:
        """Take a lease in, or note that it was used again."""
        self._held.pop(held.lease, None)
        self._held[held.lease] = held
        if len(self._held) > HELD_MAX:
            del self._held[next(iter(self._held))]

    def forget(self, leases: Iterable[str]) -> None:
        """Drop leases that have ended; repeatable."""
        for lease in leases:
            self._held.pop(lease, None)

    def shareable(self, url: str, password: str | None, seconds: float) -> str | None:
        """Return the last lease of this server and user that lives as long; None: there is none."""
        for held in reversed(self._held.values()):
            if (held.url, held.password) == (url, password) and held.seconds >= seconds:
                return held.lease
        return None

    def of_server(self, url: str) -> list[str]:
        """Return the leases of a server and user, whatever options the URLs say."""
        return [held.lease for held in self if login_of(held.url) == login_of(url)]

    def renewed(self) -> list[Held]:
        """Return those that are renewed: an application must not use up what a user may have."""
        return list(self)[-RENEWED_MAX:]

    def due(self, now_s: float) -> list[Held]:
        """Return those whose time it is."""
        return [held for held in self.renewed() if held.due_s <= now_s]

    def wait_s(self, now_s: float) -> float | None:
        """Return how long nothing is due; None: for ever."""
        times = [held.due_s for held in self.renewed()]
        return max(0.0, min(times) - now_s) if times else None

    def answer(self, request: dict[str, Any], now_s: float) -> dict[str, Any]:
        """Carry a planner's request out; ValueError, LookupError, TypeError: it is none."""
        match request["do"]:
            case "share":
                url, password = str(request["url"]), request["password"]
                return {"lease": self.shareable(url, password, float(request["seconds"]))}
            case "note":
                url, password = str(request["url"]), request["password"]
                seconds = float(request["seconds"])
                self.note(Held(str(request["lease"]), url, password, seconds, now_s))
                return {}
            case "leases":
                return {"leases": self.of_server(str(request["url"]))}
            case "forget":
                self.forget(map(str, request["leases"]))
                return {}
            case other:
                raise ValueError(f"expected a request of a planner, found {other!r:.100}")


def login_of(url: str) -> tuple[str | None, str, str]:
    """Return what of a URL says which user, servers (of a cluster several) and database it is."""
    parts = urlsplit(url)
    return parts.username, parts.netloc.rpartition("@")[2].lower(), parts.path.strip("/")


class Renewals:
    """Renews a book's leases, each in a thread: a server that is away holds up no other's lease.

    One thread calls it, the book's.
    """

    def __init__(self, book: Book) -> None:
        self._book = book
        self._threads = ThreadPoolExecutor(2 * RENEWED_MAX)
        self.running: dict[str, Future[bool]] = {}
        """By lease: done with whether there is such a lease, or may be."""

    def begin(self, now_s: float) -> None:
        """Begin to renew what is due; one whose server is away is tried again when it is due."""
        self.forget_gone()
        for held in self._book.due(now_s):
            held.renewed_s = now_s
            if held.lease not in self.running:
                self.running[held.lease] = self._threads.submit(_renew, held)

    def forget_gone(self) -> None:
        """Forget the leases that were found to be gone."""
        for lease, renewal in list(self.running.items()):
            if renewal.done():
                del self.running[lease]
                if not renewal.result():
                    self._book.forget([lease])

    def release_all(self) -> None:
        """End all leases; those whose server is away end by their seconds."""
        with self._threads:
            list(self._threads.map(_release, self._book))


def _renew(held: Held) -> bool:
    """Renew a lease; False: it is gone."""
    try:
        with _connected(held) as connection:
            connection.renew_lease(held.lease)
    except herdpy.Error as error:
        return error.sqlstate != _TOO_OLD
    return True


def _release(held: Held) -> None:
    with suppress(herdpy.Error), _connected(held) as connection:
        connection.release_lease(held.lease)


@contextmanager
def _connected(held: Held) -> Generator[herdpy.Connection]:
    with closing(herdpy.connect(held.url, autocommit=True, password=held.password)) as connection:
        yield connection


class Life:
    """Whether a process lives. A file descriptor that says so where there is one."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.descriptor: int | None = None
        self._was_seen = True
        if hasattr(os, "pidfd_open"):
            try:
                self.descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                self._was_seen = False
            except OSError:  # the system has none
                self.descriptor = None

    @property
    def is_over(self) -> bool:
        if not self._was_seen:
            return True
        if self.descriptor is not None:
            return bool(select.select([self.descriptor], [], [], 0)[0])
        try:
            os.kill(self._pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)


def serve(listener: socket.socket, life: Life, path: Path) -> None:
    """Keep leases until the watched process is over; then release them."""
    book = Book()
    renewals = Renewals(book)
    while not life.is_over:
        wait_s = book.wait_s(time.monotonic())
        if life.descriptor is None:
            wait_s = _POLL_S if wait_s is None else min(wait_s, _POLL_S)
        watched = [listener] if life.descriptor is None else [listener, life.descriptor]
        ready, _, _ = select.select(watched, [], [], wait_s)
        if listener in ready:
            _take_call(listener, book)
        renewals.begin(time.monotonic())
    path.unlink(missing_ok=True)  # before it closes: a planner that comes now starts another
    listener.close()
    renewals.release_all()


def _take_call(listener: socket.socket, book: Book) -> None:
    """Answer one planner; one that says nothing, or nothing that makes sense, is let go."""
    with suppress(OSError), closing(listener.accept()[0]) as call:
        call.settimeout(_CALL_S)
        with call.makefile("rb") as lines:
            line = lines.readline(REQUEST_BYTES_MAX)
        try:
            found = book.answer(json.loads(line), time.monotonic())
        except (ValueError, LookupError, TypeError) as error:
            found = {"error": str(error)}
        call.sendall(json.dumps(found).encode() + b"\n")


def main(arguments: list[str]) -> None:
    """Serve at the socket that the first argument names while the process of the second lives."""
    path, pid = Path(arguments[0]), int(arguments[1])
    path.unlink(missing_ok=True)  # the lock of leases.py is held: none is served there
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(64)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    with closing(Life(pid)) as life:
        serve(listener, life, path)


if __name__ == "__main__":
    main(sys.argv[1:])
