"""The typed messages of gRPC stand for frames, and nothing is lost on the way."""

import math
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from scramp import ScramClient

from herdpy.errors import ProtocolError
from herdpy.model.schema import Column, Table, table_to_plain
from herdpy.model.types import Kind, SqlType
from herdpy.proto import herdpy_pb2 as pb
from herdpy.proto import messages
from herdpy.proto.messages import LENGTH_BYTES, decode_to_driver, decode_to_server, encode_frame
from herdpy.proto.typed_session import from_reply, from_request, to_reply, to_request
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
        for kind in (messages.Rollback, messages.Checkpoint, messages.Cancel, messages.Ping,
                     messages.ListTables)
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
        st.one_of(st.none(), COLUMNS.map(tuple)), ROWS, MAYBE,
    ),
    st.builds(messages.Rows, NUMBER, st.booleans(), ROWS),
    st.builds(messages.Arrow, NUMBER, st.booleans(), st.binary(max_size=50)),
    st.builds(
        messages.Failed, COUNT, st.booleans(), TEXT, TEXT, TEXT, TEXT,
        st.one_of(st.none(), TEXT), MAYBE,
    ),
    st.builds(messages.Pong, NUMBER),
    st.builds(messages.Resolved, NUMBER, TEXT),
    st.builds(messages.Tables, NUMBER, st.just([[1, "t"]])),
)  # fmt: skip


def plain(message: Any) -> Any:
    """Return fields that compare: what msgspec keeps raw is decoded, NaN equals itself."""

    def same(item: Any) -> Any:
        if isinstance(item, float) and math.isnan(item):
            return "NaN"
        return [same(each) for each in item] if isinstance(item, (list, tuple)) else item

    return same(msgspec.msgpack.decode(msgspec.msgpack.encode(message)))


@given(REQUESTS)
def test_requests(message: Any) -> None:
    frame = encode_frame(message)
    typed = to_request(frame[LENGTH_BYTES:])
    is_typed = not isinstance(message, messages.ListTables)
    assert (typed.WhichOneof("kind") != "frames") is is_typed
    found = from_request(pb.SessionRequest.FromString(typed.SerializeToString()))
    assert plain(msgspec.msgpack.decode(found[4:])) == plain(msgspec.msgpack.decode(frame[4:]))
    decode_to_server(found[LENGTH_BYTES:])


@given(REPLIES)
def test_replies(message: Any) -> None:
    frame = encode_frame(message)
    typed = to_reply(frame[LENGTH_BYTES:], is_whole=True)
    is_typed = not isinstance(message, messages.Tables)
    assert (typed.WhichOneof("kind") != "frames") is is_typed
    found = from_reply(pb.SessionReply.FromString(typed.SerializeToString()))
    assert plain(msgspec.msgpack.decode(found[4:])) == plain(msgspec.msgpack.decode(frame[4:]))
    decode_to_driver(found[LENGTH_BYTES:])


def test_a_field_without_a_typed_form_goes_as_a_frame_to_who_reads_frames() -> None:
    body = msgspec.msgpack.encode([69, 7])
    assert to_reply(body, is_whole=True).WhichOneof("kind") == "pong"
    longer = msgspec.msgpack.encode([65, 7, False, 1, None, None, [], None, [-1, 5, 0], "new"])
    assert to_reply(longer, is_whole=True).WhichOneof("kind") == "frames"
    assert to_reply(longer).done.row_count == 1
    negative = encode_frame(messages.Pong(-1))  # no client of herdpy.proto has such a number
    assert to_reply(negative[LENGTH_BYTES:]).frames == negative


@given(st.binary(max_size=60))
def test_what_is_no_message_of_ours_is_an_error_of_ours(data: bytes) -> None:
    for kind, use in ((pb.SessionRequest, from_request), (pb.SessionReply, from_reply)):
        try:
            typed = kind.FromString(data)
        except Exception:  # protobuf's, which grpc answers
            continue
        try:
            assert isinstance(use(typed), bytes)
        except ProtocolError:
            pass


def test_a_table_is_typed_for_who_reads_no_frames() -> None:
    column = Column(1, "id", SqlType(Kind.BIGINT), not_null=True)
    table = Table(id=1, name="t", version=1, key=(0,), columns=(column,))
    begun = messages.IngestBegun(7, 3, table_to_plain(table))
    body = encode_frame(begun)[LENGTH_BYTES:]
    assert to_reply(body, is_whole=True).WhichOneof("kind") == "frames"  # which says more
    typed = to_reply(body).ingest_begun
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
