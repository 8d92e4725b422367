"""What names of certificates give which rights; BookKeeper's own form of roles among them."""

from typing import Any

import pytest

from bookie.errors import BookieStartError
from bookie.server.wire.client_access import CertificateNames, ClientAccess, Grant


def certificate(*units: str, name: str = "", **alternative: str) -> dict[str, Any]:
    subject: list[Any] = [(("organizationalUnitName", unit),) for unit in units]
    if name:
        subject.append((("commonName", name),))
    return {"subject": tuple(subject), "subjectAltName": tuple(alternative.items())}


def grant(text: str, shown: dict[str, Any] | None, roles: tuple[str, ...] = ()) -> Grant:
    return ClientAccess(text, "file", roles).grant_of(CertificateNames.of(shown))


# (the subject's units in order, the role that BookKeeper's CertUtils and BookieAuthZFactory see)
ROLES = [
    (["0:herd"], "herd"),
    (["0:herd,other;1:cluster"], "herd"),
    (["1:cluster;0: herd , other"], "herd"),
    (["0:a;0:b"], "b"),
    (["other", "0:herd"], None),
    (["0:herd", "0:other"], "herd"),
    (["00:herd"], None),
    ([" 0:herd"], None),
    (["herd"], None),
    (["0:"], None),
    (["0:,herd"], None),
    ([], None),
]


@pytest.mark.parametrize(("units", "role"), ROLES)
def test_a_role_is_what_bookkeeper_sees(units: list[str], role: str | None) -> None:
    names = dict(CertificateNames.of(certificate(*units)).names)
    assert names.get("role") == role


def test_each_kind_of_name_gives_what_its_line_says() -> None:
    text = """
    # who may what
    write role herd
    read ou Analysts and others
    write cn bookie-1
    read dns Reader.example
    write uri spiffe://example/writer
    read email ops@example.com
    """
    assert grant(text, certificate("0:herd")) is Grant.WRITE
    assert grant(text, certificate("x", "Analysts and others")) is Grant.READ
    assert grant(text, certificate(name="bookie-1")) is Grant.WRITE
    assert grant(text, certificate(DNS="reader.EXAMPLE")) is Grant.READ
    assert grant(text, certificate(URI="spiffe://example/writer")) is Grant.WRITE
    assert grant(text, certificate(email="Ops@example.com")) is Grant.READ
    for other in (certificate(name="herd"), certificate("herd"), certificate(DNS="bookie-1"), None):
        assert grant(text, other) is Grant.NONE


def test_names_of_people_keep_their_case() -> None:
    assert grant("read cn Ada", certificate(name="ada")) is Grant.NONE
    assert grant("read ou X", certificate("x")) is Grant.NONE


def test_the_greatest_of_several_counts() -> None:
    text = "read cn a\nwrite cn a\nread cn a\nread ou u"
    assert grant(text, certificate("u", name="a")) is Grant.WRITE
    assert grant("read cn a", certificate("0:x", name="a"), roles=("x",)) is Grant.WRITE


@pytest.mark.parametrize(
    "line", ["admin cn a", "read name a", "read cn", "read", "write:cn a", "read CN a"]
)
def test_a_line_that_is_none_is_named(line: str) -> None:
    with pytest.raises(BookieStartError, match=r"file, line 2: expected `read\|write role\|ou\|cn"):
        ClientAccess(f"read cn ok\n{line}\n", "file")


def test_no_line_at_all_is_refused() -> None:
    """An emptied file would shut everyone out, or, read the other way, let everyone in."""
    with pytest.raises(BookieStartError, match="no client could do anything"):
        ClientAccess("# read cn a\n", "file")


def test_names_in_a_log_are_printable_and_short() -> None:
    shown = certificate("a\n2026 INFO all is well\x1b[2J", name="x" * 1000)
    text = str(CertificateNames.of(shown))
    assert text.isprintable()
    assert len(text) < 350
    assert str(CertificateNames.of(None)) == "no name"
