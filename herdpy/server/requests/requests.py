"""Requests: carries out the requests of one connection on its session, and makes the answers.

On a worker, one request at a time, but for read_row(), write_row() and end_write(), which are the
loop's and never wait.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from bookie.runtime.interfaces import Clock
from herdpy.engine.session.fast_path import PointRows
from herdpy.engine.session.session import Session
from herdpy.engine.state.commit_tokens import COUNTER_MAX, UsedToken
from herdpy.engine.state.error_messages import disk_error
from herdpy.engine.statements.lock_wait import LockWait, MustWaitError
from herdpy.engine.statements.plan_cache import Prepared
from herdpy.engine.writes.nonblocking import PendingWrite
from herdpy.errors import (
    Error,
    InternalError,
    OperationalError,
    ProgrammingError,
    QueryCanceledError,
    Retry,
)
from herdpy.exec.result import Result
from herdpy.features import BY_REQUEST, Feature
from herdpy.model.lsn import START_LSN, Lsn
from herdpy.model.role_settings import OPEN_RESULTS
from herdpy.proto import messages
from herdpy.proto.columns import SentColumns
from herdpy.proto.errors import to_failed
from herdpy.proto.messages import Done, encode_frame
from herdpy.proto.parameters import decode_items, decode_parameters
from herdpy.proto.values import encode_rows
from herdpy.server.limits import Account, Share, too_many_results
from herdpy.server.login.audit import without_literals
from herdpy.server.requests.exports import NO_SNAPSHOT, KeptExports, OpenExport, SnapshotIdentity
from herdpy.server.requests.ingests import Ingests
from herdpy.server.requests.part_check import PartCheck
from herdpy.server.requests.results import OpenResult
from herdpy.sql.plan import Parameters

RESULTS_MAX = 1000
"""Open results of one connection."""
_ANSWERS_BYTES_MAX = messages.FRAME_BYTES_MAX - 1024 * 1024
"""Of an ExecuteAll, without its last Failed."""
_SENT = SentColumns()
Answer = messages.Message | bytes | memoryview
"""b"" when there is none; a memoryview is a frame."""
_SHORT = (
    messages.CloseResult | messages.Begin | messages.Commit | messages.Rollback
    | messages.SetAutocommit
)  # fmt: skip

_new: Any = tuple.__new__  # a NamedTuple without the Python function around it, once per request


class _Pipeline:
    """What an ExecuteAll has done so far: a part of its answers."""

    __slots__ = ("answers", "byte_count")

    def __init__(self) -> None:
        self.answers: list[msgspec.Raw] = []
        self.byte_count = 0


class Requests:
    def __init__(
        self,
        session: Session,
        encode: Callable[[messages.Message], Any],
        results: Share,
        memory: Account,
        clock: Clock,
        audit: Callable[..., None],
        kept_exports: KeptExports,
        part_check: PartCheck | None = None,
    ) -> None:
        """`encode` makes of a message what its client gets: the frame, or another form of it.

        `results` are the tablespace's open ones, `memory` that of this connection's parameters.

        `audit` takes an event and its fields. part_check: None of what has no other copy.
        """
        self._part_check = part_check
        self._session = session
        self._encode = encode
        session.leaves_waits = True
        self.plans = session.latest_plans
        """The plan used last for each text that came before."""
        self._clock = clock
        self._open_results = results
        self._memory = memory
        self._pipeline: _Pipeline | None = None  # an ExecuteAll that waits for a lock
        self.sqlstate: str | None = None
        """Of what was answered last, None: it succeeded."""
        self.is_left_in_transaction = False
        """What the last Done said."""
        self.begun_s = 0.0
        """When a worker took up what was answered last."""
        self._audit = audit
        self._results: dict[int, OpenResult] = {}
        self._last_result = 0
        self._opened_by = 0  # the request to which the last result is the answer
        self._is_late = False  # what runs has had a reserved worker for too long
        self._introspections: set[int] = set()  # of the results, perhaps some that were closed
        self._ended_result: int | None = None  # the last one that was fetched to its end
        self._ingests = Ingests(session)
        self._export: OpenExport | None = None
        self._kept_exports = kept_exports

    @property
    def has_results(self) -> bool:
        """Results are open, of which the driver has not fetched all."""
        return bool(self._results)

    @property
    def session_id(self) -> int:
        return self._session.id

    @property
    def in_transaction(self) -> bool:
        return self._session.in_transaction

    @property
    def is_administrator(self) -> bool:
        return self._session.is_administrator

    def cancel(self) -> None:
        """Stop the statement that runs, if any; any thread."""
        self._session.cancel()

    def read_row(
        self, message: messages.Execute, plan: Prepared, parameters: Parameters
    ) -> Any | None:
        """Answer a point read that was planned before and cannot wait; None: carry_out() has to."""
        session = self._session
        try:
            if self._part_check is not None:
                self._part_check.check(message)
            found = session.attempt(plan, parameters)
        except Error:
            return None  # once more, where errors are answered
        if found is None or isinstance(found, PendingWrite):
            return None
        columns, rows = found
        is_inside = self.is_left_in_transaction = session.in_transaction
        sent = _SENT.of(columns)
        answer = Done(
            message.request,
            is_inside,
            lsn=session.lsn,
            columns=sent,
            rows=msgspec.Raw(encode_rows(rows)),
        )
        return self._encode(answer)

    def write_row(
        self, message: messages.Execute, plan: Prepared, parameters: Parameters
    ) -> "PendingWrite | Any | None":
        """Write a row if that takes no wait but for the disk; None: carry_out() has to.

        What is begun is answered by end_write() when its outcome is there.
        """
        session = self._session
        self.begun_s = self._clock.monotonic()
        self.sqlstate = None
        try:
            session.token = self._token(message, is_checked_later=True)
            begun = session.attempt(plan, parameters)
        except Error as error:
            return self._refused(message, error)
        if not isinstance(begun, PendingWrite):
            return None
        if begun.outcome is None or begun.outcome.is_done:
            return self.end_write(message, begun)
        return begun

    def end_write(self, message: messages.Execute, begun: PendingWrite) -> Any:
        """Return the answer to a write whose outcome is there."""
        try:
            self._session.end_write(begun)
        except Error as error:
            return self.failed(message, error)
        done = self._done(message.request, row_count=begun.row_count, last_row_id=begun.last_row_id)
        return self._encode(done)

    def carry_out(self, message: Any, *, is_again: bool = False) -> "Any | LockWait":
        """Return the answer, encoded, b"" when there is none. Errors are answers, too.

        LockWait: nothing was done, or of an ExecuteAll its first statements. The next call is the
        same one, with is_again, when the wait has ended; or give_up().
        """
        if not is_again:
            self.begun_s = self._clock.monotonic()
        self.sqlstate = None
        wait: LockWait | None = None
        try:
            if self._part_check is not None:
                self._part_check.check(message)
            answer = self._answer_to(message)
            encoded = answer if isinstance(answer, bytes | memoryview) else self._encode(answer)
        except MustWaitError:
            wait = self._session.lock_wait
            assert wait is not None
            return wait
        except BaseException as error:
            if isinstance(message, messages.Fetch):
                self._forget(message.result)
            if not isinstance(error, Error):
                raise
            return self._refused(message, error)
        finally:
            if wait is None:
                if self._session.lock_wait is not None:
                    self._session.end_wait()
                self._pipeline = None
            self._give_back(0 if self._pipeline is None else self._pipeline.byte_count)
        if isinstance(message, messages.Execute) and self._session.is_audited:
            self._audit("changed", statement=without_literals(message.text))
        return encoded

    def has_reached(self, message: messages.WaitFor) -> bool:
        """Return whether the copy has a position; True as well of what is none."""
        try:
            wanted = Lsn.of_text(message.position or str(START_LSN))
        except ValueError:
            return True
        return self._session.lsn >= wanted

    def reached(self, message: messages.WaitFor, lag_s: float, *, is_cancelled: bool) -> Any:
        """Return the answer behind a wait: Reached; 57014 when it has ended without that."""
        self.sqlstate = None
        session = self._session
        try:
            if is_cancelled:
                raise QueryCanceledError("the wait for a position was cancelled")
            session.await_position(message.position)
        except Error as error:
            return self.failed(message, error)
        return self._encode(messages.Reached(message.request, lag_s, session.lsn))

    def carry_out_reserved(self, message: Any) -> "Any | LockWait | None":
        """Carry out what shows the server or ends what others do; None: it is not that.

        Nor is a query that give_up_reserved() has stopped: nothing has happened.
        """
        self._is_late = False
        match message:
            case messages.Execute():
                self.begun_s = self._clock.monotonic()
                self.sqlstate = None
                try:
                    parameters = decode_parameters(message.parameters, self._charge)
                    is_short = self._session.is_introspection(message.text, parameters)
                except Error as error:
                    return self._refused(message, error)
                finally:
                    self._give_back(0)
                if not is_short:
                    return None
                frame = self.carry_out(message)
                if self._is_late and self.sqlstate == "57014":
                    return None
                self._introspections.intersection_update(self._results)
                if self._last_result in self._results:
                    self._introspections.add(self._last_result)
                return frame
            case messages.Fetch():
                is_short = message.result in self._introspections
            case _:
                is_short = isinstance(message, _SHORT)
        return self.carry_out(message) if is_short else None

    def give_up_reserved(self) -> None:
        """Stop what runs on a reserved worker; any thread, again until it has ended."""
        self._is_late = True
        self._session.cancel("it took a worker that is reserved for too long; fetch it again later")

    def give_up(self, message: Any, error: Error) -> Any:
        """Return the answer to a request that must not go on, or whose own must not leave.

        It waits for a lock or its turn; or it has_only_read().
        """
        self._session.end_wait()
        if isinstance(message, messages.Fetch):
            self._forget(message.result)
        elif getattr(message, "request", 0) == self._opened_by:
            self._forget(self._last_result)
        self._pipeline = None
        self._give_back(0)
        return self.failed(message, error)

    # --- of an answer that is held; the loop's ---------------------------------------------------

    def timeout_s(self, message: Any) -> float | None:
        """Return how long a request may take until it is answered; None: as long as it takes."""
        if isinstance(message, messages.WaitFor):
            return min(message.timeout_s, messages.WAIT_FOR_S_MAX)
        return self._session.settings.statement_timeout_s or None

    def late_error(self, message: Any) -> QueryCanceledError:
        """Return what a request is told that has taken so long."""
        if isinstance(message, messages.WaitFor):
            return QueryCanceledError("wait_for: the copy may not tell in time where it is")
        return self._session.timeout_error()

    def has_only_read(self, message: Any) -> bool:
        """Return whether what was answered last has changed nothing that outlives its answer."""
        if isinstance(message, messages.Execute):
            plan = self.plans.get(message.text)
            return plan is not None and not plan.is_write
        return isinstance(message, messages.Fetch | messages.WaitFor)

    def show_held(self, begun_s: float, end: Callable[[], object]) -> None:
        """Show the statement of a request that has run as running, so that it can be killed.

        It began at begun_s or later. end() is called when it is, by any thread, perhaps again.
        """
        self._session.show_latest(begun_s, end)

    def hide_held(self) -> None:
        """Show it no more."""
        self._session.hide_latest()

    @property
    def is_ended(self) -> bool:
        """The session was ended by another one, and the connection is about to be."""
        return bool(self._session.ended)

    def _give_back(self, kept: int) -> None:
        """Give back the memory that was charged, but for so many bytes."""
        if self._memory.used > kept:
            self._memory.give(self._memory.used - kept)

    def _refused(self, message: Any, error: Error) -> Any:
        self._note_refusal(getattr(message, "text", None) or "", error)
        return self.failed(message, error)

    def _note_refusal(self, text: str, error: Error) -> None:
        self.sqlstate = error.sqlstate
        if error.sqlstate == "42501":
            self._audit("denied", reason=error.message, statement=without_literals(text))

    def failed(self, message: Any, error: Error) -> Any:
        self.sqlstate = error.sqlstate
        if isinstance(message, messages.CloseResult | messages.DropIngest | messages.CloseExport):
            return b""
        return self._encode(self._failed(message.request, error))

    def _failed(self, request: int, error: Error) -> messages.Failed:
        is_inside = self.is_left_in_transaction = self._session.in_transaction
        return to_failed(request, error, in_transaction=is_inside)

    def close(self) -> bytes:
        """Close the results and the session, whose transaction is rolled back; no answer."""
        for number in list(self._results):
            self._forget(number)
        self._ingests.close()
        self._keep_export()
        self._session.close()
        return b""

    def _answer_to(self, message: Any) -> Answer:
        session = self._session
        session.token = self._token(message)
        match message:
            case messages.Execute():
                parameters = decode_parameters(message.parameters, self._charge)
                result = session.execute(message.text, parameters)
                return self._answer(message.request, result)
            case messages.ExecuteMany():
                items = decode_items(message.items, self._charge)
                result = session.execute_many(message.text, items)
                return self._answer(message.request, result)
            case messages.ExecuteAll():
                return self._execute_all(message)
            case messages.Fetch():
                return self._fetch(message)
            case messages.CloseResult():
                self._forget(message.result)
                return b""
            case messages.Export():
                return self._begin_export(message)
            case messages.NextPiece():
                return self._next_piece(message.request)
            case messages.CloseExport():
                self._close_export()
                return b""
            case messages.Resolve():
                try:
                    outcome = session.resolve(message.token_session, message.counter)
                finally:  # its locks go, too, when the log cannot take the answer
                    session.end_lost(message.token_session)
                return messages.Resolved(message.request, outcome.value, session.lsn)
            case messages.BeginIngest():
                return self._ingests.begin(message)
            case messages.IngestRows():
                self._ingests.add(message)
            case messages.FinishIngest():
                return self._done(message.request, row_count=self._ingests.finish(message))
            case messages.DropIngest():
                self._ingests.drop(message.ingest)
                return b""
            case _:
                feature = BY_REQUEST.get(message.__class__)
                return (
                    self._control(message) if feature is None else self._perform(feature, message)
                )
        return self._done(message.request)

    def _perform(self, feature: Feature[Any], message: Any) -> messages.Message:
        found: Any = feature.run(self._session, *self._arguments(message))
        if feature.reply is not Done:
            return feature.reply(message.request, *feature.answer(found))
        if isinstance(found, Result):
            return self._answer(message.request, found)
        return self._done(message.request, row_count=-1 if found is None else int(found))

    def _arguments(self, message: Any) -> list[Any]:
        """Return the fields of a feature's request as its arguments."""
        arguments = list(msgspec.structs.astuple(message)[1:])
        if isinstance(message, messages.ReadPartition):
            arguments[5] = decode_parameters(message.parameters, self._charge)
        elif isinstance(message, messages.StageRows):
            from herdpy.exec.vector.untrusted_arrow import batches_of

            arguments[2] = batches_of(message.data)
        return arguments

    def _execute_all(self, message: messages.ExecuteAll) -> messages.Answers:
        session, request = self._session, message.request
        done = self._pipeline or _Pipeline()
        self._pipeline = None
        answers = done.answers
        for place, data in message.items[len(answers) :]:
            text = ""
            try:
                if not 0 <= place < len(message.texts):
                    raise ProgrammingError(f"there is no statement {place}", sqlstate="22023")
                text = message.texts[place]
                parameters = decode_parameters(data, self._charge)
                found = self._run_next(text, parameters, done)
                if not isinstance(found, Result):
                    rows = messages.raw(encode_rows(found[1]))
                    answer = self._done(request, columns=_SENT.of(found[0]), rows=rows)
                else:
                    answer = self._answer(request, found)
                    if session.is_audited:
                        self._audit("changed", statement=without_literals(text))
                body = encode_frame(answer)[messages.LENGTH_BYTES :]
                done.byte_count += len(body)
                if done.byte_count > _ANSWERS_BYTES_MAX:  # at once: hundreds of large ones may come
                    raise OperationalError(
                        f"the answers to {len(answers) + 1} statements take {done.byte_count:,} "
                        f"bytes: expected at most {_ANSWERS_BYTES_MAX:,}",
                        sqlstate="54000",
                        hint="send fewer statements at a time: sync() sooner",
                    )
            except Error as error:
                self._note_refusal(text, error)
                body = encode_frame(self._failed(request, error))[messages.LENGTH_BYTES :]
                answers.append(messages.raw(body))
                break
            answers.append(messages.raw(body))
        return messages.Answers(request, session.in_transaction, answers, session.lsn)

    def _run_next(self, text: str, parameters: Parameters, done: "_Pipeline") -> Result | PointRows:
        """Run a statement of an ExecuteAll; MustWaitError: the answers so far are kept. 53200."""
        try:
            return self._session.run(text, parameters)
        except MustWaitError:
            self._charge(done.byte_count, "answers")
            self._pipeline = done
            raise

    def _control(self, message: Any) -> Done:
        session = self._session
        match message:
            case messages.Begin():
                session.begin(message.durability)
            case messages.Commit():
                session.commit()
            case messages.Rollback():
                session.rollback()
            case messages.SetAutocommit():
                session.autocommit = message.autocommit
            case _:
                raise InternalError(f"no way to answer {type(message).__name__}")
        return self._done(message.request)

    def _charge(self, byte_count: int, what: str = "parameters") -> None:
        """Take memory until the request is answered; 53200: there is none."""
        full = self._memory.take(byte_count)
        if full is not None:
            raise OperationalError(
                f"{what} that take about {byte_count:,} bytes of memory: {full.used:,} of the "
                f"{full.maximum:,} of {full.whose} are in use",
                sqlstate="53200",
                retry=Retry.SAFE,
                hint=f"send fewer rows at a time, or by ingest(); {full.hint}",
            )

    def _token(self, message: Any, *, is_checked_later: bool = False) -> UsedToken | None:
        """Return what a commit of this message carries; 57P05 when its tokens have expired.

        is_checked_later: the commit itself says so, if there is one.
        """
        counter: int = getattr(message, "token", 0)
        if not counter:
            return None
        if not 0 <= message.acknowledged < counter <= COUNTER_MAX:
            raise ProgrammingError(
                f"a commit token: expected counters 0 <= acknowledged < token, found "
                f"{message.acknowledged} and {counter}",
                sqlstate="22023",
            )
        session = self._session
        if not is_checked_later and not session.in_transaction:
            session.check_token()
        return _new(UsedToken, ((session.token_session, counter), message.acknowledged))

    def _answer(self, request: int, result: Result) -> Done:
        columns = result.columns
        if columns is None:
            return self._done(request, row_count=result.row_count, last_row_id=result.last_row_id)
        opened = OpenResult(result, self._session.latest)
        try:
            rows = opened.inline()
            if rows is None and len(self._results) >= RESULTS_MAX:
                raise OperationalError(
                    f"{RESULTS_MAX} results of this connection are open",
                    sqlstate="53400",
                    hint="fetch them to their ends, or close their cursors",
                )
            if rows is None:
                session = self._session
                maximum = session.maxima.get(OPEN_RESULTS)
                full = self._open_results.take(session.identity, user_max=maximum)
                if full is not None:
                    raise too_many_results(full)
        except BaseException:
            opened.close()
            raise
        sent: dict[str, Any]
        if rows is not None:
            opened.close()
            sent = {"rows": messages.raw(rows)}
        else:
            self._last_result += 1
            self._opened_by = request
            self._results[self._last_result] = opened
            sent = {"result": self._last_result}
        return self._done(
            request,
            row_count=result.row_count,
            last_row_id=result.last_row_id,
            columns=_SENT.of(columns),
            **sent,
        )

    def _fetch(self, message: messages.Fetch) -> Answer:
        opened = self._results.get(message.result)
        if opened is None and message.result == self._ended_result:
            return _nothing_left(message)
        if opened is None or message.rows_max < 1:
            raise ProgrammingError(
                "there is no such open result: it was closed, or has ended", sqlstate="24000"
            )
        with self._session.making_rows(opened.statement):
            answer, is_last = self._made(message, opened)
        if is_last:
            self._forget(message.result)
            self._ended_result = message.result
        return answer

    def _made(self, message: messages.Fetch, opened: OpenResult) -> tuple[Answer, bool]:
        """Return the next piece of a result, and whether it is the last."""
        answer: Answer
        if message.is_arrow:
            from herdpy.exec.vector.arrow_stream import LEAD_BYTES

            data, is_last = opened.arrow(message.rows_max)
            if self._encode is encode_frame:  # its head is written before it, and nothing copied
                answer = messages.arrow_frame(message.request, data, LEAD_BYTES, is_last=is_last)
            else:
                answer = messages.Arrow(message.request, is_last, data[LEAD_BYTES:])
        else:
            data, is_last = opened.rows(message.rows_max)
            answer = messages.Rows(message.request, is_last, messages.raw(data))
        return answer, is_last

    def _begin_export(self, message: messages.Export) -> messages.Piece:
        self._close_export()
        self._session.check_may_export()
        if message.snapshot:
            export = self._kept_exports.take(message.snapshot, message.offset)
        else:
            begun = self._session.export(message.kind, message.tablespace)
            export = OpenExport(begun, self._clock)
        of = {"of": message.tablespace} if message.tablespace else {}
        self._audit("exported", kind=message.kind, **of)
        self._export = export
        self._kept_exports.watch(export)
        return self._next_piece(message.request, export.identity)

    def _next_piece(self, request: int, identity: SnapshotIdentity = NO_SNAPSHOT) -> messages.Piece:
        export = self._export
        if export is None:
            raise ProgrammingError("no export is under way: it has ended", sqlstate="24000")
        try:
            data, is_last = export.next()
        except BaseException as error:
            self._close_export()
            if isinstance(error, OSError):
                raise disk_error(error) from error
            raise
        if is_last:
            self._keep_export()
        return messages.Piece(request, is_last, data, export.byte_count, *identity)

    def _close_export(self) -> None:
        export, self._export = self._export, None
        if export is not None:
            export.close()

    def _keep_export(self) -> None:
        """Let go of the export, whose client may not have got all of it, and come again."""
        export, self._export = self._export, None
        if export is not None:
            self._kept_exports.keep(export)

    def _forget(self, number: int) -> None:
        opened = self._results.pop(number, None)
        if opened is not None:
            self._open_results.give(self._session.identity)
            opened.close()

    def _done(self, request: int, **fields: Any) -> Done:
        session = self._session
        is_inside = self.is_left_in_transaction = session.in_transaction
        return Done(request, is_inside, lsn=session.lsn, **fields)


def _nothing_left(message: messages.Fetch) -> messages.Message:
    """Answer a driver that asked ahead, and did not know yet that it had got the last piece."""
    if message.is_arrow:
        return messages.Arrow(message.request, True, memoryview(b""))
    return messages.Rows(message.request, True, messages.raw(encode_rows([])))
