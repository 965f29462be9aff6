"""Compares runs with earlier ones: where their time went, their findings, and the figures of each function and span.

Over several runs, it finds those from which on a time is another one, by the package ruptures: PELT (Killick, Fearnhead
and Eckley 2012) with a cost of ranks (Lung-Yut-Fong, Levy-Leduc and Cappe 2015), which a single slow run does not move.
Its penalty is :data:`PENALTY` times the logarithm of the number of runs.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.changes import (
    LEAST_CALLS,
    Figure,
    FigureChange,
    Question,
    changes,
    share_of,
)
from ray_tracing_hooks._insight.analysis.critical_path import KINDS
from ray_tracing_hooks._insight.analysis.explained import Explanation, explanation
from ray_tracing_hooks._insight.analysis.measured import AnalyzedRun, MeasuredFinding, MeasuredRun, Work, measured
from ray_tracing_hooks._insight.analysis.wording import listed, plain
from ray_tracing_hooks._insight.model.calls import EVERYWHERE, NOWHERE, PARTLY
from ray_tracing_hooks._insight.model.span import HIDDEN


@dataclass(frozen=True)
class FindingChange:
    """A finding of either side. Findings of the same kind and subject are one."""

    kind: str
    subject: str
    """The function, class of actors, operator, deployment or accelerator it is about; empty if it is of the run."""
    now: MeasuredFinding | None
    before: MeasuredFinding | None
    runs: int
    """How many of the runs have it."""
    runs_before: int
    cost: int
    """The most that a run could save, on average over those that have it, in nanoseconds."""
    cost_before: int
    came: bool
    """Whether each of the runs has it, and no earlier one."""
    went: bool


class KindChange(NamedTuple):
    """A kind of time of the split of the runs, on average, in nanoseconds."""

    kind: str
    now: int
    before: int


@dataclass(frozen=True)
class Comparison:
    """Runs compared with earlier ones."""

    now: Sequence[MeasuredRun]
    before: Sequence[MeasuredRun]
    differences: list[str]
    """How the runs differ apart from the program, so that their times cannot be compared in full."""
    split: list[KindChange]
    """Kinds of time, the largest first; empty if a run has only requests to Ray Serve, and so no split."""
    findings: list[FindingChange]
    """The most costly first."""
    subjects: list[SubjectChange]
    """Everything that either side called, by the largest cost or saving."""

    @property
    def is_of_store(self) -> bool:
        """Whether the findings and the split of some run are from when it was stored."""
        return not all(isinstance(each, AnalyzedRun) for each in (*self.now, *self.before))

    @property
    def is_of_pair(self) -> bool:
        """Whether there is one run on each side, so that nobody knows how much runs differ."""
        return len(self.now) == len(self.before) == 1


def compare(runs_now: Sequence[Analysis | MeasuredRun], runs_before: Sequence[Analysis | MeasuredRun]) -> Comparison:
    """Runs compared with earlier ones.

    Raises ImportError without SciPy if there are several runs.
    """
    now, before = list(map(measured, runs_now)), list(map(measured, runs_before))
    return Comparison(
        now=now,
        before=before,
        differences=list(_differences(now, before)),
        split=_split(now, before),
        findings=_findings(now, before),
        subjects=subjects(now, before),
    )


# --- the runs ---------------------------------------------------------------------------------------------------------

_WAITS = {EVERYWHERE: "recorded", PARTLY: "recorded in some processes", NOWHERE: "not recorded"}
_SAMPLED = {False: "all traces", True: "some traces or calls"}


def _differences(now: Sequence[MeasuredRun], before: Sequence[MeasuredRun]) -> Iterator[str]:
    for when, runs in (("", now), (" before", before)):
        for text, many in (
            ("not ended", sum(each.state == "running" for each in runs)),
            ("no span of the driver, and may have lasted longer", sum(each.is_cut for each in runs)),
            ("lost spans", sum(each.is_partial for each in runs)),
            ("spans without the parent they name", sum(each.lost_parents > 0 for each in runs)),
        ):
            if many:
                some = f"the run{when} has" if len(runs) == 1 else f"{many} of the {len(runs)} runs{when} have"
                yield f"{some} {text}"
    for text, found_in in (
        ("waits were {} before and are {} now", [[_WAITS[run.waits] for run in runs] for runs in (before, now)]),
        (
            "spans were of {} before and are of {} now",
            [[_SAMPLED[run.is_sampled] for run in runs] for runs in (before, now)],
        ),
    ):
        sides = [sorted(set(each)) for each in found_in]
        if sides[0] != sides[1]:
            yield text.format(*map(listed, sides))
    for key, one, several in (
        (names.RESOURCE_RAY_VERSION, "Ray {}", "Ray {}"),
        ("process.runtime.version", "Python {}", "Python {}"),
        (names.RESOURCE_PROCESSORS, "nodes with {} processor", "nodes with {} processors"),
    ):
        values, values_before = _values(now, key), _values(before, key)
        if values and values_before and values != values_before:
            said = [(one if each == ["1"] else several).format(listed(each)) for each in (values_before, values)]
            yield f"{said[0]} before and {said[1]} now"
    hosts, hosts_before = _values(now, "host.name"), _values(before, "host.name")
    if hosts and hosts_before and hosts != hosts_before:
        yield f"other machines ({len(hosts_before):,} before and {len(hosts):,} now)"


def _values(runs: Sequence[MeasuredRun], key: str) -> list[str]:
    """The values that the processes of some runs have of an attribute; none if some are hidden."""
    found = {str(each) for run in runs for resource in run.resources.values() if (each := resource.get(key))}
    return sorted(found) if HIDDEN not in found else []


def _split(now: Sequence[MeasuredRun], before: Sequence[MeasuredRun]) -> list[KindChange]:
    sides = [[run.split for run in runs] for runs in (now, before)]
    if any(each is None for side in sides for each in side):
        return []
    found = [
        KindChange(kind, *(_mean([each.get(kind, 0) for each in side if each]) for side in sides)) for kind in KINDS
    ]
    return sorted(found, key=lambda each: -max(each.now, each.before))


def _mean(values: Sequence[int]) -> int:
    return round(sum(values) / len(values)) if values else 0


def walls(runs: Sequence[MeasuredRun]) -> list[int]:
    """The durations of some runs."""
    return [each.wall for each in runs]


# --- findings ---------------------------------------------------------------------------------------------------------

_Found = defaultdict[tuple[str, str, int], list[MeasuredFinding]]


def _findings(now: Sequence[MeasuredRun], before: Sequence[MeasuredRun]) -> list[FindingChange]:
    here, there = _by_subject(now), _by_subject(before)
    found = []
    for kind, subject, place in dict.fromkeys([*here, *there]):
        new, old = here.get((kind, subject, place), []), there.get((kind, subject, place), [])
        found.append(
            FindingChange(
                kind=kind,
                subject=subject,
                now=new[0] if new else None,
                before=old[0] if old else None,
                runs=len(new),
                runs_before=len(old),
                cost=_mean([each.cost for each in new]),
                cost_before=_mean([each.cost for each in old]),
                came=len(new) == len(now) and not old,
                went=len(old) == len(before) and not new,
            )
        )
    return sorted(found, key=lambda each: -max(each.cost, each.cost_before))


def _by_subject(runs: Sequence[MeasuredRun]) -> _Found:
    """By kind, subject and number of those in a run: the finding of each run that has it."""
    found: _Found = defaultdict(list)
    for run in runs:
        numbers: Counter[tuple[str, str]] = Counter()
        for finding in run.findings:
            kind, subject = finding.kind, finding.subject
            found[kind, subject, numbers[kind, subject]].append(finding)
            numbers[kind, subject] += 1
    return found


LITTLE = 0.1
"""A smaller relative change of a time or of a number of calls does not matter: two runs of one program may differ by as
much."""

LITTLE_OF_SEVERAL = 0.05
"""The same where several runs show how much they differ."""

COST = 0.01
"""A change of a time has to cost or save at least this share of the longer run, over all calls together."""

_LITTLE_FAILED = 0.01
_LITTLE_OF_PATH = 0.05
"""Smaller differences of the share of calls that fail, and of the critical path, do not matter."""

_QUEUES_VARY = 1.0986122886681098
"""How much queue times vary from run to run, as the logarithm of 3: on a busy machine, they differed by up to 2.8 times
between runs of one program. Where there are several runs, these show it."""

SELF, QUEUED, SUBMITTING = "self time", "queued", ".remote()"
CALLS, FAILED, RETRIED, ON_PATH = "calls", "failed", "retried", "critical path"
TIMES, SHARES = (SELF, QUEUED, SUBMITTING), (FAILED, RETRIED, ON_PATH)


@dataclass
class SubjectChange:
    """A function, a method of a deployment or a span of the program, in the runs of both sides."""

    kind: str
    name: str
    calls: float
    """How many calls a run has, on average; 0 if none of the runs has any."""
    calls_before: float
    self_time: float
    """The sum of the self times of a run, on average, in nanoseconds."""
    self_time_before: float
    is_comparable: bool
    """Whether its self times leave out the same in all runs: it does not wait, or its waits were recorded in all of
    them or in none."""
    is_new: bool
    """Whether each of the runs has calls of it, and no earlier one."""
    is_gone: bool
    changes: list[FigureChange]
    """Those of its figures that all runs have."""
    explained: dict[str, Explanation] = field(default_factory=dict)
    """By figure, the attribute that explains why it is more, where one does."""
    errors: dict[str, int] = field(default_factory=dict)
    """How many of its calls failed with each type of exception, over all of the runs; only if more fail than before."""

    def change(self, what: str) -> FigureChange | None:
        """That of a figure of all its calls."""
        return next((each for each in self.changes if each.what == what and not each.where), None)

    @property
    def counted(self) -> list[FigureChange]:
        """The changes that count: that matter, and that are more than the figure varies.

        Those of a node are among them only if the change of all calls does not count.
        """
        found = [each for each in self.changes if each.counts]
        whole = {each.what for each in found if not each.where}
        return [each for each in found if not each.where or each.what not in whole]

    @property
    def is_slower(self) -> bool:
        """Whether its own code takes longer."""
        return any(each.is_more for each in self.changes if each.what == SELF)

    @property
    def fails_more(self) -> bool:
        return any(each.is_more for each in self.changes if each.what in (FAILED, RETRIED))


_Sides = Sequence[Sequence[tuple[MeasuredRun, Work]]]
"""The runs now and the runs before, each with its work of a subject."""


class _Limits(NamedTuple):
    little: float
    """The relative change of a time from which on it matters."""
    least: int
    """The cost of all calls from which on it does, in nanoseconds."""


def subjects(now: Sequence[MeasuredRun], before: Sequence[MeasuredRun]) -> list[SubjectChange]:
    """Everything that either side called, by the largest cost or saving."""
    places = iter(_places((*now, *before)))
    sides = [[(each, each.work(next(places))) for each in runs] for runs in (now, before)]
    is_pair = len(now) == len(before) == 1
    longest = max(each.wall for each in (*now, *before))
    limits = _Limits(LITTLE if is_pair else LITTLE_OF_SEVERAL, round(COST * longest))
    found: list[tuple[SubjectChange, _Sides]] = []
    for kind, name in sorted({key for side in sides for _, work in side for key in work}):
        of_subject: _Sides = [[(run, work.get((kind, name), Work(kind))) for run, work in side] for side in sides]
        found.append((_subject(kind, name, of_subject), of_subject))
    asked = [
        (subject, question)
        for subject, its_sides in found
        for question in (*_questions(subject, its_sides, limits), *_by_place(subject, its_sides, limits))
    ]
    for (subject, _), change in zip(asked, changes([question for _, question in asked]), strict=True):
        if change is not None:
            subject.changes.append(change)
    for subject, its_sides in found:
        _explain(subject, its_sides, limits.little)
    return sorted(
        (subject for subject, _ in found),
        key=lambda each: (-max((abs(one.cost) for one in each.changes), default=0), each.name),
    )


def _subject(kind: str, name: str, sides: _Sides) -> SubjectChange:
    works = [[work for _, work in side] for side in sides]
    calls, calls_before = (sum(each.calls for each in side) / len(side) for side in works)
    self_time, self_time_before = (sum(float(each.total) for each in side) / len(side) for side in works)
    in_all, in_all_before = (all(each.calls for each in side) for side in works)
    return SubjectChange(
        kind=kind,
        name=name,
        calls=calls,
        calls_before=calls_before,
        self_time=self_time,
        self_time_before=self_time_before,
        is_comparable=_are_comparable([each for side in works for each in side if each.calls]),
        is_new=in_all and not calls_before,
        is_gone=in_all_before and not calls,
        changes=[],
    )


def _are_comparable(work: Sequence[Work]) -> bool:
    """Whether the self times of a function leave out the same in all runs."""
    if any(each.may_wait for each in work):
        return len({each.waits for each in work}) == 1 and work[0].waits != PARTLY
    return True


def _questions(subject: SubjectChange, sides: _Sides, limits: _Limits) -> Iterator[Question]:
    many = max(subject.calls, subject.calls_before)
    for what, times, varies in (
        (SELF, [[work.own.own for _, work in side] for side in sides], _range(sides)),
        (QUEUED, [[work.queued for _, work in side] for side in sides], _QUEUES_VARY),
        (SUBMITTING, [[work.submitting for _, work in side] for side in sides], 0.0),
    ):
        is_comparable = subject.is_comparable or what != SELF
        yield Question(what, times, True, limits.little, many, limits.least, varies=varies, is_comparable=is_comparable)
    counts = [[Figure(work.calls) if work.calls else None for _, work in side] for side in sides]
    yield Question(CALLS, counts, False, limits.little * many)
    failed = [[share_of(work.failed, work.executions) for _, work in side] for side in sides]
    retried = [[share_of(work.retries, work.executions) for _, work in side] for side in sides]
    yield Question(FAILED, failed, False, _LITTLE_FAILED)
    yield Question(RETRIED, retried, False, _LITTLE_FAILED)
    paths = [[_share_of_path(run, work) for run, work in side] for side in sides]
    yield Question(ON_PATH, paths, False, _LITTLE_OF_PATH)


def _range(sides: _Sides) -> float:
    return max(work.own.varies for side in sides for _, work in side)


def _share_of_path(run: MeasuredRun, work: Work) -> Figure | None:
    return Figure(work.on_path / run.wall) if work.on_path is not None and run.wall else None


_PLACES = ("host.name", names.RESOURCE_NODE_ID)


def _places(runs: Sequence[MeasuredRun]) -> list[dict[str, list[int]]]:
    """For each run the Resources of each machine, or of each node, that all runs have; none if they share just one."""
    best: list[dict[str, list[int]]] = [{} for _ in runs]
    for key in _PLACES:
        found: list[dict[str, list[int]]] = []
        for run in runs:
            by_value: dict[str, list[int]] = {}
            for number, resource in run.resources.items():
                by_value.setdefault(f"{key} {resource[key]}" if key in resource else "", []).append(number)
            found.append(by_value)
        common = set.intersection(*map(set, found)) - {""}
        if len(common) > max(1, len(best[0])):
            best = [{value: each[value] for value in sorted(common)} for each in found]
    return best


def _by_place(subject: SubjectChange, sides: _Sides, limits: _Limits) -> Iterator[Question]:
    """The self times of a function on each machine: a slow one of many hardly shows in those of all."""
    for place in dict.fromkeys(place for side in sides for _, work in side for place in work.places):
        if any(place not in work.places for side in sides for _, work in side):
            continue
        here = [[work.places[place] for _, work in side] for side in sides]
        if min(each.calls for side in here for each in side) < LEAST_CALLS:
            continue
        times = [[each.own for each in side] for side in here]
        many = max(sum(each.calls for each in side) / len(side) for side in here)
        varies = max(each.varies for side in here for each in side)
        yield Question(SELF, times, True, limits.little, many, limits.least, place, varies, subject.is_comparable)


def _explain(subject: SubjectChange, sides: _Sides, little: float) -> None:
    """Look for the attribute that explains what is more than before."""
    now, before = ([work for _, work in side] for side in sides)
    if subject.fails_more:
        subject.errors = dict(sum((Counter(each.errors()) for each in now), Counter[str]()).most_common())
        if found := explanation(now, before, _LITTLE_FAILED, of_errors=True):
            subject.explained[FAILED] = found
    if subject.is_slower and (found := explanation(now, before, little, of_errors=False)):
        subject.explained[SELF] = found


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
