"""Certificates with rights, certificates that change, and peers that do not begin TLS."""

import asyncio
import logging
import ssl
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvloop

from bookie.errors import BookieStartError
from bookie.ledger.types import Status
from bookie.proto import v2, v3
from bookie.runtime.os_input_files import Reread, read_text
from bookie.runtime.os_tls.files import TlsContexts
from bookie.server.tls import names_in, server_contexts, warn_of_own_rights
from bookie.server.wire.client_access import CertificateNames, ClientAccess
from tests.fixtures.bookies import KEY, Peer, RunningBookie, add, ask, packet, running_bookie
from tests.sim.clock import SimulatedClock

START_TLS = v3.encode_start_tls_request(0)
RULES = "write role herd\nread cn reader\n"
Loops = Callable[[], asyncio.AbstractEventLoop]


class Place:
    """A bookie's files, and an authority that signs for its clients."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.certificate, self.key = str(folder / "b.pem"), str(folder / "b-key.pem")
        self.trust, self.access = str(folder / "ca.pem"), folder / "access.txt"
        self.authority.cert_pem.write_to_path(self.trust)
        self.access.write_text(RULES)
        self.clock = SimulatedClock()
        self.issue()

    def issue(self, **more: Any) -> trustme.LeafCert:
        """Give the bookie a certificate."""
        made = self.authority.issue_cert("127.0.0.1", **more)
        Path(self.certificate).write_bytes(made.cert_chain_pems[0].bytes())
        Path(self.key).write_bytes(made.private_key_pem.bytes())
        return made

    def contexts(self) -> TlsContexts:
        return server_contexts(self.certificate, self.key, self.trust, self.clock)

    def rules(self) -> Reread[ClientAccess]:
        return Reread(
            "access",
            [str(self.access)],
            lambda: ClientAccess(read_text(str(self.access)), str(self.access)),
        )

    def client(self, *, authority: trustme.CA | None = None, **more: Any) -> ssl.SSLContext:
        """Return what a client with such a certificate shakes hands with."""
        context = ssl.create_default_context(cafile=self.trust)
        (authority or self.authority).issue_cert("client.example", **more).configure_cert(context)
        return context


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loops(request: pytest.FixtureRequest) -> Loops:
    return request.param


async def secured(running: RunningBookie, context: ssl.SSLContext) -> Peer:
    """Return a peer behind its handshake; ConnectionResetError when the bookie ends it."""
    peer = await running.peer()
    assert v3.parse_response(await peer.ask(START_TLS)).status is Status.OK
    loop = asyncio.get_running_loop()
    peer.transport = await loop.start_tls(
        peer.transport, peer, context, server_hostname="127.0.0.1"
    )
    return peer


def run(
    test: Callable[[RunningBookie], Coroutine[Any, Any, None]],
    place: Place,
    loops: Loops = asyncio.new_event_loop,
    **settings: Any,
) -> None:
    chosen = {"tls": place.contexts(), "access": place.rules()} | settings

    async def main() -> None:
        async with asyncio.timeout(60), running_bookie(**chosen) as running:
            await test(running)

    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(main())


async def status_of(peer: Peer, frame: bytes) -> Status:
    return v3.parse_response(await peer.ask(frame)).status


READING = {
    "read": v3.encode_read_request(1, 7, 0),
    "long poll": v3.encode_read_request(1, 7, 0, previous_lac=-2, wait_ms=1),
    "read lac": v3.encode_read_lac_request(1, 7),
    "info": v3.encode_info_request(1),
    "list": v3.encode_list_entries_request(1, 7),
    "auth": v3.encode_auth_request(1, "p", b""),
}
WRITING = {
    "add": add(1, 7, 1),
    "recovery add": v3.encode_add_request(1, 7, 1, KEY, packet(7, 1), is_recovery=True),
    "fence": v3.encode_read_request(1, 7, -1, fence_key=KEY),
    "write lac": v3.encode_write_lac_request(1, 7, KEY, 0, bytes(24)),
    "force": v3.encode_force_request(1, 7),
}
READING_V2 = {
    "read": v2.encode_read_request(7, 0),
    "batch": v2.encode_batch_read_request(7, 0, 5, 10, 1 << 20),
}
WRITING_V2 = {
    "add": v2.encode_add_request(KEY, packet(7, 1)),
    "fence": v2.encode_read_request(7, -1, fence_key=KEY),
    "batch fence": v2.encode_batch_read_request(7, 0, 5, 10, 1 << 20, fence_key=KEY),
}


def test_a_role_gives_its_rights(place: Place, loops: Loops) -> None:
    async def test(running: RunningBookie) -> None:
        writer = await secured(running, place.client(organization_unit_name="0:herd"))
        assert (await ask(writer, add(1, 7, 0))).status is Status.OK
        reader = await secured(running, place.client(common_name="reader"))
        for name, frame in READING.items():
            assert await status_of(reader, frame) is Status.OK, name
        running.service.calls.clear()
        for name, frame in WRITING.items():
            assert await status_of(reader, frame) is Status.UNAUTHORIZED, name
        assert running.service.calls == []
        assert running.server.metrics.requests_unauthorized == len(WRITING)
        for name, frame in WRITING.items():
            assert await status_of(writer, frame) is not Status.UNAUTHORIZED, name

    run(test, place, loops)


def test_a_role_gives_its_rights_in_v2(place: Place) -> None:
    async def test(running: RunningBookie) -> None:
        writer = await secured(running, place.client(organization_unit_name="0:herd"))
        assert (await ask(writer, add(1, 7, 0))).status is Status.OK
        reader = await secured(running, place.client(common_name="reader"))
        for name, frame in READING_V2.items():
            reply: Any = v2.parse_response(await reader.ask(frame))
            assert reply.status is Status.OK, name
        for name, frame in WRITING_V2.items():
            reply = v2.parse_response(await reader.ask(frame))
            assert reply.status is Status.UNAUTHORIZED, name

    run(test, place)


def test_a_wrong_role_is_unauthorized_and_told(
    place: Place, loops: Loops, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(running: RunningBookie) -> None:
        other = await secured(running, place.client(organization_unit_name="0:other,herd"))
        for name, frame in (READING | WRITING).items():
            assert await status_of(other, frame) is Status.UNAUTHORIZED, name
        assert running.service.calls == []
        assert running.server.metrics.requests_unauthorized == len(READING | WRITING)

    run(test, place, loops)
    (told,) = [text for text in caplog.messages if "EUA" in text]
    assert "role other" in told
    assert "--tls-access" in told


def test_a_role_that_is_taken_away_counts_for_connections_that_are_there(place: Place) -> None:
    rules = place.rules()

    async def test(running: RunningBookie) -> None:
        rules.on_change(running.server.access_changed)
        peer = await secured(running, place.client(common_name="reader"))
        assert await status_of(peer, READING["info"]) is Status.OK
        place.access.write_text("write role herd\n")
        assert rules.check()
        assert await status_of(peer, READING["info"]) is Status.UNAUTHORIZED
        place.access.write_text("nonsense")
        assert not rules.check()
        place.access.write_text("write cn reader\n")
        assert rules.check()
        assert await status_of(peer, add(1, 7, 0)) is Status.OK

    run(test, place, access=rules)


@pytest.mark.parametrize("kind", ["other authority", "expired", "not yet", "none"])
def test_a_certificate_that_is_not_trusted_says_nothing(
    place: Place, loops: Loops, kind: str
) -> None:
    now = datetime.now(UTC)
    unit = {"organization_unit_name": "0:herd"}
    contexts: dict[str, Callable[[], ssl.SSLContext]] = {
        "other authority": lambda: place.client(authority=trustme.CA(), **unit),
        "expired": lambda: place.client(not_after=now - timedelta(days=1), **unit),
        "not yet": lambda: place.client(not_before=now + timedelta(days=1), **unit),
        "none": lambda: ssl.create_default_context(cafile=place.trust),
    }

    async def test(running: RunningBookie) -> None:
        peer = await running.peer()
        await peer.ask(START_TLS)
        loop = asyncio.get_running_loop()
        try:
            peer.transport = await loop.start_tls(
                peer.transport, peer, contexts[kind](), server_hostname="127.0.0.1"
            )
            peer.send(add(1, 7, 0))
        except (OSError, AttributeError):
            pass  # with TLS 1.3 the refusal may come during or after the handshake
        await peer.ended
        assert running.service.calls == []
        assert running.server.metrics.tls_failed == 1

    run(test, place, loops)


def test_a_bookie_knows_its_own_names_as_its_peers_do(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Bookies are clients of each other; the rules may have forgotten that."""
    made = place.authority.issue_cert(
        "127.0.0.1", "Bookie-1.example", "ops@example.com",
        common_name="bookie", organization_unit_name="0:herd,x;1:c",
    )  # fmt: skip
    Path(place.certificate).write_bytes(made.cert_chain_pems[0].bytes())
    Path(place.key).write_bytes(made.private_key_pem.bytes())

    async def test(running: RunningBookie) -> None:
        peer = await secured(running, place.client(organization_unit_name="0:herd"))
        seen = CertificateNames.of(peer.transport.get_extra_info("peercert"))
        assert names_in(place.certificate) == seen
        assert {kind for kind, _ in seen.names} == {"role", "ou", "cn", "dns", "email"}

    run(test, place)
    caplog.clear()
    warn_of_own_rights(ClientAccess("write role herd\n"), place.certificate)
    assert not caplog.messages
    warn_of_own_rights(ClientAccess("read role herd\nwrite cn other\n"), place.certificate)
    assert "role herd" in caplog.text
    assert "AutoRecovery" in caplog.text


def serial_of(peer: Peer) -> str:
    return peer.transport.get_extra_info("peercert")["serialNumber"]


def test_new_files_count_for_new_connections_and_old_ones_go_on(place: Place, loops: Loops) -> None:
    contexts = place.contexts()

    async def test(running: RunningBookie) -> None:
        client = place.client(organization_unit_name="0:herd")
        before = await secured(running, client)
        place.issue()
        assert contexts.check()
        after = await secured(running, client)
        assert serial_of(before) != serial_of(after)
        for n, peer in enumerate((before, after)):
            assert (await ask(peer, add(1, 7, n))).status is Status.OK

    run(test, place, loops, tls=contexts)


def test_a_new_authority_replaces_the_old_one(place: Place) -> None:
    contexts = place.contexts()

    async def test(running: RunningBookie) -> None:
        old = place.client(common_name="reader")
        await secured(running, old)
        other = trustme.CA()
        other.cert_pem.write_to_path(place.trust)
        assert contexts.check()
        peer = await running.peer()
        await peer.ask(START_TLS)
        try:
            peer.transport = await asyncio.get_running_loop().start_tls(
                peer.transport, peer, old, server_hostname="127.0.0.1"
            )
        except OSError:
            pass
        await peer.ended

    run(test, place, tls=contexts)


@pytest.mark.parametrize("part", ["certificate", "key", "trust", "expired", "not yet"])
def test_bad_new_files_leave_the_old_ones(
    place: Place, part: str, caplog: pytest.LogCaptureFixture
) -> None:
    contexts = place.contexts()
    now = datetime.fromtimestamp(place.clock.wall_us() / 1e6, UTC)
    match part:
        case "certificate":  # another's key is beside it yet
            made = place.authority.issue_cert("127.0.0.1")
            Path(place.certificate).write_bytes(made.cert_chain_pems[0].bytes())
        case "key":
            Path(place.key).write_text("no key")
        case "trust":
            Path(place.trust).unlink()
        case "expired":
            place.issue(not_before=now - timedelta(days=9), not_after=now - timedelta(seconds=2))
        case _:
            place.issue(not_before=now + timedelta(seconds=2), not_after=now + timedelta(days=9))
    before = contexts()
    assert not contexts.check()
    assert contexts() is before
    assert contexts.failure is not None
    assert "the old ones stay in use" in caplog.messages[-1]


def test_a_first_certificate_that_is_over_is_told_and_used(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    now = datetime.fromtimestamp(place.clock.wall_us() / 1e6, UTC)
    place.issue(not_before=now - timedelta(days=9), not_after=now - timedelta(days=1))
    contexts = place.contexts()
    assert contexts.seconds_left == pytest.approx(-86400, abs=2)
    (record,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert "ended at" in record.getMessage()


def test_a_key_with_a_password_is_no_question_at_the_terminal(place: Place) -> None:
    from cryptography.hazmat.primitives import serialization

    made = place.authority.issue_cert("127.0.0.1")
    key = serialization.load_pem_private_key(made.private_key_pem.bytes(), None)
    Path(place.certificate).write_bytes(made.cert_chain_pems[0].bytes())
    Path(place.key).write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(BookieStartError, match="the key without a password"):
        place.contexts()


def test_where_tls_is_required_it_has_its_time_from_the_begin_on(
    place: Place, loops: Loops
) -> None:
    """A peer that talks in clear all the time is one of them: it keeps others out."""

    async def test(running: RunningBookie) -> None:
        silent, chatty = await running.peer(), await running.peer()

        async def chat() -> None:
            while not chatty.ended.done():
                try:
                    assert await status_of(chatty, READING["info"]) is Status.UNAUTHORIZED
                except ConnectionResetError:
                    return

        chatting = asyncio.ensure_future(chat())
        await silent.ended
        await chatty.ended
        await chatting
        assert running.server.metrics.tls_failed == 2

    run(test, place, loops, start_tls_timeout_s=0.05)


def test_who_is_secured_in_time_stays(place: Place) -> None:
    async def test(running: RunningBookie) -> None:
        peer = await secured(running, place.client(organization_unit_name="0:herd"))
        assert (await ask(peer, add(1, 7, 0))).status is Status.OK
        (connection,) = running.server._hub.connections
        assert connection._tls_timer is None

    run(test, place)
