"""Room for a server's sockets: the limit of open files, which many systems set to 1,024.

What a process may have (the soft limit) is raised as far as its owner allows (the hard one).
"""

import logging
import resource

from bookie.runtime.http import CONNECTIONS_MAX as PAGES_MAX
from herdpy.config import ServerConfig

_log = logging.getLogger(__name__)
_OTHERS = 1_000
"""Segments, log, spill and libraries, about."""


def make_room(config: ServerConfig) -> None:
    """Raise the limit of open files to what the server's settings need; warn if that fails."""
    needed = config.connections_max + config.logins_max + PAGES_MAX + _OTHERS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    wanted = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        wanted = soft
    if wanted < needed:
        _log.warning(
            "the system allows %d open files, the settings need about %d: connections beyond are "
            "not accepted; raise it (ulimit -n, LimitNOFILE=), or lower connections_max",
            wanted,
            needed,
        )
