"""Staging: rows from many sessions, staged as they come and committed as one transaction.

A session's part in it: begin a run of a job, stage rows for it (each attempt of a task on its own),
commit or give up. What is staged is the log's state (staged.py); no session owns it, so that any
other one goes on where a lost one stopped. Each call is a statement of the session, and may be
repeated: begin() and begin_stage() by their names, add() by the number of rows before, commit() by
the job and its stages.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from herdpy.engine.maintenance.page_commits import Planned, commit_at_rest
from herdpy.engine.session.parts import SessionPart, statement
from herdpy.engine.state.error_messages import absent_error, check_share
from herdpy.engine.state.locks import Mode
from herdpy.engine.state.log_space import with_log_space
from herdpy.engine.state.page_adoption import (
    Adoption,
    is_by_rows,
    keyed_rows,
    newest_row,
    plan_adoption,
    updated_rows,
)
from herdpy.engine.state.staged import (
    Commit,
    Job,
    Operation,
    Stage,
    Staged,
    stages_digest,
)
from herdpy.engine.state.state import TableState
from herdpy.engine.state.tablespace import Entry
from herdpy.engine.state.transactions import Transaction
from herdpy.engine.writes.staged_input import numbered_rows, row_records, stage_records
from herdpy.errors import (
    Error,
    InvariantViolation,
    MemoryLimitError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    Retry,
)
from herdpy.exec.row.row_check import check_absent, checks_by_query, compile_check_row
from herdpy.limits import (
    stages_max,
    stages_of_user_max,
    staging_name_bytes_max,
    staging_runs_max,
    stagings_max,
    stagings_of_user_max,
)
from herdpy.log.record import (
    BeginStage,
    BeginStaging,
    CommitStaging,
    DropStages,
    EndStaging,
    FinishStage,
    Record,
    StageRows,
    encode,
)
from herdpy.model.access import DELETE, INSERT, UPDATE, plain_user
from herdpy.model.durability import Durability
from herdpy.model.lsn import Lsn
from herdpy.model.role_settings import STAGINGS
from herdpy.model.schema import Table
from herdpy.model.types import Key, Row

if TYPE_CHECKING:
    import pyarrow as pa

RIGHTS = {
    Operation.APPEND: INSERT,
    Operation.UPSERT: INSERT | UPDATE,
    Operation.REPLACE: INSERT | DELETE,
    Operation.IGNORE: INSERT,
    Operation.UPDATE: UPDATE,
    Operation.DELETE: DELETE,
}
"""What each operation takes on its table."""
_JOBS = "staging: {:,} jobs are open"
_STAGES = "staging: {:,} stages are open"
_LATER = "commit or abort those that are not needed; SELECT * FROM sysstagings shows jobs"
_MEMORY_COPIES = 8
"""How many times their bytes in the log rows take as rows of a memtable, about."""


class StatementJob(NamedTuple):
    """The job of a statement that stages its rows."""

    name: str
    now_us: int
    """The statement's time."""


class Staging(SessionPart):
    # --- jobs ------------------------------------------------------------------------------------

    @statement("STAGING {2}")
    def begin(
        self,
        name: str,
        operation: str,
        job: str,
        key_columns: Sequence[str] | None = None,
        run: str | None = None,
    ) -> Table:
        """Begin a run of a job, durably, and the job with its first one; repeatable.

        42710: the open job is another one, or has committed. 53400: too many runs.
        """
        chosen = _operation(operation)
        self._core.check_may_write("BEGIN STAGING")
        _check_name("job", job)
        if run is not None:
            _check_name("run", run)
        table = self._planner.table(name, RIGHTS[chosen])
        _check_key(table, chosen, key_columns)
        _check_possible(table)
        at_us = self._database.clock.wall_us()
        of_user_max = min(stagings_of_user_max, self._core.maxima.get(STAGINGS, stagings_max))

        def make() -> list[Record]:
            staged = self._staged
            if job in staged.commits:
                raise self._has_committed(job, staged.commits[job])
            self._tablespace.check_user(self._core.identity)
            if job in staged.jobs:
                found = self._same_job(job, table, chosen)
                if run in found.runs:
                    return []
                _check_runs(found)
            elif len(staged.jobs) >= min(stagings_max, of_user_max):
                owners = [each.user for each in staged.jobs.values()]
                limits = stagings_max, of_user_max
                with self._database.refusals.counted(STAGINGS, self._core.identity):
                    check_share(_JOBS, owners, self._core.identity, *limits, hint=_LATER)
            user, user_id = plain_user(self._core.identity)
            place = (job, table.id, table.version, chosen.value, at_us)
            return [BeginStaging(*place, user, run=run, user_id=user_id)]

        self._log(make, Durability.SYNC)
        found = self._same_job(job, table, chosen)
        if run not in found.runs:
            raise _given_up(job)
        return table

    @statement("STAGING {0}")
    def commit(self, job: str, stages: Sequence[int]) -> str:
        """Make the rows of these stages, in this order, the change of one commit.

        Returns its position; again for a job that has committed just these. 42710: it has
        committed others. 42704: there is no such job (any more). In both nothing happened.
        """
        numbers = list(stages)
        found = self._again(job, numbers)
        if found is not None:
            return str(found)
        transaction = self._core.begin_alone()
        transaction.token = None  # the job says whether it has happened
        try:
            self._commit_now(self._job(job), numbers, transaction)
        except ProgrammingError:
            found = self._again(job, numbers)
            if found is None:
                raise
            # Another session asked for the same, and was first.
            self._core.finish_write(transaction)
            return str(found)
        found = self._again(job, numbers)
        if found is None:
            raise InvariantViolation(f"I5: the commit of job {job!r} had no effect")
        return str(found)

    @statement("STAGING {0}")
    def abort(self, job: str, run: str | None = None) -> None:
        """Give up a run with all that is its own, and the job with its last one; repeatable.

        Without a run the whole job; nothing to do for one that is not there.
        """
        if job not in self._staged.jobs:
            return
        self._job(job)

        def make() -> list[Record]:
            found = self._staged.jobs.get(job)
            if found is None or run is None:
                return [EndStaging([job])]
            if run not in found.runs:
                return []
            if len(found.runs) == 1:  # so far: one that begins just now keeps the job
                return [EndStaging([job], run)]
            return [DropStages(self._staged.of_run(job, run), job, run)]

        self._log(make, Durability.SYNC, frees_space=True)

    @statement("STAGING {0}")
    def position(self, job: str) -> str | None:
        """Return the position of a job's commit, durable; None: it has not committed.

        One that is in the log is waited for. 42501: it was another user's. LogFailedError: it is
        not known, until the database is opened again.
        """
        found = self._committed(job)
        if found is None:
            self._tablespace.apply_log()
            found = self._committed(job)
        return None if found is None else str(self._durable(found))

    # --- stages ----------------------------------------------------------------------------------

    @statement("STAGING {0}")
    def begin_stage(
        self, job: str, task: str, attempt: str, run: str | None = None
    ) -> tuple[int, Table]:
        """Begin what an attempt of a task stages; its rows of before, if any, are void.

        It goes with its run, without one with the job.
        """
        return self._begin_stage(job, task, attempt, run)

    @statement("STAGING rows")
    def add(
        self,
        number: int,
        first_row: int,
        batch: "pa.RecordBatch",
        statement: StatementJob | None = None,
    ) -> int:
        """Stage rows; return how many the stage has then. `first_row` is how many it had before.

        Rows that are there already are not taken twice. 40001: rows before these were lost in a
        crash of the server; begin the attempt again. `statement`: whose they are, if one's.
        """
        stage = self._stage(number, statement)
        if stage.is_finished:
            if first_row + batch.num_rows <= stage.row_count:
                return stage.row_count
            raise ProgrammingError(f"staging: stage {number} is finished", sqlstate="55000")
        if first_row > stage.row_count or first_row < 0:
            raise _lost_rows(number, stage, first_row)
        self._check_room(stage, batch.nbytes)
        known = stage.row_count - first_row  # of the batch, from a call whose answer was lost
        if known < batch.num_rows:
            # One time for all rows of one commit.
            now_us = self._job(stage.job).at_us if statement is None else statement.now_us
            rows = batch.slice(known)
            self._core.numbers.numbered_by = None  # what is staged already is in the log
            pieces = stage_records(number, stage, rows, now_us, self._core.numbers)
            self._log_rows(number, pieces, statement)
        self._database.after_staging()
        found = self._stage(number, statement).row_count
        if found < first_row + batch.num_rows:
            raise OperationalError(
                f"staging: another call adds to stage {number}", sqlstate="40001", retry=Retry.SAFE
            )
        return found

    @statement("STAGING rows")
    def finish_stage(self, number: int, row_count: int | None = None) -> int:
        """Make a stage whole and durable; return how many rows it has. Repeatable.

        row_count: how many were added. 40001, SAFE: there are not so many, because a crash of the
        server came before they were durable; begin the attempt again.
        """
        self._stage(number)

        def make() -> list[Record]:
            stage = self._stage(number)
            if row_count is not None and stage.row_count != row_count:
                raise _lost_rows(number, stage, row_count)
            return [] if stage.is_finished else [FinishStage(number)]

        self._log(make, Durability.SYNC)
        return self._stage(number).row_count

    @statement("STAGING rows")
    def drop_stage(self, number: int) -> None:
        """Give a stage up; nothing to do for one that is not there."""
        if number in self._staged.stages:
            self._stage(number)
            self._log(lambda: [DropStages([number])], Durability.NONE, frees_space=True)

    # --- one statement's own ---------------------------------------------------------------------

    def new_job(self) -> str:
        """Return a name that no job has."""
        return self._database.rng.randbytes(16).hex()

    @statement("STAGING {1.name}")
    def begin_statement(self, job: str, table: Table, operation: Operation) -> int:
        """Begin a job of one stage, for a statement with too many rows for memory.

        Not durably: where the log is opened anew, another may get the number of its stage.
        """
        at_us, (user, user_id) = self._database.clock.wall_us(), plain_user(self._core.identity)
        place = (job, table.id, table.version, operation.value, at_us)
        record = BeginStaging(*place, user, is_statement=True, user_id=user_id)

        def make() -> list[Record]:
            self._tablespace.check_user(self._core.identity)
            return [record]

        self._log(make, Durability.NONE)
        return self._begin_stage(job, "0", "0", durability=Durability.NONE)[0]

    @statement("STAGING rows")
    def add_rows(self, number: int, rows: Sequence[Row], statement: StatementJob) -> int:
        """Stage whole rows that are converted and checked; return how many there are then."""
        stage = self._stage(number, statement)
        self._log_rows(number, row_records(number, stage, rows), statement)
        return self._stage(number, statement).row_count

    @statement("STAGING rows")
    def commit_statement(self, number: int, statement: StatementJob) -> None:
        """Commit it with the token of the session's statement; 25001 in a transaction."""

        def finish() -> list[Record]:
            stage = self._stage(number, statement)
            return [] if stage.is_finished else [FinishStage(number)]

        self._log(finish, Durability.NONE)  # before a wait for the table's lock
        self._commit_now(self._job(statement.name), [number], self._core.begin_alone())

    def drop_statement(self, job: str) -> None:
        """Give it up, whatever state the session is in; without effect when it is not there."""
        end = partial(self._tablespace.log_alone, EndStaging([job]))
        with suppress(Error):  # else it ends by its time-out
            with_log_space(self._tablespace, end, frees_space=True)

    # --- inside ----------------------------------------------------------------------------------

    @property
    def _staged(self) -> Staged:
        return self._tablespace.state.staged

    def _log(
        self,
        make: Callable[[], Sequence[Record]],
        durability: Durability,
        *,
        frees_space: bool = False,
    ) -> None:
        """Log what make() returns under the monitor, if anything, and wait until it is applied.

        53100: the disk is full, and nothing happened.
        """
        tablespace, clock = self._tablespace, self._database.clock
        self._database.check_room(frees_space=frees_space)
        system = Transaction(durability, begun_us=clock.wall_us(), is_autocommit=True)

        def step() -> bool:
            with tablespace.monitor:
                tablespace.enter()
                tablespace.check_writable()
                records = make()
                if records:
                    encoded = list(map(encode, records))
                    if tablespace.check_limit is not None and not frees_space:
                        tablespace.check_limit(sum(map(len, encoded)))
                    tablespace.submit(Entry(records, encoded, system, ends=True))
                return bool(records)

        if with_log_space(tablespace, step, frees_space=frees_space):
            # Not done though it needs no sync: it is behind a commit that waits for the disk.
            is_behind = not system.outcome.is_done
            self._core.wait_for(system.outcome, Durability.SYNC if is_behind else durability)
        if durability is Durability.SYNC:
            tablespace.sync_log(tablespace.state.lsn)  # what is known already may not be durable

    def _job(self, name: str) -> Job:
        job = self._staged.jobs.get(name)
        if job is None:
            if (commit := self._staged.commits.get(name)) is not None:
                raise self._has_committed(name, commit)
            raise ProgrammingError(
                f"staging: there is no open job {name!r}: it was given up, its table was dropped, "
                "or no call used it for "
                f"{self._database.config.staging_timeout_s:g} seconds",
                sqlstate="42704",
                hint="begin_staging() begins a job",
            )
        if not self._planner.owns(job.user):
            raise _of_another_user(name)
        self._database.stagings.touch(name)
        return job

    def _has_committed(self, name: str, commit: Commit) -> ProgrammingError:
        """Return what a run is told whose job another run has committed."""
        is_shown = not commit.is_known or self._planner.owns(commit.user)
        return ProgrammingError(
            f"staging: job {name!r} has committed"
            + (f" at {commit.lsn}" if is_shown else ", another user's"),
            sqlstate="42710",
            hint="these rows are not in that commit, and are not written: choose another name for "
            "them; commit_position() returns that position",
        )

    def _stage(self, number: int, statement: StatementJob | None = None) -> Stage:
        stage = self._staged.stages.get(number)
        _check_own(stage, statement)
        if stage is None:
            raise OperationalError(
                f"staging: there is no stage {number}: its job has ended, its attempt was "
                "begun again, or it was dropped",
                sqlstate="42704",
                retry=Retry.SAFE,
                hint="begin the attempt again",
            )
        self._job(stage.job)
        return stage

    def _same_job(self, name: str, table: Table, operation: Operation) -> Job:
        """Return an open job; 42710: it is for another table or operation."""
        found = self._job(name)
        if (found.table, found.operation) != (table, operation):
            raise ProgrammingError(
                f"staging: job {name!r} is open, with operation {found.operation.value!r} on table "
                f'"{found.table.name}"',
                sqlstate="42710",
                hint="choose another name, or abort_staging() first",
            )
        return found

    def _begin_stage(
        self,
        name: str,
        task: str,
        attempt: str,
        run: str | None = None,
        *,
        durability: Durability = Durability.SYNC,
    ) -> tuple[int, Table]:
        """Begin a stage, durably: no crash may give a number to another one that is in use."""
        _check_name("task", task)
        _check_name("attempt", attempt)
        job = self._job(name)
        number = 0

        def make() -> list[Record]:
            nonlocal number
            staged = self._staged
            if len(staged.stages) >= min(stages_max, stages_of_user_max):
                owners = [staged.jobs[each.job].user for each in staged.of_jobs_only.values()]
                limits = stages_max, stages_of_user_max
                check_share(_STAGES, owners, job.user, *limits, hint=_LATER)
            if run is not None and run not in self._job(name).runs:
                raise _given_up(name)
            number = self._tablespace.applier.next_table_id
            return [BeginStage(name, number, task, attempt, run)]

        self._log(make, durability)
        self._stage(number)
        return number, job.table

    def _log_rows(
        self, number: int, pieces: Iterable[StageRows], statement: StatementJob | None
    ) -> None:
        for piece in pieces:
            make = partial(self._rows_records, number, piece, statement)
            self._log(make, Durability.NONE)

    def _rows_records(
        self, number: int, rows: StageRows, statement: StatementJob | None
    ) -> list[Record]:
        """Return the record, and before it the reservation of its row ids. Monitor held.

        40001: the rows have values of sequences from before the log was opened anew, or their
        statement's stage is lost with it.
        """
        self._core.numbers.check()
        stage = self._staged.stages.get(number)
        _check_own(stage, statement)
        if stage is None or not stage.table.is_heap:
            return [rows]
        return numbered_rows(self._tablespace.applier, stage.table, rows)

    def _check_room(self, stage: Stage, byte_count: int) -> None:
        limit = self._database.config.staging_bytes_max
        used = sum(
            each.byte_count for each in self._staged.stages.values() if each.job == stage.job
        )
        if used + byte_count > limit:
            raise OperationalError(
                f"staging: job {stage.job!r} has {used:,} bytes, more than {limit:,} are not "
                "allowed",
                sqlstate="53400",
                hint="commit in several jobs, or raise staging_bytes_max",
            )

    def _committed(self, name: str) -> Commit | None:
        """Return a job's commit; None: there is none. 42501: it is another user's."""
        found = self._staged.commits.get(name)
        if found is not None and found.is_known and not self._planner.owns(found.user):
            raise _of_another_user(name)
        return found

    def _durable(self, commit: Commit) -> Lsn:
        self._tablespace.sync_log(commit.lsn)
        return commit.lsn

    def _again(self, name: str, numbers: list[int]) -> Lsn | None:
        """Return the position of a job's commit of just these stages; None: it has not committed.

        42710: it has committed others.
        """
        found = self._committed(name)
        if found is None:
            return None
        if found.is_known and found.digest != stages_digest(numbers):
            raise self._has_committed(name, found)
        return self._durable(found)

    # --- commit ----------------------------------------------------------------------------------

    def _commit_now(self, job: Job, numbers: list[int], transaction: Transaction) -> None:
        used = transaction.token
        token, acknowledged = (None, 0) if used is None else (used.token, used.acknowledged)
        record = CommitStaging(job.name, numbers, token, acknowledged)
        entry = Entry([record], [encode(record)], transaction, ends=True)
        self._database.stagings.busy(job.name, transaction)
        self._lock(transaction, job.table)
        stages = self._checked_stages(job, numbers)
        if is_by_rows(stages, job.operation) and self._has_memory_for(job, stages):
            self._check_rows(job, stages)
            self._log_commit(entry)
        else:
            self._commit_pages(job, numbers, entry)
        if entry.is_void:
            self._job(job.name)
            raise ProgrammingError(
                f"staging: a stage of job {job.name!r} was given up during the commit",
                sqlstate="55000",
            )

    def _commit_pages(self, job: Job, numbers: list[int], entry: Entry) -> None:
        """Log a commit whose pages the table adopts; what that means is worked out before."""

        def plan(tables: Mapping[int, TableState]) -> Planned | None:
            stages = self._checked_stages(job, numbers)
            table = tables[job.table.id]
            planned = plan_adoption(table, stages, job.operation)
            # What is repeated in pages is so, as long as the memtable deletes nothing.
            is_sure = planned.repeated is None or all(
                version[1] is not None for version in table.memtable.chains.values()
            )
            if job.operation is Operation.APPEND and not is_sure:
                return None
            self._check_repeats(job, planned, table)
            return {job.table.id: (planned,)}

        commit_at_rest(
            self._tablespace,
            self._database,
            self._database.memory,
            [job.table.id],
            plan,
            lambda: self._log_commit(entry),
        )

    def _check_repeats(self, job: Job, planned: Adoption, table: TableState) -> None:
        if not job.operation.refuses_repeats or table.table.is_heap:
            return
        if planned.repeated is not None:
            check_absent(table.table, planned.repeated, planned)
        if job.operation is Operation.APPEND:
            for key, version in table.memtable.chains.items():
                if version[1] is not None:
                    check_absent(table.table, key, planned.staged.get(key))

    def _log_commit(self, entry: Entry) -> None:
        """Log a commit, and wait for it: what is planned for it has to be there until then."""
        with_log_space(self._tablespace, partial(self._submit, entry), frees_space=True)
        self._core.finish_write(entry.transaction)

    def _submit(self, entry: Entry) -> None:
        tablespace = self._tablespace
        with tablespace.monitor:
            tablespace.enter()
            tablespace.check_writable()
            if entry.transaction.token is not None:
                tablespace.applier.tokens.check_commit(entry.transaction.token)
            tablespace.submit(entry)

    def _lock(self, transaction: Transaction, table: Table) -> None:
        """Keep all other writers from the table; MustWaitError: there are some."""
        tablespace = self._tablespace
        with tablespace.monitor:
            tablespace.enter()
            tablespace.check_writable()
            execution = self._planner.execution(transaction)
            execution.lock(transaction, (table.id,), Mode.EXCLUSIVE)
            found = tablespace.state.tables.get(table.id)
        if found is not None:  # else it was dropped, and the job with it
            _check_possible(found.table)

    def _checked_stages(self, job: Job, numbers: list[int]) -> list[Stage]:
        """Return the stages if they may change the table now. The table is locked."""
        self._job(job.name)  # it went with its table, or another one committed it meanwhile
        table = self._planner.table(job.table.name, RIGHTS[job.operation])
        staged = self._staged
        if table != job.table:
            raise ProgrammingError(
                f'staging: table "{table.name}" is not the one that job {job.name!r} began with',
                sqlstate="55000",
            )
        stages = [staged.stages.get(number) for number in numbers]
        for number, stage in zip(numbers, stages, strict=True):
            if stage is None or stage.job != job.name or not stage.is_finished:
                raise ProgrammingError(
                    f"staging: stage {number} is no finished one of job {job.name!r}",
                    sqlstate="55000",
                    hint="commit what finish() returned, and no attempt that was given up",
                )
        if len(set(numbers)) < len(numbers):
            raise ProgrammingError("staging: a stage is named twice", sqlstate="22023")
        return [stage for stage in stages if stage is not None]

    def _has_memory_for(self, job: Job, stages: Sequence[Stage]) -> bool:
        """Tell whether rows may go into memory; 53200: they may not, and have to."""
        byte_count = _MEMORY_COPIES * sum(stage.byte_count for stage in stages)
        limit = self._database.config.transaction_bytes_max
        if byte_count > limit and job.operation is Operation.UPDATE:
            raise MemoryLimitError(
                f"staging: the commit would take about {byte_count:,} bytes of memory, more than "
                f"a transaction may ({limit:,})",
                hint="commit in several jobs; all operations but update need no memory for rows",
            )
        return byte_count <= limit

    def _check_rows(self, job: Job, stages: Sequence[Stage]) -> None:
        table = self._tablespace.state.tables[job.table.id]
        if job.operation is Operation.UPDATE:
            check = compile_check_row(job.table)
            for row in updated_rows(table, stages).values():
                check(row)
        if not job.operation.refuses_repeats or job.table.is_heap:
            return
        seen: dict[Key, Row] = {}
        is_append = job.operation is Operation.APPEND
        for stage in stages:
            for key, row in keyed_rows(stage):
                check_absent(job.table, key, seen.get(key))
                if is_append:
                    check_absent(job.table, key, newest_row(table, key))
                seen[key] = row


def _check_runs(job: Job) -> None:
    """Raise 53400 when a job has as many runs as may be."""
    if len(job.runs) >= staging_runs_max:
        raise OperationalError(
            f"staging: job {job.name!r} has {len(job.runs):,} runs that were not given up; more "
            "are not allowed",
            sqlstate="53400",
            hint=f"abort_staging({job.name!r}), by its name as plain text, gives all of them up",
        )


def _given_up(name: str) -> ProgrammingError:
    return ProgrammingError(
        f"staging: this run of job {name!r} was given up",
        sqlstate="42704",
        hint="begin_staging() begins another run",
    )


def _of_another_user(name: str) -> ProgrammingError:
    return ProgrammingError(f"staging: job {name!r} is another user's", sqlstate="42501")


def _check_own(stage: Stage | None, statement: StatementJob | None) -> None:
    """Raise 40001 where a stage is not the statement's own.

    Its beginning was not durable: a log that is opened anew may not have it, and another's stage
    may have its number by now.
    """
    if statement is not None and stage is not None and stage.job != statement.name:
        raise absent_error()


def _lost_rows(number: int, stage: Stage, expected: int) -> OperationalError:
    return OperationalError(
        f"staging: stage {number} has {stage.row_count:,} rows, expected {expected:,}: a crash of "
        "the server came before they were durable",
        sqlstate="40001",
        retry=Retry.SAFE,
        hint="begin the attempt again",
    )


def _operation(text: str) -> Operation:
    try:
        return Operation(text)
    except ValueError:
        known = ", ".join(repr(each.value) for each in Operation)
        raise ProgrammingError(
            f"staging: operation: expected one of {known}, found {text!r}", sqlstate="22023"
        ) from None


def is_possible(table: Table) -> bool:
    """Tell whether rows of a table may be staged.

    Not where there are indexes, which would have no entries of rows that come in pages, nor where
    it takes a query to check rows.
    """
    return not (table.indexes or checks_by_query(table))


def _check_possible(table: Table) -> None:
    """Raise 0A000 for a table whose rows are not staged."""
    if table.indexes:
        raise NotSupportedError(
            f'staging: table "{table.name}" has indexes, and staged rows get no entries in them',
            hint="Write by INSERT or ingest(); or make the indexes behind the commit.",
        )
    if checks_by_query(table):
        raise NotSupportedError(
            f'staging: table "{table.name}" has a CHECK with functions or operators that only a '
            "query computes, and none runs over staged rows",
            hint="Write by INSERT or ingest(); or ADD CONSTRAINT behind the commit.",
        )


def _check_name(what: str, name: str) -> None:
    if not 0 < len(name.encode()) <= staging_name_bytes_max:
        raise ProgrammingError(
            f"staging: {what}: expected a name of 1 to {staging_name_bytes_max} bytes, found "
            f"{len(name.encode())}",
            sqlstate="22023",
        )
    if not name.isprintable():  # superusers see it in sysstagings
        raise ProgrammingError(
            f"staging: {what}: expected printable characters, found {name!r}", sqlstate="22023"
        )


def _check_key(table: Table, operation: Operation, key_columns: Sequence[str] | None) -> None:
    if table.is_heap:
        if operation.refuses_repeats and not key_columns:
            return
        raise ProgrammingError(
            f'staging: operation {operation.value!r} needs a primary key, and table "{table.name}" '
            "has none",
            sqlstate="42P10",
        )
    if key_columns and sorted(name.lower() for name in key_columns) != sorted(
        name.lower() for name in table.key_names
    ):
        raise ProgrammingError(
            f"staging: key columns: expected the primary key ({', '.join(table.key_names)}) of "
            f'table "{table.name}", found ({", ".join(key_columns)})',
            sqlstate="42P10",
        )
