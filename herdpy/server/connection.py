"""ServerConnection: one driver's connection: a socket, a machine, a session.

On the server's loop. Requests are carried out by workers (requests.py), one of a connection at a
time; reads and writes of one row that were planned before begin on the loop if they need not wait.
While the peer takes no answers nothing is read from it, and no further request begins.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from bookie.runtime.os_sockets import has_hung_up, keep_alive
from herdpy.engine.database import Database
from herdpy.engine.session.activity import Client, shown_text
from herdpy.engine.state.error_messages import system_error
from herdpy.engine.statements.lock_wait import LockWait
from herdpy.engine.writes.nonblocking import PendingWrite
from herdpy.errors import (
    Error,
    InternalError,
    OperationalError,
    ProgrammingError,
    ProtocolError,
    QueryCanceledError,
    Retry,
)
from herdpy.model.access import User
from herdpy.proto import messages
from herdpy.proto.messages import Message, Welcome, encode_frame
from herdpy.proto.parameters import decode_small_parameters
from herdpy.proto.scram import ScramServer, login_failed
from herdpy.proto.server_machine import (
    Action,
    Close,
    Login,
    Run,
    Send,
    ServerMachine,
    Skip,
    Start,
    State,
    Stop,
)
from herdpy.server.limits import PARAMETER_BYTES, REQUEST_BYTES, Account
from herdpy.server.login.gate import TABLESPACE_KEY, too_slow
from herdpy.server.login.handshake import LINGER_S, Handshake
from herdpy.server.login.login_tokens import Proven, proven_of
from herdpy.server.login.throttle import origin_of
from herdpy.server.login.tls import ServerTls
from herdpy.server.operations.metrics import kind_of
from herdpy.server.requests.part_check import MAX_STALENESS_S, READ_MODES, PartCheck
from herdpy.server.requests.requests import Requests
from herdpy.server.served import Part, Served, Tenure
from herdpy.server.user_shares import Kind, Turn
from herdpy.server.workers import RESERVED_S
from herdpy.sql.plan import Parameters

if TYPE_CHECKING:
    from herdpy.server.hub import Hub

_log = logging.getLogger(__name__)
_QUEUED = messages.Execute | messages.ExecuteMany | messages.ExecuteAll | messages.ReadPartition
_GIVEN_UP = _QUEUED | messages.Fetch
"""What is answered when it is cancelled and waits for its turn."""
_FREEING = messages.CloseResult | messages.DropIngest | messages.CloseExport
"""What is done in a moment, has no answer, and gives back what others may wait for."""
_GOING_ON = (
    _FREEING | messages.Fetch | messages.NextPiece | messages.IngestRows | messages.FinishIngest
    | messages.WaitFor
)  # fmt: skip
"""What is of something that has begun, or writes and reads nothing: no hand-over defers it."""
_Answering = asyncio.Future[Any]
_WRITE_HIGH_WATER = 256 * 1024
_AHEAD_BYTES = 4 * 1024 * 1024
"""More than a piece of a result has, unless one row is longer. While more waits, none is made."""
_STOP_AGAIN_S = 0.01
_POSITION_S = 0.005
"""How often a copy's position is looked at that a client waits for."""
_LOOK_S = 0.05
"""How often a peer that is not read is looked at: the loop does not see that it is gone."""
_CANCELLED = "57014"
_TELLING = messages.ExecuteAll | messages.WaitFor
"""What tells of the copy also when it is cancelled: earlier answers, or where the copy is."""


class _Held:
    """An answer that waits for a tenure."""

    __slots__ = ("begun_s", "frame", "message", "timer")

    def __init__(self, message: messages.ToServer, begun_s: float, frame: Any) -> None:
        self.message = message
        self.begun_s = begun_s
        self.frame = frame
        self.timer: asyncio.TimerHandle | None = None  # of its time-out


class ServerConnection(asyncio.Protocol):
    def __init__(
        self, hub: "Hub", number: int, tls: ServerTls | None = None, *, may_move: bool = False
    ) -> None:
        """may_move: Hello may name a tablespace of another server behind the port."""
        self.number = number
        self._may_move = may_move
        self.encode: Callable[[Message], Any] = encode_frame
        """Makes of a message what its transport writes; any thread. Until connection_made()."""
        self.peer = ""
        self.protocol = "tcp"
        self.client = ""
        self._hub = hub
        self._machine = ServerMachine()
        self._actions: deque[Action] = deque()
        self._is_acting = False
        self._transport: asyncio.Transport | None = None
        self._requests: Requests | None = None
        self._is_running = False
        self._is_cancelled = False  # what runs
        self._is_lost = False
        self._is_reading_paused = False
        self._is_writing_paused = False
        self._tls = tls
        self._is_securing = False  # the handshake of TLS runs: nothing else may be sent
        self._handshake: Handshake | None = None
        self._hello: messages.Hello | None = None
        self._login: ScramServer | None = None
        self.proven: Proven | None = None
        """What its login has proved; None: there was none, or none was asked for."""
        self._believed: Proven | None = None  # what the peer has proved before it began
        self._login_tablespace: str | None = None  # whose users its login is about; None: as Hello
        self._found: Served | None = None  # what Hello has named; None: it is not open
        self._served = hub.default
        """The tablespace, from _enter() on."""
        self._claimed: Proven | None = None  # what its login will prove
        self._timer: asyncio.TimerHandle | None = None  # of the login, then of the close
        self._pause: asyncio.TimerHandle | None = None  # before a login that has to wait
        self._turn: tuple[Turn, messages.ToServer, float] | None = None
        """What waits for its turn, with its message and when it began."""
        self._turn_bytes = 0  # of that message: it counts as received until its turn
        self._submitted_s: float | None = None  # when what runs was given to the workers
        self._queued_s: float | None = None  # the same, if it had to wait for a worker
        self.has_worker = False
        """What runs has, or waits for, one of the workers that are not for transactions."""
        self._is_held = False  # what ran was answered, and what waits was not begun
        self._held: Callable[[], None] | None = None  # what waits for a tenure, or did last
        self._held_answer: _Held | None = None  # the same, unless that is a login
        self._deferred: tuple[messages.ToServer, int] | None = None
        """What is not begun while its node hands over, and how long it is."""
        self.received = Account(hub.received, REQUEST_BYTES)
        """What counts the requests of the peer that wait, or have not come whole."""
        self._received_bytes = 0  # of that, what the machine has kept

    # --- the loop --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.peer = peer_address(transport.get_extra_info("peername"))
        self.protocol = transport.get_extra_info("protocol") or "tcp"
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH_WATER)
        keep_alive(transport)  # else the locks of a client whose machine is gone would stay
        self._is_securing = self._tls is not None
        refusal = self._hub.admit(self)
        if refusal is not None:
            self._audit("refused", reason=refusal.message)
            self.refuse(refusal)
            return
        timeout_s = self._hub.config.login_timeout_s
        self._timer = self._hub.loop.call_later(timeout_s, self._expire, timeout_s)
        if self._tls is not None:
            self._transport.pause_reading()
            self._handshake = Handshake(self._transport, self, self._tls, timeout_s)
            self._hub.secure(self._secure(self._transport, self._handshake))

    def data_received(self, data: bytes) -> None:
        if self._is_securing:
            if self._handshake is not None:
                self._handshake.early += data
            return
        hub, machine = self._hub, self._machine
        if hub.spins:
            hub.spinning.on_receive(self.number)
        self._do(machine.receive(data))
        if machine.is_holding or self._received_bytes or self._is_reading_paused:
            self._count_received()
            self._pause_or_resume()
        if hub.is_draining:
            self.drain()

    def take(self, message: Message, byte_count: int) -> None:
        """Take a message that came in no frame, of so many bytes."""
        self._do(self._machine.take(message, byte_count))
        self._count_received()
        self._pause_or_resume()
        self.drain()

    def pause_writing(self) -> None:
        self._is_writing_paused = True
        self._pause_or_resume()
        if self._transport is not None:
            self._hub.stall(self, self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        self._hub.stalled.remove(self)
        if self._is_held:
            self._is_held = False
            self._do(self._machine.on_reply())
        self._pause_or_resume()
        self.drain()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        self._stop_timer()
        self._stop_pause()
        self._give_up_tls()
        self._forget_held()
        self._end_deferral()
        if self._requests is not None:
            self._audit("logout")
        self._do(self._machine.close("the connection was lost"))
        self._hub.leave(self)
        self.received.give(self._received_bytes)
        self._received_bytes = 0
        if not self._is_running:
            self._end_session()

    def _pause_or_resume(self) -> None:
        transport = self._transport
        if transport is None or self._is_lost or transport.is_closing():
            return
        is_paused = self._is_writing_paused or self._machine.is_full
        if is_paused != self._is_reading_paused:
            self._is_reading_paused = is_paused
            if is_paused:
                transport.pause_reading()
                self._look()
            else:
                transport.resume_reading()

    def _look(self) -> None:
        """While nothing is read from the peer, end what runs for one that has closed."""
        transport = self._transport
        if transport is None or self._is_lost or not self._is_reading_paused:
            return
        if (self._is_running or self._held_answer is not None) and has_hung_up(transport):
            self._do(self._machine.close("the peer has closed"))
        elif self._machine.state is not State.CLOSED:
            self._hub.loop.call_later(_LOOK_S, self._look)

    def _count_received(self) -> None:
        """Have what is kept for the peer counted; one beyond the server's limit is ended."""
        byte_count = self._machine.buffered_byte_count
        self._machine.is_holding = byte_count > 0 or self._machine.is_full
        more = byte_count - self._received_bytes
        if more < 0:
            self.received.give(-more)
        elif more:
            full = self.received.take(more)
            if full is not None:
                self.refuse(self._hub.too_much_received(full))
                return
        self._received_bytes += more

    # --- getting in ------------------------------------------------------------------------------

    def believe(self, proven: Proven | None, tablespace: str) -> None:
        """Ask the peer for no login: it has proved this before. Before connection_made().

        It begins only if the login counts still, in the very tablespace that it is of, whatever
        has its name by then. None: it has a password to show, of a user of this tablespace and no
        other.
        """
        self._believed = proven
        self._login_tablespace = tablespace

    @property
    def user(self) -> User | None:
        """The user that has logged in; None: none has, or no login was asked for."""
        return None if self.proven is None else self.proven.user

    @property
    def database(self) -> Database:
        """The tablespace that it has entered."""
        return self._served.database

    def shown_name(self, database_name: str) -> str:
        """Return the name by which clients know a tablespace of the server that it has entered."""
        return self._hub.shown_name(database_name)

    def waits_for_turn_of(self, other: "ServerConnection") -> bool:
        """Return whether what waits for its turn waits for what the other one runs. Any thread."""
        turn = self._turn
        if turn is None or self._served is not other._served:  # noqa: SLF001 - its own kind
            return False
        if self._served.shares.waits_for_tablespace(turn[0]):
            return other.has_worker
        return self.user == other.user

    async def _secure(self, transport: asyncio.Transport, handshake: Handshake) -> None:
        """Begin TLS; a client that does not is gone."""
        secured: asyncio.Transport | None = None
        try:
            secured = await handshake.run()
        except Exception as error:  # noqa: BLE001 - whatever it is, the connection ends
            self._audit("tls_failed", reason=str(error) or "the connection was lost")
        finally:
            if secured is None or secured.is_closing() or self._machine.state is State.CLOSED:
                (secured or transport).abort()
                # Not every kind of loop tells that the connection ended during the handshake.
                self.connection_lost(None)
        if secured is None or self._is_lost:
            return
        secured.set_write_buffer_limits(high=_WRITE_HIGH_WATER)
        self._transport = secured
        self._is_securing = False
        early = handshake.take_early()
        if early:
            self.data_received(early)

    def _give_up_tls(self) -> None:
        """End a handshake that is under way."""
        if self._handshake is not None:
            self._handshake.give_up()

    def _forget_held(self) -> None:
        """Let what waits for a tenure go; repeatable."""
        self._end_hold()
        held, self._held = self._held, None
        for served in (self._served, self._found):
            if held is not None and served is not None and served.part is not None:
                served.part.forget(held)

    def _start_late(self, hello: messages.Hello) -> None:
        if self._machine.state is not State.CLOSED:
            self._start(hello)
            self._pause_or_resume()

    def _start(self, hello: messages.Hello) -> None:
        self._hello = hello
        if not self._moved(hello.tablespace):
            return
        self._hub.unauthenticated.logs_in(self)
        self.client = hello.client
        hub, user, pause_s = self._hub, hello.user, 0.0
        # Whose user it is, to the end of the login: the name may become another tablespace's.
        self._found = found = hub.find_served(hello.tablespace)
        if found is not None and found.part is not None and not found.part.holds():
            # Who may log in is what another node may have changed.
            self._wait_for_tenure(found.part, partial(self._start_late, hello))
            return
        gate, database = hub.gate, self._database
        # Looked up before the proof, and so that of no other user than the one it is of.
        self._claimed = claimed = self._login_now()
        login = None if claimed is None else claimed.login
        try:
            self._check_part(hello)
            self._check_login_is_of(hello.tablespace)
            if self._believed is not None and self._believed.user.name == user:
                self._check_counts(self._believed, hello.tablespace)
                gate.check_again(user, hello.tablespace, self._certificate, login)
            else:
                binding = None if self._tls is None else self._tls.binding
                self._login = gate.begin(
                    user, binding, self._certificate, database, login, hello.tablespace
                )
                if self._login is not None:
                    pause_s = gate.throttle.begin(origin_of(self.peer))
        except Error as error:
            self._audit("refused", reason=error.message)
            self.refuse(error)
            return
        if self._login is None:
            self.proven = claimed
            self._enter()
        elif pause_s:
            self._pause = self._hub.loop.call_later(pause_s, self._offer)
        else:
            self._offer()

    def _moved(self, tablespace: str) -> bool:
        """Become one of the server of a tablespace; False: it has been refused."""
        neighbours = self._hub.neighbours
        if not self._may_move or neighbours is None:
            return True
        hub = neighbours.find(tablespace)
        refusal = neighbours.refusal() if hub is None else None
        if hub is not None and hub is not self._hub:
            self._hub.leave(self)
            self._hub, self._served = hub, hub.default  # bytes received are the port's still
            refusal = hub.admit(self)
        if refusal is not None:
            self._audit("refused", reason=refusal.message)
            self.refuse(refusal)
            return False
        return True

    def _check_part(self, hello: messages.Hello) -> None:
        """Refuse who asks for a node of another part; before the login, which may be a newer one.

        A copy that follows may not have heard of a user yet whom the leader knows.
        """
        if hello.read not in READ_MODES:
            raise ProgrammingError(
                f"read: expected one of {', '.join(READ_MODES[1:])}, found {hello.read!r:.60}",
                sqlstate="22023",
            )
        part = None if self._found is None else self._found.part
        if part is not None:
            part.check_hello(hello.read, hello.max_staleness_s or MAX_STALENESS_S)
        elif hello.read == "follower":
            raise OperationalError(
                "a node that follows is asked for, and this server is no node of a cluster",
                sqlstate="25006",
                retry=Retry.SAFE,
                hint="leave read=follower out of the URL",
            )

    @property
    def _database(self) -> Database | None:
        """The tablespace that Hello has named, None: it is not open, or there is none."""
        return None if self._found is None else self._found.database

    def _login_now(self) -> Proven | None:
        """Return what a proof would be good for now; None: no user is named, or there is none."""
        hello, database = self._hello, self._database
        assert hello is not None
        return proven_of(database, hello.user) if hello.user and database is not None else None

    def _check_counts(self, proven: Proven, tablespace: str) -> None:
        """Raise 28000 unless a login before is one of the tablespace, and of the user, found now.

        Since it was proved the names may have become those of others, and the password another.
        """
        database = self._database
        if database is None or database.entry.id != proven.tablespace_id:
            raise OperationalError(
                f'the login is of another tablespace than the one that is "{tablespace[:63]}" now',
                sqlstate="28000",
                hint="Log in again.",
            )
        if not proven.counts(self._claimed):
            raise OperationalError(
                f'the login of user "{proven.user.name[:63]}" does not count any more: the '
                "password has changed, or the user was dropped or may not log in",
                sqlstate="28000",
                hint="Log in again.",
            )

    def _check_login_is_of(self, tablespace: str) -> None:
        """Raise 28000 when the client has logged in before, to another tablespace than this.

        Users are each tablespace's own: one of the same name elsewhere is another one.
        """
        proved_in = self._login_tablespace
        if proved_in is not None and not self._hub.are_same(proved_in, tablespace):
            raise OperationalError(
                f'the login is of tablespace "{proved_in}", and "{tablespace[:63]}" is asked for',
                sqlstate="28000",
                hint=f"Name it in the call's metadata, too: {TABLESPACE_KEY}.",
            )

    @property
    def _certificate(self) -> bytes | None:
        """The client's certificate (DER), None: it has shown none."""
        transport = self._transport
        assert transport is not None
        tls = transport.get_extra_info("ssl_object")
        if tls is None:
            return transport.get_extra_info("certificate")
        return tls.getpeercert(True)

    def _offer(self) -> None:
        self._stop_pause()
        login = self._login
        assert login is not None
        self._do(self._machine.ask(login.offer()))
        self._pause_or_resume()

    def _stop_pause(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
            self._hub.gate.throttle.end(origin_of(self.peer))

    def _log_in(self, message: messages.ScramStart | messages.ScramProof) -> None:
        login, hello = self._login, self._hello
        assert login is not None
        assert hello is not None
        reason = ""
        try:
            if isinstance(message, messages.ScramStart):
                self._do(self._machine.ask(login.challenge(message)))
                return
            verified = login.verify(message)
            reason = "the password or the user has changed since the login began"
            claimed = self._claimed
            if claimed is None or not claimed.counts(self._login_now()):
                raise login_failed(hello.user)
        except ProtocolError as error:
            self._audit("login_failed", reason=error.message)
            self.refuse(error)
        except Error as error:
            reason = reason or self._hub.gate.why_not(hello.user, hello.tablespace, self._database)
            self._audit("login_failed", reason=reason)
            self._hub.gate.throttle.failed(origin_of(self.peer))
            delay_s = self._hub.config.login_failure_delay_s
            self._hub.loop.call_later(delay_s, self.refuse, error)
        else:
            self.proven = claimed
            self._enter(verified)

    def _enter(self, *before: Message) -> None:
        """Make the session and say Welcome."""
        hello, hub = self._hello, self._hub
        assert hello is not None
        try:
            name = None if self.user is None else self.user.name
            self._served = served = self._found or hub.served(hello.tablespace)
            is_administrator = served.database.is_administrator(name)
            hub.enter(self, served, self.user, is_administrator=is_administrator)
            client = Client(self.protocol, self.peer, self._kill)
            session = hub.session(hello, served, client, self.user)
        except Error as error:
            self._audit("refused", reason=error.message)
            self.refuse(error)
            return
        self._stop_timer()
        self._login = None
        self.received.enter(served.received, self.user)
        self._requests = Requests(
            session,
            self.encode,
            served.results,
            Account(hub.parameters, PARAMETER_BYTES).enter(served.parameters, self.user),
            hub.clock,
            self._audit,
            served.kept_exports,
            None if served.part is None else PartCheck(served.part, hello.max_staleness_s),
        )
        self._audit("login", session=session.id)
        welcome = Welcome(
            messages.VERSION,
            hub.name,
            session.id,
            messages.FRAME_BYTES_MAX,
            session.token_session,
        )
        self._do(self._machine.welcome(*before, welcome))

    def _expire(self, timeout_s: float) -> None:
        error = too_slow(timeout_s)
        self._audit("refused", reason=error.message)
        self.refuse(error)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _audit(self, event: str, **fields: Any) -> None:
        hello, found = self._hello, self._found
        tablespace = "" if hello is None else hello.tablespace
        self._hub.gate.audit.record(
            event,
            tablespace=tablespace if found is None else found.database.name,
            connection=self.number,
            peer=self.peer,
            user="" if hello is None else hello.user,
            client=self.client,
            **fields,
        )

    # --- actions ---------------------------------------------------------------------------------

    def _do(self, actions: list[Action]) -> None:
        """Carry out actions, and those that come of them, in order and without recursion."""
        waiting = self._actions
        waiting += actions
        if self._is_acting:
            return
        self._is_acting = True
        try:
            while waiting:
                action = waiting.popleft()
                if isinstance(action, Send):
                    self._send(action.message)
                elif isinstance(action, Run):
                    self._run(action.message)
                elif isinstance(action, Skip):
                    self._skip(action.message)
                elif isinstance(action, Stop):
                    self._is_cancelled = True
                    self._stop()
                elif isinstance(action, Start):
                    self._start(action.hello)
                elif isinstance(action, Login):
                    self._log_in(action.message)
                else:
                    self._close(action)
        finally:
            self._is_acting = False

    def _send(self, message: Message) -> None:
        if self._transport is not None and not self._is_lost and not self._is_securing:
            self._transport.write(self.encode(message))

    def _close(self, close: Close) -> None:
        _log.debug("connection %d of %s ends: %s", self.number, self.peer, close.reason)
        transport = self._transport
        if transport is None or self._is_lost:
            return
        self._stop_timer()
        if self._is_securing:
            transport.abort()
            self._give_up_tls()
            return
        transport.close()
        # A peer that takes nothing would keep it open.
        self._timer = self._hub.loop.call_later(LINGER_S, transport.abort)

    def _run(self, message: messages.ToServer) -> None:
        self._is_cancelled = False
        requests = self._requests
        assert requests is not None
        hub, part = self._hub, self._served.part
        begun_s = hub.clock.monotonic()
        is_deferred = part is not None and part.is_deferring and not requests.in_transaction
        if part is not None and is_deferred and not isinstance(message, _GOING_ON):
            self._defer(message, begun_s, requests, part)
            return
        if isinstance(message, messages.Execute):
            try:
                parameters = decode_small_parameters(message.parameters)
            except Error:
                parameters = None  # once more, where errors are answered
            if parameters and self._at_once(message, parameters, requests, begun_s):
                return
        elif isinstance(message, messages.WaitFor):
            self._await_position(message, requests, begun_s)
            return
        self._served.loop_sync.asked(self.number)
        if requests.in_transaction:
            job = partial(requests.carry_out, message)
            self._submit(message, begun_s, job, is_urgent=True)
        elif hub.workers.are_busy and requests.is_administrator:
            self._run_reserved(message, begun_s, requests)
        else:
            self._queue(message, begun_s, requests)

    def _defer(
        self, message: messages.ToServer, begun_s: float, requests: Requests, part: Part
    ) -> None:
        """Let a request wait that the next leader may have to run. It counts as received."""
        byte_count = self._machine.running_byte_count
        full = self.received.take(byte_count)
        if full is not None:
            frame = requests.failed(message, self._hub.too_much_received(full))
            self._note(message, requests, begun_s)
            self._answer(message, begun_s, frame)
            return
        self._deferred = message, byte_count
        part.wait_to_begin(self._begin_deferred)

    def _end_deferral(self) -> messages.ToServer | None:
        """Return what was not begun, which waits no more; None: nothing was."""
        deferred, self._deferred = self._deferred, None
        if deferred is None:
            return None
        message, byte_count = deferred
        self.received.give(byte_count)
        part = self._served.part
        if part is not None:
            part.forget(self._begin_deferred)
        return message

    def _begin_deferred(self) -> None:
        """Begin what has waited: the hand-over was given up."""
        message = self._end_deferral()
        if message is not None:
            self._run(message)

    def _skip(self, message: messages.ToServer) -> None:
        """Answer a statement that was cancelled while it waited; carry out anything else."""
        if isinstance(message, _QUEUED):
            self._cancel_unbegun(message)
        else:
            self._run(message)
            self._is_cancelled = True
            self._stop()

    def _cancel_unbegun(self, message: messages.ToServer) -> None:
        """Answer a request that was cancelled, and never begun."""
        requests = self._requests
        assert requests is not None
        error = QueryCanceledError("the statement was cancelled: it had not begun")
        frame, now_s = requests.failed(message, error), self._hub.clock.monotonic()
        self._note(message, requests, now_s)
        self._answer(message, now_s, frame, is_cancelled=True)

    def _submit(
        self,
        message: messages.ToServer,
        begun_s: float,
        job: Callable[[], Any],
        *,
        is_urgent: bool,
        is_again: bool = False,
    ) -> None:
        """Have a worker carry out a request, when it is its user's turn, and its tablespace's."""
        self._is_running = True
        shares = self._served.shares
        is_statement = isinstance(message, _QUEUED)
        is_shared = not is_urgent and shares.usual_max is not None
        takes_turn = is_statement or (is_shared and not isinstance(message, _FREEING))
        user = self.user if takes_turn else None
        if user is None:
            self._begin(message, begun_s, job, None, is_urgent=is_urgent)
            return
        kind = Kind.OTHER
        if is_statement:
            kind = Kind.URGENT if is_urgent else Kind.STATEMENT
        end = partial(shares.end, user, kind)
        begin = partial(self._begin, message, begun_s, job, end, is_urgent=is_urgent)
        turn = shares.begin(user, kind, begin, is_again=is_again)
        if turn is not None:
            self._await_turn(turn, message, begun_s)

    def _await_turn(self, turn: Turn, message: messages.ToServer, begun_s: float) -> None:
        """Note what waits for its turn. Its message counts as received until then."""
        self._turn = turn, message, begun_s
        byte_count = self._machine.running_byte_count
        full = self.received.take(byte_count)
        if full is None:
            self._turn_bytes = byte_count
        else:
            self._served.shares.give_up(turn)
            self._give_up(message, begun_s, self._hub.too_much_received(full))

    def _end_turn(self) -> None:
        """Note that nothing waits for its turn any more."""
        self._turn = None
        self.received.give(self._turn_bytes)
        self._turn_bytes = 0

    def _begin(
        self,
        message: messages.ToServer,
        begun_s: float,
        job: Callable[[], Any],
        end: Callable[[], None] | None,
        *,
        is_urgent: bool,
    ) -> None:
        """Give a request to a worker; `end` ends the turn that it takes."""
        if self._turn is not None:
            self._end_turn()
        workers = self._hub.workers
        self._submitted_s, self.has_worker = begun_s, not is_urgent
        self._queued_s = begun_s if workers.are_busy and not is_urgent else None
        running = workers.submit(job, is_urgent=is_urgent)
        if end is not None:
            running.add_done_callback(lambda _: end())
        running.add_done_callback(partial(self._carried_out, message, begun_s))

    def _run_reserved(self, message: messages.ToServer, begun_s: float, requests: Requests) -> None:
        """Carry out what an administrator needs to see the server; all else waits for a worker.

        So does a query of system tables that takes long: a product of some has no end.
        """
        self._is_running = True
        job = partial(requests.carry_out_reserved, message)
        running = self._hub.workers.submit_reserved(job)

        def end(future: _Answering) -> None:
            is_done = future.cancelled() or future.exception() is not None
            if is_done or future.result() is not None:
                self._carried_out(message, begun_s, future)
            elif self._is_lost:
                self._is_running = False
                self._end_session()
            else:
                self._queue(message, begun_s, requests)
                self._count_received()
                self._pause_or_resume()
                self.drain()

        running.add_done_callback(end)
        self._end_late(running, requests, begun_s)

    def _end_late(self, running: _Answering, requests: Requests, begun_s: float) -> None:
        """Stop what runs on a reserved worker, once it has had it for too long."""
        if running.done():
            return
        runs_s = self._hub.clock.monotonic() - requests.begun_s
        if requests.begun_s >= begun_s and runs_s >= RESERVED_S:
            requests.give_up_reserved()
        self._hub.loop.call_later(_LOOK_S, self._end_late, running, requests, begun_s)

    def _queue(self, message: messages.ToServer, begun_s: float, requests: Requests) -> None:
        """Have a worker carry out a request outside a transaction, unless too many wait for one."""
        refusal = self._hub.check_queue() if isinstance(message, _QUEUED) else None
        if refusal is not None:
            self._is_running = False
            self._answer(message, begun_s, requests.failed(message, refusal))
            return
        self._submit(message, begun_s, partial(requests.carry_out, message), is_urgent=False)

    def _park(
        self, message: messages.ToServer, begun_s: float, requests: Requests, wait: LockWait
    ) -> None:
        """Have the request go on behind its wait. Its message counts as received until then."""
        hub, byte_count = self._hub, self._machine.running_byte_count
        full = self.received.take(byte_count)
        if full is not None:
            self._give_up(message, begun_s, hub.too_much_received(full))
            return

        def go_on() -> None:
            self.received.give(byte_count)
            job = partial(requests.carry_out, message, is_again=True)
            self._submit(message, begun_s, job, is_urgent=True, is_again=True)

        hub.workers.park(wait, go_on)

    def _at_once(
        self,
        message: messages.Execute,
        parameters: Parameters,
        requests: Requests,
        begun_s: float,
    ) -> bool:
        """Read or write a row here, if that takes no wait but for the disk."""
        hub = self._hub
        plan = requests.plans.get(message.text)
        if plan is None:
            return False
        frame = None if plan.is_write else requests.read_row(message, plan, parameters)
        if frame is not None:
            took_s = hub.clock.monotonic() - begun_s
            hub.metrics.observe("select", None, took_s)
            self._served.loop_sync.asked(self.number)
            self._answer(message, begun_s, frame)
            return True
        if not plan.is_write:
            return False
        try:
            begun = requests.write_row(message, plan, parameters)
        except Exception as error:  # noqa: BLE001 - a bug, which is this request's alone
            begun = self._bug(message, requests, error)
        if begun is None:
            return False
        if not isinstance(begun, PendingWrite):
            self._note(message, requests, begun_s)
            self._answer(message, begun_s, begun)
            return True
        assert begun.outcome is not None
        self._is_running = True
        hub.workers.when_done(
            begun.outcome, partial(self._written, message, begun_s, requests, begun)
        )
        self._served.loop_sync.ask(self.number, begun.transaction.durability)
        return True

    def _await_position(
        self, message: messages.WaitFor, requests: Requests, begun_s: float
    ) -> None:
        """Answer when the copy has a position, here: no worker waits."""
        self._is_running = True
        now_s = self._hub.clock.monotonic()
        if not self._is_lost:
            reached = self._is_cancelled or requests.has_reached(message)
            if not reached and now_s - begun_s < min(message.timeout_s, messages.WAIT_FOR_S_MAX):
                self._hub.loop.call_later(
                    _POSITION_S, self._await_position, message, requests, begun_s
                )
                return
        part = self._served.part
        lag_s = 0.0 if part is None else part.lag_s()
        frame = requests.reached(message, lag_s, is_cancelled=self._is_cancelled)
        self._ran(message, begun_s, frame)

    def _stop(self) -> None:
        """Cancel what runs, again until it has ended: the first time it may not have begun."""
        if not self._is_cancelled:
            return  # that has ended, and what runs or waits now is another one
        deferred = self._end_deferral()
        if deferred is not None:
            self._cancel_unbegun(deferred)
            return
        if self._held_answer is not None:
            self._cancel_held(self._held_answer)
            return
        if self._turn is not None:
            turn, message, begun_s = self._turn
            # Anything else that is cancelled is carried out, as where it waits for a worker.
            is_over = isinstance(message, _GIVEN_UP) or self._machine.state is State.CLOSED
            if is_over and self._served.shares.give_up(turn):
                error = QueryCanceledError("the statement was cancelled: it waited for its turn")
                self._give_up(message, begun_s, error)
                return
        if self._is_running and self._requests is not None:
            self._requests.cancel()
            self._hub.loop.call_later(_STOP_AGAIN_S, self._stop)

    def _give_up(self, message: messages.ToServer, begun_s: float, error: Error) -> None:
        """Answer a request that waits for a lock or its turn and must not go on."""
        if self._turn is not None:
            self._end_turn()
        requests = self._requests
        assert requests is not None
        self._is_running = True
        job = partial(requests.give_up, message, error)
        running = self._hub.workers.submit(job, is_urgent=True)
        running.add_done_callback(partial(self._carried_out, message, begun_s))

    def _written(
        self, message: messages.Execute, begun_s: float, requests: Requests, begun: PendingWrite
    ) -> None:
        try:
            frame = requests.end_write(message, begun)
        except Exception as error:  # noqa: BLE001 - a bug, which is this request's alone
            frame = self._bug(message, requests, error)
        self._ran(message, begun_s, frame)

    def _carried_out(
        self,
        message: messages.ToServer,
        begun_s: float,
        future: _Answering,
        *,
        is_noted: bool = False,
    ) -> None:
        self._submitted_s = self._queued_s = None
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        requests = self._requests
        assert requests is not None
        if error is None:
            frame = future.result()
            if isinstance(frame, LockWait):
                self._park(message, begun_s, requests, frame)
                return
        else:
            frame = self._bug(message, requests, error)
        self._ran(message, begun_s, frame, is_noted=is_noted)

    def _ran(
        self, message: messages.ToServer, begun_s: float, frame: Any, *, is_noted: bool = False
    ) -> None:
        """Answer what ran. is_noted: it was counted, and its answer is another one now."""
        self._is_running = False
        requests = self._requests
        assert requests is not None
        if self._is_lost:
            self._end_session()
            return
        if not is_noted:
            self._note(message, requests, begun_s)
        is_cancelled = requests.sqlstate == _CANCELLED and not isinstance(message, _TELLING)
        self._answer(message, begun_s, frame, is_cancelled=is_cancelled)
        if self._machine.is_holding or self._received_bytes or self._is_reading_paused:
            self._count_received()
            self._pause_or_resume()
        if self._hub.is_draining:
            self.drain()

    def _bug(self, message: messages.ToServer, requests: Requests, error: BaseException) -> Any:
        refused = system_error(error)
        if refused is not None:
            return requests.failed(message, refused)
        _log.error("connection %d: a bug: %r", self.number, error, exc_info=error)
        return requests.failed(message, InternalError(f"the server failed: {error!r}"))

    def _note(self, message: messages.ToServer, requests: Requests, begun_s: float) -> None:
        """Count what was carried out, and log what took long."""
        hub, kind = self._hub, kind_of(message)
        took_s = hub.clock.monotonic() - begun_s
        in_transaction = requests.is_left_in_transaction
        hub.metrics.observe(kind, requests.sqlstate, took_s, in_transaction=in_transaction)
        slow_s = hub.config.slow_statement_s
        if not slow_s or took_s < slow_s:
            return
        hub.metrics.slow_statements += 1
        fields = {
            "kind": kind,
            "duration_s": round(took_s, 6),
            "waited_s": round(max(0.0, requests.begun_s - begun_s), 6),
            "sqlstate": requests.sqlstate,
            "connection": self.number,
            "peer": self.peer,
            "client": self.client,
            "in_transaction": in_transaction,
            "statement": shown_text(getattr(message, "text", "")),
        }
        _log.warning("slow statement", extra={"fields": fields})

    def _answer(
        self,
        message: messages.ToServer,
        begun_s: float,
        frame: Any,
        *,
        is_cancelled: bool = False,
    ) -> None:
        """Send what a request is answered. is_cancelled: that says that it did nothing, alone."""
        part, machine = self._served.part, self._machine
        is_open = machine.state is not State.CLOSED  # else the peer was told the end already
        if part is not None and is_open and not is_cancelled and not part.holds():
            # Another node may lead by now. What ran counts as running until it is answered.
            self._hold(part, _Held(message, begun_s, frame))
            return
        if is_open:
            if self._transport is not None and not self._is_lost:
                self._transport.write(frame)
            if self.protocol == "tcp":
                self._hub.common.answers += 1
                if self._hub.spins:  # not for gRPC, whose threads need the interpreter
                    self._hub.spin()
        if not self._is_writing_paused or self._may_go_ahead():
            actions = machine.on_reply()
            if actions:
                self._do(actions)
        else:
            self._is_held = True

    # --- held answers ----------------------------------------------------------------------------

    def _wait_for_tenure(self, tenure: Tenure, go_on: Callable[[], None]) -> None:
        """Go on under the tenure, if the client is there then."""
        self._held = go_on
        tenure.wait(go_on)

    def _hold(self, part: Part, held: _Held) -> None:
        """Keep an answer until the tenure covers it, or its client waits for it no more."""
        requests, hub = self._requests, self._hub
        assert requests is not None
        self._held_answer = held
        timeout_s = requests.timeout_s(held.message)
        if timeout_s is not None:
            until_s = max(held.begun_s, requests.begun_s) + timeout_s
            left_s = max(0.0, until_s - hub.clock.monotonic())
            held.timer = hub.loop.call_later(left_s, self._time_out_held, held)
        cancel = partial(self._cancel_held, held)
        requests.show_held(held.begun_s, lambda: hub.loop.call_soon_threadsafe(cancel))
        self._wait_for_tenure(part, partial(self._release, held))

    def _release(self, held: _Held) -> None:
        """Ask again whether an answer may leave, unless its wait was ended meanwhile."""
        if held is self._held_answer:
            self._end_hold()
            self._answer(held.message, held.begun_s, held.frame)

    def _end_hold(self) -> None:
        held, self._held_answer = self._held_answer, None
        if held is None:
            return
        if held.timer is not None:
            held.timer.cancel()
        if self._requests is not None:
            self._requests.hide_held()

    def _cancel_held(self, held: _Held) -> None:
        why = "the statement was cancelled: its answer waited until it is known which node leads"
        self._end_held(held, QueryCanceledError(why))

    def _time_out_held(self, held: _Held) -> None:
        requests = self._requests
        if requests is not None and held is self._held_answer:
            self._end_held(held, requests.late_error(held.message))

    def _end_held(self, held: _Held, error: QueryCanceledError) -> None:
        """End the wait of an answer that is held; it never leaves.

        What only read is told that it was cancelled. Anything else may be in the log by now, which
        only an answer under a tenure may say: its connection ends, so that its driver asks for the
        outcome by the token, here or where another node leads.
        """
        requests, is_open = self._requests, self._machine.state is not State.CLOSED
        if held is not self._held_answer or requests is None or requests.is_ended or not is_open:
            return
        self._forget_held()
        if not requests.has_only_read(held.message):
            self.refuse(error)
            return
        self._is_running = True
        job = partial(requests.give_up, held.message, error)
        running = self._hub.workers.submit(job, is_urgent=True)
        end = partial(self._carried_out, held.message, held.begun_s, is_noted=True)
        running.add_done_callback(end)

    def _may_go_ahead(self) -> bool:
        """Return whether the next piece of a result may be made while others are on their way.

        The peer has asked for it. There is room for it among what waits for all peers, which is
        reserved here.
        """
        transport, stalled = self._transport, self._hub.stalled
        if transport is None or self._is_lost or not self._machine.is_fetch_next:
            return False
        byte_count = transport.get_write_buffer_size()
        if byte_count > _AHEAD_BYTES or not stalled.has_room(2 * _AHEAD_BYTES):
            return False
        self._hub.stall(self, byte_count + _AHEAD_BYTES)
        return True

    # --- the end ---------------------------------------------------------------------------------

    def refuse(self, error: Error) -> None:
        """Say why and close; what runs is cancelled."""
        has_begun = self._end_deferral() is None
        self._do(self._machine.refuse(error, has_begun=has_begun))

    def give_way(self, error: Error) -> None:
        """End an unauthenticated connection for others; by TLS without a word, as it may stall."""
        self._audit("refused", reason=error.message)
        self.refuse(error)
        if self._tls is not None and self._transport is not None:
            self._transport.abort()

    def drain(self) -> None:
        """End when the server shuts down and nothing runs, waits or is open."""
        if self._hub.is_draining and self.is_idle:
            self.refuse(self._hub.shutting_down())

    def cut_off(self, reason: str) -> None:
        """End the connection of a peer that would not hear why."""
        fields = {"connection": self.number, "peer": self.peer, "reason": reason}
        _log.warning("connection cut off", extra={"fields": fields})
        if self._transport is not None:
            self._transport.abort()

    @property
    def session_id(self) -> int | None:
        """The session's number in sysclients, None: there is none. Any thread."""
        requests = self._requests
        return None if requests is None else requests.session_id

    @property
    def begun_s(self) -> float | None:
        """When a worker took up what runs; None: nothing runs, or it waits. Any thread."""
        requests, submitted_s = self._requests, self._submitted_s
        if requests is None or submitted_s is None or requests.begun_s < submitted_s:
            return None
        return requests.begun_s

    def waits_for(self) -> tuple[str, float] | None:
        """Return what its statement waits for before it begins, and since when. Any thread."""
        turn, queued_s, requests = self._turn, self._queued_s, self._requests
        if turn is not None:
            is_of_all = self._served.shares.waits_for_tablespace(turn[0])
            return "tablespace_turn" if is_of_all else "turn", turn[2]
        if queued_s is None or requests is None or requests.begun_s >= queued_s:
            return None
        return "worker", queued_s

    @property
    def is_in(self) -> bool:
        """The peer was told Welcome, and not the end."""
        return self._machine.state is State.READY

    @property
    def is_inside_frame(self) -> bool:
        """The peer has sent a part of a frame, and not its rest."""
        return self._machine.is_inside_frame

    @property
    def is_idle(self) -> bool:
        """No request runs or waits, and neither a transaction nor a result is open."""
        requests = self._requests
        is_busy = requests is not None and (requests.in_transaction or requests.has_results)
        return self._machine.is_idle and not is_busy

    @property
    def is_quiet(self) -> bool:
        """Nothing runs, and no transaction is open; what waits for a hand-over was not begun."""
        requests = self._requests
        in_transaction = requests is not None and requests.in_transaction
        return not in_transaction and (self._deferred is not None or self._machine.is_idle)

    def _kill(self, error: Error) -> None:
        """End the connection because of KILL, or DROP USER; any thread."""
        self._hub.loop.call_soon_threadsafe(self._end_killed, error)

    def _end_killed(self, error: Error) -> None:
        self.refuse(error)
        if self._is_writing_paused and self._transport is not None:
            # Who takes no answers would not hear why, and keep session and results meanwhile.
            self._transport.abort()

    def _end_session(self) -> None:
        """Roll back and close, on a worker: it may wait."""
        requests, self._requests = self._requests, None
        if requests is not None:
            self._hub.workers.submit(requests.close, is_urgent=True)


def peer_address(peer: Any) -> str:
    """Return host:port of a socket's peer; other transports name theirs."""
    if not isinstance(peer, tuple):
        return str(peer)
    host, port = peer[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
