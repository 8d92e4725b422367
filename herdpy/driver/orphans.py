"""Databases of connections that were collected while open, until a thread may close them.

Apart from local.py, which fills it and empties it, so that a connection to a server does without
the engine. Any thread, without a lock: it grows and shrinks by one dict's item at a time.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from herdpy.driver.local import Lease

orphans: "dict[Lease, None]" = {}
"""Leases still to be closed."""
