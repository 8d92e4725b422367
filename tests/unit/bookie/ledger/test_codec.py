"""Entry and LAC packets: golden bytes of every digest, and what damage looks like."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie.errors import DigestMismatchError, IncorrectParameterError
from bookie.ledger.codec import EntryDigest, header_of, lac_header_of, master_key
from bookie.ledger.types import DigestType

HEADER = "0000000000000007000000000000000300000000000000020000000000000014"
LAC_HEADER = "00000000000000070000000000000003"
# Ledger 7, entry 3, LAC 2, length 20, payload "hello", password "secret".
ENTRY_DIGESTS = {
    DigestType.CRC32: "000000002190aea7",
    DigestType.CRC32C: "e9857074",
    DigestType.HMAC: "ff80af4a2b5760bd40408670cef01600e4d8fa6f",
    DigestType.DUMMY: "",
}
# Ledger 7, LAC 3, password "secret".
LAC_DIGESTS = {
    DigestType.CRC32: "0000000011d37726",
    DigestType.CRC32C: "9640a704",
    DigestType.HMAC: "33245783ccc733f22c3d2a5aee2cdc4d1645d5ec",
    DigestType.DUMMY: "",
}
every_digest = pytest.mark.parametrize("digest_type", DigestType)
int64 = st.integers(-(2**63), 2**63 - 1)


def test_golden_master_keys() -> None:
    assert master_key(b"secret").hex() == "e793cbc379107648537183605cd361d3bb789a39"
    assert master_key(b"").hex() == "850bf1071c5e3d8c24235676f8816ae0cbe2f14f"


@every_digest
def test_golden_entry(digest_type: DigestType) -> None:
    packet = EntryDigest.of(digest_type, b"secret").seal(7, 3, 2, 20, b"hello")
    assert packet.hex() == HEADER + ENTRY_DIGESTS[digest_type] + b"hello".hex()


@every_digest
def test_golden_lac(digest_type: DigestType) -> None:
    packet = EntryDigest.of(digest_type, b"secret").seal_lac(7, 3)
    assert packet.hex() == LAC_HEADER + LAC_DIGESTS[digest_type]


@every_digest
@given(
    ledger_id=int64,
    entry_id=int64,
    lac=int64,
    length=int64,
    payload=st.binary(max_size=300),
    password=st.binary(max_size=10),
)
def test_round_trip(
    digest_type: DigestType,
    ledger_id: int,
    entry_id: int,
    lac: int,
    length: int,
    payload: bytes,
    password: bytes,
) -> None:
    digest = EntryDigest.of(digest_type, password)
    packet = digest.seal(ledger_id, entry_id, lac, length, payload)
    assert packet == digest.seal(ledger_id, entry_id, lac, length, memoryview(payload))
    assert header_of(packet) == (ledger_id, entry_id, lac, length)
    for form in (packet, bytearray(packet), memoryview(packet)):
        assert digest.open(form, ledger_id, entry_id) == (entry_id, lac, length, payload)
        assert digest.open(form, ledger_id, None) == (entry_id, lac, length, payload)
    lac_packet = digest.seal_lac(ledger_id, lac)
    assert lac_header_of(lac_packet) == (ledger_id, lac)
    assert digest.open_lac(memoryview(lac_packet), ledger_id) == lac


@pytest.mark.parametrize("digest_type", [t for t in DigestType if t is not DigestType.DUMMY])
@given(data=st.data())
def test_every_changed_bit_is_found(digest_type: DigestType, data: st.DataObject) -> None:
    digest = EntryDigest.of(digest_type, b"secret")
    for packet, is_lac in (
        (digest.seal(7, 3, 2, 20, b"hello"), False),
        (digest.seal_lac(7, 3), True),
    ):
        bit = data.draw(st.integers(0, len(packet) * 8 - 1))
        damaged = bytearray(packet)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DigestMismatchError):
            digest.open_lac(damaged, 7) if is_lac else digest.open(damaged, 7, 3)


@every_digest
@given(packet=st.binary(max_size=80))
def test_random_bytes_raise_only_our_error(digest_type: DigestType, packet: bytes) -> None:
    digest = EntryDigest.of(digest_type, b"secret")
    for call in (lambda: digest.open(packet, 7, 3), lambda: digest.open_lac(packet, 7)):
        try:
            call()
        except DigestMismatchError:
            pass


@every_digest
def test_too_short_says_how_much_was_expected(digest_type: DigestType) -> None:
    digest = EntryDigest.of(digest_type, b"secret")
    packet = digest.seal(7, 3, 2, 20, b"")
    assert digest.open(packet, 7, 3).payload == b""
    with pytest.raises(DigestMismatchError, match=f"at least {len(packet)}"):
        digest.open(packet[:-1], 7, 3)
    with pytest.raises(DigestMismatchError, match="expected"):
        digest.open_lac(digest.seal_lac(7, 3) + b"x", 7)
    with pytest.raises(DigestMismatchError, match="at least 32"):
        header_of(packet[:31])
    with pytest.raises(DigestMismatchError, match="at least 16"):
        lac_header_of(packet[:15])


@every_digest
def test_another_entry_or_ledger_is_no_answer(digest_type: DigestType) -> None:
    digest = EntryDigest.of(digest_type, b"secret")
    packet = digest.seal(7, 3, 2, 20, b"hello")
    with pytest.raises(DigestMismatchError, match="expected entry 4 of ledger 7, found entry 3"):
        digest.open(packet, 7, 4)
    with pytest.raises(DigestMismatchError, match="of ledger 8, found entry 3 of ledger 7"):
        digest.open(packet, 8, 3)
    with pytest.raises(DigestMismatchError, match="of ledger 8, found entry 3 of ledger 7"):
        digest.open(packet, 8, None)
    with pytest.raises(DigestMismatchError, match="of ledger 8, found one of 7"):
        digest.open_lac(digest.seal_lac(7, 3), 8)


def test_wrong_password_or_digest_type() -> None:
    packet = EntryDigest.of(DigestType.HMAC, b"secret").seal(7, 3, 2, 20, b"hello")
    with pytest.raises(DigestMismatchError, match="password"):
        EntryDigest.of(DigestType.HMAC, b"Secret").open(packet, 7, 3)
    with pytest.raises(DigestMismatchError, match="CRC32C"):
        EntryDigest.of(DigestType.CRC32C, b"secret").open(packet, 7, 3)


def test_numbers_beyond_int64_are_the_callers_mistake() -> None:
    digest = EntryDigest.of(DigestType.CRC32C, b"")
    with pytest.raises(IncorrectParameterError, match=str(2**63)):
        digest.seal(7, 2**63, -1, 0, b"")
