"""What `herdpy serve` logs, to standard error: lines of text, or one JSON object a line.

Nothing waits for who reads it: lines that are not taken are lost, and counted (os_log.py).

A record's `fields` (extra={"fields": {…}}) are keys of the object, or `key=value` behind the line.
Only the command line sets up logging; the library leaves the program's as it is.
"""

import datetime
import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from bookie.runtime.os_log import LineWriter, LogLines
from herdpy.model.printable import escaped, escaped_json

_STANDARD_ERROR = 2
_LINE_LENGTH_MAX = 32_000  # characters of one value


def set_up_logs(level: str, log_format: str) -> LineWriter:
    """Send what the process logs, from a level on, to standard error; return what writes it."""
    handler = LogLines(_STANDARD_ERROR)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    return handler.lines


class JsonFormatter(logging.Formatter):
    """Keys: time (UTC), level, logger, message, those of `fields`, and the traceback as error."""

    def format(self, record: logging.LogRecord) -> str:
        found: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _cut(record.getMessage()),
        }
        for name, value in _fields(record).items():
            found.setdefault(name, value)
        if record.exc_info:
            found["error"] = self.formatException(record.exc_info)
        return escaped_json(msgspec.json.encode(found, enc_hook=str).decode())


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.000Z INFO herdpy.server: message key=value`, on one line."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(record)} {record.levelname} {record.name}: {record.getMessage()}"
        for name, value in _fields(record).items():
            if value is not None:
                line += f" {name}={value!r}" if isinstance(value, str) else f" {name}={value}"
        line = escaped(_cut(line))
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    return getattr(record, "fields", {})


def _time(record: logging.LogRecord) -> str:
    moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _cut(text: str) -> str:
    return text if len(text) <= _LINE_LENGTH_MAX else f"{text[: _LINE_LENGTH_MAX - 1]}…"
