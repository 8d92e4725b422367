"""The faults that the simulation of drains has to find (tests/fixtures/plants.py)."""

from typing import Any

from bookie.lifecycle.drains import DrainMachine
from bookie.server.lifecycle_watch import LifecycleWatch
from tests.fixtures.plants import Plant


def _drained_by_missing_task(right: Any) -> Any:
    def decide(self: Any, facts: Any) -> Any:
        """Take a ledger of which the task is gone for one that is replicated."""
        seen = vars(self).setdefault("seen_tasks", set())
        seen.update(facts.tasks)
        named = {
            bookie_id: tuple(n for n in ledgers if n in facts.tasks or n not in seen)
            for bookie_id, ledgers in facts.named.items()
        }
        return right(self, facts._replace(named=named))

    return decide


def _cookie_gone_while_running(right: Any) -> Any:
    async def read(self: Any) -> bool:
        on_gone, self._on_gone = self._on_gone, lambda: None
        try:
            return bool(await right(self))
        finally:
            self._on_gone, self._is_gone = on_gone, False

    return read


PLANTS = {
    "drained by missing task": Plant(DrainMachine, "decide", _drained_by_missing_task),
    "cookie gone while running": Plant(LifecycleWatch, "_read", _cookie_gone_while_running),
}
