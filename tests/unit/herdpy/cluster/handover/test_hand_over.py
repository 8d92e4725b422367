"""What a leader looks at before it lets go of its part."""

from collections.abc import Callable

import pytest

from herdpy.cluster.handover.hand_over import HandOver
from herdpy.cluster.served_part import ServedPart
from herdpy.cluster.staleness import Staleness
from herdpy.errors import OperationalError, Retry
from tests.unit.herdpy.cluster.test_registration import NAME, World, run


class Drained:
    """A service without clients."""

    async def drain(self, timeout_s: float, check: Callable[[], object]) -> None:
        check()


def test_a_part_is_not_given_to_a_node_that_is_gone_and_goes_on() -> None:
    async def body(world: World) -> None:
        leads, follows = world.member("n1"), world.member("n2")
        await leads.registration.start()
        tenure = await leads.lead()
        part = ServedPart(NAME, "n1", Staleness(world.loop.time))
        hand_over = HandOver(
            NAME,
            "n1",
            "n2",
            part=part,
            service=Drained(),
            tenure=tenure,
            leader=leads.leader,
            nodes=leads.nodes,
            registration=leads.registration,
            drain_s=1.0,
        )
        with pytest.raises(OperationalError, match="n2 is not there any more") as caught:
            await hand_over.drain(lambda: None)
        assert (caught.value.sqlstate, caught.value.retry) == ("55000", Retry.SAFE)
        assert not part.is_deferring
        assert tenure.holds()
        await follows.registration.start()
        await hand_over.drain(lambda: None)
        assert part.is_deferring
        leads.registration.end(tenure)
        with pytest.raises(OperationalError, match="may not answer any more"):
            await hand_over.drain(lambda: None)
        await leads.registration.close()
        await follows.registration.close()

    run(body)
