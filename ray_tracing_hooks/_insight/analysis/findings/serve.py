"""Requests to Ray Serve."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import BY_CODE, REPLICA_QUEUE, RUN
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.functions import in_both, percentile
from ray_tracing_hooks._insight.analysis.requests import (
    CODE,
    DELIVERY,
    LOOP,
    REPLICA_WAIT,
    SLOWEST,
    SPAN,
    Method,
    Part,
    Requests,
)
from ray_tracing_hooks._insight.analysis.wording import count, duration, percent
from ray_tracing_hooks._insight.model.attribute_values import nanoseconds, whole
from ray_tracing_hooks._insight.model.serve_spans import ServeSpans

_REPLICA_LEAST_REQUESTS = 10
_REPLICA_LEAST_SHARE = 0.2
_REPLICA_COST = 0.1
_LEAST_BLOCKED = 0.1
"""The share of the time of its own code, with the waits for its event loop, that these waits make up."""
_LEAST_OWN = 0.5
"""The share of the time in replicas that their own code takes, unless they mostly wait for other calls."""
_REPLICA_LEAST_WAIT = 10_000_000
"""Of half of the calls, in nanoseconds: less is what Ray Serve takes to hand over a request."""


def waiting_for_replicas(analysis: Analysis) -> list[Finding]:
    """Requests to Ray Serve that wait until a replica of a deployment accepts them.

    Measures: these waits on the critical path, where a driver may wait for requests; the text has their share.
    Threshold: a fifth of the time of requests; and 10 ms in the median of 10 of them, or a tenth of the run.
    Looks the same: a busy router, so other waits have to be shorter; replicas that wait for others come last.
    Advice: more replicas, or more requests at once; if they wait for what they call, to make that faster.
    Needs: spans of requests, with how long the choice of a replica took.
    """
    found = analysis.requests
    if found is None:
        return []
    by_deployment: dict[tuple[str, str], list[Method]] = {}
    for each in found.methods:
        if each.waited:
            by_deployment.setdefault((each.application, _deployment(each.name)), []).append(each)
    waiting = [
        (_own_share(found, application, name, methods), application, name, waited, methods)
        for (application, name), methods in by_deployment.items()
        if (waited := _time(found, REPLICA_WAIT, application, name)) >= _REPLICA_LEAST_SHARE * found.time
        and waited >= _time(found, DELIVERY, application, name)
        and (
            (
                found.count >= _REPLICA_LEAST_REQUESTS
                and max(percentile(each.waited, 0.5) for each in methods) >= _REPLICA_LEAST_WAIT
            )
            or _waited(analysis, name)
        )
    ]
    waiting.sort(key=lambda each: each[0] < _LEAST_OWN)
    return [
        _replica_finding(
            found,
            name,
            waited,
            methods,
            _replica_advice(found, application, name, own_share),
            _waited(analysis, name) if own_share >= _LEAST_OWN else 0.0,
        )
        for own_share, application, name, waited, methods in waiting
    ]


def _waited(analysis: Analysis, deployment: str) -> float:
    """The share of the run, from 0 to 1, in which it waited for requests to get a replica; 0 if that is little."""
    if analysis.ends_with_request:
        return 0.0
    steps = (step for step in analysis.split.steps if step.kind == REPLICA_QUEUE and step.edge != BY_CODE)
    waited = sum(
        step.end - step.start for step in steps if _deployment(analysis.calls.frame_name(step.row)) == deployment
    )
    return waited / analysis.split.wall if waited and waited >= _REPLICA_COST * analysis.split.wall else 0.0


def _own_share(found: Requests, application: str, deployment: str, methods: Sequence[Method]) -> float:
    """How much of the time in its replicas its own code took, as far as requests waited for it."""
    inside = sum(each.in_requests for each in methods)
    return sum(_time(found, kind, application, deployment) for kind in (CODE, SPAN, LOOP)) / inside if inside else 1.0


def _replica_advice(found: Requests, application: str, deployment: str, own_share: float) -> str:
    """What helps: more replicas do not if they would all wait for another deployment."""
    if own_share < _LEAST_OWN:
        return (
            f"its replicas are full since {percent(1 - own_share)} of the time of requests in them went to what they "
            "called: make that faster first (see where the time of requests went)"
        )
    more = "more replicas (num_replicas; min_replicas where they start too late)"
    own = own_share * sum(each.in_requests for each in found.methods if _deployment(each.name) == deployment)
    if _time(found, LOOP, application, deployment) >= _LEAST_BLOCKED * own > 0:
        return (
            f"let no code keep the event loop of a replica, for which requests wait too; then {more}; a larger "
            "max_ongoing_requests would not help"
        )
    larger = "a larger max_ongoing_requests, if its code mostly awaits or waits in threads"
    return f"{more}; less work for each request; {larger}"


def _deployment(method: str) -> str:
    return method.rpartition(".")[0]


def _time(found: Requests, kind: str, application: str, deployment: str) -> int:
    return sum(
        part.time
        for part in found.parts
        if part.kind == kind and (part.application, _deployment(part.name)) == (application, deployment)
    )


def _replica_finding(
    found: Requests, deployment: str, waited: int, methods: Sequence[Method], advice: str, share: float
) -> Finding:
    longest = max(methods, key=lambda each: percentile(each.waited, 0.95))
    at_95, replicas = percentile(longest.waited, 0.95), max(each.replicas for each in methods)
    text = (
        f"waiting for a replica of {quoted(deployment)} took {percent(waited / found.time)} of the time of "
        f"{count(found.count, 'request')}: with {count(replicas, 'replica')}, a call began after "
        f"{duration(percentile(longest.waited, 0.5))} in the median, {duration(at_95)} at the 95th percentile"
    )
    figures: dict[str, float | int | str] = {
        "deployment": deployment,
        "requests": found.count,
        "waited_ns": waited,
        "waited_share": waited / found.time,
        "p95_ns": at_95,
        "replicas": replicas,
    }
    rows = [row for each in sorted(methods, key=lambda each: -each.waited[-1]) for row in each.longest]
    return Finding(
        "waiting-for-replicas",
        text,
        advice,
        share,
        rows,
        figures,
        title=f"Requests wait for replicas of {quoted(deployment)}",
    )


_BLOCKED_LEAST_WAITS = 5
_BLOCKED_LEAST_SHARE = 0.1


def blocked_replicas(analysis: Analysis) -> Iterator[Finding]:
    """Requests that a replica of Ray Serve had accepted, and whose code waited for its event loop.

    Measures: ``ray.serve.event_loop.wait_time`` of requests; it claims no cost, since no run ends with them.
    Threshold: a tenth of the time of requests, in 5 executions.
    Looks the same: code in another thread that keeps the interpreter.
    Advice: to await, to run what blocks in threads, or more replicas; more requests at once would only wait.
    Needs: user code in a loop of its own (``RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD`` is not 0).
    """
    found, spans = analysis.requests, analysis.serve_spans
    if found is None or spans is None or not found.time:
        return
    by_deployment: dict[tuple[str, str], int] = {}
    for part in found.parts:
        if part.kind == LOOP:
            key = part.application, part.name.rpartition(".")[0]
            by_deployment[key] = by_deployment.get(key, 0) + part.time
    waits = np.nonzero(spans.loop_wait)[0]
    deployments = {each: _deployment_of(spans, each) for each in np.unique(spans.method[waits]).tolist()}
    for (application, deployment), waited in by_deployment.items():
        own = [each for each, its in deployments.items() if its == (application, deployment)]
        rows = waits[np.isin(spans.method[waits], own)].tolist()
        if waited < _BLOCKED_LEAST_SHARE * found.time or len(rows) < _BLOCKED_LEAST_WAITS:
            continue
        median = float(np.median(spans.loop_wait[rows]))
        share = waited / found.time
        yield Finding(
            "blocked-replica",
            f"waiting for the event loops of replicas of {quoted(deployment)} took {percent(share)} of the time of "
            f"{count(found.count, 'request')}: {count(len(rows), 'request')} that a replica had accepted waited "
            f"{duration(median)} in the median, while other code kept the loop",
            "await what waits in async methods (asyncio.sleep, async clients, a result instead of ray.get); run what "
            "blocks, and methods without async, in threads (asyncio.to_thread); for code that computes, more replicas",
            0.0,
            sorted(rows, key=lambda row: -spans.loop_wait[row]),
            {
                "deployment": deployment,
                "requests": found.count,
                "waited_ns": waited,
                "waited_share": share,
                "waits": len(rows),
                "median_ns": round(median),
            },
            title=f"Code keeps the event loops of replicas of {quoted(deployment)}",
        )


def _deployment_of(spans: ServeSpans, method: int) -> tuple[str, str]:
    name, application = spans.named(method)
    return application, name.rpartition(".")[0]


_START_COST = 0.1
_START_LEAST = 1_000_000_000


def slow_replica_starts(analysis: Analysis) -> Iterator[Finding]:
    """Deployments of Ray Serve whose constructors a driver waits for.

    Measures: the driver's code on the critical path while a constructor runs, before the driver's first request.
    Threshold: 1 s and a tenth of the run.
    Looks the same: a driver that computes meanwhile: ``serve.run`` polls and sleeps, so this is assumed.
    Advice: to load less or faster in __init__, and to deploy while something else runs.
    Needs: spans of the starts of replicas.
    """
    spans, calls, table, path = analysis.serve_spans, analysis.calls, analysis.table, analysis.path
    if spans is None or not path.wall:
        return
    drivers = set(calls.drivers())
    called = [row for row in spans.called.tolist() if calls.frame[row] in drivers]
    first = min(map(table.start.__getitem__, called), default=path.end)
    steps = [(step.start, min(step.end, first)) for step in path.steps if step.kind == RUN and step.row in drivers]
    by_deployment: dict[str, list[int]] = {}
    for row in spans.starts.tolist():
        by_deployment.setdefault(table.name_of(row).partition(".__init__")[0], []).append(row)
    for deployment, rows in by_deployment.items():
        built = [(table.start[row], table.end_or_now(row)) for row in rows]
        waited = in_both(built, [step for step in steps if step[0] < step[1]])
        if waited < max(_START_LEAST, _START_COST * path.wall):
            continue
        times = sorted(map(table.duration, rows))
        usual = percentile(times, 0.5)
        text = (
            f"{quoted(analysis.name)} seems to have waited {duration(waited)} for {count(len(rows), 'replica')} of "
            f"{quoted(deployment)} to construct, which took {duration(usual)}{' (median)' if len(rows) > 1 else ''}"
        )
        advice = "load less in __init__, or load it faster, from a local disk; deploy while something else runs"
        figures: dict[str, float | int | str] = {
            "deployment": deployment,
            "replicas": len(rows),
            "median_ns": usual,
            "waited_ns": waited,
        }
        title = f"Replicas of {quoted(deployment)} take long to construct"
        longest = sorted(rows, key=lambda row: -table.duration(row))
        share = waited / path.wall
        yield Finding("slow-actor-start", text, advice, share, longest, figures, is_assumed=True, title=title)


_LEAST_BATCHES = 5
_BATCH_LEAST_SHARE = 0.2
_MOST_BATCHES = 10_000
"""The first ones are looked at, of each function."""


@dataclass
class _Waiting:
    """Batches of one function. Times are nanoseconds."""

    rows: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    waits: list[tuple[int, int]] = field(default_factory=list)
    """Of each batch, when its first request waited and no earlier batch ran in that replica."""

    def times(self) -> list[int]:
        return [until - since for since, until in self.waits]


def waiting_for_batches(analysis: Analysis) -> list[Finding]:
    """Requests that wait for others to fill their batch (``@serve.batch``), while no batch runs.

    Measures: waits of the first request of each batch on the critical path; the text has their share of requests.
    Threshold: a fifth of the time of requests, and 5 batches that run for less than that (medians).
    Looks the same: requests that come one by one, for which no batch could be fuller.
    Advice: a shorter batch_wait_timeout_s, or more requests at once.
    Needs: spans of batches, with how long their first request waited.
    """
    found, spans = analysis.requests, analysis.serve_spans
    if found is None or spans is None:
        return []
    return [
        _batch_finding(analysis, found, spans, method, waiting)
        for method, waiting in _by_function(spans).items()
        if len(waiting.rows) >= _LEAST_BATCHES
        and sum(waiting.times()) >= _BATCH_LEAST_SHARE * found.time
        and median(waiting.times()) > median(map(analysis.table.duration, waiting.rows))
    ]


def _by_function(spans: ServeSpans) -> dict[int, _Waiting]:
    table = spans.table
    rows = np.nonzero(spans.is_batch)[0]
    found: dict[int, _Waiting] = {}
    busy_until: dict[tuple[int, int], int] = {}
    for row in rows[np.argsort(spans.start[rows], kind="stable")].tolist():
        method, start = int(spans.method[row]), table.start[row]
        each, place = found.setdefault(method, _Waiting()), (method, table.resource[row])
        if len(each.rows) == _MOST_BATCHES:
            continue
        came = start - nanoseconds(table.attribute(row, names.RAY_SERVE_BATCH_WAIT))
        each.rows.append(row)
        each.sizes.append(whole(table.attribute(row, names.RAY_SERVE_BATCH_SIZE)) or 0)
        each.waits.append((min(start, max(came, busy_until.get(place, came))), start))
        busy_until[place] = max(table.end_or_now(row), busy_until.get(place, 0))
    return found


def _batch_finding(analysis: Analysis, found: Requests, spans: ServeSpans, method: int, waiting: _Waiting) -> Finding:
    name, _ = spans.named(method)
    times, took = waiting.times(), list(map(analysis.table.duration, waiting.rows))
    share = sum(times) / found.time
    text = (
        f"the first request of each batch of {quoted(name)} waited {duration(round(median(times)))} until it began, "
        f"while no batch of it ran; a batch has {count(round(median(waiting.sizes)), 'request')}, and takes "
        f"{duration(round(median(took)))} (medians of {count(len(times), 'batch', 'batches')}); in all, that is "
        f"{percent(share)} of the time of {count(found.count, 'request')}"
    )
    advice = (
        "set a shorter batch_wait_timeout_s, unless batches mostly get as many requests as they may have "
        "(max_batch_size); to let clients send more requests at once fills batches sooner"
    )
    figures: dict[str, float | int | str] = {
        "function": name,
        "batches": len(times),
        "median_size": round(median(waiting.sizes)),
        "median_wait_ns": round(median(times)),
        "median_run_ns": round(median(took)),
        "waited_share": share,
    }
    rows = sorted(waiting.rows, key=dict(zip(waiting.rows, times, strict=True)).__getitem__, reverse=True)
    saved = in_both(waiting.waits, _in_replicas(analysis, spans)) / analysis.path.wall if analysis.path.wall else 0.0
    title = f"Requests wait for batches of {quoted(name)} to fill"
    return Finding("waiting-for-batches", text, advice, min(1.0, saved), rows, figures, title=title)


def _in_replicas(analysis: Analysis, spans: ServeSpans) -> Sequence[tuple[int, int]]:
    """When the critical path went through requests in replicas."""
    is_there = spans.is_replica | spans.is_direct
    return [
        (step.start, step.end)
        for step in analysis.path.steps
        if step.kind == RUN and 0 <= step.row < len(is_there) and is_there[step.row]
    ]


_SHOWN_DIGITS = 8


def slow_requests(analysis: Analysis) -> Iterator[Finding]:
    """The part of the time of requests that distinguishes the slowest 5 % of them.

    Measures: how much longer that part is in the slowest ones; it claims no cost.
    Threshold: 100 requests, twice as long on average, half of the difference, and as long in half of the slowest ones.
    Looks the same: requests of another kind, such as a route that is always slow.
    Advice: the command that shows the slowest one.
    Needs: spans of requests.
    """
    found = analysis.requests
    tail = found.tail if found is not None else None
    if found is None or tail is None:
        return
    part = tail.part
    trace = analysis.table.trace_id_of(tail.rows[0])[:_SHOWN_DIGITS]
    where = f", mostly in replica {quoted(tail.replica)}" if tail.replica else ""
    text = (
        f"the slowest {percent(SLOWEST)} of {count(found.count, 'request')} took {duration(tail.slow)} on average, the "
        f"others {duration(tail.others)}: {percent(tail.share)} of the difference is {quoted(found.described(part))} "
        f"({duration(tail.slow_part)} instead of {duration(tail.others_part)}){where}"
    )
    command = f"tree --trace {trace} --attributes" if part.kind == SPAN else f"summary --trace {trace}"
    advice = f"ray-tracing-hooks {command} shows the slowest one{_more(part)}"
    figures: dict[str, float | int | str] = {
        "requests": found.count,
        "slowest": found.slow,
        "kind": part.kind,
        "name": part.name,
        "span": part.span,
        "replica": tail.replica,
        "slow_ns": round(tail.slow),
        "others_ns": round(tail.others),
        "part_slow_ns": round(tail.slow_part),
        "part_others_ns": round(tail.others_part),
        "difference_share": tail.share,
    }
    title = f"The slowest requests are slow by {quoted(found.described(part))}"
    yield Finding("slow-requests", text, advice, 0.0, tail.rows, figures, title=title)


def _more(part: Part) -> str:
    if part.kind == CODE:
        return "; spans of your own in this method would show what takes the time"
    if part.kind in (REPLICA_WAIT, LOOP):
        return "; see whether many requests came at that time"
    return ""
