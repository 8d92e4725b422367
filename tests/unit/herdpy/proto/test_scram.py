"""Logins between the two machines: who gets in, and who does not, whatever they try."""

from base64 import b64encode
from typing import Any

import pytest
from scramp import ScramMechanism

from herdpy.errors import Error, OperationalError, ProtocolError
from herdpy.proto.driver_machine import DriverMachine, frames
from herdpy.proto.messages import (
    FRAME_BYTES_MAX,
    MAGIC,
    VERSION,
    Execute,
    Hello,
    LoginRequired,
    Ping,
    ScramChallenge,
    ScramProof,
    ScramStart,
    ScramVerified,
    Welcome,
    encode_frame,
)
from herdpy.proto.scram import (
    ITERATIONS_MAX,
    MECHANISM,
    MECHANISM_BOUND,
    ScramDriver,
    ScramServer,
    certificate_binding,
)
from herdpy.proto.server_machine import Close, Login, Send, ServerMachine, Start, State

PASSWORD = "correct horse"
HELLO = Hello(MAGIC, VERSION, VERSION, "test", "default", autocommit=True, user="ada")
WELCOME = Welcome(VERSION, "server", 1, FRAME_BYTES_MAX)
SECRET = b"of the server"


def verifier(password: str = PASSWORD) -> str:
    salt, stored, served, iterations = ScramMechanism(MECHANISM).make_auth_info(
        password, iteration_count=4096
    )
    parts = [b64encode(part).decode() for part in (salt, stored, served)]
    return f"{MECHANISM}${iterations}:{parts[0]}${parts[1]}:{parts[2]}"


VERIFIER = verifier()


def server(found: str | None = VERIFIER, binding: bytes | None = None) -> ScramServer:
    return ScramServer("ada", found, binding=binding, secret=SECRET)


def driver(password: str = PASSWORD, binding: bytes | None = None) -> ScramDriver:
    return ScramDriver("ada", password, binding=binding)


def converse(own: ScramServer, other: ScramDriver) -> None:
    proof = other.prove(own.challenge(other.start(own.offer())))
    other.check(own.verify(proof))


@pytest.mark.parametrize("binding", [None, b"certificate"])
def test_the_right_password(binding: bytes | None) -> None:
    other = driver(binding=binding)
    converse(server(binding=binding), other)
    assert other.is_verified


@pytest.mark.parametrize(
    ("found", "password"), [(VERIFIER, "wrong"), (None, PASSWORD), (verifier("other"), PASSWORD)]
)
def test_all_that_fail_look_alike(found: str | None, password: str) -> None:
    with pytest.raises(OperationalError) as caught:
        converse(server(found), driver(password))
    assert caught.value.sqlstate == "28P01"
    assert caught.value.message == 'password authentication failed for user "ada"'


def test_a_user_who_does_not_exist_has_the_same_salt_each_time() -> None:
    salts = set[str]()
    for _ in range(2):
        own, other = server(None), driver()
        challenge = own.challenge(other.start(own.offer()))
        salts.add(challenge.data.split(",", 1)[1])
    assert len(salts) == 1
    assert "i=15000" in salts.pop()


def test_the_server_does_not_let_in_who_only_knows_what_it_keeps_of_nobody() -> None:
    """A user without a verifier cannot log in even by the keys that were imagined for him."""
    own = server(None)
    own._keys = server(VERIFIER)._keys
    other = driver()
    proof = other.prove(own.challenge(other.start(own.offer())))
    with pytest.raises(OperationalError, match="password authentication failed"):
        own.verify(proof)


def test_a_replayed_proof_is_worth_nothing() -> None:
    own, other = server(), driver()
    start = other.start(own.offer())
    proof = other.prove(own.challenge(start))
    own.verify(proof)
    again = server()
    again.challenge(start)
    with pytest.raises(OperationalError) as caught:
        again.verify(proof)
    assert caught.value.sqlstate == "28P01"
    with pytest.raises(ProtocolError):
        own.verify(proof)


def test_a_login_through_another_certificate_fails() -> None:
    with pytest.raises(OperationalError) as caught:
        converse(server(binding=b"true"), driver(binding=b"of a man in the middle"))
    assert caught.value.sqlstate == "28P01"


def test_who_strikes_the_better_mechanism_from_the_offer_is_noticed() -> None:
    own, other = server(binding=b"certificate"), driver(binding=b"certificate")
    start = other.start(LoginRequired([MECHANISM]))
    with pytest.raises(ProtocolError, match="in fact it does"):
        own.challenge(start)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-1", MECHANISM_BOUND])
def test_the_server_takes_only_what_it_offered(mechanism: str) -> None:
    with pytest.raises(ProtocolError, match="not offered"):
        server().challenge(ScramStart(mechanism, "n,,n=*,r=abc"))


@pytest.mark.parametrize("mechanisms", [[], ["PLAIN"], ["SCRAM-SHA-1", "MD5"]])
def test_the_driver_takes_nothing_weaker(mechanisms: list[str]) -> None:
    with pytest.raises(OperationalError) as caught:
        driver().start(LoginRequired(mechanisms))
    assert caught.value.sqlstate == "08004"


@pytest.mark.parametrize("iterations", [-1, 0, 1, 4095, ITERATIONS_MAX + 1])
def test_the_driver_computes_neither_too_much_nor_too_little(iterations: int) -> None:
    other = driver()
    start = other.start(LoginRequired([MECHANISM]))
    nonce = start.data.split("r=")[1]
    salt = b64encode(b"s" * 16).decode()
    with pytest.raises(ProtocolError, match=r"iteration|4096"):
        other.prove(ScramChallenge(f"r={nonce}x,s={salt},i={iterations}"))


def test_a_server_that_does_not_know_the_password_is_not_believed() -> None:
    own, other = server(), driver()
    other.prove(own.challenge(other.start(own.offer())))
    with pytest.raises(OperationalError, match="not the one it seems") as caught:
        other.check(ScramVerified("v=" + b64encode(b"x" * 32).decode()))
    assert caught.value.sqlstate == "28000"
    assert not other.is_verified


@pytest.mark.parametrize("data", ["", "n,,", "n,,n=*", "x" * 5000, "p=tls-unique,,n=*,r=a", "\0"])
def test_nonsense_of_a_driver(data: str) -> None:
    with pytest.raises(ProtocolError):
        server().challenge(ScramStart(MECHANISM, data))
    own, other = server(), driver()
    own.challenge(other.start(own.offer()))
    with pytest.raises(OperationalError):
        own.verify(ScramProof(data))


@pytest.mark.parametrize("data", ["", "r=a", "e=other-error", "r=a,s=b,i=c", "\0"])
def test_nonsense_of_a_server(data: str) -> None:
    other = driver()
    other.start(LoginRequired([MECHANISM]))
    with pytest.raises(ProtocolError):
        other.prove(ScramChallenge(data))
    for out_of_turn in (driver().prove, driver().check):
        with pytest.raises(ProtocolError):
            out_of_turn(ScramChallenge(data))  # type: ignore[arg-type]


@pytest.mark.parametrize("found", ["", "x", "SCRAM-SHA-1$1:a$b:c", "SCRAM-SHA-256$x:a$b:c"])
def test_what_is_no_verifier_is_not_shown(found: str) -> None:
    with pytest.raises(ValueError, match="malformed"):
        server(found)


def test_a_certificate_that_cannot_be_read_has_a_binding_all_the_same() -> None:
    assert len(certificate_binding(b"none")) == 32


# --- the machines --------------------------------------------------------------------------------


def asked() -> ServerMachine:
    machine = ServerMachine()
    assert machine.receive(encode_frame(HELLO)) == [Start(HELLO)]
    [sent] = machine.ask(server().offer())
    assert isinstance(sent, Send)
    assert isinstance(sent.message, LoginRequired)
    return machine


def step(machine: ServerMachine, message: Any) -> Any:
    [action] = machine.receive(encode_frame(message))
    assert isinstance(action, Login)
    return action.message


def test_both_machines_to_the_welcome() -> None:
    own, machine = server(), ServerMachine()
    other = DriverMachine(driver())
    machine.receive(encode_frame(HELLO))

    def answer(actions: Any) -> bytes:
        return frames(other.receive(b"".join(encode_frame(action.message) for action in actions)))

    [action] = machine.receive(answer(machine.ask(own.offer())))
    assert isinstance(action, Login)
    assert isinstance(action.message, ScramStart)
    [action] = machine.receive(answer(machine.ask(own.challenge(action.message))))
    assert isinstance(action, Login)
    assert isinstance(action.message, ScramProof)
    assert machine.state is State.LOGIN
    verified = own.verify(action.message)
    assert answer(machine.welcome(verified, WELCOME)) == b""
    assert other.failure is None
    assert other.welcome == WELCOME
    assert machine.state is State.READY


@pytest.mark.parametrize("message", [Execute(1, "SELECT 1", None), Ping(1), HELLO])
def test_nothing_but_the_login_before_welcome(message: Any) -> None:
    machine = asked()
    actions = machine.receive(encode_frame(message))
    assert isinstance(actions[-1], Close)
    assert machine.state is State.CLOSED


def test_a_login_is_one_message_at_a_time() -> None:
    machine = asked()
    start = encode_frame(ScramStart(MECHANISM, "n,,n=*,r=a"))
    first, *rest = machine.receive(start + start)
    assert isinstance(first, Login)
    assert isinstance(rest[-1], Close)


@pytest.mark.parametrize("message", [ScramStart(MECHANISM, ""), ScramProof("")])
def test_no_login_where_none_was_asked_for(message: Any) -> None:
    for welcomed in (False, True):
        machine = ServerMachine()
        if welcomed:
            machine.receive(encode_frame(HELLO))
            machine.welcome(WELCOME)
        assert isinstance(machine.receive(encode_frame(message))[-1], Close)


def test_the_driver_says_that_a_password_is_needed() -> None:
    machine = DriverMachine()
    assert machine.receive(encode_frame(LoginRequired([MECHANISM]))) == []
    assert machine.failure is not None
    assert machine.failure.sqlstate == "28000"


@pytest.mark.parametrize("before", [[], [LoginRequired([MECHANISM])]])
def test_a_password_is_not_left_unasked(before: list[Any]) -> None:
    machine = DriverMachine(driver())
    machine.receive(frames([*before, WELCOME]))
    failure: Error | None = machine.failure
    assert failure is not None
    assert "lets every client in" in failure.message
    assert machine.welcome is None


def test_no_second_login() -> None:
    machine = DriverMachine()
    machine.receive(encode_frame(WELCOME))
    machine.receive(encode_frame(ScramVerified("")))
    assert isinstance(machine.failure, ProtocolError)
