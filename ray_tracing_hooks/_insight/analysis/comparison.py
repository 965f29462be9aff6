"""Compares two runs: which functions take longer than before, and how significant the difference is.

The self times of a function's calls in both runs are compared with the Mann-Whitney U test (rank sum), with the normal
approximation, corrected for ties and continuity. It tests whether the calls of one run tend to take longer, whatever
the shape of their distribution. Since each function is a separate test, the p-values are corrected by Holm's method.
The test assumes independent calls, and does not explain the cause.

A function that waits is not compared unless its waits were recorded in both runs, or in neither: otherwise they would
count as self time in one of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.functions import Function
from ray_tracing_hooks._insight.model.calls import PARTLY

METHOD = "Mann-Whitney U test, two-sided, of self times; probabilities corrected by Holm's method"

SURE = 0.01
"""A difference with a smaller p-value counts as significant."""

LITTLE = 0.05
"""A smaller relative change of the median is ignored: with many calls even tiny differences are significant."""

_LEAST = 5
"""With fewer calls in either run, no p-value is computed."""


@dataclass
class Change:
    """A function in two runs. Times are nanoseconds, and 0 for a run that did not call it."""

    function: str
    calls: int
    calls_before: int
    median: int
    median_before: int
    total: int
    """Its self time, summed over all calls."""
    total_before: int
    on_path: int
    on_path_before: int
    probability: float | None
    """The p-value of the difference, corrected for the number of functions; None with too few calls, or if the function
    is not compared."""
    is_comparable: bool = True
    """Whether it does not wait, or its waits were recorded in both runs, or in neither."""

    @property
    def is_sure(self) -> bool:
        return self.probability is not None and self.probability < SURE

    @property
    def is_slower(self) -> bool:
        """Whether it takes significantly longer, by an amount that matters."""
        return self.is_sure and self.median > self.median_before * (1 + LITTLE)

    @property
    def is_faster(self) -> bool:
        return self.is_sure and self.median < self.median_before * (1 - LITTLE)

    @property
    def cost(self) -> int:
        """How much longer its calls take than before: the change of the median times the number of calls."""
        return (self.median - self.median_before) * self.calls


def changes(now: Analysis, before: Analysis) -> list[Change]:
    """Every function of either run, by increase of cost, largest first."""
    here = {function.name: function for function in now.functions}
    there = {function.name: function for function in before.functions}
    found = []
    for name in here.keys() | there.keys():
        new, old = here.get(name), there.get(name)
        times, times_before = (new.self_times if new else []), (old.self_times if old else [])
        is_comparable = new is None or old is None or _are_comparable(new, old)
        enough = is_comparable and min(len(times), len(times_before)) >= _LEAST
        found.append(
            Change(
                function=name,
                calls=len(times),
                calls_before=len(times_before),
                median=round(median(times)) if times else 0,
                median_before=round(median(times_before)) if times_before else 0,
                total=sum(times),
                total_before=sum(times_before),
                on_path=new.on_path if new else 0,
                on_path_before=old.on_path if old else 0,
                probability=mann_whitney(times, times_before) if enough else None,
                is_comparable=is_comparable,
            )
        )
    _correct(found)
    return sorted(found, key=lambda change: (-change.cost, change.function))


def _are_comparable(one: Function, other: Function) -> bool:
    """Whether the self times of a function leave out the same in both runs."""
    if any(each.is_assumed or each.has_waits for each in (one, other)):
        return one.waits_recorded == other.waits_recorded != PARTLY
    return True


def mann_whitney(one: Sequence[int], other: Sequence[int]) -> float:
    """The two-sided p-value that both samples come from the same distribution; 1 if one is empty."""
    many, more = len(one), len(other)
    if not many or not more:
        return 1.0
    ordered = sorted([(value, 0) for value in one] + [(value, 1) for value in other])
    total = many + more
    ranks = 0.0
    ties = 0
    first = 0
    while first < total:
        last = first
        while last < total and ordered[last][0] == ordered[first][0]:
            last += 1
        size = last - first
        ties += size**3 - size
        ranks += (first + 1 + last) / 2 * sum(1 for place in range(first, last) if ordered[place][1] == 0)
        first = last
    surplus = abs(ranks - many * (many + 1) / 2 - many * more / 2)
    variance = many * more / 12 * (total + 1 - ties / (total * (total - 1)))
    if variance <= 0:
        return 1.0
    return math.erfc(max(0.0, surplus - 0.5) / math.sqrt(2 * variance))


def _correct(found: Sequence[Change]) -> None:
    """Holm's method: multiply the smallest p-value by the number of tests, the next by one less, and so on."""
    tested = sorted(
        (change for change in found if change.probability is not None), key=lambda change: change.probability or 0
    )
    least = 0.0
    for place, change in enumerate(tested):
        least = max(least, min(1.0, (change.probability or 0) * (len(tested) - place)))
        change.probability = least
