"""The session stream of herdpy.proto, from and to frames: docs/protocols/grpc.md.

Each message of the frame protocol that has a typed form takes it. Between herdpy's own driver and
server any other, and one with a field that the typed form lacks, travels as its frame. Both sides
speak the frame protocol, and the states, limits and errors are those of its machines. Any thread.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from herdpy.errors import Error, ProtocolError
from herdpy.model.lsn import START_LSN
from herdpy.proto import herdpy_pb2 as pb
from herdpy.proto import messages
from herdpy.proto.errors import to_failed
from herdpy.proto.messages import Message, encode_frame
from herdpy.proto.typed_values import (
    UntypedError,
    from_columns,
    from_parameters,
    from_position,
    from_rows,
    to_columns,
    to_parameters,
    to_position,
    to_rows,
    to_table,
)

Fields = list[Any]

_decode = msgspec.msgpack.decode
_encode = msgspec.msgpack.Encoder().encode


def _frame(body: Any) -> bytes:
    data = _encode(body)
    return len(data).to_bytes(messages.LENGTH_BYTES, "big") + data


def _fields(
    body: Any, forms: "dict[int, tuple[type[Message], int, Any]]", *, is_whole: bool
) -> tuple[Any, Fields]:
    """Return the maker of a body's typed form and the fields that it takes; UntypedError.

    is_whole: also when there are fields that it does not take.
    """
    number, *fields = _decode(body)
    form = forms.get(number)
    if form is None:
        raise UntypedError
    message, count, make = form
    extra = fields[count:]
    if is_whole and extra and tuple(extra) != tuple(message.__struct_defaults__[-len(extra) :]):
        raise UntypedError
    return make, fields[:count]


# --- requests: of the driver, and to the server --------------------------------------------------


def to_request(body: Any) -> pb.SessionRequest:
    """Return the typed form of a driver's message, given without its length.

    Hello has none: it says, as a frame, that its sender understands frames in answers, too.
    """
    try:
        make, fields = _fields(body, _REQUESTS, is_whole=True)
        return make(*fields)
    except (UntypedError, ValueError):  # the latter: a number that its field cannot hold
        length = len(body).to_bytes(messages.LENGTH_BYTES, "big")
        return pb.SessionRequest(frames=length + bytes(body))


def _execute(
    request: int, text: str, parameters: Any, token: int, acknowledged: int
) -> pb.SessionRequest:
    execute = pb.Execute(
        text=text, parameters=to_parameters(parameters), token=token, acknowledged=acknowledged
    )
    return pb.SessionRequest(request=request, execute=execute)


def _execute_many(
    request: int, text: str, items: list[Any], token: int, acknowledged: int
) -> pb.SessionRequest:
    many = pb.ExecuteMany(
        text=text,
        items=[to_parameters(item) or _NONE for item in items],
        token=token,
        acknowledged=acknowledged,
    )
    return pb.SessionRequest(request=request, execute_many=many)


_NONE = pb.Parameters()


def _fetch(request: int, result: int, rows_max: int, is_arrow: bool) -> pb.SessionRequest:
    fetch = pb.Fetch(result=result, rows_max=rows_max, is_arrow=is_arrow)
    return pb.SessionRequest(request=request, fetch=fetch)


def _close_result(result: int) -> pb.SessionRequest:
    return pb.SessionRequest(close_result=pb.CloseResult(result=result))


def _begin(request: int, durability: str | None) -> pb.SessionRequest:
    return pb.SessionRequest(request=request, begin=pb.Begin(durability=durability or ""))


def _commit(request: int, token: int, acknowledged: int) -> pb.SessionRequest:
    commit = pb.Commit(token=token, acknowledged=acknowledged)
    return pb.SessionRequest(request=request, commit=commit)


def _set_autocommit(request: int, autocommit: bool) -> pb.SessionRequest:
    change = pb.SetAutocommit(autocommit=autocommit)
    return pb.SessionRequest(request=request, set_autocommit=change)


def _plain(field: str) -> Callable[[int], pb.SessionRequest]:
    fields: dict[str, Any] = {field: pb.Empty()}
    return lambda request: pb.SessionRequest(request=request, **fields)


def _begin_ingest(request: int, table: str, mode: str) -> pb.SessionRequest:
    begin = pb.BeginIngest(table=table, mode=mode)
    return pb.SessionRequest(request=request, begin_ingest=begin)


def _add_to_ingest(request: int, ingest: int, data: bytes) -> pb.SessionRequest:
    add = pb.AddToIngest(ingest=ingest, arrow=data)
    return pb.SessionRequest(request=request, add_to_ingest=add)


def _finish_ingest(request: int, ingest: int, token: int, acknowledged: int) -> pb.SessionRequest:
    finish = pb.FinishIngest(ingest=ingest, token=token, acknowledged=acknowledged)
    return pb.SessionRequest(request=request, finish_ingest=finish)


def _drop_ingest(ingest: int) -> pb.SessionRequest:
    return pb.SessionRequest(drop_ingest=pb.DropIngest(ingest=ingest))


def _resolve(request: int, token_session: str, counter: int) -> pb.SessionRequest:
    resolve = pb.Resolve(token_session=token_session, counter=counter)
    return pb.SessionRequest(request=request, resolve=resolve)


_REQUESTS: dict[int, tuple[type[Message], int, Any]] = {
    2: (messages.Execute, 5, _execute),
    3: (messages.ExecuteMany, 5, _execute_many),
    4: (messages.Fetch, 4, _fetch),
    5: (messages.CloseResult, 1, _close_result),
    6: (messages.Begin, 2, _begin),
    7: (messages.Commit, 3, _commit),
    8: (messages.Rollback, 1, _plain("rollback")),
    9: (messages.SetAutocommit, 2, _set_autocommit),
    10: (messages.Checkpoint, 1, _plain("checkpoint")),
    11: (messages.Cancel, 1, _plain("cancel")),
    12: (messages.Ping, 1, _plain("ping")),
    20: (messages.BeginIngest, 3, _begin_ingest),
    21: (messages.IngestRows, 3, _add_to_ingest),
    22: (messages.FinishIngest, 4, _finish_ingest),
    23: (messages.DropIngest, 1, _drop_ingest),
    30: (messages.Resolve, 3, _resolve),
}


def from_request(typed: pb.SessionRequest) -> bytes:
    """Return the bytes of the frame protocol that a request stands for.

    ProtocolError when it is none that this server knows.
    """
    kind = typed.WhichOneof("kind")
    if kind == "frames":
        return typed.frames
    make = _FROM_REQUEST.get(kind or "")
    if make is None:
        raise ProtocolError("a request of no kind that this server knows")
    return encode_frame(make(typed.request, getattr(typed, kind or "")))


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
    parameters = None
    if statement.HasField("parameters"):
        parameters = from_parameters(statement.parameters)
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
        [from_parameters(item) for item in each.items],
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


def error_of(error: Error) -> pb.Error:
    """Return an error as the calls outside a session tell it."""
    failed: pb.SessionReply = to_reply(
        encode_frame(to_failed(0, error, in_transaction=False))[messages.LENGTH_BYTES :]
    )
    return failed.failed.error


# --- replies: of the server, and to the driver ---------------------------------------------------


def to_reply(body: Any, *, is_whole: bool = False) -> pb.SessionReply:
    """Return the typed form of a server's message, given without its length.

    is_whole: its frame when the typed form lacks a field, for a client that reads frames.
    """
    try:
        make, fields = _fields(body, _REPLIES if is_whole else _ALL_REPLIES, is_whole=is_whole)
        return make(*fields)
    except (UntypedError, ValueError):  # the latter: a number that its field cannot hold
        length = len(body).to_bytes(messages.LENGTH_BYTES, "big")
        return pb.SessionReply(frames=length + bytes(body))


def _welcome(
    version: int, server: str, session: int, frame_bytes_max: int, token_session: str
) -> pb.SessionReply:
    welcome = pb.Welcome(
        version=version,
        server=server,
        session=session,
        frame_bytes_max=frame_bytes_max,
        token_session=token_session,
    )
    return pb.SessionReply(welcome=welcome)


def _done(
    request: int,
    in_transaction: bool,
    row_count: int,
    last_row_id: int | None,
    columns: Any,
    rows: Any,
    result: int | None,
    lsn: Any,
) -> pb.SessionReply:
    done = pb.Done(
        in_transaction=in_transaction,
        row_count=row_count,
        last_row_id=last_row_id,
        columns=to_columns(columns),
        rows=to_rows(rows),
        result=result,
        position=to_position(lsn),
    )
    return pb.SessionReply(request=request, done=done)


def _rows(request: int, is_last: bool, rows: Any) -> pb.SessionReply:
    return pb.SessionReply(request=request, rows=pb.Rows(is_last=is_last, rows=to_rows(rows)))


def _arrow(request: int, is_last: bool, data: bytes) -> pb.SessionReply:
    return pb.SessionReply(request=request, arrow=pb.Arrow(is_last=is_last, data=data))


def _failed(
    request: int,
    in_transaction: bool,
    kind: str,
    message: str,
    sqlstate: str,
    retry: str,
    hint: str | None,
    position: int | None,
) -> pb.SessionReply:
    error = pb.Error(
        kind=kind, message=message, sqlstate=sqlstate, retry=retry, hint=hint, position=position
    )
    failed = pb.Failed(in_transaction=in_transaction, error=error)
    return pb.SessionReply(request=request, failed=failed)


def _ingest_begun(request: int, ingest: int, table: Any) -> pb.SessionReply:
    begun = pb.IngestBegun(ingest=ingest, table=to_table(table))
    return pb.SessionReply(request=request, ingest_begun=begun)


def _resolved(request: int, outcome: str) -> pb.SessionReply:
    return pb.SessionReply(request=request, resolved=pb.Resolved(outcome=outcome))


_REPLIES: dict[int, tuple[type[Message], int, Any]] = {
    64: (messages.Welcome, 5, _welcome),
    65: (messages.Done, 8, _done),
    66: (messages.Rows, 3, _rows),
    67: (messages.Arrow, 3, _arrow),
    68: (messages.Failed, 8, _failed),
    69: (messages.Pong, 1, lambda request: pb.SessionReply(request=request, pong=pb.Empty())),
    80: (messages.Resolved, 2, _resolved),
}
_ALL_REPLIES = {**_REPLIES, 76: (messages.IngestBegun, 3, _ingest_begun)}
"""With those whose typed form says less than the frame."""


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
