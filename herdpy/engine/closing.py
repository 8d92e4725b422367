"""How what is composed of many parts is closed, each of which may fail."""

from collections.abc import Callable, Sequence


def run_all(steps: Sequence[Callable[[], object]]) -> None:
    """Run every step in order, also behind a failing one or an interrupt; raise the newest error.

    By halves: of hundreds of tablespaces there are more steps than Python allows calls in calls.
    """
    if len(steps) <= 1:
        for step in steps:
            step()
        return
    middle = len(steps) // 2
    try:
        run_all(steps[:middle])
    finally:
        run_all(steps[middle:])
