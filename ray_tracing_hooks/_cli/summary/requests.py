"""Requests to Ray Serve in a summary: how long they took, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ray_tracing_hooks._cli.screen import Row, aligned
from ray_tracing_hooks._insight.analysis.functions import percentile
from ray_tracing_hooks._insight.analysis.requests import Method, Requests, Route
from ray_tracing_hooks._insight.analysis.wording import count, duration, percent, shortened
from ray_tracing_hooks._insight.views.requests import PERCENTILES

_SHOWN_ROUTES = 6
_SHOWN_PARTS = 8
_SHOWN_METHODS = 8
_NAME_WIDTH = 38
_PART_WIDTH = 60


def lines(found: Requests | None) -> Iterator[str | Row]:
    """Requests by route, what their time went to, and the methods of deployments."""
    if found is None:
        return
    yield ""
    failed = f", {found.failed:,} failed" if found.failed else ""
    have = "has" if found.running == 1 else "have"
    running = f", and {found.running:,} that {have} not ended" if found.running else ""
    others = f", and {found.unrecorded:,} whose end is not recorded" if found.unrecorded else ""
    yield f"Requests to Ray Serve: {found.count:,} in {duration(found.time)} altogether{failed}{running}{others}"
    if not found.count:
        return
    rows = [_route(each, found) for each in found.routes[:_SHOWN_ROUTES]]
    yield from aligned(("REQUEST", "COUNT", "FAILED", "MEDIAN", "P95", "P99", "MAX"), rows)
    if more := len(found.routes) - len(rows):
        yield f" and {count(more, 'other kind')} of requests: --json has them"
    yield from _parts(found)
    yield from _methods(found)


def _route(route: Route, found: Requests) -> tuple[str, ...]:
    return (
        shortened(found.full_name(route), _NAME_WIDTH) + (", by handle" if route.is_handle else ""),
        f"{len(route.rows):,}",
        f"{route.failed:,}" if route.failed else "",
        *(duration(percentile(route.durations, share)) for share in PERCENTILES.values()),
    )


def _parts(found: Requests) -> Iterator[str | Row]:
    """What the requests waited for, each back from its end."""
    slowest = found.slow_time if found.slow else 0
    rows = [
        (
            shortened(found.described(part), _PART_WIDTH),
            percent(part.time / found.time),
            *([percent(part.slow_time / slowest)] if slowest else []),
            duration(part.time / found.count),
        )
        for part in found.parts[:_SHOWN_PARTS]
    ]
    if not rows:
        return
    yield ""
    title = ["SLOWEST 5 %"] if slowest else []
    yield from aligned(("WHERE THE TIME OF REQUESTS WENT", "ALL", *title, "EACH, ON AVERAGE"), rows)
    if more := len(found.parts) - len(rows):
        yield f" and {count(more, 'other part')}"


def _methods(found: Requests) -> Iterator[str | Row]:
    rows = [_method(each, found) for each in found.methods[:_SHOWN_METHODS]]
    if not rows:
        return
    yield ""
    yield "Methods of deployments: from each call until it began in a replica, and how long it ran there"
    titles = ("METHOD", "RAN", "FAILED", "WAITED", "P95", "RAN FOR", "P95", "REPLICAS", "BATCHES")
    yield from aligned(titles, rows)
    if more := len(found.methods) - len(rows):
        yield f" and {count(more, 'other method')}"


def _method(method: Method, found: Requests) -> tuple[str, ...]:
    return (
        shortened(found.full_name(method), _NAME_WIDTH),
        f"{method.executions:,}" if method.executions else "",
        f"{method.failed:,}" if method.failed else "",
        *two(method.waited),
        *two(method.durations),
        f"{method.replicas:,}" if method.replicas else "",
        f"{len(method.batches):,} of {duration(percentile(method.batches, 0.5))}" if method.batches else "",
    )


def two(times: Sequence[int]) -> tuple[str, str]:
    """The median and the 95th percentile."""
    if not times:
        return "", ""
    return duration(percentile(times, 0.5)), duration(percentile(times, 0.95))
