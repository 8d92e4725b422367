"""The security tests of the frame protocol's port, through the gRPC port."""

from urllib.parse import urlencode

import pytest

from herdpy.errors import OperationalError
from tests.fixtures.servers import RunningServer
from tests.unit.herdpy.server import test_security

server = test_security.server


@pytest.fixture(autouse=True)
def over_grpc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_security, "url", url)


def url(server: RunningServer, user: str = "", **options: str) -> str:
    query = urlencode({"retry_timeout_s": "0", **options})
    return f"{server.grpc_url.replace('://', f'://{user}@' if user else '://')}/?{query}"


class TestExports(test_security.TestExports):
    """Of the base."""


class TestLogins(test_security.TestLogins):
    """Of the base."""


class TestTls(test_security.TestTls):
    """Of the base."""


def test_others_reach_the_port_by_tls_only(server: RunningServer) -> None:
    with pytest.raises(OperationalError, match="needs TLS") as caught:
        server.call(lambda: server.server.start_grpc("0.0.0.0", 0))
    assert caught.value.sqlstate == "F0000"
