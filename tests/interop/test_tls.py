"""(f) Apache's client on our bookies that ask for its certificate: START_TLS, then v3 or v2."""

from collections.abc import Iterator

import pytest

from tests.fixtures.bookie_processes import our_bookies
from tests.fixtures.certificates import make_certificate
from tests.interop.apache import Release, run_program
from tests.interop.conftest import World


@pytest.fixture(scope="module")
def tls(world: World) -> Iterator[dict[str, str]]:
    """Run three bookies with a trust file; the arguments of a client that shows a certificate."""
    certificate, key = make_certificate(world.folder)
    options = ("--tls", certificate, key, "--tls-trust", certificate)
    with our_bookies(world.cluster, world.folder, 3, options=options):
        yield {"tls_trust": certificate, "tls_certificate": certificate, "tls_key": key}


@pytest.mark.parametrize("v2", [0, 1])
def test_client_writes_and_reads_by_tls(
    world: World, release: Release, tls: dict[str, str], v2: int
) -> None:
    arguments = {"uri": world.cluster.uri, "v2": v2, "password": "secret", **tls}
    written = run_program(release, "Writer", count=300, size=1000, **arguments)
    assert written[-1] == {"closed": 299, "length": 300_000}
    _, read = run_program(release, "Reader", ledger=written[0]["ledger"], **arguments)
    assert read == {"read": 300, "bytes": 300_000, "wrong": 0}


def test_client_in_clear_is_told_that_it_is_unauthorized(
    world: World, release: Release, tls: dict[str, str]
) -> None:
    written = run_program(
        release, "Writer", uri=world.cluster.uri, password="secret", count=1, size=10
    )
    assert [line["error"] for line in written if "error" in line] == [-102]  # BKUnauthorizedAccess
