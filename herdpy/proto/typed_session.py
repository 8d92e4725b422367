"""The session stream of herdpy.proto, from and to the messages of frames: docs/protocols/grpc.md.

A client of another language sends and gets typed messages. Between herdpy's own driver and server
the bytes of the frame protocol travel in them; a server of an earlier release answers typed. The
states, limits and errors are those of the machines of the frame protocol. Any thread.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from herdpy.errors import ProtocolError
from herdpy.model.lsn import START_LSN
from herdpy.proto import herdpy_pb2 as pb
from herdpy.proto import messages
from herdpy.proto.messages import Message, encode_frame, raw
from herdpy.proto.typed_values import (
    UntypedError,
    from_columns,
    from_parameters,
    from_position,
    from_rows,
    to_columns,
    to_decoded_rows,
    to_position,
    to_table,
)

_encode = msgspec.msgpack.Encoder().encode


def _frame(body: Any) -> bytes:
    data = _encode(body)
    return len(data).to_bytes(messages.LENGTH_BYTES, "big") + data


# --- requests, to the server ---------------------------------------------------------------------


def from_request(typed: pb.SessionRequest) -> Message:
    """Return the message that a request, no frame, stands for.

    ProtocolError when it is none that this server knows.
    """
    kind = typed.WhichOneof("kind") or ""
    make = _FROM_REQUEST.get(kind)
    if make is None:
        raise ProtocolError("a request of no kind that this server knows")
    return make(typed.request, getattr(typed, kind))


def hello(opened: pb.Open, user: str = "") -> messages.Hello:
    """Return the Hello that an Open stands for, of a user who wants to log in."""
    return messages.Hello(
        messages.MAGIC,
        messages.VERSION,
        messages.VERSION,
        opened.client or "grpc",
        opened.tablespace or "default",
        opened.autocommit,
        opened.durability or None,
        opened.lock_timeout_s,
        opened.statement_timeout_s,
        opened.idle_in_transaction_timeout_s,
        user,
    )


def execute(request: int, statement: pb.Execute | pb.ExecuteRequest) -> messages.Execute:
    """Return the Execute of a statement."""
    found = from_parameters(statement.parameters) if statement.HasField("parameters") else None
    parameters = raw(_encode(found))
    if isinstance(statement, pb.ExecuteRequest):
        return messages.Execute(request, statement.text, parameters)
    token, acknowledged = statement.token, statement.acknowledged
    return messages.Execute(request, statement.text, parameters, token, acknowledged)


_FROM_REQUEST: dict[str, Callable[[int, Any], Message]] = {
    "open": lambda _, each: hello(each),
    "execute": execute,
    "execute_many": lambda request, each: messages.ExecuteMany(
        request,
        each.text,
        raw(_encode([from_parameters(item) for item in each.items])),
        each.token,
        each.acknowledged,
    ),
    "fetch": lambda request, each: messages.Fetch(
        request, each.result, each.rows_max, each.is_arrow
    ),
    "close_result": lambda _, each: messages.CloseResult(each.result),
    "begin": lambda request, each: messages.Begin(request, each.durability or None),
    "commit": lambda request, each: messages.Commit(request, each.token, each.acknowledged),
    "rollback": lambda request, _: messages.Rollback(request),
    "set_autocommit": lambda request, each: messages.SetAutocommit(request, each.autocommit),
    "checkpoint": lambda request, _: messages.Checkpoint(request),
    "cancel": lambda request, _: messages.Cancel(request),
    "ping": lambda request, _: messages.Ping(request),
    "begin_ingest": lambda request, each: messages.BeginIngest(
        request, each.table, each.mode or "append"
    ),
    "add_to_ingest": lambda request, each: messages.IngestRows(request, each.ingest, each.arrow),
    "finish_ingest": lambda request, each: messages.FinishIngest(
        request, each.ingest, each.token, each.acknowledged
    ),
    "drop_ingest": lambda _, each: messages.DropIngest(each.ingest),
    "resolve": lambda request, each: messages.Resolve(request, each.token_session, each.counter),
}


def error_of(failed: messages.Failed) -> pb.Error:
    """Return an error as all calls tell it."""
    return pb.Error(
        kind=failed.kind,
        message=failed.message,
        sqlstate=failed.sqlstate,
        retry=failed.retry,
        hint=failed.hint,
        position=failed.position,
    )


# --- replies: of the server, and to the driver ---------------------------------------------------


def to_reply(message: Message) -> pb.SessionReply:
    """Return the typed form of a server's message; what has none travels as its frame."""
    make = _TO_REPLY.get(type(message))
    try:
        if make is not None:
            name, typed = make(message)
            fields: dict[str, Any] = {name: typed}
            return pb.SessionReply(request=getattr(message, "request", 0), **fields)
    except (UntypedError, ValueError):  # the latter: a number that its field cannot hold
        pass
    return pb.SessionReply(frames=encode_frame(message))


def _welcome(message: messages.Welcome) -> tuple[str, Any]:
    return "welcome", pb.Welcome(
        version=message.version,
        server=message.server,
        session=message.session,
        frame_bytes_max=message.frame_bytes_max,
        token_session=message.token_session,
    )


def _done(message: messages.Done) -> tuple[str, Any]:
    return "done", pb.Done(
        in_transaction=message.in_transaction,
        row_count=message.row_count,
        last_row_id=message.last_row_id,
        columns=to_columns(message.columns),
        rows=to_decoded_rows(message.rows),
        result=message.result,
        position=to_position(message.lsn),
    )


def _rows(message: messages.Rows) -> tuple[str, Any]:
    return "rows", pb.Rows(is_last=message.is_last, rows=to_decoded_rows(message.rows))


def _arrow(message: messages.Arrow) -> tuple[str, Any]:
    return "arrow", pb.Arrow(is_last=message.is_last, data=bytes(message.data))


def _failed(message: messages.Failed) -> tuple[str, Any]:
    return "failed", pb.Failed(in_transaction=message.in_transaction, error=error_of(message))


def _ingest_begun(message: messages.IngestBegun) -> tuple[str, Any]:
    return "ingest_begun", pb.IngestBegun(ingest=message.ingest, table=to_table(message.table))


_TO_REPLY: dict[type[Message], Callable[[Any], tuple[str, Any]]] = {
    messages.Welcome: _welcome,
    messages.Done: _done,
    messages.Rows: _rows,
    messages.Arrow: _arrow,
    messages.Failed: _failed,
    messages.Pong: lambda _: ("pong", pb.Empty()),
    messages.IngestBegun: _ingest_begun,
    messages.Resolved: lambda message: ("resolved", pb.Resolved(outcome=message.outcome)),
}


def from_reply(typed: pb.SessionReply) -> bytes:
    """Return the bytes of the frame protocol that a reply stands for; ProtocolError."""
    kind = typed.WhichOneof("kind")
    request = typed.request
    match kind:
        case "frames":
            return typed.frames
        case "done":
            return _frame(_done_body(request, typed.done))
        case "rows":
            return _frame([66, request, typed.rows.is_last, from_rows(typed.rows.rows)])
        case "arrow":
            return _frame([67, request, typed.arrow.is_last, typed.arrow.data])
        case "failed":
            return _frame(_failed_body(request, typed.failed))
        case "welcome":
            each = typed.welcome
            sizes = [each.session, each.frame_bytes_max]
            return _frame([64, each.version, each.server, *sizes, each.token_session])
        case "pong":
            return _frame([69, request])
        case "resolved":
            return _frame([80, request, typed.resolved.outcome])
        case _:
            raise ProtocolError("a reply of no kind that this driver knows")


def _done_body(request: int, done: pb.Done) -> list[Any]:
    return [
        65,
        request,
        done.in_transaction,
        done.row_count,
        done.last_row_id if done.HasField("last_row_id") else None,
        from_columns(done.columns) if done.HasField("columns") else None,
        from_rows(done.rows),
        done.result if done.HasField("result") else None,
        from_position(done.position) if done.HasField("position") else START_LSN,
    ]


def _failed_body(request: int, failed: pb.Failed) -> list[Any]:
    error = failed.error
    return [
        68,
        request,
        failed.in_transaction,
        error.kind,
        error.message,
        error.sqlstate,
        error.retry,
        error.hint if error.HasField("hint") else None,
        error.position if error.HasField("position") else None,
    ]
