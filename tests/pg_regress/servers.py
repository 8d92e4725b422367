"""A session of each server for one script, on databases that are new."""

import re
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import islice

from psycopg import pq

import herdpy
from herdpy.model.types import Kind
from tests.pg_oracle.answers import Answer
from tests.pg_oracle.servers import Postgres
from tests.pg_oracle.values import K, quoted
from tests.pg_regress.comparison import Reply
from tests.sql.runner import shown

_MORE_KINDS = {18: K.TEXT, 19: K.TEXT, 21: K.INTEGER, 700: K.DOUBLE, 1042: K.TEXT}
"""Of types that herdpy does not have, by PostgreSQL's OID: what their values are compared as."""
_DATABASE = "regression"
"""What PostgreSQL calls it, too: some statements of the corpus name it."""
_LEFT_BEHIND = (
    ("TABLESPACE", "SELECT quote_ident(spcname) FROM pg_tablespace WHERE spcname NOT LIKE 'pg_%'"),
    ("ROLE", "SELECT quote_ident(rolname) FROM pg_roles"
             " WHERE rolname NOT LIKE 'pg_%' AND rolname <> current_user"),
)  # fmt: skip
_ROWS_OF_AN_INSERT = 200
_COPY_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_COPY_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@contextmanager
def new_database(conninfo: str) -> Iterator[str]:
    """Give the conninfo of a new database in the collation C and UTC; it and its roles go then."""
    with closing(Postgres(conninfo)) as control:
        for text in (
            f"CREATE DATABASE {_DATABASE} TEMPLATE template0 ENCODING 'UTF8'"
            " LC_COLLATE 'C' LC_CTYPE 'C'",
            f"ALTER DATABASE {_DATABASE} SET timezone = 'UTC'",
        ):
            _must(control.run(text), text)
        try:
            yield conninfo.replace("dbname=postgres", f"dbname={_DATABASE}")
        finally:
            text = f"DROP DATABASE {_DATABASE} WITH (FORCE)"
            _must(control.run(text), text)
            for kind, query in _LEFT_BEHIND:
                for (name,) in control.run(query).rows:
                    _must(control.run(f"DROP {kind} {name}"), f"DROP {kind} {name}")


class PostgresSession(Postgres):
    """A session of PostgreSQL that also takes the rows of a COPY and tells its state."""

    takes_rows = False
    """Whether the last statement was a COPY that waits for rows."""
    tag = ""
    """What the last statement that was done was: COMMIT, or ROLLBACK, say."""

    def ask(self, text: str) -> Reply:
        """Run a statement; behind a COPY FROM stdin copy() has to come next."""
        result = self._connection.exec_(text.encode())
        self.takes_rows = result.status == pq.ExecStatus.COPY_IN
        if self.takes_rows:
            return Reply(Answer(None))
        if result.status == pq.ExecStatus.COPY_OUT:
            while self._connection.get_copy_data(0)[0] != -1:
                pass
            result = self._last_result()
        return self._reply(result, text)

    def copy(self, lines: Iterable[str]) -> Reply:
        """Send the rows of a COPY, and end it."""
        for line in lines:
            self._connection.put_copy_data(f"{line}\n".encode())
        self._connection.put_copy_end()
        self.takes_rows = False
        return self._reply(self._last_result(), "COPY")

    def _reply(self, result: pq.abc.PGresult, text: str) -> Reply:
        answer = self.answer(result, text)
        self.tag = "" if answer.sqlstate else (result.command_status or b"").decode()
        places = range(result.nfields)
        kinds = tuple(_MORE_KINDS.get(result.ftype(at), answer.kinds[at]) for at in places)
        names = tuple((result.fname(at) or b"").decode() for at in places)
        return Reply(answer._replace(kinds=kinds), names)

    def _last_result(self) -> pq.abc.PGresult:
        results = [*iter(self._connection.get_result, None)]
        return results[-1]

    @property
    def is_in_transaction(self) -> bool:
        return self._connection.transaction_status != pq.TransactionStatus.IDLE

    @property
    def has_failed(self) -> bool:
        """Whether its transaction can only be rolled back."""
        return self._connection.transaction_status == pq.TransactionStatus.INERROR

    @property
    def has_escapes(self) -> bool:
        """Whether a backslash escapes in every string."""
        return self._connection.parameter_status(b"standard_conforming_strings") == b"off"

    def setting(self, name: str) -> str | None:
        answer = self.run(f"SELECT current_setting({quoted(name)}, true)")
        return answer.rows[0][0] if answer.rows else None

    def put_back(self, name: str, value: str, *, is_local: bool) -> None:
        self.run(f"SELECT set_config({quoted(name)}, {quoted(value)}, {is_local})")


class HerdpySession:
    """A database of ours in memory, and what it answers, internal errors too."""

    def __init__(self) -> None:
        self.connection = herdpy.connect(":memory:", autocommit=True)
        self.connection.execute("SET statement_timeout = '20s'")

    def ask(self, text: str) -> Reply:
        try:
            cursor = self.connection.execute(text)
            if cursor.description is None:
                return Reply(Answer(None, row_count=cursor.rowcount))
            names = tuple(column[0] for column in cursor.description)
            codes = [column[1] for column in cursor.description]
            kinds = tuple(Kind[code] for code in codes)
            rows = tuple(
                tuple(
                    None if value is None else shown(value, code)
                    for value, code in zip(row, codes, strict=True)
                )
                for row in cursor.fetchall()
            )
        except herdpy.Error as error:
            return Reply(Answer(error.sqlstate, message=error.message))
        except Exception as error:
            return Reply(Answer("XX000", message=f"{type(error).__name__}: {error}"))
        return Reply(Answer(None, kinds, rows, len(rows)), names)

    @property
    def is_in_transaction(self) -> bool:
        return self.connection.in_transaction

    def load(self, target: str, lines: Iterable[str]) -> Answer:
        """Insert the lines of a COPY in its default format; the first error, or how many rows.

        target: table and columns, as INSERT INTO takes them.
        """
        rows, count = iter(lines), 0
        while batch := [*islice(rows, _ROWS_OF_AN_INSERT)]:
            values = ", ".join(
                f"({', '.join(map(_constant, line.split(chr(9))))})" for line in batch
            )
            answer = self.ask(f"INSERT INTO {target} VALUES {values}").answer
            if answer.sqlstate is not None:
                return answer
            count += len(batch)
        return Answer(None, row_count=count)

    def close(self) -> None:
        self.connection.close()


def _constant(cell: str) -> str:
    return "NULL" if cell == "\\N" else quoted(_COPY_ESCAPE.sub(_unescaped, cell))


def _unescaped(match: re.Match[str]) -> str:
    octal, hexadecimal, letter = match.groups()
    if octal or hexadecimal:
        return chr(int(octal, 8) if octal else int(hexadecimal, 16))
    return _COPY_ESCAPES.get(letter, letter)


def _must(answer: Answer, text: str) -> None:
    if answer.sqlstate is not None:
        raise AssertionError(f"{answer} after {text}")
