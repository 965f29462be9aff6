"""The analysis of one run. The summary and the page both take their figures from here, so they agree.

Everything is computed from the table on first use. Times are nanoseconds.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis import walk
from ray_tracing_hooks._insight.analysis.actors import Accelerator, Actor, accelerators, actors
from ray_tracing_hooks._insight.analysis.causes import Arrivals, ServedCalls
from ray_tracing_hooks._insight.analysis.critical_path import RUN, Path, PathStep, submissions
from ray_tracing_hooks._insight.analysis.functions import (
    Function,
    Parallelism,
    Pieces,
    assumed_times,
    functions,
    parallelism,
    running,
    self_times,
)
from ray_tracing_hooks._insight.analysis.generated import Engines, Generating, engines, generating_operators
from ray_tracing_hooks._insight.analysis.pipelines import Pipelines, pipelines, stopped_tasks
from ray_tracing_hooks._insight.analysis.queues import FunctionQueue, Queued, States, by_function
from ray_tracing_hooks._insight.analysis.requests import Requests, requests
from ray_tracing_hooks._insight.analysis.slots import Slots
from ray_tracing_hooks._insight.analysis.training import Experiment, TrainRun, experiments, last_to_come, train_runs
from ray_tracing_hooks._insight.model.calls import DRIVER, SUBMISSION, Calls
from ray_tracing_hooks._insight.model.clocks import corrected
from ray_tracing_hooks._insight.model.generations import Generations, generations
from ray_tracing_hooks._insight.model.grouped import by_first
from ray_tracing_hooks._insight.model.merge import as_numpy
from ray_tracing_hooks._insight.model.runs import by_row, sessions
from ray_tracing_hooks._insight.model.serve_spans import ServeSpans, may_have_requests
from ray_tracing_hooks._insight.model.table import Table
from ray_tracing_hooks._insight.model.utilization import Utilization, of_table


class Analysis:
    """The analysis of a table, which should hold the spans of one run."""

    is_part = False
    """Whether it may lack spans of the traces that it has, so that the critical path and findings would be wrong."""

    def __init__(self, table: Table, states: States | None = None, utilization: Utilization | None = None) -> None:
        self.table = table
        self.states = states or States()
        self.utilization = of_table(utilization or {}, table)

    @classmethod
    def corrected(cls, table: Table, states: States | None = None, utilization: Utilization | None = None) -> Analysis:
        """The analysis of a table, with its clock skew corrected."""
        right, calls = corrected(table)
        analysis = cls(right, states, utilization)
        if calls is not None:
            analysis.calls = calls
        return analysis

    @cached_property
    def name(self) -> str:
        """The name of the driver, or of the function or root span that ended last."""
        return self.calls.frame_name(self.path.root) if len(self.table) else ""

    @cached_property
    def session(self) -> str:
        """The session of the cluster, empty if not recorded."""
        return next(iter(sessions(self.table)), "")

    @cached_property
    def job(self) -> str:
        """Ray's id of the job, empty if not recorded."""
        found = (self.table.sites[index].get(names.RAY_JOB_ID) for index in by_first(self.table.site))
        return next((str(each) for each in found if each), "")

    @cached_property
    def is_failed(self) -> Any:
        """``is_failed()`` of the table, without the tasks that Ray Data stopped: nothing failed in them."""
        found = self.table.is_failed()
        found[list(stopped_tasks(self.calls, self.pipelines.executions))] = False
        return found

    @cached_property
    def unexecuted(self) -> int:
        """The number of successful submissions without a recorded execution."""
        calls, table = self.calls, self.table
        submission = as_numpy(calls.submission)[as_numpy(calls.execution) < 0]
        return int(np.count_nonzero(~table.is_failed()[submission[submission >= 0]]))

    def _session_of(self, row: int) -> str:
        found, of_row = self._by_session
        return found[int(of_row[row])]

    @cached_property
    def _by_session(self) -> tuple[list[str], Any]:
        return by_row(self.table)

    @cached_property
    def calls(self) -> Calls:
        return Calls(self.table)

    @cached_property
    def path(self) -> Path:
        """The critical path: what a finding costs is time on it."""
        return walk.critical_path(self.calls, self._arrivals, self.served, self.slots)

    @cached_property
    def split(self) -> Path:
        """The wall time split by what it was spent on, with queue time shown separately: what is shown as waiting."""
        return walk.critical_path(self.calls, self._arrivals, self.served, self.slots, through_queues=False)

    @cached_property
    def slots(self) -> Slots:
        return Slots(self.calls)

    @cached_property
    def served(self) -> ServedCalls:
        """The requests to Ray Serve, as what callers wait for."""
        return ServedCalls(self.calls, self.serve_spans)

    @cached_property
    def requests(self) -> Requests | None:
        """The requests to Ray Serve; None if there are none."""
        return requests(self.serve_spans, self.is_failed) if self.serve_spans is not None else None

    @cached_property
    def serve_spans(self) -> ServeSpans | None:
        """The spans of Ray Serve; None if there are none."""
        return ServeSpans(self.calls, self.generations) if may_have_requests(self.table) else None

    @cached_property
    def generations(self) -> Generations | None:
        """The spans of what LLM engines generated; None if there are none."""
        return generations(self.table)

    @cached_property
    def generating_operators(self) -> list[Generating]:
        """Operators of datasets with generations. Of these some are spans, so without any nothing is looked up."""
        return generating_operators(self.table, self.pipelines) if self.generations is not None else []

    @cached_property
    def engines(self) -> Engines | None:
        """What LLM engines did; None if there are no generations."""
        return engines(self.generations, self.serve_spans, self.is_failed) if self.generations is not None else None

    @property
    def ends_with_request(self) -> bool:
        """Whether the critical path is that of one request to Ray Serve, and says little of it: ``requests`` does."""
        return self.requests is not None and any(self.path.root in route.rows for route in self.requests.routes)

    @cached_property
    def serves(self) -> bool:
        """Whether requests to Ray Serve are most of the run: there are more than calls that its drivers have made.

        Then the driver mostly waits for them, or sleeps while clients make them.
        """
        found, calls = self.requests, self.calls
        if found is None or not found.count:
            return False
        made = (calls.role[row] == SUBMISSION for driver in calls.drivers() for row in calls.members(driver))
        return found.count > sum(made)

    @property
    def ends_with_driver(self) -> bool:
        """Whether the driver is what ended last, even if it has no span."""
        calls, root = self.calls, self.path.root
        return root >= len(self.table) or (root >= 0 and calls.role[root] == DRIVER)

    @property
    def shown_steps(self) -> list[PathStep]:
        """The steps of the critical path, unless it is that of one request: then they say little."""
        return [] if self.ends_with_request or self.is_part else self.path.steps

    @cached_property
    def _arrivals(self) -> Arrivals:
        return last_to_come(self.table, self.train_runs)

    @property
    def running(self) -> Pieces:
        """The intervals in which the code of each execution ran: without waiting in ``ray.get`` and ``ray.wait``."""
        return running(self.calls)

    @cached_property
    def ran_on_path(self) -> Counter[int]:
        """By row of an execution, or frame of a driver: the time on the critical path in which its own code ran."""
        found: Counter[int] = Counter()
        for step in self.path.steps:
            if step.kind == RUN:
                found[step.row] += step.took
        return found

    @cached_property
    def submitting_on_path(self) -> Counter[int]:
        """By row of a submission: its time on the critical path."""
        steps = (step for step in self.path.steps if step.kind == RUN and step.row >= 0)
        return Counter({row: took for step in steps for row, took in submissions(self.calls, step)})

    @cached_property
    def self_time(self) -> array[int]:
        """For each execution its self time."""
        return self_times(self.calls, self.running)

    @cached_property
    def _assumed(self) -> Any:
        return assumed_times(self.calls)

    def is_assumed(self, rows: Sequence[int]) -> bool:
        """Whether the self time of any of these executions is assumed, since what they waited for was not recorded."""
        return bool(self._assumed[np.asarray(rows, np.int64)].any())

    @cached_property
    def functions(self) -> list[Function]:
        """Functions and methods, by self time, largest first."""
        return functions(self.calls, self.self_time, self._assumed, self.path, self.is_failed)

    @cached_property
    def actors(self) -> list[Actor]:
        """Actors, by self time, largest first."""
        return actors(self.calls, self.self_time, self.path)

    @cached_property
    def pipelines(self) -> Pipelines:
        """The executions of datasets by Ray Data, and the iterations over them."""
        return pipelines(self.calls)

    @cached_property
    def accelerators(self) -> list[Accelerator]:
        """GPUs and other accelerators that were held, by node and name."""
        return accelerators(self.calls, self.utilization)

    @cached_property
    def train_runs(self) -> list[TrainRun]:
        """Runs of Ray Train, by start."""
        return train_runs(self.table)

    @cached_property
    def experiments(self) -> list[Experiment]:
        """Experiments of Ray Tune, by start."""
        return experiments(self.table)

    @cached_property
    def parallelism(self) -> Parallelism:
        """How many calls ran at the same time, over the run."""
        return parallelism(self.calls, self.running, self.path)

    @cached_property
    def queues(self) -> list[FunctionQueue]:
        """What the calls of each function waited for before they ran, where known; the longest first."""
        if not any(self.states.first.values()):
            return []  # most runs have none, so the ids of all tasks need not be read
        calls, table = self.calls, self.table
        found = []
        for call in range(len(calls)):
            row = max(calls.submission[call], calls.execution[call])
            queued = self.queued(row)
            if queued is not None:
                first = calls.first[call]
                since = self.loading_since(first) if first >= 0 else 0
                found.append((calls.function_of(row), queued, table.start[first] - since if since else 0))
        return by_function(found)

    def queued(self, row: int) -> Queued | None:
        """What the call of this submission or execution waited for before it ran, if Ray's task states say so."""
        task = self.table.attribute(row, names.RAY_TASK_ID)
        return self.states.queued(self._session_of(row), task) if isinstance(task, str) else None

    def finished(self, row: int) -> int:
        """When Ray had the result of this execution, which is after its code ended; 0 if that is unknown."""
        ran = self._ran(row)
        return ran[1] if ran is not None else 0

    def _ran(self, row: int) -> tuple[int, int] | None:
        """Since when a worker had the call of this execution, and when Ray had its result; None if that is unknown.

        It is not known of retries.
        """
        table = self.table
        task = table.attribute(row, names.RAY_TASK_ID)
        ran = self.states.loaded(self._session_of(row), task) if isinstance(task, str) else None
        if ran is None or table.attribute(row, names.RAY_ATTEMPT):
            return None
        # Ray's time is by the same clock as the span's before that was corrected.
        shift = table.shifts[table.resource[row]] if table.shifts else 0
        return ran[0] + shift, ran[1] + shift

    def loading_since(self, row: int) -> int:
        """Since when the worker of this execution had its call, before the code started; 0 if that is unknown.

        It is not known of retries, and not of actors that run several calls at once, whose calls also wait for a thread
        or for the event loop.
        """
        ran = self._ran(row)
        if ran is None or self.calls.place(row).slots > 1:
            return 0
        begin, end = ran
        return begin if begin <= self.table.start[row] <= end else 0
