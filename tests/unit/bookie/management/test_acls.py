"""What registered bookies say of their logins."""

from bookie.ledger.types import BookieId
from bookie.management.acls import ask_readiness
from bookie.metadata.acl import StoreAccess
from bookie.metadata.memory import MemoryStore
from bookie.metadata.service_info import Address, ServiceInfo
from bookie.metadata.zookeeper_login import Login
from tests.fixtures.metadata import ROOT, MetadataWorld, run

BOB = Login("sasl", "bob", "x").identity


def test_what_bookies_say_of_their_logins() -> None:
    async def test(world: MetadataWorld) -> None:
        await world.format()
        ours, same_user = Login("digest", "ada", "x"), Login("digest", "ada", "other")
        said = {
            "b1:1": StoreAccess((ours.identity,), is_secured=True),
            "b2:1": StoreAccess((ours.identity,)),
            "b3:1": StoreAccess((same_user.identity,), is_secured=True),
            "b4:1": StoreAccess(),
            "readonly/b5:1": StoreAccess((BOB, ours.identity)),
        }
        store = MemoryStore(world.server, None, StoreAccess((ours.identity,)))
        world._stores.append(store)
        for name, access in said.items():
            info = ServiceInfo.of_bookie(Address("h", 1), None, access)
            await store.create(f"{ROOT}/available/{name}", info.to_bytes(), is_ephemeral=True)
        await store.create(f"{ROOT}/available/b6:1", b"", is_ephemeral=True)  # Apache's
        found = await ask_readiness(store, ROOT)
        assert found.locked_out == [BookieId(name) for name in ("b3:1", "b4:1", "b6:1")]
        assert found.open_makers == [BookieId("b2:1"), BookieId("b5:1")]
        assert found.secured_makers == [BookieId("b1:1"), BookieId("b3:1")]

    run(test)
