"""resolve(): what became of a commit whose answer the client never saw. Any thread; it waits."""

from bookie.runtime.interfaces import Driver
from herdpy.engine.state.commit_tokens import Outcome, checked_token
from herdpy.engine.state.log_space import with_log_space
from herdpy.engine.state.tablespace import Tablespace
from herdpy.model.durability import Durability


def resolve(tablespace: Tablespace, driver: Driver, session: str, counter: int) -> Outcome:
    """Return what became of a commit; one that is not decided yet never happens any more.

    COMMITTED and REFUSED are durable when this returns. LogFailedError: it is not known, until the
    database is opened again; DiskFullError: ask again.
    """
    token = checked_token(session, counter)
    found = with_log_space(tablespace, lambda: tablespace.decide(token))
    while not isinstance(found, Outcome):
        if tablespace.syncer is not None:
            tablespace.syncer.request(Durability.SYNC)
        driver.wait(found)
        found.result()
        found = with_log_space(tablespace, lambda: tablespace.decide(token))
    tablespace.sync_log(tablespace.state.lsn)  # commits of durability os or none did not wait
    return found
