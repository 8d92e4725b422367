"""What a bookie owes by metadata, what others have of it, and a whole bookie's scrub by that."""

import asyncio
from typing import Any

from bookie.autorecovery.replicas import LedgerReplicas
from bookie.ledger.types import DigestType, LedgerState, Status
from bookie.metadata.memory_server import Lag
from bookie.server.node import BookieNode
from bookie.server.storage.bad_entries import Fate
from bookie.server.storage.entry_log import split_location
from bookie.server.storage.scrubber import Scrubber
from tests.fixtures.metadata import SeededRng
from tests.unit.bookie.autorecovery.test_repair import PASSWORD, Scene, bookie, run


def test_what_a_bookie_owes() -> None:
    async def scenario(scene: Scene) -> None:
        ledger_id = await scene.written(9, (3, 2, 2))
        (ensemble,) = await scene.ensembles(ledger_id)
        for index, name in enumerate(ensemble):
            duty = await LedgerReplicas(scene.client, name).read(ledger_id)
            mine = [n for n in range(9) if index in (n % 3, (n + 1) % 3)]
            assert list(duty.required()) == mine
            assert [n for n in range(12) if duty.is_mine(n)] == mine
            assert [n for n in range(12) if duty.is_settled(n)] == list(range(9))
        (other,) = [bookie(n) for n in range(4) if bookie(n) not in ensemble]
        duty = await LedgerReplicas(scene.client, other).read(ledger_id)
        assert list(duty.required()) == []
        assert not duty.is_mine(0)

    run(4, scenario)


def test_metadata_of_a_store_that_lags_is_not_what_a_bookie_owes() -> None:
    async def scenario(scene: Scene) -> None:
        ledger_id = await scene.written(6, (2, 2, 2))
        ((_, replaced),) = await scene.ensembles(ledger_id)
        server = scene.world.store_server
        lag = Lag(server.tree.copy(), 100.0)
        await scene.repairer(None, replaced).repair(ledger_id)
        server.disconnect(scene.store.session_id, reconnect_s=0.1, lag=lag)
        await asyncio.sleep(0.5)
        assert replaced in (await scene.ensembles(ledger_id))[0]  # so the server lags
        duty = await LedgerReplicas(scene.client, replaced).read(ledger_id)
        assert not duty.is_mine(3)

    run(3, scenario)


def test_an_open_end_is_owed_by_nobody_and_settled_nowhere() -> None:
    async def scenario(scene: Scene) -> None:
        made = await scene.made(LedgerState.OPEN, -1, 0, 1)
        duty = await LedgerReplicas(scene.client, bookie(0)).read(made.ledger_id)
        assert list(duty.required()) == []
        assert duty.is_mine(5)
        assert not duty.is_settled(0)

    run(2, scenario)


def test_what_others_say_of_an_entry() -> None:
    async def scenario(scene: Scene) -> None:
        made = await scene.made(LedgerState.CLOSED, 2, 0, 1, 2)
        ledger_id = made.ledger_id
        await scene.add(ledger_id, 0, 2)
        duty = await LedgerReplicas(scene.client, bookie(0)).read(ledger_id)
        found = await duty.fetch(0)
        assert found.packet is not None
        assert duty.digest is not None
        assert duty.digest.open(found.packet, ledger_id, 0).payload == b"xy"
        denied = await duty.fetch(1)
        assert (denied.packet, denied.fate) == (None, Fate.LOST)
        await scene.lose(bookie(2))
        silent = await duty.fetch(1)
        assert (silent.packet, silent.fate) == (None, Fate.UNMENDED)
        assert "UNAVAILABLE" in silent.reason

    run(3, scenario)


def test_a_copy_that_is_damaged_elsewhere_is_not_taken() -> None:
    async def scenario(scene: Scene) -> None:
        writer = await scene.client.create_ledger(
            2, 2, 2, digest_type=DigestType.HMAC, password=PASSWORD
        )
        await writer.close()
        made = await scene.made(LedgerState.CLOSED, 0, 0, 1)
        duty = await LedgerReplicas(scene.client, bookie(0)).read(made.ledger_id)
        done: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        wrong = bytearray(duty.digest.seal(made.ledger_id, 0, -1, 2, b"xy"))  # type: ignore[union-attr]
        wrong[-1] ^= 1
        scene.client.services.channels.add(
            (bookie(1),),
            made.ledger_id,
            0,
            duty.master_key,
            bytes(wrong),
            lambda _, status: done.set_result(status),
            is_recovery=True,
        )
        assert await done is Status.OK
        found = await duty.fetch(0)
        assert (found.packet, found.fate) == (None, Fate.UNREADABLE)
        assert "no intact replica" in found.reason
        assert scene.client.services.damage_count == 1

    run(2, scenario)


def test_a_bookie_mends_its_entries_from_the_others() -> None:
    async def scenario(scene: Scene) -> None:
        ledger_id = await scene.written(20, (2, 2, 2))
        host = scene.world.host("b0")
        await _restart(scene, host)
        for entry_id in (3, 11):
            location = host.index.get(ledger_id, entry_id)
            number, offset = split_location(location)
            host.disk.flip(f"entries/{number:08d}.log", offset + 35)
        assert await scene.read("b0:3181", ledger_id, 3) is Status.IO_ERROR
        scrubber = _scrub(scene, host)
        scrubber.begin()
        await scene.until(lambda: scrubber.status()["passes"] == 1)
        assert scrubber.status()["mended"] == 2
        await scene.lose("b1:3181")
        for entry_id in range(20):
            assert await scene.read("b0:3181", ledger_id, entry_id) is Status.OK
        assert ("bookie_scrub_mended_entries", 2.0) in [
            (figure.name, figure.value) for figure in host.service.metrics.sources[-1]()
        ]

    run(2, scenario)


async def _restart(scene: Scene, host: Any) -> None:
    """Let the bookie's entries be in its logs alone."""
    service = host.service
    await service.bookie.checkpoint()
    host.crash(power=False)
    await scene.until(lambda: host.is_up and host.service is not service)


def _scrub(scene: Scene, host: Any) -> Scrubber:
    node: BookieNode = host.service

    def make() -> Scrubber:
        replicas = LedgerReplicas(scene.client, node.bookie_id)
        scrubber = node.bookie.scrubber(replicas, host.disk, SeededRng(1))
        node.start_scrubber(scrubber)
        return scrubber

    made: Scrubber = host.node.run(make)
    return made
