"""Faults: what goes wrong in a seed, and when. All end with World.calm()."""

from collections.abc import Callable
from contextlib import suppress
from errno import EIO, ENOSPC
from functools import partial

from herdpy.driver.connection import Connection
from herdpy.engine.database import Database
from herdpy.engine.state.tablespace import Tablespace
from herdpy.errors import Error, InterfaceError
from tests.sim.loop import Node
from tests.sim.server.clients import Awaiting, Client, connect_as_operator
from tests.sim.server.world import HOST, World, raise_of
from tests.sim.switching import in_thread

WINDOW_S = 0.3
_LOOKED_AT = ("sysmemory", "syswaits", "syslimits", "sysleases", "sysstagings", "sysmaintenance")


class Faults:
    """Draws the faults of a seed and lets them happen."""

    def __init__(self, world: World, clients: list[Client]) -> None:
        self.world = world
        self.clients = clients
        self.rng = rng = world.new_rng()
        everything: list[Callable[[], None]] = [
            self.power_failure,
            self.power_failure_at_step,
            self.kill,
            self.cut,
            self.block,
            self.slow_link,
            self.slow_disk,
            self.pause_server,
            self.failing_disk,
            self.clock_jump,
            self.hang_up,
            self.cancel,
            self.kill_connection,
            self.reopen,
            self.reopen_amid_commits,
            self.fail_log_amid_commits,
            self.full_disk,
            self.checkpoint_behind_lost_answers,
        ]
        self.kinds = rng.choice(
            (
                [self.power_failure, self.power_failure_at_step],
                [self.power_failure_at_step, self.slow_disk],
                [self.kill, self.cut],
                [self.cut, self.block, self.slow_link],
                [self.block, self.power_failure],
                [self.slow_disk, self.pause_server, self.power_failure],
                [self.failing_disk, self.power_failure],
                [self.reopen, self.failing_disk],
                [self.reopen_amid_commits, self.slow_disk],
                [self.reopen, self.failing_disk, self.full_disk],
                [self.cancel, self.kill_connection, self.slow_disk],
                [self.kill_connection, self.kill_connection, self.cancel],
                [self.kill_connection, self.slow_disk],
                [self.kill_connection, self.slow_link],
                [self.kill_connection, self.full_disk],
                [self.reopen_amid_commits, self.failing_disk],
                [self.fail_log_amid_commits],
                [self.fail_log_amid_commits, self.slow_disk],
                [self.fail_log_amid_commits, self.slow_link],
                [self.full_disk, self.cancel],
                [self.block, self.cut],
                [self.clock_jump, self.power_failure, self.cut],
                [self.clock_jump, self.pause_server, self.full_disk],
                [self.full_disk, self.pause_server, self.reopen],
                [self.reopen, self.failing_disk, self.failing_disk],
                [self.hang_up, self.cut, self.power_failure],
                [self.slow_link, self.cancel, self.power_failure],
                [self.slow_link, self.hang_up, self.kill],
                [self.checkpoint_behind_lost_answers],
                [self.checkpoint_behind_lost_answers, self.cut],
                [self.checkpoint_behind_lost_answers, self.slow_disk],
                everything,
            )
        )

    def plan(self) -> None:
        """Arm what will happen."""
        for _ in range(self.world.plan.fault_count):
            self.world.loop.call_later(self.rng.random() * WINDOW_S, self._happen)

    def _happen(self) -> None:
        if self.world.is_rough:
            self.rng.choice(self.kinds)()

    def _aside(self, node: Node, function: Callable[[], None]) -> None:
        """Begin a thread, whose findings are the run's."""
        in_thread(node, function).add_done_callback(raise_of)

    def power_failure(self) -> None:
        self.world.host.fail_power()

    def power_failure_at_step(self) -> None:
        disk = self.world.host.disk
        disk.crash_at = disk.step_count + 1 + int(self.rng.random() * 40)
        self.world.happen("power failure at a step")

    def kill(self) -> None:
        self.world.host.kill()

    def _client(self) -> Client:
        return self.rng.choice(self.clients)

    def cut(self) -> None:
        network = self.world.loop.network
        is_silent = self.rng.random() < 0.27
        found = network.connections(self._client().node.name, HOST)
        for transport in found:
            network.cut(transport, is_silent=is_silent)
        if found:
            self.world.happen("silent cut" if is_silent else "cut")

    def block(self) -> None:
        """Let nothing through one way, or both ways, for a while."""
        network, name = self.world.loop.network, self._client().node.name
        both = ((name, HOST), (HOST, name))
        ways = self.rng.choice((both[:1], both[1:], both, both))
        for way in ways:
            network.block(*way)
        self.world.happen("one-way partition" if len(ways) == 1 else "partition")
        self.world.loop.call_later(self.rng.choice((0.01, 0.1, 1.0)), self._open, ways)

    def _open(self, ways: tuple[tuple[str, str], ...]) -> None:
        for way in ways:
            self.world.loop.network.open(*way)

    def slow_link(self) -> None:
        network, name = self.world.loop.network, self._client().node.name
        for way in ((name, HOST), (HOST, name)):
            network.link(*way).delay_s = 0.05 * self.rng.random()
        self.world.happen("slow link")

    def slow_disk(self) -> None:
        host = self.world.host
        host.slowness = self.rng.choice((10.0, 50.0))
        self.world.happen("slow disk")
        self.world.loop.call_later(0.2, self._disk_is_fast_again)

    def _disk_is_fast_again(self) -> None:
        self.world.host.slowness = 1.0

    def pause_server(self) -> None:
        node = self.world.host.node
        if node is not None and node.is_alive:
            self.world.loop.pause(node, self.rng.choice((0.01, 0.1, 0.5)))
            self.world.happen("paused server")

    def failing_disk(self) -> None:
        code = self.rng.choice((EIO, ENOSPC))
        kind = self.rng.choice(("write", "sync", "open", "sync_directory"))
        times = self.rng.choice((1, 1, 3))
        self.world.host.disk.fail(kind, code, after=int(self.rng.random() * 5), times=times)
        self.world.happen("failing disk")

    def clock_jump(self) -> None:
        self.world.host.clock.jump_us += self.rng.choice((-1, 1)) * int(self.rng.random() * 6e7)
        self.world.happen("clock jump")

    def hang_up(self) -> None:
        """End a client, whatever it does."""
        alive = [client for client in self.clients if client.node.is_alive]
        if len(alive) > 1:
            self.world.loop.crash(self.rng.choice(alive).node)
            self.world.happen("a client that went away")

    def cancel(self) -> None:
        client = self._client()
        connection = client.current
        if connection is not None and client.node.is_alive:
            self._aside(client.node, partial(_cancel, connection))
            self.world.happen("cancel")

    def kill_connection(self) -> None:
        self._aside(self.world.loop.world, self._kill)

    def _kill(self) -> None:
        """Look for a connection of another, and KILL it or its statement."""
        kind = self.rng.choice(("CONNECTION", "STATEMENT", "STATEMENT"))
        table = "sysclients" if kind == "CONNECTION" else "sysstatements"
        try:
            with connect_as_operator(self.world) as connection:
                for name in self.rng.sample(_LOOKED_AT, 2):
                    connection.execute(f"SELECT * FROM {name}").fetchall()
                for _ in range(20):  # a statement does not run for long
                    rows = connection.execute(f"SELECT id FROM {table}").fetchall()
                    found = sorted(each for (each,) in rows)[:-1]  # the newest is this one
                    if found:
                        connection.execute(f"KILL {kind} {self.rng.choice(found)}")
                        self.world.happen(f"KILL {kind}")
                        break
        except Error as error:
            self.world.say(f"KILL {kind}: {error.sqlstate} {error.message}")

    def _amid_commits(
        self,
        act: Callable[[Database], None],
        looks_left: int = 200,
        is_time: Callable[[], bool] = lambda: True,
    ) -> None:
        """Act as soon as COMMITs are in the log that are not durable, and is_time() agrees.

        Looked at every half millisecond of simulated time, looks_left times.
        """
        database = self.world.host.served
        if database is not None and _is_not_durable(database.tablespace) and is_time():
            act(database)
        elif looks_left and self.world.is_rough:
            again = partial(self._amid_commits, act, looks_left - 1, is_time)
            self.world.loop.call_later(0.000_5, again)

    def checkpoint_behind_lost_answers(self) -> None:
        """Let no answer out as soon as COMMITs are in the log, checkpoint, and end this life."""
        self._amid_commits(self._checkpoint_unheard)

    def _checkpoint_unheard(self, database: Database) -> None:
        network, node = self.world.loop.network, self.world.host.node
        ways = tuple((HOST, client.node.name) for client in self.clients)
        for way in ways:
            network.block(*way)
        self.world.happen("checkpoint behind lost answers")
        assert node is not None
        self._aside(node, partial(self._checkpoint, database))
        self.world.loop.call_later(0.05, self._kill_amid_faults)
        self.world.loop.call_later(0.05, self._open, ways)

    def _kill_amid_faults(self) -> None:
        if self.world.is_rough:  # else it may be closing in good order
            self.kill()

    def _checkpoint(self, database: Database) -> None:
        try:
            database.run_checkpoint()
        except Error as error:
            self.world.say(f"checkpoint: {error.sqlstate} {error.message}")

    def reopen_amid_commits(self) -> None:
        """Open the log anew as soon as COMMITs are in it that are not durable; it may lose them."""
        self._amid_commits(self._reopen_under)

    def _reopen_under(self, database: Database) -> None:
        if self.rng.random() < 0.7:
            self._fail_log(database, self.rng.choice(("write", "sync")))
        self.reopen()

    def fail_log_amid_commits(self) -> None:
        """Let the sync of COMMITs fail: clients are told that their outcome is not known.

        Where clients have pools, of a pool's COMMIT.
        """
        is_pooled = self.world.plan.is_pooled
        self._amid_commits(
            partial(self._fail_log, kind="sync"),
            is_time=lambda: (
                not is_pooled or any(each.is_committed_by_pool for each in self.clients)
            ),
        )

    def _fail_log(self, database: Database, kind: str) -> None:
        self.world.host.disk.fail(kind, EIO, path=f"{database.entry.folder}/log")
        self.world.happen("failing disk")

    def reopen(self) -> None:
        """Open the log anew, under the statements that run; it may fail at any step."""
        host = self.world.host
        if host.is_up and host.node is not None:
            self._aside(host.node, host.reopen)

    def full_disk(self) -> None:
        """Leave a few bytes free, for a while."""
        host = self.world.host
        host.disk.capacity_bytes = host.disk.used_bytes + int(self.rng.random() * 20_000)
        self.world.happen("full disk")
        self.world.loop.call_later(0.2, self._free_disk)

    def _free_disk(self) -> None:
        self.world.host.disk.capacity_bytes = None


def _is_not_durable(tablespace: Tablespace) -> bool:
    """Return whether the log has COMMITs that a failing disk would lose."""
    return tablespace.state.lsn > tablespace.durable_lsn or any(
        entry.ends for entry in tablespace._queue
    )


def _cancel(connection: Connection | Awaiting) -> None:
    with suppress(InterfaceError):  # it is closed
        connection.cancel()
