"""Protobuf's text format, as old ledger metadata and cookies use it: parsed strictly.

The library hands the escapes in strings to Python's own decoder, which takes some that no protobuf
writer makes, and tells so by warnings. Here they are errors, as they are in Java. Source:
docs/formats/ledger_metadata.md.
"""

import re

from google.protobuf import text_format
from google.protobuf.message import Message

_ESCAPE = re.compile(
    r"""\\(?:
        [abfnrtv\\'"]
      | [0-3][0-7]{2} | [0-7]{1,2}(?![0-7])
      | x[0-9a-fA-F]{1,2}
      | [uU][0-9a-fA-F]{4}
      | (?P<odd>.|\Z)
    )""",
    re.VERBOSE | re.DOTALL,
)


def parse(text: str, message: Message) -> None:
    """Read text into an empty message; ValueError says where the text is wrong.

    It quotes nothing of it: the text may hold a ledger's password. Required fields are not
    insisted on.
    """
    for escape in _ESCAPE.finditer(text):
        if escape["odd"] is not None:
            raise ValueError(
                f"expected an escape of protobuf's text format at character {escape.start()}, "
                "found another"
            )
    try:
        text_format.Parse(text, message)
    except text_format.ParseError as error:
        line, column = error.GetLine(), error.GetColumn()
        where = "" if line is None else f"line {line}, column {column}: "
        raise ValueError(
            f"{where}expected the text of a {message.DESCRIPTOR.name}, found another"
        ) from None
