"""Staged: what jobs have staged and not committed yet, and which have committed; the log's state.

A job is begun for one table and one operation. Its tasks stage rows, each attempt of a task a stage
of its own, in pieces as the log brought them, then in pages. COMMIT STAGING names the stages that
count; their rows change the table there (page_adoption.py), and all stages of the job are gone. So
are they when the job is given up, or its table is dropped. A committed job is kept by name with the
position of its commit and a digest of the stages it named, so that it commits once. Several
programs may run one job: each begins a run, gives up only what is its own, and the job ends with
the last of them.
No statement sees what is staged. Source: ADR 0025, 0038.

A transaction spills what it changes of a table, beyond its memory, into stages of its own, one for
each statement and operation. Its later statements see them, ROLLBACK TO drops them from a statement
on, ROLLBACK all of them, and COMMIT gives them to the table. Source: ADR 0057.

Immutable: a part of State, replaced with it. Any thread.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any, NamedTuple

from herdpy.errors import InvariantViolation
from herdpy.limits import staging_commits_max
from herdpy.log.record import (
    BeginSpill,
    BeginStage,
    BeginStaging,
    CommitStaging,
    DropStages,
    EndStaging,
    FinishStage,
    StageRows,
    StagingRecord,
    TransactionId,
)
from herdpy.model.access import User, plain_user
from herdpy.model.lsn import Lsn
from herdpy.model.schema import Table
from herdpy.model.types import Row
from herdpy.storage.table_pages import TablePages

PlainStaged = list[Any]
"""Jobs, stages without their rows, and commits; see Staged.to_plain."""
PlainSpilled = list[Any]
"""Stages of transactions without their rows; see Staged.spilled_to_plain."""
PlainRuns = list[Any]
"""Runs of jobs and of stages, owners and digests of commits; see Staged.runs_to_plain."""
OwnerOf = Callable[[str | None, int], User | None]
"""Access.owner_of."""
_DIGEST_BYTES = 16
_ROW_BYTES = 64
"""Of memory to make a page of a row, beside its data: its place in the order, NULLs, its key."""


class Operation(Enum):
    """What a job's rows do to the rows of its table that have their keys."""

    APPEND = "append"
    """A key that is there is an error (23505)."""
    UPSERT = "upsert"
    """A row replaces the one with its key; the last of a key counts."""
    REPLACE = "replace"
    """The table has these rows afterwards, and no others."""
    IGNORE = "ignore"
    """A row whose key is there is left out; the first of a key counts."""
    UPDATE = "update"
    """The given columns of the row with its key change; a row without one is left out."""
    DELETE = "delete"
    """The row with its key goes; only the columns of the key are given."""

    @property
    def refuses_repeats(self) -> bool:
        """Rows with the same key are an error (23505), in whatever stages they are."""
        return self in (Operation.APPEND, Operation.REPLACE)


class Piece(NamedTuple):
    """The rows of one record, in memory until a checkpoint makes them pages."""

    data: bytes
    row_count: int
    first_row_id: int


class Job(NamedTuple):
    """A job that has not committed."""

    name: str
    table: Table
    operation: Operation
    at_us: int
    user: User | None
    is_statement: bool = False
    runs: tuple[str | None, ...] = (None,)
    """Those that have begun and were not given up; None: that of a driver that names none."""


class Commit(NamedTuple):
    """A job that has committed."""

    lsn: Lsn
    user: User | None = None
    digest: bytes | None = None
    """Of the stages that it named (stages_digest); None: an older program committed it."""

    @property
    def is_known(self) -> bool:
        return self.digest is not None


class Stage(NamedTuple):
    """What one attempt of a task has staged: pages of what was earlier, pieces of the rest."""

    job: str
    table: Table
    operation: Operation
    task: str
    attempt: str
    pages: TablePages
    pieces: tuple[Piece, ...] = ()
    ordinals: tuple[int, ...] = ()
    """The columns that its rows give; empty before the first row."""
    row_count: int = 0
    byte_count: int = 0
    """Of all its rows, as the log had them."""
    piece_bytes: int = 0
    is_finished: bool = False
    run: str | None = None
    tx: TransactionId | None = None
    """Of the transaction that spills here, without a job; None: it is a job's."""
    statement: int = 0
    """Of that transaction."""

    def in_pages(self, frozen: "Stage", pages: TablePages) -> "Stage":
        """Return the stage when what it was at a checkpoint is in pages."""
        return self._replace(
            pages=pages,
            pieces=self.pieces[len(frozen.pieces) :],
            piece_bytes=self.piece_bytes - frozen.piece_bytes,
        )


class Staged(NamedTuple):
    jobs: dict[str, Job]
    stages: dict[int, Stage]
    """By number, ascending: in the order of their beginnings."""
    commits: dict[str, Commit]
    """Committed jobs, the oldest first; at most staging_commits_max."""

    def of_job(self, job: str) -> dict[int, Stage]:
        return {number: stage for number, stage in self.stages.items() if stage.job == job}

    def find(self, job: str, run: str | None, task: str, attempt: str) -> int | None:
        """Return the number of an attempt's stage, None when there is none."""
        wanted = (job, run, task, attempt)
        for number, stage in self.stages.items():
            if (stage.job, stage.run, stage.task, stage.attempt) == wanted:
                return number
        return None

    @property
    def working_bytes(self) -> int:
        """Return about what it takes to make pages of all rows that are in memory."""
        pieces = (piece for stage in self.stages.values() for piece in stage.pieces)
        return self.piece_bytes + _ROW_BYTES * sum(piece.row_count for piece in pieces)

    @property
    def piece_bytes(self) -> int:
        """Bytes of all rows that are in memory."""
        return sum(stage.piece_bytes for stage in self.stages.values())

    # --- what transactions spill -----------------------------------------------------------------

    @property
    def of_jobs_only(self) -> dict[int, Stage]:
        """Return the stages of jobs, and not those that transactions spill into."""
        return {number: stage for number, stage in self.stages.items() if stage.tx is None}

    def spilled(
        self,
        tx: TransactionId | None,
        table_id: int,
        before: int | None = None,
        *,
        is_void: "Callable[[int, Stage], bool]" = lambda number, stage: False,
    ) -> list[Stage]:
        """Return what a transaction's statements, those before one or all, spilled of a table."""
        return [
            stage
            for number, stage in self.stages.items()
            if stage.tx is not None
            and stage.tx == tx
            and stage.table.id == table_id
            and (before is None or stage.statement < before)
            and not is_void(number, stage)
        ]

    def spilled_tables(self, tx: TransactionId) -> list[int]:
        """Return the ids of the tables of which a transaction has spilled changes, ascending."""
        return sorted({stage.table.id for stage in self.stages.values() if stage.tx == tx})

    def begin_spill(self, record: BeginSpill, table: Table) -> "Staged":
        """Return what is staged when a transaction spills; `table` as the transaction sees it."""
        if table.version != record.table_version:
            raise InvariantViolation(
                f"I4: table {table.id} spills in version {record.table_version}, the catalog has "
                f"version {table.version}"
            )
        operation = Operation(record.operation)
        stage = Stage("", table, operation, "", "", TablePages(table), tx=record.tx)
        return self._put(record.stage, stage._replace(statement=record.statement))

    def without_spilled(self, tx: TransactionId, statement: int = 0) -> "Staged":
        """Return the rest when what a transaction spilled, from a statement on, is gone."""
        gone = {n for n, s in self.stages.items() if s.tx == tx and s.statement >= statement}
        return self._without(gone) if gone else self

    # --- records ---------------------------------------------------------------------------------

    def apply(
        self, record: StagingRecord, table: Table | None, lsn: Lsn, owner_of: OwnerOf
    ) -> "Staged":
        """Return what is staged after a record; `table` is that of a job that begins, if there.

        A record about a job or stage that is not there any more has no effect: its end may have
        been on its way through the log when the record was made.
        """
        match record:
            case BeginStaging():
                return self._begin_job(record, table, owner_of)
            case BeginStage():
                return self._begin(record)
            case StageRows():
                return self._add(record)
            case FinishStage():
                stage = self.stages.get(record.stage)
                if stage is None:
                    return self
                return self._put(record.stage, stage._replace(is_finished=True))
            case DropStages():
                kept = self._without(set(record.stages))
                return kept if record.job is None else kept.without_run(record.job, record.run)
            case CommitStaging():
                if not self.can_commit(record):
                    return self
                if self.jobs[record.job].is_statement:
                    return self.without_jobs([record.job])
                commit = Commit(lsn, self.jobs[record.job].user, stages_digest(record.stages))
                commits = {**self.commits, record.job: commit}
                while len(commits) > staging_commits_max:
                    del commits[next(iter(commits))]
                return self.without_jobs([record.job])._replace(commits=commits)
            case EndStaging():
                if record.run is None:
                    return self.without_jobs(record.jobs)
                return self.without_run(record.jobs[0], record.run)

    def can_commit(self, record: CommitStaging) -> bool:
        """Return whether a commit has an effect: its job and all its stages are there."""
        stages = map(self.stages.get, record.stages)
        return record.job in self.jobs and all(
            stage is not None and stage.job == record.job and stage.is_finished for stage in stages
        )

    def _begin_job(self, record: BeginStaging, table: Table | None, owner_of: OwnerOf) -> "Staged":
        job = self.jobs.get(record.job)
        if job is not None:
            if record.run in job.runs:
                return self
            job = job._replace(runs=(*job.runs, record.run))
        else:
            if record.job in self.commits or table is None:
                return self
            if table.version != record.table_version:
                return self
            operation, runs = Operation(record.operation), (record.run,)
            user = owner_of(record.user, record.user_id)
            job = Job(record.job, table, operation, record.at_us, user, record.is_statement, runs)
        return self._replace(jobs={**self.jobs, record.job: job})

    def _begin(self, record: BeginStage) -> "Staged":
        job = self.jobs.get(record.job)
        if job is None or (record.run is not None and record.run not in job.runs):
            return self
        run = record.run
        former = self.find(record.job, run, record.task, record.attempt)
        kept = self if former is None else self._without({former})
        pages = TablePages(job.table)
        stage = Stage(
            record.job, job.table, job.operation, record.task, record.attempt, pages, run=run
        )
        return kept._replace(stages={**kept.stages, record.stage: stage})

    def _add(self, record: StageRows) -> "Staged":
        stage = self.stages.get(record.stage)
        if stage is None or record.first_row != stage.row_count or stage.is_finished:
            return self
        size = len(record.data)
        piece = Piece(record.data, record.row_count, record.first_row_id)
        added = stage._replace(
            pieces=(*stage.pieces, piece),
            ordinals=tuple(record.ordinals),
            row_count=stage.row_count + record.row_count,
            byte_count=stage.byte_count + size,
            piece_bytes=stage.piece_bytes + size,
        )
        return self._put(record.stage, added)

    def without_jobs(self, jobs: list[str]) -> "Staged":
        """Return the rest when these jobs and their stages are gone."""
        gone = set(jobs)
        return self._replace(
            jobs={name: job for name, job in self.jobs.items() if name not in gone},
            stages={n: stage for n, stage in self.stages.items() if stage.job not in gone},
        )

    def of_run(self, job: str, run: str | None) -> list[int]:
        return [n for n, stage in self.stages.items() if (stage.job, stage.run) == (job, run)]

    def without_run(self, name: str, run: str | None) -> "Staged":
        """Return the rest when a run is gone, with its stages; with the last one goes the job."""
        job = self.jobs.get(name)
        if job is None:
            return self
        runs = tuple(each for each in job.runs if each != run)
        if not runs:
            return self.without_jobs([name])
        kept = self._without(set(self.of_run(name, run)))
        return kept._replace(jobs={**kept.jobs, name: job._replace(runs=runs)})

    def without_tables(self, table_ids: set[int]) -> "Staged":
        gone = [name for name, job in self.jobs.items() if job.table.id in table_ids]
        return self.without_jobs(gone) if gone else self

    def _put(self, number: int, stage: Stage) -> "Staged":
        return self._replace(stages={**self.stages, number: stage})

    def _without(self, numbers: set[int]) -> "Staged":
        return self._replace(stages={n: s for n, s in self.stages.items() if n not in numbers})

    # --- checkpoints -----------------------------------------------------------------------------

    def to_plain(self) -> PlainStaged:
        """Return everything but rows, for a checkpoint or a digest."""
        return [
            [
                [
                    job.name,
                    job.table.id,
                    job.operation.value,
                    job.at_us,
                    plain_user(job.user)[0],
                    job.is_statement,
                ]
                for job in self.jobs.values()
            ],
            [
                [
                    number,
                    stage.job,
                    stage.task,
                    stage.attempt,
                    list(stage.ordinals),
                    stage.row_count,
                    stage.byte_count,
                    stage.is_finished,
                ]
                for number, stage in self.of_jobs_only.items()
            ],
            [[name, list(commit.lsn)] for name, commit in self.commits.items()],
        ]

    def spilled_to_plain(self) -> PlainSpilled:
        """Return the stages of transactions, but for their rows."""
        return [
            [
                number,
                list(stage.tx),
                stage.statement,
                stage.table.id,
                stage.operation.value,
                list(stage.ordinals),
                stage.row_count,
                stage.byte_count,
            ]
            for number, stage in self.stages.items()
            if stage.tx is not None
        ]

    def runs_to_plain(self) -> PlainRuns:
        """Return what to_plain() leaves out, for programs that know no runs read just that."""
        return [
            [[job.name, list(job.runs), plain_user(job.user)[1]] for job in self.jobs.values()],
            [[number, stage.run] for number, stage in self.stages.items() if stage.run is not None],
            [
                [name, user, each.digest, role_id]
                for name, each in self.commits.items()
                for user, role_id in [plain_user(each.user)]
            ],
        ]

    @classmethod
    def of_pages(cls, pages: dict[int, TablePages]) -> "Staged":
        """Return stages of which only the pages are known, until restored()."""
        stages = {
            number: Stage("", each.table, Operation.APPEND, "", "", each)
            for number, each in pages.items()
        }
        return cls({}, stages, {})

    def restored(
        self,
        plain: PlainStaged,
        tables: dict[int, Table],
        plain_runs: PlainRuns,
        owner_of: OwnerOf,
        plain_spilled: PlainSpilled,
        table_of: Callable[[TransactionId, int], Table],
    ) -> "Staged":
        """Invert to_plain() over what of_pages() returned; ValueError when the two do not fit.

        `plain_runs` as of runs_to_plain(); empty: an older program wrote the checkpoint.
        `plain_spilled` as of spilled_to_plain(), table_of() the tables that a transaction sees.
        """
        jobs, stages, commits = plain or ([], [], [])
        runs_of_jobs, runs_of_stages, known = map(_by_first, plain_runs or ([], [], []))
        if not self.stages.keys() <= {each[0] for each in (*stages, *plain_spilled)}:
            raise ValueError(f"pages of stages {list(self.stages)}, which are not there")
        made = {
            name: Job(
                name,
                tables[table_id],
                Operation(operation),
                at_us,
                owner_of(user, *runs_of_jobs.get(name, [])[1:] or [0]),
                is_statement,
                tuple(runs_of_jobs[name][0]) if name in runs_of_jobs else (None,),
            )
            for name, table_id, operation, at_us, user, is_statement in jobs
        }
        found: dict[int, Stage] = {}
        for number, job, task, attempt, ordinals, rows, size, is_finished in stages:
            table = made[job].table
            found[number] = Stage(
                job,
                table,
                made[job].operation,
                task,
                attempt,
                self.stages[number].pages if number in self.stages else TablePages(table),
                ordinals=tuple(ordinals),
                row_count=rows,
                byte_count=size,
                is_finished=is_finished,
                run=runs_of_stages[number][0] if number in runs_of_stages else None,
            )
        for number, tx, statement, table_id, operation, ordinals, rows, size in plain_spilled:
            table = table_of((tx[0], tx[1]), table_id)
            found[number] = Stage(
                "",
                table,
                Operation(operation),
                "",
                "",
                self.stages[number].pages if number in self.stages else TablePages(table),
                ordinals=tuple(ordinals),
                row_count=rows,
                byte_count=size,
                tx=(tx[0], tx[1]),
                statement=statement,
            )
        kept: dict[str, Commit] = {}
        for name, lsn in commits:
            user, digest, *ids = known.get(name, (None, None))
            kept[name] = Commit(Lsn(*lsn), owner_of(user, *ids or [0]), digest)
        return Staged(made, dict(sorted(found.items())), kept)


NOTHING = Staged({}, {}, {})


def stages_digest(stages: Sequence[int]) -> bytes:
    """Return what tells whether two commits name the same stages, in the same order."""
    if any(not 0 <= number < 1 << 63 for number in stages):
        return b""  # no stage has such a number, so nothing was committed of them
    data = b"".join(number.to_bytes(8, "big", signed=True) for number in stages)
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()


def _by_first(items: list[Any]) -> dict[Any, list[Any]]:
    return {first: rest for first, *rest in items}


def staging_rows(staged: Staged) -> Iterator[Row]:
    for job in staged.jobs.values():
        stages = staged.of_job(job.name).values()
        yield (
            job.name,
            job.table.name,
            job.operation.value,
            plain_user(job.user)[0],
            job.at_us,
            len(stages),
            sum(stage.is_finished for stage in stages),
            sum(stage.row_count for stage in stages),
            sum(stage.byte_count for stage in stages),
        )
