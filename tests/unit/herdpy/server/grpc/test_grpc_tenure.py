"""The gRPC port of a leader whose tenure has run out: what waits, and what it says of it."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import grpc
import pytest

from herdpy.cluster.tenure import Tenure
from herdpy.proto import herdpy_pb2 as pb
from tests.fixtures.grpc_clients import WAIT_S, Client, error_of, grpc_client
from tests.fixtures.servers import RunningServer, running_server


class WatchedTenure(Tenure):
    """A tenure that tells when an answer waits for it."""

    def __init__(self) -> None:
        super().__init__(lambda: 1.0)
        self.is_waited_for = Event()

    def wait(self, callback: Callable[[], None]) -> None:
        super().wait(callback)
        self.is_waited_for.set()


class Leader:
    """A server, and the tenure under which it answers."""

    def __init__(self, server: RunningServer, tenure: WatchedTenure, client: Client) -> None:
        self.server, self.tenure, self.client = server, tenure, client

    def lose(self) -> None:
        async def lose() -> None:
            self.tenure.until_s = 0.0

        self.server.call(lose)

    def renew(self) -> None:
        async def renew() -> None:
            self.tenure.renew(1.0, 10.0)

        self.server.call(renew)


@pytest.fixture
def leader() -> Iterator[Leader]:
    tenure = WatchedTenure()
    tenure.renew(1.0, 10.0)
    with running_server(tenure=tenure) as server, grpc_client(server.grpc_url) as client:
        client.rows("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        yield Leader(server, tenure, client)


def test_what_ran_is_not_called_unavailable_when_the_server_ends(leader: Leader) -> None:
    leader.lose()
    statement = pb.ExecuteRequest(text="INSERT INTO t VALUES (1)")
    replies = leader.client.Query(pb.QueryRequest(statement=statement))
    assert leader.tenure.is_waited_for.wait(WAIT_S)
    leader.server.call(leader.server.server.close)
    with pytest.raises(grpc.RpcError) as caught:
        next(replies)
    assert (error_of(caught.value).sqlstate, error_of(caught.value).retry) == ("57P01", "unknown")
    assert caught.value.code() is grpc.StatusCode.UNKNOWN


@pytest.mark.parametrize(
    ("name", "request_"),
    [("GetServer", pb.GetServerRequest()), ("GetTablespace", pb.GetTablespaceRequest())],
)
def test_what_a_server_says_of_itself_waits_for_a_tenure(
    leader: Leader, name: str, request_: Any
) -> None:
    leader.lose()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(getattr(leader.client, name), request_)
        try:
            assert leader.tenure.is_waited_for.wait(5)
            assert not answer.done()
        finally:
            leader.renew()
        assert answer.result(WAIT_S)
