"""DiskWatch: looks at the space of the ledger directories, and says when they are too full.

Full from disk_usage_max on, and again with room below disk_usage_low_water, so that a bookie does
not swing between both (Apache BookKeeper's LedgerDirsMonitor). Used on one asyncio loop.
"""

import asyncio
import logging
from collections.abc import Callable

from bookie.config import BookieConfig

_log = logging.getLogger(__name__)


class DiskWatch:
    """Calls on_change(is_full) at each change, and once from start() when it is full."""

    def __init__(
        self,
        space: Callable[[], tuple[int, int]],
        config: BookieConfig,
        on_change: Callable[[bool], None],
    ) -> None:
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
        limit = config.disk_usage_low_water if self.is_full else config.disk_usage_max
        is_full = self.usage >= limit
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

    def close(self) -> None:
        """Look no more; idempotent."""
        if self._timer is not None:
            self._timer.cancel()
