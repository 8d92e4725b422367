"""DriverMachine: the driver's side of one connection, without I/O: requests out, answers in.

Answers come in the order of the requests; each is kept until it is taken. An answer that no caller
waits for any more is dropped, and an open result in it given up. One thread at a time.
"""

from collections.abc import Callable
from typing import Any

from bookie.errors import FrameTooLargeError
from bookie.runtime.frames import LENGTH_BYTES, FrameSplitter
from herdpy.errors import Error, OperationalError, ProtocolError
from herdpy.model.lsn import START_LSN, Lsn
from herdpy.proto.errors import from_failed
from herdpy.proto.messages import (
    ARROW_HEAD_BYTES,
    FRAME_BYTES_MAX,
    Answers,
    CloseResult,
    Done,
    Failed,
    Leased,
    LoginRequired,
    Message,
    Reached,
    Resolved,
    ScramChallenge,
    ScramVerified,
    StagingSettled,
    Welcome,
    decode_to_driver,
    encode_frame,
)
from herdpy.proto.scram import ScramDriver

_LARGE_BYTES_MIN = 256 * 1024
_LARGE_BYTES_MAX = 8 * 1024 * 1024
"""Of a message that gets memory of its own before it is there."""
_ARROW_ALIGNMENT = 64
_BEFORE_REQUESTS = frozenset((LoginRequired, ScramChallenge, ScramVerified, Welcome))
_OUTCOMES = frozenset((Done, Failed, Answers))
_POSITIONED = frozenset((Leased, StagingSettled))
"""Answers whose position is text: programs hand it on."""


def _lsn_of(position: str) -> Lsn:
    """Return a position that an answer tells as text; ProtocolError."""
    try:
        return Lsn.of_text(position)
    except ValueError:
        raise ProtocolError(f"expected a position, found {position!r:.100}") from None


def _zeros(byte_count: int) -> memoryview:
    return memoryview(bytearray(byte_count))


class LargeMessage:
    """A message on its way into memory of its own, where an Arrow stream in it is aligned."""

    __slots__ = ("_byte_count", "_frame")

    def __init__(self, memory: Callable[[int], memoryview], begun: bytearray, length: int) -> None:
        lead = -ARROW_HEAD_BYTES % _ARROW_ALIGNMENT
        self._frame = memory(lead + length)[lead:]
        self._byte_count = 0
        self.take(begun)

    @property
    def room(self) -> memoryview:
        return self._frame[self._byte_count :]

    def take(self, data: bytes | bytearray | memoryview) -> int:
        """Take what belongs to the message, unless it lies in the room already; its length."""
        room = self.room
        count = min(len(data), len(room))
        if not (isinstance(data, memoryview) and data.obj is self._frame.obj):
            room[:count] = data[:count]
        self._byte_count += count
        return count

    def body(self) -> memoryview | None:
        return None if self.room else self._frame[LENGTH_BYTES:]


class DriverMachine:
    def __init__(
        self,
        login: ScramDriver | None = None,
        memory: Callable[[int], memoryview] = _zeros,
    ) -> None:
        """Without a login a server that asks for one is a failure; with one, one that does not.

        `memory` gives so many bytes of memory for a large message.
        """
        self.memory = memory
        self._login = login
        self._splitter = FrameSplitter(FRAME_BYTES_MAX)
        self.large: LargeMessage | None = None
        """A message that is best received in its `room`; then the splitter has nothing."""
        self.last_request = 0
        self._expected: set[int] = set()
        self._abandoned: set[int] = set()
        self.answers: dict[int, Any] = {}
        """By request, until they are taken."""
        self.welcome: Welcome | None = None
        self.in_transaction = False
        """As the last answer said."""
        self._lsn: tuple[int, int, int] = START_LSN
        self.failure: Error | None = None
        """Why the connection is of no more use."""

    @property
    def lsn(self) -> Lsn:
        """Of the server's log: what the answers have shown or committed is at or before it."""
        return Lsn(*self._lsn)

    def new_request(self) -> int:
        """Return a number for a request whose answer will be expected."""
        self.last_request += 1
        self._expected.add(self.last_request)
        return self.last_request

    def is_open(self, request: int) -> bool:
        """Return whether an answer is expected, or was not taken."""
        return request in self._expected or request in self.answers

    def forget(self, request: int) -> None:
        """Take back a number: its request is not sent."""
        self._expected.discard(request)

    def abandon(self, request: int) -> list[Message]:
        """Expect no answer any more; return what to send about it."""
        answer = self.answers.pop(request, None)
        if answer is not None:
            return given_up(answer)
        if request in self._expected:
            self._expected.discard(request)
            self._abandoned.add(request)
        return []

    def receive(self, data: bytes | memoryview) -> list[Message]:
        """Take what arrived, maybe in the room; return what to send because of it."""
        replies: list[Message] = []
        splitter = self._splitter
        try:
            if self.large is not None:
                data = data[self.large.take(data) :]
                body = self.large.body()
                if body is None:
                    return replies
                self.large = None
                self.take_message(decode_to_driver(body), replies)
            for frame in splitter.feed(data):
                self.take_message(decode_to_driver(frame), replies)
            if splitter.is_partial:
                begun = splitter.hand_over(_LARGE_BYTES_MIN, _LARGE_BYTES_MAX)
                if begun is not None:
                    self.large = LargeMessage(self.memory, *begun)
        except FrameTooLargeError as error:
            self.failure = self.failure or ProtocolError(str(error))
        except OperationalError as error:  # ProtocolError is one
            self.failure = self.failure or error
        return replies

    def take_message(self, message: Any, replies: list[Message]) -> None:
        """Take one message, and add what to send because of it; OperationalError: it ends."""
        kind = message.__class__
        if kind in _BEFORE_REQUESTS:
            self._enter(message, replies)
            return
        request: int = message.request
        if kind in _OUTCOMES:
            if kind is Failed:
                if request == 0:
                    self.failure = from_failed(message)
                    return
            elif message.lsn > self._lsn:
                self._lsn = message.lsn
            self.in_transaction = message.in_transaction
        elif kind is Resolved or kind is Reached:
            self._lsn = max(self._lsn, Lsn(*message.lsn))
        elif kind in _POSITIONED and message.position is not None:
            self._lsn = max(self._lsn, _lsn_of(message.position))
        if request in self._expected:
            self._expected.remove(request)
            self.answers[request] = message
        elif request in self._abandoned:
            self._abandoned.remove(request)
            replies += given_up(message)
        else:
            raise ProtocolError(f"an answer to request {request}, which was not made")

    def _enter(
        self,
        message: LoginRequired | ScramChallenge | ScramVerified | Welcome,
        replies: list[Message],
    ) -> None:
        if self.welcome is not None:
            raise ProtocolError("a login, or a Welcome, after Welcome")
        if isinstance(message, Welcome):
            if self._login is not None and not self._login.is_verified:
                raise OperationalError(
                    "login: the server lets every client in and has not shown that it knows the "
                    "password: it may not be the one that is meant",
                    sqlstate="28000",
                    hint="leave user and password out if it has no users",
                )
            self.welcome = message
            return
        if self._login is None:
            raise OperationalError(
                "login: the server asks for a user and a password",
                sqlstate="28000",
                hint="a program gives it as connect()'s argument password; a command asks for it on"
                " a terminal, or takes HERDPY_PASSWORD or a password file (reference/url.md)",
            )
        if isinstance(message, LoginRequired):
            replies.append(self._login.start(message))
        elif isinstance(message, ScramChallenge):
            replies.append(self._login.prove(message))
        else:
            self._login.check(message)

    def take(self, request: int) -> Any:
        """Return the answer to a request, None while it has not come."""
        return self.answers.pop(request, None)


def given_up(answer: Any) -> list[Message]:
    """Return what closes the open results in an answer that no caller takes."""
    if isinstance(answer, Done) and answer.result is not None:
        return [CloseResult(answer.result)]
    if isinstance(answer, Answers):
        return [each for raw in answer.answers for each in given_up(decode_to_driver(raw))]
    return []


def frames(messages: list[Message]) -> bytes:
    return b"".join(map(encode_frame, messages))
