"""`python -m tests.fuzz.frames --runs 1000000 --seed 7`: broken frames to server and driver.

Half go to connections of a real server over an empty database, before and after Welcome, half to
the driver's machine. Nothing may raise, nothing is executed before Welcome, and resident memory
may grow by 64 MB at most. The same seed sends the same bytes in the same pieces. Exit code 1 and
the seed when something is found.
"""

import asyncio
import random
import sys
from typing import Any

from herdpy.config import ServerConfig
from herdpy.errors import Error
from herdpy.proto import messages
from herdpy.proto.driver_machine import DriverMachine
from herdpy.proto.messages import encode_frame
from herdpy.proto.server_machine import State
from herdpy.server.server import Server
from tests.fixtures.engines import Engine
from tests.fuzz.frame_bytes import TO_DRIVER, TO_SERVER, random_frame
from tests.fuzz.watched import Watched, command
from tests.fuzz.wire import FindingError, Wire

_TURN = 32
_MESSAGES_PER_PEER = 100
_WILDNESSES = (0.0, 0.02, 0.1, 1.0)
"""Of peers: a wild one does not live long, and sees only the first states."""
_HELLO = encode_frame(messages.Hello("herdpy", 1, 1, "fuzz", "default", autocommit=True))
_SQL = "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)"


class _ServerSide:
    """One connection after the other; every fourth never says Hello."""

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._connection: Any = None
        self._left = 0
        self._wildness = 0.0
        self.count = 0

    def feed(self, rng: random.Random) -> None:
        connection = self._connection
        self._left -= 1
        if connection is None or self._left <= 0 or connection._machine.state is State.CLOSED:
            self.end()
            connection = self._connection = self._server._connection()
            connection.connection_made(Wire(self._loop, connection))
            self._left = _MESSAGES_PER_PEER
            self._wildness = rng.choice(_WILDNESSES)
            self.count += 1
            if self.count % 4:
                connection.data_received(_HELLO)
        data = random_frame(rng, TO_SERVER, self._wildness)
        cut = rng.randrange(len(data)) if rng.random() < 0.2 else 0
        if cut:
            connection.data_received(data[:cut])
        connection.data_received(data[cut:])
        if connection._machine.state is State.NEW and connection._is_running:
            raise FindingError("something runs before Welcome")

    @property
    def is_behind(self) -> bool:
        """Requests of the connection wait that would be lost with it."""
        return self._connection is not None and len(self._connection._machine._waiting) > 4

    def end(self) -> None:
        if self._connection is not None and not self._connection._is_lost:
            self._connection._transport.abort()


def feed_driver(machine: DriverMachine, rng: random.Random) -> DriverMachine:
    """Give a driver an answer; return the machine for the next one."""
    if machine.failure is not None or rng.random() < 0.02:
        machine = DriverMachine()
        machine.receive(encode_frame(messages.Welcome(1, "fuzz", 1, 1 << 20)))
    request = machine.new_request()
    for _ in machine.receive(random_frame(rng, TO_DRIVER)):
        pass
    try:
        if machine.failure is None:
            machine.abandon(request)
    except Error:
        pass
    return machine


async def run(seed: int, count: int) -> str:
    """Send so many; FindingError, or whatever was raised. Return what was seen."""
    loop = asyncio.get_running_loop()
    watched = Watched()
    engine = Engine(is_threaded=True)
    session = engine.session(autocommit=True)
    session.execute(_SQL).close()
    session.close()
    config = ServerConfig(workers=4, parameter_bytes_max=16 << 20)
    server = Server(engine.database, name="fuzz", config=config)
    rng = random.Random(seed)
    side, machine = _ServerSide(server, loop), DriverMachine()
    try:
        for number in range(count):
            if number % 2:
                side.feed(rng)
                while side.is_behind:  # noqa: ASYNC110 - lets the workers keep up
                    await asyncio.sleep(0.0005)
            else:
                machine = feed_driver(machine, rng)
            if number % _TURN == 0:
                await watched.catch_up(server, 200)
                watched.check()
            if number == count // 2:  # each worker has had large parameters by then
                watched.settle()
        growth = watched.growth()
    finally:
        side.end()
        await asyncio.sleep(0)
        await server.close()
        engine.database.close()
    return f"{count} frames, {side.count} connections, {growth}"


def main() -> int:
    return command(__doc__, "frames", run, runs=200_000, runs_per_item=1)


if __name__ == "__main__":
    sys.exit(main())
