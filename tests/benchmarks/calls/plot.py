"""The rates of calls as a picture: a row for each loop, in it a bar for each hook."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot as plt

COLOURS = {
    "local": "#1b6ac9",
    "otlp": "#57a0ee",
    "unsampled": "#a9d0f7",
    "ray": "#d9822b",
    "batch": "#f0b878",
}


def plot(rates: Mapping[str, Mapping[str, Sequence[float]]], lanes: Sequence[str], base: str, path: str) -> None:
    """Draw the median ratio of each lane to the lane ``base``, with quartiles, into the SVG file ``path``."""
    plt.rcParams.update({"font.size": 9, "svg.hashsalt": "calls", "svg.fonttype": "none"})
    shown = [lane for lane in lanes if lane != base]
    height = 0.8 / len(shown)
    figure, axes = plt.subplots(figsize=(9, 1 + 0.2 * len(rates) * len(shown)), layout="constrained")
    for index, lane in enumerate(shown):
        for row, found in enumerate(rates.values()):
            ratios = sorted(rate / untraced for rate, untraced in zip(found[lane], found[base], strict=True))
            middle = statistics.median(ratios)
            low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
            axes.barh(
                row - 0.4 + (index + 0.5) * height,
                middle,
                height * 0.9,
                xerr=[[middle - low], [high - middle]],
                error_kw={"elinewidth": 0.7, "ecolor": "#555555"},
                color=COLOURS.get(lane, "#999999"),
                label=lane if row == 0 else None,
            )
    axes.axvline(1, color="#333333", linewidth=0.8)
    axes.set_yticks(range(len(rates)), list(rates))
    axes.invert_yaxis()
    axes.set_xlim(0, 1.15)
    axes.set_xlabel("calls a second, relative to the same program without tracing")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.legend(loc="outside upper left", ncols=len(shown), frameon=False)
    figure.savefig(path, metadata={"Date": None})
