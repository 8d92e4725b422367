"""Passwords become verifiers that a SCRAM server can use, and nothing else."""

from base64 import b64decode

import pytest
from scramp import ScramClient, ScramException, ScramMechanism

from bookie.runtime.os_rng import OsRng
from herdpy.engine.access.passwords import ITERATIONS, make_verifier
from herdpy.errors import DataError
from herdpy.proto.scram import ITERATIONS_MAX

RFC_7677 = (
    "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:"
    "wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
)


def log_in(verifier: str, password: str) -> None:
    """Go through a whole login; ScramException when it fails."""
    head, _, keys = verifier.partition(":")
    salt, _, both = keys.partition("$")
    stored_key, _, server_key = both.partition(":")
    iterations = int(head.removeprefix("SCRAM-SHA-256$"))
    mechanism = ScramMechanism("SCRAM-SHA-256")
    server = mechanism.make_server(
        lambda _: (*map(b64decode, (salt, stored_key, server_key)), iterations)
    )
    client = ScramClient(["SCRAM-SHA-256"], "ann", password)
    server.set_client_first(client.get_client_first())
    client.set_server_first(server.get_server_first())
    server.set_client_final(client.get_client_final())
    client.set_server_final(server.get_server_final())


@pytest.mark.parametrize("password", ["pencil", "a", "Grüße €", "x" * 1_000, "with space $:,="])
def test_only_the_password_logs_in(password: str) -> None:
    verifier = make_verifier(password, OsRng())
    assert verifier.startswith(f"SCRAM-SHA-256${ITERATIONS}:")
    assert password not in verifier or password == "a"
    log_in(verifier, password)
    with pytest.raises(ScramException):
        log_in(verifier, f"{password[:-1]}z")


def test_two_of_one_password_differ() -> None:
    assert make_verifier("x", OsRng()) != make_verifier("x", OsRng())


def test_a_verifier_is_taken_as_it_is() -> None:
    assert make_verifier(RFC_7677, OsRng()) == RFC_7677
    log_in(RFC_7677, "pencil")


@pytest.mark.parametrize(
    "password",
    [
        "",
        "x" * 1_001,
        "a\u0000b",
        "a\ue000b",
        RFC_7677.replace("4096", "4095"),
        RFC_7677.replace("4096", "999999999"),
        RFC_7677.replace("4096", str(ITERATIONS_MAX + 1)),  # no driver would compute these
        RFC_7677[:-5],
        RFC_7677.replace("SCRAM-SHA-256", "SCRAM-SHA-256$"),
    ],
)
def test_what_is_no_password(password: str) -> None:
    with pytest.raises(DataError) as caught:
        make_verifier(password, OsRng())
    assert caught.value.sqlstate == "22023"
    assert not password or password not in str(caught.value)
