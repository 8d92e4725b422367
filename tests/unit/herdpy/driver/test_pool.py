"""The pool where two threads meet in one moment; what it does otherwise is in tests/dbapi."""

from typing import Any

import pytest

from herdpy.driver.local import ThreadWaiting
from herdpy.driver.pool import Pool
from herdpy.errors import InterfaceError, OperationalError


@pytest.mark.parametrize("is_closed", [False, True])
def test_what_comes_back_in_the_moment_of_the_timeout_is_not_lost(is_closed: bool) -> None:
    pool = Pool(":memory:", connections_max=1)
    lent = pool.connection()
    only = lent.__enter__()

    class Late(ThreadWaiting):
        """Its time is up when the connection has just come."""

        def wait(self, ticket: Any, deadline: float) -> bool:
            assert not ticket.is_done
            lent.__exit__(None, None, None)
            assert ticket.is_done
            if is_closed:
                pool.close()
            return False

    pool._waiting = Late()
    with pytest.raises(OperationalError, match="in use"), pool.connection():
        pass
    assert pool.connection_count == (not is_closed)
    pool.close()
    assert pool.connection_count == 0
    with pytest.raises(InterfaceError, match="closed"):
        only.cursor()
