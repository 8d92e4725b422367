"""A stand-in for BookieNode while there is none: bookie, server, and a registration."""

from typing import Any

from bookie.errors import NodeExistsError
from bookie.metadata.patience import ask
from bookie.server.bookie import Bookie
from bookie.server.server import BookieServer


class BookieNode:
    """Made by start(); the owner awaits close()."""

    def __init__(self, store: Any, bookie: Bookie, server: BookieServer) -> None:
        self.store = store
        self.bookie = bookie
        self.server = server

    @staticmethod
    async def start(
        store: Any,
        disk: Any,
        index: Any,
        clock: Any,
        rng: Any,
        config: Any,
        *,
        journal_executor: Any,
        storage_executor: Any,
    ) -> "BookieNode":
        bookie = await Bookie.open(
            disk,
            index,
            clock,
            rng,
            config,
            journal_executor=journal_executor,
            storage_executor=storage_executor,
        )
        server = BookieServer(bookie, config, clock)
        port = await server.start()
        path = f"/ledgers/available/{config.host}:{port}"

        async def register() -> None:
            try:
                await store.create(path, is_ephemeral=True)
            except NodeExistsError:
                await store.delete(path)
                await store.create(path, is_ephemeral=True)

        await ask(store, 10.0, register)
        return BookieNode(store, bookie, server)

    async def close(self) -> None:
        await self.server.close()
        await self.bookie.close()
