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


# --- requests, to the server ---------------------------------------------------------------------


def from_request(typed: pb.SessionRequest) -> Message:
    """Return the message that a request, no frame, stands for.

    ProtocolError when it is none that this server knows.
    """
    kind = typed.WhichOneof("kind")
    if kind == "open":
        return hello(typed.open)
    if kind == "execute":
        return execute(typed.request, typed.execute)
    make = _REQUESTS.get(kind or "")
    if make is None:
        raise ProtocolError("a request of no kind that this server knows")
    each: Any = getattr(typed, kind or "")
    return make(
        *(
            typed.request if name == "request" else _READ.get(name, getattr)(each, name)
            for name in make.__struct_fields__
        )
    )


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
        opened.read,
        opened.max_staleness_s,
    )


def execute(request: int, statement: pb.Execute | pb.ExecuteRequest) -> messages.Execute:
    found = from_parameters(statement.parameters) if statement.HasField("parameters") else None
    parameters = raw(_encode(found))
    if isinstance(statement, pb.ExecuteRequest):
        return messages.Execute(request, statement.text, parameters)
    token, acknowledged = statement.token, statement.acknowledged
    return messages.Execute(request, statement.text, parameters, token, acknowledged)


_REQUESTS: dict[str, type[Message]] = {
    "execute_many": messages.ExecuteMany,
    "fetch": messages.Fetch,
    "close_result": messages.CloseResult,
    "begin": messages.Begin,
    "commit": messages.Commit,
    "rollback": messages.Rollback,
    "set_autocommit": messages.SetAutocommit,
    "checkpoint": messages.Checkpoint,
    "cancel": messages.Cancel,
    "ping": messages.Ping,
    "begin_ingest": messages.BeginIngest,
    "add_to_ingest": messages.IngestRows,
    "finish_ingest": messages.FinishIngest,
    "drop_ingest": messages.DropIngest,
    "resolve": messages.Resolve,
}
"""By kind; a field of the message is that of the same name, but for those of _READ."""
_READ: dict[str, Callable[[Any, str], Any]] = {
    "durability": lambda each, _: each.durability or None,
    "mode": lambda each, _: each.mode or "append",
    "data": lambda each, _: each.arrow,
    "items": lambda each, _: raw(_encode([from_parameters(item) for item in each.items])),
}

# --- replies: of the server, and to the driver ---------------------------------------------------

_REPLIES: dict[str, type[Message]] = {
    "welcome": messages.Welcome,
    "done": messages.Done,
    "rows": messages.Rows,
    "arrow": messages.Arrow,
    "failed": messages.Failed,
    "pong": messages.Pong,
    "resolved": messages.Resolved,
    "ingest_begun": messages.IngestBegun,
}
"""By kind; fields are those of the same name, but for `lsn`, and the error of a Failed."""
_KINDS = {message: kind for kind, message in _REPLIES.items()}
_TO_TYPED: dict[str, Callable[[Any], Any]] = {
    "columns": to_columns, "rows": to_decoded_rows, "lsn": to_position, "data": bytes,
    "table": to_table,
}  # fmt: skip
_FROM_TYPED: dict[str, Callable[[Any], Any]] = {
    "columns": from_columns, "rows": from_rows, "lsn": from_position,
}  # fmt: skip
_TYPED_NAMES = {"lsn": "position"}
_OF_ERROR = ("kind", "message", "sqlstate", "retry", "hint", "position", "leader")


def error_of(failed: messages.Failed) -> pb.Error:
    return pb.Error(**{name: getattr(failed, name) for name in _OF_ERROR})


def to_reply(message: Message) -> pb.SessionReply:
    """Return the typed form of a server's message; what has none travels as its frame."""
    kind = _KINDS.get(type(message))
    try:
        if kind is not None:
            fields: dict[str, Any] = {kind: _typed(message)}
            return pb.SessionReply(request=getattr(message, "request", 0), **fields)
    except (UntypedError, ValueError):  # the latter: a number that its field cannot hold
        pass
    return pb.SessionReply(frames=encode_frame(message))


def _typed(message: Message) -> Any:
    if isinstance(message, messages.Failed):
        return pb.Failed(in_transaction=message.in_transaction, error=error_of(message))
    fields: dict[str, Any] = {}
    for name in message.__struct_fields__:
        if name != "request":
            value, convert = getattr(message, name), _TO_TYPED.get(name)
            fields[_TYPED_NAMES.get(name, name)] = convert(value) if convert else value
    return getattr(pb, type(message).__name__)(**fields) if fields else pb.Empty()


def from_reply(typed: pb.SessionReply) -> bytes:
    """Return the bytes of the frame protocol that a reply stands for; ProtocolError."""
    kind = typed.WhichOneof("kind") or ""
    if kind == "frames":
        return typed.frames
    found = _BODIES.get(kind)
    if found is None:
        raise ProtocolError("a reply of no kind that this driver knows")
    tag, is_numbered, fields = found
    each: Any = getattr(typed, kind)
    body: list[Any] = [tag, typed.request] if is_numbered else [tag]
    for is_of_error, name, has_presence, absent, convert in fields:
        part = each.error if is_of_error else each
        if has_presence and not part.HasField(name):
            body.append(absent)
        else:
            value = getattr(part, name)
            body.append(convert(value) if convert else value)
    data = _encode(body)
    return len(data).to_bytes(messages.LENGTH_BYTES, "big") + data


_Field = tuple[bool, str, bool, Any, Callable[[Any], Any] | None]
"""Whether it is of the error, name in protobuf, may be absent, value if it is, conversion."""


def _body_of(message: type[Message]) -> tuple[str | int | None, bool, list[_Field]]:
    """Return the tag of a message, whether it has the number of a request, and its other fields."""
    names = message.__struct_fields__
    fields: list[_Field] = []
    for name in names:
        if name == "request":
            continue
        is_of_error = message is messages.Failed and name in _OF_ERROR
        typed: Any = pb.Error if is_of_error else getattr(pb, message.__name__)
        field = typed.DESCRIPTOR.fields_by_name[_TYPED_NAMES.get(name, name)]
        absent = START_LSN if name == "lsn" else None
        convert = _FROM_TYPED.get(name)
        fields.append((is_of_error, field.name, field.has_presence, absent, convert))
    return message.__struct_config__.tag, "request" in names, fields


_BODIES = {
    kind: _body_of(message)
    for kind, message in _REPLIES.items()
    if message is not messages.IngestBegun  # it travels as its frame
}
