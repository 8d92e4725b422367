"""The pages of a cluster's node: without an open copy, of a part that may not answer, figures."""

import asyncio
import json
from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bookie.runtime.http import Request
from herdpy.cluster.observability.figures import NodeFigures, PartFigures
from herdpy.cluster.part import State
from herdpy.cluster.served_part import ServedPart
from herdpy.cluster.staleness import Staleness
from herdpy.cluster.tenure import Tenure
from herdpy.server.operations.health import HealthServer
from tests.fixtures.servers import running_server

ID = "0123456789abcdef0123456789abcdef"


def figures_of(*states: State) -> NodeFigures:
    """Return the figures of a node whose one part has been these, a second each."""
    figures = NodeFigures()
    part = figures.parts[ID] = PartFigures()
    for now_s, state in enumerate(states):
        part.enter(state, float(now_s))
    return figures


def values(health: HealthServer) -> dict[tuple[str, ...], float]:
    """Return the metrics by name and labels, without those of nothing."""
    page = asyncio.run(health._metrics.call(Request("GET", "/metrics")))
    assert page.status == 200
    return {
        (sample.name, *(sample.labels[each] for each in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(page.body.decode())
        for sample in family.samples
        if sample.value
    }


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        (NodeFigures(), "this node has no copy of a tablespace yet"),
        (figures_of(State.BOOTING), "the copy is not open: this node is booting"),
        (figures_of(State.RESIGNING), "the copy is not open: this node is resigning"),
        (figures_of(State.FAILED), "the copy is not open: this node is failed"),
    ],
)
def test_a_node_without_an_open_copy_is_not_ready(figures: NodeFigures, said: str) -> None:
    health = HealthServer(figures)
    assert health.answer("GET", "/livez").status == 200
    page = health.answer("GET", "/readyz")
    assert (page.status, page.body.decode()) == (503, f"{said}\n")
    status = json.loads(health.answer("GET", "/status").body)
    assert status == {"is_ready": False, "reason": said}


def test_what_a_node_has_counted() -> None:
    figures = figures_of(State.BOOTING, State.FOLLOWING, State.TAKING_OVER, State.LEADING)
    part, tenures = figures.parts[ID], figures.tenures
    part.claims, part.log.recovered, part.log.rolls = 3, 4, 5
    tenures.confirmed, tenures.refused, tenures.unanswered, tenures.held = 6, 7, 8, 9
    tenures.count_held = lambda: 10
    found = values(HealthServer(figures))
    parts = [name for name in found if name[0] == "herdpy_part"]
    assert parts == [("herdpy_part", "leader", ID)]
    assert found[("herdpy_claims_total", ID)] == 3
    assert found[("herdpy_ledgers_recovered_total", ID)] == 4
    assert found[("herdpy_ledger_rolls_total", ID)] == 5
    assert found[("herdpy_takeover_duration_seconds_count", ID)] == 1
    assert found[("herdpy_takeover_duration_seconds_sum", ID)] == 1.0
    assert found[("herdpy_tenure_renewals_total", "confirmed")] == 6
    assert found[("herdpy_tenure_renewals_total", "refused")] == 7
    assert found[("herdpy_tenure_renewals_total", "unanswered")] == 8
    assert found[("herdpy_answers_held_total",)] == 19


def test_a_take_over_that_did_not_come_to_its_end_is_not_counted() -> None:
    states = (State.TAKING_OVER, State.RESIGNING, State.FAILED, State.BOOTING, State.FOLLOWING)
    part = figures_of(*states, State.TAKING_OVER, State.TAKING_OVER, State.LEADING).parts[ID]
    assert (part.takeovers.count, part.takeovers.total_s) == (1, 1.0)


class Now:
    """A clock to set."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def part_of(now: Now) -> tuple[ServedPart, Staleness]:
    staleness = Staleness(now)
    return ServedPart("sales", "n1", staleness), staleness


def test_a_part_is_ready_while_it_may_answer() -> None:
    now = Now()
    part, staleness = part_of(now)
    assert "of an age that is not known: at most 10 s" in (part.reason_not_ready(10.0) or "")
    staleness.saw_end(now.now_s, (3, 4))
    staleness.took((3, 4))
    assert part.reason_not_ready(10.0) is None
    now.now_s += 10.5
    assert part.reason_not_ready(10.0) == (
        "this node follows, and what it shows may be 10.5 s old: at most 10 s are allowed"
    )
    part.hold()
    assert part.reason_not_ready(10.0) == "answers wait: this node is taking over"
    calls: list[Callable[[], None]] = []
    tenure = Tenure(now, calls.append)
    part.lead(tenure)
    waits = "answers wait: the metadata store does not confirm that this node leads"
    assert part.reason_not_ready(10.0) == waits
    tenure.renew(now.now_s, 2.0)
    assert part.reason_not_ready(10.0) is None
    now.now_s += 1.7
    assert part.reason_not_ready(10.0) == waits
    tenure.end()
    assert part.reason_not_ready(10.0) == waits


def test_a_server_is_as_ready_as_its_part() -> None:
    now = Now()
    part, staleness = part_of(now)
    with running_server(new_part=lambda _: part) as server:
        health = HealthServer(figures_of(State.FOLLOWING))
        server.server.show_at(health)
        assert health.answer("GET", "/readyz").status == 503
        staleness.saw_end(now.now_s, (-1, -1))
        page = health.answer("GET", "/readyz")
        assert (page.status, page.body) == (
            200,
            b"OK, but this node follows, 0.0 s behind at most\n",
        )
        server.server.hide_at(health)
        assert health.answer("GET", "/readyz").status == 503
