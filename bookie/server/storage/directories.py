"""LedgerDirectory: one of the disks that hold a bookie's entry logs, and how well it does.

Every directory has its entry logs below `entries`, numbered over all of them together. Which one
takes the next log is decided by what they hold, by weight; full and failing ones are passed over
while there are others. Flags are plain attributes, set by any thread, each for itself.
"""

import logging
from collections.abc import Mapping, Sequence
from errno import EDQUOT, EMFILE, ENFILE, ENOMEM, ENOSPC

from bookie.runtime.files import replace_file
from bookie.runtime.interfaces import Disk
from bookie.runtime.paths import parent_of

_log = logging.getLogger(__name__)
NO_SPACE = (ENOSPC, EDQUOT)
OF_PROCESS = (EMFILE, ENFILE, ENOMEM)
"""What the process lacks: it says nothing of a disk."""


class LedgerDirectory:
    """One disk. `name`: the path by which the cookie and messages call it."""

    __slots__ = ("device", "disk", "failure", "has_no_space", "is_full", "name", "weight")

    def __init__(
        self, disk: Disk, name: str = "", *, weight: float = 1.0, device: int | None = None
    ) -> None:
        self.disk = disk
        self.name = name
        self.weight = weight
        """It is to hold this part of all bytes, beside the weights of the others."""
        self.device = device
        """Directories of one device share their space; None: a device of its own."""
        self.is_full = False
        """Fuller than disk_usage_max."""
        self.has_no_space = False
        """The last write to it found no space."""
        self.failure: OSError | None = None
        """Of its last write, if that was not about space."""

    @property
    def is_good(self) -> bool:
        return self.failure is None and not self.is_full and not self.has_no_space

    def note_failure(self, error: OSError) -> None:
        """Remember that a write failed; new logs go to others, what is here is still read."""
        if error.errno in NO_SPACE:
            if not self.has_no_space:
                _log.error("ledger directory %s: no space for entry logs: %s", self.name, error)
            self.has_no_space = True
        elif error.errno not in OF_PROCESS:
            if self.failure is None:
                _log.error("ledger directory %s fails, no log is begun there: %s", self.name, error)
            self.failure = error

    def note_success(self) -> None:
        """Remember that what was written to it is durable."""
        if self.has_no_space or self.failure is not None:
            _log.warning("ledger directory %s takes entry logs again", self.name)
        self.has_no_space = False
        self.failure = None


def space_of(directories: Sequence[LedgerDirectory]) -> tuple[int, int]:
    """Return (total, free) bytes, each device counted once; OSError when none can tell.

    A directory that takes no log counts in total alone.
    """
    found: dict[object, tuple[int, int]] = {}
    last: OSError | None = None
    for position, directory in enumerate(directories):
        key = ("position", position) if directory.device is None else directory.device
        try:
            total, free = directory.disk.space()
        except OSError as error:
            last = error
            continue
        usable = free if directory.failure is None or len(directories) == 1 else 0
        found[key] = (total, max(usable, found.get(key, (0, 0))[1]))
    if not found and last is not None:
        raise last
    return sum(total for total, _ in found.values()), sum(free for _, free in found.values())


def worst_of(failures: Mapping[LedgerDirectory, OSError]) -> OSError:
    """Return what is to be told when every directory failed: no space, if one has only that."""
    errors = list(failures.values())
    return next((error for error in errors if error.errno in NO_SPACE), errors[-1])


LOST_PATH = "journal/LOST"
"""On the journal's disk: ledger directories that are gone, until their ledgers are in limbo."""


def write_lost(disk: Disk, names: Sequence[str]) -> None:
    """Remember durably, beside what was known before, that these directories are lost."""
    known = dict.fromkeys((*read_lost(disk), *names))
    replace_file(disk, LOST_PATH, "\n".join(known).encode("utf-8", "surrogateescape"))


def read_lost(disk: Disk) -> tuple[str, ...]:
    """Return the lost directories whose ledgers may not be in limbo yet."""
    try:
        data = disk.read(LOST_PATH)
    except FileNotFoundError:
        return ()
    return tuple(data.decode("utf-8", "surrogateescape").split("\n"))


def forget_lost(disk: Disk) -> None:
    """Remember no loss any more: the ledgers are in limbo."""
    disk.unlink(LOST_PATH)
    disk.sync_directory(parent_of(LOST_PATH))
