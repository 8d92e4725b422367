"""PlanningMemory: what one session's statement takes of memory until it runs: tokens, trees, text.

Each pass over a statement looks for a cancel every interrupt_nodes tokens, nodes or expressions
(limits.py), and asks here for the memory that it takes until the next look. What is made of a small
statement is too little to be counted.
"""

from herdpy.limits import look_bytes
from herdpy.model.governor import Account, Reservation

_LOOKS_FREE = 16


class PlanningMemory:
    """The session's thread; close() at the end of each statement."""

    __slots__ = ("_account", "_held", "_holder", "looks")

    def __init__(self, account: Account, holder: str) -> None:
        self._account = account
        self._holder = holder
        self.looks = 0
        """Since the last close(); 0: there is nothing to give back."""
        self._held: Reservation | None = None

    def look(self) -> None:
        """Ask for what a pass takes until its next look; 53200."""
        self.looks += 1
        if self.looks <= _LOOKS_FREE:
            return
        held = self._held
        if held is None:
            held = self._held = self._account.reserve(self._holder)
        if not held.grow_to(self.looks * look_bytes):
            raise held.refusal(
                "a statement that is read and planned",
                "Run it in parts, pass values as parameters, or give the database more"
                " memory_bytes_max.",
            )

    def close(self) -> None:
        """Give everything back; repeatable."""
        self.looks = 0
        held, self._held = self._held, None
        if held is not None:
            held.close()
