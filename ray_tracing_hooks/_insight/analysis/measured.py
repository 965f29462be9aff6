"""What a run did, by subject: a function or method of Ray, a method of a deployment, or a span of the program.

Runs have no ids in common, so a comparison matches subjects by name. It takes figures and no spans, so that a run may
be larger than memory. :class:`AnalyzedRun` has the figures of a run in memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.changes import Figure, range_of_processes, time_of
from ray_tracing_hooks._insight.analysis.findings import Finding, find
from ray_tracing_hooks._insight.analysis.functions import Function
from ray_tracing_hooks._insight.model.calls import EVERYWHERE, NOWHERE, OTHER, PARTLY, SUBMISSION
from ray_tracing_hooks._insight.model.grouped import distinct, split, uncovered
from ray_tracing_hooks._insight.model.merge import as_numpy
from ray_tracing_hooks._insight.model.runs import run_id, runs
from ray_tracing_hooks._insight.model.span import call_name
from ray_tracing_hooks._insight.model.table import RUNNING

FUNCTION, DEPLOYMENT, SPAN = "function", "deployment", "span"
"""The kinds of subjects. Tasks of an operator of Ray Data are functions with its name."""

_OF_LIBRARIES = (" ray.", " serve.")
"""In the names of spans of Ray's libraries, whose time is that of what they call."""


class ExecutionSample(NamedTuple):
    """Some executions of a subject in a run, evenly over time. ``own`` and ``failed`` are NumPy columns."""

    own: Any
    """The self time of each of them."""
    failed: Any
    attributes: Iterable[tuple[int, Mapping[str, Any], Mapping[str, Any]]]
    """By the place of an execution: the attributes of its Resource, and its own."""


class SelfTimes(NamedTuple):
    """Some executions of a subject."""

    calls: int
    own: Figure | None
    varies: float
    """How far apart the self times of processes lie, as a logarithm."""


_NONE = SelfTimes(0, None, 0.0)


def self_times_of(times: Any, process: Any) -> SelfTimes:
    """The figures of self times in the order of the calls, given a number of the process of each."""
    return SelfTimes(len(times), time_of(times), range_of_processes(times, process) if len(process) else 0.0)


def _no_sample(_most: int) -> ExecutionSample:
    return ExecutionSample(np.zeros(0, np.int64), np.zeros(0, bool), ())


@dataclass
class Work:
    """What a run did of a subject. Times are nanoseconds, by start; those of a queue by the time of submission."""

    kind: str
    calls: int = 0
    executions: int = 0
    """The number of its executions or spans, retries included."""
    total: int = 0
    """The sum of their self times."""
    own: SelfTimes = _NONE
    """Of the self time of each of them."""
    places: dict[str, SelfTimes] = field(default_factory=dict)
    """The same on each machine or node that was asked for."""
    queued: Figure | None = None
    submitting: Figure | None = None
    failed: int = 0
    """How many executions or spans failed."""
    retries: int = 0
    """Executions that are not the first of their call."""
    on_path: int | None = None
    """Time on the critical path in which its own code ran; None if that is unknown."""
    may_wait: bool = False
    """Whether it makes calls or waits, so that its self time depends on whether waits were recorded."""
    waits: str = EVERYWHERE
    """Where waits were recorded, of the processes that ran it."""
    sample: Callable[[int], ExecutionSample] = _no_sample
    """At most so many of its executions."""
    errors: Callable[[], Mapping[str, int]] = dict
    """How many executions failed with each type of exception."""


class MeasuredFinding(NamedTuple):
    """A finding of a run."""

    kind: str
    subject: str
    """The function, class of actors, operator, deployment or accelerator it is about; empty if it is of the run."""
    text: str
    cost: int
    """The most that the run could save, in nanoseconds."""


Places = Mapping[str, Collection[int]]
"""By machine or node, the numbers of the Resources of its processes."""


@dataclass
class MeasuredRun(ABC):
    """A run as comparisons see it."""

    id: str
    name: str
    session: str
    job: str
    start: int
    wall: int
    spans: int
    calls: int
    state: str
    is_cut: bool
    """Whether it has no span of the driver, and may have lasted longer."""
    is_partial: bool
    """Whether spans were lost."""
    lost_parents: int
    waits: str
    """Where waits were recorded."""
    is_sampled: bool
    """Whether spans of some traces or calls are missing, since they were not sampled."""

    @property
    @abstractmethod
    def resources(self) -> Mapping[int, Mapping[str, Any]]:
        """By number, the attributes of the processes that have spans."""

    @property
    @abstractmethod
    def split(self) -> Mapping[str, int] | None:
        """The wall time by what it was spent on; None if the run has only requests to Ray Serve."""

    @property
    @abstractmethod
    def findings(self) -> Sequence[MeasuredFinding]:
        """The costliest first."""

    @abstractmethod
    def work(self, places: Places, wanted: Callable[[str], bool] = bool) -> dict[tuple[str, str], Work]:
        """The work by kind and name of its subject, for names that are ``wanted``."""


class AnalyzedRun(MeasuredRun):
    """A run in memory. Its ``run`` is the id, by default as its spans say."""

    def __init__(self, analysis: Analysis, run: str = "") -> None:
        table, path = analysis.table, analysis.path
        super().__init__(
            id=run or (run_id(table, runs(table)[0]) if len(table) else ""),
            name=analysis.name,
            session=analysis.session,
            job=analysis.job,
            start=path.start,
            wall=path.wall,
            spans=len(table),
            calls=len(analysis.calls),
            state="running" if RUNNING in table.state else "unknown" if path.is_cut else "ended",
            is_cut=path.is_cut,
            is_partial=table.quality.is_partial,
            lost_parents=table.quality.lost_parents,
            waits=analysis.calls.waiting,
            is_sampled=bool(analysis.calls.unsampled or analysis.calls.left_out),
        )
        self.analysis = analysis

    @cached_property
    def resources(self) -> Mapping[int, Mapping[str, Any]]:
        table = self.analysis.table
        return {number: table.resources[number] for number in distinct(as_numpy(table.resource)).tolist()}

    @property
    def split(self) -> Mapping[str, int] | None:
        return None if self.analysis.ends_with_request else self.analysis.split.kinds

    @cached_property
    def findings(self) -> Sequence[MeasuredFinding]:
        wall = self.analysis.path.wall
        return [
            MeasuredFinding(each.kind, subject_of(self.analysis, each), each.text, round(each.share * wall))
            for each in find(self.analysis)
        ]

    def work(self, places: Places, wanted: Callable[[str], bool] = bool) -> dict[tuple[str, str], Work]:
        found = {(FUNCTION, each.name): work for each, work in _functions(self.analysis, places, wanted)}
        return found | {(work.kind, name): work for name, work in _spans(self.analysis, wanted)}


def measured(run: Analysis | MeasuredRun) -> MeasuredRun:
    """The figures of a run."""
    return run if isinstance(run, MeasuredRun) else AnalyzedRun(run)


_SUBJECTS = ("actor", "operator", "function", "deployment", "accelerator")
"""What names a finding in comparisons. Names of datasets, runs of Ray Train and nodes may differ each time."""


def subject_of(analysis: Analysis, finding: Finding) -> str:
    """What a finding is about; empty if it is of the run."""
    calls, about = analysis.calls, finding.about
    for key in _SUBJECTS:
        if key in about:
            # The id in the name of an actor differs each time.
            return about[key].partition("#")[0] if key == "actor" else about[key]
    if finding.is_failure and finding.rows:
        row = finding.rows[0]
        return calls.function_of(row) if calls.call_of[row] >= 0 else analysis.table.name_of(row)
    return ""


def _functions(analysis: Analysis, places: Places, wanted: Callable[[str], bool]) -> Iterator[tuple[Function, Work]]:
    calls, table, own_times = analysis.calls, analysis.table, as_numpy(analysis.self_time)
    size, of = len(calls.functions), as_numpy(calls.function)
    queued, submission = calls.queued(), as_numpy(calls.submission)
    waited, made = np.nonzero(queued >= 0)[0], np.nonzero(submission >= 0)[0]
    first = as_numpy(calls.first)[waited]
    waited = waited[np.lexsort((first, as_numpy(table.start)[first] - queued[waited]))]
    took = as_numpy(table.ends)[submission[made]] - as_numpy(table.start)[submission[made]]
    (queues,) = split(of[waited], size, queued[waited])
    (submitting,) = split(of[made], size, took)
    number = {name: place for place, name in enumerate(calls.functions)}
    for each in analysis.functions:
        if not wanted(each.name):
            continue
        place, rows = number[each.name], as_numpy(each.executions).astype(np.int64)
        begun = len(distinct(as_numpy(calls.call_of)[rows]))
        own, process = own_times[rows], as_numpy(table.resource)[rows]
        here = {name: np.isin(process, list(numbers)) for name, numbers in places.items()}
        yield (
            each,
            _of_rows(
                analysis,
                rows,
                own,
                kind=FUNCTION,
                calls=each.calls,
                own=self_times_of(own, process),
                places={name: self_times_of(own[chosen], process[chosen]) for name, chosen in here.items()},
                queued=time_of(queues[place], is_queue=True),
                submitting=time_of(submitting[place]),
                retries=len(rows) - begun,
                on_path=each.on_path,
                may_wait=each.is_assumed or each.has_waits,
                waits=each.waits_recorded,
            ),
        )


def _of_rows(analysis: Analysis, rows: Any, times: Any, **more: Any) -> Work:
    """Work whose executions or spans are these rows, with these self times."""
    table, failed = analysis.table, analysis.is_failed[rows]

    def sample(most: int) -> ExecutionSample:
        step = step_of(len(rows), most)
        place = {row: number for number, row in enumerate(rows[::step].tolist())}
        spans = ((place[row], table.span(row)) for row in table.as_recorded(place))
        return ExecutionSample(
            times[::step], failed[::step], ((at, each.resource, each.attributes) for at, each in spans)
        )

    def errors() -> Mapping[str, int]:
        return Counter(str(table.attribute(row, names.ERROR_TYPE) or "") for row in rows[failed].tolist())

    more |= {"executions": len(rows), "total": int(times.sum()), "failed": int(failed.sum())}
    return Work(sample=sample, errors=errors, **more)


def step_of(many: int, most: int) -> int:
    """Every how-manieth execution is in a sample of at most ``most``."""
    return max(1, -(-many // most))


class ProgramSpans(NamedTuple):
    """Methods of deployments and spans of the program: NumPy columns by start."""

    rows: Any
    own: Any
    """The self time of each of them, in which no span below it ran."""
    makes_calls: Any
    label: Any
    """An index into ``labels``."""
    is_method: Any
    """Whether it is of a method of a deployment. One name may be of such a method and of a span of the program."""
    labels: Sequence[str]

    def kind(self, index: int) -> str:
        return DEPLOYMENT if self.is_method[index] else SPAN


def program_spans(analysis: Analysis) -> ProgramSpans:
    """Those of a run."""
    calls, table = analysis.calls, analysis.table
    is_library = np.array([any(each in name for each in _OF_LIBRARIES) for name in table.names], bool)[
        as_numpy(table.name)
    ]
    is_replica = calls.is_in_replica
    rows = np.nonzero((as_numpy(calls.role) == OTHER) & (~is_library | is_replica))[0]
    number = np.full(len(table) + 1, -1)
    number[rows] = np.arange(len(rows))
    start, ends = as_numpy(table.start), as_numpy(table.ends)
    above = number[as_numpy(table.parent)]
    below = np.nonzero(above >= 0)[0]
    of, since, until = uncovered(start[rows], ends[rows], above[below], start[below], ends[below])
    own = np.zeros(len(rows), np.int64)
    np.add.at(own, of, until - since)
    makes_calls = np.zeros(len(rows), bool)
    makes_calls[above[below[as_numpy(calls.role)[below] == SUBMISSION]]] = True
    labels = [call_name(name).removesuffix(f" {names.SERVE_REPLICA}") for name in table.names]
    shown = sorted(set(labels))
    place = {name: index for index, name in enumerate(shown)}
    label = np.array([place[label] for label in labels], np.int64)[as_numpy(table.name)[rows]]
    return ProgramSpans(rows, own, makes_calls, label, is_replica[rows], shown)


def _spans(analysis: Analysis, wanted: Callable[[str], bool]) -> Iterator[tuple[str, Work]]:
    found = program_spans(analysis)
    process = as_numpy(analysis.table.resource)[found.rows]
    recorded = np.array(analysis.calls.waits_recorded, bool)[process]
    columns = (np.arange(len(found.rows)), found.makes_calls, recorded)
    groups = split(2 * found.label + found.is_method, 2 * len(found.labels), *columns)
    for index, (members, calling, waits) in enumerate(zip(*groups, strict=True)):
        name = found.labels[index // 2]
        if len(members) and wanted(name):
            times = found.own[members]
            yield (
                name,
                _of_rows(
                    analysis,
                    found.rows[members],
                    times,
                    kind=found.kind(members[0]),
                    calls=len(members),
                    own=self_times_of(times, ()),
                    may_wait=bool(calling.any()),
                    waits=EVERYWHERE if waits.all() else PARTLY if waits.any() else NOWHERE,
                ),
            )
