"""What tracing costs as pictures: a row for each loop, in it a bar for each hook; and curves of what grows."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

COLOURS = {
    "again": "#888888",
    "local": "#1b6ac9",
    "otlp": "#57a0ee",
    "unsampled": "#a9d0f7",
    "ray": "#d9822b",
    "batch": "#f0b878",
    "ddtrace": "#8a63b8",
}

Ratios = Callable[[str, str], Sequence[float]]
"""The ratios of a loop and a lane to what is not traced, sorted; none if the lane cannot run the loop."""


def plot(loops: Sequence[str], lanes: Sequence[str], rates: Ratios, processor_times: Ratios, path: str) -> None:
    """Draw the medians, with their quartiles, into the SVG file ``path``."""
    plt.rcParams.update({"font.size": 9, "svg.hashsalt": "calls", "svg.fonttype": "none"})
    height = 1 + 0.08 * len(loops) * len(lanes)
    figure, (left, right) = plt.subplots(1, 2, sharey=True, figsize=(11, height), layout="constrained")
    _bars(left, loops, lanes, rates, 1.6)
    _bars(right, loops, lanes, processor_times, 4)
    left.set_xlabel("calls a second, relative to the same without tracing")
    right.set_xlabel("processor time a call, relative likewise")
    left.set_yticks(range(len(loops)), loops)
    left.invert_yaxis()
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper left", ncols=len(lanes), frameon=False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _bars(axes: Axes, loops: Sequence[str], lanes: Sequence[str], ratios: Ratios, most: float) -> None:
    # Up to a ratio of `most`: one outlier among the quartiles must not make everything else small.
    height = 0.8 / len(lanes)
    for index, lane in enumerate(lanes):
        found = [(row, values) for row, loop in enumerate(loops) if (values := ratios(loop, lane))]
        middles = [statistics.median(values) for _, values in found]
        axes.barh(
            [row - 0.4 + (index + 0.5) * height for row, _ in found],
            middles,
            height * 0.9,
            xerr=[
                [middle - values[len(values) // 4] for middle, (_, values) in zip(middles, found, strict=True)],
                [values[-1 - len(values) // 4] - middle for middle, (_, values) in zip(middles, found, strict=True)],
            ],
            error_kw={"elinewidth": 0.6, "ecolor": "#555555"},
            color=COLOURS.get(lane, "#999999"),
            label=lane,
        )
    axes.axvline(1, color="#333333", linewidth=0.8)
    axes.set_xlim(0, most)
    axes.margins(y=0.01)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)


def plot_curves(curves: Mapping[str, Mapping[int, float]], path: str) -> None:
    """Draw each curve relative to its first point into the SVG file ``path``."""
    plt.rcParams.update({"font.size": 9, "svg.hashsalt": "scale", "svg.fonttype": "none"})
    figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
    for name, figures in curves.items():
        first = next(iter(figures.values()))
        axes.plot(
            list(figures),
            [each / first for each in figures.values()],
            marker="o",
            markersize=3,
            linewidth=1.2,
            linestyle="--" if "delivery" in name else "-",
            label=name,
        )
    axes.axhline(1, color="#333333", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("how many")
    axes.set_ylabel("cost of each, relative to the fewest")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", frameon=False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
