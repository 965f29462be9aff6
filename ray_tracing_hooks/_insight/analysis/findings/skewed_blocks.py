"""Blocks of a dataset that are far larger than the others of their operator, so that their tasks take far longer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted, seems
from ray_tracing_hooks._insight.analysis.wording import count, duration
from ray_tracing_hooks._insight.model.calls import Calls

KIND = "skewed-blocks"

_TIMES = 2.0
_SAMPLE = 30
"""How many of the usual tasks are looked at: their rows are read from the file."""


def finding(analysis: Analysis, rows: Sequence[int], slow: Sequence[int], usual: int, excess: int) -> Finding | None:
    """The finding for stragglers among the tasks of an operator; None if their blocks are not larger.

    ``rows`` are all of its tasks and ``slow`` the stragglers, the longest first; ``usual`` is the median of their
    times, and the run waited ``excess`` longer because of the stragglers.
    """
    operator = analysis.pipelines.of_task.get(slow[0])
    if operator is None:
        return None
    others = sorted(set(rows) - set(slow))
    step = max(1, len(others) // _SAMPLE)
    largest, typical = _rows_of(analysis.calls, slow[:_SAMPLE]), _rows_of(analysis.calls, others[::step])
    if not largest or not typical or max(largest) < _TIMES * max(1.0, median(typical)):
        return None
    longest, most, many = analysis.self_time[slow[0]], max(largest), median(typical)
    several = len(slow) > 1
    rows_told = f"{most:,.0f} rows, {most / max(1.0, many):.1f} times the median of {many:,.0f}"
    up_to = "up to " if several else ""
    text = (
        f"{count(len(slow), 'block')} of operator {quoted(operator.name)} had {up_to}{rows_told}, and took "
        f"{up_to}{duration(longest)}, {longest / max(usual, 1):.1f} times the median of "
        f"{duration(usual)} ({count(len(rows), 'task')}); the run waited {duration(excess)} longer because of "
        f"{'them' if several else 'it'}"
    )
    advice = (
        "make blocks of equal size: repartition before this operator, or use more and smaller blocks; after a groupby "
        "or join, one key may have most of the rows: group by a finer key first, or treat it by itself"
    )
    figures: dict[str, float | int | str] = {
        "operator": operator.name,
        "function": analysis.calls.function_of(slow[0]),
        "slow_calls": len(slow),
        "calls": len(rows),
        "longest_ns": longest,
        "median_ns": usual,
        "excess_ns": excess,
        "most_rows": most,
        "median_rows": many,
    }
    quotes = {names.RAY_DATA_ROWS: rows_told}
    is_assumed = analysis.is_assumed(rows)
    text = seems(text, is_assumed=is_assumed)
    title = f"Blocks of {quoted(operator.name)} are skewed"
    return Finding(
        KIND, text, advice, excess / analysis.path.wall, slow, figures, is_assumed, quotes=quotes, title=title
    )


def _rows_of(calls: Calls, tasks: Iterable[int]) -> list[float]:
    """The rows of each task: of its input if that is known, or of its output, whichever is more."""
    return [max(found) for row in tasks if (found := [*_input(calls, row), *_output(calls, row)])]


def _output(calls: Calls, row: int) -> list[float]:
    rows = calls.table.span(row).attributes.get(names.RAY_DATA_ROWS)
    return [float(rows)] if isinstance(rows, int) else []


def _input(calls: Calls, row: int) -> list[float]:
    """The rows of the blocks that a task got; a task that made several blocks is taken to have made equal ones."""
    submission = calls.submission[calls.call_of[row]]
    total, is_known = 0.0, False
    for _, call in calls.made_by(submission) if submission >= 0 else ():
        made_by = calls.execution[call] if call >= 0 else -1
        if made_by < 0:
            continue
        told = calls.table.span(made_by).attributes
        rows, blocks = told.get(names.RAY_DATA_ROWS), told.get(names.RAY_DATA_BLOCKS)
        if isinstance(rows, int) and isinstance(blocks, int) and blocks:
            total, is_known = total + rows / blocks, True
    return [total] if is_known else []
