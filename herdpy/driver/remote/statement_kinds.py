"""What a statement can do, which decides whether it may run again after a lost connection.

By the server's own grammar, and only when a connection is lost, so it may be slow. READ is what is
known to change nothing: the functions that SELECT may call have no effects (tests/sql has the
list). Everything else counts as able to write, and what the grammar does not know, because the
server is newer, as able to commit.
"""

import re
from enum import Enum

from herdpy.errors import Error


class Kind(Enum):
    """What a call can do."""

    READ = 1
    """Nothing that lasts, or only to the session: it may run again."""
    WRITE = 2
    COMMIT = 3
    ROLLBACK = 4
    UNKNOWN = 5
    """Anything: what became of it has to be asked, also inside a transaction."""


_MAY_END = re.compile(r"[^A-Za-z]*(COMMIT|END|ROLLBACK|ABORT|PREPARE|SET)\b", re.IGNORECASE)
_READING = ("SELECT", "VALUES", "TABLE", "(")


def is_about_rows(text: str) -> bool:
    """Return whether a statement reads or writes rows, and nothing else. Syntax errors do, too.

    The server answers them, in their place.
    """
    from herdpy.sql.reading.tokens import scan
    from herdpy.sql.statements import Prefix, read_statement

    try:
        scanned = scan(text)
        if scanned.word(0) in ("GRANT", "REVOKE", "ALTER", "CREATE", "DROP"):
            return False
        return isinstance(read_statement(scanned), Prefix)
    except Error:
        return kind_of(text) is Kind.UNKNOWN and not _MAY_END.match(text)


def kind_of(text: str) -> Kind:
    """Return what a statement can do."""
    from herdpy.sql import tree
    from herdpy.sql.reading.tokens import scan
    from herdpy.sql.statements import Prefix, read_statement

    try:
        scanned = scan(text)
        if scanned.word(0) in ("GRANT", "REVOKE", "ALTER") or scanned.word(1) in ("USER", "ROLE"):
            return Kind.WRITE
        found = read_statement(scanned)
    except Error:
        return Kind.UNKNOWN
    if isinstance(found, Prefix):
        is_reading = found.rest.word(0) in _READING
        is_shown = found.is_explain and not found.is_analyze
        return Kind.READ if is_reading or is_shown else Kind.WRITE
    if isinstance(found, tree.Commit):
        return Kind.COMMIT
    if isinstance(found, tree.Rollback):
        return Kind.ROLLBACK
    of_session = (
        tree.TransactionStatement | tree.SetOption | tree.SetCharacteristics | tree.ShowOption
    )
    return Kind.READ if isinstance(found, of_session) else Kind.WRITE


def gives_rows(text: str) -> bool:
    """Return whether a change of rows has RETURNING, which is no name without quotes."""
    from herdpy.sql.reading.tokens import scan

    try:
        return any(token.word == "RETURNING" for token in scan(text).tokens)
    except Error:
        return False
