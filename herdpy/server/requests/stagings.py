"""Stagings over the wire: requests as calls of session/staging.py. On a worker, stateless."""

from typing import TYPE_CHECKING

from herdpy.errors import ProgrammingError
from herdpy.model.schema import table_to_plain
from herdpy.proto.messages import (
    BeginStage,
    BeginStaging,
    EndStage,
    SettleStaging,
    StageBegun,
    StageRows,
    StagingBegun,
    StagingSettled,
)

if TYPE_CHECKING:
    from herdpy.engine.session.staging import Staging

StagingRequest = BeginStaging | BeginStage | StageRows | EndStage | SettleStaging


def staging_answer(
    staging: "Staging", message: StagingRequest
) -> StagingBegun | StageBegun | StagingSettled | int:
    """Carry out a request; return the answer, or the number of rows of a stage."""
    match message:
        case BeginStaging():
            table = staging.begin(
                message.table, message.operation, message.job, message.key_columns, message.run
            )
            return StagingBegun(message.request, table_to_plain(table))
        case BeginStage():
            stage, table = staging.begin_stage(
                message.job, message.task, message.attempt, message.run
            )
            return StageBegun(message.request, stage, table_to_plain(table))
        case StageRows():
            return _add(staging, message)
        case EndStage():
            if message.is_dropped:
                staging.drop_stage(message.stage)
                return -1
            wanted = None if message.row_count < 0 else message.row_count
            return staging.finish_stage(message.stage, wanted)
        case SettleStaging():
            return StagingSettled(message.request, _settle(staging, message))


def _add(staging: "Staging", message: StageRows) -> int:
    from herdpy.exec.vector.untrusted_arrow import batches_of

    first_row = message.first_row
    count = first_row
    for batch in batches_of(message.data):
        count = staging.add(message.stage, first_row, batch)
        first_row += batch.num_rows
    return count


def _settle(staging: "Staging", message: SettleStaging) -> str | None:
    match message.action:
        case "commit":
            return staging.commit(message.job, message.stages)
        case "abort":
            staging.abort(message.job, message.run)
            return None
        case "position":
            return staging.position(message.job)
        case other:
            raise ProgrammingError(
                f"staging: expected 'commit', 'abort' or 'position', found {other!r:.100}",
                sqlstate="22023",
            )
