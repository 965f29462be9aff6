"""The totals of an operator, from Ray Data's own metrics (Ray 2.60 ``interfaces/op_runtime_metrics.py``).

They are exact whatever limits the spans of its tasks, and those that ``stats()`` reports.
"""

from __future__ import annotations

import json
import math
from typing import Any

from ray_tracing_hooks import names

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
