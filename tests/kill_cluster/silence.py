"""How long clients heard nothing good, by what was done to the cluster."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from tests.kill_cluster.history import Record, is_answered
from tests.sim.server.checkers import CheckError


def silences(records: Iterable[Record]) -> dict[str, list[float]]:
    """Return, by kind of event, the longest gap between two answers of each client, in seconds.

    A gap counts for an event when it reaches into the time from the event to the next one: so it
    is from the last acknowledgement before to the first one after. CheckError: a client has heard
    nothing any more.
    """
    records = list(records)
    answers = moments_of(records)
    found: dict[str, list[float]] = defaultdict(list)
    for event in (each for each in records if each["op"] == "event"):
        for client, moments in answers.items():
            found[event["kind"]].append(_longest(client, moments, event))
    return dict(found)


def moments_of(records: Iterable[Record]) -> dict[int, list[float]]:
    """Return when each client was answered, ascending, by its number."""
    answers: dict[int, list[float]] = defaultdict(list)
    for record in records:
        if record["op"] in ("tx", "insert", "look"):
            moments = answers[record["client"]]
            if is_answered(record):
                moments.append(record["end"])
    return answers


def _longest(client: int, moments: Sequence[float], event: Record) -> float:
    """Return the longest gap that ends behind the event and begins before the next one."""
    first = max(bisect_left(moments, event["begin"]) - 1, 0)
    last = bisect_left(moments, event["end"]) + 1
    gaps = [after - before for before, after in pairwise(moments[first:last])]
    if not gaps or moments[-1] < event["begin"]:
        raise CheckError("liveness", f"client {client} has no answer behind {event}")
    return max(gaps)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that such a share of all is not above."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]
