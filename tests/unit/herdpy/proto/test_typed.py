"""The typed messages of gRPC stand for frames, and nothing is lost on the way."""

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scramp import ScramClient

from herdpy.errors import OperationalError, ProtocolError, Retry
from herdpy.model.schema import Column, Table, table_to_plain
from herdpy.model.types import Kind, SqlType
from herdpy.proto import herdpy_pb2 as pb
from herdpy.proto import messages
from herdpy.proto.grpc_codes import status_name
from herdpy.proto.messages import LENGTH_BYTES, decode_to_driver, decode_to_server, encode_frame
from herdpy.proto.typed_session import from_reply, from_request, to_reply
from herdpy.proto.typed_values import to_value
from herdpy.proto.values import to_wire

TEXT = st.text(max_size=20)
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), TEXT,
    st.binary(max_size=20), st.decimals(allow_nan=False, allow_infinity=False, places=3),
    st.dates(), st.datetimes(), st.sampled_from([{1}, object]),
)  # fmt: skip
PARAMETERS = st.one_of(
    st.none(), st.lists(VALUES, max_size=5), st.dictionaries(TEXT, VALUES, max_size=5)
)
SOME = PARAMETERS.filter(lambda found: found is not None)
NUMBER = st.integers(1, 2**63 - 1)
COUNT = st.integers(0, 2**40)
MAYBE_TEXT = st.one_of(st.none(), TEXT.filter(bool))
REQUESTS = st.one_of(
    st.builds(messages.Execute, NUMBER, TEXT, PARAMETERS.map(to_wire), COUNT, COUNT),
    st.builds(messages.ExecuteMany, NUMBER, TEXT, st.lists(SOME.map(to_wire)), COUNT, COUNT),
    st.builds(messages.Fetch, NUMBER, COUNT, COUNT, st.booleans()),
    st.builds(messages.CloseResult, COUNT),
    st.builds(messages.Begin, NUMBER, MAYBE_TEXT),
    st.builds(messages.Commit, NUMBER, COUNT, COUNT),
    st.builds(messages.SetAutocommit, NUMBER, st.booleans()),
    st.builds(messages.BeginIngest, NUMBER, TEXT, TEXT.filter(bool)),
    st.builds(messages.IngestRows, NUMBER, COUNT, st.binary(max_size=50)),
    st.builds(messages.FinishIngest, NUMBER, COUNT, COUNT, COUNT),
    st.builds(messages.DropIngest, COUNT),
    st.builds(messages.Resolve, NUMBER, TEXT, COUNT),
    *(
        st.builds(kind, NUMBER)
        for kind in (messages.Rollback, messages.Checkpoint, messages.Cancel, messages.Ping)
    ),
)  # fmt: skip
CELLS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), TEXT,
    st.binary(max_size=9),
)  # fmt: skip
ROWS = st.lists(st.lists(CELLS, max_size=4), max_size=4).map(
    lambda rows: msgspec.Raw(msgspec.msgpack.encode(rows))
)
MAYBE = st.one_of(st.none(), COUNT)
COLUMNS = st.lists(st.tuples(TEXT, st.integers(1, 200), MAYBE, MAYBE, MAYBE), max_size=3)
REPLIES = st.one_of(
    st.builds(messages.Welcome, st.integers(0, 2**32 - 1), TEXT, COUNT, COUNT, TEXT),
    st.builds(
        messages.Done, NUMBER, st.booleans(), st.integers(-1, 2**40), MAYBE,
        st.one_of(st.none(), COLUMNS).map(msgspec.msgpack.encode).map(msgspec.Raw), ROWS, MAYBE,
    ),
    st.builds(messages.Rows, NUMBER, st.booleans(), ROWS),
    st.builds(messages.Arrow, NUMBER, st.booleans(), st.binary(max_size=50)),
    st.builds(
        messages.Failed, COUNT, st.booleans(), TEXT, TEXT, TEXT, TEXT,
        st.one_of(st.none(), TEXT), MAYBE,
    ),
    st.builds(messages.Pong, NUMBER),
    st.builds(messages.Resolved, NUMBER, TEXT, st.tuples(COUNT, COUNT, st.integers(0, 2**32 - 1))),
    st.builds(messages.Tables, NUMBER, st.just([[1, "t"]])),
)  # fmt: skip


def plain(message: Any) -> Any:
    """Return fields that compare: what msgspec keeps raw is decoded, NaN equals itself."""

    def same(item: Any) -> Any:
        if isinstance(item, float) and math.isnan(item):
            return "NaN"
        return [same(each) for each in item] if isinstance(item, (list, tuple)) else item

    return same(msgspec.msgpack.decode(msgspec.msgpack.encode(message)))


def typed_request(message: Any) -> pb.SessionRequest:
    """Return a request as a client of another language makes it."""
    request = getattr(message, "request", 0)

    def parameters(found: Any) -> pb.Parameters | None:
        if found is None:
            return None
        if isinstance(found, dict):
            named = {name: to_value(item) for name, item in found.items()}
            return pb.Parameters(named=pb.NamedValues(values=named))
        return pb.Parameters(positional=pb.Row(values=map(to_value, found)))

    match message:
        case messages.Execute():
            found = parameters(coded(message.parameters))
            kind: Any = pb.Execute(
                text=message.text,
                parameters=found,
                token=message.token,
                acknowledged=message.acknowledged,
            )
            return pb.SessionRequest(request=request, execute=kind)
        case messages.ExecuteMany():
            kind = pb.ExecuteMany(
                text=message.text,
                items=[parameters(item) or pb.Parameters() for item in coded(message.items)],
                token=message.token,
                acknowledged=message.acknowledged,
            )
            return pb.SessionRequest(request=request, execute_many=kind)
        case _:
            pass
    name, kind, fields = OTHERS[type(message)]
    values = {field: getattr(message, own) for field, own in fields.items()}
    values = {field: value for field, value in values.items() if value is not None}
    typed: dict[str, Any] = {name: kind(**values)}
    return pb.SessionRequest(request=request, **typed)


def coded(parameters: Any) -> Any:
    """Return parameters as msgspec decodes those of a frame, without a type."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(parameters))


def same(*names: str, **others: str) -> dict[str, str]:
    return {**{name: name for name in names}, **others}


OTHERS: dict[type, tuple[str, Any, dict[str, str]]] = {
    messages.Fetch: ("fetch", pb.Fetch, same("result", "rows_max", "is_arrow")),
    messages.CloseResult: ("close_result", pb.CloseResult, same("result")),
    messages.Begin: ("begin", pb.Begin, same("durability")),
    messages.Commit: ("commit", pb.Commit, same("token", "acknowledged")),
    messages.SetAutocommit: ("set_autocommit", pb.SetAutocommit, same("autocommit")),
    messages.BeginIngest: ("begin_ingest", pb.BeginIngest, same("table", "mode")),
    messages.IngestRows: ("add_to_ingest", pb.AddToIngest, same("ingest", arrow="data")),
    messages.FinishIngest: (
        "finish_ingest", pb.FinishIngest, same("ingest", "token", "acknowledged")
    ),
    messages.DropIngest: ("drop_ingest", pb.DropIngest, same("ingest")),
    messages.Resolve: ("resolve", pb.Resolve, same("token_session", "counter")),
    messages.Rollback: ("rollback", pb.Empty, {}),
    messages.Checkpoint: ("checkpoint", pb.Empty, {}),
    messages.Cancel: ("cancel", pb.Empty, {}),
    messages.Ping: ("ping", pb.Empty, {}),
}  # fmt: skip


@given(REQUESTS)
def test_requests(message: Any) -> None:
    """The message of a typed request is the one that its frame would be, and as well decoded."""
    typed = pb.SessionRequest.FromString(typed_request(message).SerializeToString())
    found = from_request(typed)
    assert type(found) is type(message)
    assert plain(found) == plain(message)
    decode_to_server(encode_frame(found)[LENGTH_BYTES:])


@given(REPLIES)
def test_replies(message: Any) -> None:
    typed = to_reply(message)
    is_typed = not isinstance(message, messages.Tables)
    assert (typed.WhichOneof("kind") != "frames") is is_typed
    found = from_reply(pb.SessionReply.FromString(typed.SerializeToString()))
    assert plain(msgspec.msgpack.decode(found[LENGTH_BYTES:])) == plain(message)
    decode_to_driver(found[LENGTH_BYTES:])


def test_a_number_that_its_field_cannot_hold_goes_as_a_frame() -> None:
    negative = messages.Pong(-1)  # no client of herdpy.proto has such a number
    assert to_reply(negative).frames == encode_frame(negative)


@given(st.binary(max_size=60))
def test_what_is_no_message_of_ours_is_an_error_of_ours(data: bytes) -> None:
    uses: Any = ((pb.SessionRequest, from_request), (pb.SessionReply, from_reply))
    for kind, use in uses:
        try:
            typed = kind.FromString(data)
        except Exception:  # protobuf's, which grpc answers
            continue
        try:
            assert isinstance(use(typed), (bytes, messages.Message))
        except ProtocolError:
            pass


def test_a_table_is_typed_for_who_reads_no_frames() -> None:
    column = Column(1, "id", SqlType(Kind.BIGINT), not_null=True)
    table = Table(id=1, name="t", version=1, key=(0,), columns=(column,))
    begun = messages.IngestBegun(7, 3, table_to_plain(table))
    typed = to_reply(begun).ingest_begun
    assert (typed.ingest, typed.table.name, typed.table.primary_key) == (3, "t", ["id"])


# --- docs/protocols/grpc.md, "By hand" -----------------------------------------------------------


def by_hand() -> list[str]:
    """Return the blocks behind the headline."""
    text = (Path(__file__).parents[4] / "docs/protocols/grpc.md").read_text()
    return text.partition("## By hand")[2].split("```")[1::2]


def test_the_bytes_in_the_document() -> None:
    request, reply = by_hand()[0].removeprefix("text").strip().splitlines()
    assert pb.ExecuteRequest(text="SELECT 1").SerializeToString() == bytes.fromhex(request)
    columns = pb.Columns(columns=[pb.Column(name="?column?", kind=pb.INTEGER)])
    row = pb.Row(values=[pb.Value(integer=1)])
    whole = pb.ExecuteReply(columns=columns, rows=[row], row_count=-1)
    assert whole == pb.ExecuteReply.FromString(bytes.fromhex(reply))


def test_the_login_in_the_document() -> None:
    lines = by_hand()[1].removeprefix("text").strip().splitlines()
    first, challenge, proof, verified = (line.split(maxsplit=1)[1] for line in lines)
    client = ScramClient(["SCRAM-SHA-256"], "*", "pencil", c_nonce="rOprNGfwEbeRWgbNEkqO")
    assert client.get_client_first() == first
    client.set_server_first(challenge)
    assert client.get_client_final() == proof
    client.set_server_final(verified)


@pytest.mark.parametrize("sqlstate", ["57P01", "57P03", "08006", "08007"])
@pytest.mark.parametrize(
    ("retry", "status"),
    [(Retry.SAFE, "UNAVAILABLE"), (Retry.UNKNOWN, "UNKNOWN"), (Retry.NEVER, "UNKNOWN")],
)
def test_clients_are_told_to_repeat_only_what_did_not_happen(
    sqlstate: str, retry: Retry, status: str
) -> None:
    assert status_name(OperationalError("", sqlstate=sqlstate, retry=retry)) == status
