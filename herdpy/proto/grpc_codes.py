"""The gRPC status of an error, by its SQLSTATE and retry class: docs/protocols/grpc.md.

The status is for tools that know nothing else; programs read the Error beside it.
"""

from herdpy.errors import Error, Retry

_BY_STATE = {
    "08004": "FAILED_PRECONDITION",
    "08P01": "INVALID_ARGUMENT",
    "23505": "ALREADY_EXISTS",
    "3D000": "NOT_FOUND",
    "42501": "PERMISSION_DENIED",
    "42703": "NOT_FOUND",
    "42P01": "NOT_FOUND",
    "42P07": "ALREADY_EXISTS",
    "55P03": "ABORTED",
    "57014": "CANCELLED",
    "58030": "INTERNAL",
    "XX001": "DATA_LOSS",
}
_BY_CLASS = {
    "07": "INVALID_ARGUMENT",
    "08": "UNAVAILABLE",
    "0A": "UNIMPLEMENTED",
    "21": "INVALID_ARGUMENT",
    "22": "INVALID_ARGUMENT",
    "23": "FAILED_PRECONDITION",
    "24": "FAILED_PRECONDITION",
    "25": "FAILED_PRECONDITION",
    "28": "UNAUTHENTICATED",
    "40": "ABORTED",
    "42": "INVALID_ARGUMENT",
    "53": "RESOURCE_EXHAUSTED",
    "54": "RESOURCE_EXHAUSTED",
    "55": "FAILED_PRECONDITION",
    "57": "UNAVAILABLE",
    "72": "ABORTED",
    "XX": "INTERNAL",
}


def status_name(error: Error) -> str:
    """Return the name of the status, as grpc.StatusCode has it."""
    found = _BY_STATE.get(error.sqlstate) or _BY_CLASS.get(error.sqlstate[:2], "UNKNOWN")
    if found == "UNAVAILABLE" and error.retry is not Retry.SAFE:
        return "UNKNOWN"  # it may have happened, and clients repeat at UNAVAILABLE
    return found
