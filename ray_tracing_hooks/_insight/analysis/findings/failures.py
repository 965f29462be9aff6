"""What failed, was killed, or was tried again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import RETRYING
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.wording import count, duration, shortened
from ray_tracing_hooks._insight.model.calls import EXECUTION
from ray_tracing_hooks._insight.model.errors import error_text, error_type
from ray_tracing_hooks._insight.model.merge import as_numpy
from ray_tracing_hooks._insight.model.table import LOST

KILLED, ERRORS = "killed-workers", "errors"
KINDS = (KILLED, ERRORS)

_READ = 1000
"""The type of an error may stand in an event, which is read from the file: of so many at most."""


def find(analysis: Analysis) -> list[Finding]:
    """Executions that were cut off with their worker, and those that failed, by the type of their error."""
    table, calls = analysis.table, analysis.calls
    failed = np.nonzero((as_numpy(calls.role) == EXECUTION) & table.is_failed())[0].tolist()
    killed = [row for row in failed if table.state[row] == LOST]
    raised = [row for row in failed if table.state[row] != LOST]
    return [*_killed(analysis, killed), *_errors(analysis, raised)]


def _killed(analysis: Analysis, rows: list[int]) -> Iterable[Finding]:
    if not rows:
        return
    workers = {analysis.calls.place(row).worker for row in rows}
    (again, wasted), late = _again(analysis, rows), _late(analysis, rows)
    why = Counter(error_text(analysis.table.span(row)) for row in rows[:_READ])
    (reason, _), *others = why.most_common()
    more = f" and {count(len(others), 'other reason')}" if others else ""
    text = (
        f"{count(len(workers), 'worker')} died while running {_functions(analysis, rows)} "
        f"({shortened(reason, 160)}{more}); {_tried(again, len(rows), wasted, late)}"
    )
    advice = "look for the reason in the worker's log; if it was out of memory, let fewer such tasks run on a node"
    yield Finding(KILLED, text, advice, _share(analysis, wasted + late), rows, _figures(rows, again, wasted, late))


def _errors(analysis: Analysis, rows: list[int]) -> Iterable[Finding]:
    if not rows:
        return
    table = analysis.table
    types: Counter[str] = Counter()
    for row in rows[:_READ]:
        given = table.attribute(row, names.ERROR_TYPE)
        types[str(given or error_type(table.span(row)) or "without a type")] += 1
    (again, wasted), late = _again(analysis, rows), _late(analysis, rows)
    several = ", ".join(
        f"{quoted(name)} x{number:,}" if number > 1 else quoted(name) for name, number in types.most_common(3)
    )
    more = f" and {count(len(types) - 3, 'other type')}" if len(types) > 3 else ""
    text = (
        f"{count(len(rows), 'execution')} of {_functions(analysis, rows)} failed: {several}{more}; "
        f"{_tried(again, len(rows), wasted, late)}"
    )
    yield Finding(ERRORS, text, "", _share(analysis, wasted + late), rows, _figures(rows, again, wasted, late))


def _again(analysis: Analysis, rows: list[int]) -> tuple[int, int]:
    """How many of these executions were followed by another attempt, and how long they had run in vain."""
    calls = analysis.calls
    again = [row for row in rows if calls.execution[calls.call_of[row]] != row]
    return len(again), sum(map(analysis.table.duration, again))


def _late(analysis: Analysis, rows: list[int]) -> int:
    """How long the run waited between these executions and the next attempts."""
    among = set(rows)
    return sum(step.end - step.start for step in analysis.split.steps if step.kind == RETRYING and step.source in among)


def _tried(again: int, number: int, wasted: int, late: int) -> str:
    if not again:
        return "not tried again" if number == 1 else "none was tried again"
    of_all = "" if again == number else f"{again:,} of them "
    waited = f"; the run waited {duration(late)} for the next attempts to begin" if late else ""
    return f"{of_all}tried again, after {duration(wasted)} of work in vain{waited}"


def _functions(analysis: Analysis, rows: list[int]) -> str:
    by_name = Counter(analysis.calls.function_of(row) for row in rows)
    (name, _), *others = by_name.most_common()
    return quoted(name) + (f" and {count(len(others), 'other function')}" if others else "")


def _share(analysis: Analysis, wasted: int) -> float:
    return min(1.0, wasted / analysis.path.wall) if analysis.path.wall else 0.0


def _figures(rows: list[int], again: int, wasted: int, late: int) -> dict[str, float | int | str]:
    return {"executions": len(rows), "tried_again": again, "wasted_ns": wasted, "retry_delay_ns": late}
