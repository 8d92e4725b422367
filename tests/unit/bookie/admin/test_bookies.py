"""`bookie bookies info` where bookies hang."""

import asyncio
import json

import pytest

from bookie.admin.bookies import _info
from bookie.admin.output import Output
from bookie.config import ClientConfig
from bookie.metadata.service_info import Address, ServiceInfo
from tests.fixtures.admin import MemoryCluster
from tests.fixtures.metadata import ROOT, MetadataWorld, run
from tests.sim.loop import SimulatedLoop


def test_bookies_that_hang_cost_one_time_out_together(capsys: pytest.CaptureFixture[str]) -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        loop, store = asyncio.get_running_loop(), world.client()
        assert isinstance(loop, SimulatedLoop)
        host = loop.current.name
        servers: list[asyncio.Server] = []
        for port in range(3181, 3191):
            servers.append(await loop.create_server(asyncio.Protocol, host, port))
            info = ServiceInfo.of_bookie(Address(host, port)).to_bytes()
            await store.create(f"{ROOT}/available/{host}:{port}", info, is_ephemeral=True)
        begin_s = loop.time()
        await _info(MemoryCluster("memory", ROOT, store=world.client()), Output(is_json=True))
        assert loop.time() - begin_s < 2 * ClientConfig().read_timeout_s
        for server in servers:
            server.close()

    run(scenario)
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["answer"] for line in found] == ["TIMED_OUT"] * 10
