"""What the machines need of the world: clock, chance, disk, threads; passed in, never reached for.

Paths are POSIX strings relative to the root of the Disk ("default/log/00000001.log"); a path that
leaves the root is a ValueError. Every method may raise OSError with the errno of the operating
system (ENOSPC, EIO, EROFS, ENOENT, EEXIST); nothing else is raised for a failing device.
"""

import errno
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from bookie.runtime.ticket import Ticket

if TYPE_CHECKING:
    import ssl

    Tls = ssl.SSLContext | Callable[[], ssl.SSLContext]
    """What connections are secured with: a context, or what returns that of the next connection."""
else:
    Tls = Any  # ssl would take a program that opens a directory some milliseconds, for nothing

BytesLike = bytes | bytearray | memoryview
T = TypeVar("T")
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
"""Of an OSError: the disk, or its owner's share of it, is used up."""


def context_of(tls: Tls) -> "ssl.SSLContext":
    """Return the context for a connection that is made now."""
    return tls() if callable(tls) else tls


class Clock(Protocol):
    """Time. Any thread may call."""

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start; never goes back."""
        ...

    def wall_us(self) -> int:
        """Return microseconds since 1970-01-01T00:00:00Z; may jump."""
        ...


class Rng(Protocol):
    """Chance. Any thread may call."""

    def random(self) -> float:
        """Return a float in [0, 1)."""
        ...

    def randbytes(self, count: int) -> bytes:
        """Return count random bytes; from the operating system in production."""
        ...


class File(Protocol):
    """One open file with positional reads and writes. One thread at a time writes."""

    @property
    def path(self) -> str:
        """The path it was opened by; a rename does not change it."""
        ...

    def write_at(self, offset: int, data: BytesLike) -> None:
        """Write all of data at offset (short writes are completed); not yet durable."""
        ...

    def read_at(self, offset: int, byte_count: int) -> bytes:
        """Return up to byte_count bytes; fewer only at the end of the file."""
        ...

    def size(self) -> int:
        """Return the length in bytes."""
        ...

    def sync(self) -> None:
        """Make the content and the length durable.

        After an OSError the file's durable content is unknown: the caller stops using it and
        never calls sync again on it (fsyncgate).
        """
        ...

    def truncate(self, size: int) -> None:
        """Cut or zero-extend to size bytes; not yet durable."""
        ...

    def allocate(self, size: int) -> None:
        """Make room up to size bytes, which read as zeros; never cuts; not yet durable.

        A device without that much room says so here (ENOSPC, EDQUOT), and not at a later write
        below size; holes of a file that is that long are filled. A sync after writes into the room
        costs a commit of the file system's metadata.
        """
        ...

    def release_cache(self, offset: int, byte_count: int) -> None:
        """Let the system use the memory that caches these synced bytes for something else.

        Advice: the content is the same, a read of it may be slow.
        """
        ...

    def close(self) -> None:
        """Release the handle; idempotent; does not sync. No other thread may be using it."""
        ...


class Mapping(Protocol):
    """A read-only view of the first bytes of a file, valid while referenced, also after unlink."""

    @property
    def view(self) -> memoryview:
        """The mapped bytes, read-only, format B."""
        ...

    def close(self) -> None:
        """Forget the view. Memory is given back when the last exported buffer dies; idempotent."""
        ...


class DirectoryLock(Protocol):
    """An exclusive claim on a path, held until close() or the end of the process."""

    def close(self) -> None:
        """Give the claim back; idempotent."""
        ...


class DiskLockedError(Exception):
    """The path is locked by another owner; `owner` is the text that it left (maybe empty)."""

    def __init__(self, path: str, owner: str) -> None:
        super().__init__(path, owner)
        self.path = path
        self.owner = owner


class Disk(Protocol):
    """One directory tree. Any thread may call; durable only as each method says.

    Creating, renaming or unlinking a name is durable after sync_directory of its parent.
    """

    def open(self, path: str, *, create: bool = False, exclusive: bool = False) -> File:
        """Open for reading and writing; create makes a missing file, exclusive insists on it."""
        ...

    def map(self, path: str, byte_count: int) -> Mapping:
        """Map the first byte_count bytes; ValueError when the file is shorter."""
        ...

    def read(self, path: str) -> bytes:
        """Return the whole content of a small file."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_file(self, path: str) -> bool:
        """Return whether a regular file has this name: no directory, no link, not nothing."""
        ...

    def size(self, path: str) -> int: ...

    def list(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        ...

    def make_directory(self, path: str) -> None:
        """Create a directory ("" is the root itself); EEXIST when there is one."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Replace target by source (a file), atomically for readers."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file; handles and mappings of it stay usable."""
        ...

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory; ENOTEMPTY when there is something in it."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make creations, renames and removals in the directory durable ("" is the root)."""
        ...

    def space(self) -> tuple[int, int]:
        """Return (total, free) bytes of the device that holds the root; free for this process."""
        ...

    def lock(self, path: str, owner: str) -> DirectoryLock:
        """Lock a directory: write owner into the file `path` in it, which is made if missing.

        On a full disk the file may stay empty.
        DiskLockedError: the directory, or the file, is held; also if the file was removed since.
        """
        ...


class WaitEndedError(Exception):
    """Driver.run gave up: thrown into the coroutine at its await, and out of run if not caught."""

    def __init__(self, *, is_stopped: bool) -> None:
        super().__init__("stopped" if is_stopped else "the deadline passed")
        self.is_stopped = is_stopped


class Bell(Protocol):
    """Wakes one waiter; any thread rings. A ring before the wait is kept, several count as one."""

    def ring(self) -> None: ...

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for a ring and take it; False when timeout_s passed first (None: no limit)."""
        ...


class Worker(Protocol):
    """A spawned function, as its owner sees it."""

    @property
    def name(self) -> str: ...

    @property
    def is_alive(self) -> bool:
        """False once the function has ended."""
        ...

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the function to end; False when timeout_s passed first."""
        ...


class Driver(Protocol):
    """Runs things side by side and knows how to wait: real threads, or the simulator."""

    def new_bell(self) -> Bell: ...

    @property
    def hears_signals(self) -> bool:
        """The caller's thread is the one that signals' handlers run in."""
        ...

    def spawn(self, name: str, function: Callable[[], object]) -> Worker:
        """Run function beside the caller; what it raises is reported, never lost.

        When spawn itself is interrupted the function may be running already.
        """
        ...

    def wait(
        self, ticket: Ticket[Any], deadline: float | None = None, stop: Ticket[Any] | None = None
    ) -> bool:
        """Wait until ticket is done; False when `stop` was done or the deadline passed before.

        The deadline is a moment of Clock.monotonic().
        """
        ...

    def run(
        self,
        coroutine: Coroutine[Any, None, T],
        deadline: float | None = None,
        stop: Ticket[Any] | None = None,
    ) -> T:
        """Drive a coroutine that awaits only Tickets and return its value.

        WaitEndedError is thrown into it at each await that deadline or stop cut short, and so is
        an interrupt, so that its own except and finally clauses run.
        """
        ...
