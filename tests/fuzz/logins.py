"""`python -m tests.fuzz.logins --runs 200000 --seed 7`: broken logins, of both sides.

Half go to connections of a server that has users: right logins, and ones that are changed, out of
order, of no user, or that repeat what another has said. A client that is told Welcome has given a
right proof, in time, and no other has; and nothing runs for others. Half go to a driver's machine
that has a password: it believes no server that has not shown that it knows it. Resident memory may
grow by 64 MB at most. Exit code 1 and the seed when something is found.
"""

import asyncio
import hashlib
import hmac
import random
import sys
from base64 import b64decode, b64encode
from typing import Any

from herdpy.config import ServerConfig
from herdpy.proto import messages
from herdpy.proto.driver_machine import DriverMachine
from herdpy.proto.messages import decode_to_driver, encode_frame
from herdpy.proto.scram import MECHANISM, MECHANISM_BOUND, ScramDriver
from herdpy.server.server import Server
from tests.fixtures.engines import Engine
from tests.fuzz.frame_bytes import TO_DRIVER, TO_SERVER, changed, frame, random_frame
from tests.fuzz.watched import Watched, command
from tests.fuzz.wire import FindingError, Wire

_PASSWORD = "correct horse"
_DROP = encode_frame(messages.Execute(1, "DROP TABLE t", None))
_BARE = "biws"  # "n,,", in base64
_TURN = 16


class _Recorded(Wire):
    """A transport that keeps what is written until it is taken."""

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: asyncio.Protocol) -> None:
        super().__init__(loop, protocol)
        self.written = b""

    def write(self, data: Any) -> None:
        self.written += data

    def take(self) -> list[Any]:
        """Return the messages that were written since."""
        data, self.written = self.written, b""
        found: list[Any] = []
        while data:
            length = int.from_bytes(data[:4], "big")
            found.append(decode_to_driver(data[4 : 4 + length]))
            data = data[4 + length :]
        return found


class Prover:
    """The client's side of SCRAM by hand, which keeps what is costly."""

    def __init__(self, password: str) -> None:
        self._password = password.encode()
        self._salted: dict[tuple[str, str], bytes] = {}

    def proof(self, bare: str, server_first: str, binding: str = _BARE) -> str:
        """Return the last message of a client that has sent `bare` first."""
        nonce, salt, iterations = (part[2:] for part in server_first.split(",")[:3])
        key = (salt, iterations)
        if key not in self._salted:
            self._salted[key] = hashlib.pbkdf2_hmac(
                "sha256", self._password, b64decode(salt), int(iterations)
            )
        client = _hmac(self._salted[key], b"Client Key")
        without = f"c={binding},r={nonce}"
        said = f"{bare},{server_first},{without}".encode()
        signature = _hmac(hashlib.sha256(client).digest(), said)
        proof = bytes(a ^ b for a, b in zip(client, signature, strict=True))
        return f"{without},p={b64encode(proof).decode()}"


def _hmac(key: bytes, data: bytes) -> bytes:
    return hmac.new(key, data, hashlib.sha256).digest()


class ServerSide:
    """Logs in to a server, rightly or not, one connection after the other."""

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._prover, self._other = Prover(_PASSWORD), Prover("another")
        self._seen = ["c=biws,r=x,p=eA=="]
        self._is_changed = False  # a byte of what was sent, which may matter or not
        self.counts = {"welcome": 0, "refused": 0}

    def run(self, rng: random.Random) -> None:
        """Do one login; FindingError."""
        connection: Any = self._server._connection()
        wire = _Recorded(self._loop, connection)
        connection.connection_made(wire)
        try:
            self._is_changed = False
            is_right = self._talk(rng, connection, wire)
            connection.data_received(_DROP)
            answers = wire.take()
            is_in = any(isinstance(each, messages.Welcome) for each in answers)
            if is_in is not is_right and (is_in or not self._is_changed):
                raise FindingError(f"a login that is right: {is_right}, and is in: {is_in}")
            if not is_in and (connection._is_running or connection._requests is not None):
                raise FindingError("something runs before Welcome")
            self.counts["welcome" if is_in else "refused"] += 1
        finally:
            wire.abort()

    def _talk(self, rng: random.Random, connection: Any, wire: _Recorded) -> bool:
        """Send a login; return whether it has to succeed."""
        user = rng.choice(("ada", "ada", "ada", "ada", "bob", "nobody", ""))
        is_right = user == "ada"
        hello = messages.Hello("herdpy", 1, 1, "fuzz", "default", autocommit=True, user=user)
        self._send(rng, connection, hello)
        self._noise(rng, connection)
        nonce = f"{rng.getrandbits(100):x}"
        bare = f"n={rng.choice(('*', 'ada', ''))},r={nonce}"
        mechanism = MECHANISM
        header = "n,,"
        if rng.random() < 0.1:
            mechanism = rng.choice((MECHANISM_BOUND, "PLAIN", "", "SCRAM-SHA-1"))
            is_right = False
        if rng.random() < 0.05:
            header, is_right = rng.choice(("p=tls-server-end-point,,", "x,,", "n,a=boss,")), False
        self._send(rng, connection, messages.ScramStart(mechanism, header + bare))
        challenge = next(
            (each for each in wire.take() if isinstance(each, messages.ScramChallenge)), None
        )
        if challenge is None:
            return False
        how = rng.random()
        prover = self._other if how < 0.1 else self._prover
        binding = b64encode(b"y,,").decode() if how > 0.95 else _BARE
        proof = prover.proof(bare, challenge.data, binding)
        is_right &= 0.1 <= how <= 0.95
        if user == "ada" and is_right:
            self._seen[:] = [*self._seen[-50:], proof]
        if rng.random() < 0.1:
            replayed = rng.choice(self._seen)
            is_right &= replayed == proof
            proof = replayed
        if rng.random() < 0.05:
            is_right = False
            self._send(rng, connection, messages.ScramStart(mechanism, header + bare))
        self._send(rng, connection, messages.ScramProof(proof))
        return is_right

    def _noise(self, rng: random.Random, connection: Any) -> None:
        """Rarely send what does not belong here; the connection is at its end then."""
        if rng.random() < 0.05:
            connection.data_received(random_frame(rng, TO_SERVER, 1.0))
            self._is_changed = True

    def _send(self, rng: random.Random, connection: Any, message: messages.Message) -> None:
        """Send a message, in pieces, or changed."""
        data = encode_frame(message)
        if rng.random() < 0.1:
            other = changed(rng, data)
            self._is_changed |= other != data
            data = other
        cut = rng.randrange(len(data)) if rng.random() < 0.2 else 0
        if cut:
            connection.data_received(data[:cut])
        connection.data_received(data[cut:])


def feed_driver(rng: random.Random) -> None:
    """Be a server that does not know the password, for one login; FindingError."""
    machine = DriverMachine(ScramDriver("ada", _PASSWORD, binding=None))
    sent = ""
    for _ in range(rng.randrange(1, 6)):
        kind = rng.random()
        if kind < 0.35:
            answer: Any = messages.LoginRequired(
                rng.choice(([MECHANISM], [MECHANISM_BOUND, MECHANISM], [], ["PLAIN"]))
            )
        elif kind < 0.65:
            nonce = sent.rpartition("r=")[2] if rng.random() < 0.8 else ""
            salt = rng.choice(("c2FsdA==", "", "!", "c2FsdA"))
            count = rng.choice(("1", "1", "100", "0", "-1", "1000001", "9" * 5000, "x", ""))
            answer = messages.ScramChallenge(
                rng.choice((f"r={nonce}abc,s={salt},i={count}", "", "m=x", f"r={nonce},,", "é,=,"))
            )
        elif kind < 0.85:
            data = rng.choice(("v=", "v=eA==", "e=other-error", "", "v=" + "A" * 43 + "="))
            answer = messages.ScramVerified(data)
        else:
            answer = messages.Welcome(1, "fuzz", 1, 1 << 20)
        data = encode_frame(answer)
        if rng.random() < 0.1:
            data = rng.choice((frame(changed(rng, data[4:])), random_frame(rng, TO_DRIVER, 1.0)))
        for reply in machine.receive(data):
            if isinstance(reply, messages.ScramStart):
                sent = reply.data
        if machine.welcome is not None:
            raise FindingError("a driver believes a server that does not know its password")
        if machine.failure is not None:
            return


async def run(seed: int, count: int) -> str:
    """Do so many logins; FindingError, or whatever was raised. Return what was seen."""
    loop = asyncio.get_running_loop()
    watched = Watched()
    engine = Engine(is_threaded=True)
    session = engine.session(autocommit=True)
    for text in (
        "CREATE TABLE t (id BIGINT PRIMARY KEY)",
        f"CREATE USER ada PASSWORD '{_PASSWORD}'",
        f"CREATE ROLE bob PASSWORD '{_PASSWORD}'",
    ):
        session.execute(text).close()
    config = ServerConfig(login_failure_delay_s=0, workers=4)
    server = Server(engine.database, name="fuzz", config=config)
    rng = random.Random(seed)
    side = ServerSide(server, loop)
    try:
        for number in range(count):
            if number % 2:
                side.run(rng)
            else:
                feed_driver(rng)
            if number % _TURN == 0:
                await watched.catch_up(server, 100)
                watched.check()
            if number == count // 5:
                watched.settle()
        growth = watched.growth()
        if min(side.counts.values()) * 20 < count:
            raise FindingError(f"expected some of both: {side.counts}")
        if [table.name for table in session.tables()] != ["t"]:
            raise FindingError("the table was dropped")
    finally:
        await asyncio.sleep(0)
        session.close()
        await server.close()
        engine.database.close()
    return f"{count} logins, {side.counts}, {growth}"


def main() -> int:
    return command(__doc__, "logins", run, runs=200_000, runs_per_item=5, items_min=200)


if __name__ == "__main__":
    sys.exit(main())
