"""What a node of a cluster counts, under the names of docs/guides/cluster.md, for Prometheus.

Tablespaces have their ids as labels, as in metrics.py. Any thread.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from herdpy.cluster.observability.figures import NodeFigures
from herdpy.cluster.part import State

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_PARTS = {
    State.BOOTING: "booting",
    State.FOLLOWING: "follower",
    State.TAKING_OVER: "taking_over",
    State.LEADING: "leader",
    State.RESIGNING: "resigning",
    State.FAILED: "failed",
}


def node_families(figures: NodeFigures) -> "Iterator[Metric]":
    """Yield everything as prometheus_client's families."""
    from prometheus_client.core import CounterMetricFamily

    yield from _parts(figures)
    tenures = figures.tenures
    renewals = CounterMetricFamily(
        "herdpy_tenure_renewals", "Asked of the metadata store.", labels=["outcome"]
    )
    for outcome, count in (
        ("confirmed", tenures.confirmed),
        ("refused", tenures.refused),
        ("unanswered", tenures.unanswered),
    ):
        renewals.add_metric([outcome], count)
    yield renewals
    yield CounterMetricFamily(
        "herdpy_answers_held",
        "That had to wait for a tenure.",
        value=tenures.held + tenures.count_held(),
    )


def _parts(figures: NodeFigures) -> "Iterator[Metric]":
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    names = ["tablespace"]
    part = GaugeMetricFamily(
        "herdpy_part", "1: what this node is for it now.", labels=[*names, "part"]
    )
    counters = (
        CounterMetricFamily("herdpy_claims", "Of its list of ledgers.", labels=names),
        CounterMetricFamily("herdpy_ledgers_recovered", "Fenced and closed.", labels=names),
        CounterMetricFamily("herdpy_ledger_rolls", "Ledgers begun while leading.", labels=names),
        CounterMetricFamily(
            "herdpy_silent_leaders", "With a session, and a log that said nothing.", labels=names
        ),
    )
    takeovers = HistogramMetricFamily(
        "herdpy_takeover_duration_seconds", "Until it led.", labels=names
    )
    for tablespace_id, each in sorted(figures.parts.copy().items()):
        for state, name in _PARTS.items():
            part.add_metric([tablespace_id, name], float(each.state is state))
        counts = (each.claims, each.log.recovered, each.log.rolls, each.silences)
        for counter, count in zip(counters, counts, strict=True):
            counter.add_metric([tablespace_id], count)
        takeovers.add_metric([tablespace_id], *each.takeovers.buckets())
    yield part
    yield from counters
    yield takeovers
