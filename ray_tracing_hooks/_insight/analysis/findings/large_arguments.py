"""Calls that take long to submit: each one serializes large values again, or its function captures large ones."""

from __future__ import annotations

from collections.abc import Iterator

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import DELIVERY, SCHEDULING, STARTING
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.functions import Function, in_both, percentile
from ray_tracing_hooks._insight.analysis.loading import Loading, loading
from ray_tracing_hooks._insight.analysis.wording import count, duration, size
from ray_tracing_hooks._insight.model.call_names import is_creation
from ray_tracing_hooks._insight.model.calls import SUBMISSION

KIND = "large-arguments"
CLOSURE = "large-closure"

_CALLS = 5
_LONG = 5_000_000
_COST = 0.03
_LARGE = 1 << 20
"""The size of a serialized function from which it captures more than code."""


def find(analysis: Analysis) -> list[Finding]:
    """Functions whose every ``.remote()`` takes milliseconds, and functions that are large when Ray serializes them.

    It measures the time of ``.remote()`` on the critical path, and the time that the run waited meanwhile for calls to
    be scheduled and for workers to start: that takes longer because of these submissions. While other calls run that
    the run waits for, a long submission costs nothing. Workers that load a large function belong to its cost too, as
    far as Ray's task states say when they did. From 3 % of the run on that is worth a change.

    - Large arguments: half of at least five submissions take 5 ms or longer, fifty times what Ray needs, and most of
      them sent no large function. A driver that has no processor looks the same, so it only suggests large arguments.
    - Large functions: the serialized function has 1 MiB or more, as the submission says (``ray.function_size``).
      Without that attribute nothing is said: the first ``.remote()`` of a process is slow by itself, since Ray imports
      its own modules then.
    """
    return [
        _arguments(analysis, function, cost, rows) if kind == KIND else _closure(analysis, function, cost, rows)
        for kind, function, cost, rows in _costly(analysis)
    ]


def starting_meanwhile(analysis: Analysis) -> int:
    """How much of the time in which the run waited for workers to start passed during such submissions."""
    rows = [row for *_, rows in _costly(analysis) for row in rows]
    return _meanwhile(analysis, _times(analysis, rows), STARTING)


def _costly(analysis: Analysis) -> Iterator[tuple[str, Function, int, list[int]]]:
    """The kind, the function, the cost, and the rows of the submissions, the longest first."""
    wall = analysis.path.wall
    exported, loaded = _exported(analysis), loading(analysis)
    for function in analysis.functions if wall else ():
        if is_creation(function.name):
            continue
        large = exported.get(function.name, [])
        is_slow = (
            len(function.submitting) >= _CALLS
            and percentile(function.submitting, 0.5) >= _LONG
            and 2 * len(large) < len(function.submitting)
        )
        rows = _submissions(analysis, function) if is_slow else large
        times = _starts(analysis, function) if is_slow else _loads(analysis, loaded.get(function.name))
        cost = _cost(analysis, rows, times)
        if rows and cost / wall >= _COST:
            yield KIND if is_slow else CLOSURE, function, cost, rows


def large_functions(analysis: Analysis, *kinds: str) -> set[str]:
    """The functions that are a finding of one of these kinds."""
    return {function.name for kind, function, *_ in _costly(analysis) if kind in kinds}


def _cost(analysis: Analysis, rows: list[int], times: list[tuple[int, int]]) -> int:
    """``times`` is when calls waited for what is large, besides its submission."""
    submitting = sum(map(analysis.submitting_on_path.__getitem__, rows))
    return submitting + _meanwhile(analysis, [*_times(analysis, rows), *times], SCHEDULING, DELIVERY, STARTING)


def _loads(analysis: Analysis, loaded: Loading | None) -> list[tuple[int, int]]:
    """When workers loaded a function."""
    table = analysis.table
    return [(table.start[row] - took, table.start[row]) for row, took in loaded.rows.items()] if loaded else []


def _starts(analysis: Analysis, function: Function) -> list[tuple[int, int]]:
    """When the run waited for Ray to start calls of a function, without those that have task states."""
    calls = set(function.executions)
    steps = (step for step in analysis.path.steps if step.kind in (SCHEDULING, DELIVERY) and step.row in calls)
    return [(step.start, step.end) for step in steps if analysis.queued(step.row) is None]


def _times(analysis: Analysis, rows: list[int]) -> list[tuple[int, int]]:
    return [(analysis.table.start[row], analysis.table.end_or_now(row)) for row in rows]


def _meanwhile(analysis: Analysis, times: list[tuple[int, int]], *kinds: str) -> int:
    """The time on the critical path of these kinds that passed in these intervals."""
    return in_both(times, ((step.start, step.end) for step in analysis.path.steps if step.kind in kinds))


def _exported(analysis: Analysis) -> dict[str, list[int]]:
    """The submissions with which Ray serialized large functions, the longest first, by function."""
    calls, table = analysis.calls, analysis.table
    sizes = [site.get(names.RAY_FUNCTION_SIZE) for site in table.sites]
    is_large = [isinstance(each, int) and each >= _LARGE for each in sizes]
    found: dict[str, list[int]] = {}
    for row, site in enumerate(table.site) if any(is_large) else ():
        if is_large[site] and calls.role[row] == SUBMISSION:
            found.setdefault(calls.function_of(row), []).append(row)
    return {name: sorted(rows, key=lambda row: -table.duration(row)) for name, rows in found.items()}


def _submissions(analysis: Analysis, function: Function) -> list[int]:
    """The rows of the submissions of a function that was executed, the longest first."""
    calls, table = analysis.calls, analysis.table
    rows = [row for each in function.executions if (row := calls.submission[calls.call_of[each]]) >= 0]
    return sorted(dict.fromkeys(rows), key=lambda row: -table.duration(row))


def _arguments(analysis: Analysis, function: Function, cost: int, rows: list[int]) -> Finding:
    usual, total = percentile(function.submitting, 0.5), sum(function.submitting)
    text = (
        f"each {quoted(function.name)}.remote() takes {duration(usual)} (median of "
        f"{count(len(function.submitting), 'call')}, {duration(total)} in all), which suggests that it serializes "
        "large arguments"
    )
    advice = (
        "if several calls get the same value, store it once with ray.put, and pass the reference; if each has its own, "
        "let the calls load them"
    )
    figures: dict[str, float | int | str] = {
        "function": function.name,
        "calls": len(function.submitting),
        "median_ns": usual,
        "total_ns": total,
        "on_path_ns": cost,
    }
    title = f"{quoted(function.name)} gets large arguments"
    return Finding(KIND, text, advice, min(1.0, cost / analysis.path.wall), rows, figures, title=title)


def _closure(analysis: Analysis, function: Function, cost: int, rows: list[int]) -> Finding:
    table = analysis.table
    total = sum(map(table.duration, rows))
    largest = max(each for row in rows if isinstance(each := table.attribute(row, names.RAY_FUNCTION_SIZE), int))
    several = len(rows) > 1
    text = (
        f"{quoted(function.name)} has {'up to ' if several else ''}{size(largest)} when Ray serializes it with all "
        f"that it refers to{f', {len(rows):,} times' if several else ''}: these .remote() took {duration(total)}"
    )
    advice = "store large values with ray.put and pass the references as arguments, instead of capturing them"
    if several:
        advice += "; define the function once: Ray serializes each definition"
    figures: dict[str, float | int | str] = {
        "function": function.name,
        "times": len(rows),
        "largest_bytes": largest,
        "total_ns": total,
        "on_path_ns": cost,
    }
    title = f"{quoted(function.name)} captures large values"
    return Finding(CLOSURE, text, advice, min(1.0, cost / analysis.path.wall), rows, figures, title=title)
