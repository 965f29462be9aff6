"""Requests to Ray Serve."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import BY_CODE, REPLICA_QUEUE, REQUEST_DELIVERY, RUN, Path
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, is_costly, quoted
from ray_tracing_hooks._insight.analysis.functions import percentile
from ray_tracing_hooks._insight.analysis.intervals import covered, gaps, in_both, united
from ray_tracing_hooks._insight.analysis.requests import DELIVERY, LOOP, OWN_KINDS, REPLICA_WAIT, SPAN, Method, Requests
from ray_tracing_hooks._insight.analysis.wording import count, duration, percent
from ray_tracing_hooks._insight.model.grouped import most_at_once
from ray_tracing_hooks._insight.model.serve_spans import ServeSpans
from ray_tracing_hooks._insight.model.span import nanoseconds, whole

_REPLICA_LEAST_REQUESTS = 10
_REPLICA_LEAST_SHARE = 0.2
_REPLICA_COST = 0.1
_LEAST_BLOCKED = 0.1
"""The share of the time of its own code, with the waits for its event loop, that these waits make up."""
_LEAST_OWN = 0.5
"""The share of the time in replicas that their own code takes, unless they mostly wait for other calls."""
_REPLICA_LEAST_WAIT = 10_000_000
"""The least median wait, in nanoseconds: Ray Serve takes less than this to hand over a request."""


@dataclass
class Deployment:
    """What is known of the requests to a deployment. Times are nanoseconds of requests, unless they say otherwise."""

    application: str
    name: str
    methods: list[Method]
    waited: int
    delivered: int
    looped: int
    """In which accepted requests waited for the event loop."""
    own_share: float
    """How much of the time in its replicas its own code took, as far as requests waited for it."""
    is_busy: bool
    """Whether no replica was idle for most of the time in which requests waited for one."""
    at_once: int
    """The most requests that ran at once in a replica."""
    batch: int
    """The most requests in a batch; 0 without batches."""
    late: list[int]
    """The starts of replicas that ended after the first request came."""

    @property
    def replicas(self) -> int:
        return max(each.replicas for each in self.methods)

    @property
    def is_blocked(self) -> bool:
        """Whether requests wait for its event loops for a good part of the time of its own code."""
        own = self.own_share * sum(each.in_requests for each in self.methods)
        return self.looped >= _LEAST_BLOCKED * own > 0

    def on_path(self, analysis: Analysis, path: Path, *kinds: str) -> int:
        """How much of a path its calls waited for their replicas in these ways."""
        # That edge of a wait means the event loop of the replica.
        steps = (
            step for step in path.steps if step.kind in kinds and (step.kind, step.edge) != (REPLICA_QUEUE, BY_CODE)
        )
        names_of = analysis.calls.frame_name
        return sum(step.took for step in steps if _deployment(names_of(step.row)) == self.name)


def deployments(analysis: Analysis) -> Iterator[Deployment]:
    """The deployments whose replicas ran requests."""
    found, spans = analysis.requests, analysis.serve_spans
    if found is None or spans is None:
        return
    by_deployment: dict[tuple[str, str], list[Method]] = {}
    for each in found.methods:
        if each.waited:
            by_deployment.setdefault((each.application, _deployment(each.name)), []).append(each)
    of_method = {each: deployment_of(spans, each) for each in np.unique(spans.method).tolist()}
    ran = np.nonzero(spans.is_replica | spans.is_direct)[0]
    first = min((analysis.table.start[route.rows[0]] for route in found.routes), default=0)
    for (application, name), methods in by_deployment.items():
        own = [each for each, its in of_method.items() if its == (application, name)]
        rows = ran[np.isin(spans.method[ran], own)]
        starts = [row for row in spans.starts.tolist() if _started(analysis, row) == name]
        calls = spans.called[np.isin(spans.method[spans.called], own) & (spans.choice[spans.called] > 0)]
        chosen = list(
            zip(spans.start[calls].tolist(), (spans.start[calls] + spans.choice[calls]).tolist(), strict=True)
        )
        free = united([each for its in _by_replica(spans, rows, starts) for each in its])
        yield Deployment(
            application,
            name,
            methods,
            _time(found, REPLICA_WAIT, application, name),
            _time(found, DELIVERY, application, name),
            _time(found, LOOP, application, name),
            _own_share(found, application, name, methods),
            2 * in_both(chosen, free) <= sum(end - begin for begin, end in united(chosen)),
            max(
                (_at_once(spans, rows[spans.resource[rows] == each]) for each in np.unique(spans.resource[rows])),
                default=0,
            ),
            _largest_batch(spans, own, application, name),
            [row for row in starts if analysis.table.end_or_now(row) > first > 0],
        )


def _started(analysis: Analysis, row: int) -> str:
    """The deployment of which this is the start of a replica."""
    return analysis.table.name_of(row).partition(".__init__")[0]


def _by_replica(spans: ServeSpans, rows: Any, starts: Sequence[int]) -> Iterator[list[tuple[int, int]]]:
    """When each replica of a deployment was ready and ran no request, up to its last one."""
    ready = {int(spans.resource[row]): int(spans.ends[row]) for row in starts}
    for replica in np.unique(spans.resource[rows]).tolist():
        own = rows[spans.resource[rows] == replica]
        ran = list(zip(spans.start[own].tolist(), spans.ends[own].tolist(), strict=True))
        yield gaps(ran, ready.get(replica, min(ran)[0]), max(ran)[0])


def _at_once(spans: ServeSpans, rows: Any) -> int:
    rows = rows[spans.ends[rows] > spans.start[rows]]
    return most_at_once(spans.start[rows], spans.ends[rows])


def _largest_batch(spans: ServeSpans, own: list[int], application: str, name: str) -> int:
    """The most requests in a batch of a deployment, by its methods or by other functions of it."""
    rows = np.nonzero(spans.is_batch)[0][:_MOST_BATCHES].tolist()
    of = {
        each: int(spans.method[each]) in own or deployment_of(spans, int(spans.method[each])) == (application, name)
        for each in rows
    }
    return max(
        (whole(spans.table.attribute(each, names.RAY_SERVE_BATCH_SIZE)) or 0 for each in rows if of[each]), default=0
    )


def waiting_for_replicas(analysis: Analysis) -> list[Finding]:
    """Requests to Ray Serve that wait until a replica of a deployment accepts them.

    Measures: these waits on the critical path, if a driver may wait for requests. The text has their share.
    Threshold: a fifth of the time of requests. In addition, a median of 10 ms in 10 requests, or a tenth of the run.
    Looks the same: large arguments and busy routers, so replicas have to be busy. Replicas that wait for others come
    last.
    Advice: add replicas, add them sooner, or allow more requests at once. If they wait for other calls, make those
    faster.
    Needs: spans of requests, with how long the choice of a replica took.
    """
    found = analysis.requests
    if found is None or not found.time:
        return []
    waiting = [
        each
        for each in deployments(analysis)
        if each.waited >= _REPLICA_LEAST_SHARE * found.time
        and each.is_busy
        and each.waited >= each.delivered
        and (
            (
                found.count >= _REPLICA_LEAST_REQUESTS
                and max(percentile(method.waited, 0.5) for method in each.methods) >= _REPLICA_LEAST_WAIT
            )
            or _waited(analysis, each)
        )
    ]
    waiting.sort(key=lambda each: each.own_share < _LEAST_OWN)
    return [
        _replica_finding(
            found,
            each,
            _waited(analysis, each),
        )
        for each in waiting
    ]


def _waited(analysis: Analysis, deployment: Deployment) -> float:
    """The share of the run, from 0 to 1, in which it waited for requests to get a replica; 0 if that is little."""
    if analysis.ends_with_request:
        return 0.0
    waited = deployment.on_path(analysis, analysis.split, REPLICA_QUEUE)
    return waited / analysis.split.wall if waited and waited >= _REPLICA_COST * analysis.split.wall else 0.0


def _own_share(found: Requests, application: str, deployment: str, methods: Sequence[Method]) -> float:
    inside = sum(each.in_requests for each in methods)
    return sum(_time(found, kind, application, deployment) for kind in OWN_KINDS) / inside if inside else 1.0


def _replica_advice(each: Deployment) -> str:
    """What helps: more replicas do not if they would all wait for another deployment."""
    if each.own_share < _LEAST_OWN:
        return (
            f"its replicas are full because {percent(1 - each.own_share)} of the time of requests in them went to "
            "other calls: make these faster first (see where the time of requests went)"
        )
    more = "more replicas (num_replicas)"
    if each.is_blocked:
        return (
            f"requests wait for the event loops of replicas too: let no code block these loops; then {more}; a larger "
            "max_ongoing_requests would not help"
        )
    if each.late:
        return (
            "have enough replicas before the requests come (min_replicas), let autoscaling add them sooner "
            "(upscale_delay_s, target_ongoing_requests), and load less in __init__"
        )
    if each.batch and each.batch >= each.at_once:
        return (
            "a larger max_ongoing_requests: a batch has only requests that a replica has accepted, so it cannot have "
            f"more than that; then {more}"
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


def _replica_finding(found: Requests, each: Deployment, share: float) -> Finding:
    is_effect = each.is_blocked or each.own_share < _LEAST_OWN  # whose cost is that of its cause
    longest = max(each.methods, key=lambda method: percentile(method.waited, 0.95))
    at_95 = percentile(longest.waited, 0.95)
    late = f", {len(each.late):,} of them ready only after the first request came," if each.late else ""
    text = (
        f"waiting for a replica of {quoted(each.name)} took {percent(each.waited / found.time)} of the time of "
        f"{count(found.count, 'request')}; with {count(each.replicas, 'replica')}{late} that ran at most "
        f"{each.at_once:,} at once, a call began after {duration(percentile(longest.waited, 0.5))} in the median, "
        f"{duration(at_95)} at the 95th percentile"
    )
    if each.batch and each.batch >= each.at_once:
        text += f"; its batches had at most {count(each.batch, 'request')}"
    return Finding(
        "waiting-for-replicas",
        text,
        _replica_advice(each),
        0.0 if is_effect else share,
        [row for method in sorted(each.methods, key=lambda method: -method.waited[-1]) for row in method.longest],
        {"deployment": each.name},
        title=f"Requests wait for replicas of {quoted(each.name)}",
        requests_share=0.0 if is_effect else each.waited / found.time,
    )


_BLOCKED_LEAST_WAITS = 5
_BLOCKED_LEAST_SHARE = 0.1


def blocked_replicas(analysis: Analysis) -> Iterator[Finding]:
    """Requests that a replica of Ray Serve has accepted, but whose code waits for its event loop.

    Measures: the critical path in the replica's code meanwhile. The text has the share of
    ``ray.serve.event_loop.wait_time``.
    Threshold: a tenth of the time of requests, in 5 executions.
    Looks the same: code in another thread that holds the interpreter.
    Advice: await, run blocking code in threads, or add replicas. If you allow more requests at once, they only wait.
    Needs: user code in a loop of its own (``RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD`` is not 0).
    """
    found, spans = analysis.requests, analysis.serve_spans
    if found is None or spans is None or not found.time:
        return
    by_deployment: dict[tuple[str, str], int] = {}
    for part in found.parts:
        if part.kind == LOOP:
            key = part.application, _deployment(part.name)
            by_deployment[key] = by_deployment.get(key, 0) + part.time
    waits = np.nonzero(spans.loop_wait)[0]
    of_method = {each: deployment_of(spans, each) for each in np.unique(spans.method[waits]).tolist()}
    for (application, deployment), waited in by_deployment.items():
        own = [each for each, its in of_method.items() if its == (application, deployment)]
        rows = waits[np.isin(spans.method[waits], own)].tolist()
        if waited < _BLOCKED_LEAST_SHARE * found.time or len(rows) < _BLOCKED_LEAST_WAITS:
            continue
        median = float(np.median(spans.loop_wait[rows]))
        share = waited / found.time
        times = [(int(spans.start[row]), int(spans.start[row] + spans.loop_wait[row])) for row in rows]
        yield Finding(
            "blocked-replica",
            f"waiting for the event loops of replicas of {quoted(deployment)} took {percent(share)} of the time of "
            f"{count(found.count, 'request')}; {count(len(rows), 'request')} that a replica had accepted waited "
            f"{duration(median)} in the median, while other code kept the loop",
            "await what waits in async methods (asyncio.sleep, async clients, a result instead of ray.get); run "
            "blocking code, and methods without async, in threads (asyncio.to_thread); for code that computes, more "
            "replicas",
            share_on_path(analysis, spans, rows, times),
            sorted(rows, key=lambda row: -spans.loop_wait[row]),
            {"deployment": deployment},
            title=f"Code keeps the event loops of replicas of {quoted(deployment)}",
            requests_share=share,
        )


def share_on_path(
    analysis: Analysis, spans: ServeSpans, rows: Sequence[int], times: Sequence[tuple[int, int]]
) -> float:
    """The share of the run in which the critical path was in the replicas of these rows, and in what they had called,
    each at the time that belongs to its row.
    """
    if analysis.ends_with_request or not analysis.path.wall:
        return 0.0
    by_replica: dict[int, list[tuple[int, int]]] = {}
    for row, time in zip(rows, times, strict=True):
        by_replica.setdefault(int(spans.resource[row]), []).append(time)
    united_times = {each: united(its) for each, its in by_replica.items()}
    return _in_replicas(spans, analysis.path, united_times) / analysis.path.wall


def _in_replicas(spans: ServeSpans, path: Path, times: Mapping[int, Sequence[tuple[int, int]]]) -> int:
    """The time of the path in requests that replicas of Ray Serve ran, and in what these called as tasks or methods of
    actors, as far as it is in ``times`` of the process of the replica.
    """
    found = 0
    for step in path.steps:
        if 0 <= step.row < len(spans.table) and step.kind not in (REPLICA_QUEUE, REQUEST_DELIVERY):
            frame = spans.around(step.row)
            its = times.get(int(spans.resource[frame]), ()) if frame >= 0 else ()
            found += covered(its, step.start, step.end) if its else 0
    return found


def deployment_of(spans: ServeSpans, method: int) -> tuple[str, str]:
    name, application = spans.named(method)
    return application, name.rpartition(".")[0]


def slow_replica_starts(analysis: Analysis) -> Iterator[Finding]:
    """Deployments of Ray Serve whose constructors a driver waits for.

    Measures: the driver's code on the critical path while a constructor runs, before the driver's first request.
    Threshold: 1 s and a tenth of the run.
    Looks the same: a driver that computes meanwhile. ``serve.run`` polls and sleeps, so the finding is an assumption.
    Advice: load less or faster in __init__, and deploy while something else runs.
    Needs: spans of the starts of replicas.
    """
    spans, calls, table, path = analysis.serve_spans, analysis.calls, analysis.table, analysis.path
    if spans is None or not path.wall:
        return
    drivers, found = set(calls.drivers()), analysis.requests
    first = min((table.start[route.rows[0]] for route in found.routes), default=path.end) if found else path.end
    steps = [(step.start, min(step.end, first)) for step in path.steps if step.kind == RUN and step.row in drivers]
    by_deployment: dict[str, list[int]] = {}
    for row in spans.starts.tolist():
        if table.start[row] < first:
            by_deployment.setdefault(_started(analysis, row), []).append(row)
    for deployment, rows in by_deployment.items():
        built = [table.time(row) for row in rows]
        waited = in_both(built, [step for step in steps if step[0] < step[1]])
        if not is_costly(analysis, waited, seconds=1):
            continue
        times = sorted(map(table.duration, rows))
        usual = percentile(times, 0.5)
        text = (
            f"{quoted(analysis.name)} seems to have waited {duration(waited)} for {count(len(rows), 'replica')} of "
            f"{quoted(deployment)} to start: the constructor took "
            f"{duration(usual)}{' (median)' if len(rows) > 1 else ''}"
        )
        advice = "load less in __init__, or load it faster, from a local disk; deploy while something else runs"
        about = {"caller": analysis.name, "deployment": deployment}
        title = f"Replicas of {quoted(deployment)} take long to construct"
        longest = sorted(rows, key=lambda row: -table.duration(row))
        share = waited / path.wall
        yield Finding("slow-replica-start", text, advice, share, longest, about, is_assumed=True, title=title)


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

    Measures: the wait of the first request of each batch, on the critical path. The text has its share of the time of
    requests.
    Threshold: a fifth of the time of requests, and 5 batches whose median is shorter than the median wait.
    Looks the same: requests that come one by one, so no batch could be fuller.
    Advice: set a shorter batch_wait_timeout_s, or send more requests at once.
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
    saved = share_on_path(analysis, spans, waiting.rows, waiting.waits)
    return Finding(
        "waiting-for-batches",
        f"the first request of each batch of {quoted(name)} waited {duration(round(median(times)))} until the batch "
        f"began, while no other one ran; a batch has {count(round(median(waiting.sizes)), 'request')}, and takes "
        f"{duration(round(median(took)))} (medians of {count(len(times), 'batch', 'batches')}); in all, that is "
        f"{percent(share)} of the time of {count(found.count, 'request')}",
        "set a shorter batch_wait_timeout_s, unless batches are mostly full (max_batch_size); batches fill sooner if "
        "clients send more requests at once",
        saved,
        sorted(waiting.rows, key=dict(zip(waiting.rows, times, strict=True)).__getitem__, reverse=True),
        {"function": name},
        title=f"Requests wait for batches of {quoted(name)} to fill",
        requests_share=min(1.0, share),
    )


_LOADED_AGAIN = 3
_LOADING_COST = 0.1


@dataclass
class _Loads:
    """The loads of models by one function. Times are nanoseconds."""

    models: set[str] = field(default_factory=set)
    replicas: set[int] = field(default_factory=set)
    rows: list[int] = field(default_factory=list)
    again: list[int] = field(default_factory=list)
    """Those of a model that its replica had loaded before another one."""


def loading_models(analysis: Analysis) -> Iterator[Finding]:
    """Models that replicas load again, after they had made room for others (``@serve.multiplexed``).

    Measures: the critical path in replicas while they load a model that they have loaded before another one.
    Threshold: 3 such loads, and a tenth of the run, or of the time of requests that load.
    Looks the same: nothing: the first load of a model in a replica does not count, and neither does a failed one.
    Advice: make room for more models, or give each replica fewer models.
    Needs: spans of loads with the ids of the models.
    """
    found, spans, table = analysis.requests, analysis.serve_spans, analysis.table
    if found is None or spans is None or not found.time:
        return
    for name, loads in _loads(analysis, spans).items():
        took = sum(map(table.duration, loads.again))
        in_requests = sum(part.time for part in found.parts if part.kind == SPAN and part.span == name)
        of_requests = in_requests / found.time * took / max(1, sum(map(table.duration, loads.rows)))
        times = [table.time(row) for row in loads.again]
        share = share_on_path(analysis, spans, loads.again, times)
        if len(loads.again) < _LOADED_AGAIN or max(share, of_requests) < _LOADING_COST:
            continue
        loader = name.removesuffix(f" {names.SERVE_MULTIPLEXED}")
        function = quoted(loader)
        usual = percentile(sorted(map(table.duration, loads.again)), 0.5)
        yield Finding(
            "loading-models",
            f"{function} loaded {count(len(loads.models), 'model')} {count(len(loads.rows), 'time')} in "
            f"{count(len(loads.replicas), 'replica')}, {len(loads.again):,} of these times though the replica had "
            f"loaded the model before: {duration(usual)} each (median), {duration(took)} in all",
            "a larger max_num_models_per_replica, if memory allows; more replicas, so that each has fewer models; or "
            "load models faster, from memory or a local disk",
            share,
            sorted(loads.again, key=lambda row: -table.duration(row)),
            {"function": loader},
            title=f"{function} loads the same models again",
            requests_share=min(1.0, of_requests),
        )


def _loads(analysis: Analysis, spans: ServeSpans) -> dict[str, _Loads]:
    """By the name of the span."""
    table = analysis.table
    found: dict[str, _Loads] = {}
    # By replica and name: the model that was loaded last, and when each was there.
    last: dict[tuple[int, str], str] = {}
    there: dict[tuple[int, str, str], int] = {}
    rows = np.nonzero(spans.is_loading & ~spans.is_failed)[0]
    for row in rows[np.argsort(spans.start[rows], kind="stable")].tolist():
        name, replica = table.name_of(row), table.resource[row]
        model = table.attribute(row, names.RAY_SERVE_MULTIPLEXED_MODEL_ID)
        if not isinstance(model, str):
            continue
        each = found.setdefault(name, _Loads())
        each.models.add(model)
        each.replicas.add(replica)
        each.rows.append(row)
        earlier = there.get((replica, name, model))
        if earlier is not None and earlier <= table.start[row] and last[replica, name] != model:
            each.again.append(row)
        last[replica, name], there[replica, name, model] = model, table.end_or_now(row)
    return found
