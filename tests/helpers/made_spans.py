"""Spans made by hand, as the analysis sees them."""

from __future__ import annotations

from typing import Any, Literal

from ray_tracing_hooks._insight.model.span import Span

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
