"""Requests to Ray Serve and generations of LLM engines as plain values, for the JSON of ``summary`` and for the page.

Times are integers in nanoseconds (``ns``, ``_ns``), shares are from 0 to 1; unknown values are null. A ``label`` or
``about`` is what the text calls it. ``span`` returns what stands for the span of a row, and ``most`` is the number of
items of each list, all if it is None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ray_tracing_hooks._insight.analysis.functions import percentile
from ray_tracing_hooks._insight.analysis.generated import (
    FIRST_PARTS,
    Engines,
    FirstChunks,
    Generated,
    Generating,
    percentile_of,
)
from ray_tracing_hooks._insight.analysis.requests import Requests

PERCENTILES = {"median": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}


def percentiles(ordered: Sequence[int]) -> dict[str, int] | None:
    """Percentiles of ascending times; None without any."""
    return {f"{name}_ns": percentile(ordered, share) for name, share in PERCENTILES.items()} if ordered else None


def requests(found: Requests | None, span: Callable[[int], Any], most: int | None = None) -> dict[str, Any] | None:
    """Requests by route, what their time went to, and the methods of deployments; None if there are none."""
    if found is None:
        return None
    time, slow_time = found.time, found.slow_time
    return {
        "count": found.count,
        "failed": found.failed,
        "running": found.running,
        "unrecorded": found.unrecorded,
        "time_ns": time,
        "routes": [
            {
                "name": each.name,
                "application": each.application,
                "label": found.full_name(each),
                "is_handle": each.is_handle,
                "count": len(each.rows),
                "failed": each.failed,
                "duration": percentiles(each.durations),
                "slowest": span(each.slowest),
            }
            for each in found.routes[:most]
        ],
        "time": [
            {
                "kind": each.kind,
                "name": each.name,
                "application": each.application,
                **({"span": each.span} if each.span else {}),
                "about": found.described(each),
                "ns": each.time,
                "share": each.time / time,
                "slow_share": each.slow_time / slow_time if found.slow and slow_time else None,
            }
            for each in found.parts[:most]
        ],
        "methods": [
            {
                "name": each.name,
                "application": each.application,
                "label": found.full_name(each),
                "executions": each.executions,
                "failed": each.failed,
                "replicas": each.replicas,
                "batches": len(each.batches),
                "waited": percentiles(each.waited),
                "longest": span(each.longest[0]) if each.longest else None,
                "duration": percentiles(each.durations),
                "batch": percentiles(each.batches),
            }
            for each in found.methods[:most]
        ],
    }


def generations(
    found: Engines | None, operators: Sequence[Generating], span: Callable[[int], Any], most: int | None = None
) -> dict[str, Any] | None:
    """Generations by model, what the time to the first chunk went to, and operators; None if there are none."""
    if found is None:
        return None
    return {
        "models": [
            _model(each) | {"replicas": [{"replica": its.replica} | _model(its) for its in each.replicas[:most]]}
            for each in found.models[:most]
        ],
        "first_chunks": [_first_chunks(each, span) for each in found.first_chunks[:most]],
        "unread": found.unread,
        "operators": [
            {
                "operator": each.name,
                "count": each.count,
                "input_tokens": each.input,
                "output_tokens": each.output,
                "cached_tokens": each.cached,
                "output_tokens_per_second": each.per_second,
                "time_to_first_token": _percentiles(each.first),
                "time_in_queue": _percentiles(each.queue),
            }
            for each in operators
        ],
    }


def _first_chunks(found: FirstChunks, span: Callable[[int], Any]) -> dict[str, Any]:
    return {
        "deployment": found.name,
        "application": found.application,
        "model": found.model,
        "count": len(found.times),
        "duration": percentiles(found.times),
        "slowest": span(found.slowest),
        "time": [
            {
                "kind": part.kind,
                "about": FIRST_PARTS[part.kind],
                "ns": part.time,
                "share": part.time / found.time,
                "slow_share": part.slow_time / found.slow_time if found.slow_time else None,
                "median_ns": part.median,
            }
            for part in found.parts
        ],
    }


def _percentiles(buckets: Counter[int]) -> dict[str, int | None] | None:
    return {f"{name}_ns": percentile_of(buckets, share) for name, share in PERCENTILES.items()} if buckets else None


def _model(found: Generated) -> dict[str, Any]:
    return {
        "model": found.model,
        "is_prefill": found.is_leg,
        "count": found.count,
        "failed": found.failed,
        "aborted": found.aborted,
        "input_tokens": found.input,
        "output_tokens": found.output,
        "cached_tokens": found.cached,
        "time_to_first_token": percentiles(found.first),
        "time_per_output_token": percentiles(found.per_token),
        "queue": percentiles(found.queue),
    }
