"""The dashboard and the alert rules in examples/bookies name metrics that there are."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bookie.autorecovery.service import MEANINGS
from bookie.management.webhooks import Webhooks
from bookie.runtime.metrics import exposition
from bookie.server.metrics import Figure, families, figure_families
from bookie.server.storage import scrubber
from tests.fixtures.bookie_node import Cluster, simulate

FOLDER = Path(__file__).parents[4] / "examples" / "bookies"
_FUNCTIONS = {"sum", "by", "rate", "increase", "histogram_quantile"}
_LABELS = {"le", "instance", "success", "true", "false"}
_RANGE = re.compile(r"\[\d+[smhd]\]")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def samples() -> set[str]:
    """Return the names of all samples of a bookie with scrub, AutoRecovery and webhooks."""
    text = bytearray()

    async def test(cluster: Cluster) -> None:
        node = await cluster.start()
        text.extend(exposition(lambda: families(node.metrics)))

    simulate(test)
    nothing: Any = None
    hooks = Webhooks([], b"sixteen bytes or more", None, nothing, nothing, nothing, 1.0)
    meanings = MEANINGS | scrubber.MEANINGS
    figures = [Figure(name, meaning, 0.0) for name, meaning in meanings.items()]
    text.extend(exposition(lambda: figure_families([*figures, *hooks.figures()])))
    lines = text.decode().splitlines()
    return {match[0] for line in lines if (match := _WORD.match(line)) and line[0] != "#"}


def expressions(name: str) -> list[str]:
    text = (FOLDER / name).read_text()
    if name.endswith(".json"):
        return [t["expr"] for panel in json.loads(text)["panels"] for t in panel["targets"]]
    return re.findall(r"^ +expr: (.*)$", text, re.MULTILINE)


@pytest.mark.parametrize("name", ["grafana.json", "alerts.yaml"])
def test_every_metric_that_is_named_exists(name: str) -> None:
    known = samples()
    found = expressions(name)
    assert len(found) > 10
    for expression in found:
        words = set(_WORD.findall(_RANGE.sub("", expression))) - _FUNCTIONS - _LABELS
        assert words, expression
        assert words <= known, f"{expression}: no {', '.join(words - known)}"


def test_every_rule_and_panel_is_whole() -> None:
    text = (FOLDER / "alerts.yaml").read_text()
    count = text.count("- alert: ")
    assert [text.count(part) for part in ("expr: ", "severity: ", "summary: ")] == [count] * 3
    panels = json.loads((FOLDER / "grafana.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len({p["title"] for p in panels}) == 15
