"""Plots of a benchmark's JSON document: ratios on a logarithmic scale, one bar per figure."""

import json
from pathlib import Path


def draw(document: Path) -> list[Path]:
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
    names = [f"{item['name']} (to {item['peer_name']})" for item in results]
    ratios = [item["ratio"] for item in results]
    colours = ["#3a7d44" if ratio <= 1 else "#c46b2d" for ratio in ratios]
    axes.barh(names, ratios, color=colours, left=0)
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=0.8)
    for position, item in enumerate(results):
        axes.text(item["ratio"], position, f" {item['ratio']:.2f}", va="center", fontsize=8)
        if item["bar"]:
            axes.plot([item["bar"]], [position], marker="|", color="black", markersize=12)
    axes.set_xlabel("time / time of the peer in the same run (left of 1 is faster; | is the bar)")
    axes.tick_params(axis="y", labelsize=8)
    axes.margins(x=0.15)
    figure.tight_layout()
    picture = document.with_suffix(".png")
    figure.savefig(picture, dpi=120)
    pyplot.close(figure)
    return [picture]
