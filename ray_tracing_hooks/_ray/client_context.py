"""How a Ray Client (``ray://``) and its server exchange tracing information. Each client has its own server: a driver
on the cluster that makes the client's calls.

- The server invites: it writes ``CLIENT_INVITATION`` to the cluster's key-value store, under its job. A client that
  finds none, because the cluster has no hook or another one, sends nothing.
- The client announces: it replaces the invitation with the context of its root span, before its first call.
- Each call carries its context in the ``namespace`` of its request, which only requests for named actors use (Ray 2.60
  ``util/client/server/server.py``, ``Schedule``). Arguments and pickles are not changed.
"""

from __future__ import annotations

import base64
from typing import Any

from opentelemetry.trace import TraceState

from ray_tracing_hooks._clock import now_ns
from ray_tracing_hooks._ray.cluster import CLIENT_INVITATION
from ray_tracing_hooks._record import carrier
from ray_tracing_hooks._record.span import Parent

_MARK = "ray_tracing_hooks:"


def encode(parent: Parent, headers: dict[str, str] | None) -> bytes:
    """Encode the context of ``parent``; ``headers`` are the further headers of the propagators."""
    return carrier.encode(parent.trace_id, parent.span_id, parent.flags, now_ns(), b"", headers)


def announced(value: bytes | None) -> Parent | None:
    """The root span that a client has announced; None if it has not."""
    if value is None or value == CLIENT_INVITATION:
        return None
    carried = carrier.decode(value)
    state = TraceState.from_header([carried.headers["tracestate"]]) if "tracestate" in carried.headers else None
    return Parent(carried.trace_id, carried.span_id, carried.flags, state, remote=True)


def put(task: Any, context: bytes) -> None:
    """Add the context to the request ``task`` (a ``ClientTask``)."""
    if task.type != task.NAMED_ACTOR:
        task.namespace = _MARK + base64.b64encode(context).decode()


def get(task: Any) -> carrier.Carried | None:
    """The context that a request carries, if any. Raises ValueError if it is malformed."""
    namespace = task.namespace
    if task.type == task.NAMED_ACTOR or not namespace.startswith(_MARK):
        return None
    return carrier.decode(base64.b64decode(namespace[len(_MARK) :]))
