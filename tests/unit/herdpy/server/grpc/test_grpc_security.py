"""The security tests of the frame protocol's port, through the gRPC port."""

from urllib.parse import urlencode

import pytest

from herdpy.errors import OperationalError
from tests.fixtures.servers import RunningServer
from tests.unit.herdpy.server.login import test_security

server = test_security.server
_face = test_security._face


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
    """Of the base, but for what is about the sockets of our own port."""

    test_no_handshake_waits_for_what_has_come = None  # type: ignore[assignment]
    test_who_is_slow_with_tls_has_to_go = None  # type: ignore[assignment]
    test_settings_that_make_no_sense = None  # type: ignore[assignment]
    test_the_audit_log_says_why_a_handshake_failed = None  # type: ignore[assignment]


def test_others_reach_the_port_by_tls_only(server: RunningServer) -> None:
    with pytest.raises(OperationalError, match="needs TLS") as caught:
        server.call(lambda: server.server.start_grpc("0.0.0.0", 0))
    assert caught.value.sqlstate == "F0000"
