"""Waiting for workers to start, and for items of generators; and time that no span explains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis import recorded
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import (
    RUN,
    STARTING,
    UNEXPLAINED,
    WAITING,
)
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, is_costly, quoted
from ray_tracing_hooks._insight.analysis.findings.sizes import (
    starting_by_arguments,
)
from ray_tracing_hooks._insight.analysis.findings.train_tune import starting_in_training
from ray_tracing_hooks._insight.analysis.functions import percentile
from ray_tracing_hooks._insight.analysis.wording import count, duration, percent
from ray_tracing_hooks._insight.model.calls import EXECUTION
from ray_tracing_hooks._insight.model.grouped import most_at_once
from ray_tracing_hooks._insight.model.processes import Start, Workers
from ray_tracing_hooks._insight.model.span import nanoseconds
from ray_tracing_hooks._insight.model.table import RUNNING

_WORKER_ACTORS = 5


def worker_start(analysis: Analysis) -> list[Finding]:
    """Worker processes that the run waits for while they start, in one finding.

    Measures: the time on the critical path in which only a worker process was missing.
    Threshold: 1 s and a tenth of the run: a few processes start in any run.
    Looks the same: workers that start slowly because of large arguments, or in the start of a training. Those findings
    have this time.
    Advice: reuse workers, and create actors early. Start fewer at once if there are fewer processors.
    Needs: the times at which workers were created and ready, in their Resource.
    """
    path = analysis.path
    cost = path.kinds[STARTING] - starting_by_arguments(analysis) - starting_in_training(analysis)
    if not is_costly(analysis, cost, seconds=1):
        return []
    found = Workers(analysis.table).of_resource
    used = [
        index
        for index in dict.fromkeys(analysis.table.resource)
        if (start := found[index]) is not None and start.ready > path.start
    ]
    started = [start for index in used if (start := found[index]) is not None]
    at_once, processors = max(_at_once(started, node) for node in {start.node for start in started})
    each = percentile(sorted(start.ready - start.created for start in started), 0.5)
    of = f" on a node with {count(processors, 'processor')}" if processors else ""
    text = (
        f"{count(len(started), 'worker')} started during the run, up to {at_once:,} at once{of}, and took "
        f"{duration(each)} (median) until they were ready for work"
    )
    if actors := _short_lived(analysis, set(used)):
        text += f"; {actors}"
    steps = sorted((step for step in path.steps if step.kind == STARTING), key=lambda step: -step.took)
    rows = list(dict.fromkeys(step.row for step in steps))
    advice = _worker_advice(at_once, processors)
    if actors:
        advice = "keep a few actors, and give each many calls (ray.util.ActorPool), instead of an actor for each call"
    return [Finding("worker-start", text, advice, cost / path.wall, rows, title="Starting worker processes")]


def _short_lived(analysis: Analysis, used: Collection[int]) -> str:
    """The class most of whose actors ran one call only, in a process of its own, in words; empty if there is none."""
    resource = analysis.table.resource
    short = Counter(
        each.actor_class
        for each in analysis.actors
        if len(each.executions) == 1 and resource[each.executions[0]] in used
    )
    ((name, number),) = short.most_common(1) or [("", 0)]
    if number < _WORKER_ACTORS:
        return ""
    return f"{number:,} of the workers were for actors of {quoted(name)} that ran one call each"


def _worker_advice(at_once: int, processors: int) -> str:
    if processors and at_once > processors:
        return (
            "start fewer at once, since they share the processors: use fewer actors that do more work each, and fewer "
            "tasks that wait for other tasks"
        )
    return (
        "reuse workers and actors, and create actors before they are needed; calls with different variables or "
        "packages (runtime_env) cannot share workers"
    )


def _at_once(started: list[Start], node: str) -> tuple[int, int]:
    """The most processes of a node that were starting at the same time, and its number of processors."""
    here = [start for start in started if start.node == node]
    begins, ends = np.array([(start.created, start.ready) for start in here]).T
    return most_at_once(begins, ends), max(start.processors for start in here)


_HELD_SHARE = 0.3


def held_generators(analysis: Analysis) -> Iterator[Finding]:
    """Generators that are suspended after their items, while the run waits for what they yield.

    Measures: the time in which they were suspended, at most their time on the critical path.
    Threshold: 0.5 s and a tenth of the run, and three tenths of the time of these generators.
    Looks the same: items that are large, which Ray takes long to store.
    Advice: to take items of all generators as they come, or to let generators be further ahead.
    Needs: how long a generator was suspended; whether it was for storing or for its consumer is not recorded.
    """
    calls, table, path = analysis.calls, analysis.table, analysis.path
    by_function: dict[str, list[tuple[int, int, int]]] = {}
    for row, ran in analysis.ran_on_path.items():
        if row < len(table) and calls.role[row] == EXECUTION and calls.is_generator(row):
            held = min(nanoseconds(table.attribute(row, names.RAY_GENERATOR_HELD)), table.duration(row))
            by_function.setdefault(calls.function_of(row), []).append((row, ran, held))
    for function, found in by_function.items():
        cost = sum(min(ran, held) for _, ran, held in found)
        took = sum(table.duration(row) for row, _, _ in found)
        held = sum(held for _, _, held in found)
        if not is_costly(analysis, cost, seconds=0.5) or held < _HELD_SHARE * took:
            continue
        rows = [row for row, _, _ in sorted(found, key=lambda each: -each[2])]
        were = "was" if len(rows) == 1 else "were"
        text = (
            f"{count(len(rows), 'generator')} of {quoted(function)} on the critical path ran for {duration(took)}, and "
            f"{were} suspended for {duration(held)} of that, until Ray had stored an item or the consumer caught up"
        )
        advice = (
            "take items of all generators as they come (ray.wait on the generators), allow more items ahead "
            "(_generator_backpressure_num_objects), or yield smaller ones"
        )
        about = {"function": function}
        title = f"Generators of {quoted(function)} are held up"
        yield Finding("held-generators", text, advice, cost / path.wall, rows, about, title=title)


UNRECORDED = "unrecorded"

_SHOWN_DIGITS = 8


def unrecorded(analysis: Analysis) -> list[Finding]:
    """Time that no span explains, with the known reasons, and the settings that would record it.

    Measures: unexplained time on the critical path. With a library whose calls are not recorded, the driver's own time
    counts too.
    Threshold: two fifths of the run: then the other findings explain too little of it.
    Looks the same: a driver that computes while such a library does nothing.
    Advice: the setting that records it, or the command that shows requests.
    Needs: the driver's span.
    """
    calls, path = analysis.calls, analysis.path
    drivers = set(calls.drivers())
    if not drivers:
        return []
    parts = recorded.libraries(calls)
    libraries = [recorded.LIBRARIES[part] for part in parts]
    own = (RUN, WAITING) if libraries else ()
    steps = [
        step
        for step in path.steps
        if step.kind == UNEXPLAINED or (step.kind in own and step.row >= 0 and calls.frame_of(step.row) in drivers)
    ]
    hidden = sum(step.took for step in steps) - recorded.with_requests(analysis, steps)
    if not is_costly(analysis, hidden, 0.4):
        return []
    unseen = recorded.unseen_objects(analysis)
    records_waits = all(map(calls.records_waits, drivers))
    reasons, advice = [], []
    if libraries:
        several = " and ".join(libraries)
        was, its = ("was", "its") if len(libraries) == 1 else ("were", "their")
        reasons.append(f"{several} {was} imported and {its} internal calls were not recorded")
        advice.append(f"RAY_TRACING_RAY=+{',+'.join(parts)} shows what {several} {'does' if len(parts) == 1 else 'do'}")
    if unseen:
        # Those of Ray Serve's controller and routers make none with any setting, so there is nothing to advise.
        of_serve = " (such as those of Ray Serve's controller)" if analysis.requests is not None else ""
        reasons.append(f"{count(unseen, 'object')} that the run waited for came from calls without spans{of_serve}")
    requests = _requests(analysis)
    if requests:
        apart = "is a trace of its own" if len(requests) == 1 else "are traces of their own"
        reasons.append(f"{count(len(requests), 'request')} {apart}")
        slowest = analysis.table.trace_id_of(max(requests, key=analysis.table.duration))
        command = f"ray-tracing-hooks summary --trace {slowest[:_SHOWN_DIGITS]}"
        advice.append(f"{command} shows where the time of the slowest request went")
    # Those of Ray Serve make no spans then either.
    if unseen and not libraries and not calls.internal and analysis.serve_spans is None:
        advice.append(f"{recorded.RECORD_INTERNAL} shows the tasks and actors of Ray's libraries")
    unexecuted = analysis.unexecuted if RUNNING not in analysis.table.state else 0
    if unexecuted:
        has, its = ("has", "its") if unexecuted == 1 else ("have", "their")
        reasons.append(f"{count(unexecuted, 'call')} {has} no span of {its} execution")
        advice.append("read the spans of every node, and check that each of them records (ray-tracing-hooks status)")
    reasons += recorded.missing(calls)
    if not records_waits:
        reasons.append("waiting was not recorded")
        advice.append(f"{recorded.RECORD_WAITS} shows what callers wait for")
    if not reasons:
        return []
    text = (
        f"no span explains {duration(hidden)} of {quoted(analysis.name)} ({percent(hidden / path.wall)} of the run): "
        f"{', '.join(reasons)}"
    )
    about = {"driver": analysis.name}
    rows = [row for row in sorted(drivers) if row < len(analysis.table)]
    return [Finding(UNRECORDED, text, "; ".join(advice), hidden / path.wall, rows, about, title="Time without spans")]


def _requests(analysis: Analysis) -> list[int]:
    """The requests to Ray Serve that begin a trace."""
    spans, found = analysis.serve_spans, analysis.requests
    if spans is None or found is None:
        return []
    parents = {row: analysis.table.parent[row] for route in found.routes for row in route.rows}
    return [row for row, parent in parents.items() if parent < 0 or spans.is_route[parent]]
