"""Compares two runs: where their time went, their findings, and the times of each function.

A function's times differ if the ratio of their medians is further from 1 than the times vary within the runs. To see
how much that is, the calls of each run are divided into up to eight parts, and part is compared with part. For self
times and submissions these follow one another, since the load of a machine changes over time. Self times vary at least
as much as the medians of workers do.

Queue times are another matter: a call waits for all calls before it, so those of a run are hardly more than one
observation. Parts of them take every eighth call, and they are taken to vary by a factor of three from run to run.

This is no test of significance, and no p-value is computed. Calls of one run share its machines and their load, so they
are not independent, and no number of them shows how much one run differs from the next.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import KINDS
from ray_tracing_hooks._insight.analysis.findings import Finding, find
from ray_tracing_hooks._insight.analysis.functions import Function
from ray_tracing_hooks._insight.analysis.wording import listed
from ray_tracing_hooks._insight.model.calls import EVERYWHERE, NOWHERE, PARTLY
from ray_tracing_hooks._insight.model.grouped import distinct, split
from ray_tracing_hooks._insight.model.merge import as_numpy
from ray_tracing_hooks._insight.model.table import RUNNING

METHOD = (
    "the ratio of the medians; low and high from the ratios of up to 8 parts of both runs, for self times also from "
    "the medians of workers, and for queue times at least a factor of 3"
)

LITTLE = 0.1
"""A smaller relative change of a median does not count: two runs of one program may differ by as much."""

COST = 0.01
"""A change has to cost or save at least this share of the longer run, over all calls together."""

_LEAST = 5
"""With fewer calls in either run, it is unknown how much their times vary."""

_PARTS = 8
_TIMES = 1.5
"""How many times the range of the ratios of parts the medians have to differ by. Of two runs whose times vary at
random, fewer than three in a thousand do."""

_QUEUES_VARY = math.log(3)
"""How much queue times vary from run to run, as a logarithm: on a busy machine, medians differed by up to 2.8 times
between runs of one program."""

_LEAST_OF_WORKER = 3
_SHORTEST = 1000
"""Shorter times, in nanoseconds, are not told apart."""


@dataclass(frozen=True)
class Change:
    """One kind of time of a function's calls in two runs. Times are nanoseconds."""

    median: int
    median_before: int
    low: float | None
    """The least that the ratio of the medians may be, by how much the times vary within the runs; None if that is
    unknown, with too few calls or if the times are not comparable."""
    high: float | None
    cost: int
    """How much longer all calls take than before: the change of the median times the number of calls."""
    matters: bool
    """Whether the median changed by more than :data:`LITTLE`, and the cost is more than :data:`COST` of a run."""

    @property
    def ratio(self) -> float:
        return max(self.median, _SHORTEST) / max(self.median_before, _SHORTEST)

    @property
    def is_longer(self) -> bool:
        """Whether the times are longer by an amount that matters, and by more than they vary within the runs."""
        return self.matters and self.low is not None and self.low > 1

    @property
    def is_shorter(self) -> bool:
        return self.matters and self.high is not None and self.high < 1


@dataclass(frozen=True)
class FunctionChange:
    """A function in two runs. Times are nanoseconds, and 0 for a run that did not call it."""

    function: str
    calls: int
    calls_before: int
    self_time: int
    """Its self time, summed over all calls."""
    self_time_before: int
    on_path: int
    on_path_before: int
    is_comparable: bool
    """Whether its self times leave out the same in both runs: it does not wait, or its waits were recorded in both, or
    in neither."""
    own: Change | None
    """Of the self times of its executions. Each of these is None if there are no such times in one of the runs."""
    queued: Change | None
    submitting: Change | None

    @property
    def is_slower(self) -> bool:
        """Whether its own code takes longer."""
        return self.own is not None and self.own.is_longer

    @property
    def changes(self) -> Iterator[Change]:
        return (each for each in (self.own, self.queued, self.submitting) if each is not None)


@dataclass(frozen=True)
class FindingChange:
    """A finding of either run. Findings of the same kind and subject are one."""

    kind: str
    subject: str
    """The function, class of actors, operator, deployment or accelerator it is about; empty if it is of the run."""
    now: Finding | None
    before: Finding | None
    cost: int
    """The most that the run could save, in nanoseconds."""
    cost_before: int


class KindChange(NamedTuple):
    """A kind of time of the split of both runs, in nanoseconds."""

    kind: str
    now: int
    before: int


@dataclass(frozen=True)
class Comparison:
    """A run compared with an earlier one."""

    now: Analysis
    before: Analysis
    differences: list[str]
    """How the runs differ apart from the program, so that their times cannot be compared in full."""
    split: list[KindChange]
    """Kinds of time, the largest first; empty if a run has only requests to Ray Serve, and so no split."""
    findings: list[FindingChange]
    """The most costly first."""
    functions: list[FunctionChange]
    """Every function of either run, by the largest cost or saving."""


def compare(now: Analysis, before: Analysis, findings: Sequence[Finding] | None = None) -> Comparison:
    """A run compared with an earlier one. ``findings`` are those of ``now``, if they are known."""
    return Comparison(
        now=now,
        before=before,
        differences=list(_differences(now, before)),
        split=_split(now, before),
        findings=_findings(now, before, find(now) if findings is None else findings, find(before)),
        functions=_functions(now, before),
    )


# --- the runs ---------------------------------------------------------------------------------------------------------

_WAITS = {EVERYWHERE: "recorded", PARTLY: "recorded in some processes", NOWHERE: "not recorded"}


def _differences(now: Analysis, before: Analysis) -> Iterator[str]:
    for which, each in (("the run", now), ("the run before", before)):
        if RUNNING in each.table.state:
            yield f"{which} has not ended"
    waits, waits_before = now.calls.waiting, before.calls.waiting
    if waits != waits_before:
        yield f"waits were {_WAITS[waits_before]} before and are {_WAITS[waits]} now"
    for key, one, many in (
        (names.RESOURCE_RAY_VERSION, "Ray {}", "Ray {}"),
        (names.RESOURCE_PROCESSORS, "nodes with {} processor", "nodes with {} processors"),
    ):
        values, values_before = _values(now, key), _values(before, key)
        if values and values_before and values != values_before:
            said = [(one if each == ["1"] else many).format(listed(each)) for each in (values_before, values)]
            yield f"{said[0]} before and {said[1]} now"
    hosts, hosts_before = _values(now, "host.name"), _values(before, "host.name")
    if hosts and hosts_before and hosts != hosts_before:
        yield f"other machines ({len(hosts_before):,} before and {len(hosts):,} now)"


def _values(analysis: Analysis, key: str) -> list[str]:
    """The values that the processes of a run have of an attribute."""
    resources = analysis.table.resources
    found = (resources[each].get(key) for each in distinct(as_numpy(analysis.table.resource)).tolist())
    return sorted({str(each) for each in found if each})


def _split(now: Analysis, before: Analysis) -> list[KindChange]:
    if now.ends_with_request or before.ends_with_request:
        return []
    found = [KindChange(kind, now.split.kinds[kind], before.split.kinds[kind]) for kind in KINDS]
    return sorted(found, key=lambda each: -max(each.now, each.before))


# --- findings ---------------------------------------------------------------------------------------------------------

_SUBJECTS = ("actor", "operator", "function", "deployment", "accelerator")
"""Figures that name what a finding is about. Names of datasets, runs of Ray Train and nodes may differ each time."""


def _findings(
    now: Analysis, before: Analysis, findings: Sequence[Finding], findings_before: Sequence[Finding]
) -> list[FindingChange]:
    here, there = _by_subject(now, findings), _by_subject(before, findings_before)
    found = [
        FindingChange(
            kind=kind,
            subject=subject,
            now=new,
            before=old,
            cost=round(new.share * now.path.wall) if new else 0,
            cost_before=round(old.share * before.path.wall) if old else 0,
        )
        for kind, subject in dict.fromkeys([*here, *there])
        for new, old in zip_longest(here[kind, subject], there[kind, subject])
    ]
    return sorted(found, key=lambda each: -max(each.cost, each.cost_before))


def _by_subject(analysis: Analysis, findings: Sequence[Finding]) -> defaultdict[tuple[str, str], list[Finding]]:
    found = defaultdict(list)
    for finding in findings:
        found[finding.kind, _subject(analysis, finding)].append(finding)
    return found


def _subject(analysis: Analysis, finding: Finding) -> str:
    calls, figures = analysis.calls, finding.figures
    for key in _SUBJECTS:
        if key in figures:
            # The id in the name of an actor differs each time.
            return str(figures[key]).partition("#")[0] if key == "actor" else str(figures[key])
    if finding.is_failure and finding.rows:
        row = finding.rows[0]
        return calls.function_of(row) if calls.call_of[row] >= 0 else analysis.table.name_of(row)
    return ""


# --- functions --------------------------------------------------------------------------------------------------------


def _functions(now: Analysis, before: Analysis) -> list[FunctionChange]:
    here = {function.name: function for function in now.functions}
    there = {function.name: function for function in before.functions}
    calls, calls_before = _times_of_calls(now), _times_of_calls(before)
    least = round(COST * max(now.path.wall, before.path.wall))
    found = []
    for name in here.keys() | there.keys():
        new, old = here.get(name, Function(name)), there.get(name, Function(name))
        is_comparable = not (new.calls and old.calls) or _are_comparable(new, old)
        (queued, submitting), (queued_before, submitting_before) = calls.get(name, _NONE), calls_before.get(name, _NONE)
        found.append(
            FunctionChange(
                function=name,
                calls=new.calls,
                calls_before=old.calls,
                self_time=new.self_time,
                self_time_before=old.self_time,
                on_path=new.on_path,
                on_path_before=old.on_path,
                is_comparable=is_comparable,
                own=_own_change(now, before, new, old, least, is_comparable=is_comparable),
                queued=_change(queued, queued_before, least, vary=_QUEUES_VARY, is_queue=True),
                submitting=_change(submitting, submitting_before, least),
            )
        )
    return sorted(found, key=lambda each: (-max((abs(one.cost) for one in each.changes), default=0), each.function))


def _are_comparable(one: Function, other: Function) -> bool:
    """Whether the self times of a function leave out the same in both runs."""
    if any(each.is_assumed or each.has_waits for each in (one, other)):
        return one.waits_recorded == other.waits_recorded != PARTLY
    return True


_NONE = (np.zeros(0, np.int64),) * 2


def _times_of_calls(analysis: Analysis) -> dict[str, tuple[Any, Any]]:
    """The queue times of the calls of each function, and how long their submissions took, in the order of the calls."""
    calls, table = analysis.calls, analysis.table
    size, of = len(calls.functions), as_numpy(calls.function)
    queued = calls.queued()
    submission = as_numpy(calls.submission)
    waited, made = np.nonzero(queued >= 0)[0], np.nonzero(submission >= 0)[0]
    took = as_numpy(table.ends)[submission[made]] - as_numpy(table.start)[submission[made]]
    (queues,) = split(of[waited], size, queued[waited])
    (submitting,) = split(of[made], size, took)
    return dict(zip(calls.functions, zip(queues, submitting, strict=True), strict=True))


def _own_change(
    now: Analysis, before: Analysis, new: Function, old: Function, least: int, *, is_comparable: bool
) -> Change | None:
    """The change of the self times of a function."""
    times, times_before = (
        as_numpy(analysis.self_time)[as_numpy(function.executions)]
        for analysis, function in ((now, new), (before, old))
    )
    by_workers = max(_range_of_workers(now, new, times), _range_of_workers(before, old, times_before))
    return _change(times, times_before, least, vary=by_workers, is_comparable=is_comparable)


def _range_of_workers(analysis: Analysis, function: Function, times: Any) -> float:
    """How far apart the medians of workers lie, as a logarithm; 0 for a single one."""
    worker = as_numpy(analysis.table.resource)[as_numpy(function.executions)]
    workers = distinct(worker)
    (members,) = split(np.searchsorted(workers, worker), len(workers), times)
    medians = [_log_median(each) for each in members if len(each) >= _LEAST_OF_WORKER]
    return _range(medians) if medians else 0.0


def _change(
    times: Any, times_before: Any, least: int, *, vary: float = 0.0, is_queue: bool = False, is_comparable: bool = True
) -> Change | None:
    """The change of times that are in the order of the calls; None if there are none in either run.

    ``vary`` is how much they vary at least, as a logarithm.
    """
    if not len(times) or not len(times_before):
        return None
    low = high = None
    parts = min(_PARTS, len(times), len(times_before))
    if parts >= _LEAST and is_comparable:
        divided, divided_before = (
            [each[part::parts] for part in range(parts)] if is_queue else np.array_split(each, parts)
            for each in (times, times_before)
        )
        ratios = [_log_median(now) - _log_median(old) for now, old in zip(divided, divided_before, strict=True)]
        middle, width = _log_median(times) - _log_median(times_before), max(_TIMES * _range(ratios), vary)
        low, high = math.exp(middle - width), math.exp(middle + width)
    median, median_before = round(float(np.median(times))), round(float(np.median(times_before)))
    cost = (median - median_before) * max(len(times), len(times_before))
    is_little = abs(median - median_before) <= LITTLE * min(median, median_before)
    return Change(median, median_before, low, high, cost, not is_little and abs(cost) >= least)


def _log_median(times: Any) -> float:
    return math.log(max(float(np.median(times)), _SHORTEST))


def _range(values: Sequence[float]) -> float:
    """How far apart values lie, without an eighth of them at each end."""
    ordered, cut = sorted(values), len(values) // 8
    return ordered[-1 - cut] - ordered[cut]
