"""The API as an OpenAPI 3.1 document, made from the table of endpoints and nothing else."""

from collections.abc import Mapping, Sequence
from typing import Any

from bookie.management.routing import Argument, Endpoint, Kind
from bookie.runtime.http import JSON, TEXT

_ERROR = {
    "type": "object",
    "required": ["error", "code", "retry", "message"],
    "properties": {
        "error": {"type": "string", "description": "The class of the error, or HTTP's reason."},
        "code": {"type": ["integer", "null"], "description": "Of BookKeeper's BKException."},
        "retry": {"enum": ["safe", "never", "unknown"]},
        "message": {
            "type": "string",
            "description": "What failed, where, what was expected and found, and what to do.",
        },
    },
}


def document(endpoints: Sequence[Endpoint], pages: Mapping[str, str]) -> dict[str, Any]:
    """Return the document. pages: the paths that are open to all, and what 200 says there."""
    paths: dict[str, dict[str, Any]] = {}
    for path, summary in pages.items():
        paths[path] = {
            "get": {
                "summary": summary,
                "security": [],
                "responses": {
                    "200": {"description": "so it is", "content": {TEXT: {}}},
                    "503": {"description": "it is not so; the reason", "content": {TEXT: {}}},
                },
            }
        }
    for one in endpoints:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {"title": "bookie", "version": "1"},
        "security": [{"token": []}, {"certificate": []}],
        "components": {
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "certificate": {"type": "mutualTLS"},
            },
            "schemas": {"Error": _ERROR},
        },
        "paths": paths,
    }


def _operation(one: Endpoint) -> dict[str, Any]:
    error = {"schema": {"$ref": "#/components/schemas/Error"}}
    operation: dict[str, Any] = {
        "summary": one.summary,
        "x-role": one.role.name.lower(),
        "parameters": [_parameter(argument, "query") for argument in one.query],
        "responses": {"default": {"description": "error", "content": {JSON: error}}},
    }
    if not one.replacement:
        operation["responses"]["200"] = {"description": "done", "content": {JSON: {}}}
    if "{" in one.path:
        bookie_id = Argument("bookie_id", Kind.TEXT, "The id of a bookie.", is_required=True)
        operation["parameters"].append(_parameter(bookie_id, "path"))
    if one.body:
        schema = {
            "type": "object",
            "additionalProperties": False,
            "required": [argument.name for argument in one.body if argument.is_required],
            "properties": {
                argument.name: argument.kind.schema | {"description": argument.meaning}
                for argument in one.body
            },
        }
        operation["requestBody"] = {
            "required": bool(schema["required"]), "content": {JSON: {"schema": schema}}
        }  # fmt: skip
    return operation


def _parameter(argument: Argument, place: str) -> dict[str, object]:
    return {
        "name": argument.name,
        "in": place,
        "description": argument.meaning,
        "required": argument.is_required,
        "schema": argument.kind.schema,
    }
