"""Logins to ZooKeeper: their lines, what they are called, and DIGEST-MD5 with a real server."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from bookie.admin.zookeeper_process import ZooKeeperProcess
from bookie.errors import (
    BookieStartError,
    IncorrectParameterError,
    NodeExistsError,
    SecurityError,
    StoreAccessError,
)
from bookie.metadata.acl import OPEN, acl_for, acl_of, acl_text
from bookie.metadata.interfaces import Write
from bookie.metadata.kazoo_client import KAZOO_LOGGER
from bookie.metadata.zookeeper import ZooKeeperStore
from bookie.metadata.zookeeper_login import Login, SaslDigest, parse_logins
from tests.fixtures.sasl_zookeeper import LOGIN_LINE, PASSWORD, USER, sasl_zookeeper
from tests.fixtures.versioned_stores import until
from tests.fixtures.zookeeper import zookeeper, zookeeper_root

__all__ = ["zookeeper", "zookeeper_root"]

# RFC 2831, section 4, with another user, realm, nonce, URI and password: computed by hand there.
CHALLENGE = (
    b'realm="zk-sasl-md5",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'
)


def test_lines_of_logins() -> None:
    text = "# ours\n\n digest ada:a:b c \nsasl bob:geheim\ndigest eve:ü\n"
    ada, bob, eve = parse_logins(text, "file")
    assert (ada.scheme, ada.user, ada.password) == ("digest", "ada", "a:b c")
    assert (bob.scheme, bob.user, bob.password) == ("sasl", "bob", "geheim")
    assert eve.password == "ü"
    assert "geheim" not in repr(bob)


@pytest.mark.parametrize(
    "text",
    [
        "", "# only", "digest", "digest ada", "digest ada:", "digest :geheim", "ada:geheim",
        "x509 ada:geheim", "sasl ada:gehü", "digest ada:a\x1bb", "sasl a:b\nsasl c:d",
        "digest a:b\n" * 9, "digest a:" + "x" * 2000,
    ],
)  # fmt: skip
def test_lines_that_are_none_are_refused_without_their_secret(text: str) -> None:
    with pytest.raises(BookieStartError, match=r"^file") as found:
        parse_logins(text, "file")
    assert "geh" not in str(found.value)


def test_the_identity_of_a_digest_is_zookeepers() -> None:
    """The example of ZooKeeper's Programmer's Guide is super:super."""
    identity = Login("digest", "super", "super").identity
    assert identity == ("digest", "super:gG7s8t3oDEtIqF6DM9LlI/R+9Ss=")
    assert Login("sasl", "ada", "x").identity == ("sasl", "ada")


def test_labels_and_texts_keep_the_hash() -> None:
    one, other = (Login("digest", "ada", word).identity for word in ("one", "other"))
    assert one.label() != other.label()
    assert one.label().startswith("digest:ada#")
    assert one.id.partition(":")[2] not in one.label() + acl_text(acl_for([one]))


def test_rfc_2831() -> None:
    """Its example is for IMAP; the same sums with service and host of ZooKeeper by another way."""
    import hashlib

    def md5(*parts: str | bytes) -> Any:
        return hashlib.md5(b":".join(p if isinstance(p, bytes) else p.encode() for p in parts))

    exchange = SaslDigest(Login("sasl", "chris", "secret"), "OA6MHXh6VqTrRk")
    answer = exchange.answer(CHALLENGE).decode()
    own = md5(md5("chris", "zk-sasl-md5", "secret").digest(), "OA6MG9tEQGm2hh", "OA6MHXh6VqTrRk")
    uri = "zookeeper/zk-sasl-md5"
    middle = ("OA6MG9tEQGm2hh", "00000001", "OA6MHXh6VqTrRk", "auth")
    proof = md5(own.hexdigest(), *middle, md5("AUTHENTICATE", uri).hexdigest()).hexdigest()
    assert f"response={proof}" in answer
    assert 'username="chris"' in answer
    theirs = md5(own.hexdigest(), *middle, md5("", uri).hexdigest()).hexdigest()
    exchange.check(f"rspauth={theirs}".encode())
    with pytest.raises(SecurityError, match="does not prove"):
        exchange.check(f"rspauth={proof}".encode())


@pytest.mark.parametrize(
    "challenge",
    [b"", b"nonce", b'nonce="x"', b"algorithm=md5-sess",
     b'nonce="x",algorithm=md5-sess,qop="auth-conf"',
     b"\xff\xfe", b'nonce="x' + b"y" * 10000],
)  # fmt: skip
def test_a_challenge_that_is_none(challenge: bytes) -> None:
    with pytest.raises(SecurityError, match="expected nonce"):
        SaslDigest(Login("sasl", "a", "b"), "n").answer(challenge)


def test_nodes_for_a_login_need_one() -> None:
    with pytest.raises(IncorrectParameterError, match="expected a login"):
        asyncio.run(ZooKeeperStore.connect("127.0.0.1:1", is_secured=True))


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    with sasl_zookeeper(tmp_path_factory.mktemp("sasl")) as server:
        yield server


def test_a_login_by_sasl(users: ZooKeeperProcess) -> None:
    async def main() -> None:
        logins = parse_logins(LOGIN_LINE, "line")
        ours = await ZooKeeperStore.connect(users.hosts, logins=logins, is_secured=True)
        other = await ZooKeeperStore.connect(
            users.hosts, logins=parse_logins("sasl other:secret", "line")
        )
        try:
            await ours.create("/ours", b"x")
            assert (await ours.read_acl("/ours"))[0] == (("sasl", USER, 31),)
            with pytest.raises(StoreAccessError, match="log in as the user"):
                await other.read("/ours")
            await other.create("/others")
            assert (await other.read_acl("/others"))[0] == OPEN
        finally:
            await ours.close()
            await other.close()

    asyncio.run(main())


@pytest.mark.parametrize("is_children", [False, True])
def test_a_watch_that_was_refused_sees_what_comes_when_it_is_let_in(
    zookeeper: ZooKeeperProcess,
    zookeeper_root: str,
    is_children: bool,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bookie.metadata.zookeeper._DENIED_PAUSE_S", 0.05)

    async def main() -> None:
        logins = parse_logins("digest ada:geheim", "line")
        ada = await ZooKeeperStore.connect(zookeeper.hosts, logins=logins, is_secured=True)
        other = await ZooKeeperStore.connect(zookeeper.hosts)
        seen: list[int] = []
        await ada.create(zookeeper_root)
        watch = other.watch_children if is_children else other.watch
        watch(zookeeper_root, lambda: seen.append(1))
        await until(lambda: "changes of a node are not seen" in caplog.text)
        await ada.write_acl(zookeeper_root, OPEN)
        before = len(seen)
        await until(lambda: len(seen) > before)  # it looks again by itself
        while True:  # and is told of changes, once it is set
            before = len(seen)
            if is_children:
                await ada.create(f"{zookeeper_root}/c-", is_sequence=True)
            else:
                await ada.write(zookeeper_root, b"x", -1)
            await other.sync(zookeeper_root)
            if len(seen) > before:
                break
        await other.close()
        await ada.close()

    asyncio.run(main())
    assert caplog.text.count("changes of a node are not seen") == 1


@pytest.mark.parametrize("line", ["digest ada:geheim", LOGIN_LINE])
def test_no_log_has_the_password(
    users: ZooKeeperProcess, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    logins = parse_logins(line, "line")
    (login,) = logins

    async def main() -> None:
        with caplog.at_level(1, logger=KAZOO_LOGGER):
            store = await ZooKeeperStore.connect(users.hosts, logins=logins)
            await store.exists("/")
            with suppress(NodeExistsError):
                await store.create("/logged", b"password of ledgers")
            await store.write_acl("/logged", acl_of([*OPEN, *acl_for([login.identity])]))
            await store.read_acl("/logged")
            await store.write("/logged", b"password of ledgers", -1)
            await store.multi([Write("/logged", b"password of ledgers")])
            await store.read("/logged")
            await store.close()

    asyncio.run(main())
    assert "Exists" in caplog.text
    hashed = [login.identity.id.rpartition(":")[2]] if login.scheme == "digest" else []
    for secret in ("geheim", PASSWORD, "response=", "password of ledgers", *hashed):
        assert secret not in caplog.text
    assert "passw" not in caplog.text.replace("password of", ""), "the session has one of its own"


@pytest.mark.parametrize("line", [f"sasl {USER}:wrong", f"sasl nobody:{PASSWORD}"])
def test_a_login_by_sasl_that_is_wrong(
    users: ZooKeeperProcess, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        with pytest.raises(StoreAccessError, match="ZooKeeper refuses the login"):
            await ZooKeeperStore.connect(users.hosts, logins=parse_logins(line, "line"))

    asyncio.run(main())
    told = [r for r in caplog.records if "refuses the login" in r.getMessage()]
    assert [r.levelno for r in told] == [logging.ERROR]
    assert PASSWORD not in caplog.text
    assert "wrong" not in caplog.text


def test_a_server_without_users_by_sasl(zookeeper: ZooKeeperProcess) -> None:
    async def main() -> None:
        with pytest.raises(StoreAccessError, match="ZooKeeper refuses the login"):
            await ZooKeeperStore.connect(
                zookeeper.hosts, logins=parse_logins(LOGIN_LINE, "line"), connect_timeout_s=10
            )

    asyncio.run(main())
