"""What the analysis says of the requests that ``tests/ray/programs/llm_planted.py`` delays in one place."""

from __future__ import annotations

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings import find
from ray_tracing_hooks._insight.analysis.requests import CODE, ENGINE_DECODE, ENGINE_PREFILL, ENGINE_QUEUE, REPLICA_WAIT
from ray_tracing_hooks._insight.model.span import SERVER

PLANTED = {
    "batcher": (ENGINE_DECODE, None),
    "engine queue": (ENGINE_QUEUE, "engine-queue"),
    "engine prefill": (ENGINE_PREFILL, "long-prefill"),
    "ingress": (CODE, "busy-ingress"),
    "replica choice": (REPLICA_WAIT, "waiting-for-replicas"),
    "proxy": (REPLICA_WAIT, "waiting-for-replicas"),
}
"""By the part of the time to the first chunk that is delayed: the part of the whole request that takes longest, and the
kind of the only finding. What the batcher holds back of a response is generated in the meantime."""


def check_that_it_is_named(analysis: Analysis, part: str, *, may_be_short: bool = False) -> None:
    """Fail unless the delayed part is the largest, all parts add up, and nothing else is found.

    Where the delay may be too short for a finding, there may be none.
    """
    requests, engines = analysis.requests, analysis.engines
    assert requests is not None
    assert engines is not None
    (chunks,) = engines.first_chunks
    assert max(chunks.parts, key=lambda each: each.time).kind == part
    spans = map(analysis.table.span, range(len(analysis.table)))
    servers = [each for each in spans if each.kind == SERVER]
    told = sum(each.attributes[names.RAY_SERVE_FIRST_CHUNK] for each in servers)
    assert len(chunks.times) == len(servers)
    assert abs(chunks.time / 1e9 - told) < 1e-3
    largest, kind = PLANTED[part]
    assert max(requests.parts, key=lambda each: each.time).kind == largest
    took = sum(each.end_ns - each.start_ns for each in servers)
    assert abs(sum(each.time for each in requests.parts) - took) < took / 100
    found = [each.kind for each in find(analysis)]
    assert found == ([kind] if kind else []) or (may_be_short and not found), found
