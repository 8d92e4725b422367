"""The gRPC port of a leader whose tenure has run out: what it has not answered, and what it says."""

import asyncio
from collections.abc import Iterator

import grpc
import pytest

from herdpy.cluster.tenure import Tenure
from herdpy.proto import herdpy_pb2 as pb
from tests.fixtures.grpc_clients import Client, error_of, grpc_client
from tests.fixtures.servers import RunningServer, running_server


class Leader:
    """A server, and the tenure under which it answers."""

    def __init__(self, server: RunningServer, tenure: Tenure, client: Client) -> None:
        self.server, self.tenure, self.client = server, tenure, client

    def lose(self) -> None:
        async def lose() -> None:
            self.tenure.until_s = 0.0

        self.server.call(lose)

    def renew(self) -> None:
        async def renew() -> None:
            self.tenure.renew(1.0, 10.0)

        self.server.call(renew)

    def wait_held(self) -> None:
        """Wait until an answer is held."""

        async def wait() -> None:
            while not self.tenure.waiting_count:
                await asyncio.sleep(0)

        self.server.call(wait)


@pytest.fixture
def leader() -> Iterator[Leader]:
    tenure = Tenure(lambda: 1.0)
    tenure.renew(1.0, 10.0)
    with running_server(tenure=tenure) as server, grpc_client(server.grpc_url) as client:
        client.rows("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        yield Leader(server, tenure, client)


def test_what_ran_is_not_called_unavailable_when_the_server_ends(leader: Leader) -> None:
    leader.lose()
    statement = pb.ExecuteRequest(text="INSERT INTO t VALUES (1)")
    replies = leader.client.Query(pb.QueryRequest(statement=statement))
    leader.wait_held()
    leader.server.call(leader.server.server.close)
    with pytest.raises(grpc.RpcError) as caught:
        next(replies)
    assert (error_of(caught.value).sqlstate, error_of(caught.value).retry) == ("57P01", "unknown")
    assert caught.value.code() is grpc.StatusCode.UNKNOWN
