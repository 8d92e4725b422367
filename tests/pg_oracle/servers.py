"""The two servers: a session of each, and a statement's answer from it in one form."""

from collections.abc import Sequence
from typing import Any

from psycopg import pq

import herdpy
from herdpy.driver.connection import Connection
from herdpy.model.types import Kind
from tests.pg_oracle.answers import Answer, Cell
from tests.pg_oracle.values import K
from tests.sql.runner import shown

_KINDS = {
    16: K.BOOLEAN, 17: K.BYTEA, 20: K.BIGINT, 21: K.SMALLINT, 23: K.INTEGER, 25: K.TEXT,
    700: K.REAL, 701: K.DOUBLE, 705: K.TEXT, 1043: K.TEXT, 1082: K.DATE, 1114: K.TIMESTAMP,
    1184: K.TIMESTAMPTZ, 1186: K.INTERVAL, 1700: K.DECIMAL,
}  # fmt: skip
"""By PostgreSQL's OID of a type."""
_SETTINGS = (
    "SET TIME ZONE 'UTC'; SET statement_timeout = '20s'; SET jit = off;"
    " SET client_min_messages = error; SET max_parallel_workers_per_gather = 0"
)
_GOOD = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)


class Postgres:
    """A session of PostgreSQL, by libpq alone: simple statements, texts as they come."""

    def __init__(self, conninfo: str) -> None:
        self._connection = pq.PGconn.connect(conninfo.encode())
        if self._connection.status != pq.ConnStatus.OK:
            raise ConnectionError(self._connection.error_message.decode())
        self.run(_SETTINGS)

    def run(self, text: str) -> Answer:
        return self.answer(self._connection.exec_(text.encode()), text)

    @staticmethod
    def answer(result: pq.abc.PGresult, text: str) -> Answer:
        """Return what a statement's result says."""
        if result.status not in _GOOD:
            code = result.error_field(pq.DiagnosticField.SQLSTATE)
            message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b""
            if code is None:
                raise ConnectionError(f"{result.error_message.decode()} after {text}")
            return Answer(code.decode(), message=message.decode())
        kinds = tuple(_KINDS.get(result.ftype(place)) for place in range(result.nfields))
        rows = tuple(
            tuple(_text(result.get_value(row, place)) for place in range(result.nfields))
            for row in range(result.ntuples)
        )
        return Answer(None, kinds, rows, result.command_tuples or 0)

    def close(self) -> None:
        self._connection.finish()


def _text(value: bytes | None) -> Cell:
    return None if value is None else value.decode()


class Herdpy:
    """A database of ours in memory."""

    def __init__(self) -> None:
        self.connection: Connection = herdpy.connect(":memory:", autocommit=True)

    def run(self, text: str, parameters: Sequence[object] = ()) -> Answer:
        try:
            cursor = self.connection.execute(text, parameters)
            if cursor.description is None:
                return Answer(None, row_count=cursor.rowcount)
            codes = [column[1] for column in cursor.description]
            kinds = tuple(Kind[code] for code in codes)
            rows = tuple(tuple(map(_shown, row, codes)) for row in cursor.fetchall())
        except herdpy.Error as error:
            return Answer(error.sqlstate, message=str(error))
        return Answer(None, kinds, rows, len(rows))

    def close(self) -> None:
        self.connection.close()


def _shown(value: Any, code: str) -> Cell:
    return None if value is None else shown(value, code)
