"""Figures of operators, by Ray Data's own metrics (Ray 2.60 ``interfaces/op_runtime_metrics.py``): their totals, which
are exact whatever limits the spans of their tasks, and their queues over time, from their first work on, looked at by
the thread of their executor.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._clock import monotonic
from ray_tracing_hooks._ray.data.backpressure import state_of

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
