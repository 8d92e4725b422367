"""What silences consist of, from a node's log and a history made by hand."""

import io

import pytest
from rich.console import Console

from tests.kill_cluster.history import Record
from tests.kill_cluster.leaderships import largest, leaderships, parts
from tests.kill_cluster.report import show_parts

LOG = """\
1970-01-01T00:01:44.000Z INFO herdpy.cluster.node: tablespace default: taking over
1970-01-01T00:01:45.500Z INFO herdpy.cluster.node: tablespace default: leading under epoch 7 \
waited_s=0.25 named_s=0.125 claimed_s=0.5 replayed_s=2.0 alone_s=0.0 served_s=0.0
"""


def look(client: int, end: float) -> Record:
    return {"op": "look", "client": client, "begin": end, "end": end, "registers": []}


def history(log: str = LOG) -> list[Record]:
    """Return a leader killed at 1.0; its successor leads from 5.5, of a clock that began at 100."""
    event: Record = {"op": "event", "kind": "kill leader", "names": ["n1"], "begin": 1.0}
    return [
        *(look(client, 0.5) for client in (1, 2)),
        look(1, 5.75),
        look(2, 6.5),
        event | {"end": 7.0},
        *leaderships("n2", log, 100.0),
    ]


def test_a_silence_is_split_at_what_the_new_leader_logs() -> None:
    expected = {
        "session": 5.5 - 2.875 - 1.0,
        "waited": 0.25,
        "named": 0.125,
        "claimed": 0.5,
        "replayed": 2.0,
        "alone": 0.0,
        "served": 0.0,
        "clients": 1.0,  # until the one that was answered last
    }
    (found,) = parts(history())["kill leader"]
    assert found == pytest.approx(expected)
    assert largest([found]) == ("replayed", 2.0)


def test_an_event_behind_which_no_node_comes_to_lead_has_no_parts() -> None:
    assert parts(history(LOG.partition("\n")[0])) == {}


def test_the_parts_are_shown_with_the_largest() -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    show_parts(console, history())
    text = console.export_text()
    assert text.rstrip().endswith("replayed 2.00"), text
