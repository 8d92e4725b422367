"""(a) Apache's client and BookieShell on our bookies, with both releases."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bookie.ledger.types import BookieId
from tests.fixtures.bookie_processes import OurBookie, client_of, in_loop, our_bookies
from tests.interop.apache import Release, run_program, shell
from tests.interop.conftest import World

QUORUMS = ("-ensemble", "3", "-writeQuorum", "3", "-ackQuorum", "2")


@pytest.fixture(scope="module", autouse=True)
def bookies(ours: list[OurBookie]) -> list[OurBookie]:
    return ours


def test_shell_lists_our_bookies(world: World, release: Release, bookies: list[OurBookie]) -> None:
    printed = shell(release, world.conf, "listbookies", "-rw")
    for bookie in bookies:
        assert f"127.0.0.1:{bookie.port}" in printed
    assert "No bookie exists" in shell(release, world.conf, "listbookies", "-ro")


def test_shell_simpletest(world: World, release: Release) -> None:
    printed = shell(release, world.conf, "simpletest", *QUORUMS, "-numEntries", "200")
    assert "200 entries written to ledger" in printed


def test_shell_asks_for_space(world: World, release: Release, bookies: list[OurBookie]) -> None:
    printed = shell(release, world.conf, "bookieinfo")
    assert "ReadOnly Bookies" in printed or "Total" in printed
    assert f"{bookies[0].port}" in printed


@pytest.mark.parametrize("digest", ["CRC32C", "CRC32", "MAC", "DUMMY"])
def test_client_writes_closes_and_reads(world: World, release: Release, digest: str) -> None:
    arguments = {"uri": world.cluster.uri, "digest": digest, "password": "secret"}
    written = run_program(release, "Writer", count=500, size=1000, **arguments)
    assert written[-1] == {"closed": 499, "length": 500_000}
    opened, read = run_program(release, "Reader", ledger=written[0]["ledger"], **arguments)
    assert (opened["lac"], opened["is_closed"]) == (499, True)
    assert read == {"read": 500, "bytes": 500_000, "wrong": 0}


def test_client_speaks_v2(world: World, release: Release) -> None:
    written = run_program(
        release, "Writer", uri=world.cluster.uri, v2=1, count=300, size=100, close=0
    )
    assert written[-1] == {"written": 300, "lac": 299}
    opened, read = run_program(
        release, "Reader", uri=world.cluster.uri, v2=1, ledger=written[0]["ledger"], recover=1
    )
    assert opened["lac"] == 299
    assert read == {"read": 300, "bytes": 30_000, "wrong": 0}


def test_client_recovers_what_it_left_open(world: World, release: Release) -> None:
    written = run_program(release, "Writer", uri=world.cluster.uri, count=200, close=0)
    arguments = {"uri": world.cluster.uri, "ledger": written[0]["ledger"]}
    opened, read = run_program(release, "Reader", recover=1, **arguments)
    assert (opened["lac"], opened["length"], opened["is_closed"]) == (199, 20_000, True)
    assert read["wrong"] == 0


def test_client_with_the_wrong_password_is_refused(world: World, release: Release) -> None:
    written = run_program(release, "Writer", uri=world.cluster.uri, count=5, password="right")
    found = run_program(
        release, "Reader", uri=world.cluster.uri, ledger=written[0]["ledger"], password="wrong"
    )
    assert found[0]["error"] == -102


def test_client_moves_its_lac_without_entries(world: World, release: Release) -> None:
    """Apache's explicit LAC reaches our bookies, and Apache's reader finds it there."""
    from tests.interop.apache import Program

    with Program(
        release, "Writer", uri=world.cluster.uri, count=10, explicit_lac_ms=50, hold=1
    ) as writer:
        ledger = writer.until("ledger")
        writer.until("written")
        for _ in range(100):
            opened = run_program(
                release, "Reader", uri=world.cluster.uri, ledger=ledger, recover=0
            )[0]
            if opened["lac"] == 9:
                break
        assert opened["lac"] == 9
        writer.tell()
        assert writer.finish()[-1]["closed"] == 9


def test_shell_reads_a_ledger_and_its_metadata(world: World, release: Release) -> None:
    ledger = run_program(release, "Writer", uri=world.cluster.uri, count=7)[0]["ledger"]
    # The shell opens ledgers with the password and digest of its configuration.
    conf = _conf(world, "CRC32C")
    printed = shell(release, conf, "readledger", "-ledgerid", str(ledger), "-msg")
    assert len(re.findall(r"entry-\d;", printed)) >= 7, printed[-2000:]
    printed = shell(release, conf, "ledgermetadata", "-ledgerid", str(ledger))
    assert "state=CLOSED" in printed
    assert "lastEntryId=6" in printed
    assert re.search(rf"\b{ledger}\b", shell(release, conf, "listledgers"))


def test_shell_deletes_a_ledger(world: World, release: Release) -> None:
    ledger = run_program(release, "Writer", uri=world.cluster.uri, count=3)[0]["ledger"]
    shell(release, world.conf, "deleteledger", "-ledgerid", str(ledger), "-force")

    async def ids() -> list[int]:
        async with client_of(world.cluster) as client:
            return [number async for number in client.ledger_ids()]

    assert ledger not in in_loop(ids)


@pytest.fixture(scope="module")
def spare(world: World, bookies: list[OurBookie], tmp_path_factory: pytest.TempPathFactory) -> (
    Iterator[OurBookie]
):  # fmt: skip
    """A fourth bookie, for ledgers to be copied to."""
    with our_bookies(world.cluster, tmp_path_factory.mktemp("spare"), 1) as found:
        yield found[0]


def test_shell_recovers_a_lost_bookie(
    world: World, release: Release, spare: OurBookie, tmp_path: Path
) -> None:
    """`recover` copies the entries of a dead bookie to others, into fenced ledgers, too."""
    with our_bookies(world.cluster, tmp_path, 1) as lost:
        doomed = BookieId(lost[0].bookie_id)
        ledgers: list[int] = []
        while len(ledgers) < 2:
            written = run_program(
                release, "Writer", uri=world.cluster.uri, count=50, ensemble=4, write_quorum=3
            )
            ledgers.append(written[0]["ledger"])
        members = in_loop(lambda: _members(world, ledgers))
        lost[0].kill()
        held = [ledger for ledger, ensemble in members.items() if doomed in ensemble]
        for ledger in held:
            shell(release, world.conf, "recover", "-f", "-l", str(ledger), doomed)
        after = in_loop(lambda: _members(world, ledgers))
        assert all(doomed not in after[ledger] for ledger in held), (held, members, after)
        for ledger in ledgers:
            read = run_program(release, "Reader", uri=world.cluster.uri, ledger=ledger)[1]
            assert read == {"read": 50, "bytes": 5000, "wrong": 0}
        lost[0].wipe()


async def _members(world: World, ledgers: list[int]) -> dict[int, set[BookieId]]:
    async with client_of(world.cluster) as client:
        return {
            ledger: {
                bookie
                for segment in (await client.metadata(ledger)).segments
                for bookie in segment.ensemble
            }
            for ledger in ledgers
        }


def _conf(world: World, digest: str) -> Path:
    path = world.folder / f"{digest}.conf"
    path.write_text(f"{world.conf.read_text()}\ndigestType={digest}\npasswd=\n")
    return path
