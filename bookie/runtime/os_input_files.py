"""Files that a process reads: those with secrets, and those read again when they change."""

import asyncio
import logging
import os
import stat
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

from bookie.errors import BookieError, BookieStartError

T = TypeVar("T")
_Stamp = tuple[int, int, int, int] | None
"""What changes with a file: time of its last change, length, inode and device; None: no file."""

_log = logging.getLogger(__name__)


def exposed_mode(file: IO[Any]) -> int | None:
    """Return the mode of an opened file if others than its owner can read or change it."""
    mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    return mode if mode & (stat.S_IRWXG | stat.S_IRWXO) else None


def read_secret(option: str, path: Path) -> bytes:
    """Return what is in a file that only its owner may use; OSError, BookieStartError."""
    with path.open("rb") as file:
        mode = exposed_mode(file)
        if mode is not None:
            raise BookieStartError(
                f"{option} {path}: expected a file that only its owner can read and change, found "
                f"mode {mode:04o}; chmod 600 {path}"
            )
        return file.read()


def read_secret_text(option: str, path: Path) -> str:
    """As read_secret(), of text in UTF-8."""
    try:
        return read_secret(option, path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise BookieStartError(
            f"{option} {path}: expected text in UTF-8, found another byte at {error.start}; mend "
            "the file"
        ) from error


def read_given(option: str, path: str | Path | None, variable: str | None) -> tuple[str, str]:
    """Return the text of a secret's file, or else of the environment, and what to call the place.

    Two empty texts: it is in neither. variable: None asks no environment. BookieStartError.
    """
    if path is not None:
        try:
            return read_secret_text(option, Path(path)), f"{option} {path}"
        except OSError as error:
            raise BookieStartError(
                f"{option} {path}: cannot be read: {error.strerror or error}"
            ) from None
    text = os.environ.get(variable, "") if variable is not None else ""
    return (text, variable or "") if text.strip() else ("", "")


def read_text(path: str) -> str:
    """Return the text of a small file; OSError, and UnicodeDecodeError, a ValueError."""
    return Path(path).read_text("utf-8")


class Reread(Generic[T]):
    """What is made of some files; made anew when one of them changes. Used on one asyncio loop.

    New files that cannot be used leave the old one in place: that is an error in the log, once for
    each reason, and `failure` says why until files come that can be used.
    """

    def __init__(self, what: str, paths: Sequence[str], make: Callable[[], T]) -> None:
        """Make the first one; what `make` raises is raised. what: what the log calls it."""
        self._what = what
        self._paths = tuple(paths)
        self._make = make
        self._stamps = self._look()  # before they are read: a change in between is seen later
        self._callbacks: list[Callable[[], None]] = []
        self.current = make()
        self.failure: str | None = None

    def __call__(self) -> T:
        return self.current

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call back when `current` is a new one."""
        self._callbacks.append(callback)

    def check(self) -> bool:
        """Look at the files; return whether `current` is a new one."""
        stamps = self._look()
        # After a failure also without a change: it may have been one of this process.
        if stamps == self._stamps and self.failure is None:
            return False
        self._stamps = stamps
        try:
            made = self._make()
        except (BookieError, OSError, ValueError) as error:
            if str(error) != self.failure:
                self.failure = str(error)
                _log.error("%s: new files, but the old ones stay in use: %s", self._what, error)
            return False
        self.failure = None
        self.current = made
        _log.info("%s: read again, for connections to come: %s", self._what, ", ".join(self._paths))
        for callback in self._callbacks:
            callback()
        return True

    async def keep(self, interval_s: float) -> None:
        """Look at the files every so often, until cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            self.check()

    def _look(self) -> tuple[_Stamp, ...]:
        return tuple(map(_stamp, self._paths))


def _stamp(path: str) -> _Stamp:
    try:
        found = os.stat(path)  # noqa: PTH116 - of what a link names: secrets are swapped by links
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev


@asynccontextmanager
async def kept(files: Iterable[Reread[Any] | None], interval_s: float) -> AsyncGenerator[None]:
    """Read files again when they change, as long as the block runs."""
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(each.keep(interval_s)) for each in files if each is not None]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
