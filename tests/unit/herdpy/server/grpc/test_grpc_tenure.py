"""The gRPC port of a leader whose tenure has run out: what it has not answered, and what it says."""

import grpc
import pytest

from herdpy.proto import herdpy_pb2 as pb
from tests.fixtures.grpc_clients import error_of, grpc_client
from tests.unit.herdpy.server.test_tenures import Leader, leader

__all__ = ["leader"]


def test_what_ran_is_not_called_unavailable_when_the_server_ends(leader: Leader) -> None:
    with grpc_client(leader.server.grpc_url) as client:
        client.rows("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        leader.lapse()
        statement = pb.ExecuteRequest(text="INSERT INTO t VALUES (1)")
        replies = client.Query(pb.QueryRequest(statement=statement))
        leader.until_waiting()
        leader.server.call(lambda: leader.server.server.close())
        with pytest.raises(grpc.RpcError) as caught:
            next(replies)
        error = error_of(caught.value)
        assert (error.sqlstate, error.retry) == ("57P01", "unknown")
        assert caught.value.code() is grpc.StatusCode.UNKNOWN
