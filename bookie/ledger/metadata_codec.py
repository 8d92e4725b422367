r"""LedgerMetadata to the bytes of the metadata store and back, in the three formats there are.

    "BookieMetadataFormatVersion\t" version "\n", then
    version 1: lines of text: Qw, E, length; a line for each segment; a line that it is closed
    version 2: LedgerMetadataFormat (ledger_metadata.proto) in protobuf's text format
    version 3: varint length, then LedgerMetadataFormat in binary

What is written is what BookKeeper writes: length 0 and last entry -1 while the ledger is not
closed, the token in version 3 only. Fields of version 3 that are not known here are kept and
written again (BookKeeper drops them): the client that made them may rely on them. What is read is
what BookKeeper reads, but checked: every ledger that comes out has its quorums in order and
ensembles of their size. Bytes that are no metadata raise MetadataFormatError and nothing else.
Source: docs/formats/ledger_metadata.md.
"""

import re
from copy import deepcopy

from google.protobuf import text_format
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from bookie.errors import IncorrectParameterError, MetadataFormatError
from bookie.ledger import proto_text
from bookie.ledger.ledger_metadata_pb2 import LedgerMetadataFormat
from bookie.ledger.types import (
    INVALID_ENTRY_ID,
    BookieId,
    DigestType,
    EntryId,
    LedgerId,
    LedgerMetadata,
    LedgerState,
    Segment,
    parse_bookie_id,
)

METADATA_BYTES_MAX = 16 * 1024 * 1024
"""ZooKeeper's own limit for a node is 1 MiB unless it is told otherwise."""

_KEY = b"BookieMetadataFormatVersion\t"
_VERSION_DIGITS_MAX = 10
_CLOSED = "CLOSED"
_IN_RECOVERY_LAST_ENTRY = -102
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_NEWLINE = re.compile(r"\r\n|\n|\r")
_ESCAPE = re.compile(r"\\(?:[0-7]{3}|.)")
_JAVA_ESCAPES = {r"\007": r"\a", r"\010": r"\b", r"\013": r"\v", r"\014": r"\f"}
_STATE_FIELD, _DIGEST_TYPE_FIELD = 5, 7


def encode(metadata: LedgerMetadata) -> bytes:
    """Return the bytes of the format version that the metadata names.

    IncorrectParameterError when that version cannot say it: nothing is left out in silence.
    """
    header = _KEY + str(metadata.format_version).encode() + b"\n"
    match metadata.format_version:
        case 1:
            return header + _encode_lines(metadata)
        case 2:
            _insist_on_no_unknown_fields(metadata)
            message = _to_message(metadata)
            text = text_format.MessageToString(message, as_utf8=False)
            return header + _ESCAPE.sub(_as_java_escapes, text).encode("ascii")
        case 3:
            message = _to_message(metadata)
            message.cToken = metadata.creator_token or 0
            message.MergeFromString(metadata.unknown_fields)
            body = message.SerializeToString()
            return header + _varint(len(body)) + body
        case version:
            raise IncorrectParameterError(
                f"ledger {metadata.ledger_id}: metadata format {version}; expected 1, 2 or 3"
            )


def decode(ledger_id: LedgerId, data: bytes, ctime_ms: int | None = None) -> LedgerMetadata:
    """Read metadata of any version; ctime_ms counts when the metadata itself has none."""
    if len(data) > METADATA_BYTES_MAX:
        raise _damage(ledger_id, f"{len(data)} bytes; expected at most {METADATA_BYTES_MAX}")
    version, start = _read_header(ledger_id, data)
    match version:
        case 1:
            metadata = _decode_lines(ledger_id, data[start:], ctime_ms)
        case 2:
            metadata = _from_message(ledger_id, _parse_text(ledger_id, data[start:]), 2, ctime_ms)
        case 3:
            message = _parse_delimited(ledger_id, data, start)
            metadata = _from_message(ledger_id, message, 3, ctime_ms)
        case _:
            raise _damage(ledger_id, f"format version {version}; expected 1, 2 or 3")
    _check(metadata)
    return metadata


def _damage(ledger_id: int, what: str) -> MetadataFormatError:
    return MetadataFormatError(f"metadata of ledger {ledger_id}: {what}")


def _read_header(ledger_id: int, data: bytes) -> tuple[int, int]:
    end = data.find(b"\n", len(_KEY), len(_KEY) + _VERSION_DIGITS_MAX)
    if not data.startswith(_KEY) or end < 0:
        raise _damage(ledger_id, f"expected {_KEY!r}, a number and a newline; found another")
    return _integer(ledger_id, data[len(_KEY) : end].decode("latin-1"), 31), end + 1


def _integer(ledger_id: int, text: str | None, bits: int) -> int:
    if text is not None and _INTEGER.fullmatch(text):
        number = int(text)
        if -(1 << bits) <= number < 1 << bits:
            return number
    raise _damage(ledger_id, f"expected an integer of {bits + 1} bits, found {text!r}")


def _check(metadata: LedgerMetadata) -> None:
    """Make sure of what every user of LedgerMetadata relies on."""
    ledger_id = metadata.ledger_id
    e, qw, qa = metadata.ensemble_size, metadata.write_quorum_size, metadata.ack_quorum_size
    if not e >= qw >= qa >= 1:
        raise _damage(ledger_id, f"expected E >= Qw >= Qa >= 1, found {e}, {qw}, {qa}")
    if not metadata.segments or metadata.segments[0].first_entry_id != 0:
        raise _damage(ledger_id, "expected a segment that begins at entry 0")
    previous = -1
    for segment in metadata.segments:
        if segment.first_entry_id <= previous:
            raise _damage(ledger_id, f"two segments begin at entry {segment.first_entry_id}")
        if len(segment.ensemble) != e:
            raise _damage(
                ledger_id,
                f"the segment at entry {segment.first_entry_id} has {len(segment.ensemble)}"
                f" bookies; expected {e}",
            )
        previous = segment.first_entry_id
    if metadata.last_entry_id < -1 or metadata.length < 0:
        raise _damage(
            ledger_id,
            f"closed at entry {metadata.last_entry_id} with {metadata.length} bytes; expected"
            " an entry from -1 and a length from 0",
        )


# --- version 1 ------------------------------------------------------------------------------------


def _insist_on_no_unknown_fields(metadata: LedgerMetadata) -> None:
    if metadata.unknown_fields or any(segment.unknown_fields for segment in metadata.segments):
        raise IncorrectParameterError(
            f"ledger {metadata.ledger_id}: metadata format {metadata.format_version} has no room"
            " for fields that are not known here; use format 3"
        )


def _encode_lines(metadata: LedgerMetadata) -> bytes:
    _insist_on_no_unknown_fields(metadata)
    if metadata.ack_quorum_size != metadata.write_quorum_size or metadata.custom:
        raise IncorrectParameterError(
            f"ledger {metadata.ledger_id}: metadata format 1 has no room for an ack quorum of its"
            " own, nor for custom metadata; use format 3"
        )
    length = metadata.length if metadata.is_closed else 0
    lines = [str(metadata.write_quorum_size), str(metadata.ensemble_size), str(length)]
    lines += ["\t".join((str(s.first_entry_id), *s.ensemble)) for s in metadata.segments]
    match metadata.state:
        case LedgerState.OPEN:
            end = ""
        case LedgerState.IN_RECOVERY:
            end = f"{_IN_RECOVERY_LAST_ENTRY}\t{_CLOSED}"
        case LedgerState.CLOSED:
            end = f"{metadata.last_entry_id}\t{_CLOSED}"
    return ("\n".join(lines) + "\n" + end).encode()


def _decode_lines(ledger_id: LedgerId, data: bytes, ctime_ms: int | None) -> LedgerMetadata:
    lines = _NEWLINE.split(data.decode("utf-8", "replace"))
    if lines[-1] == "":
        lines.pop()
    if len(lines) < 3:
        raise _damage(ledger_id, f"{len(lines)} lines; expected Qw, E, length and segments")
    write_quorum_size = _integer(ledger_id, lines[0], 31)
    ensemble_size = _integer(ledger_id, lines[1], 31)
    length = _integer(ledger_id, lines[2], 63)
    state, last_entry_id = LedgerState.OPEN, INVALID_ENTRY_ID
    segments: list[Segment] = []
    for line in lines[3:]:
        first, *rest = line.split("\t")
        number = _integer(ledger_id, first, 63)
        if rest[:1] == [_CLOSED]:
            if number == _IN_RECOVERY_LAST_ENTRY:
                state = LedgerState.IN_RECOVERY
            else:
                state, last_entry_id = LedgerState.CLOSED, EntryId(number)
            break
        members = [_bookie_id(ledger_id, text) for text in rest]
        segments.append(Segment(EntryId(number), tuple(members)))
    return LedgerMetadata(
        ledger_id=ledger_id,
        ensemble_size=ensemble_size,
        write_quorum_size=write_quorum_size,
        ack_quorum_size=write_quorum_size,
        segments=tuple(sorted(segments, key=lambda s: s.first_entry_id)),
        digest_type=None,
        password=None,
        state=state,
        last_entry_id=last_entry_id,
        length=length if state is LedgerState.CLOSED else 0,
        format_version=1,
        ctime_ms=ctime_ms,
    )


def _bookie_id(ledger_id: int, text: str | bytes) -> BookieId:
    try:
        return parse_bookie_id(_text(ledger_id, text))
    except IncorrectParameterError as error:
        raise _damage(ledger_id, str(error)) from None


# --- versions 2 and 3 -----------------------------------------------------------------------------


def _to_message(metadata: LedgerMetadata) -> LedgerMetadataFormat:
    # None leaves a field out, which is how a ledger says that it has no password.
    message = LedgerMetadataFormat(
        digestType=metadata.digest_type.name if metadata.digest_type else None,
        password=metadata.password,
        quorumSize=metadata.write_quorum_size,
        ensembleSize=metadata.ensemble_size,
        length=metadata.length if metadata.is_closed else 0,
        lastEntryId=metadata.last_entry_id if metadata.is_closed else INVALID_ENTRY_ID,
        state=LedgerMetadataFormat.State.Name(metadata.state.value),
        ackQuorumSize=metadata.ack_quorum_size,
    )
    for segment in metadata.segments:
        added = message.segment.add(
            ensembleMember=segment.ensemble, firstEntryId=segment.first_entry_id
        )
        added.MergeFromString(segment.unknown_fields)
    if metadata.is_ctime_stored and metadata.ctime_ms is not None:
        message.ctime = metadata.ctime_ms
    for key, value in metadata.custom.items():
        message.customMetadata.add(key=key, value=value)
    return message


def _as_java_escapes(escape: re.Match[str]) -> str:
    """Java has letters for four characters that Python writes in octal; both read either."""
    return _JAVA_ESCAPES.get(escape[0], escape[0])


def _parse_text(ledger_id: int, data: bytes) -> LedgerMetadataFormat:
    message = LedgerMetadataFormat()
    try:
        proto_text.parse(data.decode("utf-8"), message)
    except ValueError as error:
        raise _damage(ledger_id, f"text of format 2: {error}") from None
    return message


def _parse_delimited(ledger_id: int, data: bytes, start: int) -> LedgerMetadataFormat:
    length = shift = 0
    position = start
    while True:
        if position >= len(data) or shift > 28:
            raise _damage(ledger_id, "no length of at most five bytes behind the header")
        byte = data[position]
        length |= (byte & 0x7F) << shift
        position += 1
        shift += 7
        if byte < 0x80:
            break
    body = data[position : position + length]
    if len(body) < length:
        raise _damage(ledger_id, f"{len(body)} bytes of {length} that were announced")
    # What follows the message is ignored, as BookKeeper does.
    try:
        return LedgerMetadataFormat.FromString(body)
    except DecodeError as error:
        raise _damage(ledger_id, f"no protobuf message of format 3: {error}") from None


def _from_message(
    ledger_id: LedgerId, message: LedgerMetadataFormat, version: int, ctime_ms: int | None
) -> LedgerMetadata:
    if not message.IsInitialized():
        raise _damage(ledger_id, "a required field is missing, or its value is not known here")
    for field in UnknownFieldSet(message):
        if field.field_number == _DIGEST_TYPE_FIELD:
            raise _damage(ledger_id, "a digest type that is not known here")
        if field.field_number == _STATE_FIELD:
            raise _damage(ledger_id, "a state that is not known here")
    state = LedgerState(message.state)
    is_closed = state is LedgerState.CLOSED
    if is_closed and not message.HasField("lastEntryId"):
        raise _damage(ledger_id, "closed without a last entry")
    try:
        custom = {_text(ledger_id, item.key): item.value for item in message.customMetadata}
        segments = [
            Segment(
                EntryId(segment.firstEntryId),
                tuple(_bookie_id(ledger_id, member) for member in segment.ensembleMember),
                _unknown_fields(segment),
            )
            for segment in message.segment
        ]
    except UnicodeDecodeError as error:
        raise _damage(ledger_id, f"text that is not UTF-8: {error}") from None
    return LedgerMetadata(
        ledger_id=ledger_id,
        ensemble_size=message.ensembleSize,
        write_quorum_size=message.quorumSize,
        ack_quorum_size=(
            message.ackQuorumSize if message.HasField("ackQuorumSize") else message.quorumSize
        ),
        segments=tuple(sorted(segments, key=lambda s: s.first_entry_id)),
        digest_type=DigestType(message.digestType) if message.HasField("digestType") else None,
        password=message.password if message.HasField("password") else None,
        state=state,
        last_entry_id=EntryId(message.lastEntryId) if is_closed else INVALID_ENTRY_ID,
        length=message.length if is_closed else 0,
        format_version=version,
        ctime_ms=message.ctime if message.HasField("ctime") else ctime_ms,
        is_ctime_stored=message.HasField("ctime"),
        creator_token=message.cToken if version == 3 else None,
        custom=custom,
        unknown_fields=_unknown_fields(message),
    )


def _text(ledger_id: int, text: str | bytes) -> str:
    if isinstance(text, bytes):  # what protobuf makes of a proto2 string that is no UTF-8
        raise _damage(ledger_id, f"{text!r}: expected text in UTF-8")
    return text


def _unknown_fields(message: Message) -> bytes:
    """Return the fields of the message itself that are not known here, as they came."""
    if not len(UnknownFieldSet(message)):
        return b""
    rest = deepcopy(message)
    for field, _ in message.ListFields():
        rest.ClearField(field.name)
    return rest.SerializePartialToString()


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
