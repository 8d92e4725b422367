"""The machine of the lifecycle: every state against every step."""

import pytest

from bookie.errors import IllegalOperationError
from bookie.ledger.types import BookieId
from bookie.lifecycle.states import LifecycleState, Step, after

ID = BookieId("b:3181")
ALLOWED = {
    ("Active", "DRAIN"): "Draining",
    ("Draining", "FINISH"): "Drained",
    ("Draining", "FAIL"): "DrainingFailed",
    ("Draining", "CANCEL"): "Active",
    ("DrainingFailed", "DRAIN"): "Draining",
    ("DrainingFailed", "MARK_DRAINED"): "Drained",
    ("DrainingFailed", "CANCEL"): "Active",
    ("Drained", "CANCEL"): "Active",
}


@pytest.mark.parametrize("state", LifecycleState)
@pytest.mark.parametrize("step", Step)
def test_every_step_from_every_state(state: LifecycleState, step: Step) -> None:
    wanted = ALLOWED.get((state.value, step.name))
    if wanted is not None:
        assert after(ID, state, step).value == wanted
        return
    with pytest.raises(IllegalOperationError) as caught:
        after(ID, state, step)
    text = str(caught.value)
    assert f"b:3181 is {state.value}" in text
    for (source, _), target in ALLOWED.items():
        if source == state.value:
            assert f"to {target}" in text
