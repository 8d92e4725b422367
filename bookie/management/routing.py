"""Endpoint: one method of one path of the API, with its role, its arguments and what answers it.

A table of these is all that there is: requests are matched against it, their arguments are checked
by it, and the OpenAPI document is made from it.
"""

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, cast

from bookie.errors import IncorrectParameterError
from bookie.management.access import Role
from bookie.runtime.http import Request

_INTEGER = re.compile(r"[0-9]{1,19}")
_NUMBER_MAX = 2**63 - 1
"""The greatest ledger id."""
_FLAGS = {"true": True, "false": False}
_SHOWN_CHARS_MAX = 50


class Kind(Enum):
    """What an argument is; numbers are never negative."""

    TEXT = "string"
    NUMBER = "integer"
    FLAG = "boolean"
    TEXTS = "strings"
    NUMBERS = "integers"

    @property
    def schema(self) -> dict[str, object]:
        """As JSON Schema."""
        if self in (Kind.TEXTS, Kind.NUMBERS):
            item = Kind.TEXT if self is Kind.TEXTS else Kind.NUMBER
            return {"type": "array", "items": item.schema}
        schema: dict[str, object] = {"type": self.value}
        bounds = {"minimum": 0, "maximum": _NUMBER_MAX}
        return schema | bounds if self is Kind.NUMBER else schema


class Argument(NamedTuple):
    """One parameter of a query, or one property of a body."""

    name: str
    kind: Kind
    meaning: str
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """What a request says, checked against its endpoint."""

    bookie_id: str = ""
    """What the path has in the place of {bookie_id}."""
    query: Mapping[str, Any] = field(default_factory=dict[str, Any])
    body: Mapping[str, Any] = field(default_factory=dict[str, Any])
    by: str = "HTTP"
    """Who asks, as the state of a bookie names it: the common name of the certificate."""


class Endpoint(NamedTuple):
    """See the module. `{bookie_id}` at the end of a path is an argument."""

    method: str
    path: str
    role: Role
    summary: str
    answer: Callable[[Call], Awaitable[object]]
    query: tuple[Argument, ...] = ()
    body: tuple[Argument, ...] = ()
    replacement: str = ""
    """What takes the place of an endpoint of BookKeeper's that is always refused with 501."""

    def argument_in(self, path: str) -> str | None:
        """Return what stands in a path for {bookie_id}, "" without one; None: no match.

        A slash at the end counts for nothing: BookKeeper's documents write its paths so.
        """
        path = path.removesuffix("/")
        front, brace, _ = self.path.partition("{")
        if not brace:
            return "" if path == self.path else None
        rest = path.removeprefix(front) if path.startswith(front) else ""
        return rest if rest and "/" not in rest else None

    def call_of(self, request: Request) -> Call:
        """Return the arguments of a request; IncorrectParameterError names what is wrong."""
        return Call(
            bookie_id=self.argument_in(request.path) or "",
            query=_checked(_grouped(request.query, self.query), self.query, "parameter", _of_text),
            body=_checked(_object(request.body), self.body, "body", _of_json),
            by=request.certificate_name or "HTTP",
        )


def _grouped(
    pairs: Sequence[tuple[str, str]], arguments: Sequence[Argument]
) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    several = {one.name for one in arguments if one.kind in (Kind.TEXTS, Kind.NUMBERS)}
    for name, values in found.items():
        if len(values) > 1 and name not in several:
            raise IncorrectParameterError(
                f"parameter {_shown(name)}: expected it once, found it {len(values)} times; say it "
                "once"
            )
    return found


def _object(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a body; nothing, or blanks, is an empty one."""
    if not body.strip():
        return {}
    try:
        found: object = json.loads(body, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise IncorrectParameterError(
            "body: expected one JSON object, each of its names once, found something else; see "
            "/openapi.json"
        )
    return cast("dict[str, Any]", found)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError  # two readers could take different ones
    return found


def _checked(
    values: Mapping[str, Any],
    arguments: Sequence[Argument],
    where: str,
    read: Callable[[Kind, Any], Any],
) -> dict[str, Any]:
    known = {one.name: one for one in arguments}
    checked: dict[str, Any] = {}
    for name, value in values.items():
        argument = known.get(name)
        if argument is None:
            names = ", ".join(known) or "none"
            raise IncorrectParameterError(
                f"{where}: expected of the names {names}, found {_shown(name)}; see /openapi.json"
            )
        found = read(argument.kind, value)
        if found is None:
            raise IncorrectParameterError(
                f"{where} {name}: expected {_KINDS[argument.kind]}, found {_shown(value)}"
            )
        checked[name] = found
    for one in arguments:
        if one.is_required and one.name not in checked:
            raise IncorrectParameterError(
                f"{where} {one.name}: expected {_KINDS[one.kind]} ({one.meaning}), found none"
            )
    return checked


_KINDS = {
    Kind.TEXT: "a text",
    Kind.NUMBER: f"a number from 0 to {_NUMBER_MAX}",
    Kind.FLAG: "true or false",
    Kind.TEXTS: "texts",
    Kind.NUMBERS: f"numbers from 0 to {_NUMBER_MAX}",
}


def _of_text(kind: Kind, values: list[str]) -> Any:
    """Return the value of a query's parameter; None: it is of another kind."""
    match kind:
        case Kind.TEXT:
            return values[0]
        case Kind.NUMBER:
            is_number = _INTEGER.fullmatch(values[0]) and int(values[0]) <= _NUMBER_MAX
            return int(values[0]) if is_number else None
        case Kind.FLAG:
            return _FLAGS.get(values[0].lower())
        case Kind.TEXTS:
            return values
        case Kind.NUMBERS:
            numbers = [_of_text(Kind.NUMBER, [text]) for text in values]
            return None if None in numbers else numbers


def _of_json(kind: Kind, value: object) -> Any:
    """Return the value of a body's property; None: it is of another kind.

    Flags may be texts, as in BookKeeper's documents.
    """
    match kind:
        case Kind.TEXT:
            return value if isinstance(value, str) else None
        case Kind.NUMBER:
            return value if type(value) is int and 0 <= value <= _NUMBER_MAX else None
        case Kind.FLAG:
            return value if isinstance(value, bool) else _FLAGS.get(str(value).lower())
        case Kind.TEXTS | Kind.NUMBERS:
            if not isinstance(value, list):
                return None
            one = Kind.TEXT if kind is Kind.TEXTS else Kind.NUMBER
            found = [_of_json(one, item) for item in cast("list[object]", value)]
            return None if None in found else found


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}…"
