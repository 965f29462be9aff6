"""Executions of datasets as plain values, for the JSON of ``summary`` and for the page.

Times are integers in nanoseconds (``ns``, ``_ns``), shares are from 0 to 1; unknown values are null. The lists of a
``timeline`` have an item for each moment, ``ns`` after the start of the execution.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ray_tracing_hooks._insight.analysis import limits
from ray_tracing_hooks._insight.analysis.pipelines import Iteration, Operator, Pipeline, Pipelines


def datasets(pipelines: Pipelines, span: Callable[[int], Any]) -> dict[str, Any]:
    """All executions and iterations, by start. ``span`` returns what stands for the span of a row."""
    return {
        "executions": [_execution(each, span) for each in pipelines.executions],
        "iterations": [_iteration(each, span) for each in pipelines.iterations],
    }


def _execution(pipeline: Pipeline, span: Callable[[int], Any]) -> dict[str, Any]:
    limit = limits.limit_of(pipeline)
    return {
        "name": pipeline.name,
        "dataset_id": pipeline.dataset_id,
        "run": pipeline.run,
        "consumer": pipeline.consumer,
        "outcome": pipeline.outcome or None,
        "is_running": pipeline.is_running,
        "start_unix_nano": pipeline.start,
        "ns": pipeline.duration,
        "rows": pipeline.rows,
        "bytes": pipeline.bytes,
        "spilled_bytes": pipeline.spilled,
        "restored_bytes": pipeline.restored,
        "limits": pipeline.limits,
        "processor_share": limits.processor_share(pipeline),
        "limited_by": None
        if limit is None
        else {
            "kind": limit.kind,
            "operator": limit.operator.operator_id if limit.operator else None,
            "share": limit.share,
        },
        "operators": [_operator(each, span) for each in pipeline.operators],
        "span": span(pipeline.row),
    }


def _operator(operator: Operator, span: Callable[[int], Any]) -> dict[str, Any]:
    return {
        "name": operator.name,
        "id": operator.operator_id,
        "type": operator.type,
        "inputs": operator.inputs,
        "start_unix_nano": operator.start,
        "ns": operator.duration,
        "is_running": operator.is_running,
        "tasks": operator.tasks,
        "tasks_recorded": len(operator.executions),
        "tasks_failed": operator.failed,
        "actors": operator.actors,
        "slots": operator.slots,
        "slot_share": limits.slot_share(operator) if operator.slots else None,
        "needs": operator.needs,
        "busy_ns": operator.busy,
        "blocked_ns": operator.blocked,
        "parallelism": operator.parallelism,
        "input_rows": operator.input_rows,
        "input_bytes": operator.input_bytes,
        "rows": operator.rows,
        "bytes": operator.bytes,
        "blocks": operator.blocks,
        "rows_per_second": operator.rows_per_second,
        "mean_queue": operator.queued,
        "longest_queue": operator.longest_queue,
        "held_back": [
            {**cause._asdict(), "ns": time}
            for cause, time in sorted(operator.held_back.items(), key=lambda each: -each[1])
        ],
        "held_back_at": [
            {**each.cause._asdict(), "start_unix_nano": each.start, "ns": each.end - each.start}
            for each in operator.intervals
        ],
        "timeline": {
            "ns": [each.at for each in operator.timeline],
            "queued_blocks": [each.queued_blocks for each in operator.timeline],
            "queued_bytes": [each.queued_bytes for each in operator.timeline],
            "running": [each.running for each in operator.timeline],
            "rows": [each.rows for each in operator.timeline],
        },
        "span": span(operator.row),
    }


def _iteration(iteration: Iteration, span: Callable[[int], Any]) -> dict[str, Any]:
    return {
        "method": iteration.method,
        "outcome": iteration.outcome or None,
        "is_running": iteration.is_running,
        "start_unix_nano": iteration.start,
        "ns": iteration.end - iteration.start,
        "split": iteration.split,
        "epoch": iteration.epoch,
        "batches": iteration.batches,
        "rows": iteration.rows,
        "waited_ns": iteration.waited,
        "waiting_share": iteration.waiting_share,
        "first_batch_ns": iteration.first,
        "used_ns": iteration.used,
        "stages_ns": iteration.stages,
        "span": span(iteration.row),
    }
