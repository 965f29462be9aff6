"""An operator of a dataset whose limit on its own tasks limits the throughput of all of them."""

from __future__ import annotations

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis import limits
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.pipelines import Operator, Pipeline
from ray_tracing_hooks._insight.analysis.wording import count, duration, percent

KIND = "bottleneck-operator"

_COST = 0.1


def find(analysis: Analysis) -> list[Finding]:
    """Operators that are as busy as they may be, while a higher limit could make the execution shorter."""
    wall = analysis.path.wall
    found = []
    for pipeline in analysis.pipelines.executions:
        operator = limits.saturated(pipeline)
        if operator is None or not wall:
            continue
        cost = (limits.least_time(operator) - limits.next_limit(pipeline, operator)) / wall
        if cost >= _COST:
            found.append(_finding(pipeline, operator, min(1.0, cost), analysis))
    return found


def _finding(pipeline: Pipeline, operator: Operator, cost: float, analysis: Analysis) -> Finding:
    slots, busy = operator.slots or 1, limits.slot_share(operator)
    by = count(operator.actors, "actor") if operator.has_actors else "its concurrency"
    text = (
        f"operator {quoted(operator.name)} limits {quoted(pipeline.name)} ({pipeline.consumer or 'an execution'}): it "
        f"may run {count(slots, 'task')} at a time ({by}) and was busy {percent(busy)} of the "
        f"{duration(operator.worked)} it worked"
    )
    others = []
    if operator.longest_queue:
        others.append(f"up to {count(operator.longest_queue, 'block')} waited for it")
    used = limits.processor_share(pipeline)
    if used is not None and used < busy:
        others.append(f"the execution held only {percent(used)} of its {pipeline.limits['CPU']:g} CPUs")
    if others:
        text += f", while {' and '.join(others)}"
    slowest = sorted(operator.executions, key=lambda row: -analysis.self_time[row])
    figures: dict[str, float | int | str] = {
        "operator": operator.name,
        "dataset": pipeline.name,
        "slots": slots,
        "actors": operator.actors,
        "busy_share": busy,
        "tasks": operator.tasks,
        "busy_ns": operator.busy,
        "longest_queue": operator.longest_queue,
        "processor_share": -1.0 if used is None else used,
    }
    quotes = {names.RAY_DATA_CONSUMER: pipeline.consumer}
    title = f"{quoted(operator.name)} limits its dataset"
    return Finding(KIND, text, _advice(operator), cost, [operator.row, *slowest], figures, quotes=quotes, title=title)


def _advice(operator: Operator) -> str:
    if operator.needs.get("GPU"):
        return (
            "give it more GPUs (concurrency), let several of its actors share one (num_gpus below 1), or make its "
            "function faster, for example with larger batches"
        )
    required = operator.needs.get("CPU")
    each = f" (each {'actor' if operator.has_actors else 'task'} requires {required:g} CPU)" if required else ""
    return f"raise its concurrency{each}, or make its function faster, for example with larger batches"
