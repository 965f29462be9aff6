"""The requests to Ray Serve for the page: by route, what their time went to, and the methods of deployments.

With requests to LLM engines, also what the time to the first chunk went to, and generations by model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ray_tracing_hooks._insight.analysis.functions import percentile
from ray_tracing_hooks._insight.analysis.generated import FIRST_PARTS, Engines, FirstChunks, Generated
from ray_tracing_hooks._insight.analysis.requests import Method, Requests, Route
from ray_tracing_hooks._insight.views.page.details import LONGEST_NAME, truncated
from ray_tracing_hooks._insight.views.page.report import NumberOf

_MOST = 200
"""Routes, parts and methods that the page holds, of each."""


def shown(found: Requests | None, engines: Engines | None, number: NumberOf) -> dict[str, Any] | None:
    """The member ``requests`` of the page; None if there are none."""
    if found is None:
        return None
    models, chunks = (engines.models, engines.first_chunks) if engines is not None else ([], [])
    return {
        "count": found.count,
        "failed": found.failed,
        "running": found.running,
        "unrecorded": found.unrecorded,
        "ns": found.time,
        "slow": found.slow,
        "left_out": sum(
            max(0, len(each) - _MOST) for each in (found.routes, found.parts, found.methods, models, chunks)
        ),
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
        "first_chunks": [_first_chunks(each, number) for each in chunks[:_MOST]],
        "generations": [
            _generated(each, model)
            for model in models[:_MOST]
            for each in (model, *(model.replicas[:_MOST] if len(model.replicas) > 1 else ()))
        ],
    }


def rows_of(found: Requests | None, engines: Engines | None) -> list[int]:
    """The spans that it refers to, which the page always keeps."""
    if found is None:
        return []
    return [
        *(each.slowest for each in found.routes[:_MOST]),
        *(each.longest[0] for each in found.methods[:_MOST] if each.longest),
        *(each.slowest for each in (engines.first_chunks if engines is not None else [])[:_MOST]),
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


def _first_chunks(found: FirstChunks, number: NumberOf) -> dict[str, Any]:
    return {
        "name": truncated(found.name, LONGEST_NAME),
        "model": truncated(found.model, LONGEST_NAME),
        "count": len(found.times),
        "slow": found.slow,
        "slowest": number(found.slowest),
        "parts": [
            {
                "about": FIRST_PARTS[each.kind],
                "share": each.time / found.time,
                "slow_share": each.slow_time / found.slow_time if found.slow_time else 0.0,
                "p50": each.median,
            }
            for each in found.parts
        ],
        **_percentiles("", found.times, 0.5, 0.95),
    }


def _generated(found: Generated, model: Generated) -> dict[str, Any]:
    return {
        "model": truncated(model.model, LONGEST_NAME) + (", prefill only" if model.is_leg else ""),
        "replica": truncated(found.replica, LONGEST_NAME),
        "count": found.count,
        "failed": found.failed,
        "aborted": found.aborted,
        "input": found.input,
        "output": found.output,
        "cached": found.cached,
        **_percentiles("first_", found.first, 0.5, 0.95),
        **_percentiles("each_", found.per_token, 0.5, 0.95),
        **_percentiles("queue_", found.queue, 0.95),
    }


def _percentiles(prefix: str, times: Sequence[int], *shares: float) -> dict[str, int | None]:
    return {f"{prefix}p{round(100 * share)}": percentile(times, share) if times else None for share in shares}
