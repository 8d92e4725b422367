"""Hub: what the connections of a server share: the database, the workers, the limits.

Statements run on a bounded number of workers. Those outside a transaction hold no lock while they
wait for one; those inside pass, on workers of their own, so that a COMMIT never waits for a worker
behind statements that wait for its locks.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from bookie.runtime.os_executors import Executor
from herdpy.config import ServerConfig
from herdpy.engine.activity import Client
from herdpy.engine.database import Database
from herdpy.engine.session import Session
from herdpy.engine.settings import Settings
from herdpy.errors import Error, OperationalError, Retry
from herdpy.proto.messages import Hello

if TYPE_CHECKING:
    from herdpy.server.connection import ServerConnection

TABLESPACE = "default"


class Hub:
    """See the module. On the server's loop."""

    def __init__(
        self,
        database: Database,
        workers: Executor,
        urgent_workers: Executor,
        *,
        name: str,
        config: ServerConfig,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.name = name
        self.config = config
        self.connections: dict[ServerConnection, None] = {}
        self.is_draining = False
        self._database = database
        self._workers = workers
        self._urgent_workers = urgent_workers
        self._empty = asyncio.Event()
        self._jobs: dict[asyncio.Future[bytes], None] = {}

    def admit(self, connection: "ServerConnection") -> Error | None:
        """Count a connection; or say why it is not welcome."""
        if self.is_draining:
            return OperationalError(
                "the server is shutting down", sqlstate="57P01", retry=Retry.SAFE
            )
        connections_max = self.config.connections_max
        if len(self.connections) >= connections_max:
            return OperationalError(
                f"{connections_max} connections are open, more are not allowed",
                sqlstate="53300",
                retry=Retry.SAFE,
                hint="close some, or share them by a pool",
            )
        self.connections[connection] = None
        return None

    def leave(self, connection: "ServerConnection") -> None:
        self.connections.pop(connection, None)
        if not self.connections:
            self._empty.set()

    def session(
        self, settings: Settings, hello: Hello, client: Client, user: str | None = None
    ) -> Session:
        """Return a new session with the rights of the user, of all rights for None.

        OperationalError: there is no such tablespace.
        """
        if hello.tablespace != TABLESPACE:
            raise OperationalError(
                f'tablespace "{hello.tablespace[:63]}" does not exist',
                sqlstate="3D000",
                hint=f'the tablespace of this server is "{TABLESPACE}"',
            )
        return self._database.session(
            settings, autocommit=hello.autocommit, client=client, user=user
        )

    def submit(self, job: Callable[[], bytes], *, is_urgent: bool) -> "asyncio.Future[bytes]":
        """Run a job on a worker."""
        executor = self._urgent_workers if is_urgent else self._workers
        future: asyncio.Future[bytes] = self.loop.run_in_executor(executor, job)
        self._jobs[future] = None
        future.add_done_callback(lambda done: self._jobs.pop(done, None))
        return future

    async def wait_idle(self) -> None:
        """Wait until all connections have left and all jobs have ended."""
        while self.connections or self._jobs:
            if self.connections:
                self._empty.clear()
                await self._empty.wait()
            else:
                await asyncio.wait(list(self._jobs))
