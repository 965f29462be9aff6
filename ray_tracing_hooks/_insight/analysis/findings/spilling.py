"""Datasets that do not fit into the object store, so that the cluster writes blocks to disk and reads them again."""

from __future__ import annotations

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.pipelines import Pipeline
from ray_tracing_hooks._insight.analysis.wording import count, size

KIND = "spilling"

_LEAST = 64 << 20
_SHARE = 0.1
"""Of what the operators handed on: less is not worth a change."""


def find(analysis: Analysis) -> list[Finding]:
    """Executions during which the cluster spilled at least a tenth of what their operators handed on.

    How much time this took is not known, so the finding claims none.
    """
    taken: list[Pipeline] = []
    for each in sorted(analysis.pipelines.executions, key=lambda each: -each.spilled):
        # What is spilled is counted for the whole cluster: at one time, it is the same for each execution.
        if each.spilled and not any(each.start < other.end and other.start < each.end for other in taken):
            taken.append(each)
    spilled = sum(each.spilled for each in taken)
    made = sum(operator.bytes or 0 for each in taken for operator in each.operators)
    return [_finding(taken, spilled, made)] if spilled >= max(_LEAST, _SHARE * made) else []


def _finding(taken: list[Pipeline], spilled: int, made: int) -> Finding:
    restored = sum(each.restored for each in taken)
    most = taken[0]
    during = f"{quoted(most.name)} ({most.consumer or 'an execution'})"
    if len(taken) > 1:
        during += f" and {count(len(taken) - 1, 'other execution')}"
    limit = most.limits.get("object_store_memory")
    allowed = f", which may use {size(limit)} of object store memory" if limit else ""
    text = (
        f"the cluster wrote {size(spilled)} of objects to disk{f' and read {size(restored)} back' if restored else ''} "
        f"during {during}{allowed}; their operators handed on {size(made)}"
    )
    advice = (
        "keep less at a time: iterate over the dataset or write it instead of materialize, drop columns early, make "
        "blocks smaller, or enlarge the object store (object_store_memory of ray.init)"
    )
    figures: dict[str, float | int | str] = {
        "dataset": most.name,
        "executions": len(taken),
        "spilled_bytes": spilled,
        "restored_bytes": restored,
        "handed_on_bytes": made,
    }
    quotes = {
        names.RAY_DATA_CONSUMER: most.consumer,
        names.RAY_DATA_SPILLED: size(spilled),
        names.RAY_DATA_RESTORED: size(restored),
        names.RAY_DATA_LIMITS: size(limit) if limit else "",
        names.RAY_DATA_BYTES: size(made),
    }
    title = f"Objects of {quoted(most.name)} are spilled"
    return Finding(KIND, text, advice, 0.0, [each.row for each in taken], figures, quotes=quotes, title=title)
