"""Requests to Ray Serve that wait for others to fill their batch, while no batch runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import RUN
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.functions import in_both
from ray_tracing_hooks._insight.analysis.requests import Requests
from ray_tracing_hooks._insight.analysis.wording import count, duration, percent
from ray_tracing_hooks._insight.model.attribute_values import nanoseconds, whole
from ray_tracing_hooks._insight.model.serve_spans import ServeSpans

KIND = "waiting-for-batches"

_LEAST_BATCHES = 5
_LEAST_SHARE = 0.2
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


def find(analysis: Analysis) -> list[Finding]:
    """Functions with ``@serve.batch`` for whose batches the first requests wait for a fifth of the time of requests.

    It measures from when the first request of a batch, or the end of the batches before, came, until the batch began,
    for at least five batches that took less time than that (medians). Requests that come later wait for less, which
    does not count. What the run could save is the part on the critical path.
    """
    found, spans = analysis.requests, analysis.serve_spans
    if found is None or spans is None:
        return []
    return [
        _finding(analysis, found, spans, method, waiting)
        for method, waiting in _by_function(spans).items()
        if len(waiting.rows) >= _LEAST_BATCHES
        and sum(waiting.times()) >= _LEAST_SHARE * found.time
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


def _finding(analysis: Analysis, found: Requests, spans: ServeSpans, method: int, waiting: _Waiting) -> Finding:
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
    return Finding(KIND, text, advice, min(1.0, saved), rows, figures, title=title)


def _in_replicas(analysis: Analysis, spans: ServeSpans) -> Sequence[tuple[int, int]]:
    """When the critical path went through requests in replicas."""
    is_there = spans.is_replica | spans.is_direct
    return [
        (step.start, step.end)
        for step in analysis.path.steps
        if step.kind == RUN and 0 <= step.row < len(is_there) and is_there[step.row]
    ]
