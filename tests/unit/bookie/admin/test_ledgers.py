"""`bookie ledger …` over many ledgers: some deleted meanwhile, damaged, or not there at all."""

import json

import pytest

from bookie.admin.ledgers import _delete, _list
from bookie.admin.output import Output
from bookie.errors import MetadataStoreError, NoSuchLedgerMetadataError
from bookie.metadata.interfaces import Delete, Write
from bookie.metadata.memory import Fate
from bookie.metadata.memory_tree import SERVER
from tests.fixtures.admin import MemoryCluster
from tests.fixtures.metadata import ROOT, MetadataWorld, ScriptedLink, metadata, run


async def cluster_of(
    world: MetadataWorld, ledger_count: int, link: ScriptedLink | None = None
) -> MemoryCluster:
    """Return a cluster with the ledgers 0 to ledger_count - 1."""
    await world.format()
    manager = world.manager(world.client())
    for _ in range(ledger_count):
        await manager.create(metadata())
    return MemoryCluster("memory", ROOT, store=world.client(link))


async def ids_in(world: MetadataWorld) -> list[int]:
    return [ledger_id async for ledger_id in world.manager(world.client()).ledger_ids()]


def path_of(ledger_id: int) -> str:
    return f"{ROOT}/00/0000/L{ledger_id:04d}"


def printed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_nothing_is_deleted_when_one_of_many_is_not_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def scenario(world: MetadataWorld) -> None:
        cluster = await cluster_of(world, 40)
        with pytest.raises(NoSuchLedgerMetadataError, match="ledger 99:"):
            await _delete(cluster, Output(is_json=True), (*range(40), 99))
        assert await ids_in(world) == list(range(40))

    run(scenario)
    assert printed(capsys) == []


def test_what_was_deleted_is_told_when_the_rest_fails(capsys: pytest.CaptureFixture[str]) -> None:
    async def scenario(world: MetadataWorld) -> None:
        link = ScriptedLink()
        cluster = await cluster_of(world, 40, link)
        kept = [path_of(ledger_id) for ledger_id in range(32, 40)]
        link.fate_of = lambda path, is_write: (
            Fate.LOSE_REQUEST if is_write and path in kept else Fate.ANSWERED
        )
        with pytest.raises(MetadataStoreError):
            await _delete(cluster, Output(is_json=True), tuple(range(40)))
        assert await ids_in(world) == list(range(32, 40))

    run(scenario)
    assert printed(capsys) == [{"deleted": ledger_id} for ledger_id in range(32)]


def test_a_ledger_with_damaged_metadata_can_be_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    async def scenario(world: MetadataWorld) -> None:
        cluster = await cluster_of(world, 2)
        await cluster.store.write(path_of(1), b"damage", 0)
        await _delete(cluster, Output(is_json=True), (1,))
        assert await ids_in(world) == [0]

    run(scenario)
    assert printed(capsys) == [{"deleted": 1}]


def test_a_long_list_goes_on_past_damage_and_what_was_deleted_meanwhile(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def scenario(world: MetadataWorld) -> None:
        link = ScriptedLink()
        cluster = await cluster_of(world, 4, link)
        tree = world.server.tree
        tree.apply([Write(path_of(2), b"damage")], SERVER, 0)

        def delete_before_it_is_read(path: str, is_write: bool) -> Fate:
            if path == path_of(1) and tree.exists(path) is not None:
                tree.apply([Delete(path)], SERVER, 0)
            return Fate.ANSWERED

        link.fate_of = delete_before_it_is_read
        await _list(cluster, Output(is_json=True), is_long=True)

    run(scenario)
    captured = capsys.readouterr()
    found = [json.loads(line) for line in captured.out.splitlines()]
    states = [(line["ledger_id"], line["state"]) for line in found]
    assert states == [(0, "OPEN"), (2, "DAMAGED"), (3, "OPEN")]
    assert "metadata of ledger 2" in captured.err
