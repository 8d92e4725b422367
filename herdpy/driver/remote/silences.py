"""NodeSilences: nodes of a cluster that stand still, as one connection tells the others.

A process that hangs keeps its connections, and takes new ones: each that waits for it finds that
out by itself, in seconds. So the first one tells, and those that wait for nothing leave before.
Implements herdpy.driver.interfaces.Silences.
"""

from herdpy.driver.dsn import Address
from herdpy.driver.interfaces import Found

_NODES_MAX = 64
"""Of more the one that was noted first is forgotten."""


class NodeSilences:
    """See the module. A connection that is made later may find that the node goes on."""

    def __init__(self) -> None:
        self._newest: dict[Address, int] = {}
        """Number of the newest connection that was given up, by node; each step is atomic."""

    def note(self, found: Found) -> None:
        newest = max(found.number, self._newest.pop(found.address, found.number))
        self._newest[found.address] = newest
        for address in list(self._newest)[:-_NODES_MAX]:
            self._newest.pop(address, None)

    def has(self, found: Found) -> bool:
        return self._newest.get(found.address, -1) >= found.number
