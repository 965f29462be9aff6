"""Requests to Ray Serve that a replica had accepted, and whose code waited for its event loop."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.requests import LOOP
from ray_tracing_hooks._insight.analysis.wording import count, duration, percent
from ray_tracing_hooks._insight.model.serve_spans import ServeSpans

KIND = "blocked-replica"

_LEAST_WAITS = 10
_LEAST_SHARE = 0.1


def find(analysis: Analysis) -> Iterator[Finding]:
    """Deployments for whose event loops requests wait for a tenth of their time, in at least ten executions.

    A replica hands each request to the event loop that runs the code of its deployment, and records how long the loop
    does not come to it (``ray.serve.event_loop.wait_time``). Meanwhile other code of the replica kept the loop, or the
    interpreter. Nothing is recorded where the replica itself runs in that loop
    (``RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD=0``). More requests at once do not help: more of them would wait.
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
    deployments = {each: _deployment(spans, each) for each in np.unique(spans.method[waits]).tolist()}
    for (application, deployment), waited in by_deployment.items():
        own = [each for each, its in deployments.items() if its == (application, deployment)]
        rows = waits[np.isin(spans.method[waits], own)].tolist()
        if waited < _LEAST_SHARE * found.time or len(rows) < _LEAST_WAITS:
            continue
        median = float(np.median(spans.loop_wait[rows]))
        share = waited / found.time
        yield Finding(
            KIND,
            f"waiting for the event loops of replicas of {quoted(deployment)} took {percent(share)} of the time of "
            f"{count(found.count, 'request')}: {count(len(rows), 'request')} that a replica had accepted waited "
            f"{duration(median)} in the median, while other code kept the loop",
            "await what waits in async methods (asyncio.sleep, async clients); run what blocks, and methods without "
            "async, in threads (asyncio.to_thread); for code that computes, more replicas",
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


def _deployment(spans: ServeSpans, method: int) -> tuple[str, str]:
    name, application = spans.named(method)
    return application, name.rpartition(".")[0]
