"""The log as a tool reads it: what is there now, where the chain is broken, and nothing fenced."""

import msgspec
import pytest

from bookie.ledger.types import LedgerState
from herdpy.cluster.observability.log_reading import LedgerFacts, LogReading
from herdpy.errors import CorruptionError, ProgrammingError
from herdpy.model.lsn import START_LSN, Lsn
from tests.fixtures.chain_nodes import PASSWORD, Node, node
from tests.fixtures.ledger_cluster import LedgerCluster
from tests.unit.herdpy.cluster.test_chain import rewrite, simulate
from tests.unit.herdpy.cluster.test_tail import leads, write


async def reading(cluster: LedgerCluster) -> LogReading:
    found = await node(cluster)
    return LogReading(found.client, found.listing, tablespace="t", password=PASSWORD)


async def written(cluster: LedgerCluster) -> Node:
    """Return a leader that has three ledgers: five, two and one records, the last is open."""
    leader = await leads(cluster, 4)
    await write(leader, range(5))
    await leader.chain.end()
    await leader.chain.begin()
    await write(leader, range(5, 7))
    await leader.chain.end()
    await leader.chain.begin()
    await write(leader, range(7, 8))
    return leader


async def content(log: LogReading, wanted: Lsn | None) -> list[tuple[Lsn, bytes]]:
    return [each async for each in log.records(await log.before(wanted))]


def test_ledgers_and_records_are_read_and_none_is_fenced() -> None:
    async def body(cluster: LedgerCluster) -> None:
        leader = await written(cluster)
        log = await reading(cluster)
        facts = await log.ledgers()
        ids = leader.chain.ledgers
        assert [each.id for each in facts] == list(ids)
        assert [(each.state, each.first_entry, each.last_entry) for each in facts] == [
            ("closed", 0, 5), ("closed", 0, 2), ("open", 0, facts[2].last_entry),
        ]  # fmt: skip
        assert [each.epoch for each in facts] == [4, 4, 4]
        assert facts[0].quorums == (3, 3, 2)
        assert {*facts[0].ensembles[0][1]} == {"b0", "b1", "b2"}
        assert facts[0].byte_count == (await leader.client.metadata(ids[0])).length
        links = await log.links()
        assert [link.problem for link in links] == [None] * 3
        header = links[1].header
        assert header is not None
        assert (header.previous_ledger, header.previous_entry) == (ids[0], 5)
        found = await content(log, Lsn(ids[0], 0, 0))
        expected = [b"%d" % number for number in range(8)]
        assert [record for _, record in found[:7]] == expected[:7]
        behind = await content(log, Lsn(ids[0], 4, 0))
        assert [record for _, record in behind][:4] == expected[3:7]
        assert [lsn.ledger_id for lsn, _ in await content(log, None)] in ([], [ids[2]])
        # It leads still: no ledger was fenced or closed.
        await write(leader, range(8, 10))
        assert (await leader.client.metadata(ids[2])).state is LedgerState.OPEN
        assert leader.chain.ledgers == ids

    simulate(body)


def test_an_open_ledger_is_known_up_to_what_is_confirmed() -> None:
    async def body(cluster: LedgerCluster) -> None:
        leader = await leads(cluster, 1)
        await write(leader, range(3))
        (ledger_id,) = leader.chain.ledgers
        reader = await leader.client.open(ledger_id, PASSWORD, recover=False)
        await reader.read_next(3)
        log = await reading(cluster)
        (facts,) = await log.ledgers()
        assert facts.last_entry == 3
        (entry,) = await reader.read(3, 3)
        assert facts.byte_count == entry.length
        assert len(await content(log, None)) == 3
        for bookie in cluster.bookies.values():
            await bookie.kill(is_registered=True)
        (facts,) = await log.ledgers()
        assert (facts.state, facts.last_entry, facts.byte_count) == ("open", None, None)

    simulate(body)


def test_a_log_without_ledgers() -> None:
    async def body(cluster: LedgerCluster) -> None:
        log = await reading(cluster)
        assert await log.ledgers() == []
        assert await log.links() == []
        assert await log.before(None) == START_LSN
        assert await content(log, None) == []
        with pytest.raises(ProgrammingError, match=r"position 0\.0\.0: .* ledgers none"):
            await log.before(Lsn(0, 0, 0))

    simulate(body)


def test_positions_that_the_log_has_not() -> None:
    async def body(cluster: LedgerCluster) -> None:
        ids = (await written(cluster)).chain.ledgers
        log = await reading(cluster)
        with pytest.raises(ProgrammingError, match="that ledger ends with entry 5") as caught:
            await log.before(Lsn(ids[0], 6, 0))
        assert caught.value.sqlstate == "22023"
        with pytest.raises(ProgrammingError, match="the log has ledgers"):
            await log.before(Lsn(ids[-1] + 1, 0, 0))

    simulate(body)


def test_a_ledger_that_is_gone_breaks_the_chain_there() -> None:
    async def body(cluster: LedgerCluster) -> None:
        leader = await written(cluster)
        first, second, _ = leader.chain.ledgers
        await leader.client.delete(second)
        log = await reading(cluster)
        problems = [link.problem for link in await log.links()]
        assert problems[0] is None
        assert isinstance(problems[1], CorruptionError)
        assert f"lists ledger {second}, and BookKeeper has none" in str(problems[1])
        assert problems[2] is None  # what it names is not there to compare
        assert (await log.ledgers())[1] == LedgerFacts(
            second, None, "missing", None, None, None, (), (0, 0, 0)
        )
        with pytest.raises(CorruptionError, match="BookKeeper has none"):
            await content(log, Lsn(first, 0, 0))

    simulate(body)


def test_a_ledger_that_is_left_out_breaks_the_chain_behind_it() -> None:
    async def body(cluster: LedgerCluster) -> None:
        first, second, third = (await written(cluster)).chain.ledgers
        await rewrite(cluster, lambda info: msgspec.structs.replace(info, ledgers=(first, third)))
        log = await reading(cluster)
        whole, broken = await log.links()
        assert whole.problem is None
        assert broken.ledger_id == third
        assert f"goes on behind entry 2 of ledger {second}" in str(broken.problem)
        with pytest.raises(CorruptionError, match="a part of it is missing"):
            await content(log, Lsn(first, 0, 0))

    simulate(body)


def test_another_s_ledger_and_one_that_is_not_closed_break_the_chain() -> None:
    async def body(cluster: LedgerCluster) -> None:
        await written(cluster)
        writer = await (await node(cluster)).client.create_ledger(password=PASSWORD)
        await writer.add(b"of another tablespace")
        other = writer.ledger_id
        await rewrite(cluster, lambda info: info.with_ledger(other))
        log = await reading(cluster)
        links = await log.links()
        assert [link.problem is None for link in links] == [True, True, False, False]
        assert "open, and the log goes on behind it: expected it to be closed" in str(
            links[2].problem
        )
        assert "expected a record frame" in str(links[3].problem)
        mine = await node(cluster)
        foreign = LogReading(mine.client, mine.listing, tablespace="u", password=PASSWORD)
        assert "expected metadata of tablespace u" in str((await foreign.links())[0].problem)

    simulate(body)
