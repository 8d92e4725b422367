"""Ledger metadata in its three formats: golden bytes, round trips, tolerance, hostile bytes."""

import base64
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bookie.errors import IncorrectParameterError, MetadataFormatError
from bookie.ledger.metadata_codec import METADATA_BYTES_MAX, decode, encode
from bookie.ledger.types import (
    BookieId,
    DigestType,
    EntryId,
    LedgerId,
    LedgerMetadata,
    LedgerState,
    Segment,
    parse_bookie_id,
)

LEDGER = LedgerId(59)
# What releases of BookKeeper wrote: 4.0/4.1, 4.2/4.3, 4.4 to 4.8, and 4.9 and later.
GOLDEN = {
    "1": "Qm9va2llTWV0YWRhdGFGb3JtYXRWZXJzaW9uCTEKMgozCjAKMAkxOTIuMC4yLjE6MTIzNAkxOTIu"
    "MC4yLjI6MTIzNAkxOTIuMC4yLjM6MTIzNAotMTAyCUNMT1NFRA==",
    "2": "Qm9va2llTWV0YWRhdGFGb3JtYXRWZXJzaW9uCTIKcXVvcnVtU2l6ZTogMgplbnNlbWJsZVNpemU6I"
    "DMKbGVuZ3RoOiAwCmxhc3RFbnRyeUlkOiAtMQpzdGF0ZTogSU5fUkVDT1ZFUlkKc2VnbWVudCB7"
    "CiAgZW5zZW1ibGVNZW1iZXI6ICIxOTIuMC4yLjE6MTIzNCIKICBlbnNlbWJsZU1lbWJlcjogIjE"
    "5Mi4wLjIuMjoxMjM0IgogIGVuc2VtYmxlTWVtYmVyOiAiMTkyLjAuMi4zOjEyMzQiCiAgZmlyc3"
    "RFbnRyeUlkOiAwCn0KZGlnZXN0VHlwZTogQ1JDMzIKcGFzc3dvcmQ6ICJwYXNzd2QiCmFja1F1b"
    "3J1bVNpemU6IDIK",
    "2 with ctime": "Qm9va2llTWV0YWRhdGFGb3JtYXRWZXJzaW9uCTIKcXVvcnVtU2l6ZTogMgplbnNlbWJsZVNpemU6I"
    "DMKbGVuZ3RoOiAwCmxhc3RFbnRyeUlkOiAtMQpzdGF0ZTogSU5fUkVDT1ZFUlkKc2VnbWVudCB7"
    "CiAgZW5zZW1ibGVNZW1iZXI6ICIxOTIuMC4yLjE6MTIzNCIKICBlbnNlbWJsZU1lbWJlcjogIjE"
    "5Mi4wLjIuMjoxMjM0IgogIGVuc2VtYmxlTWVtYmVyOiAiMTkyLjAuMi4zOjEyMzQiCiAgZmlyc3"
    "RFbnRyeUlkOiAwCn0KZGlnZXN0VHlwZTogQ1JDMzIKcGFzc3dvcmQ6ICJwYXNzd2QiCmFja1F1b"
    "3J1bVNpemU6IDIKY3RpbWU6IDE1NDQwMDIzODMwNzUK",
    "3": "Qm9va2llTWV0YWRhdGFGb3JtYXRWZXJzaW9uCTMKYAgCEAMYACD///////////8BKAEyMgoOMTkyL"
    "jAuMi4xOjMxODEKDjE5Mi4wLjIuMjozMTgxCg4xOTIuMC4yLjM6MzE4MRAAOANCBmZvb2JhckgB"
    "UP///////////wFgAA==",
}
HEADER_3 = b"BookieMetadataFormatVersion\t3\n"


def members(port: int) -> tuple[BookieId, ...]:
    return tuple(BookieId(f"192.0.2.{n}:{port}") for n in (1, 2, 3))


def metadata(**changes: Any) -> LedgerMetadata:
    base = LedgerMetadata(
        ledger_id=LEDGER,
        ensemble_size=3,
        write_quorum_size=2,
        ack_quorum_size=2,
        segments=(Segment(EntryId(0), members(3181)),),
        creator_token=0,
    )
    return replace(base, **changes)


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_bytes_come_back_as_they_were(name: str) -> None:
    data = base64.b64decode(GOLDEN[name])
    assert encode(decode(LEDGER, data)) == data


def test_golden_version_1() -> None:
    assert decode(LEDGER, base64.b64decode(GOLDEN["1"]), 77) == metadata(
        segments=(Segment(EntryId(0), members(1234)),),
        state=LedgerState.IN_RECOVERY,
        digest_type=None,
        password=None,
        format_version=1,
        ctime_ms=77,
        creator_token=None,
    )


def test_golden_version_2() -> None:
    expected = metadata(
        segments=(Segment(EntryId(0), members(1234)),),
        state=LedgerState.IN_RECOVERY,
        digest_type=DigestType.CRC32,
        password=b"passwd",
        format_version=2,
        ctime_ms=77,
        creator_token=None,
    )
    assert decode(LEDGER, base64.b64decode(GOLDEN["2"]), 77) == expected
    assert decode(LEDGER, base64.b64decode(GOLDEN["2 with ctime"]), 77) == replace(
        expected, ctime_ms=1544002383075, is_ctime_stored=True
    )


def test_golden_version_3() -> None:
    assert decode(LEDGER, base64.b64decode(GOLDEN["3"]), 77) == metadata(
        ack_quorum_size=1, password=b"foobar", ctime_ms=-1, is_ctime_stored=True
    )


def test_golden_version_3_of_an_open_ledger() -> None:
    ensemble = tuple(BookieId(f"127.0.0.1:318{n}") for n in (1, 2, 3))
    data = encode(metadata(segments=(Segment(EntryId(0), ensemble),)))
    assert data.hex().startswith(
        "426f6f6b69654d65746164617461466f726d617456657273696f6e09330a4f"
        "08021003180020ffffffffffffffffff0128013232"
    )


def test_version_2_spells_a_password_as_java_does() -> None:
    password = bytes(range(14)) + b"\x7f\xff'\"\\007"
    data = encode(metadata(format_version=2, password=password))
    (line,) = (line for line in data.splitlines() if line.startswith(b"password"))
    assert line.decode() == (
        r'password: "\000\001\002\003\004\005\006\a\b\t\n\v\f\r\177\377\'\"\\007"'
    )
    assert decode(LEDGER, data).password == password


def test_version_1_by_hand() -> None:
    text = b"BookieMetadataFormatVersion\t1\n2\n3\n%s0\ta:1\tb:1\tc:1\n9\ta:1\td:1\tc:1\n%s"
    two = (
        Segment(EntryId(0), (BookieId("a:1"), BookieId("b:1"), BookieId("c:1"))),
        Segment(EntryId(9), (BookieId("a:1"), BookieId("d:1"), BookieId("c:1"))),
    )
    old = metadata(segments=two, digest_type=None, password=None, format_version=1)
    old = replace(old, creator_token=None)
    assert encode(old) == text % (b"0\n", b"")
    assert encode(old.with_state(LedgerState.IN_RECOVERY)) == text % (b"0\n", b"-102\tCLOSED")
    assert encode(old.closed(EntryId(11), 500)) == text % (b"500\n", b"11\tCLOSED")
    assert encode(old.closed(EntryId(-1), 0)) == text % (b"0\n", b"-1\tCLOSED")
    # Length without a last entry is an old writer's; it does not count.
    assert decode(LEDGER, text % (b"500\n", b"")) == old
    assert decode(LEDGER, text % (b"+0\n", b"-102\tCLOSED\nwhatever")).state.name == "IN_RECOVERY"
    assert (
        decode(LEDGER, (text % (b"0\n", b"")).replace(b"\n", b"\r\n").replace(b"\r", b"", 1)) == old
    )


def test_version_1_refuses_what_it_cannot_say() -> None:
    for changes in ({"ack_quorum_size": 1}, {"custom": {"a": b"b"}}):
        with pytest.raises(IncorrectParameterError, match="format 3"):
            encode(metadata(format_version=1, **changes))
    with pytest.raises(IncorrectParameterError, match="expected 1, 2 or 3"):
        encode(metadata(format_version=4))


def test_an_update_drops_the_creators_token() -> None:
    new = metadata(creator_token=2**62)
    assert decode(LEDGER, encode(new)).creator_token == 2**62
    for later in (
        new.with_state(LedgerState.IN_RECOVERY),
        new.closed(EntryId(5), 9),
        new.with_ensemble(EntryId(3), members(9)),
    ):
        assert later.creator_token == 0


def test_ctime_of_the_store_is_not_written() -> None:
    read = decode(LEDGER, encode(metadata()), 654321)
    assert (read.ctime_ms, read.is_ctime_stored) == (654321, False)
    assert decode(LEDGER, encode(read), 98765).ctime_ms == 98765
    stored = replace(read, is_ctime_stored=True)
    assert decode(LEDGER, encode(stored), 98765).ctime_ms == 654321


def test_length_and_last_entry_count_only_when_closed() -> None:
    open_ledger = metadata(length=5, last_entry_id=EntryId(7))
    for version in (1, 2, 3):
        encoded = encode(replace(open_ledger, format_version=version))
        assert encoded == encode(metadata(format_version=version))
        closed = replace(open_ledger, format_version=version, state=LedgerState.CLOSED)
        read = decode(LEDGER, encode(closed))
        assert (read.length, read.last_entry_id) == (5, 7)
    # A writer that leaves them in means nothing by it.
    read = decode(LEDGER, message_3(("length", 5), ("lastEntryId", 7)))
    assert (read.length, read.last_entry_id) == (0, -1)


def test_what_other_writers_leave_out_or_add() -> None:
    text = (
        b"BookieMetadataFormatVersion\t2\nquorumSize: 2 ensembleSize: 3 length: 0 state: OPEN"
        b' segment { firstEntryId: 4 ensembleMember: "a" ensembleMember: "b"'
        b" ensembleMember: 'd' } # a comment\n"
        b'segment < ensembleMember: ["a", "b", "c"] firstEntryId: 0 >'
    )
    read = decode(LEDGER, text)
    assert read.ack_quorum_size == 2
    assert (read.password, read.digest_type) == (None, None)
    assert [s.first_entry_id for s in read.segments] == [0, 4]
    assert decode(LEDGER, encode(read)) == read
    assert decode(LEDGER, encode(metadata()) + b"behind the message") == metadata()


quorums = st.integers(1, 5).flatmap(
    lambda qa: st.integers(qa, 6).flatmap(
        lambda qw: st.tuples(st.integers(qw, 7), st.just(qw), st.just(qa))
    )
)
bookie_ids = st.from_regex(r"\A[a-zA-Z0-9:-_.\-]{1,30}\Z").filter(
    lambda s: s.lower() not in ("readonly", ".", "..")
)
int64 = st.integers(-(2**63), 2**63 - 1)


@st.composite
def ledgers(draw: st.DrawFn) -> LedgerMetadata:
    e, qw, qa = draw(quorums)
    firsts = sorted({0, *draw(st.lists(st.integers(1, 2**63 - 1), max_size=4))})
    ensembles = st.lists(bookie_ids, min_size=e, max_size=e)
    segments = tuple(
        Segment(EntryId(first), tuple(BookieId(b) for b in draw(ensembles))) for first in firsts
    )
    state = draw(st.sampled_from(LedgerState))
    is_closed = state is LedgerState.CLOSED
    version = draw(st.sampled_from((1, 2, 3)))
    is_old = version == 1
    ctime_ms = draw(st.none() | int64)
    return LedgerMetadata(
        ledger_id=LEDGER,
        ensemble_size=e,
        write_quorum_size=qw,
        ack_quorum_size=qw if is_old else qa,
        segments=segments,
        digest_type=None if is_old else draw(st.sampled_from(DigestType)),
        password=None if is_old else draw(st.binary(max_size=20)),
        state=state,
        last_entry_id=EntryId(draw(st.integers(-1, 2**63 - 1)) if is_closed else -1),
        length=draw(st.integers(0, 2**63 - 1)) if is_closed else 0,
        format_version=version,
        ctime_ms=None if is_old else ctime_ms,
        is_ctime_stored=not is_old and ctime_ms is not None,
        creator_token=draw(st.integers(0, 2**63 - 1)) if version == 3 else None,
        custom={} if is_old else draw(st.dictionaries(st.text(), st.binary(), max_size=3)),
        unknown_fields=draw(st.sampled_from((b"", b"\xa0\x06\x2a"))) if version == 3 else b"",
    )


@given(ledgers())
def test_round_trip(ledger: LedgerMetadata) -> None:
    assert decode(LEDGER, encode(ledger)) == ledger


def try_to_decode(data: bytes) -> None:
    try:
        ledger = decode(LEDGER, data)
    except MetadataFormatError:
        pass
    else:
        assert ledger.segment_of(0).first_entry_id == 0
        assert decode(LEDGER, encode(ledger)) == ledger


@given(st.sampled_from((b"1\n", b"2\n", b"3\n", b"")), st.binary(max_size=200))
@example(b"", b"-2147483648\n")
@example(b"2\n", b'password: "\\x"')
@example(b"2\n", b"segment {" * 5000)
@example(b"3\n", b"\xff\xff\xff\xff\xff\xff\x01")
@example(b"1\n", b"1\n1\n0\n\n")
def test_random_bytes_raise_only_our_error(version: bytes, data: bytes) -> None:
    try_to_decode(b"BookieMetadataFormatVersion\t" + version + data)
    try_to_decode(data)


@given(ledgers(), st.data())
def test_mutated_metadata_raises_only_our_error(
    ledger: LedgerMetadata, data: st.DataObject
) -> None:
    encoded = bytearray(encode(ledger))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(encoded)))
        stop = data.draw(st.integers(start, min(len(encoded), start + 4)))
        encoded[start:stop] = data.draw(st.binary(max_size=4))
    try_to_decode(bytes(encoded))


def message_3(*fields: tuple[str, Any]) -> bytes:
    from bookie.ledger.ledger_metadata_pb2 import LedgerMetadataFormat

    message = LedgerMetadataFormat()
    message.MergeFromString(encode(metadata())[len(HEADER_3) + 1 :])
    for name, value in fields:
        if value is None:
            message.ClearField(name)
        else:
            setattr(message, name, value)
    body = message.SerializePartialToString()
    return HEADER_3 + bytes([len(body)]) + body


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "expected b'BookieMetadataFormatVersion"),
        (b"BookieMetadataFormatVersion\tfoobar\nblah", "'foobar'"),
        (b"BookieMetadataFormatVersion\t123456789123456789\nblah", "a number and a newline"),
        (b"BookieMetadataFormatVersion\t4\n", "version 4; expected 1, 2 or 3"),
        (b"BookieMetadataFormatVersion\t-1\n", "version -1"),
        (b"BookieMetadataFormatVersion\t3\n", "no length"),
        (b"BookieMetadataFormatVersion\t3\n\x80\x80\x80\x80\x80\x01", "no length"),
        (b"BookieMetadataFormatVersion\t3\n\x05abc", "3 bytes of 5"),
        (b"BookieMetadataFormatVersion\t3\n\x00", "required field"),
        (b"BookieMetadataFormatVersion\t2\n", "required field"),
        (b"BookieMetadataFormatVersion\t2\nquorumSize: 2\nquorumSize: 2", "text of format 2"),
        (b"BookieMetadataFormatVersion\t2\n\xff", "text of format 2"),
        (b'BookieMetadataFormatVersion\t2\npassword: "a\\qb"', "at character 12"),
        (b'BookieMetadataFormatVersion\t2\npassword: "\\777"', "expected an escape"),
        (b"BookieMetadataFormatVersion\t1\n1\n1\n", "lines"),
        (b"BookieMetadataFormatVersion\t1\n1\n1\nx\n0\ta", "'x'"),
        (b"BookieMetadataFormatVersion\t1\n1\n1\n0\n", "begins at entry 0"),
        (b"BookieMetadataFormatVersion\t1\n1\n1\n0\n0\n", "has 0 bookies; expected 1"),
        (b"BookieMetadataFormatVersion\t1\n1\n1\n0\n0\ta/b\n", "bookie id 'a/b'"),
        (b"BookieMetadataFormatVersion\t1\n1\n1\n0\n0\tReadOnly\n", "bookie id"),
        (b"BookieMetadataFormatVersion\t1\n1\n1\n0\n0\ta\n0\tb", "two segments begin"),
        (b"BookieMetadataFormatVersion\t1\n1\n1\n0\n0\ta\n-2\tCLOSED", "closed at entry -2"),
        (b"BookieMetadataFormatVersion\t1\n1\n1\n-5\n0\ta\n0\tCLOSED", "-5 bytes"),
        (message_3(("quorumSize", 4)), "E >= Qw >= Qa"),
        (message_3(("ackQuorumSize", 0)), "E >= Qw >= Qa"),
        (message_3(("ensembleSize", -3)), "E >= Qw >= Qa"),
        (message_3(("state", 3), ("lastEntryId", None)), "closed without a last entry"),
        (message_3(("state", 3), ("length", -1)), "-1 bytes"),
        (message_3(("length", None)), "required field"),
        (bytes(METADATA_BYTES_MAX + 1), "expected at most"),
    ],
)  # fmt: skip
def test_damage_says_what_is_wrong(data: bytes, says: str) -> None:
    with pytest.raises(MetadataFormatError, match="metadata of ledger 59") as caught:
        decode(LEDGER, data)
    assert says in str(caught.value)


def test_a_bookie_id_that_is_no_utf_8_is_damage() -> None:
    data = encode(metadata())
    name = metadata().segments[0].ensemble[0].encode()
    with pytest.raises(MetadataFormatError, match="expected text"):
        decode(LEDGER, data.replace(name, name[:-1] + b"\xcf"))


def test_a_key_of_custom_metadata_that_is_no_utf_8_is_damage() -> None:
    data = encode(metadata(custom={"key": b"value"}))
    with pytest.raises(MetadataFormatError, match="expected text in UTF-8"):
        decode(LEDGER, data.replace(b"\x03key", b"\x03k\xcfy"))


def test_fields_of_a_newer_bookkeeper_survive_a_rewrite() -> None:
    """An ensemble change or a close must not drop what another's writer left in the ledger."""
    newer, in_segment = b"\xa0\x06\x2a", b"\x1a\x01x"  # field 100: 42; field 3 of a segment: "x"
    golden = encode(metadata())[len(HEADER_3) + 1 :]
    at = golden.index(b"\x32") + 1  # the segment's length
    body = golden[:at] + bytes([golden[at] + len(in_segment)]) + golden[at + 1 :]
    end = at + 1 + golden[at]
    body = body[:end] + in_segment + body[end:] + newer
    read = decode(LEDGER, HEADER_3 + bytes([len(body)]) + body)
    assert encode(read) == HEADER_3 + bytes([len(body)]) + body
    other = (BookieId("192.0.2.9:3181"), *read.last_segment.ensemble[1:])
    closed = read.with_ensemble(EntryId(5), other).closed(EntryId(7), 70)
    written = encode(closed)
    assert written.endswith(newer)
    again = decode(LEDGER, written)
    assert again == closed
    assert again.segments[0].unknown_fields == in_segment
    assert again.segments[1].unknown_fields == b""
    for version in (1, 2):
        with pytest.raises(IncorrectParameterError, match="use format 3"):
            encode(replace(read, format_version=version))


def test_enum_values_of_a_newer_bookkeeper() -> None:
    golden = encode(metadata())
    for field, says in ((b"\x28", "required field"), (b"\x38", "digest type")):
        at = golden.index(field + (b"\x01" if field == b"\x28" else b"\x03"), len(HEADER_3))
        with pytest.raises(MetadataFormatError, match=says):
            decode(LEDGER, golden[: at + 1] + b"\x09" + golden[at + 2 :])
    body = golden[len(HEADER_3) + 1 :] + b"\x28\x09"  # the last state of two counts
    with pytest.raises(MetadataFormatError, match="a state that is not known here"):
        decode(LEDGER, HEADER_3 + bytes([len(body)]) + body)


# BookieIdTest in our words.
@pytest.mark.parametrize(
    "text",
    [
        "a",
        "bookie1",
        "192.168.1.5:3181",
        "host-1.example.com:3181",
        "under_score",
        "5b56a7e5-8cd9-4c7e-a2f9-6a2b1f0e9d11",
        "a;b<c=d>e?f@g[h\\i]j^k",
        "readonly2",
    ],
)
def test_bookie_ids(text: str) -> None:
    assert parse_bookie_id(text) == text


@pytest.mark.parametrize(
    "text",
    ["", "readonly", "ReadOnly", "READONLY", "a b", "a/b", "a,b", "a|b", "é:1", "a\n", ".", ".."],
)
def test_what_is_no_bookie_id(text: str) -> None:
    with pytest.raises(IncorrectParameterError, match="bookie id"):
        parse_bookie_id(text)
