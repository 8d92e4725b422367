"""Plots of ledger.json and network.json: how many times better than the peer, a bar per figure."""

import json
from pathlib import Path


def draw(document: Path, peer: str) -> list[Path]:
    """Write <name>.png beside the document; nothing without matplotlib."""
    try:
        import matplotlib as mpl
    except ImportError:
        print("no plots: pip install 'herdpy-db[demo]' brings matplotlib")
        return []
    mpl.use("Agg")
    from matplotlib import pyplot

    results = [item for item in json.loads(document.read_text())["results"] if item["ratio"]]
    results.reverse()
    figure, axes = pyplot.subplots(figsize=(9, 0.34 * len(results) + 1.4))
    for position, item in enumerate(results):
        sign = 1 if item["better"] == "higher" else -1
        gain = item["ratio"] ** sign
        axes.barh(position, gain, color="#3a7d44" if gain >= 1 else "#c46b2d")
        axes.text(
            gain, position, f" {item['ours']:,.4g} : {item['peer']:,.4g} {item['unit']}",
            va="center", fontsize=7,
        )  # fmt: skip
        if item["bar"]:
            axes.plot([item["bar"] ** sign], [position], marker="|", color="black", markersize=12)
    axes.set_yticks(range(len(results)), [item["name"] for item in results])
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=0.8)
    label = f"ours : {peer}, in the same run (right of 1 is better; | is the bar)"
    axes.set_xlabel(label, fontsize=8, loc="right")
    axes.tick_params(axis="y", labelsize=8)
    axes.margins(x=0.25)
    figure.tight_layout()
    picture = document.with_suffix(".png")
    figure.savefig(picture, dpi=120)
    pyplot.close(figure)
    return [picture]
