"""Whether a figure of runs changed by more than it varies.

A time of a run is the mean of its calls without the shortest and the longest fifth. Times are compared by their ratio,
all other figures by their difference.

With several runs, the figures of the runs are compared: Student's t-test with equal variances, on logarithms for times.
The calls of one run share its machines and their load, so each run is one observation, however many calls it has. The
share of calls that fail also has to change by more than the binomial distribution explains. The probabilities of all
figures of a comparison are corrected by the procedure of Benjamini and Hochberg.

Of one run on either side, nobody knows how much runs differ. Then a change counts if it is more than the calls of these
runs vary: they are divided into up to eight parts, and part is compared with part. Self times vary at least as much as
those of processes do. Queue times are another matter: a call waits for all calls before it, so those of a run are
hardly more than one observation, and they are taken to vary by a factor of three. All this has no probability.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from ray_tracing_hooks._insight.model.grouped import distinct, split

LEVEL = 0.01
"""The share of false changes that is accepted among those that count, and the probability that any counts by chance
where nothing changed."""

LEAST_CALLS = 5
"""With fewer calls in a run, it is unknown how much their times vary."""

METHOD = (
    "times: the mean of the calls of a run without the shortest and longest fifth; several runs: Student's t-test over "
    f"runs, corrected by Benjamini and Hochberg, false discovery rate {LEVEL:.0%}; one run on each side: by how much "
    "up to 8 parts of the runs vary, without a probability"
)

_PARTS = 8
_CUT = 0.2
_TIMES = 1.5
"""For one run on each side: how many times the range of the ratios of parts the times have to differ by. Of two runs
whose times vary at random, fewer than three in a thousand do."""

_LEAST_OF_PROCESS = 3

_ERRORS = 3.0
"""The same for shares, in standard errors."""

_MOST_OF_RATIO = 700.0
"""As a logarithm: a larger ratio is no float, and may as well be unknown."""

_SHORTEST = 1000
"""Shorter times, in nanoseconds, are not told apart."""


class Figure(NamedTuple):
    """A figure of one run."""

    value: float
    """As it is compared: the logarithm of a time."""
    error: float = math.inf
    """The standard error of a share by chance alone; infinite for any other figure."""
    parts: tuple[float, ...] = ()
    """The figure of up to eight parts of the run, for times of enough calls."""


def time_of(times: Any, *, is_queue: bool = False) -> Figure | None:
    """The figure of times in the order of the calls; None if there are none.

    The load of a machine changes, so the parts of a run follow one another. A call waits for all calls before it, so
    parts of a queue take every eighth call.
    """
    if not len(times):
        return None
    many = min(_PARTS, len(times))
    if many < LEAST_CALLS:
        return Figure(_log_of(times))
    divided = [times[part::many] for part in range(many)] if is_queue else np.array_split(times, many)
    return Figure(_log_of(times), parts=tuple(map(_log_of, divided)))


def _log_of(times: Any) -> float:
    ordered = np.sort(times)
    cut = int(_CUT * len(ordered))
    return math.log(max(float(ordered[cut : len(ordered) - cut].mean()), _SHORTEST))


def range_of_processes(times: Any, process: Any) -> float:
    """How far apart the times of processes lie, as a logarithm; 0 for a single one."""
    processes = distinct(process)
    (members,) = split(np.searchsorted(processes, process), len(processes), times)
    found = [_log_of(each) for each in members if len(each) >= _LEAST_OF_PROCESS]
    return _range(found) if found else 0.0


def share_of(hits: int, many: int) -> Figure | None:
    """The figure of how many of a number of calls something is true of, with the error of a binomial share."""
    if not many:
        return None
    # Laplace's rule, since a share of 0 is not known for certain either.
    likely = (hits + 1) / (many + 2)
    return Figure(hits / many, math.sqrt(likely * max(0.0, 1 - likely) / many))


@dataclass
class FigureChange:
    """A figure in the runs of both sides. Times are nanoseconds, shares from 0 to 1."""

    what: str
    where: str
    """The node that it is of; empty for all calls."""
    is_ratio: bool
    """Whether the ratio counts, and not the difference."""
    now: float
    before: float
    low: float | None
    """The least that the ratio or the difference may be; None if that is unknown."""
    high: float | None
    matters: bool
    """Whether the change is large enough to be of interest."""
    cost: int = 0
    """How much longer all calls of a run take than before, in nanoseconds."""
    runs: list[float] = field(default_factory=list)
    runs_before: list[float] = field(default_factory=list)
    probability: float | None = None
    """Of a change this large by chance, corrected for the number of figures; None with one run on either side."""

    @property
    def amount(self) -> float:
        """The ratio, or the difference."""
        return self.now / self.before if self.is_ratio and self.before else self.now - self.before

    @property
    def is_more(self) -> bool:
        """Whether it is more by an amount that matters, and by more than it varies."""
        return self._counts and self.low is not None and self.low > self._same

    @property
    def is_less(self) -> bool:
        return self._counts and self.high is not None and self.high < self._same

    @property
    def counts(self) -> bool:
        return self.is_more or self.is_less

    @property
    def _counts(self) -> bool:
        return self.matters and (self.probability is None or self.probability < LEVEL)

    @property
    def _same(self) -> float:
        return 1.0 if self.is_ratio else 0.0


class Question(NamedTuple):
    """A figure to compare. ``least`` is the relative change, or the difference, from which on it matters."""

    what: str
    sides: Sequence[Sequence[Figure | None]]
    """Of the runs now, and of the runs before."""
    is_ratio: bool
    least: float
    calls: float = 0
    """By how many calls a change of one is multiplied to get the cost."""
    least_cost: int = 0
    where: str = ""
    varies: float = 0.0
    """How much it varies at least, with one run on each side."""
    is_comparable: bool = True


def changes(questions: Sequence[Question]) -> list[FigureChange | None]:
    """The answer to each question, corrected for all of them; None if a run lacks the figure.

    Raises ImportError without SciPy if there are several runs.
    """
    found = [_change(each) for each in questions]
    tested = [
        (change, asked)
        for change, asked in zip(found, questions, strict=True)
        if change is not None and _is_tested(change, asked)
    ]
    if tested:
        _test(tested)
    return found


def _is_tested(change: FigureChange, asked: Question) -> bool:
    """What cannot matter is not tested: each further test makes it harder for the others to count.

    Whether it can is decided by the figures of all runs together, and not by how they differ: that would favor chance.
    """
    several = sum(map(len, asked.sides)) > 2
    if not several or not asked.is_comparable:
        return False
    is_large = max(change.now, change.before) * asked.calls >= asked.least_cost
    return is_large and len({*change.runs, *change.runs_before}) > 1


def _change(asked: Question) -> FigureChange | None:
    now, before = ([each for each in side if each] for side in asked.sides)
    if [len(now), len(before)] != list(map(len, asked.sides)):
        return None
    values, values_before = [each.value for each in now], [each.value for each in before]
    middle, middle_before = float(np.mean(values)), float(np.mean(values_before))
    from_log = math.exp if asked.is_ratio else float
    low = high = None
    if len(now) == len(before) == 1 and asked.is_comparable:
        width = max(_width(now[0], before[0], is_ratio=asked.is_ratio), asked.varies)
        if width < math.inf:
            low, high = from_log(middle - middle_before - width), from_log(middle - middle_before + width)
    one, other = from_log(middle), from_log(middle_before)
    cost = round((one - other) * asked.calls)
    least = asked.least * min(one, other) if asked.is_ratio else asked.least
    return FigureChange(
        what=asked.what,
        where=asked.where,
        is_ratio=asked.is_ratio,
        now=one,
        before=other,
        low=low,
        high=high,
        matters=abs(one - other) > least and abs(cost) >= asked.least_cost,
        cost=cost,
        runs=list(map(from_log, values)),
        runs_before=list(map(from_log, values_before)),
    )


def _width(now: Figure, before: Figure, *, is_ratio: bool) -> float:
    if not is_ratio:
        return _ERRORS * math.hypot(now.error, before.error)
    many = min(len(now.parts), len(before.parts))
    if many < LEAST_CALLS:
        return math.inf
    if len(now.parts) == len(before.parts):
        ratios = [one - other for one, other in zip(now.parts, before.parts, strict=True)]
    else:
        ratios = [one - other for one, other in product(now.parts, before.parts)]
    return _TIMES * _range(ratios)


def _range(values: Sequence[float]) -> float:
    """How far apart values lie, without an eighth of them at each end."""
    ordered, cut = sorted(values), len(values) // 8
    return ordered[-1 - cut] - ordered[cut]


def _test(tested: Sequence[tuple[FigureChange, Question]]) -> None:
    """Test each change, and correct the probabilities of all."""
    stats = import_module("scipy.stats")
    probabilities = []
    for change, asked in tested:
        now, before = ([each for each in side if each] for side in asked.sides)
        values = [np.array([each.value for each in side]) for side in (now, before)]
        freedom = len(now) + len(before) - 2
        between = sum(float(((each - each.mean()) ** 2).sum()) for each in values) / freedom
        known = [(between, float(freedom))]
        if not change.is_ratio and math.inf not in (errors := [each.error for each in (*now, *before)]):
            # Runs with the same few failures do not say that chance would not make as many.
            known.append((float(np.mean(np.square(errors))), math.inf))
        difference = float(values[0].mean() - values[1].mean())
        scale = math.sqrt(1 / len(now) + 1 / len(before))
        widths, found = [], []
        for variance, degrees in known:
            error = math.sqrt(variance) * scale
            # Counts may be the same in each run of a side.
            found.append(2 * float(stats.t.sf(abs(difference) / error, degrees)) if error else 0.0)
            widths.append(float(stats.t.ppf(1 - LEVEL / 2, degrees)) * error)
        probabilities.append(max(found))
        from_log = math.exp if change.is_ratio else float
        low, high = difference - max(widths), difference + max(widths)
        if not change.is_ratio or high < _MOST_OF_RATIO:
            change.low, change.high = from_log(low), from_log(high)
    corrected = stats.false_discovery_control(probabilities)
    for (change, _), probability in zip(tested, corrected.tolist(), strict=True):
        change.probability = probability
