"""What a server that is none of ours may say about leases."""

from collections.abc import Callable
from typing import Any

import pytest

from herdpy.errors import ProtocolError
from herdpy.features import TAKE_LEASE, USE_LEASE, Feature
from herdpy.proto import messages


@pytest.mark.parametrize("name", ["", "../a", "/etc/x", "a'; DROP TABLE t --", "é1", "a b"])
@pytest.mark.parametrize("feature", [TAKE_LEASE, USE_LEASE])
def test_an_id_is_letters_and_digits(name: str, feature: Feature[Any]) -> None:
    value: Callable[[Any], Any] | None = feature.value
    assert value is not None
    with pytest.raises(ProtocolError, match="expected the id of a lease"):
        value(messages.Leased(1, name, "-1.0.0", 5.0))
