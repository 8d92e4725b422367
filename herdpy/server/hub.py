"""Hub: what the connections of a server share: the database, the workers, the limits.

What a limit refuses, it refuses with 53xxx and SAFE: nothing has happened.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from bookie.peer_shares import PeerShares
from bookie.runtime.os_log import LineWriter
from bookie.runtime.os_process import processor_count
from herdpy.config import ServerConfig
from herdpy.engine.database import Database
from herdpy.engine.limit_rows import CONNECTIONS_MAX, listed
from herdpy.engine.session.activity import Client
from herdpy.engine.session.session import Session
from herdpy.errors import Error, OperationalError, Retry
from herdpy.model.access import User
from herdpy.proto.messages import Hello
from herdpy.server.common import Common
from herdpy.server.limits import REQUEST_BYTES, Account, Full
from herdpy.server.login.gate import Gate, gave_way_unauthenticated
from herdpy.server.login.login_tokens import Proven, proven_of
from herdpy.server.login.throttle import origin_of
from herdpy.server.operations.limit_rows import server_limits, server_waits, worker_holders
from herdpy.server.operations.metrics import ServerMetrics
from herdpy.server.operations.watch import shown, stopped_by
from herdpy.server.requests.part_check import MAX_STALENESS_S
from herdpy.server.served import Part, Served
from herdpy.server.session_settings import session_settings
from herdpy.server.shared_port import SharedPort
from herdpy.server.spinning import LoopSpinning
from herdpy.server.workers import STARVED_S, Workers

if TYPE_CHECKING:
    from herdpy.server.connection import ServerConnection

TABLESPACE = "default"


class Hub:
    """On the server's loop."""

    def __init__(
        self,
        database: Database,
        workers: Workers,
        *,
        name: str,
        config: ServerConfig,
        gate: Gate,
        common: Common,
        neighbours: "SharedPort | None" = None,
        part: Part | None = None,
        tablespace: str = TABLESPACE,
    ) -> None:
        """`workers` are of common's pool. neighbours: the port that it shares; None: its own."""
        self.loop = asyncio.get_running_loop()
        self.name = name
        self.config = config
        self.gate = gate
        self.connections: dict[ServerConnection, None] = {}
        self.is_draining = False
        self.database = database
        self.tablespace = tablespace
        """By which clients ask for that database, beside TABLESPACE: a cluster's name of it."""
        self.neighbours = neighbours
        self.clock = database.clock
        self.metrics = ServerMetrics()
        self.common = common
        self.received, self.results = common.received, common.results
        self.parameters, self.stalled = common.parameters, common.stalled
        self.spinning = LoopSpinning(
            self.loop, database.clock.monotonic, config.spin_us / 1e6, processor_count()
        )
        self.spins = self.spinning.is_on
        self._started_s = database.clock.monotonic()
        self.workers = workers
        self._empty = asyncio.Event()
        self.unauthenticated, self.peer_shares = common.unauthenticated, common.peer_shares
        self._handshakes: dict[asyncio.Task[None], None] = {}
        self.reload(config)
        self._served: dict[Database, Served] = {}
        self.default = self._serve(database, part)
        gate.tablespace, gate.are_same = tablespace, self.are_same
        self._users: dict[ServerConnection, tuple[Served, User | None]] = {}
        """Who were told Welcome, and that shares has counted."""
        self.lines: Sequence[LineWriter] = ()
        """What writes the process's logs."""

    def _serve(self, database: Database, part: Part | None = None) -> Served:
        served = self._served[database] = Served(self, database, part)
        database.limits.add(partial(server_limits, self, served), partial(server_waits, self))
        return served

    @property
    def is_alone(self) -> bool:
        """No server of another tablespace shares what this one has of limits."""
        return self.neighbours is None or self.neighbours.is_of_one

    def resize(self) -> None:
        """Have the shares of one that is alone, or that is not; behind a change of that."""
        for served in self._served.values():
            served.resize(is_alone=self.is_alone)

    def close_exports(self) -> None:
        """Let all kept exports go, now and from now on."""
        for served in self._served.values():
            served.kept_exports.close()

    def served(self, tablespace: str) -> Served:
        """Return a tablespace that is open; 3D000: there is none of the name; else why not."""
        if self._is_own(tablespace):
            return self.default
        if tablespace == TABLESPACE:
            raise OperationalError(
                f'tablespace "{TABLESPACE}" does not exist: this node carries several, and none of '
                "that name",
                sqlstate="3D000",
                hint="name one of them in the URL, as in herd://host/sales",
            )
        return self._served_as(self.database.instance.tablespaces.opened(tablespace))

    def _is_own(self, tablespace: str) -> bool:
        """Return whether a name is that of the database itself."""
        if tablespace == self.tablespace:
            return True
        return tablespace == TABLESPACE and self.is_alone

    def _served_as(self, database: Database) -> Served:
        found = self._served.get(database)
        if found is None:
            for gone in [each for each in self._served if each.is_closed]:
                del self._served[gone]
            found = self._serve(database)
        return found

    def served_as_yet(self, database: Database) -> Served | None:
        """Return an open tablespace, None: no connection has asked for it. Any thread."""
        return self._served.get(database)

    def find_served(self, tablespace: str) -> Served | None:
        """Return a tablespace that is open, None: it is not, or there is none.

        An unauthenticated client may name any, so that one which is absent costs next to nothing.
        """
        if self._is_own(tablespace):
            return self.default
        if tablespace == TABLESPACE:
            return None
        database = self.database.instance.tablespaces.find(tablespace)
        return None if database is None else self._served_as(database)

    def are_same(self, one: str, other: str) -> bool:
        """Return whether two names are those of one tablespace."""
        return one == other or (self._is_own(one) and self._is_own(other))

    def login_of(self, tablespace: str, user: str) -> Proven | None:
        """Return what a proof of this user would be good for now; None: there is no such user."""
        served = self.find_served(tablespace)
        return None if served is None else proven_of(served.database, user)

    def login_in(self, tablespace_id: bytes, user: str) -> Proven | None:
        """Return the same of the tablespace of an id, whatever its name is now."""
        database = self.database.instance.tablespaces.open_of(tablespace_id)
        return None if database is None else proven_of(database, user)

    def shown_name(self, database_name: str) -> str:
        """Return the name by which clients know a tablespace of this server."""
        return self.tablespace if database_name == TABLESPACE else database_name

    def name_of(self, tablespace_id: bytes) -> str:
        """Return the name that a tablespace has now; "": it is none any more."""
        database = self.database.instance.tablespaces.open_of(tablespace_id)
        return "" if database is None else self.shown_name(database.name)

    def admit(self, connection: "ServerConnection") -> Error | None:
        """Count an unauthenticated connection; or say why it has to go."""
        if self.is_draining:
            return self.shutting_down()
        gone = self.unauthenticated.add(connection, origin_of(connection.peer))
        self.connections[connection] = None
        if gone is not None:
            gone.give_way(self.gave_way())
        return None

    def new_peer_shares(self, name: str) -> PeerShares[Any]:
        """Return shares of another kind of places, as many as those of logins."""
        return self.common.shares_of(name)

    def gave_way(self) -> Error:
        """Return what an unauthenticated connection is told that gives way to newer ones."""
        return gave_way_unauthenticated(self.config)

    def shutting_down(self) -> Error:
        """Return what a connection is told that ends because the server does."""
        part = self.default.part
        moved = None if part is None else part.end_error()
        if moved is not None:
            return moved
        return OperationalError("the server is shutting down", sqlstate="57P01", retry=Retry.SAFE)

    def enter(
        self,
        connection: "ServerConnection",
        served: Served,
        user: User | None,
        *,
        is_administrator: bool,
    ) -> None:
        """Count a connection that may be told Welcome; OperationalError: there is no room."""
        connections_max = self.config.connections_max
        reserved = min(self.config.superuser_reserved_connections, connections_max - 1)
        count = self.entered_count
        if count >= connections_max - (0 if is_administrator else reserved):
            self.metrics.refuse("connections_max")
            kept = (
                f"; the last {reserved} are kept for superusers of {TABLESPACE}" if reserved else ""
            )
            raise OperationalError(
                f"{count} of {connections_max} connections are open, more are not allowed{kept}",
                sqlstate="53300",
                retry=Retry.SAFE,
                hint="close some, or share them by a pool",
            )
        own, own_max = served.connection_count, served.connections_max
        if own_max is not None and own >= own_max:
            served.database.refusals.add(CONNECTIONS_MAX)
            self.metrics.refuse(CONNECTIONS_MAX)
            raise OperationalError(
                f"{own} of {own_max} connections of the tablespace are open, more are not allowed",
                sqlstate="53300",
                retry=Retry.SAFE,
                hint="close some, or share them by a pool; each of several tablespaces on a node "
                "has three quarters of connections_max",
            )
        if user is not None:
            refusal = served.shares.admit(user)
            if refusal is not None:
                self.metrics.refuse("user_connections")
                raise refusal
        self._users[connection] = served, user
        served.connection_count += 1
        self.common.entered_count += 1
        self.unauthenticated.remove(connection)
        if self.common.on_enter is not None:
            self.common.on_enter(connection)
        self.metrics.connections_accepted += 1

    def reload(self, config: ServerConfig) -> None:
        """Take up settings that count at once."""
        self.config = config
        self.database.results.unread_s = config.unread_result_timeout_s
        self.common.reload(config)

    def secure(self, handshake: Coroutine[Any, Any, None]) -> None:
        """Let a handshake run, and end before the server does."""
        task = self.loop.create_task(handshake)
        self._handshakes[task] = None
        task.add_done_callback(lambda done: self._handshakes.pop(done, None))

    def leave(self, connection: "ServerConnection") -> None:
        self.connections.pop(connection, None)
        self.unauthenticated.remove(connection)
        entered = self._users.pop(connection, None)
        if entered is not None:
            served, user = entered
            self.common.entered_count -= 1
            served.connection_count -= 1
            if user is not None:
                served.shares.leave(user)
        self.stalled.remove(connection)
        if not self.connections:
            self._empty.set()

    def session(
        self, hello: Hello, served: Served, client: Client, user: User | None = None
    ) -> Session:
        """Return a new session with the rights of the user, of all rights for None.

        Of its settings: see session_settings(). OperationalError 53300: the tablespace has no room.
        """
        database = served.database
        access = database.tablespace.state.catalog.access
        settings = session_settings(hello, self.config, access, user)
        return database.session(settings, autocommit=hello.autocommit, client=client, user=user)

    def spin(self) -> None:
        """Wait for the next request without sleeping, for a moment, if nothing else is done."""
        workers = self.workers
        if not workers.jobs and not workers.promises:
            self.spinning.on_reply()

    # --- limits ----------------------------------------------------------------------------------

    def check_queue(self) -> Error | None:
        """Return why a statement outside a transaction cannot wait for a worker, if it cannot."""
        count = self.workers.usual_count
        if count < self.config.workers + self.config.waiting_max:
            return None
        self.metrics.refuse("waiting_max")
        return OperationalError(
            f"{count} statements run or wait for a worker, more are not allowed",
            sqlstate="53000",
            retry=Retry.SAFE,
            hint="try again in a moment; the server's limits are workers and waiting_max",
        )

    def too_much_received(self, full: Full) -> Error:
        """Return what the connection hears whose request does not fit in memory any more."""
        self.metrics.refuse(full.limit)
        return OperationalError(
            f"requests of {full.used:,} bytes of {full.whose} wait, and this one does not fit in "
            f"{full.maximum:,}",
            sqlstate="53200",
            retry=Retry.SAFE,
            hint=f"send less at a time, or again when others were answered; {full.hint}",
        )

    def received_of(self, proven: Proven | None) -> Account:
        """Return what is to count the requests of who has proved this; None: no login was asked."""
        account = Account(self.received, REQUEST_BYTES)
        if proven is not None:
            database = self.database.instance.tablespaces.open_of(proven.tablespace_id)
            if database is not None:  # else it was dropped, and the request will be refused
                account.enter(self._served_as(database).received, proven.user)
        return account

    def stall(self, connection: "ServerConnection", byte_count: int) -> None:
        """Note answers that a peer does not take; who stalls longest goes when it is too much."""
        for gone in self.stalled.add(connection, byte_count):
            self.metrics.refuse("response_bytes_max")
            gone.cut_off("53200: answers wait for too many bytes, and its for longest")

    # --- state -----------------------------------------------------------------------------------

    @property
    def entered_count(self) -> int:
        """Connections that were told Welcome, of all servers behind the port."""
        return self.common.entered_count

    @property
    def uptime_s(self) -> float:
        return self.clock.monotonic() - self._started_s

    def connections_by_protocol(self) -> dict[str, int]:
        """Return how many there are. Any thread."""
        found = {"tcp": 0, "grpc": 0}
        for connection in list(self.connections):
            found[connection.protocol] = found.get(connection.protocol, 0) + 1
        return found

    def reason_not_ready(self) -> str | None:
        """Return why statements cannot be served, None when they can."""
        if self.is_draining:
            return "the server is shutting down"
        failure = shown(stopped_by(self.database))
        if failure is not None:
            return f"the database stopped: {failure}"
        part = self.default.part
        reason = None if part is None else part.reason_not_ready(MAX_STALENESS_S)
        if reason is not None:
            return reason
        workers, pool = self.workers, self.workers.pool
        if pool.reserved_starved_s >= STARVED_S:
            return (
                f"no reserved worker came free for {pool.reserved_starved_s:.0f} s, and what "
                f"superusers of {TABLESPACE} ask waits"
            )
        if pool.starved_s >= STARVED_S:
            who = listed(worker_holders(self))
            return (
                f"no worker came free for {pool.starved_s:.0f} s: {self.config.workers} "
                f"statements run, {workers.waiting_count} wait; the longest running are of "
                f"sessions {who or 'that have ended'} (see sysclients)"
            )
        return None

    async def wait_idle(self) -> None:
        """Wait until all connections have left and all jobs have ended; no handshake goes on."""
        workers = self.workers
        for handshake in self._handshakes:
            handshake.cancel()
        while self.connections or self._handshakes or workers.jobs or workers.is_waiting:
            if self._handshakes:
                await asyncio.wait(list(self._handshakes))
            elif self.connections:
                self._empty.clear()
                await self._empty.wait()
            else:
                await workers.wait_idle()
