"""ManagementApi: what operators do to a bookie and its cluster over HTTP.

BookKeeper's endpoints at their paths, and those of this project beside them; the JSON is that of
the commands. Every call needs a role: `read` to look, `admin` to change, and to see what entries
hold. Every error is one JSON object of the same form (docs/protocols/management.md).
"""

import json
import logging
from collections.abc import Sequence

from bookie.errors import (
    BookieError,
    IllegalOperationError,
    IncorrectParameterError,
    MetadataStoreError,
    MetadataVersionError,
    NoSuchBookieError,
    NoSuchEntryError,
    NoSuchLedgerError,
    Retry,
    StoreConnectionError,
    UnsupportedOperationError,
    error_record,
)
from bookie.management.access import HttpAccess, Role
from bookie.management.cluster import json_value
from bookie.management.long_tasks import LongTasks
from bookie.management.openapi import document
from bookie.management.routing import Call, Endpoint
from bookie.runtime.http import JSON, Page, Request, problem
from bookie.server.health import PAGES
from bookie.server.metrics import Figure

_log = logging.getLogger(__name__)
PREFIX = "/api/"
OPENAPI = "/openapi.json"
_LOGGED_CHARS_MAX = 500
"""Of the arguments of a call; none of them is secret."""
_STATUSES = (
    (IncorrectParameterError, 400),
    (NoSuchBookieError, 404),
    (NoSuchLedgerError, 404),
    (NoSuchEntryError, 404),
    (UnsupportedOperationError, 501),
    (IllegalOperationError, 409),
    (MetadataVersionError, 409),
    (MetadataStoreError, 503),
    (StoreConnectionError, 503),
)
"""The first that an error is counts."""


class ManagementApi:
    """Api of an HttpServer. On its loop; close() ends the long tasks."""

    def __init__(
        self, access: HttpAccess, endpoints: Sequence[Endpoint], long_tasks: LongTasks
    ) -> None:
        self._access = access
        self._long_tasks = long_tasks
        self._refused_count = 0
        self.endpoints = (
            Endpoint("GET", OPENAPI, Role.READ, "This document.", self._openapi),
            *endpoints,
        )

    def owns(self, path: str) -> bool:
        is_document = path.removesuffix("/") == OPENAPI
        return is_document or (path.startswith(PREFIX) and path not in PAGES)

    def figures(self) -> list[Figure]:
        """Return what is counted, for the metrics of the process."""
        return [
            Figure("bookie_http_refused", "requests without a role, or with one too small",
                   self._refused_count),
        ]  # fmt: skip

    def refusal(self, request: Request) -> Page | None:
        page = self._refusal(request)
        if page is not None and page.status in (401, 403):
            self._refused_count += 1
        return page

    def _refusal(self, request: Request) -> Page | None:
        role = self._access.role_of(request.headers.get("authorization"), request.certificate_name)
        if role is Role.NONE:
            return problem(
                401,
                "expected a token (Authorization: Bearer …) or a client certificate with a role, "
                "found none; ask who keeps the file of --http-access",
            )
        found = [one for one in self.endpoints if one.argument_in(request.path) is not None]
        if not found:
            return problem(404, f"expected one of the paths of {OPENAPI}, found another")
        for endpoint in found:
            if endpoint.method == request.method:
                if role < endpoint.role:
                    return problem(
                        403,
                        f"expected the role {endpoint.role.name.lower()}, found "
                        f"{role.name.lower()}; ask with another token or certificate",
                    )
                return None
        methods = [one.method for one in found]
        page = problem(405, f"expected {' or '.join(methods)}, found another")
        return page._replace(allow=", ".join(methods))

    async def call(self, request: Request) -> Page:
        for endpoint in self.endpoints:
            if endpoint.method == request.method and endpoint.argument_in(request.path) is not None:
                return await self._answer(endpoint, request)
        raise AssertionError("refusal() let it pass")

    async def _answer(self, endpoint: Endpoint, request: Request) -> Page:
        asked, outcome = "with arguments that are refused", "unanswered"
        try:
            call = endpoint.call_of(request)
            asked = repr((dict(call.query), dict(call.body)))[:_LOGGED_CHARS_MAX]
            page = _page(200, await endpoint.answer(call))
            outcome = str(page.status)
        except BookieError as error:
            is_passing = error.retry is not Retry.NEVER
            status = next(
                (status for kind, status in _STATUSES if isinstance(error, kind)),
                503 if is_passing else 500,
            )
            page = _page(status, error_record(error))
            outcome = str(page.status)
        finally:
            if endpoint.role is Role.ADMIN:
                name = request.certificate_name
                by = "a token" if name is None else repr(name)
                _log.info("%s %r %s by %s: %s", request.method, request.path, asked, by, outcome)
        return page

    async def close(self) -> None:
        await self._long_tasks.close()

    async def _openapi(self, call: Call) -> object:
        return document(self.endpoints, PAGES)


def _page(status: int, value: object) -> Page:
    return Page(status, JSON, json.dumps(value, default=json_value).encode() + b"\n")
