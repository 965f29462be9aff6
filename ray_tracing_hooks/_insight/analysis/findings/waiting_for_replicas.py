"""Requests to Ray Serve that wait until a replica of a deployment accepts them."""

from __future__ import annotations

from collections.abc import Sequence

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.functions import percentile
from ray_tracing_hooks._insight.analysis.requests import DELIVERY, REPLICA_WAIT, Method, Requests
from ray_tracing_hooks._insight.analysis.wording import count, duration, percent

KIND = "waiting-for-replicas"

_LEAST_REQUESTS = 10
_LEAST_SHARE = 0.2
_LEAST_WAIT = 10_000_000
"""Of half of the calls, in nanoseconds: less is what Ray Serve takes to hand over a request."""


def find(analysis: Analysis) -> list[Finding]:
    """Deployments for whose replicas requests wait for a fifth of their time, and mostly for 10 ms or longer.

    Where they take even longer until they begin for other reasons, such as a busy router, it is not for replicas.
    """
    found = analysis.requests
    if found is None or found.count < _LEAST_REQUESTS:
        return []
    by_deployment: dict[tuple[str, str], list[Method]] = {}
    for each in found.methods:
        if each.waited:
            by_deployment.setdefault((each.application, _deployment(each.name)), []).append(each)
    return [
        _finding(found, name, waited, methods)
        for (application, name), methods in by_deployment.items()
        if (waited := _time(found, REPLICA_WAIT, application, name)) >= _LEAST_SHARE * found.time
        and waited >= _time(found, DELIVERY, application, name)
        and max(percentile(each.waited, 0.5) for each in methods) >= _LEAST_WAIT
    ]


def _deployment(method: str) -> str:
    return method.rpartition(".")[0]


def _time(found: Requests, kind: str, application: str, deployment: str) -> int:
    return sum(
        part.time
        for part in found.parts
        if part.kind == kind and (part.application, _deployment(part.name)) == (application, deployment)
    )


def _finding(found: Requests, deployment: str, waited: int, methods: Sequence[Method]) -> Finding:
    longest = max(methods, key=lambda each: percentile(each.waited, 0.95))
    at_95, replicas = percentile(longest.waited, 0.95), max(each.replicas for each in methods)
    text = (
        f"waiting for a replica of {quoted(deployment)} took {percent(waited / found.time)} of the time of "
        f"{count(found.count, 'request')}: with {count(replicas, 'replica')}, a call began after "
        f"{duration(percentile(longest.waited, 0.5))} in the median, {duration(at_95)} at the 95th percentile"
    )
    advice = (
        "use more replicas (num_replicas; min_replicas where they start too late), or do less for each request; a "
        "larger max_ongoing_requests helps only where requests await something, and nothing blocks the replica's loop"
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
    return Finding(KIND, text, advice, 0.0, rows, figures, title=f"Requests wait for replicas of {quoted(deployment)}")
