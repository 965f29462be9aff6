"""Figures of operators, by Ray Data's own metrics (Ray 2.60 ``interfaces/op_runtime_metrics.py``): their totals, which
are exact whatever limits the spans of their tasks, and their queues over time, from their first work on, looked at by
the thread of their executor.

Backpressure: when a policy of Ray Data held an operator back, and which resource it waited for.

Wraps ``notify_in_task_submission_backpressure`` and ``notify_in_task_output_backpressure`` of ``PhysicalOperator`` (Ray
2.60 ``data/_internal/execution/interfaces/physical_operator.py``), which the executor calls for each operator in each
step of its loop. A policy may hold back an operator that has nothing to do; only times in which it has are recorded
here. Times that follow each other closely are one event, since the executor asks the policies many times a second.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from ray_tracing_hooks import names
from ray_tracing_hooks._clock import monotonic, now_ns
from ray_tracing_hooks._ray.library_spans import preceded_by
from ray_tracing_hooks._record.span import RecordedSpan


def state_of(op: Any, executor: Any) -> Any:
    """The state of an operator; None before the executor has set it up."""
    topology = getattr(executor, "_topology", None)
    return topology.get(op) if topology is not None else None


HELD_BACK = "_ray_tracing_hooks_held_back"
"""The attribute of Ray's operator that holds its :class:`HeldBack`."""

SUBMISSION, OUTPUT = "submission", "output"

CPU, GPU, HEAP, STORE = "CPU", "GPU", "memory", "object store memory"
_BUDGETS = ((CPU, "cpu"), (GPU, "gpu"), (HEAP, "memory"), (STORE, "object_store_memory"))

DOWNSTREAM, CONCURRENCY = "downstream operators", "concurrency limit"

_GAP = 0.25
"""Seconds without backpressure that do not end an event."""

_LEAST = 0.05
"""Seconds of backpressure below which there is no event; they count in the sums."""

_MOST_EVENTS = 60

_AGAIN = 0.1
"""Seconds after which an operator that is still held back is looked at again: has it work, and what does it lack?"""


def _noticing(kind: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def notice(op: Any, in_backpressure: bool, *policy: Any, **named: Any) -> None:
        held_back: HeldBack | None = vars(op).get(HELD_BACK)
        if held_back is not None and (in_backpressure or held_back.is_held):
            name = policy[0] if policy else named.get("policy_name")
            held_back.notice(kind, name or "", in_backpressure=in_backpressure)

    return preceded_by(notice, "recording backpressure")


BACKPRESSURE = {
    "PhysicalOperator.notify_in_task_output_backpressure?": _noticing(OUTPUT),
    "PhysicalOperator.notify_in_task_submission_backpressure": _noticing(SUBMISSION),
}


class Cause(NamedTuple):
    """What held an operator back."""

    kind: str
    policy: str
    """Ray Data's name of the policy; empty if unknown."""
    resource: str
    """What was missing; empty if unknown."""

    def __str__(self) -> str:
        return ", ".join(filter(None, self))


class HeldBack:
    """When one operator of an executor was held back. Used by the thread of the executor.

    Attributes:
        span: The span of the operator; None before it begins, and if it is not recorded.
        is_held: Whether it is held back now, in any way.
    """

    def __init__(self, op: Any, executor: Callable[[], Any]) -> None:
        self._op, self._executor = op, executor
        self.span: RecordedSpan | None = None
        self.is_held = False
        self._now: dict[str, tuple[Cause, float]] = {}
        """For each kind, the cause and since when."""
        self._again = {SUBMISSION: 0.0, OUTPUT: 0.0}
        """For each kind, when to look again at whether it has work and what it lacks."""
        self._events: dict[str, _Event] = {}
        """For each kind, the event that further times may continue."""
        self._sums: dict[Cause, float] = {}
        self._recorded = 0

    def __reduce__(self) -> Any:
        # A pickled copy of the operator is held back by nobody, and may be where this package is not.
        return type(None), ()

    def notice(self, kind: str, policy: str, *, in_backpressure: bool) -> None:
        """What the executor says of the operator now; ``policy`` is empty in versions of Ray that do not name it."""
        now, moment = self._now.get(kind), monotonic()
        # The executor says it in each step of its loop, many times a second.
        if in_backpressure and moment < self._again[kind] and (now is None or now[0].policy == policy):
            return
        if not in_backpressure or not self._has_work(kind):
            self._again[kind] = moment + _AGAIN if in_backpressure else 0.0
            if now is not None:
                self._release(kind, moment)
            return
        self._again[kind] = moment + _AGAIN
        cause = Cause(kind, policy, self._resource(kind, policy))
        if now is not None:
            if now[0] == cause:
                return
            self._release(kind, moment)
        self._now[kind] = cause, moment
        self.is_held = True

    def end(self) -> None:
        """Write what has not been written, and the sums, to the span."""
        moment = monotonic()
        for kind in list(self._now):
            self._release(kind, moment)
        for kind in list(self._events):
            self._write(self._events.pop(kind))
        span = self.span
        if self._sums and span is not None:
            causes = sorted(self._sums, key=lambda each: -self._sums[each])
            span.set_attribute(names.RAY_DATA_BACKPRESSURE_BY, [str(each) for each in causes])
            span.set_attribute(names.RAY_DATA_BACKPRESSURE_BY_TIME, [round(self._sums[each], 6) for each in causes])

    def _release(self, kind: str, moment: float) -> None:
        cause, since = self._now.pop(kind)
        self.is_held = bool(self._now)
        duration = moment - since
        self._sums[cause] = self._sums.get(cause, 0.0) + duration
        event = self._events.get(kind)
        if event is not None and event.cause == cause and since - event.until <= _GAP:
            event.until, event.duration = moment, event.duration + duration
            return
        if event is not None:
            self._write(event)
        self._events[kind] = _Event(cause, now_ns() - int(duration * 1e9), moment, duration)

    def _write(self, event: _Event) -> None:
        span = self.span
        if span is None or event.duration < _LEAST or self._recorded >= _MOST_EVENTS:
            return
        self._recorded += 1
        cause = event.cause
        attributes = {
            names.RAY_DATA_BACKPRESSURE_KIND: cause.kind,
            names.RAY_DATA_BACKPRESSURE_DURATION: round(event.duration, 6),
            **({names.RAY_DATA_BACKPRESSURE_POLICY: cause.policy} if cause.policy else {}),
            **({names.RAY_DATA_BACKPRESSURE_RESOURCE: cause.resource} if cause.resource else {}),
        }
        span.add_event(names.DATA_BACKPRESSURE, attributes, event.began_ns)

    def _has_work(self, kind: str) -> bool:
        if kind == OUTPUT:
            return bool(self._op._metrics.num_tasks_running)  # noqa: SLF001  as in `totals`
        state = state_of(self._op, self._executor())
        return any(len(queue) for queue in getattr(state, "input_queues", None) or getattr(state, "inqueues", ()) or ())

    def _resource(self, kind: str, policy: str) -> str:
        """The resource that the policy found missing."""
        if policy == "DownstreamCapacity":
            return DOWNSTREAM
        if policy == "ConcurrencyCap":
            return CONCURRENCY
        if kind == OUTPUT:
            return STORE
        return self._beyond_budget()

    def _beyond_budget(self) -> str:
        """The resources whose remaining budget is too small for the operator's next task."""
        op, executor = self._op, self._executor()
        allocator = getattr(executor._resource_manager, "_op_resource_allocator", None)  # noqa: SLF001
        budget = getattr(allocator, "_op_budgets", {}).get(op)
        if budget is None:
            return ""
        needed = op.incremental_resource_usage()
        lacking = [
            name
            for name, attribute in _BUDGETS
            if (getattr(needed, attribute, 0) or 0) > (getattr(budget, attribute, 0) or 0)
        ]
        # The rest of the policy is about the output of tasks.
        return " and ".join(lacking) or STORE


class _Event:
    __slots__ = ("began_ns", "cause", "duration", "until")

    def __init__(self, cause: Cause, began_ns: int, until: float, duration: float) -> None:
        self.cause, self.began_ns, self.until, self.duration = cause, began_ns, until, duration


_METRICS = (
    (names.RAY_DATA_INPUT_BLOCKS, "num_inputs_received"),
    (names.RAY_DATA_INPUT_ROWS, "num_row_inputs_received"),
    (names.RAY_DATA_INPUT_BYTES, "bytes_inputs_received"),
    (names.RAY_DATA_ROWS, "row_outputs_taken"),
    (names.RAY_DATA_BYTES, "bytes_outputs_taken"),
    (names.RAY_DATA_BLOCKS, "block_outputs_taken"),
    (names.RAY_DATA_TASKS, "num_tasks_submitted"),
    (names.RAY_DATA_TASKS_FAILED, "num_tasks_failed"),
    (names.RAY_DATA_SPILLED, "obj_store_mem_spilled"),
    (names.RAY_DATA_SCHEDULING_TIME, "task_scheduling_time_s"),
    (names.RAY_DATA_TASK_TIME, "task_worker_completion_time_s"),
    (names.RAY_DATA_UDF_TIME, "function_body_time_s"),
    (names.RAY_DATA_BACKPRESSURE_SUBMISSION, "task_submission_backpressure_time"),
    (names.RAY_DATA_BACKPRESSURE_OUTPUT, "task_output_backpressure_time"),
)
"""Our attribute and Ray's metric. Older versions of Ray have fewer of them."""

_ONLY_IF_ANY = frozenset(
    {
        names.RAY_DATA_TASKS_FAILED,
        names.RAY_DATA_SPILLED,
        names.RAY_DATA_UDF_TIME,
        # Ray Data does not measure them for each kind of operator.
        names.RAY_DATA_SCHEDULING_TIME,
        names.RAY_DATA_TASK_TIME,
    }
)

_BLOCK_TIME = ("block_generation_time", "block_serialization_time_s")
"""What a task does between the blocks that it yields. Older versions of Ray lack the second."""

_OLD_ROWS = (names.RAY_DATA_ROWS, "rows_task_outputs_generated")
"""What older versions of Ray have instead: the rows that its tasks made."""

_RESOURCES = (("CPU", "cpu"), ("GPU", "gpu"), ("memory", "memory"))
_OF_CLUSTER = (*_RESOURCES, ("object_store_memory", "object_store_memory"))


def of_operator(op: Any, submitted: int) -> dict[str, Any]:
    """What an operator has done by now; it has ``submitted`` calls, which Ray Data does not count for each kind."""
    metrics = op._metrics  # noqa: SLF001  the property would compute more
    found = {key: value for key, name in _METRICS if (value := getattr(metrics, name, None)) is not None}
    if names.RAY_DATA_ROWS not in found and (rows := getattr(metrics, _OLD_ROWS[1], None)) is not None:
        found[_OLD_ROWS[0]] = rows
    block_time = sum(getattr(metrics, name, None) or 0 for name in _BLOCK_TIME)
    if block_time:
        found[names.RAY_DATA_BLOCK_TIME] = block_time
    found[names.RAY_DATA_TASKS] = found.get(names.RAY_DATA_TASKS) or submitted
    return {key: value for key, value in found.items() if value or key not in _ONLY_IF_ANY}


def of_plan(op: Any) -> dict[str, Any]:
    """What is known of an operator before it begins: how many tasks it may run, and what each requires."""
    found: dict[str, Any] = {}
    limit = getattr(op, "get_max_concurrency_limit", lambda: None)()
    if isinstance(limit, (int, float)) and math.isfinite(limit):
        found[names.RAY_DATA_MAX_CONCURRENCY] = int(limit)
    if resources := _amounts(_required(op)):
        found[names.RAY_DATA_TASK_RESOURCES] = json.dumps(resources)
    return found


def _required(op: Any) -> Any:
    """What one task of the operator requires, for a pool of actors one actor."""
    for name in ("min_scheduling_resources", "incremental_resource_usage"):
        method = getattr(op, name, None)
        if method is not None:
            return method()
    return None


def limits_of(executor: Any) -> dict[str, str]:
    """What all tasks of an execution together may use, as Ray Data last determined it.

    Its method would ask the cluster again, so this reads what the method keeps (Ray 2.60
    ``execution/resource_manager.py``).
    """
    manager = getattr(executor, "_resource_manager", None)
    limits = _amounts(getattr(manager, "_global_limits", None), _OF_CLUSTER)
    return {names.RAY_DATA_LIMITS: json.dumps(limits)} if limits else {}


def _amounts(resources: Any, kinds: tuple[tuple[str, str], ...] = _RESOURCES) -> dict[str, float]:
    """Ray Data's ``ExecutionResources`` without those that are zero or unlimited."""
    amounts = {name: getattr(resources, attribute, None) or 0 for name, attribute in kinds}
    return {name: amount for name, amount in amounts.items() if amount and math.isfinite(amount)}


_MOST = 120
"""The most moments: then every second one is dropped, and the interval doubles."""

_FIRST_INTERVAL = 0.2


class Moments:
    """The moments in an execution at which all its operators are looked at.

    Attributes:
        next: The next one, by the monotonic clock.
    """

    def __init__(self) -> None:
        self._began = monotonic()
        self._interval = _FIRST_INTERVAL
        self.next = self._began + self._interval
        self._count = 0

    def look(self, now: float, timelines: list[Timeline]) -> None:
        """Look at the operators that are at work."""
        if self._count >= _MOST:
            self._count //= 2
            self._interval *= 2
            for timeline in timelines:
                timeline.halve()
        self._count += 1
        self.next = now + self._interval
        for timeline in timelines:
            timeline.look(round(now - self._began, 3))


class Timeline:
    """What was seen of one operator of an executor, a row for each moment."""

    def __init__(self, op: Any, executor: Callable[[], Any]) -> None:
        self._op, self._executor = op, executor
        self._rows: list[tuple[float, int, int, int, int]] = []

    def halve(self) -> None:
        """Drop every second row."""
        self._rows = self._rows[1::2]

    def look(self, seconds: float) -> None:
        """Add a row for this moment of the execution."""
        state, metrics = state_of(self._op, self._executor()), self._op._metrics  # noqa: SLF001  as in `totals`
        self._rows.append(
            (
                seconds,
                _call(state, "total_enqueued_input_blocks", "total_enqueued_input_bundles"),
                _call(state, "total_enqueued_input_blocks_bytes", "input_queue_bytes", "inqueue_memory_usage"),
                getattr(metrics, "num_tasks_running", 0),
                getattr(metrics, "row_outputs_taken", getattr(metrics, "rows_task_outputs_generated", 0)),
            )
        )

    def attributes(self) -> dict[str, Any]:
        """What was seen, as attributes of the operator; nothing if it was over before the first look."""
        if not self._rows:
            return {}
        seconds, blocks, size, running, rows = zip(*self._rows, strict=True)
        return {
            names.RAY_DATA_TIMELINE_SECONDS: seconds,
            names.RAY_DATA_TIMELINE_QUEUED_BLOCKS: blocks,
            names.RAY_DATA_TIMELINE_QUEUED_BYTES: size,
            names.RAY_DATA_TIMELINE_RUNNING_TASKS: running,
            names.RAY_DATA_TIMELINE_ROWS: rows,
        }


def _call(state: Any, *methods: str) -> int:
    """The result of the first of these methods that this version of Ray has."""
    for name in methods:
        method = getattr(state, name, None)
        if method is not None:
            return int(method())
    return 0
