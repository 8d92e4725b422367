"""What a history says: its verdict, and how long clients heard nothing."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from tests.kill_cluster.history import Record, check
from tests.kill_cluster.leaderships import PARTS, largest, parts
from tests.kill_cluster.silence import percentile, silences

FAILOVERS = ("kill leader", "kill leader+bookie")
"""Events that take the session of a leader, whose connections are broken at once."""
P50_OVER_S, P99_OVER_S = 1.0, 3.0
"""Beyond the session's time-out."""


def show(console: Console, records: Sequence[Record]) -> None:
    """Judge and print; CheckError."""
    found = silences(records)
    events = [record["kind"] for record in records if record["op"] == "event"]
    table = _table("event", "times", "silence p50", "p99", "max")
    for kind, values in sorted(found.items()):
        numbers = (percentile(values, 0.5), percentile(values, 0.99), max(values))
        table.add_row(kind, str(events.count(kind)), *(f"{each:.2f} s" for each in numbers))
    console.print(table)
    show_parts(console, records)
    verdict = check(records)
    errors = ", ".join(f"{code} {count}" for code, count in sorted(verdict.errors.items()))
    console.print(
        f"{len(events)} events: {verdict.acknowledged} transactions acknowledged, 0 lost, "
        f"0 doubled; {verdict.refused} refused, none there; {verdict.looks} reads, 0 stale; "
        f"{verdict.asked} answers lost of what had happened, told by its token; "
        f"{verdict.unknown} unknown, of which {verdict.unknown_there} are there; "
        f"the same rows on {verdict.states} nodes\nerrors: {errors or 'none'}",
        soft_wrap=True,
    )


def show_parts(console: Console, records: Sequence[Record]) -> None:
    """Print what the longest silence behind each change of the leader consisted of."""
    found = parts(records)
    if not found:
        return
    console.print("\nof which, p50 and max, in seconds")
    table = _table("event", *PARTS, "largest of the longest")
    for kind, splits in sorted(found.items()):
        cells: list[str] = []
        for part in PARTS:
            values = [each[part] for each in splits]
            cells.append(f"{percentile(values, 0.5):.2f} {max(values):5.2f}")
        name, value = largest(splits)
        table.add_row(kind, *cells, f"{name} {value:.2f}")
    console.print(table)


def _table(*columns: str) -> Table:
    table = Table(*columns, box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def too_long(records: Sequence[Record]) -> list[str]:
    """Return which silences are longer than promised."""
    session_s = next(each["session_timeout_s"] for each in records if each["op"] == "setup")
    found = silences(records)
    complaints: list[str] = []
    for kind in FAILOVERS:
        for share, over_s in ((0.5, P50_OVER_S), (0.99, P99_OVER_S)):
            value = percentile(found[kind], share) if found.get(kind) else 0.0
            if value > session_s + over_s:
                complaints.append(
                    f"{kind}: expected a silence of {session_s + over_s:g} s at most for "
                    f"{share:.0%} of all, found {value:.2f} s"
                )
    return complaints
