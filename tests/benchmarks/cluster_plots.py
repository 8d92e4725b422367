"""Plots of cluster.json's curves: rate, p50 and p99 over the number of clients or tablespaces."""

from collections.abc import Mapping, Sequence
from pathlib import Path

_COLOURS = ("#3a7d44", "#c46b2d", "#38618c", "#7a7a7a")
_AXES = ("a second", "p50, ms", "p99, ms")

BY_COPIES = "commits by the number of copies"
BY_TABLESPACES = "commits of 32 clients, over tablespaces"

Curves = Mapping[str, Mapping[str, Sequence[Sequence[float]]]]
"""By what was done, and by contender: (clients or tablespaces, rate, p50, p99) each."""


def draw_curves(document: Path, curves: Curves) -> list[Path]:
    """Write <name>-curves.png beside the document; nothing without matplotlib."""
    try:
        import matplotlib as mpl
    except ImportError:
        return []  # the other plots have said so
    mpl.use("Agg")
    from matplotlib import pyplot

    size = (10, 3.0 * len(curves))
    figure, rows = pyplot.subplots(len(curves), len(_AXES), figsize=size, squeeze=False)
    for all_axes, (title, contenders) in zip(rows, curves.items(), strict=True):
        for index, (axes, label) in enumerate(zip(all_axes, _AXES, strict=True), 1):
            for colour, (name, points) in zip(_COLOURS, contenders.items(), strict=False):
                clients = [each[0] for each in points]
                values = [each[index] for each in points]
                axes.plot(clients, values, marker="o", color=colour, label=name)
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.set_xticks(clients, [f"{each:g}" for each in clients])
            axes.set_xlabel("tablespaces" if title == BY_TABLESPACES else "clients")
            axes.set_ylabel(label)
            axes.grid(alpha=0.3)
        all_axes[0].set_title(title, fontsize=9, loc="left")
        all_axes[0].legend(fontsize=7)
    figure.tight_layout()
    picture = document.with_stem(f"{document.stem}-curves").with_suffix(".png")
    figure.savefig(picture, dpi=120)
    pyplot.close(figure)
    return [picture]
