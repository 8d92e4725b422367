"""What a server that is none of ours may say about leases."""

from typing import Any

import pytest

from herdpy.driver.remote.leasing import RemoteLeasing
from herdpy.errors import ProtocolError
from herdpy.proto import messages


@pytest.mark.parametrize("name", ["", "../a", "/etc/x", "a'; DROP TABLE t --", "é1", "a b"])
def test_an_id_is_letters_and_digits(name: str) -> None:
    def ask(make: Any) -> messages.Message:
        make(1)
        return messages.Leased(1, name, "-1.0.0", 5.0)

    leasing = RemoteLeasing(ask, lambda _: pytest.fail("no result was asked for"))
    for call in (lambda: leasing.take(5), lambda: leasing.use("a")):
        with pytest.raises(ProtocolError, match="expected the id of a lease"):
            call()
