"""Requests to Ray Serve that wait until a replica of a deployment accepts them."""

from __future__ import annotations

from collections.abc import Sequence

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import BY_CODE, REPLICA_QUEUE
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.functions import percentile
from ray_tracing_hooks._insight.analysis.requests import CODE, DELIVERY, LOOP, REPLICA_WAIT, SPAN, Method, Requests
from ray_tracing_hooks._insight.analysis.wording import count, duration, percent

KIND = "waiting-for-replicas"

_LEAST_REQUESTS = 10
_LEAST_SHARE = 0.2
_LEAST_BLOCKED = 0.1
"""The share of the time of its own code, with the waits for its event loop, that these waits make up."""
_LEAST_OWN = 0.5
"""The share of the time in replicas that their own code takes, unless they mostly wait for other calls."""
_LEAST_WAIT = 10_000_000
"""Of half of the calls, in nanoseconds: less is what Ray Serve takes to hand over a request."""


def find(analysis: Analysis) -> list[Finding]:
    """Deployments for whose replicas requests wait for a fifth of their time, and mostly for 10 ms or longer.

    Where they take even longer until they begin for other reasons, such as a busy router, it is not for replicas. Those
    whose replicas mostly wait for other calls come last, with another advice: they are full since these take long.
    The others cost what the end of the run waited in this way, which is nothing for a server that answers requests.
    """
    found = analysis.requests
    if found is None or found.count < _LEAST_REQUESTS:
        return []
    by_deployment: dict[tuple[str, str], list[Method]] = {}
    for each in found.methods:
        if each.waited:
            by_deployment.setdefault((each.application, _deployment(each.name)), []).append(each)
    waiting = [
        (_own_share(found, application, name, methods), application, name, waited, methods)
        for (application, name), methods in by_deployment.items()
        if (waited := _time(found, REPLICA_WAIT, application, name)) >= _LEAST_SHARE * found.time
        and waited >= _time(found, DELIVERY, application, name)
        and max(percentile(each.waited, 0.5) for each in methods) >= _LEAST_WAIT
    ]
    waiting.sort(key=lambda each: each[0] < _LEAST_OWN)
    return [
        _finding(
            found,
            name,
            waited,
            methods,
            _advice(found, application, name, own_share),
            _waited(analysis, name) if own_share >= _LEAST_OWN else 0.0,
        )
        for own_share, application, name, waited, methods in waiting
    ]


def _waited(analysis: Analysis, deployment: str) -> float:
    """The share of the run, from 0 to 1, in which it waited for requests to get a replica; 0 if it waits for none."""
    if analysis.ends_with_request:
        return 0.0
    steps = (step for step in analysis.split.steps if step.kind == REPLICA_QUEUE and step.edge != BY_CODE)
    waited = sum(
        step.end - step.start for step in steps if _deployment(analysis.calls.frame_name(step.row)) == deployment
    )
    return waited / analysis.split.wall if waited else 0.0


def _own_share(found: Requests, application: str, deployment: str, methods: Sequence[Method]) -> float:
    """How much of the time in its replicas its own code took, as far as requests waited for it."""
    inside = sum(each.in_requests for each in methods)
    return sum(_time(found, kind, application, deployment) for kind in (CODE, SPAN, LOOP)) / inside if inside else 1.0


def _advice(found: Requests, application: str, deployment: str, own_share: float) -> str:
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


def _finding(
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
        KIND, text, advice, share, rows, figures, title=f"Requests wait for replicas of {quoted(deployment)}"
    )
