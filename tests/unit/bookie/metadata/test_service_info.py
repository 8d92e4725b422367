"""What a bookie publishes, byte for byte; BookieIdTest in our words."""

import pytest

from bookie.errors import CorruptFileError
from bookie.ledger.types import BookieId
from bookie.metadata.acl import StoreAccess
from bookie.metadata.service_info import (
    Address,
    Endpoint,
    ServiceInfo,
    address_in,
)
from bookie.metadata.zookeeper_login import Login

BOOKIE = BookieId("127.0.0.1:3181")
GOLDEN = bytes.fromhex("32220a06626f6f6b696510ed181a093132372e302e302e31220a626f6f6b69652d727063")


def test_golden_bytes_of_a_bookie() -> None:
    info = ServiceInfo.of_bookie(Address("127.0.0.1", 3181))
    assert info.to_bytes() == GOLDEN
    assert ServiceInfo.from_bytes(GOLDEN, BOOKIE) == info
    assert info.address == ("127.0.0.1", 3181)


def test_golden_bytes_with_http() -> None:
    info = ServiceInfo.of_bookie(Address("127.0.0.1", 3181), Address("127.0.0.1", 8080))
    http = "32230a0a6874747073657276657210903f1a093132372e302e302e31220468747470"
    assert info.to_bytes().startswith(GOLDEN)
    assert info.to_bytes()[len(GOLDEN) + 2 :] == bytes.fromhex(http)[2:]
    assert ServiceInfo.from_bytes(info.to_bytes(), BOOKIE) == info


def test_a_bookie_that_logs_in_says_so_and_one_that_does_not_says_nothing() -> None:
    identity = Login("digest", "herd", "geheim").identity
    access = StoreAccess((identity,), is_secured=True)
    info = ServiceInfo.of_bookie(Address("127.0.0.1", 3181), None, access)
    found = ServiceInfo.from_bytes(info.to_bytes(), BOOKIE)
    assert (found.logins, found.makes_secured_nodes) == ({identity.label()}, True)
    assert info.to_bytes().startswith(GOLDEN)
    assert identity.id.partition(":")[2].encode() not in info.to_bytes()
    without = ServiceInfo.of_bookie(Address("127.0.0.1", 3181), None, StoreAccess())
    assert without.to_bytes() == GOLDEN
    assert (without.logins, without.makes_secured_nodes) == (frozenset(), False)


def test_everything_comes_back() -> None:
    info = ServiceInfo(
        (Endpoint("x", "h", 1, "p", ("a1", "a2"), ("e1",)),), {"b": "2", "a": "1", "ä": "ö"}
    )
    assert ServiceInfo.from_bytes(info.to_bytes(), BOOKIE) == info
    assert info.address is None, "no bookie-rpc endpoint, no address"


def test_an_endpoint_without_host_is_no_address() -> None:
    """An empty host would be this machine."""
    empty, good = Endpoint("x", "", 1, "bookie-rpc"), Endpoint("y", "h", 2, "bookie-rpc")
    assert ServiceInfo((empty,)).address is None
    assert ServiceInfo((empty, good)).address == ("h", 2)


def test_empty_content_is_that_of_old_bookies() -> None:
    assert ServiceInfo.from_bytes(b"", BOOKIE).address == ("127.0.0.1", 3181)
    assert ServiceInfo.from_bytes(b"", BookieId("a-name")).address is None


@pytest.mark.parametrize("data", [b"\xff", GOLDEN[:-1], b"\x32\x02\x0a\x00", b"not protobuf"])
def test_damaged_content_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptFileError, match=r"127\.0\.0\.1:3181"):
        ServiceInfo.from_bytes(data, BOOKIE)


@pytest.mark.parametrize("text", ["an-id", "a-host", "a-protocol", "some-auth", "a-key", "a-value"])
def test_text_that_is_no_utf_8_is_damage(text: str) -> None:
    """It must not break the list of all bookies, nor get into it as bytes."""
    endpoint = Endpoint("an-id", "a-host", 1, "a-protocol", ("some-auth",))
    data = ServiceInfo((endpoint,), {"a-key": "a-value"}).to_bytes()
    with pytest.raises(CorruptFileError, match=r"127\.0\.0\.1:3181"):
        ServiceInfo.from_bytes(data.replace(text.encode(), text[:-1].encode() + b"\xff"), BOOKIE)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("host:1", ("host", 1)),
        ("10.0.0.1:65535", ("10.0.0.1", 65535)),
        ("::1:3181", ("::1", 3181)),
        ("host", None),
        (":3181", None),
        ("host:", None),
        ("host:0", None),
        ("host:65536", None),
        ("host:٣", None),
        ("host:-1", None),
        ("host:" + "1" * 5000, None),
    ],
)
def test_addresses_in_ids(text: str, address: tuple[str, int] | None) -> None:
    assert address_in(BookieId(text)) == address
