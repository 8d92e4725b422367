"""`with conn.transaction():` the outermost block is a transaction, one in it a savepoint.

What an inner block could not take back is taken back with the outer one, also when the program has
caught the inner one's exception: nothing of a block that failed is ever committed.
"""

from typing import TYPE_CHECKING, Any

from herdpy.errors import Error, InternalError, ProgrammingError, loading

if TYPE_CHECKING:
    from herdpy.driver.connection import Connection
    from herdpy.driver.interfaces import DriverSession


class Rollback(Exception):  # noqa: N818 - psycopg's name; no error of the database
    """Raised in a block, it rolls the block back, and the program goes on behind it.

    With a block, an outer one, all up to and with that one are rolled back.
    """

    def __init__(self, block: Any = None) -> None:
        super().__init__()
        self.block = getattr(block, "blocking", block)  # of herdpy.aio's what it has


class TransactionBlock:
    """`with conn.transaction():`; begins on entry. In another block it is a savepoint of that."""

    __slots__ = (
        "_connection",
        "_durability",
        "_failure",
        "_is_rolled_back",
        "_name",
        "_savepoint",
        "outer",
    )

    def __init__(
        self,
        connection: "Connection",
        durability: str | None,
        savepoint_name: str | None,
        *,
        is_rolled_back: bool,
    ) -> None:
        self._connection = connection
        self._durability = durability
        self._name = savepoint_name
        self._is_rolled_back = is_rolled_back
        self.outer: TransactionBlock | None = None
        """The block that it is in, while it is open."""
        self._savepoint: str | None = None
        """What it goes back to; None: it is the whole transaction."""
        self._failure: BaseException | None = None
        """Why a block in it could not be rolled back."""

    @property
    def savepoint_name(self) -> str | None:
        """Of the savepoint that it is, or that the transaction begins with; None: of none."""
        return self._savepoint if self._savepoint is not None else self._name

    def __enter__(self) -> "Connection":
        connection = self._connection
        session = connection.live_session()
        outer = connection.block
        self.outer, self._savepoint, self._failure = None, None, None
        if outer is not None and session.in_transaction:
            self._enter_inner(session, outer)
        else:
            self._enter_outermost(session)
        return connection

    def _enter_inner(self, session: "DriverSession", outer: "TransactionBlock") -> None:
        if self._durability is not None:
            raise ProgrammingError(
                "transaction(): durability is that of the outermost block, which is open already",
                sqlstate="25001",
                hint="Say it there.",
            )
        depth, block = 0, outer
        while block is not None:
            if block is self:
                raise ProgrammingError(
                    "transaction(): the block is open already",
                    sqlstate="25001",
                    hint="conn.transaction() makes another one.",
                )
            depth, block = depth + 1, block.outer
        name = self._name or f"_herdpy_{depth}"
        session.execute(f"SAVEPOINT {_quoted(name)}")
        self.outer, self._savepoint = outer, name
        self._connection.block = self

    def _enter_outermost(self, session: "DriverSession") -> None:
        was_inside = session.in_transaction
        try:
            session.begin(self._durability)
            if self._name is not None:
                session.execute(f"SAVEPOINT {_quoted(self._name)}")
            self._connection.block = self
        except BaseException:
            if not was_inside:
                session.rollback()  # an interrupt came behind BEGIN; the block will not end it
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None = None,
        _traceback: object = None,
    ) -> bool:
        """End the block; True: it was left by a Rollback that is its own."""
        session = self._connection.live_session()
        if self._connection.block not in (None, self) and self._failure is None:
            self._failure = InternalError(
                "transaction(): a block in this one was not left, so both are rolled back",
                sqlstate="25000",
                hint="An interrupt came while it was left, or blocks were left out of order.",
            )
        is_own = isinstance(error, Rollback) and error.block in (None, self)
        is_kept = kind is None and not self._is_rolled_back and self._failure is None
        if self._savepoint is None:
            try:
                if is_kept:
                    session.commit()
            finally:
                session.rollback()  # nothing to do when the commit settled it, either way
                self._connection.block = None
        else:
            is_left_by_error = kind is not None and not is_own
            self._leave_inner(session, is_kept=is_kept, is_left_by_error=is_left_by_error)
        if self._failure is not None and (kind is None or is_own):
            raise self._failure
        return is_own

    def note_failure(self, failure: BaseException) -> None:
        """Have the block rolled back, because one in it could not be."""
        self._failure = failure

    def _leave_inner(
        self, session: "DriverSession", *, is_kept: bool, is_left_by_error: bool
    ) -> None:
        """Release the savepoint, or go back to it; the error that leaves the block counts more."""
        name = _quoted(self._savepoint or "")
        try:
            if not is_kept:
                session.execute(f"ROLLBACK TO SAVEPOINT {name}")
            session.execute(f"RELEASE SAVEPOINT {name}")
        except BaseException as failure:
            if self.outer is not None:
                self.outer.note_failure(failure)
            if not (is_left_by_error and isinstance(failure, Error)):
                raise
        finally:
            self._connection.block = self.outer


def _quoted(name: str) -> str:
    with loading():
        from herdpy.sql.text import name_text

    return name_text(name)
