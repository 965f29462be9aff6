"""Spans made by hand, as the analysis sees them, and lines of OTLP-JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from ray_tracing_hooks._insight.model.span import Span
from ray_tracing_hooks._insight.views.exports.otlp import _attributes, _described

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
INTERNAL, PRODUCER, CONSUMER = 1, 4, 5


def process(node: str = "aaaabbbb", pid: int = 100, **more: Any) -> dict[str, Any]:
    """The Resource of a process of Ray, as this package records it."""
    return {
        "service.name": "ray",
        "host.name": f"host-{node[:4]}",
        "host.ip": ["10.0.0.7"],
        "process.pid": pid,
        "ray.node.id": node,
        "ray.worker.id": f"{pid:08x}",
        "ray.worker.process_type": "worker",
        **more,
    }


WORKER = process()


def span(
    number: int,
    start: int,
    end: int,
    parent: int = 0,
    *,
    name: str = "",
    kind: int = INTERNAL,
    where: dict[str, Any] = WORKER,
    state: Literal["ended", "running", "lost"] = "ended",
    **more: Any,
) -> Span:
    """The span with the id ``number``; a parent of 0 means none."""
    fields: dict[str, Any] = {
        "trace_id": TRACE_ID,
        "status_code": 0,
        "status_message": "",
        "attributes": {},
        "events": [],
        "links": [],
        "resource": where,
        "scope": "tests",
        **more,
    }
    return Span(
        span_id=f"{number:016x}",
        parent_id=f"{parent:016x}" if parent else "",
        name=name or f"span {number}",
        kind=kind,
        start_ns=start,
        end_ns=end,
        state=state,
        **fields,
    )


def line(*spans: dict[str, Any], resource: Mapping[str, Any] | None = None, scope: str = "tests") -> str:
    """A line of OTLP-JSON, of spans that are in OTLP-JSON too."""
    of_scope = {"scope": {"name": scope}, "spans": list(spans)}
    group = {"resource": {"attributes": _attributes(resource or {})}, "scopeSpans": [of_scope]}
    return json.dumps({"resourceSpans": [group]}) + "\n"


def lines(*spans: Span) -> str:
    """A line for each of these spans."""
    return "".join(line(_described(each), resource=each.resource, scope=each.scope) for each in spans)
