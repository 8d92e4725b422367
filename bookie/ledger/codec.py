"""Entry packets: what an entry is on the wire and on disk, and the digest that protects it.

    offset  width  type   meaning
    0       8      i64    ledger id
    8       8      i64    entry id
    16      8      i64    last add confirmed, as the writer knew it when it built the packet
    24      8      i64    length: bytes of payload of the ledger up to and with this entry
    32      n             digest over bytes 0 to 31 and the payload
    32 + n                payload

A LAC packet is `ledger id, lac, digest over these 16 bytes`. Integers are big-endian. n and the
digest depend on the digest type of the ledger: CRC32 8 (an int64 whose upper half is 0), HMAC 20,
CRC32C 4, DUMMY 0. The same bytes are used by v2, v3, journal and entry log. Source:
docs/formats/entry.md. No function keeps state; any thread may call.
"""

import hmac
from collections.abc import Callable
from hashlib import sha1
from hmac import compare_digest
from struct import Struct
from struct import error as StructError  # noqa: N812 - the module calls its only class "error"
from typing import NamedTuple
from zlib import crc32

from google_crc32c import extend as extend_crc32c
from google_crc32c import value as crc32c

from bookie.errors import DigestMismatchError, IncorrectParameterError
from bookie.ledger.types import DigestType

BytesLike = bytes | bytearray | memoryview

HEADER_BYTES = 32
LAC_HEADER_BYTES = 16

_HEADER = Struct(">qqqq")
_LAC_HEADER = Struct(">qq")
_U32 = Struct(">I")
_U64 = Struct(">Q")


class EntryHeader(NamedTuple):
    """The first 32 bytes of a packet, as they say, without a look at the digest."""

    ledger_id: int
    entry_id: int
    lac: int
    length: int


class Entry(NamedTuple):
    """A verified entry."""

    entry_id: int
    lac: int
    length: int
    """Bytes of payload of the ledger up to and with this entry."""
    payload: bytes
    """A copy: it does not keep the packet's buffer."""


def master_key(password: bytes) -> bytes:
    """Return the 20 bytes that authorise writing and fencing, whatever the digest type."""
    return sha1(b"ledger" + password, usedforsecurity=False).digest()


def header_of(packet: BytesLike) -> EntryHeader:
    """Read the header of a packet; DigestMismatchError when it is too short to have one."""
    if len(packet) < HEADER_BYTES:
        raise DigestMismatchError(
            f"an entry of {len(packet)} bytes: expected at least {HEADER_BYTES}, its header"
        )
    return EntryHeader._make(_HEADER.unpack_from(packet))


def lac_header_of(packet: BytesLike) -> tuple[int, int]:
    """Read (ledger id, lac) of a LAC packet; DigestMismatchError when it is too short."""
    if len(packet) < LAC_HEADER_BYTES:
        raise DigestMismatchError(
            f"a LAC packet of {len(packet)} bytes: expected at least {LAC_HEADER_BYTES}"
        )
    return _LAC_HEADER.unpack_from(packet)


class EntryDigest:
    """Seals and opens packets of one digest type and password. Immutable."""

    __slots__ = ("_digest", "byte_count", "digest_type")

    def __init__(
        self, digest_type: DigestType, byte_count: int, digest: Callable[[bytes, bytes], bytes]
    ) -> None:
        self.digest_type = digest_type
        self.byte_count = byte_count
        """What the digest adds to an entry or LAC packet."""
        self._digest = digest

    @staticmethod
    def of(digest_type: DigestType, password: bytes) -> "EntryDigest":
        match digest_type:
            case DigestType.CRC32C:
                return EntryDigest(digest_type, 4, _crc32c)
            case DigestType.CRC32:
                return EntryDigest(digest_type, 8, _crc32)
            case DigestType.HMAC:
                return EntryDigest(digest_type, 20, _hmac(password))
            case DigestType.DUMMY:
                return EntryDigest(digest_type, 0, _dummy)

    def seal(
        self, ledger_id: int, entry_id: int, lac: int, length: int, payload: BytesLike
    ) -> bytes:
        """Return the packet; `length` already counts this payload."""
        try:
            header = _HEADER.pack(ledger_id, entry_id, lac, length)
        except StructError:
            raise IncorrectParameterError(
                "ledger id, entry id, lac and length: expected four int64, found"
                f" {ledger_id}, {entry_id}, {lac}, {length}"
            ) from None
        if type(payload) is not bytes:
            payload = bytes(payload)
        return b"".join((header, self._digest(header, payload), payload))

    def open(self, packet: BytesLike, ledger_id: int, entry_id: int | None) -> Entry:
        """Verify and take apart; DigestMismatchError: ask the next replica.

        entry_id None takes any entry of the ledger: the answer to a read of the last one.
        """
        start = HEADER_BYTES + self.byte_count
        if len(packet) < start:
            raise DigestMismatchError(
                f"entry {entry_id} of ledger {ledger_id}: a packet of {len(packet)} bytes;"
                f" expected at least {start} with a {self.digest_type.name} digest"
            )
        header = bytes(packet[:HEADER_BYTES])
        payload = bytes(packet[start:])
        expected = self._digest(header, payload)
        if not compare_digest(expected, bytes(packet[HEADER_BYTES:start])):
            raise DigestMismatchError(
                f"entry {entry_id} of ledger {ledger_id}: the {self.digest_type.name} digest does"
                " not match; the packet is damaged, or password or digest type are not the writer's"
            )
        found_ledger_id, found_entry_id, lac, length = _HEADER.unpack(header)
        if found_ledger_id != ledger_id or (entry_id is not None and found_entry_id != entry_id):
            raise DigestMismatchError(
                f"expected entry {entry_id} of ledger {ledger_id}, found entry {found_entry_id}"
                f" of ledger {found_ledger_id}"
            )
        return Entry(found_entry_id, lac, length, payload)

    def seal_lac(self, ledger_id: int, lac: int) -> bytes:
        """Return the body of WRITE_LAC."""
        header = _LAC_HEADER.pack(ledger_id, lac)
        return header + self._digest(header, b"")

    def open_lac(self, packet: BytesLike, ledger_id: int) -> int:
        """Verify a LAC packet and return its LAC; DigestMismatchError when it is not one."""
        expected_byte_count = LAC_HEADER_BYTES + self.byte_count
        header = bytes(packet[:LAC_HEADER_BYTES])
        if len(packet) != expected_byte_count or not compare_digest(
            self._digest(header, b""), bytes(packet[LAC_HEADER_BYTES:])
        ):
            raise DigestMismatchError(
                f"LAC packet of ledger {ledger_id}: {len(packet)} bytes without a matching"
                f" {self.digest_type.name} digest; expected {expected_byte_count} bytes"
            )
        found_ledger_id, lac = _LAC_HEADER.unpack(header)
        if found_ledger_id != ledger_id:
            raise DigestMismatchError(
                f"expected a LAC packet of ledger {ledger_id}, found one of {found_ledger_id}"
            )
        return lac


def _crc32c(header: bytes, payload: bytes) -> bytes:
    return _U32.pack(extend_crc32c(crc32c(header), payload))


def _crc32(header: bytes, payload: bytes) -> bytes:
    return _U64.pack(crc32(payload, crc32(header)))


def _hmac(password: bytes) -> Callable[[bytes, bytes], bytes]:
    key = sha1(b"mac" + password, usedforsecurity=False).digest()
    keyed = hmac.new(key, digestmod=sha1)

    def digest(header: bytes, payload: bytes) -> bytes:
        state = keyed.copy()
        state.update(header)
        state.update(payload)
        return state.digest()

    return digest


def _dummy(header: bytes, payload: bytes) -> bytes:
    return b""
