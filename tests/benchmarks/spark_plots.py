"""Plots of spark.json's curves: how long a read takes by its partitions, and by its rows."""

from collections.abc import Mapping, Sequence
from pathlib import Path


def draw_curves(document: Path, curves: Mapping[str, Sequence[tuple[int, float]]]) -> list[Path]:
    """Write <name>-curves.png beside the document, a chart a curve; nothing without matplotlib."""
    try:
        import matplotlib as mpl
    except ImportError:
        return []  # the other plots have said so
    mpl.use("Agg")
    from matplotlib import pyplot

    figure, all_axes = pyplot.subplots(1, len(curves), figsize=(9, 3.2))
    for axes, (name, points) in zip(all_axes, curves.items(), strict=True):
        axes.plot([x for x, _ in points], [y for _, y in points], marker="o", color="#3a7d44")
        axes.set_xscale("log", base=2 if name == "partitions" else 10)
        axes.set_ylim(bottom=0)
        axes.set_xlabel(f"{name}")
        axes.set_ylabel("seconds of a read")
        axes.grid(alpha=0.3)
    figure.tight_layout()
    picture = document.with_stem(f"{document.stem}-curves").with_suffix(".png")
    figure.savefig(picture, dpi=120)
    pyplot.close(figure)
    return [picture]
