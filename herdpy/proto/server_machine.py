"""ServerMachine: the server's side of one connection, without I/O: messages in, actions out.

States: NEW until Hello was answered, LOGIN if it was by a question, then READY, then CLOSED.
Requests are answered in the order in which they came, one at a time; Cancel and Ping pass them. The
machine says when the peer is to be read no further (`is_full`). One thread. Source:
docs/protocols/frames.md.
"""

from collections import deque
from enum import Enum
from typing import Any, NamedTuple

from bookie.errors import FrameTooLargeError
from bookie.runtime.frames import FrameSplitter
from herdpy.errors import Error, OperationalError, ProtocolError, Retry
from herdpy.proto import messages
from herdpy.proto.errors import to_failed
from herdpy.proto.messages import Message

_ENDED = "57P01"
"""The connection was ended: by KILL, DROP USER, the server's end."""
WAITING_MAX = 1000
WAITING_BYTES_MAX = messages.FRAME_BYTES_MAX


class State(Enum):
    NEW = 1
    READY = 2
    CLOSED = 3
    LOGIN = 4


class Send(NamedTuple):
    message: Message


class Start(NamedTuple):
    """Make the session; then welcome(), or ask() for a login, or refuse()."""

    hello: messages.Hello


class Login(NamedTuple):
    """Go on with the login; then ask(), or welcome(), or refuse()."""

    message: messages.ScramStart | messages.ScramProof


class Run(NamedTuple):
    """Carry out this request; then answered()."""

    message: Any


class Skip(NamedTuple):
    """This request was cancelled while it waited: answer that, or carry it out; answered()."""

    message: Any


class Stop(NamedTuple):
    """Cancel the request that runs."""


class Close(NamedTuple):
    """Close the connection when everything was sent."""

    reason: str


_new: Any = tuple.__new__  # a NamedTuple without the Python function around it, once per request
_STATEMENTS = (messages.Execute, messages.ExecuteKept)
Action = Send | Start | Login | Run | Skip | Stop | Close


class ServerMachine:
    def __init__(self) -> None:
        self._splitter = FrameSplitter(messages.HELLO_BYTES_MAX)
        self.state = State.NEW
        self._is_starting = False
        self._running: int | None = None  # the number of the request; 0: it has none
        self._waiting: deque[tuple[Any, int]] = deque()
        self._waiting_bytes = 0
        self.is_holding = False
        """Something is kept for the peer, or was when it was last looked at."""
        self._kept: dict[int, str] = {}  # statements by number
        self._waiting_numbers: set[int] = set()
        self._cancelled: set[int] = set()  # of those that wait

    @property
    def is_full(self) -> bool:
        """True: read nothing from the peer until requests were answered."""
        return (
            len(self._waiting) >= WAITING_MAX
            or self._waiting_bytes >= WAITING_BYTES_MAX
            or self._is_starting
        )

    @property
    def is_idle(self) -> bool:
        """No request runs or waits."""
        return self._running is None and not self._waiting and not self._is_starting

    @property
    def is_fetch_next(self) -> bool:
        """The request that waits for the one that runs asks for more of a result."""
        return bool(self._waiting) and isinstance(self._waiting[0][0], messages.Fetch)

    @property
    def is_inside_frame(self) -> bool:
        """A part of a frame has come, and its rest has not."""
        return self._splitter.buffered_byte_count > 0

    @property
    def running_byte_count(self) -> int:
        """The length of the message of the request that runs."""
        return self._running_bytes if self._running is not None else 0

    @property
    def buffered_byte_count(self) -> int:
        """What is kept for the peer: a part of a message, and requests that wait."""
        return self._splitter.buffered_byte_count + self._waiting_bytes

    def receive(self, data: bytes) -> list[Action]:
        if self.state is State.CLOSED:
            return []
        actions: list[Action] = []
        try:
            for frame in self._splitter.feed(data):
                arrived: Any = frame.obj
                if self._running is not None and 2 * len(frame) < len(arrived):
                    frame = memoryview(
                        bytes(frame)
                    )  # what waits must not keep all that came with it
                self._take(messages.decode_to_server(frame), len(frame), actions)
                if self.state is State.CLOSED:
                    break
            if self._splitter.is_partial or self._waiting or self._is_starting:
                self.is_holding = True
        except FrameTooLargeError as error:
            self._fail(ProtocolError(str(error)), actions)
        except ProtocolError as error:
            self._fail(error, actions)
        return actions

    def take(self, message: Message, byte_count: int) -> list[Action]:
        """Take a message that came whole, of so many bytes."""
        actions: list[Action] = []
        if self.state is not State.CLOSED:
            try:
                self._take(message, byte_count, actions)
            except ProtocolError as error:
                self._fail(error, actions)
            if self._waiting or self._is_starting:
                self.is_holding = True
        return actions

    def _take(self, message: Any, byte_count: int, actions: list[Action]) -> None:
        if self.state is State.READY and message.__class__ in _STATEMENTS and message.request > 0:
            message = self._with_text(message)
            if self._running is None:
                self._running, self._running_bytes = message.request, byte_count
                actions.append(_new(Run, (message,)))
            else:
                self._take_request(message, byte_count, actions)
            return
        number: int = getattr(message, "request", 1)
        if number < 1:  # 0 means the connection
            raise ProtocolError(f"a request of the number {number}: expected 1 or more")
        if self.state is State.NEW:
            self._begin(message, actions)
        elif self.state is State.LOGIN:
            self._login(message, actions)
        elif isinstance(message, (messages.ScramStart, messages.ScramProof)):
            self._fail(ProtocolError("a login after Welcome"), actions)
        elif isinstance(message, messages.Ping):
            actions.append(Send(messages.Pong(message.request)))
        elif isinstance(message, messages.Cancel):
            self._cancel(message.request, actions)
        elif isinstance(message, messages.Hello):
            self._fail(ProtocolError("a second Hello"), actions)
        else:
            self._take_request(self._with_text(message), byte_count, actions)

    def _take_request(self, message: Any, byte_count: int, actions: list[Action]) -> None:
        if self._running is None:
            self._running = getattr(message, "request", 0)
            self._running_bytes = byte_count
            actions.append(_new(Run, (message,)))
        else:
            self._waiting.append((message, byte_count))
            self._waiting_bytes += byte_count
            self._waiting_numbers.add(getattr(message, "request", 0))

    def _with_text(self, message: Any) -> Any:
        """Keep the text of an Execute, if it says so; put it into an ExecuteKept."""
        if isinstance(message, messages.Execute):
            if message.keep:
                if (
                    not 1 <= message.keep <= messages.KEPT_MAX
                    or len(message.text) > messages.KEPT_CHARACTERS_MAX
                ):
                    raise ProtocolError(
                        f"a statement of {len(message.text)} characters to keep as {message.keep}"
                    )
                self._kept[message.keep] = message.text
        elif isinstance(message, messages.ExecuteKept):
            text = self._kept.get(message.statement)
            if text is None:
                raise ProtocolError(f"no statement is kept as {message.statement}")
            parameters, token = message.parameters, message.token
            return messages.Execute(message.request, text, parameters, token, message.acknowledged)
        return message

    def _begin(self, message: Message, actions: list[Action]) -> None:
        if not isinstance(message, messages.Hello) or self._is_starting:
            self._fail(ProtocolError("expected one Hello first"), actions)
        elif message.magic != messages.MAGIC:
            self._fail(ProtocolError(f"expected the magic {messages.MAGIC!r}"), actions)
        elif not message.version_min <= messages.VERSION <= message.version_max:
            error = OperationalError(
                f"this server speaks version {messages.VERSION} of the protocol, the driver "
                f"{message.version_min} to {message.version_max}",
                sqlstate="08004",
                hint="install a driver and a server of the same release",
            )
            self._fail(error, actions)
        else:
            self._is_starting = True
            actions.append(Start(message))

    def _login(self, message: Message, actions: list[Action]) -> None:
        if not isinstance(message, (messages.ScramStart, messages.ScramProof)) or self._is_starting:
            self._fail(ProtocolError("expected the messages of a login, one at a time"), actions)
        else:
            self._is_starting = True
            actions.append(Login(message))

    def _cancel(self, request: int, actions: list[Action]) -> None:
        if request == self._running:
            actions.append(Stop())
        elif request in self._waiting_numbers:
            self._cancelled.add(request)

    def _fail(self, error: Error, actions: list[Action]) -> None:
        """End the connection because of what the peer sent."""
        actions.append(Send(to_failed(0, error, in_transaction=False)))
        actions += self.close(error.message)

    # --- what the owner tells --------------------------------------------------------------------

    def ask(self, question: Message) -> list[Action]:
        """Go on after Start or Login: the peer is not welcome before it has answered this."""
        if self.state is State.CLOSED:
            return []
        self._is_starting = False
        self.state = State.LOGIN
        return [Send(question)]

    def welcome(self, *answers: Message) -> list[Action]:
        """Go on after Start or Login: the session is there."""
        if self.state not in (State.NEW, State.LOGIN):
            return []
        self._is_starting = False
        self.state = State.READY
        self._splitter.frame_bytes_max = messages.FRAME_BYTES_MAX
        return [Send(answer) for answer in answers]

    def refuse(self, error: Error, *, has_begun: bool = True) -> list[Action]:
        """End the connection after Start, or at any other moment, and say why.

        has_begun: False when the request that was to be run was not, nor will be.
        """
        if self.state is State.CLOSED:
            return []
        if self._running is not None and has_begun:
            if error.retry is Retry.SAFE:
                error = _of_unknown_outcome(error, Retry.UNKNOWN)
            elif error.sqlstate == _ENDED:
                # What runs may be a COMMIT that the log has: KILL does not take it back.
                error = _of_unknown_outcome(error, error.retry)
        actions: list[Action] = []
        self._fail(error, actions)
        return actions

    def on_reply(self) -> list[Action]:
        """Go on with what waits: what ran was answered."""
        self._running = None
        if self.state is State.CLOSED:
            return []
        actions: list[Action] = []
        if self._waiting:
            message, byte_count = self._waiting.popleft()
            self._waiting_bytes -= byte_count
            self._running_bytes = byte_count
            request: int = getattr(message, "request", 0)
            self._running = request
            self._waiting_numbers.discard(request)
            if request in self._cancelled:
                self._cancelled.discard(request)
                actions.append(Skip(message))
            else:
                actions.append(Run(message))
        return actions

    def close(self, reason: str) -> list[Action]:
        """End: what waits is not run; what runs is cancelled."""
        if self.state is State.CLOSED:
            return []
        self.state = State.CLOSED
        self._waiting.clear()
        self._waiting_bytes = 0
        stop: list[Action] = [Stop()] if self._running is not None else []
        return [*stop, Close(reason)]


def _of_unknown_outcome(error: Error, retry: Retry) -> Error:
    """Return the same error for a driver whose request runs: it may have happened."""
    return type(error)(
        error.message,
        sqlstate=error.sqlstate,
        retry=retry,
        hint="look whether what ran has happened before repeating it",
    )
