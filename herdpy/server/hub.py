"""Hub: what the connections of a server share: the database, the workers, the limits.

Statements run on a bounded number of workers. Those outside a transaction hold no lock while they
wait for one; those inside pass, on workers of their own, so that a COMMIT never waits for a worker
behind statements that wait for its locks. What a limit refuses, it refuses with 53xxx and SAFE:
nothing has happened.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from bookie.runtime.os_executors import Executor
from bookie.runtime.os_process import processor_count
from bookie.runtime.ticket import Ticket
from herdpy.config import ServerConfig
from herdpy.engine.database import Database
from herdpy.engine.session.activity import Client
from herdpy.engine.session.session import Session
from herdpy.errors import Error, OperationalError, Retry
from herdpy.model.settings import Settings
from herdpy.proto.messages import Hello
from herdpy.server.limits import Budget, Stalled
from herdpy.server.login.gate import Gate, too_many_unauthenticated
from herdpy.server.operations.metrics import ServerMetrics
from herdpy.server.operations.watch import shown, stopped_by
from herdpy.server.requests.exports import KeptExports
from herdpy.server.spinning import LoopSpinning

if TYPE_CHECKING:
    from herdpy.server.connection import ServerConnection

TABLESPACE = "default"
T = TypeVar("T")


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
        gate: Gate,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.name = name
        self.config = config
        self.gate = gate
        self.connections: dict[ServerConnection, None] = {}
        self.is_draining = False
        self.database = database
        self.clock = database.clock
        self.metrics = ServerMetrics()
        self.received = Budget(config.request_bytes_max)
        """Bytes of requests that wait, or have not come whole."""
        self.results = Budget(config.results_max)
        self.parameters = Budget(config.parameter_bytes_max)
        """Bytes of memory of large parameters whose statements run."""
        self.stalled: Stalled[ServerConnection] = Stalled(config.response_bytes_max)
        self.spinning = LoopSpinning(
            self.loop, database.clock.monotonic, config.spin_us / 1e6, processor_count()
        )
        self._started_s = database.clock.monotonic()
        self.kept_exports = KeptExports(self.loop)
        self._usual_count = 0  # of jobs for _workers
        self._workers = workers
        self._urgent_workers = urgent_workers
        self._empty = asyncio.Event()
        self._jobs: dict[asyncio.Future[Any], None] = {}
        self._promised_count = 0  # of when_done()
        self._due: deque[Callable[[], None]] = deque()  # any thread appends
        self._is_told = False  # the loop has a call to run them
        self._unauthenticated: dict[ServerConnection, None] = {}
        self._handshakes: dict[asyncio.Task[None], None] = {}

    def admit(self, connection: "ServerConnection") -> Error | None:
        """Count an unauthenticated connection; or say why it has to go."""
        if self.is_draining:
            return self.shutting_down()
        if len(self._unauthenticated) >= self.config.logins_max:
            return too_many_unauthenticated(self.config.logins_max)
        self.connections[connection] = None
        self._unauthenticated[connection] = None
        return None

    def shutting_down(self) -> Error:
        """Return what a connection is told that ends because the server does."""
        return OperationalError("the server is shutting down", sqlstate="57P01", retry=Retry.SAFE)

    def enter(self, connection: "ServerConnection") -> None:
        """Count a connection that may be told Welcome; OperationalError: there is no room."""
        connections_max = self.config.connections_max
        if len(self.connections) - len(self._unauthenticated) >= connections_max:
            self.metrics.refuse("connections_max")
            raise OperationalError(
                f"{connections_max} connections are open, more are not allowed",
                sqlstate="53300",
                retry=Retry.SAFE,
                hint="close some, or share them by a pool",
            )
        self._unauthenticated.pop(connection, None)
        self.metrics.connections_accepted += 1

    def secure(self, handshake: Coroutine[Any, Any, None]) -> None:
        """Let a handshake run, and end before the server does."""
        task = self.loop.create_task(handshake)
        self._handshakes[task] = None
        task.add_done_callback(lambda done: self._handshakes.pop(done, None))

    def leave(self, connection: "ServerConnection") -> None:
        self.connections.pop(connection, None)
        self._unauthenticated.pop(connection, None)
        self.stalled.remove(connection)
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
        return self.database.session(
            settings, autocommit=hello.autocommit, client=client, user=user
        )

    def submit(self, job: Callable[[], T], *, is_urgent: bool) -> "asyncio.Future[T]":
        """Run a job on a worker."""
        executor = self._urgent_workers if is_urgent else self._workers
        future: asyncio.Future[T] = self.loop.run_in_executor(executor, job)
        self._jobs[future] = None
        if is_urgent:
            future.add_done_callback(self._jobs.pop)
        else:
            self._usual_count += 1
            future.add_done_callback(self._usual_done)
        return future

    def when_done(self, ticket: Ticket[None], job: Callable[[], object]) -> None:
        """Run a job on the loop, once, when a ticket is done.

        The loop is woken once for all tickets that are done before it runs.
        """
        self._promised_count += 1
        has_run = False

        def run() -> None:
            nonlocal has_run
            if has_run:
                return  # a ticket may tell it twice
            has_run = True
            self._promised_count -= 1
            job()

        def tell() -> None:
            self._due.append(run)
            self._tell()

        ticket.on_done(tell)

    def _tell(self) -> None:
        """Have the loop run what is due; any thread."""
        if not self._is_told:
            self._is_told = True
            self.loop.call_soon_threadsafe(self._run_due)

    def _run_due(self) -> None:
        self._is_told = False  # before the look: what comes behind it tells again
        due = self._due
        try:
            for _ in range(len(due)):  # what comes meanwhile lets the sockets go first
                due.popleft()()
        finally:
            if due:  # or one raised: a bug, which is not the others'
                self._tell()
            if not self._promised_count:
                self._empty.set()

    def spin(self) -> None:
        """Wait for the next request without sleeping, for a moment, if nothing else is done."""
        if not self._jobs and not self._promised_count:
            self.spinning.on_reply()

    def _usual_done(self, future: "asyncio.Future[Any]") -> None:
        self._usual_count -= 1
        del self._jobs[future]

    # --- limits ----------------------------------------------------------------------------------

    @property
    def waiting_count(self) -> int:
        """How many statements wait for a worker."""
        return max(0, self._usual_count - self.config.workers)

    def check_queue(self) -> Error | None:
        """Return why a statement outside a transaction cannot wait for a worker, if it cannot."""
        if self._usual_count < self.config.workers + self.config.waiting_max:
            return None
        self.metrics.refuse("waiting_max")
        return OperationalError(
            f"{self._usual_count} statements run or wait for a worker, more are not allowed",
            sqlstate="53000",
            retry=Retry.SAFE,
            hint="try again in a moment; the server's limits are workers and waiting_max",
        )

    def too_much_received(self) -> Error:
        """Return what the connection hears whose request does not fit in memory any more."""
        self.metrics.refuse("request_bytes_max")
        return OperationalError(
            f"requests of {self.received.used:,} bytes wait, and this one does not fit in the "
            f"{self.received.maximum:,} of the server",
            sqlstate="53200",
            retry=Retry.SAFE,
            hint="send less at a time; the server's limit is request_bytes_max",
        )

    def stall(self, connection: "ServerConnection", byte_count: int) -> None:
        """Note answers that a peer does not take; who stalls longest goes when it is too much."""
        for gone in self.stalled.add(connection, byte_count):
            self.metrics.refuse("response_bytes_max")
            gone.cut_off("53200: answers wait for too many bytes, and its for longest")

    # --- state -----------------------------------------------------------------------------------

    @property
    def uptime_s(self) -> float:
        return self.clock.monotonic() - self._started_s

    def connections_by_protocol(self) -> dict[str, int]:
        found = {"tcp": 0, "grpc": 0}
        for connection in self.connections:
            found[connection.protocol] = found.get(connection.protocol, 0) + 1
        return found

    def reason_not_ready(self) -> str | None:
        """Return why statements cannot be served, None when they can."""
        if self.is_draining:
            return "the server is shutting down"
        failure = shown(stopped_by(self.database))
        return None if failure is None else f"the database stopped: {failure}"

    async def wait_idle(self) -> None:
        """Wait until all connections have left and all jobs have ended."""
        while self.connections or self._jobs or self._handshakes or self._promised_count:
            if self._handshakes:
                await asyncio.wait(list(self._handshakes))
            elif self.connections or self._promised_count:
                self._empty.clear()
                await self._empty.wait()
            else:
                await asyncio.wait(list(self._jobs))
