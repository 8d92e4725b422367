"""ServingState: which adds a bookie takes, of all the reasons that there are for taking fewer.

An operator's wish, full disks, the lifecycle state, and the loss of the cookie each ask for an
Admission; the strictest counts. Used on the bookie's loop.
"""

import logging

from bookie.ledger.types import BookieId
from bookie.lifecycle.states import LifecycleRecord, LifecycleState
from bookie.server.bookie import Admission, Bookie

_log = logging.getLogger(__name__)


class ServingState:
    """See the module. The bookie is told at each change; until on_lifecycle() it takes no add."""

    def __init__(self, bookie: Bookie, bookie_id: BookieId) -> None:
        self._bookie = bookie
        self._bookie_id = bookie_id
        self._is_set_read_only = False
        self._is_disk_full = False
        self._is_removed = False
        self._lifecycle: LifecycleRecord | None = None

    @property
    def is_read_only(self) -> bool:
        return self._bookie.is_read_only

    @property
    def lifecycle_state(self) -> LifecycleState | None:
        """As last read; None: it could not be, and no add is taken."""
        return None if self._lifecycle is None else self._lifecycle.state

    def set_read_only(self, *, is_read_only: bool) -> None:
        """Let an operator's wish count; a full disk keeps the bookie read-only all the same."""
        self._is_set_read_only = is_read_only
        self._admit()

    def on_disk(self, is_full: bool) -> None:
        self._is_disk_full = is_full
        self._admit()

    def on_lifecycle(self, record: LifecycleRecord | None) -> None:
        """Take the state that was read; None: it cannot be."""
        if record != self._lifecycle and record is not None:
            _log.info("bookie %s: its lifecycle state is %s", self._bookie_id, record.state.value)
        self._lifecycle = record
        self._admit()

    def on_removed(self) -> None:
        """Take no add any more: the bookie's cookie is gone."""
        self._is_removed = True
        self._admit()

    def _admit(self) -> None:
        is_read_only = self._is_set_read_only or self._is_disk_full
        self._bookie.set_admission(
            max(
                Admission.PRIORITY if is_read_only else Admission.ALL,
                Admission.NONE if self._is_removed else admission_of(self._lifecycle),
            )
        )


def admission_of(record: LifecycleRecord | None) -> Admission:
    """Return which adds a bookie of this lifecycle state takes; None: the state is not known."""
    if record is None or record.state is LifecycleState.DRAINED:
        return Admission.NONE
    is_active = record.state is LifecycleState.ACTIVE
    return Admission.ALL if is_active else Admission.PRIORITY_RECOVERY
