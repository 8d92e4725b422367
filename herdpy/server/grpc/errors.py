"""How a gRPC call that fails is told why: a status, and the Error beside it in two forms.

`herdpy-error-bin` has the Error of herdpy.proto. `grpc-status-details-bin` has google.rpc.Status
with an ErrorInfo, which the libraries of many languages read; herdpy.proto has these by names of
its own, since a program may bring the messages of google.rpc along.
"""

from typing import Any

import grpc

from herdpy.errors import Error
from herdpy.proto import herdpy_pb2 as pb
from herdpy.proto.errors import to_failed
from herdpy.proto.grpc_codes import status_name
from herdpy.proto.typed_session import error_of

ERROR_METADATA = "herdpy-error-bin"
DETAILS_METADATA = "grpc-status-details-bin"
_ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
_MESSAGE_BYTES_MAX = 800
_HINT_BYTES_MAX = 400
"""Clients take 8 KiB of metadata in all; a status' text may be three times as long on its way."""


async def abort(context: Any, error: Error) -> None:
    """End the call with an error; raises."""
    status = grpc.StatusCode[status_name(error)]
    told = error_of(to_failed(0, error, in_transaction=False))
    told.message = _cut(told.message, _MESSAGE_BYTES_MAX)
    info = pb.ErrorInfo(reason=told.sqlstate, domain="herdpy")
    info.metadata["kind"] = told.kind
    info.metadata["retry"] = told.retry
    if told.HasField("hint"):
        told.hint = info.metadata["hint"] = _cut(told.hint, _HINT_BYTES_MAX)
    if told.HasField("position"):
        info.metadata["position"] = str(told.position)
    detail = pb.Detail(type_url=_ERROR_INFO, value=info.SerializeToString())
    code: int = status.value[0]
    details = pb.Status(code=code, message=told.message, details=[detail])
    context.set_trailing_metadata(
        (
            (ERROR_METADATA, told.SerializeToString()),
            (DETAILS_METADATA, details.SerializeToString()),
        )
    )
    await context.abort(status, told.message)


def _cut(text: str, bytes_max: int) -> str:
    return text.encode()[:bytes_max].decode(errors="ignore")
