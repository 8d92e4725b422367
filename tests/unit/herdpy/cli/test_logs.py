"""The two forms of a server's log."""

import json
import logging
import sys
from typing import Any

from herdpy.cli.logs import JsonFormatter, TextFormatter


def record(message: str, *, fields: dict[str, Any] | None = None, error: Any = None) -> Any:
    made = logging.LogRecord("herdpy.server", logging.WARNING, "x.py", 1, message, (), error)
    made.created = 1_700_000_000.25
    if fields is not None:
        made.fields = fields
    return made


def test_json() -> None:
    fields = {"duration_s": 1.5, "statement": "a\n\u00fc", "level": "mine", "odd": object}
    line = JsonFormatter().format(record("slow statement", fields=fields))
    assert "\n" not in line
    found = json.loads(line)
    assert found.pop("odd") == str(object)
    assert found == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "warning",
        "logger": "herdpy.server",
        "message": "slow statement",
        "duration_s": 1.5,
        "statement": "a\n\u00fc",
    }


def test_text_is_one_line() -> None:
    fields = {"duration_s": 1.5, "sqlstate": None, "statement": "a\nb\x1b[1m"}
    line = TextFormatter().format(record("slow\nstatement", fields=fields))
    assert line == (
        "2023-11-14T22:13:20.250Z WARNING herdpy.server: slow\\nstatement duration_s=1.5 "
        "statement='a\\nb\\x1b[1m'"
    )


def test_tracebacks() -> None:
    try:
        raise ValueError("broken on purpose")
    except ValueError:
        made = record("a bug", error=sys.exc_info())
    assert "broken on purpose" in json.loads(JsonFormatter().format(made))["error"]
    assert TextFormatter().format(made).endswith("ValueError: broken on purpose")


def test_lines_have_an_end() -> None:
    assert len(JsonFormatter().format(record("x" * 100_000))) < 33_000
    assert len(TextFormatter().format(record("x" * 100_000))) < 33_000
