"""Memory that holds an operator of a dataset back, while processors are idle."""

from __future__ import annotations

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis import limits
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.pipelines import Cause, Operator, Pipeline
from ray_tracing_hooks._insight.analysis.wording import duration, percent, size

KIND = "backpressure"

_COST = 0.1
_STORE = "object store memory"


def find(analysis: Analysis) -> list[Finding]:
    """Executions that memory limits, and no operator's own limit and not their consumer."""
    wall = analysis.path.wall
    found = []
    for pipeline in analysis.pipelines.executions:
        limit = limits.limit_of(pipeline)
        if not wall or limit is None or limit.kind != limits.MEMORY or limit.operator is None:
            continue
        idle = 1 - (limits.processor_share(pipeline) or 0.0)
        cost = limits.held_by_memory(limit.operator) * idle / wall
        if cost >= _COST:
            found.append(_finding(pipeline, limit.operator, min(1.0, cost)))
    return found


def _finding(pipeline: Pipeline, operator: Operator, cost: float) -> Finding:
    held = limits.held_by_memory(operator)
    causes = [cause for cause in operator.held_back if cause.kind == "submission" and "memory" in cause.resource]
    main = max(causes, key=operator.held_back.__getitem__)
    text = (
        f"operator {quoted(operator.name)} of {quoted(pipeline.name)} could not submit tasks for {duration(held)} of "
        f"{duration(pipeline.duration)}, since {_lacking(main, pipeline)}"
    )
    used = limits.processor_share(pipeline)
    if used is not None:
        text += f"; meanwhile the execution held only {percent(used)} of its {pipeline.limits['CPU']:g} CPUs"
    blocks = operator.bytes / operator.blocks if operator.bytes and operator.blocks else 0
    if blocks:
        text += f". Its blocks have {size(blocks)} on average"
    figures: dict[str, float | int | str] = {
        "operator": operator.name,
        "dataset": pipeline.name,
        "policy": main.policy,
        "resource": main.resource,
        "held_back_ns": held,
        "bytes_per_block": int(blocks),
        "object_store_bytes": int(pipeline.limits.get("object_store_memory", 0)),
        "processor_share": -1.0 if used is None else used,
    }
    quotes = {
        names.RAY_DATA_BACKPRESSURE_BY: main.policy,
        names.RAY_DATA_BACKPRESSURE_POLICY: main.policy,
        names.RAY_DATA_LIMITS: _allowed(main, pipeline),
        names.RAY_DATA_BYTES: size(blocks) if blocks else "",
    }
    title = f"Memory holds {quoted(operator.name)} back"
    return Finding(KIND, text, _advice(main), cost, [operator.row, pipeline.row], figures, quotes=quotes, title=title)


def _lacking(cause: Cause, pipeline: Pipeline) -> str:
    by = f" (policy {cause.policy})" if cause.policy else ""
    allowed = _allowed(cause, pipeline)
    of = f" of the {allowed} that it may use" if allowed else ""
    return f"{_STORE if _STORE in cause.resource else 'heap memory'}{of} was used up{by}"


def _allowed(cause: Cause, pipeline: Pipeline) -> str:
    limit = pipeline.limits.get("object_store_memory" if _STORE in cause.resource else "memory")
    return size(limit) if limit else ""


def _advice(cause: Cause) -> str:
    if _STORE in cause.resource:
        return (
            "make blocks smaller (override_num_blocks), drop columns early, make the operators behind it faster, or "
            "allow more memory (object_store_memory of ray.init)"
        )
    return "request less memory for each task (memory), or use fewer tasks at a time (concurrency)"
