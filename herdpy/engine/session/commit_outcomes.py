"""Commit outcomes: what became of a commit whose answer the client never saw. Any thread."""

from bookie.runtime.ticket import Ticket
from herdpy.engine.session.core import SessionCore
from herdpy.engine.state.commit_tokens import Outcome, checked_token, expired_error
from herdpy.engine.state.log_space import with_log_space
from herdpy.model.durability import Durability


class CommitOutcomes:
    def __init__(self, core: SessionCore) -> None:
        self._core = core

    def resolve(self, token_session: str, counter: int) -> Outcome:
        """Return what became of a commit of any session; it waits.

        One that is not decided yet never happens any more. COMMITTED and REFUSED are durable when
        this returns. A caller that knows a session's name may ask: it cannot be guessed.
        LogFailedError: it is not known, until the database is opened again; DiskFullError: ask
        again.
        """
        core, tablespace = self._core, self._core.tablespace
        core.check_open()
        core.database.check_usable()
        token = checked_token(token_session, counter)

        def decide() -> Outcome | Ticket[None]:
            return with_log_space(tablespace, lambda: tablespace.decide(token), frees_space=True)

        found = decide()
        while not isinstance(found, Outcome):
            core.wait_for(found, Durability.SYNC)
            found = decide()
        tablespace.sync_log(tablespace.state.lsn)  # commits of durability os or none did not wait
        return found

    def check_token(self) -> None:
        """Raise 57P05 when nothing can commit by this session's tokens any more."""
        if self._core.tablespace.applier.tokens.is_expired(self._core.token_session):
            raise expired_error()
