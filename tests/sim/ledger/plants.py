"""The faults that the lives of a ledger have to find, each by a checker that it names."""

from typing import Any

from bookie.ledger.recovery import ReadEntry, Recovery
from bookie.ledger.types import Status
from bookie.ledger.writer import WriterMachine
from bookie.server.bookie import Bookie
from bookie.server.storage.journal import JournalWriter
from tests.fixtures.plants import Plant


def _reads_without_fence(right: Any) -> Any:
    def ask(self: Recovery, read: Any) -> Any:
        return [ReadEntry(action.bookie, action.entry_id, False) for action in right(self, read)]

    return ask


def _start_at_any_lac(right: Any) -> Any:
    return lambda self, lac: lac


def _reply_before_fence_is_durable(right: Any) -> Any:
    def fence(self: Bookie, ledger_id: int, master_key: bytes, on_done: Any) -> None:
        answers: list[Status] = []
        right(self, ledger_id, master_key, answers.append)
        on_done(answers[0] if answers else Status.OK)

    return fence


def _complete_before_unset(right: Any) -> Any:
    def finish(self: WriterMachine) -> Any:
        change, self._change = self._change, None
        done = self._complete()
        self._change = change
        return [*done, *right(self)]

    return finish


def _no_sync(right: Any) -> Any:
    def write(self: JournalWriter, records: Any, *, is_synced: bool) -> Any:
        return right(self, records, is_synced=False)

    return write


def _stop_at_the_lac(right: Any) -> Any:
    def read_more(self: Recovery) -> Any:
        self._end = self._confirmed
        return self._finish()

    return read_more


PLANTS: dict[str, Plant] = {
    "#2614: recovery reads without fence": Plant(
        Recovery, "_ask", _reads_without_fence, ("durability", "fence")
    ),
    "#2615: recovery starts at LAC -1 of a fresh last ensemble": Plant(
        Recovery, "_confirmed_at_least", _start_at_any_lac, ("metadata", "errors")
    ),
    "G6: fence reply before the fence is durable": Plant(
        Bookie, "fence", _reply_before_fence_is_durable, ("durability", "fence")
    ),
    "G8: completion before the replaced acks are unset": Plant(
        WriterMachine, "_finish_change", _complete_before_unset, ("quorum",)
    ),
    "ack before fsync": Plant(JournalWriter, "write", _no_sync, ("durability",)),
    "recovery stops at the LAC": Plant(Recovery, "_read_more", _stop_at_the_lac, ("durability",)),
}
