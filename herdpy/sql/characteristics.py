"""What SET SESSION CHARACTERISTICS sets, in the words of settings: for engine and driver."""

from collections.abc import Iterator

from herdpy.model.settings import show_truth
from herdpy.sql.tree import TransactionModes


def characteristics(modes: TransactionModes) -> Iterator[tuple[str, str]]:
    """Yield (setting, value) of what the modes say."""
    if modes.isolation is not None:
        yield "default_transaction_isolation", modes.isolation.value
    if modes.is_read_only is not None:
        yield "default_transaction_read_only", show_truth(modes.is_read_only)
