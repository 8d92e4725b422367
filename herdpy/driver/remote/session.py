"""RemoteSession: a session of a server, over a blocking stream.

Any thread may call; one request at a time, cancel() beside it. A connection that is lost stays
lost: every later call raises the same error. An interrupt (KeyboardInterrupt) while an answer is
awaited cancels the statement and waits for what became of it.
"""

import warnings
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from bookie.runtime.drivers import new_mutex
from bookie.runtime.os_backoff import Backoff
from bookie.runtime.os_process import process_generation
from bookie.runtime.os_sockets import QUICK
from bookie.runtime.os_stream import BlockingStream, untouched_memory
from bookie.runtime.ticket import Ticket
from herdpy.driver.dsn import RemoteTarget
from herdpy.driver.interfaces import (
    Locators,
    Pauses,
    PointRows,
    Stream,
    Waiting,
    Waits,
    as_result,
)
from herdpy.driver.remote.kept_texts import KeptTexts
from herdpy.driver.remote.leaders import LeaderConnector
from herdpy.driver.remote.retrying import RetryingSession
from herdpy.errors import (
    ConnectionLostError,
    Error,
    OperationalError,
    ProtocolError,
    Retry,
    loading,
)
from herdpy.exec.result import Columns, LogicalRow, Result
from herdpy.model.lsn import Lsn
from herdpy.model.settings import Settings
from herdpy.proto import messages
from herdpy.proto.columns import ReceivedColumns
from herdpy.proto.driver_machine import DriverMachine, frames, given_up
from herdpy.proto.errors import from_failed
from herdpy.proto.messages import NO_COLUMNS, Message, decode_to_driver, encode_frame
from herdpy.proto.scram import ScramDriver
from herdpy.proto.values import ROWS_MAX, check_statement, many_to_wire, to_wire
from herdpy.sql.plan import Parameters

if TYPE_CHECKING:
    import pyarrow as pa

    from herdpy.driver.remote.ingest import RemoteIngest
    from herdpy.features import Feature

T = TypeVar("T")
_INTERRUPTED_S = 5.0
"""How long an interrupted statement may take to be cancelled before the connection is given up."""
_LAST_WORDS_S = 1.0
_SILENT_S = 1.0
"""A node of a cluster that says nothing for so long while it is waited for is asked for a sign."""
_SIGN_S = 1.5
"""It has so long for it: a process that stands still keeps its connections, and another leads."""
_AHEAD_MAX = 2
"""Pieces of a result that are asked for ahead."""
_LET_GO_S = 10.0
"""How long close() waits for the end of what only this connection used."""
CLIENT = "herdpy"


class RemoteSession:
    def __init__(
        self,
        target: RemoteTarget,
        settings: Settings,
        given: Container[str],
        waits: Waits,
        *,
        autocommit: bool,
    ) -> None:
        """`given` names the time-outs that the program has given; others are the server's."""
        self._where = target.where
        self._mutex = new_mutex()
        self._sending = new_mutex()
        self.machine = DriverMachine()
        self._autocommit = autocommit
        self.last_token = 0
        """The counter of the last commit token; 0: there was none."""
        self._takes_tokens = False  # the server does
        self.undecided: int | None = None
        """The counter of the commit token whose outcome no answer has told; 0: it had none."""
        self._kept = KeptTexts()
        self._columns = ReceivedColumns()
        self._running: int | None = None  # what cancel() is about
        self._cancels: deque[int] = deque()  # requests whose Cancel is not sent yet
        self._dropped: deque[tuple[Sequence[int], int]] = deque()  # results that were collected
        self._received: deque[bytes | memoryview] = deque()  # and not taken
        self._is_out = False  # what was sent last
        self._is_taking = False  # what was received may be taken in half
        self._silent_s = _SILENT_S if target.is_node else None
        self._is_watched = False  # by Pings, where silence is looked into
        self._is_asked = False  # for a sign, which has not come
        self.is_silent = False
        """It was given up because its node said nothing."""
        try:
            self._stream = _opened(waits, target)
        except OSError as error:
            raise OperationalError(
                f"connect: {target.where} cannot be reached: {error.strerror or error}",
                sqlstate="08001",
                retry=Retry.SAFE,
                hint="is the server running there (herdpy serve)?",
            ) from error
        self._receive_into: Callable[[memoryview], int] | None = getattr(
            self._stream, "receive_into", None
        )
        try:
            self.machine = DriverMachine(_login(target, self._stream), untouched_memory)
            self._greet(target, settings, given)
            self._watch()
        except BaseException:
            self._stream.end()
            raise

    def _greet(self, target: RemoteTarget, settings: Settings, given: Container[str]) -> None:
        def timeout_s(name: str) -> float:
            return getattr(settings, name) or (messages.NO_LIMIT_S if name in given else 0.0)

        hello = messages.Hello(
            messages.MAGIC,
            messages.VERSION,
            messages.VERSION,
            target.application_name or CLIENT,
            target.tablespace,
            self._autocommit,
            settings.durability.value,
            timeout_s("lock_timeout_s"),
            timeout_s("statement_timeout_s"),
            timeout_s("idle_in_transaction_timeout_s"),
            user=target.user,
            read=target.read,
            max_staleness_s=target.max_staleness_s,
        )
        try:
            self._send(encode_frame(hello))
            while self.machine.welcome is None:
                self._receive()
            self._takes_tokens = bool(self.token_session)
        except ConnectionLostError as error:
            from herdpy.driver.remote.tls import not_welcome

            raise not_welcome(target, error.message) from error

    # --- state -----------------------------------------------------------------------------------

    @property
    def in_transaction(self) -> bool:
        return self.machine.in_transaction

    @property
    def lsn(self) -> Lsn:
        return self.machine.lsn

    @property
    def token_session(self) -> str:
        """The session in its commit tokens; empty: the server takes none."""
        welcome = self.machine.welcome
        return "" if welcome is None else welcome.token_session

    @property
    def autocommit(self) -> bool:
        return self._autocommit

    @autocommit.setter
    def autocommit(self, value: bool) -> None:
        self.ask(messages.SetAutocommit, value)
        self._autocommit = value

    # --- statements ------------------------------------------------------------------------------

    def execute(self, text: str, parameters: Parameters = None) -> Result:
        return as_result(self.run(text, parameters))

    def run(self, text: str, parameters: Parameters = None) -> Result | PointRows:
        """Run one statement; rows that came with its answer as they are."""
        if text.__class__ is not str:
            text = check_statement(text)
        kept = self._kept
        done = self.ask(kept.message, text, to_wire(parameters), has_token=True)
        if text in kept.asked:
            with self._mutex:
                kept.has_run(text)
        if done.result is not None or done.columns == NO_COLUMNS or done.row_count >= 0:
            return self._result(done)
        columns, decode = self._columns.of(done.columns)
        try:
            return columns, decode(done.rows)
        except (ValueError, TypeError) as error:  # msgspec's errors are ValueErrors
            raise _misfit(error) from None

    def execute_many(self, text: str, rows: Iterable[Parameters]) -> Result:
        """Run one statement for every set of parameters, all or nothing."""
        text, items = check_statement(text), many_to_wire(list(rows))
        return self._result(self.ask(messages.ExecuteMany, text, items, has_token=True))

    def execute_all(
        self, statements: Sequence[tuple[str, Parameters]]
    ) -> tuple[list[Result], Error | None]:
        """Run statements up to the first that fails; return the results, and its error."""
        places: dict[str, int] = {}
        items = [
            (places.setdefault(check_statement(text), len(places)), to_wire(parameters))
            for text, parameters in statements
        ]
        answers = self.ask(messages.ExecuteAll, list(places), items)
        results: list[Result] = []
        for raw in answers.answers:
            answer = decode_to_driver(raw)
            if isinstance(answer, messages.Failed):
                return results, from_failed(answer)
            if not isinstance(answer, messages.Done):
                raise ProtocolError(f"expected Done, found {type(answer).__name__}")
            results.append(self._result(answer))
        return results, None

    def begin_ingest(self, table: str, mode: str) -> "RemoteIngest":
        from herdpy.driver.remote.ingest import RemoteIngest

        return RemoteIngest(self, table, mode)

    def give_up_ingest(self, requests: list[int], ingest: int) -> None:
        """Drop an ingest, and the answers to its batches that are under way."""
        with self._mutex:
            if self.machine.failure is None:
                for request in requests:
                    self.machine.abandon(request)
                self._send(encode_frame(messages.DropIngest(ingest)))

    def begin(self, durability: str | None = None) -> None:
        self.ask(messages.Begin, durability)

    def commit(self) -> None:
        if self.machine.in_transaction:
            self.ask(messages.Commit, has_token=True)

    def resolve(self, token_session: str, counter: int) -> str:
        """Return what became of a commit: committed, refused (it never happens), unknown.

        The server ends that session if it is in a transaction, or at a statement.
        """
        answer = self.ask(messages.Resolve, token_session, counter)
        if not isinstance(answer, messages.Resolved):
            raise ProtocolError(f"expected Resolved, found {type(answer).__name__}")
        return answer.outcome

    def rollback(self) -> None:
        if self.machine.in_transaction:
            self.ask(messages.Rollback)

    def reset(self) -> None:
        """Do nothing: RetryingSession notes what SET changed."""

    def export(self, kind: str, tablespace: str = "") -> "RemoteExport":
        """Begin a backup, a dump, or the list of tablespaces."""
        return RemoteExport(self, self.ask(messages.Export, kind, "", 0, tablespace))

    def end_export(self, request: int | None) -> None:
        """Drop an export, and the piece that is under way."""
        with self._mutex:
            if self.machine.failure is None:
                replies = [] if request is None else self.machine.abandon(request)
                self._send(frames([*replies, messages.CloseExport()]))

    def perform(self, feature: "Feature[T]", *arguments: Any) -> T:
        """Do what is no statement."""
        answer = self.ask(feature.request, *feature.fields(*arguments))
        if not isinstance(answer, feature.reply):
            expected = feature.reply.__name__
            raise ProtocolError(f"expected {expected}, found {type(answer).__name__}")
        value: Any = self._result if feature.value is None else feature.value
        return value(answer)

    def cancel(self) -> None:
        """Stop the running statement, if any; any thread."""
        running = self._running
        if running is not None:
            self._cancels.append(running)
            self._send_cancels()

    def close(self) -> None:
        """End the connection; the server rolls back. Repeatable."""
        self.machine.failure = self.machine.failure or _was_closed()
        self._stream.end()

    def abandon(self) -> None:
        """End the connection at any line of any thread."""
        self.machine.failure = self.machine.failure or _was_closed()
        self._stream.abandon()

    def close_descriptor(self) -> None:
        """Close what a forked child inherited, and leave the connection to its parent."""
        self._stream.close()

    # --- results ---------------------------------------------------------------------------------

    def _result(self, done: messages.Done) -> Result:
        if done.columns == NO_COLUMNS:
            result = Result(row_count=done.row_count)
            result.last_row_id = done.last_row_id
            return result
        columns, decode = self._columns.of(done.columns)
        if done.result is None:
            rows = _decoded(decode, done.rows)
            result = Result(columns, iter(rows), row_count=done.row_count)
            result.last_row_id = done.last_row_id
            return result
        fetching = _Fetching(self, done.result, columns, decode)
        return Result(
            columns,
            fetching.rows(),
            row_count=done.row_count,
            close=fetching.close,
            make_reader=fetching.reader,
        )

    # --- requests --------------------------------------------------------------------------------

    def ask(self, make: Callable[..., Message], *fields: Any, has_token: bool = False) -> Any:
        """Send a request and return its answer; what failed is raised.

        make(number of the request, *fields) gives it; has_token: behind the fields the counter of
        its commit token, and the last one answered. Such requests wait for their answers one at a
        time.
        """
        with self._mutex:
            last = self.machine.last_request
            try:
                request = self._begin_request(make, fields, has_token=has_token, is_waited=True)
                return self._wait(request)
            except Error as error:
                # The server has said that it did not begin; behind an answer that says nothing.
                if error is self.machine.failure and error.retry is Retry.SAFE:
                    self.undecided = None
                raise
            except BaseException:
                if self.machine.last_request != last:
                    self._interrupted(last + 1)
                raise

    def start(self, make: Callable[..., Message], *fields: Any) -> int:
        """Send a request as ask() does, whose answer is taken later, by finish()."""
        with self._mutex:
            return self._begin_request(make, fields)

    def finish(self, request: int) -> Any:
        """Return the answer of a request that start() sent; what failed is raised."""
        with self._mutex:
            try:
                return self._wait(request)
            except Error:
                raise
            except BaseException:
                self._interrupted(request)
                raise

    def receive_in(self, memory: Callable[[int], memoryview]) -> None:
        """Receive large messages in memory of this kind."""
        with self._mutex:
            self.machine.memory = memory

    def drop(self, fetches: Sequence[int], result: int) -> None:
        """Give up a result with the next request; at any line of any thread."""
        self._dropped.append((fetches, result))

    def give_up(self, fetches: Sequence[int], result: int) -> None:
        """Drop an open result, and the answers of the fetches that are under way."""
        with self._mutex:
            if self.machine.failure is None:
                self._abandon(fetches)
                self._send(encode_frame(messages.CloseResult(result)))

    def forget_fetches(self, fetches: Sequence[int]) -> None:
        """Drop the answers of fetches behind a result's end."""
        with self._mutex:
            self._abandon(fetches)

    def _abandon(self, fetches: Sequence[int]) -> None:
        for fetch in fetches:
            self.machine.abandon(fetch)  # whose answer has nothing to give up

    def _begin_request(
        self,
        make: Callable[..., Message],
        fields: Sequence[Any],
        *,
        has_token: bool = False,
        is_waited: bool = False,
    ) -> int:
        if self.machine.failure is not None:
            raise self.machine.failure
        if is_waited:
            self.undecided = None
        given_up = self._give_up_dropped() if self._dropped else b""
        self._is_out = False
        request = self.machine.new_request()
        try:
            if has_token:
                counter = acknowledged = 0
                if self._takes_tokens:
                    acknowledged = self.last_token
                    self.last_token = counter = acknowledged + 1
                self.undecided = counter
                fields = (*fields, counter, acknowledged)
            data = given_up + encode_frame(make(request, *fields))
        except BaseException:
            self.machine.forget(request)
            self.undecided = None
            raise
        try:
            self._send(data, is_answered=True, running=request if is_waited else None)
        except BaseException:
            self._running = None
            if not self._is_out:
                self.machine.forget(request)
            raise
        return request

    def _give_up_dropped(self) -> bytes:
        """Return what closes the results that were collected."""
        closing: list[Message] = []
        while self._dropped:
            fetches, result = self._dropped.popleft()
            self._abandon(fetches)
            closing.append(messages.CloseResult(result))
        return frames(closing)

    def _wait(self, request: int) -> Any:
        self._running = request
        answers = self.machine.answers
        try:
            while (answer := answers.pop(request, None)) is None:
                self._receive()
        finally:
            self._running = None
        if isinstance(answer, messages.Failed):
            error = from_failed(answer)
            if error.retry is not Retry.UNKNOWN:
                self.undecided = None
            raise error
        self.undecided = None
        return answer

    def _interrupted(self, request: int) -> None:
        """Cancel what runs and learn what became of it, so that the session can go on."""
        try:
            if self.machine.failure is not None or self._is_taking:
                self.close()
                return
            if not self.machine.is_open(request):
                return  # it was not sent, or its answer was taken
            self._send(encode_frame(messages.Cancel(request)))
            self._is_watched = False
            self._stream.set_timeout(_INTERRUPTED_S)
            while (answer := self.machine.take(request)) is None:
                self._receive()
            if replies := given_up(answer):
                self._send(frames(replies))
            self.undecided = None
            self._watch()
        except BaseException:  # noqa: BLE001 - the interrupt is raised by the caller
            self.close()

    def _send(self, data: bytes, *, is_answered: bool = False, running: int | None = None) -> None:
        """Send frames. running: the request in them that cancel() is about from here on."""
        with self._sending:
            try:
                # Before it is out, so that no cancel comes too early; which leaves behind it.
                self._running = running or self._running
                self._stream.send(data)
                self._is_out = True
            except OSError as error:
                if is_answered:
                    self._hear()
                raise self._lost(error) from error
            except BaseException:
                self.close()  # a part of a frame may be out, and nothing can follow it
                raise
        if self._cancels:
            self._send_cancels()

    def _send_cancels(self) -> None:
        """Send what cancel() wants to; who holds the lock now does it when it has let go.

        So a signal handler may cancel in the middle of a send of its own thread.
        """
        while self._cancels and self._sending.acquire(False):
            try:
                self._stream.send(encode_frame(messages.Cancel(self._cancels.popleft())))
            except IndexError:
                pass  # another thread was faster
            except OSError as error:
                raise self._lost(error) from error
            except BaseException:
                self.close()
                raise
            finally:
                self._sending.release()

    def _receive(self) -> None:
        """Wait for bytes and take them. Raises when nothing more is to come."""
        if self.machine.failure is not None:
            raise self.machine.failure
        try:
            if not self._received:  # else an interrupt came between this and the next lines
                large = self.machine.large
                if large is None or self._receive_into is None:
                    self._received.append(self._stream.receive())
                else:
                    room = large.room
                    self._received.append(room[: self._receive_into(room)])
        except TimeoutError as error:
            if not self._is_watched or self._is_asked:
                self.is_silent = True
                raise self._lost(error) from error
            self._ask_for_sign()
            return
        except OSError as error:
            raise self._lost(error) from error
        if self._is_asked:
            self._watch()
        self._is_taking = True
        data = self._received.popleft()
        if not data:
            raise self._lost(None)
        replies = self.machine.receive(data)
        self._is_taking = False
        if replies:
            self._send(frames(replies))

    def _watch(self) -> None:
        """Look into silence from now on, of a node of a cluster."""
        self._is_watched, self._is_asked = self._silent_s is not None, False
        self._stream.set_timeout(self._silent_s)

    def _ask_for_sign(self) -> None:
        """Send a Ping, which passes whatever runs; any bytes are a sign."""
        self._is_asked = True
        self._stream.set_timeout(_SIGN_S)
        ping = self.machine.new_request()
        self.machine.abandon(ping)
        self._send(encode_frame(messages.Ping(ping)))

    def _hear(self) -> None:
        """Take what the server said before it closed the connection, if it did."""
        try:
            self._is_watched = False
            self._stream.set_timeout(_LAST_WORDS_S)
            while self.machine.failure is None and (data := self._stream.receive()):
                self.machine.receive(data)
        except OSError:
            pass  # nothing

    def _lost(self, error: OSError | None) -> Error:
        reason = "the server closed it" if error is None else error.strerror or str(error)
        lost = self.machine.failure or ConnectionLostError(
            f"the connection to {self._where} was lost: {reason}",
            hint="connect again, and look whether what ran has happened before repeating it",
        )
        self.machine.failure = lost
        self._stream.end()
        return lost


class ThreadWaits:
    """What a connection waits with in the thread that calls."""

    rng = None

    @property
    def locators(self) -> Locators:
        from herdpy.driver.remote.locators import locators_of_process

        return locators_of_process()

    @cached_property
    def _waiting(self) -> Waiting:
        from herdpy.driver.local import new_waiting  # loads the engine: few connections need it

        return new_waiting()

    def monotonic(self) -> float:
        return self._waiting.monotonic()

    def wait(self, ticket: Ticket[Any], deadline: float) -> bool:
        return self._waiting.wait(ticket, deadline)

    def open_stream(self, target: RemoteTarget) -> Stream:
        if target.is_grpc:
            from herdpy.driver.remote.grpc_target import open_grpc_target

            return open_grpc_target(target)
        if target.has_tls:
            from herdpy.driver.remote.tls import open_tls_stream

            stream: BlockingStream = open_tls_stream(target)
        else:
            stream = BlockingStream(target.host, target.port, target.connect_timeout_s)
        if target.is_node:
            stream.keep_alive(QUICK)
        stream.set_spin(target.spin_us / 1e6)
        return stream

    def new_pauses(self, budget_s: float) -> Backoff:
        return Backoff(budget_s)


def _opened(waits: Waits, target: RemoteTarget) -> Stream:
    """Connect, unless the node is known to speak otherwise: it would only hear what is no TLS."""
    if target.node_has_tls not in (None, target.has_tls):
        from herdpy.driver.remote.tls import not_spoken

        raise not_spoken(target)
    return waits.open_stream(target)


def _was_closed() -> ConnectionLostError:
    return ConnectionLostError("the connection was closed", retry=Retry.NEVER)


def _login(target: RemoteTarget, stream: Stream) -> ScramDriver | None:
    if target.password is None:
        return None
    from herdpy.driver.remote.tls import login_binding

    return ScramDriver(target.user, target.password, binding=login_binding(stream))


class _Fetching:
    """An open result of the server: pieces are asked for ahead.

    Behind the first piece one, then two, so that the server makes one while another is on its way.
    """

    _is_open = False  # for __del__ of one that an interrupt left half made

    def __init__(
        self,
        session: RemoteSession,
        number: int,
        columns: Columns,
        decode: Callable[[Any], list[LogicalRow]],
    ) -> None:
        self._session = session
        self._number = number
        self._columns = columns
        self._decode = decode
        self._requests: deque[int] = deque()  # under way
        self._ahead = 0
        self._is_open = True

    def rows(self) -> Iterator[LogicalRow]:
        """Yield the rows; nothing is asked for before the first."""
        while (answer := self._next(ROWS_MAX, is_arrow=False)) is not None:
            if not isinstance(answer, messages.Rows):
                raise ProtocolError(f"expected rows, found {type(answer).__name__}")
            yield from _decoded(self._decode, answer.rows)

    def reader(self, rows_per_batch: int) -> "pa.RecordBatchReader":
        """Return a reader of Arrow batches of at most so many rows."""
        with loading():
            from herdpy.exec.vector.arrow_stream import stream_memory, stream_reader

        self._session.receive_in(stream_memory)

        def next_piece() -> memoryview | None:
            answer = self._next(rows_per_batch, is_arrow=True)
            if answer is None:
                return None
            if not isinstance(answer, messages.Arrow):
                raise ProtocolError(f"expected Arrow, found {type(answer).__name__}")
            return answer.data

        return stream_reader(next_piece)

    def _next(self, rows_max: int, *, is_arrow: bool) -> Any:
        if not self._is_open:
            return None

        requests, session = self._requests, self._session

        def make(request: int) -> messages.Fetch:
            requests.append(request)  # here, so that an interrupt behind start() loses nothing
            return messages.Fetch(request, self._number, rows_max, is_arrow)

        try:
            if not requests:
                session.start(make)
            answer = session.finish(requests[0])
            if answer.is_last:
                self._end()
                return answer
            requests.popleft()
            self._ahead = min(self._ahead + 1, _AHEAD_MAX)
            while len(requests) < self._ahead:
                session.start(make)
        except Error as error:
            self._end()
            if isinstance(error, ConnectionLostError) and error.retry is Retry.UNKNOWN:
                error.retry = Retry.SAFE  # a fetch changes nothing
            raise
        return answer

    def _end(self) -> None:
        """Expect nothing more: the server has forgotten the result."""
        self._is_open = False
        self._session.forget_fetches(tuple(self._requests))
        self._requests.clear()

    def close(self) -> None:
        """Give up what was not fetched; repeatable."""
        if self._is_open:
            self._is_open = False
            try:
                self._session.give_up(tuple(self._requests), self._number)
            except Error:
                pass  # the connection is gone, and with it the result

    def __del__(self) -> None:
        if self._is_open:  # a cursor that was not closed
            self._session.drop(tuple(self._requests), self._number)


class RemoteExport:
    """A backup or a dump that a server makes: one piece is asked for ahead."""

    def __init__(self, session: RemoteSession, first: Any) -> None:
        self._session = session
        self._first = _piece(first)
        self._is_over = self._first.is_last
        self._request: int | None = None
        self.byte_count = self._first.byte_count

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes, once."""
        piece = self._first
        while True:
            if piece.is_last:
                self._is_over = True
                yield piece.data
                return
            self._request = request = self._session.start(messages.NextPiece)
            yield piece.data
            self._request = None
            piece = _piece(self._session.finish(request))

    def close(self) -> None:
        """Give up what was not read; repeatable."""
        if not self._is_over:
            self._is_over = True
            try:
                self._session.end_export(self._request)
            except Error:
                pass  # the connection is gone, and with it the export


def _piece(answer: Any) -> messages.Piece:
    if not isinstance(answer, messages.Piece):
        raise ProtocolError(f"expected a piece, found {type(answer).__name__}")
    return answer


def _decoded(decode: Callable[[Any], list[LogicalRow]], raw: Any) -> list[LogicalRow]:
    try:
        return decode(raw)
    except (ValueError, TypeError) as error:  # msgspec's errors are ValueErrors
        raise _misfit(error) from None


def _misfit(error: Exception) -> ProtocolError:
    return ProtocolError(f"rows that do not fit their columns: {error}")


class RemoteClaim:
    """One connection's hold on a server: its session's stream."""

    def __init__(self, target: RemoteTarget, waits: Waits | None = None) -> None:
        """Without `waits` the thread waits that calls."""
        self.where = target.where
        self._target = target
        self._waits = waits or ThreadWaits()
        self.rng = self._waits.rng
        self._generation = process_generation()
        self._session: RetryingSession | None = None
        self._locators: Locators | None = None

    def open(
        self, settings: Settings, given: Container[str], *, autocommit: bool
    ) -> RetryingSession:
        """Connect; only what is lost later is made anew. `given`: see RemoteSession."""
        target, waits = self._target, self._waits

        def connect_to(target: RemoteTarget, autocommit: bool) -> RemoteSession:
            return RemoteSession(target, settings, given, waits, autocommit=autocommit)

        def new_pauses(limit_s: float = target.retry_timeout_s) -> Pauses:
            return waits.new_pauses(min(limit_s, target.retry_timeout_s))

        def connect_to_it(autocommit: bool, _: Pauses | None) -> RemoteSession:
            return connect_to(target, autocommit)

        connector: LeaderConnector | None = None
        connect = connect_to_it
        if target.is_cluster:
            self._locators = waits.locators
            locator = self._locators.hold(target, self)
            connector = LeaderConnector(target, locator, waits, connect_to)
            connect = connector.connect
        self._session = RetryingSession(
            connect,
            new_pauses if target.retry_timeout_s else None,
            autocommit=autocommit,
            connector=connector,
            reads_followers=target.read != "leader",
        )
        return self._session

    def close(self) -> None:
        """End the connection; a forked child only drops its descriptor. Repeatable."""
        if process_generation() == self._generation:
            if self._session is not None:
                self._session.close()
            closing = None if self._locators is None else self._locators.release(self)
            if closing is not None:
                self._waits.wait(closing, self._waits.monotonic() + _LET_GO_S)
        elif self._session is not None:
            self._session.close_descriptor()

    def abandon(self) -> None:
        """Close for a connection that was collected; takes no lock."""
        session = self._session
        if session is None:
            return
        if session.in_transaction and process_generation() == self._generation:
            warnings.warn(
                f"a herdpy connection to {self.where!r} was collected with an open transaction, "
                "which is rolled back; close connections, or use `with`",
                ResourceWarning,
                stacklevel=2,
            )
        if process_generation() == self._generation:
            session.abandon()
            if self._locators is not None and self._target.root is not None:
                from herdpy.driver.local import run_detached

                locators = self._locators
                with suppress(RuntimeError):  # the interpreter ends, and all sessions with it
                    # The collector may have come while this very thread holds their lock.
                    run_detached(lambda: locators.release(self))
        else:
            session.close_descriptor()
