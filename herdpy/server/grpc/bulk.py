"""Ingest and GetSnapshot: many rows in, everything out. On the server's loop, but for conversions.

Both are small clients of the server's connections, with requests of the frame protocol.
"""

from typing import Any

from herdpy.errors import ProgrammingError, ProtocolError
from herdpy.model.schema import Table, table_from_plain
from herdpy.proto import herdpy_pb2 as pb
from herdpy.proto import messages
from herdpy.proto.typed_values import to_position, to_python
from herdpy.server.grpc.call import Call

# --- ingest --------------------------------------------------------------------------------------


async def ingest(call: Call) -> None:
    """Ingest: every message is answered before the next is read, so nothing piles up."""
    first = await call.read_one(pb.IngestRequest.FromString)
    if first.WhichOneof("kind") != "start":
        raise ProtocolError("ingest: expected start first")
    start = first.start
    async with call.session(call.opened(start)) as session:
        mode = start.mode or "append"
        begun = await session.ask(messages.BeginIngest, start.table, mode)
        rows = _Rows(table_from_plain(begun.table), list(start.columns))
        while (pieces := await call.read(rows.pieces, is_heavy=True)) is not None:
            if isinstance(pieces, pb.IngestFinish):
                done = await session.ask(messages.FinishIngest, begun.ingest)
                position = to_position(done.lsn)
                await call.write(pb.IngestReply(row_count=done.row_count, position=position))
                return
            for data in pieces:
                await session.ask(messages.IngestRows, begun.ingest, data)
        raise ProtocolError("ingest: it ended without finish, so nothing was written")


class _Rows:
    """Makes Arrow of typed rows."""

    def __init__(self, table: Table, names: list[str]) -> None:
        self._table = table
        self._names = names or [column.name for column in table.visible_columns]
        if len(set(self._names)) < len(self._names):
            raise ProgrammingError("ingest: a column is named twice", sqlstate="42701")
        self._count = 0

    def pieces(self, data: bytes) -> "list[bytes] | pb.IngestFinish":
        """Return what a message brings as Arrow IPC streams, or the end. Any thread."""
        request = pb.IngestRequest.FromString(data)
        kind = request.WhichOneof("kind")
        if kind == "finish":
            return request.finish
        if kind == "arrow":
            return [request.arrow]
        if kind != "rows":
            raise ProtocolError("ingest: expected rows, arrow or finish")
        from herdpy.exec.vector.arrow_input import batch_bytes, input_batches

        dicts = [self._as_dict(row) for row in request.rows.rows]
        return [batch_bytes(batch) for batch in input_batches(dicts, self._table)]

    def _as_dict(self, row: pb.Row) -> dict[str, Any]:
        self._count += 1
        if len(row.values) != len(self._names):
            raise ProgrammingError(
                f"row {self._count:,} of the data: expected {len(self._names)} values, found "
                f"{len(row.values)}",
                sqlstate="07001",
            )
        try:
            return dict(zip(self._names, map(to_python, row.values), strict=True))
        except (ValueError, OverflowError):
            raise ProtocolError(
                f"row {self._count:,} of the data: a value that is not of its class"
            ) from None


# --- snapshots -----------------------------------------------------------------------------------


async def get_snapshot(call: Call) -> None:
    """GetSnapshot: a piece is made when the one before was taken."""
    request = await call.read_one(pb.SnapshotRequest.FromString)
    async with call.session(pb.Open(tablespace=request.tablespace, autocommit=True)) as session:
        piece = await session.ask(messages.Export, "backup", request.snapshot, request.offset)
        info = pb.SnapshotInfo(
            snapshot=piece.snapshot,
            source=piece.source,
            position=to_position(piece.position),
            byte_count=piece.byte_count,
        )
        await call.write(pb.SnapshotReply(info=info, data=piece.data))
        while not piece.is_last:
            piece = await session.ask(messages.NextPiece)
            await call.write(pb.SnapshotReply(data=piece.data))
