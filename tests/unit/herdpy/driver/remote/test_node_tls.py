"""A node that speaks otherwise than the URL asks for is not spoken to at all."""

from pathlib import Path

import pytest

from herdpy.driver.dsn import Address, RemoteTarget, ZooKeeper, parse_target
from herdpy.driver.local import open_zookeeper
from herdpy.driver.remote.session import RemoteSession, ThreadWaits
from herdpy.errors import OperationalError, Retry
from herdpy.model.settings import Settings
from tests.fixtures.authorities import Authority


class NoStream(ThreadWaits):
    """Nothing may be connected to."""

    def open_stream(self, target: RemoteTarget) -> object:
        raise AssertionError(f"connected to {target.where}")


@pytest.mark.parametrize(
    ("option", "says", "expected"),
    [
        ("tls=on", False, "the node speaks no TLS, as its ZooKeeper says"),
        ("spin_us=0", False, "the node speaks no TLS"),  # its host is not this machine
        ("tls=off", True, "the node speaks TLS only, as its ZooKeeper says"),
    ],
)
def test_nothing_is_sent_to_a_node_that_speaks_otherwise(
    option: str, says: bool, expected: str
) -> None:
    target = parse_target(f"herd+zk://zk/t?{option}")
    assert isinstance(target, RemoteTarget)
    node = target.at(Address("db1.example", 7000, says))
    with pytest.raises(OperationalError, match=expected) as caught:
        RemoteSession(node, Settings(), (), NoStream(), autocommit=True)
    assert (caught.value.sqlstate, caught.value.retry) == ("08001", Retry.NEVER)
    assert "tls=off" in f"{caught.value.hint}"


@pytest.fixture
def login(tmp_path: Path) -> Path:
    path = tmp_path / "login"
    path.write_text("digest app:geheim")
    path.chmod(0o600)
    return path


def test_files_for_zookeeper_that_cannot_be_used_are_told_before_it_is_asked(
    tmp_path: Path, login: Path
) -> None:
    servers = ZooKeeper("127.0.0.1:1")
    malformed, exposed = tmp_path / "malformed", tmp_path / "exposed"
    malformed.write_text("geheim")
    malformed.chmod(0o600)
    exposed.write_text(login.read_text())
    exposed.chmod(0o640)
    for files, sqlstate, expected in (
        ({"login": str(tmp_path / "none")}, "28000", "cannot be read: No such file"),
        ({"login": str(malformed)}, "28000", "line 1: expected `digest"),
        ({"login": str(exposed)}, "28000", "found mode 0640; chmod 600"),
        ({"has_tls": True, "tls_authority": str(login)}, "08001", "expected certificates in PEM"),
        ({"has_tls": True, "tls_certificate": str(login)}, "08001", "cannot use certificate"),
    ):
        with pytest.raises(OperationalError, match=expected) as caught:
            open_zookeeper(servers._replace(**files))
        assert caught.value.sqlstate == sqlstate
        assert "geheim" not in str(caught.value)


def test_a_certificate_and_its_key_may_be_one_file(tmp_path: Path, login: Path) -> None:
    authority = Authority(tmp_path, "ours")
    made = authority.issue("app", "app")
    both = tmp_path / "both.pem"
    both.write_text(Path(made.certificate).read_text() + Path(made.key).read_text())
    servers = ZooKeeper("127.0.0.1:1", str(login), True, authority.path, str(both))
    open_zookeeper(servers).end()
