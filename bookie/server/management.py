"""ManagementApi: what an operator does to a bookie and its cluster's bookies over HTTP.

BookKeeper's endpoints at their paths, and the lifecycle below /api/v1/lifecycle; the JSON is that
of the commands (bookie/lifecycle/operations.py). Every call needs a role: `read` to look, `admin`
to change. What is refused by a rule is 409 with the reason, a wrong argument 400.
"""

import dataclasses
import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol, cast

from bookie.config import BookieConfig
from bookie.errors import (
    BookieError,
    IllegalOperationError,
    IncorrectParameterError,
    MetadataStoreError,
    MetadataVersionError,
    NoSuchBookieError,
)
from bookie.ledger.types import BookieId, parse_bookie_id
from bookie.lifecycle.operations import Operations
from bookie.metadata.bookies import Mode
from bookie.runtime.http import JSON, Page, Request
from bookie.server.access import HttpAccess, Role

PREFIX = "/api/"
IS_READY = "/api/v1/bookie/is_ready"
"""A probe below the prefix, open to all."""
_BOOKIES_MAX = 100
"""That one question may name."""


class ManagedBookie(Protocol):
    """What the API needs of the bookie that serves it."""

    def serving_state(self) -> dict[str, object]:
        """Return what BookKeeper's state endpoint says."""
        ...

    def set_read_only(self, *, is_read_only: bool) -> None: ...

    def space(self) -> tuple[int, int]:
        """Return (total, free) bytes."""
        ...


class Endpoint(NamedTuple):
    """One method of one path; a part of the path in braces is an argument."""

    method: str
    path: str
    role: Role
    summary: str
    answer: Callable[[Request, str], Awaitable[object]]
    parameters: tuple[str, ...] = ()
    """Of the query."""
    body: dict[str, str] = {}  # noqa: RUF012 - of an immutable tuple, and never changed
    """Properties of the JSON body, and their types."""


class ManagementApi:
    """Api of an HttpServer. On the bookie's loop."""

    def __init__(
        self,
        operations: Operations,
        bookie: ManagedBookie,
        config: BookieConfig,
        access: HttpAccess,
    ) -> None:
        self._operations = operations
        self._bookie = bookie
        self._config = config
        self._access = access
        lifecycle = "/api/v1/lifecycle"
        read, admin = Role.READ, Role.ADMIN
        steps = {"step": "string", "may_fence": "boolean", "accept_loss": "array"}
        self.endpoints = (
            Endpoint("GET", "/api/v1/openapi.json", read, "This document.", self._openapi),
            Endpoint("GET", "/api/v1/config/server_config", read,
                     "The settings of this bookie.", self._settings),
            Endpoint("GET", "/api/v1/bookie/state", read,
                     "Whether this bookie serves and takes writes.", self._state),
            Endpoint("GET", "/api/v1/bookie/state/readonly", read,
                     "Whether this bookie is read-only.", self._read_only),
            Endpoint("PUT", "/api/v1/bookie/state/readonly", admin,
                     "Make this bookie read-only, or writable if nothing else forbids it.",
                     self._set_read_only, body={"readOnly": "boolean"}),
            Endpoint("GET", "/api/v1/bookie/info", read, "This bookie's disk space.", self._info),
            Endpoint("GET", "/api/v1/bookie/list_bookies", read,
                     "The registered bookies: type=rw or ro.", self._list, ("type",)),
            Endpoint("GET", "/api/v1/cookies", read, "The bookies that have a cookie.",
                     self._cookies),
            Endpoint("GET", lifecycle, read, "The lifecycle of all bookies.", self._statuses),
            Endpoint("GET", f"{lifecycle}/{{bookie_id}}", read,
                     "The lifecycle of one bookie and the ledgers of its drain.", self._status),
            Endpoint("PUT", f"{lifecycle}/{{bookie_id}}", admin,
                     "Take a step: drain, cancel or mark-drained.", self._step, body=steps),
            Endpoint("DELETE", f"{lifecycle}/{{bookie_id}}", admin,
                     "Remove a stopped bookie that is Drained.", self._remove),
            Endpoint("GET", "/api/v1/at_risk", read,
                     "What the ledgers would lose if these bookies went.", self._at_risk,
                     ("bookie",)),
        )  # fmt: skip

    # --- Api --------------------------------------------------------------------------------------

    def owns(self, path: str) -> bool:
        return path.startswith(PREFIX) and path != IS_READY

    def refusal(self, request: Request) -> Page | None:
        role = self._access.role_of(request.headers.get("authorization"), request.certificate_name)
        if role is Role.NONE:
            return _error(401, "a token or a client certificate with a role is needed")
        found = [one for one in self.endpoints if _argument(one.path, request.path) is not None]
        if not found:
            return _error(404, "no such path; /api/v1/openapi.json lists them")
        for endpoint in found:
            if endpoint.method == request.method:
                if role < endpoint.role:
                    return _error(403, f"the role {endpoint.role.name.lower()} is needed")
                return None
        return _error(405, f"expected {' or '.join(one.method for one in found)}")

    async def call(self, request: Request) -> Page:
        for endpoint in self.endpoints:
            argument = _argument(endpoint.path, request.path)
            if argument is not None and endpoint.method == request.method:
                return await self._answer(endpoint, request, argument)
        raise AssertionError("refusal() let it pass")

    async def _answer(self, endpoint: Endpoint, request: Request, argument: str) -> Page:
        try:
            return _page(200, await endpoint.answer(request, argument))
        except IncorrectParameterError as error:
            return _error(400, str(error))
        except NoSuchBookieError as error:
            return _error(404, str(error))
        except (IllegalOperationError, MetadataVersionError) as error:
            return _error(409, str(error))
        except MetadataStoreError as error:
            return _error(503, str(error))
        except BookieError as error:
            return _error(500, str(error))

    # --- BookKeeper's -----------------------------------------------------------------------------

    async def _settings(self, request: Request, argument: str) -> object:
        return dataclasses.asdict(self._config)

    async def _state(self, request: Request, argument: str) -> object:
        return self._bookie.serving_state()

    async def _read_only(self, request: Request, argument: str) -> object:
        return {"readOnly": self._bookie.serving_state()["readOnly"]}

    async def _set_read_only(self, request: Request, argument: str) -> object:
        wanted = _body(request, {"readOnly": bool}).get("readOnly")
        if wanted is None:
            raise IncorrectParameterError('expected {"readOnly": true} or false')
        self._bookie.set_read_only(is_read_only=wanted)
        return await self._read_only(request, argument)

    async def _info(self, request: Request, argument: str) -> object:
        total, free = self._bookie.space()
        return {"freeSpace": free, "totalSpace": total}

    async def _list(self, request: Request, argument: str) -> object:
        kind = dict(request.query).get("type", "rw")
        if kind not in ("rw", "ro"):
            raise IncorrectParameterError(f"type: expected rw or ro, found {kind[:20]!r}")
        mode = Mode.WRITABLE if kind == "rw" else Mode.READ_ONLY
        registered = await self._operations.registered()
        return {bookie: None for bookie, found in sorted(registered.items()) if found is mode}

    # --- ours -------------------------------------------------------------------------------------

    async def _cookies(self, request: Request, argument: str) -> object:
        return list(await self._operations.states.bookie_ids())

    async def _statuses(self, request: Request, argument: str) -> object:
        return await self._operations.statuses()

    async def _status(self, request: Request, argument: str) -> object:
        return await self._operations.status(parse_bookie_id(argument))

    async def _step(self, request: Request, argument: str) -> object:
        bookie_id = parse_bookie_id(argument)
        body = _body(request, {"step": str, "may_fence": bool, "accept_loss": list})
        by = request.certificate_name or "HTTP"
        match body.get("step"):
            case "drain":
                may_fence = body.get("may_fence", True)
                return await self._operations.drain(bookie_id, by, may_fence=may_fence)
            case "cancel":
                return await self._operations.cancel(bookie_id)
            case "mark-drained":
                accepted = _ledger_ids(body.get("accept_loss", []))
                return await self._operations.mark_drained(bookie_id, by, accepted)
            case _:
                raise IncorrectParameterError("step: expected drain, cancel or mark-drained")

    async def _remove(self, request: Request, argument: str) -> object:
        return await self._operations.remove(parse_bookie_id(argument))

    async def _at_risk(self, request: Request, argument: str) -> object:
        wanted = [value for name, value in request.query if name == "bookie"]
        if not 0 < len(wanted) <= _BOOKIES_MAX:
            raise IncorrectParameterError(
                f"bookie: expected it 1 to {_BOOKIES_MAX} times, found {len(wanted)}"
            )
        ids: list[BookieId] = [parse_bookie_id(text) for text in wanted]
        return await self._operations.at_risk(ids)

    async def _openapi(self, request: Request, argument: str) -> object:
        paths: dict[str, dict[str, object]] = {}
        for one in self.endpoints:
            operation: dict[str, Any] = {
                "summary": one.summary,
                "x-role": one.role.name.lower(),
                "parameters": _parameters(one),
                "responses": {
                    "200": {"description": "done", "content": {JSON: {}}},
                    "default": {"description": "error, with the reason", "content": {JSON: {}}},
                },
            }
            if one.body:
                properties = {name: {"type": kind} for name, kind in one.body.items()}
                schema = {"type": "object", "properties": properties}
                operation["requestBody"] = {"content": {JSON: {"schema": schema}}}
            paths.setdefault(one.path, {})[one.method.lower()] = operation
        return {
            "openapi": "3.1.0",
            "info": {"title": "bookie", "version": "1"},
            "security": [{"token": []}, {"certificate": []}],
            "components": {
                "securitySchemes": {
                    "token": {"type": "http", "scheme": "bearer"},
                    "certificate": {"type": "mutualTLS"},
                }
            },
            "paths": paths,
        }


def _argument(pattern: str, path: str) -> str | None:
    """Return what stands in the path for the part in braces, "" without one; None: no match."""
    front, brace, _ = pattern.partition("{")
    if not brace:
        return "" if path == pattern else None
    rest = path.removeprefix(front) if path.startswith(front) else ""
    return rest if rest and "/" not in rest else None


def _parameters(endpoint: Endpoint) -> list[dict[str, object]]:
    _, brace, rest = endpoint.path.partition("{")
    found: list[dict[str, object]] = []
    if brace:
        name = rest.rstrip("}")
        found.append({"name": name, "in": "path", "required": True, "schema": {"type": "string"}})
    for name in endpoint.parameters:
        found.append({"name": name, "in": "query", "schema": {"type": "string"}})
    return found


def _body(request: Request, kinds: dict[str, type]) -> dict[str, Any]:
    """Return the JSON object of the body; IncorrectParameterError for other names or types."""
    try:
        found: object = json.loads(request.body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise IncorrectParameterError("body: expected a JSON object")
    body = cast("dict[str, Any]", found)
    for name, value in body.items():
        kind = kinds.get(name)
        if kind is None or type(value) is not kind:
            names = ", ".join(f"{known} ({one.__name__})" for known, one in kinds.items())
            raise IncorrectParameterError(f"body: expected {names}, found {name[:50]!r}")
    return body


def _ledger_ids(values: list[object]) -> list[int]:
    found = [value for value in values if type(value) is int and value >= 0]
    if len(found) != len(values):
        raise IncorrectParameterError("accept_loss: expected ledger ids from 0 on")
    return found


def _page(status: int, value: object) -> Page:
    return Page(status, JSON, json.dumps(value).encode() + b"\n")


def _error(status: int, reason: str) -> Page:
    return _page(status, {"error": reason})
