"""DiskWatch: looks at the space of the ledger directories, and says when they are too full.

Full from disk_usage_max on, and again with room below disk_usage_low_water, so that a bookie does
not swing between both (Apache BookKeeper's LedgerDirsMonitor). Of several directories a full one
takes no new log; the bookie is full when each of them is full or fails. Used on one asyncio loop.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from bookie.config import BookieConfig
from bookie.server.storage.directories import LedgerDirectory

_log = logging.getLogger(__name__)


class DiskWatch:
    """Calls on_change(is_full) at each change, and once from start() when it is full."""

    def __init__(
        self,
        space: Callable[[], tuple[int, int]],
        config: BookieConfig,
        on_change: Callable[[bool], None],
        directories: Sequence[LedgerDirectory] = (),
    ) -> None:
        self._directories = directories if len(directories) > 1 else ()
        self._space = space
        self._config = config
        self._on_change = on_change
        self._timer: asyncio.TimerHandle | None = None
        self.is_full = False
        self.usage = 0.0
        """Share of the space that is used, when it was looked at last."""

    def start(self) -> None:
        """Look now, and every disk_check_interval_s."""
        self.look()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._config.disk_check_interval_s, self.start)

    def look(self) -> None:
        """Look once."""
        config = self._config
        try:
            total_bytes, free_bytes = self._space()
        except OSError as error:
            _log.warning("cannot tell the space of the ledger directories: %s", error)
            return
        if total_bytes <= 0:
            return
        self.usage = 1.0 - free_bytes / total_bytes
        is_full = self._is_above(self.usage, is_full=self.is_full)
        if self._directories:
            for directory in self._directories:
                self._look_at(directory)
            is_full = all(d.is_full or d.failure is not None for d in self._directories)
        if is_full != self.is_full:
            self.is_full = is_full
            _log.warning(
                "the disk is %.1f %% full (read-only from %.1f %%, writable again below %.1f %%): "
                "this bookie is %s now",
                self.usage * 100,
                config.disk_usage_max * 100,
                config.disk_usage_low_water * 100,
                "read-only" if is_full else "writable",
            )
            self._on_change(is_full)

    def _is_above(self, usage: float, *, is_full: bool) -> bool:
        config = self._config
        return usage >= (config.disk_usage_low_water if is_full else config.disk_usage_max)

    def _look_at(self, directory: LedgerDirectory) -> None:
        """See how full one of several is."""
        try:
            total_bytes, free_bytes = directory.disk.space()
        except OSError as error:
            _log.warning("cannot tell the space of %s: %s", directory.name, error)
            return
        usage = 1.0 - free_bytes / max(total_bytes, 1)
        is_full = self._is_above(usage, is_full=directory.is_full)
        if is_full != directory.is_full:
            directory.is_full = is_full
            _log.warning(
                "ledger directory %s is %.1f %% full: it %s",
                directory.name,
                usage * 100,
                "takes no new entry log" if is_full else "takes entry logs again",
            )
        if not is_full and usage < self._config.disk_usage_low_water:
            directory.has_no_space = False

    def close(self) -> None:
        """Look no more; idempotent."""
        if self._timer is not None:
            self._timer.cancel()
