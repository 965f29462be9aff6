"""What a run did, by subject: a function or method of Ray, a method of a deployment, or a span of the program.

Runs have no ids in common, so a comparison matches subjects by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.functions import Function
from ray_tracing_hooks._insight.model.calls import EVERYWHERE, NOWHERE, OTHER, PARTLY, SUBMISSION
from ray_tracing_hooks._insight.model.grouped import distinct, split, uncovered
from ray_tracing_hooks._insight.model.merge import as_numpy
from ray_tracing_hooks._insight.model.span import call_name

FUNCTION, DEPLOYMENT, SPAN = "function", "deployment", "span"
"""The kinds of subjects. Tasks of an operator of Ray Data are functions with its name."""

_OF_LIBRARIES = (" ray.", " serve.")
"""In the names of spans of Ray's libraries, whose time is that of what they call."""


def _none() -> Any:
    return np.zeros(0, np.int64)


@dataclass
class Work:
    """What a run did of a subject. Times are NumPy columns in nanoseconds, in the order of the calls."""

    kind: str
    calls: int = 0
    rows: Any = field(default_factory=_none)
    """The rows of its executions or spans, by start."""
    own: Any = field(default_factory=_none)
    """The self time of each of them."""
    queued: Any = field(default_factory=_none)
    submitting: Any = field(default_factory=_none)
    failed: Any = field(default_factory=_none)
    """For each of the rows, whether it failed."""
    process: Any = field(default_factory=_none)
    """For each of the rows, the index of the Resource of its process."""
    retries: int = 0
    """Executions that are not the first of their call."""
    on_path: int | None = None
    """Time on the critical path in which its own code ran; None if that is unknown."""
    may_wait: bool = False
    """Whether it makes calls or waits, so that its self time depends on whether waits were recorded."""
    waits: str = EVERYWHERE
    """Where waits were recorded, of the processes that ran it."""

    def part(self, chosen: Any) -> Work:
        """The self times of some of its rows."""
        return Work(self.kind, int(chosen.sum()), own=self.own[chosen], process=self.process[chosen])


def work_of(analysis: Analysis) -> dict[tuple[str, str], Work]:
    """The work of a run by kind and name of its subject."""
    found = {(FUNCTION, each.name): work for each, work in _functions(analysis)}
    return found | {(work.kind, name): work for name, work in _spans(analysis)}


def _functions(analysis: Analysis) -> Iterator[tuple[Function, Work]]:
    calls, table, own_times = analysis.calls, analysis.table, as_numpy(analysis.self_time)
    size, of = len(calls.functions), as_numpy(calls.function)
    queued, submission = calls.queued(), as_numpy(calls.submission)
    waited, made = np.nonzero(queued >= 0)[0], np.nonzero(submission >= 0)[0]
    took = as_numpy(table.ends)[submission[made]] - as_numpy(table.start)[submission[made]]
    (queues,) = split(of[waited], size, queued[waited])
    (submitting,) = split(of[made], size, took)
    number = {name: place for place, name in enumerate(calls.functions)}
    for each in analysis.functions:
        place, rows = number[each.name], as_numpy(each.executions).astype(np.int64)
        begun = len(distinct(as_numpy(calls.call_of)[rows]))
        yield (
            each,
            Work(
                kind=FUNCTION,
                calls=each.calls,
                rows=rows,
                own=own_times[rows],
                queued=queues[place],
                submitting=submitting[place],
                failed=analysis.is_failed[rows],
                process=as_numpy(table.resource)[rows],
                retries=len(rows) - begun,
                on_path=each.on_path,
                may_wait=each.is_assumed or each.has_waits,
                waits=each.waits_recorded,
            ),
        )


def _spans(analysis: Analysis) -> Iterator[tuple[str, Work]]:
    """Methods of deployments and spans of the program. Their self time is the time in which no span below them ran."""
    calls, table = analysis.calls, analysis.table
    is_library = np.array([any(each in name for each in _OF_LIBRARIES) for name in table.names], bool)[
        as_numpy(table.name)
    ]
    is_replica = calls.is_in_replica
    rows = np.nonzero((as_numpy(calls.role) == OTHER) & (~is_library | is_replica))[0]
    if not len(rows):
        return
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
    recorded = np.array(calls.waits_recorded, bool)[as_numpy(table.resource)[rows]]
    labels = [call_name(name).removesuffix(f" {names.SERVE_REPLICA}") for name in table.names]
    shown = sorted(set(labels))
    place = {name: index for index, name in enumerate(shown)}
    # One name may be of a method of a deployment and of a span of the program.
    group = 2 * np.array([place[label] for label in labels])[as_numpy(table.name)[rows]] + is_replica[rows]
    columns = split(group, 2 * len(shown), rows, own, makes_calls, recorded)
    for index, (members, times, calling, waits) in enumerate(zip(*columns, strict=True)):
        if len(members):
            yield (
                shown[index // 2],
                Work(
                    kind=DEPLOYMENT if index % 2 else SPAN,
                    calls=len(members),
                    rows=members,
                    own=times,
                    failed=analysis.is_failed[members],
                    may_wait=bool(calling.any()),
                    waits=EVERYWHERE if waits.all() else PARTLY if waits.any() else NOWHERE,
                ),
            )
