"""A server with few connections and table t, and a client that knows only herdpy.proto."""

from collections.abc import Iterator

import pytest

from tests.fixtures.grpc_clients import Client, grpc_client
from tests.fixtures.servers import RunningServer, running_server


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with running_server(connections_max=4, login_failure_delay_s=0) as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[Client]:
    with grpc_client(server.grpc_url) as found:
        found.rows("CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT NOT NULL, price DECIMAL(9,2))")
        yield found
