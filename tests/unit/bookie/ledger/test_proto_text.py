"""Protobuf's text format: what a Java writer makes is read, what it never makes is an error."""

import pytest

from bookie.ledger import proto_text
from bookie.ledger.ledger_metadata_pb2 import LedgerMetadataFormat


@pytest.mark.parametrize(
    ("text", "password"),
    [
        (r'"\a\b\f\n\r\t\v\\\'\""', b"\a\b\f\n\r\t\v\\'\""),
        (r'"\0\07\377\0008"', b"\x00\x07\xff\x008"),
        (r'"\xf\xFFx"', b"\x0f\xffx"),
        (r'"\\q\\\\777"', rb"\q\\777"),
        (r'"\u00e4"', "ä".encode()),
        ('"ä" \'"\'', 'ä"'.encode()),
    ],
)
def test_escapes(text: str, password: bytes) -> None:
    message = LedgerMetadataFormat()
    proto_text.parse(f"password: {text}", message)
    assert message.password == password


@pytest.mark.parametrize(
    "text",
    [r'"\q"', r'"\777"', r'"\400"', r'"\8"', r'"\x"', r'"\u12"', r'"\N{DEGREE SIGN}"', '"\\', "1"],
)
def test_what_no_writer_makes(text: str) -> None:
    """Python would take some of these, with a warning; Java takes none."""
    with pytest.raises(ValueError):
        proto_text.parse(f"password: {text}", LedgerMetadataFormat())


@pytest.mark.parametrize(
    "text", ['password: "s3cret" x', r'password: "s3cret\qs3cret"', 'state: s3cret', 's3cret: 1',
             'password: "s3cret', 'length: "s3cret"'],
)  # fmt: skip
def test_errors_quote_nothing(text: str) -> None:
    """A password may stand anywhere in a damaged text, and errors go to logs and to readers."""
    with pytest.raises(ValueError, match=r"line 2, column|character") as caught:
        proto_text.parse(f"quorumSize: 1\n{text}", LedgerMetadataFormat())
    assert "s3c" not in str(caught.value)
