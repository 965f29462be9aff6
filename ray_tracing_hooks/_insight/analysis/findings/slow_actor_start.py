"""Actors of an operator whose constructors take long, while the run waits for them."""

from __future__ import annotations

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import RUN
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.functions import percentile
from ray_tracing_hooks._insight.analysis.pipelines import Operator, Pipeline
from ray_tracing_hooks._insight.analysis.wording import count, duration

KIND = "slow-actor-start"

_COST = 0.1
_LEAST = 1_000_000_000


def find(analysis: Analysis) -> list[Finding]:
    """Operators for whose actors' constructors the run waited at least a second and a tenth of its time."""
    wall = analysis.path.wall
    if not analysis.pipelines.executions or not wall:
        return []
    on_path: dict[int, int] = {}
    for step in analysis.path.steps:
        if step.kind == RUN:
            on_path[step.row] = on_path.get(step.row, 0) + step.end - step.start
    found = []
    for pipeline in analysis.pipelines.executions:
        for operator in pipeline.operators:
            waited = sum(on_path.get(row, 0) for row in operator.creations)
            if waited >= _LEAST and waited / wall >= _COST:
                found.append(_finding(analysis, pipeline, operator, waited))
    return found


def _finding(analysis: Analysis, pipeline: Pipeline, operator: Operator, waited: int) -> Finding:
    rows = sorted(operator.creations, key=lambda row: -analysis.table.duration(row))
    times = sorted(map(analysis.table.duration, rows))
    usual = percentile(times, 0.5)
    each = f"{count(len(rows), 'actor')} took {duration(usual)} {'each ' if len(rows) > 1 else ''}to construct"
    text = (
        f"the run waited {duration(waited)} for the actors of operator {quoted(operator.name)} of "
        f"{quoted(pipeline.name)} to start: {each}{' (median)' if len(rows) > 1 else ''}, and their "
        f"{count(operator.tasks, 'task')} took {duration(operator.busy)} in all"
    )
    advice = (
        "load less in __init__, or load it faster (from a local disk, or once with ray.put for all actors), and let "
        "one execution use the actors for all of the data instead of starting them for each"
    )
    figures: dict[str, float | int | str] = {
        "operator": operator.name,
        "dataset": pipeline.name,
        "actors": len(rows),
        "median_ns": usual,
        "waited_ns": waited,
        "tasks": operator.tasks,
        "busy_ns": operator.busy,
    }
    title = f"Actors of {quoted(operator.name)} take long to construct"
    return Finding(KIND, text, advice, waited / analysis.path.wall, rows, figures, title=title)
