"""The requests to Ray Serve for the page: by route, what their time went to, and the methods of deployments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ray_tracing_hooks._insight.analysis.functions import percentile
from ray_tracing_hooks._insight.analysis.requests import Method, Requests, Route
from ray_tracing_hooks._insight.views.page.details import LONGEST_NAME, truncated
from ray_tracing_hooks._insight.views.page.report import NumberOf

_MOST = 200
"""Routes, parts and methods that the page holds, of each."""


def shown(found: Requests | None, number: NumberOf) -> dict[str, Any] | None:
    """The member ``requests`` of the page; None if there are none."""
    if found is None:
        return None
    return {
        "count": found.count,
        "failed": found.failed,
        "running": found.running,
        "unrecorded": found.unrecorded,
        "ns": found.time,
        "slow": found.slow,
        "left_out": sum(max(0, len(each) - _MOST) for each in (found.routes, found.parts, found.methods)),
        "routes": [_route(each, found, number) for each in found.routes[:_MOST]],
        "parts": [
            {
                "about": truncated(found.described(each), LONGEST_NAME),
                "ns": each.time,
                "share": each.time / found.time,
                "slow_share": each.slow_time / found.slow_time if found.slow_time else 0.0,
            }
            for each in found.parts[:_MOST]
        ],
        "methods": [_method(each, found, number) for each in found.methods[:_MOST]],
    }


def rows_of(found: Requests | None) -> list[int]:
    """The spans that it refers to, which the page always keeps."""
    if found is None:
        return []
    return [
        *(each.slowest for each in found.routes[:_MOST]),
        *(each.longest[0] for each in found.methods[:_MOST] if each.longest),
    ]


def _route(route: Route, found: Requests, number: NumberOf) -> dict[str, Any]:
    return {
        "name": truncated(found.full_name(route), LONGEST_NAME),
        "is_handle": route.is_handle,
        "count": len(route.rows),
        "failed": route.failed,
        "slowest": number(route.slowest),
        **_percentiles("", route.durations, 0.5, 0.95, 0.99, 1.0),
    }


def _method(method: Method, found: Requests, number: NumberOf) -> dict[str, Any]:
    return {
        "name": truncated(found.full_name(method), LONGEST_NAME),
        "executions": method.executions,
        "failed": method.failed,
        "replicas": method.replicas,
        "longest": number(method.longest[0]) if method.longest else -1,
        "batches": len(method.batches),
        **_percentiles("waited_", method.waited, 0.5, 0.95),
        **_percentiles("ran_", method.durations, 0.5, 0.95),
        **_percentiles("batch_", method.batches, 0.5),
    }


def _percentiles(prefix: str, times: Sequence[int], *shares: float) -> dict[str, int | None]:
    return {f"{prefix}p{round(100 * share)}": percentile(times, share) if times else None for share in shares}
