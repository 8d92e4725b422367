"""The gRPC port of a leader without a tenure: what a call is told that had not begun."""

import grpc
import pytest

from herdpy.proto import herdpy_pb2 as pb
from tests.fixtures.grpc_clients import error_of, grpc_client
from tests.unit.herdpy.server.test_tenures import Asking, Leader, leader

__all__ = ["leader"]


def test_a_call_whose_login_waits_has_not_run(leader: Leader) -> None:
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
        assert (error.sqlstate, error.retry) == ("57P01", "safe")
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_what_a_server_says_of_itself_waits_for_a_tenure(leader: Leader) -> None:
    with grpc_client(leader.server.grpc_url) as client:
        leader.lapse()
        asking = Asking(lambda: client.GetServer(pb.GetServerRequest()).tablespaces)
        leader.until_waiting()
        assert asking.is_alive()
        leader.renew()
        assert "default" in asking.result()
