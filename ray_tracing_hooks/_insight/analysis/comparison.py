"""Two runs compared: which functions take longer than before, and how sure that is.

The times of a function's calls in one run are compared with those in the other by the test of Mann and Whitney (rank
sum), with the normal approximation, corrected for ties and continuity. It asks whether calls of one run tend to take
longer, whatever the shape of their distribution. Since each function is a test, the probabilities are corrected by
Holm's method. It says nothing of calls that depend on each other, nor of why.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from ray_tracing_hooks._insight.analysis.analysis import Analysis

METHOD = "Mann-Whitney U test, two-sided, of self times; probabilities corrected by Holm's method"

SURE = 0.01
"""A difference whose probability is less, if there were none, is taken for one."""

LITTLE = 0.05
"""A change of the median by less is none, however sure it is: with many calls the least difference is sure."""

_LEAST = 5
"""With fewer calls in either run nothing is said."""


@dataclass
class Change:
    """A function in two runs. Times are nanoseconds; those of a run in which it was not called are 0."""

    function: str
    calls: int
    calls_before: int
    median: int
    median_before: int
    total: int
    """Its self time in all calls."""
    total_before: int
    on_path: int
    on_path_before: int
    probability: float | None
    """That calls differ so much by chance, corrected for the number of functions; None with too few calls to tell."""

    @property
    def is_sure(self) -> bool:
        return self.probability is not None and self.probability < SURE

    @property
    def is_slower(self) -> bool:
        """Whether it surely takes longer, and by so much that somebody may care."""
        return self.is_sure and self.median > self.median_before * (1 + LITTLE)

    @property
    def is_faster(self) -> bool:
        return self.is_sure and self.median < self.median_before * (1 - LITTLE)

    @property
    def cost(self) -> int:
        """How much more its calls take than before, as many as there are."""
        return (self.median - self.median_before) * self.calls


def changes(now: Analysis, before: Analysis) -> list[Change]:
    """Every function of either run, those that cost more than before first."""
    here = {function.name: function for function in now.functions}
    there = {function.name: function for function in before.functions}
    found = []
    for name in here.keys() | there.keys():
        new, old = here.get(name), there.get(name)
        times, times_before = (new.self_times if new else []), (old.self_times if old else [])
        enough = min(len(times), len(times_before)) >= _LEAST
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
            )
        )
    _correct(found)
    return sorted(found, key=lambda change: (-change.cost, change.function))


def mann_whitney(one: Sequence[int], other: Sequence[int]) -> float:
    """The probability, two-sided, that two samples of one distribution differ so much; 1 where one is empty."""
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
    """Holm's method: the least probability counts as often as there are tests, the next once less, and so on."""
    tested = sorted(
        (change for change in found if change.probability is not None), key=lambda change: change.probability or 0
    )
    least = 0.0
    for place, change in enumerate(tested):
        least = max(least, min(1.0, (change.probability or 0) * (len(tested) - place)))
        change.probability = least
