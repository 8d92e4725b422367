"""Wire: hears every message between clients and bookies, and lets faults happen at one of them.

A Trigger waits for the n-th message of a kind, from or to one host maybe, and then calls its
action, at once (before the message arrives) or a little later (while it is being handled).
"""

from collections.abc import Callable
from dataclasses import dataclass

from bookie.ledger.types import Status
from bookie.proto import v3
from tests.sim.network import SimulatedTransport

KINDS = (
    "add",
    "add reply",
    "recovery add",
    "recovery add reply",
    "fence",
    "fence reply",
    "recovery read",
    "recovery read reply",
    "read",
    "read reply",
    "read lac",
    "read lac reply",
    "write lac",
    "force",
    "long poll",
)


@dataclass(slots=True)
class Message:
    """One message on its way."""

    kind: str
    client: str
    bookie: str
    ledger_id: int
    entry_id: int
    status: Status | None = None


@dataclass(slots=True)
class Trigger:
    """Calls action(message) after delay_s at the n-th message of a kind."""

    kind: str
    count: int
    delay_s: float
    action: Callable[[Message], object]
    bookie: str | None = None
    ledger_id: int | None = None


class Wire:
    """Listens on a network (Network.on_write)."""

    def __init__(
        self,
        call_later: Callable[[float, Callable[[], object]], object],
        on_message: Callable[[Message], object],
        say: Callable[[str], object] | None,
    ) -> None:
        self.triggers: list[Trigger] = []
        self._call_later = call_later
        self._on_message = on_message
        self._say = say
        self._asked: dict[tuple[int, int, int], Message] = {}

    def heard(self, transport: SimulatedTransport, data: bytes) -> None:
        """Take what one side wrote: whole frames, as both sides write them."""
        position = 0
        while position < len(data):
            end = position + 4 + int.from_bytes(data[position : position + 4])
            assert end <= len(data), "a write that is not made of whole frames"
            frame = data[position + 4 : end]
            position = end
            if transport.is_accepted:
                message = self._response(transport, frame)
            else:
                message = self._request(transport, frame)
            if message is not None:
                self._tell(message)

    def _request(self, transport: SimulatedTransport, frame: bytes) -> Message | None:
        request = v3.parse_request(frame)
        entry_id = -1
        if isinstance(request, v3.AddRequest):
            kind = "recovery add" if request.is_recovery else "add"
            entry_id = request.entry_id
        elif isinstance(request, v3.ReadRequest):
            entry_id = request.entry_id
            if request.is_fence:
                kind = "fence" if entry_id < 0 else "recovery read"
            else:
                kind = "read" if request.previous_lac is None else "long poll"
        elif isinstance(request, v3.ReadLacRequest):
            kind = "read lac"
        elif isinstance(request, v3.WriteLacRequest):
            kind = "write lac"
        elif isinstance(request, v3.ForceRequest):
            kind = "force"
        else:
            return None
        message = Message(
            kind, transport.local[0], transport.remote[0], request.ledger_id, entry_id
        )
        self._asked[transport.number, request.txn_id, request.operation] = message
        return message

    def _response(self, transport: SimulatedTransport, frame: bytes) -> Message | None:
        response = v3.parse_response(frame)
        if transport.peer is None:
            return None
        key = (transport.peer.number, response.txn_id, response.operation)
        asked = self._asked.pop(key, None)
        if asked is None:
            return None
        return Message(
            asked.kind + " reply",
            asked.client,
            asked.bookie,
            asked.ledger_id,
            asked.entry_id,
            response.status,
        )

    def _tell(self, message: Message) -> None:
        if self._say is not None:
            status = "" if message.status is None else f" {message.status.name}"
            arrow = "→" if message.status is None else "←"
            self._say(
                f"{message.client} {arrow} {message.bookie}: {message.kind}"
                f" {message.ledger_id}/{message.entry_id}{status}"
            )
        self._on_message(message)
        for trigger in self.triggers:
            if (
                trigger.kind == message.kind
                and trigger.bookie in (None, message.bookie)
                and trigger.ledger_id in (None, message.ledger_id)
            ):
                trigger.count -= 1
                if trigger.count == 0:
                    self._fire(trigger, message)
        if any(trigger.count <= 0 for trigger in self.triggers):
            self.triggers = [trigger for trigger in self.triggers if trigger.count > 0]

    def _fire(self, trigger: Trigger, message: Message) -> None:
        if trigger.delay_s < 0:
            trigger.action(message)
        else:
            self._call_later(trigger.delay_s, lambda: trigger.action(message))
