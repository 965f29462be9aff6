"""A function over several runs, and the runs from which on its times are other ones.

Changes are found by the package ruptures: PELT (Killick, Fearnhead and Eckley 2012) with a cost of ranks
(Lung-Yut-Fong, Levy-Leduc and Cappe 2015), which a single slow run does not move. Its penalty is :data:`PENALTY` times
the logarithm of the number of runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.comparison import LITTLE_OF_SEVERAL
from ray_tracing_hooks._insight.analysis.measured import MeasuredRun, measured
from ray_tracing_hooks._insight.analysis.wording import plain

LEAST_RUNS = 10
"""Of fewer runs, chance explains almost any change."""

PENALTY = 3
"""Of 300 series of 10 to 50 equal runs, with normal noise or outliers, up to ten had a change; with 2, up to 43."""

_LEAST_LEVEL = 3
"""How many runs a change lasts at least."""


class Point(NamedTuple):
    """A run that has the function; or for the duration of runs, one that has a known end. Times are nanoseconds."""

    run: MeasuredRun
    calls: int
    time: float


class Shift(NamedTuple):
    """From a run on, times are other ones."""

    point: int
    """The index of the first of these runs."""
    before: float
    """The time of the runs since the previous shift, their median, in nanoseconds."""
    now: float
    """The same until the next one."""


@dataclass(frozen=True)
class Trend:
    """A function over several runs, the oldest first."""

    function: str
    """Empty for the duration of runs."""
    points: list[Point]
    left_out: int
    """The number of other runs."""
    shifts: list[Shift]
    """Where its times changed by more than they differ between runs; empty for fewer than :data:`LEAST_RUNS`."""


def trend(runs: Sequence[Analysis | MeasuredRun], function: str = "") -> Trend:
    """The self time of a call of a function, method or span over runs, or the duration of runs.

    Raises ImportError without ruptures if there are enough runs to look for changes.
    """
    points = [point for run in runs if (point := _point(measured(run), function)) is not None]
    times = np.array([point.time for point in points])
    return Trend(function, points, len(runs) - len(points), _shifts(times) if len(points) >= LEAST_RUNS else [])


def _point(run: MeasuredRun, function: str) -> Point | None:
    if not function:
        return Point(run, run.calls, run.wall) if run.wall and run.state == "ended" else None
    for work in run.work({}, lambda name: function in (name, plain(name))).values():
        if work.own.own is not None:
            return Point(run, work.calls, math.exp(work.own.own.value))
    return None


def _shifts(times: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[Shift]:
    pelt = import_module("ruptures").Pelt(model="rank", min_size=_LEAST_LEVEL, jump=1)
    ends = pelt.fit(times).predict(PENALTY * math.log(len(times)))
    levels = [float(np.median(times[begin:end])) for begin, end in pairwise([0, *ends])]
    return [
        Shift(place, before, now)
        for place, (before, now) in zip(ends, pairwise(levels), strict=False)
        if abs(now - before) > LITTLE_OF_SEVERAL * min(now, before)
    ]
