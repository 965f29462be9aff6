"""Calls whose arguments, code or results are large, and calls that are too small."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import (
    BY_WORKER,
    DATASET,
    DELIVERY,
    GET_TIME,
    SCHEDULING,
    STARTING,
)
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, is_costly, quoted
from ray_tracing_hooks._insight.analysis.functions import Function, percentile
from ray_tracing_hooks._insight.analysis.intervals import in_both
from ray_tracing_hooks._insight.analysis.wording import count, duration, size
from ray_tracing_hooks._insight.model.calls import SUBMISSION, is_put
from ray_tracing_hooks._insight.model.span import is_creation

LARGE_ARGUMENTS = "large-arguments"
LARGE_CLOSURE = "large-closure"

_LARGE_CALLS = 5
_LARGE_LONG = 5_000_000
_LARGE = 1 << 20
"""The size of a serialized function from which it captures more than code."""


def large_arguments(analysis: Analysis) -> list[Finding]:
    """Calls that take long to submit, because they serialize large values, or their function captures large ones.

    Measures: .remote() on the critical path, waits for scheduling and workers meanwhile, and the time to load the
    function.
    Threshold: 3 % of the run. Half of at least 5 submissions take 5 ms, 50 times what Ray needs; or a function has 1
    MiB.
    Looks the same: a driver that gets no processor time. So the text only suggests large arguments.
    Advice: store values once with ray.put, or let the calls load them.
    Needs: submissions. For functions, their size (``ray.function_size``), since the first call of a process is always
    slow.
    """
    return [
        _arguments(analysis, function, cost, rows)
        if kind == LARGE_ARGUMENTS
        else _closure(analysis, function, cost, rows)
        for kind, function, cost, rows in _large_costly(analysis)
    ]


def starting_by_arguments(analysis: Analysis) -> int:
    """How much of the time in which the run waited for workers to start passed during such submissions."""
    rows = [row for *_, rows in _large_costly(analysis) for row in rows]
    return _meanwhile(analysis, list(map(analysis.table.time, rows)), STARTING)


def _large_costly(analysis: Analysis) -> Iterator[tuple[str, Function, int, list[int]]]:
    """The kind, the function, the cost, and the rows of the submissions, the longest first."""
    exported, loaded = _exported(analysis), loading(analysis)
    for function in analysis.functions:
        if is_creation(function.name):
            continue
        large = exported.get(function.name, [])
        is_slow = (
            len(function.submitting) >= _LARGE_CALLS
            and percentile(function.submitting, 0.5) >= _LARGE_LONG
            and 2 * len(large) < len(function.submitting)
        )
        rows = _submissions(analysis, function) if is_slow else large
        times = _starts(analysis, function) if is_slow else _loads(analysis, loaded.get(function.name))
        cost = _cost(analysis, rows, times)
        if rows and is_costly(analysis, cost, 0.03):
            yield LARGE_ARGUMENTS if is_slow else LARGE_CLOSURE, function, cost, rows


def large_functions(analysis: Analysis, *kinds: str) -> set[str]:
    """The functions that are a finding of one of these kinds."""
    return {function.name for kind, function, *_ in _large_costly(analysis) if kind in kinds}


def _cost(analysis: Analysis, rows: list[int], times: list[tuple[int, int]]) -> int:
    """``times`` is when calls waited for what is large, besides its submission."""
    submitting = sum(map(analysis.submitting_on_path.__getitem__, rows))
    return submitting + _meanwhile(analysis, [*map(analysis.table.time, rows), *times], SCHEDULING, DELIVERY, STARTING)


def _loads(analysis: Analysis, loaded: Loading | None) -> list[tuple[int, int]]:
    """When workers loaded a function."""
    table = analysis.table
    return [(table.start[row] - took, table.start[row]) for row, took in loaded.rows.items()] if loaded else []


def _starts(analysis: Analysis, function: Function) -> list[tuple[int, int]]:
    """When the run waited for Ray to start calls of a function, without those that have task states."""
    calls = set(function.executions)
    steps = (step for step in analysis.path.steps if step.kind in (SCHEDULING, DELIVERY) and step.row in calls)
    return [step.time for step in steps if analysis.queued(step.row) is None]


def _meanwhile(analysis: Analysis, times: list[tuple[int, int]], *kinds: str) -> int:
    """The time on the critical path of these kinds that passed in these intervals."""
    return in_both(times, (step.time for step in analysis.path.steps if step.kind in kinds))


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
    rows = [row for each in function.executions if (row := calls.made(each)) >= 0]
    return sorted(dict.fromkeys(rows), key=lambda row: -table.duration(row))


def _arguments(analysis: Analysis, function: Function, cost: int, rows: list[int]) -> Finding:
    usual, total = percentile(function.submitting, 0.5), sum(function.submitting)
    text = (
        f"each {quoted(function.name)}.remote() takes {duration(usual)} (median of "
        f"{count(len(function.submitting), 'call')}, {duration(total)} in all), which suggests that it serializes "
        "large arguments"
    )
    advice = (
        "if several calls get the same value, store it once with ray.put, and pass the reference; if each call has its "
        "own, let the calls load their values"
    )
    about = {"function": function.name}
    title = f"{quoted(function.name)} gets large arguments"
    return Finding(LARGE_ARGUMENTS, text, advice, cost / analysis.path.wall, rows, about, title=title)


def _closure(analysis: Analysis, function: Function, cost: int, rows: list[int]) -> Finding:
    table = analysis.table
    total = sum(map(table.duration, rows))
    largest = max(each for row in rows if isinstance(each := table.attribute(row, names.RAY_FUNCTION_SIZE), int))
    several = len(rows) > 1
    text = (
        f"{quoted(function.name)} has {'up to ' if several else ''}{size(largest)} when Ray serializes it with "
        f"everything that it refers to{f', {len(rows):,} times' if several else ''}: these .remote() calls took "
        f"{duration(total)}"
    )
    advice = "store large values with ray.put and pass the references as arguments, instead of capturing them"
    if several:
        advice += "; define the function once: Ray serializes each definition"
    about = {"function": function.name}
    title = f"{quoted(function.name)} captures large values"
    return Finding(LARGE_CLOSURE, text, advice, cost / analysis.path.wall, rows, about, title=title)


_TINY_CALLS = 100
_TINY = 1_000_000
_TINY_BLOCK = 10_000_000
"""A task for a block of a dataset: Ray Data takes about as long for each, to plan it and to hand on its block."""


def tiny_tasks(analysis: Analysis) -> list[Finding]:
    """Functions whose calls are so small that the overhead of each call dominates.

    Measures: their submissions, code and results on the critical path, without the first wait for a worker.
    Threshold: a tenth of the run, and 100 calls with a median below 1 ms (tasks of datasets: 10 ms). Ray needs as long
    for each.
    Looks the same: calls that return early, of a function that does more in other calls.
    Advice: batch calls. For operators of datasets, use fewer and larger blocks.
    Needs: executions. Without waits, all of the time of a call that makes calls counts.
    """
    return [_tiny_finding(analysis, *tiny) for tiny in _tiny_costly(analysis)]


def tiny_functions(analysis: Analysis) -> set[str]:
    """The functions that are a finding because they are tiny."""
    return {function.name for function, *_ in _tiny_costly(analysis)}


def _tiny_costly(analysis: Analysis) -> Iterator[tuple[Function, int, int]]:
    """The function, the median time of its calls, and their cost."""
    for function in analysis.functions:
        # Where waiting was not recorded, the code of a call may have run while calls of its own did.
        usual = percentile(function.durations if function.is_assumed else function.self_times, 0.5)
        is_of_dataset = function.name in analysis.pipelines.operator_names
        most = _TINY_BLOCK if is_of_dataset else _TINY
        if function.calls < _TINY_CALLS or not function.executions or usual >= most:
            continue
        took = analysis.table.duration if function.is_assumed else analysis.self_time.__getitem__
        tiny = [row for row in function.executions if took(row) < most]
        submitting = analysis.path.submitting[function.name] * len(tiny) // len(function.executions)
        sending = sum(analysis.path.executions[row] for row in tiny)
        if is_of_dataset:
            blocks = set(tiny)
            steps = (step for step in analysis.path.steps if step.kind == DATASET and step.source in blocks)
            sending += sum(step.took for step in steps)
        # The first call waits for workers to start, which has nothing to do with its size.
        cost = max(
            0, min(analysis.path.wall, submitting + sending) - analysis.path.first_scheduling.get(function.name, 0)
        )
        if is_costly(analysis, cost):
            yield function, usual, cost


def _tiny_finding(analysis: Analysis, function: Function, usual: int, cost: int) -> Finding:
    text = (
        f"{count(function.calls, 'call')} of {quoted(function.name)} run for {duration(usual)} each (median), and with "
        f"their submission and results they take {duration(cost)} of the run"
    )
    advice = "give each call more work: combine several calls into one"
    if function.name in analysis.pipelines.operator_names:
        advice = "use fewer and larger blocks (override_num_blocks or repartition): each block is a task"
    about = {"function": function.name}
    title = f"Calls of {quoted(function.name)} are tiny"
    return Finding("tiny-tasks", text, advice, cost / analysis.path.wall, function.executions, about, title=title)


@dataclass
class Loading:
    """The calls of one function for which the run waited while workers loaded code and arguments. In nanoseconds."""

    rows: dict[int, int] = field(default_factory=dict)
    """How long each execution loaded."""
    waited: int = 0
    """How long of that the run waited."""


def loading(analysis: Analysis) -> dict[str, Loading]:
    """The same by function. Only Ray's task states say when a worker had a call, so without them it is empty."""
    found: dict[str, Loading] = {}
    for step in analysis.path.steps if any(analysis.states.ran.values()) else ():
        if step.kind not in (SCHEDULING, DELIVERY):
            continue
        begin = analysis.loading_since(step.row)
        start = analysis.table.start[step.row]
        waited = min(step.end, start) - max(step.start, begin) if begin else 0
        if waited > 0:
            its = found.setdefault(analysis.calls.function_of(step.row), Loading())
            its.rows[step.row] = start - begin
            its.waited += waited
    return found


def slow_loading(analysis: Analysis) -> list[Finding]:
    """Calls whose workers load code, or unpickle arguments, for long before the calls start.

    Measures: the time on the critical path from when a worker had a call until the call's code began.
    Threshold: 1 s and a tenth of the run, by function.
    Looks the same: functions that are large themselves, or tiny. Their findings have this time.
    Advice: reuse workers, or pass smaller arguments if later calls in a process load for as long.
    Needs: Ray's task states, with the time at which the worker had the call.
    """
    large = large_functions(analysis, LARGE_CLOSURE)
    return [
        _loading_finding(analysis, function, found)
        for function, found in loading(analysis).items()
        if is_costly(analysis, found.waited, seconds=1) and function not in large | tiny_functions(analysis)
    ]


def _loading_finding(analysis: Analysis, function: str, found: Loading) -> Finding:
    rows = sorted(found.rows, key=lambda row: -found.rows[row])
    times = sorted(found.rows.values())
    usual = percentile(times, 0.5)
    text = (
        f"the run waited {duration(found.waited)} while workers loaded the code and the arguments of "
        f"{count(len(rows), 'call')} of {quoted(function)}"
    )
    if len(rows) > 1:
        text += f": {duration(usual)} each (median), {duration(times[-1])} at most"
    advice = (
        "reuse workers and actors, or create actors before they are needed: the first call in a process imports what "
        "its code and its arguments need; if later calls take as long, pass smaller arguments, or arrays of NumPy or "
        "Arrow, or keep large ones in an actor"
    )
    about = {"function": function}
    title = f"Workers load {quoted(function)} slowly"
    return Finding("slow-loading", text, advice, found.waited / analysis.path.wall, rows, about, title=title)


def slow_results(analysis: Analysis) -> Iterator[Finding]:
    """Functions whose results the run waits for although their code has ended.

    Measures: the critical path from the end of their code, or the start of the wait, until the caller had the results.
    Threshold: 0.5 s and a tenth of the run.
    Looks the same: large arguments that are freed, a caller that gets no processor time, or objects restored from disk.
    Tiny calls are another finding.
    Advice: return or pass less, or arrays. Pass results on without a ray.get. Keep fewer objects at a time.
    Needs: waits. Ray's task states add the time that a worker needs for a call whose code has ended.
    """
    calls, table, path = analysis.calls, analysis.table, analysis.path
    waited: dict[str, Counter[int]] = {}
    stored: Counter[str] = Counter()
    for step in path.steps:
        if step.kind == GET_TIME and step.row >= 0:
            made = {call for each, call in calls.made_by(step.row) if call >= 0 and not is_put(each)}
            functions = {calls.functions[calls.function[call]] for call in made}
            if len(functions) == 1:
                waited.setdefault(functions.pop(), Counter())[step.row] += step.took
        elif step.kind == SCHEDULING and step.edge == BY_WORKER:
            took = min(step.end, analysis.finished(step.source)) - step.start
            if took > 0:
                function = calls.function_of(step.source)
                waited.setdefault(function, Counter())[step.source] += took
                stored[function] += took
    tiny = tiny_functions(analysis)
    for function, rows in waited.items():
        cost = sum(rows.values())
        if not is_costly(analysis, cost, seconds=0.5) or function in tiny:
            continue
        sizes = [table.attribute(row, names.RAY_OBJECT_SIZE) for row in rows]
        known = [each for each in sizes if isinstance(each, int)]
        largest = max(known) if known and len(known) == len(sizes) else 0
        text = (
            f"the run waited {duration(cost)} after the code of {quoted(function)} had ended, while results were "
            "pickled, stored, sent and unpickled"
        )
        if stored[function]:
            text += f"; {duration(stored[function])} of that for its workers, which also free arguments"
        text += f"; up to {size(largest)} at once" if largest else ""
        advice = (
            "return and pass less, or arrays of NumPy or Arrow, which are not pickled piece by piece; or pass results "
            "on to calls that use them, without a ray.get; if the object store is full, keep fewer objects at a time"
        )
        title = f"Results of {quoted(function)} come slowly"
        about = {"function": function}
        yield Finding(
            "slow-results", text, advice, cost / path.wall, [row for row, _ in rows.most_common()], about, title=title
        )
