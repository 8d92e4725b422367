"""What opens a bookie's port to other machines, and what its certificates give."""

from pathlib import Path
from typing import Any

import click
import pytest

from bookie.admin.serve import serve
from bookie.admin.world import client_contexts
from bookie.errors import BookieStartError
from bookie.hosting import check_openness
from bookie.server.tls import access_of
from bookie.server.wire.client_access import CertificateNames, Grant
from tests.fixtures.authorities import Authority


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_this_machine_is_served_in_clear(host: str) -> None:
    check_openness(host, f"--host {host}", "close it")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_others_are_not(host: str) -> None:
    with pytest.raises(BookieStartError, match=rf"--host {host}: other machines.*; close it"):
        check_openness(host, f"--host {host}", "close it")


def served(*arguments: str) -> Any:
    """Run `bookie serve` as far as it goes before ZooKeeper is asked; return what it raised."""
    with serve.make_context("serve", list(arguments)) as context:
        return serve.invoke(context)


def test_serve_refuses_to_open_without_tls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ("--data", str(tmp_path / "b"), "--zookeeper", "127.0.0.1:1")
    with pytest.raises(SystemExit):
        served(*data, "--host", "0.0.0.0")
    assert "--tls-trust FILE" in capsys.readouterr().err
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("option", ["--tls-access", "--authorized-roles"])
def test_rights_need_certificates(tmp_path: Path, option: str) -> None:
    (tmp_path / "x").write_text("read cn a")
    with pytest.raises(click.UsageError, match="expected --tls-trust FILE with them"):
        served(option, str(tmp_path / "x"))


def test_rules_and_roles_are_joined(tmp_path: Path) -> None:
    path = tmp_path / "access"
    path.write_text("read cn a\n")
    rules = access_of(str(path), "herd, other")
    assert rules is not None
    for role in ("herd", "other"):
        assert rules().grant_of(CertificateNames((("role", role),))) is Grant.WRITE
    assert rules().grant_of(CertificateNames((("cn", "a"),))) is Grant.READ
    path.write_text("write cn a\n")
    assert rules.check()
    assert rules().grant_of(CertificateNames((("cn", "a"),))) is Grant.WRITE
    assert rules().grant_of(CertificateNames((("role", "herd"),))) is Grant.WRITE


def test_no_rule_is_no_restriction() -> None:
    assert access_of(None, None) is None


@pytest.mark.parametrize("roles", ["", "a,,b", " "])
def test_an_empty_role_is_refused(roles: str) -> None:
    """As BookKeeper does: it would be the role of every certificate without one."""
    with pytest.raises(BookieStartError, match="expected roles with commas between"):
        access_of(None, roles)


def test_a_file_of_rules_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "access"
    path.write_bytes(b"\xff")
    with pytest.raises(BookieStartError, match=r"--tls-access .*UTF-8"):
        access_of(str(path), None)


def test_files_of_a_client_are_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "a")
    one = authority.issue("one", "127.0.0.1")
    two = authority.issue("two", "127.0.0.1")
    with pytest.raises(click.BadParameter, match=r"one\.pem") as refused:
        client_contexts(authority.path, (one.certificate, two.key))
    assert refused.value.param_hint == "--tls"
    with pytest.raises(click.BadParameter, match=r"one-key\.pem") as refused:
        client_contexts(one.key, None)
    assert refused.value.param_hint == "--tls-trust"
    found = client_contexts(authority.path, (one.certificate, one.key))
    assert found is not None
    before = found()
    authority.issue("one", "127.0.0.1")
    assert found.check()
    assert found() is not before
