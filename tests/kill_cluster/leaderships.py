"""What a silence behind an event consists of, by what nodes log when they come to lead.

The line has the seconds of each step (herdpy/cluster/takeover/step_times.py). What is before them
is the time in which the former leader's node was there still: its session, mostly. What is behind
them is the clients': until each has found the leader and was answered.
"""

import datetime
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from herdpy.cluster.takeover.step_times import NAMES
from tests.kill_cluster.history import Record
from tests.kill_cluster.silence import moments_of

SESSION, CLIENTS = "session", "clients"
PARTS = (SESSION, *(name.removesuffix("_s") for name in NAMES), CLIENTS)
"""Of a silence, in the order in which they come."""
_LINE = re.compile(
    r"^(\S+Z) INFO \S+: tablespace \S+: leading under epoch (\d+)(.*)$", re.MULTILINE
)
_FIELD = re.compile(r"(\w+)=(\S+)")


def leaderships(node: str, log: str, wall_s: float) -> Iterator[Record]:
    """Yield a record of each time that a node came to lead; wall_s: the monotonic clock's 0."""
    for time, epoch, fields in _LINE.findall(log):
        moment_s = datetime.datetime.fromisoformat(time).timestamp() - wall_s
        steps = {name: float(value) for name, value in _FIELD.findall(fields) if name in NAMES}
        yield {"op": "leading", "node": node, "epoch": int(epoch), "at": moment_s, "steps": steps}


def parts(records: Iterable[Record]) -> dict[str, list[dict[str, float]]]:
    """Return, by kind of event, what each one's longest silence around a leader's beginning is of.

    In seconds; of events behind which a node has come to lead.
    """
    records = list(records)
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    answers = moments_of(records)
    leading = [each for each in records if each["op"] == "leading"]
    for event in (each for each in records if each["op"] == "event"):
        silent = [
            (moments[index] - moments[index - 1], moments[index], each)
            for each in leading
            if event["begin"] <= each["at"] <= event["end"]
            for moments in answers.values()
            if 0 < (index := bisect_left(moments, each["at"])) < len(moments)
        ]
        if silent:
            _, answered_s, longest = max(silent, key=lambda each: each[0])
            found[event["kind"]].append(_split(event, longest, answered_s))
    return dict(found)


def _split(event: Record, leading: Record, answered_s: float) -> dict[str, float]:
    steps = {name.removesuffix("_s"): leading["steps"].get(name, 0.0) for name in NAMES}
    gone_s = leading["at"] - sum(steps.values())
    session = {SESSION: max(gone_s - event["begin"], 0.0)}
    return session | steps | {CLIENTS: max(answered_s - leading["at"], 0.0)}


def largest(splits: Sequence[dict[str, float]]) -> tuple[str, float]:
    """Return which part is the largest in the longest of some silences, and its seconds."""
    longest = max(splits, key=lambda each: sum(each.values()))
    name = max(PARTS, key=longest.__getitem__)
    return name, longest[name]
