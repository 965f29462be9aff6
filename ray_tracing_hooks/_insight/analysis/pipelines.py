"""The executions of datasets by Ray Data: their operators, what these did, and the iterations over their results.

Totals are those of Ray Data where its spans have them, which is so once an operator has completed. Otherwise they are
those of the recorded tasks. Times are nanoseconds.

Waits for Ray Data make no spans of their own. A caller waits for the whole of an execution that a method such as
``materialize`` asked for. In an iteration it waits for the first batch, and then waits and does something else by
turns: how long each takes in all is recorded, but not when.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.intervals import united
from ray_tracing_hooks._insight.model.calls import EXECUTION, SUBMISSION, Calls
from ray_tracing_hooks._insight.model.grouped import most_at_once
from ray_tracing_hooks._insight.model.merge import as_numpy
from ray_tracing_hooks._insight.model.span import Span, is_creation, nanoseconds, whole
from ray_tracing_hooks._insight.model.table import RUNNING, Table


class Cause(NamedTuple):
    """What held an operator back. Strings are empty where Ray Data does not say."""

    kind: str
    """``submission`` of tasks, or reading of their ``output``."""
    policy: str
    resource: str


class Moment(NamedTuple):
    at: int
    """Nanoseconds since the execution of the dataset began."""
    queued_blocks: int
    queued_bytes: int
    running: int
    rows: int


class Interval(NamedTuple):
    """A time in which an operator was held back, perhaps with short breaks."""

    start: int
    end: int
    cause: Cause


@dataclass
class Operator:
    row: int
    name: str
    function: str
    """The name of its tasks as calls, also where its own is hidden."""
    operator_id: str
    type: str
    """Its class in Ray Data."""
    inputs: list[str]
    """The ids of the operators that its input comes from."""
    start: int
    end: int
    is_running: bool
    tasks: int
    """The tasks that it submitted, also those without a span."""
    executions: list[int]
    """The rows of its recorded tasks, by start; each attempt is one."""
    creations: list[int]
    """The rows of the recorded starts of its actors, by start."""
    actors: int
    rows: int | None
    bytes: int | None
    blocks: int | None
    input_rows: int | None
    input_bytes: int | None
    busy: int
    """How long its tasks ran, added up."""
    blocked: int
    """For how much of that its tasks waited until their output was read, as far as it is known."""
    slots: int | None
    """How many of its tasks may run at a time, if that is limited."""
    needs: dict[str, float]
    """What each task, or actor, requires of each resource."""
    held_back: dict[Cause, int]
    """For how long something held it back while it had something to submit or to hand on."""
    intervals: list[Interval]
    """When, by start; short ones are left out."""
    timeline: list[Moment]
    failed: int
    spilled: int
    """Bytes of its input that had been spilled to disk."""
    worked: int
    """From the start of its first to the end of its last recorded task; its whole time if not all are recorded."""

    @property
    def duration(self) -> int:
        return self.end - self.start

    @property
    def parallelism(self) -> float:
        """How many of its tasks ran at a time, on average over its whole time."""
        return self.busy / self.duration if self.duration else 0.0

    @property
    def working(self) -> int:
        """How long its tasks ran without waiting until their output was read, added up."""
        return self.busy - self.blocked

    @property
    def occupied(self) -> int:
        """How long Ray Data counted its tasks as running, added up: from their submission to their end."""
        if not self.timeline:
            return self.busy
        return max(self.busy, sum(each.running for each in self.timeline) * self.duration // len(self.timeline))

    @property
    def rows_per_second(self) -> float | None:
        return self.rows / self.duration * 1e9 if self.rows is not None and self.duration else None

    @property
    def queued(self) -> float:
        """How many blocks waited for it on average, as far as that was looked at."""
        return sum(each.queued_blocks for each in self.timeline) / len(self.timeline) if self.timeline else 0.0

    @property
    def longest_queue(self) -> int:
        return max((each.queued_blocks for each in self.timeline), default=0)

    @property
    def has_actors(self) -> bool:
        return bool(self.actors or self.creations)


@dataclass
class Iteration:
    """An iteration over the results of a dataset. Times of a running one are not known yet and are 0."""

    row: int
    method: str
    start: int
    end: int
    is_running: bool
    outcome: str
    split: int | None
    epoch: int | None
    batches: int
    rows: int
    waited: int
    """How long the program waited for batches."""
    first: int
    """How long it waited for the first batch."""
    used: int
    """How long it did something else between its batches."""
    dataset_id: str
    """Ray's id of the execution; empty if not recorded."""
    stages: dict[str, int]
    """How long it waited for ``production``, ``transfer`` and so on; these may overlap."""

    @property
    def waiting_share(self) -> float | None:
        """The share of its time that it waited; None if it has not ended."""
        total = self.waited + self.used
        return self.waited / total if total else None


@dataclass
class Pipeline:
    """One execution of a dataset."""

    row: int
    name: str
    dataset_id: str
    run: int | None
    consumer: str
    """The method of Ray Data that asked for it, such as ``materialize``; empty if unknown."""
    outcome: str
    """Empty if it has not ended."""
    start: int
    end: int
    is_running: bool
    rows: int | None
    bytes: int | None
    limits: dict[str, float]
    """What all its tasks together could use of each resource."""
    spilled: int
    """Bytes that the whole cluster spilled to disk during the execution."""
    restored: int
    operators: list[Operator]
    """Inputs first."""
    iteration: Iteration | None
    """The iteration that asked for it."""

    @property
    def duration(self) -> int:
        return self.end - self.start

    @cached_property
    def by_id(self) -> dict[str, Operator]:
        return {each.operator_id: each for each in self.operators}

    def before(self, operator: Operator) -> list[Operator]:
        """All operators that its input has gone through."""
        found: dict[str, Operator] = {}
        pending = list(operator.inputs)
        while pending:
            each = self.by_id.get(pending.pop())
            if each is not None and each.operator_id not in found:
                found[each.operator_id] = each
                pending.extend(each.inputs)
        return list(found.values())


@dataclass
class Pipelines:
    """What was recorded of Ray Data."""

    executions: list[Pipeline] = field(default_factory=list)
    """By start."""
    iterations: list[Iteration] = field(default_factory=list)
    """By start; also those that other processes execute the dataset for."""

    @cached_property
    def operator_names(self) -> set[str]:
        """The names of the functions of all operators."""
        return {operator.function for one in self.executions for operator in one.operators}

    @cached_property
    def of_task(self) -> dict[int, Operator]:
        """The operator of each row of a recorded task."""
        return {row: each for one in self.executions for each in one.operators for row in each.executions}


def pipelines(calls: Calls) -> Pipelines:
    """The executions and iterations in a table, by start."""
    table = calls.table
    datasets, operators, iterations = (
        rows_named(table, kind) for kind in (names.DATASET, names.DATA_OPERATOR, names.DATA_ITERATION)
    )
    if not datasets and not iterations:
        return Pipelines()
    spans = {row: table.span(row) for row in table.as_recorded([*datasets, *operators, *iterations])}
    by_dataset: dict[int, list[int]] = {}
    for row in operators:
        by_dataset.setdefault(table.parent[row], []).append(row)
    found = Pipelines(iterations=[_iteration(table, row, spans[row]) for row in iterations])
    by_row = {each.row: each for each in found.iterations}
    for row in datasets:
        own = [_operator(calls, each, spans[each]) for each in by_dataset.get(row, ())]
        own.sort(key=lambda each: (_position(each.operator_id), each.start))
        found.executions.append(_pipeline(table, row, spans[row], own, by_row.get(table.parent[row])))
    return found


def rows_named(table: Table, kind: str) -> list[int]:
    """The rows of spans of this kind, the last word of their names, by start."""
    found: list[int] = np.nonzero(table.is_named(lambda name: name.endswith(f" {kind}")))[0].tolist()
    return found


def _pipeline(table: Table, row: int, span: Span, operators: list[Operator], iteration: Iteration | None) -> Pipeline:
    attributes = span.attributes
    return Pipeline(
        row=row,
        name=span.name.removesuffix(f" {names.DATASET}"),
        dataset_id=str(attributes.get(names.RAY_DATA_DATASET_ID, "")),
        run=whole(attributes.get(names.RAY_DATA_RUN)),
        consumer=str(attributes.get(names.RAY_DATA_CONSUMER, "")),
        outcome=str(attributes.get(names.RAY_DATA_OUTCOME, "")),
        start=table.start[row],
        end=table.end_or_now(row),
        is_running=table.state[row] == RUNNING,
        rows=whole(attributes.get(names.RAY_DATA_ROWS)),
        bytes=whole(attributes.get(names.RAY_DATA_BYTES)),
        limits=_amounts(attributes.get(names.RAY_DATA_LIMITS)),
        spilled=whole(attributes.get(names.RAY_DATA_SPILLED)) or 0,
        restored=whole(attributes.get(names.RAY_DATA_RESTORED)) or 0,
        operators=operators,
        iteration=iteration,
    )


def _operator(calls: Calls, row: int, span: Span) -> Operator:
    table, attributes = calls.table, span.attributes
    executions, creations = _tasks(calls, row)
    start, end = table.start[row], table.end_or_now(row)
    tasks = whole(attributes.get(names.RAY_DATA_TASKS)) or len({calls.call_of[each] for each in executions})
    busy = sum(map(table.duration, executions))
    is_complete = len(executions) >= tasks
    if not is_complete:
        measured = nanoseconds(attributes.get(names.RAY_DATA_TASK_TIME))
        busy = measured or (busy * tasks // len(executions) if executions else 0)
    ends = max(map(table.end_or_now, executions), default=0)
    slots = whole(attributes.get(names.RAY_DATA_MAX_CONCURRENCY))
    actors = whole(attributes.get(names.RAY_DATA_ACTORS)) or len(creations)
    if actors and slots and executions:
        slots = min(slots, actors * calls.place(executions[0]).slots)
    held_back, timeline = _held_back(attributes), _timeline(attributes)
    function = span.name.removesuffix(f" {names.DATA_OPERATOR}")
    return Operator(
        row=row,
        name=str(attributes.get(names.RAY_DATA_OPERATOR) or function),
        function=function,
        operator_id=str(attributes.get(names.RAY_DATA_OPERATOR_ID, "")),
        type=str(attributes.get(names.RAY_DATA_OPERATOR_TYPE, "")),
        inputs=_texts(attributes.get(names.RAY_DATA_INPUTS)),
        start=start,
        end=end,
        is_running=table.state[row] == RUNNING,
        tasks=tasks,
        executions=executions,
        creations=creations,
        actors=actors,
        rows=whole(attributes.get(names.RAY_DATA_ROWS)),
        bytes=whole(attributes.get(names.RAY_DATA_BYTES)),
        blocks=whole(attributes.get(names.RAY_DATA_BLOCKS)),
        input_rows=whole(attributes.get(names.RAY_DATA_INPUT_ROWS)),
        input_bytes=whole(attributes.get(names.RAY_DATA_INPUT_BYTES)),
        busy=busy,
        blocked=_blocked(busy, attributes, held_back, slots or max((each.running for each in timeline), default=1)),
        slots=slots,
        needs=_amounts(attributes.get(names.RAY_DATA_TASK_RESOURCES)),
        held_back=held_back,
        intervals=_intervals(span),
        timeline=timeline,
        failed=whole(attributes.get(names.RAY_DATA_TASKS_FAILED)) or 0,
        spilled=whole(attributes.get(names.RAY_DATA_SPILLED)) or 0,
        worked=ends - table.start[executions[0]] if executions and is_complete else end - start,
    )


def _tasks(calls: Calls, row: int) -> tuple[list[int], list[int]]:
    """The executions below an operator: of its tasks, and of the constructors of its actors."""
    tasks: list[int] = []
    creations: list[int] = []
    for child in calls.table.children(row):
        role = calls.role[child]
        if role in (SUBMISSION, EXECUTION):
            to = creations if is_creation(calls.function_of(child)) else tasks
            to.extend(calls.attempts(calls.call_of[child]) if role == SUBMISSION else (child,))
    return sorted(set(tasks)), sorted(set(creations))


def _iteration(table: Table, row: int, span: Span) -> Iteration:
    attributes = span.attributes
    stages = {
        key.removeprefix(f"{names.RAY_DATA_WAIT_TIME}."): nanoseconds(value)
        for key, value in attributes.items()
        if key.startswith(f"{names.RAY_DATA_WAIT_TIME}.")
    }
    return Iteration(
        row=row,
        method=span.name.removesuffix(f" {names.DATA_ITERATION}"),
        start=table.start[row],
        end=table.end_or_now(row),
        is_running=table.state[row] == RUNNING,
        outcome=str(attributes.get(names.RAY_DATA_OUTCOME, "")),
        split=whole(attributes.get(names.RAY_DATA_SPLIT)),
        epoch=whole(attributes.get(names.RAY_DATA_EPOCH)),
        batches=whole(attributes.get(names.RAY_DATA_BATCHES)) or 0,
        rows=whole(attributes.get(names.RAY_DATA_ROWS)) or 0,
        waited=nanoseconds(attributes.get(names.RAY_DATA_WAIT_TIME)),
        first=nanoseconds(attributes.get(names.RAY_DATA_FIRST_BATCH_TIME)),
        used=nanoseconds(attributes.get(names.RAY_DATA_USER_TIME)),
        dataset_id=str(attributes.get(names.RAY_DATA_DATASET_ID, "")),
        stages={stage: time for stage, time in stages.items() if time},
    )


def _held_back(attributes: dict[str, Any]) -> dict[Cause, int]:
    found: dict[Cause, int] = {}
    times = attributes.get(names.RAY_DATA_BACKPRESSURE_BY_TIME)
    for text, seconds in zip(_texts(attributes.get(names.RAY_DATA_BACKPRESSURE_BY)), _list(times), strict=False):
        kind, policy, resource, *_ = [*(part.strip() for part in text.split(",")), "", ""]
        found[Cause(kind, policy, resource)] = nanoseconds(seconds)
    return found


def _blocked(busy: int, attributes: dict[str, Any], held_back: dict[Cause, int], at_once: int) -> int:
    """How long tasks waited until their output was read, of the time that they ran.

    Ray Data measures the time in which they make blocks. The rest is such waiting only as far as their output was held
    back: a task also has to begin and to end.
    """
    making = attributes.get(names.RAY_DATA_BLOCK_TIME)
    if making is None:
        return 0
    held = sum(time for cause, time in held_back.items() if cause.kind == "output")
    return max(0, min(busy - nanoseconds(making), held * at_once))


def _intervals(span: Span) -> list[Interval]:
    found = []
    for event in span.events:
        attributes = event.attributes
        if event.name == names.DATA_BACKPRESSURE:
            keys = (
                names.RAY_DATA_BACKPRESSURE_KIND,
                names.RAY_DATA_BACKPRESSURE_POLICY,
                names.RAY_DATA_BACKPRESSURE_RESOURCE,
            )
            cause = Cause(*(str(attributes.get(key, "")) for key in keys))
            until = event.time_ns + nanoseconds(attributes.get(names.RAY_DATA_BACKPRESSURE_DURATION))
            found.append(Interval(event.time_ns, until, cause))
    return sorted(found)


def _timeline(attributes: dict[str, Any]) -> list[Moment]:
    keys = (
        names.RAY_DATA_TIMELINE_SECONDS,
        names.RAY_DATA_TIMELINE_QUEUED_BLOCKS,
        names.RAY_DATA_TIMELINE_QUEUED_BYTES,
        names.RAY_DATA_TIMELINE_RUNNING_TASKS,
        names.RAY_DATA_TIMELINE_ROWS,
    )
    columns = [_list(attributes.get(key)) for key in keys]
    return [
        Moment(nanoseconds(seconds), *(whole(each) or 0 for each in others))
        for seconds, *others in zip(*columns, strict=False)
    ]


def at_once(calls: Calls, rows: Sequence[int]) -> int:
    """The most of these executions that ran at a time."""
    start, end = as_numpy(calls.table.start)[list(rows)], as_numpy(calls.table.ends)[list(rows)]
    is_long = end > start
    return most_at_once(start[is_long], end[is_long])


def _position(operator_id: str) -> int:
    last = operator_id.rpartition("_")[2]
    return int(last) if last.isdigit() else 0


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _texts(value: Any) -> list[str]:
    return [str(each) for each in _list(value)]


def _amounts(text: Any) -> dict[str, float]:
    """Amounts by resource, from JSON; empty if it is not that."""
    try:
        found = json.loads(text) if isinstance(text, str) else {}
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {str(key): value for key, value in found.items() if isinstance(value, (int, float))}


_MOSTLY = 0.5


def executions_waited_for(calls: Calls) -> Any:
    """The rows of executions of datasets that no iteration asked for, as a NumPy column."""
    table = calls.table
    rows = np.array(rows_named(table, names.DATASET), np.int64)
    return rows[~np.isin(as_numpy(table.parent)[rows], rows_named(table, names.DATA_ITERATION))]


def dataset_waits(calls: Calls) -> dict[int, list[tuple[int, int]]]:
    """By frame, the times in which it waits for Ray Data, in order and apart from each other.

    An iteration counts until its first batch, and all of it if waiting is most of what follows.
    """
    table = calls.table
    until = {row: _waits_until(calls, row) for row in rows_named(table, names.DATA_ITERATION)}
    until.update({row: table.end_or_now(row) for row in executions_waited_for(calls).tolist()})
    found: dict[int, list[tuple[int, int]]] = {}
    for row, end in until.items():
        if not calls.is_aside(row) and end > table.start[row]:
            found.setdefault(calls.frame[row], []).append((table.start[row], end))
    return {frame: united(times) for frame, times in found.items()}


def tasks_of_operators(calls: Calls) -> set[int]:
    """The calls that operators make. Nobody waits for one of them, but for its execution or iteration."""
    table = calls.table
    operators = rows_named(table, names.DATA_OPERATOR)
    if not operators:
        return set()
    submissions = np.nonzero(np.isin(as_numpy(table.parent), operators))[0].tolist()
    return {calls.call_of[row] for row in submissions if calls.role[row] == SUBMISSION}


def _waits_until(calls: Calls, row: int) -> int:
    table, attributes = calls.table, calls.table.span(row).attributes
    waited, used = attributes.get(names.RAY_DATA_WAIT_TIME), attributes.get(names.RAY_DATA_USER_TIME)
    if not isinstance(waited, (int, float)) or not isinstance(used, (int, float)):
        return table.end_or_now(row)  # it has not ended: it may wait for its next batch
    first = min(nanoseconds(attributes.get(names.RAY_DATA_FIRST_BATCH_TIME)), nanoseconds(waited))
    rest = nanoseconds(waited) - first
    if rest >= _MOSTLY * (rest + nanoseconds(used)):
        return table.end_or_now(row)
    return min(table.start[row] + first, table.end_or_now(row))


_FAILED = "failed"
"""The outcome of a dataset."""


def stopped_tasks(calls: Calls, executions: Iterable[Pipeline]) -> set[int]:
    """The rows of the tasks of these datasets that Ray Data ended itself, and of the calls that these had made.

    It needed no more of their blocks: after ``take``, at a limit, where the program leaves the loop over a dataset, or
    because the dataset failed for another reason. Nothing failed in them.
    """
    found = {
        row
        for one in executions
        if one.outcome  # else it is running, or its driver died
        for operator in one.operators
        for row in _stopped(calls, one, operator)
    }
    if not found:
        return found
    table = calls.table
    # Ray cancels the calls of a cancelled task too. A call begins after what made it, so it has a later row.
    for row in np.nonzero(table.is_failed())[0].tolist():
        if _is_cancelled(calls, row) and calls.caller(row) in found:
            found.add(row)
    return found


def _stopped(calls: Calls, dataset: Pipeline, operator: Operator) -> Iterator[int]:
    table = calls.table
    failed = [row for row in (*operator.executions, *operator.creations) if table.failed(row)]
    if operator.failed and all(_is_cancelled(calls, row) for row in failed):
        return  # the function of the program has raised it
    # Of a dataset that did not fail, Ray Data has not seen another failure. Where it kills workers, or where a function
    # is interrupted in the middle of something, the error may be any.
    is_any = dataset.outcome != _FAILED and not operator.failed
    for row in failed:
        if calls.is_last_attempt(row) and (is_any or _is_cancelled(calls, row)):
            yield row


def _is_cancelled(calls: Calls, row: int) -> bool:
    return bool(calls.table.attribute(row, names.ERROR_TYPE) == names.TASK_CANCELLED)
