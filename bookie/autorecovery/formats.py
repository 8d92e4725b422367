"""The content of the nodes below `underreplication`, byte for byte as Apache BookKeeper's.

Text format but for the times of the checks, which are binary (docs/formats/zookeeper.md).
"""

from dataclasses import dataclass

from google.protobuf import text_format
from google.protobuf.message import DecodeError, Message

from bookie.autorecovery.formats_pb2 import (
    AuditorVoteFormat,
    CheckTimeFormat,
    LedgerRereplicationLayoutFormat,
    LockDataFormat,
    UnderreplicatedLedgerFormat,
)
from bookie.errors import CorruptFileError
from bookie.ledger import proto_text
from bookie.ledger.types import BookieId

LAYOUT_TYPE = "BASIC"
LAYOUT_VERSION = 1


@dataclass(frozen=True, slots=True)
class Task:
    """One under-replicated ledger: the bookies whose copies are missing, and since when."""

    missing: tuple[BookieId, ...]
    ctime_ms: int | None = None

    def to_bytes(self) -> bytes:
        message = UnderreplicatedLedgerFormat(replica=self.missing, ctime=self.ctime_ms)
        return _text(message)

    @staticmethod
    def from_bytes(data: bytes, where: str) -> "Task":
        """Read it; CorruptFileError names the node."""
        message = UnderreplicatedLedgerFormat()
        _parse(data, message, where)
        ctime_ms = message.ctime if message.HasField("ctime") else None
        return Task(tuple(BookieId(name) for name in message.replica), ctime_ms)

    def merged(self, missing: tuple[BookieId, ...]) -> "Task":
        """Return the task with these bookies, too."""
        new = tuple(bookie for bookie in missing if bookie not in self.missing)
        return Task((*self.missing, *new), self.ctime_ms)


def layout_bytes() -> bytes:
    return _text(LedgerRereplicationLayoutFormat(type=LAYOUT_TYPE, version=LAYOUT_VERSION))


def check_layout(data: bytes, where: str) -> None:
    """CorruptFileError unless it is the one layout that there is."""
    message = LedgerRereplicationLayoutFormat()
    _parse(data, message, where)
    if (message.type, message.version) != (LAYOUT_TYPE, LAYOUT_VERSION):
        raise CorruptFileError(
            f"{where}: expected the layout {LAYOUT_TYPE} {LAYOUT_VERSION}, found {message.type} "
            f"{message.version}: a newer BookKeeper keeps its tasks otherwise"
        )


def lock_bytes(owner: str) -> bytes:
    return _text(LockDataFormat(bookieId=owner))


def holder_of(data: bytes) -> str:
    """Return the owner's name in a lock; of what is none, its text."""
    message = LockDataFormat()
    try:
        _parse(data, message, "lock")
    except CorruptFileError:
        return data.decode("utf-8", "replace").strip()
    return message.bookieId


def vote_bytes(candidate: str) -> bytes:
    return _text(AuditorVoteFormat(bookieId=candidate))


def candidate_of(data: bytes, where: str) -> str:
    """Return the candidate's name in a vote; CorruptFileError."""
    message = AuditorVoteFormat()
    _parse(data, message, where)
    return message.bookieId


def check_time_bytes(time_ms: int) -> bytes:
    return CheckTimeFormat(ctime=time_ms).SerializeToString()


def check_time_of(data: bytes, where: str) -> int:
    """Return milliseconds since 1970; CorruptFileError."""
    message = CheckTimeFormat()
    try:
        message.ParseFromString(data)
    except DecodeError:
        raise CorruptFileError(f"{where}: expected the time of a check, found {data!r}") from None
    return message.ctime


def _text(message: Message) -> bytes:
    return text_format.MessageToString(message, as_utf8=True).encode("utf-8")


def _parse(data: bytes, message: Message, where: str) -> None:
    try:
        proto_text.parse(data.decode("utf-8"), message)
    except ValueError as error:
        raise CorruptFileError(f"{where}: expected a {type(message).__name__}: {error}") from None
