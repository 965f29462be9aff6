"""Converts trace contexts between the form that a call carries and the OpenTelemetry API."""

from __future__ import annotations

from typing import Any

from opentelemetry import context as context_api
from opentelemetry import propagate, trace
from opentelemetry.context import Context

from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._ray.templates import PRODUCER
from ray_tracing_hooks._record.carrier import Carried
from ray_tracing_hooks._record.current import OF_CALLER, REFERENCE_KEY, SPAN_KEY
from ray_tracing_hooks._record.recorder import link_to_ended
from ray_tracing_hooks._record.span import Parent, RecordedSpan

TASK_KEY = "ray_tracing_hooks.task_id"
"""The key of the task id in a context: it is also right in a thread that the task started, for which Ray would report
an invented task."""

TASK_ID, PARENT_TASK_ID, ACTOR_ID = encode.BEFORE_TASK_ID, encode.BEFORE_PARENT_TASK_ID, encode.BEFORE_ACTOR_ID
"""The bytes before these ids in the attributes of a call."""

QUIET_KEY = "ray_tracing_hooks.quiet"
"""The key of a context of a library's own loop, in which waiting for objects makes no spans: it would never stop."""

SPAN_AND_TASK = frozenset({SPAN_KEY, TASK_KEY})
"""The keys of a context without baggage and values of the program."""

Begun = tuple[Context, RecordedSpan | None]
"""The context that a task runs in, and its span, if any."""

_NOTHING = context_api.Context()

_STANDARD_HEADERS = {"traceparent", "tracestate", "baggage"}

_DERIVED_HEADERS = ("sw8", "sw6")
"""The ends of the names of headers that refer to a span, and that both sides of a call derive from its ids."""

_OF_CONTEXT = ("sw8-correlation", "sw8-x")
"""The ends of the names of those that are there only if the context has more than a span."""


def is_standard(header: str) -> bool:
    """Whether a context with nothing but a span needs no such header beside the ids of the span."""
    return header in _STANDARD_HEADERS or header.endswith(_DERIVED_HEADERS + _OF_CONTEXT)


def only_standard_headers() -> bool:
    """Whether the global propagators are only those of the W3C and SkyWalking, which inject nothing but the context."""
    return all(map(is_standard, propagate.get_global_textmap().fields))


def headers_of(context: Context, parent: Parent | None, *, only_standard: bool) -> dict[str, str] | None:
    """The headers that the global propagators inject besides the span itself; None if they need not be called.

    ``only_standard`` is the result of :func:`only_standard_headers`: then a context without baggage and trace state
    has nothing to inject but the span.
    """
    if only_standard and SPAN_AND_TASK.issuperset(context) and not (parent and parent.trace_state):
        return None
    headers: dict[str, str] = {}
    # A new trace continues neither the state nor the headers of a span that is over.
    propagate.inject(headers, context if parent is not None else trace.set_span_in_context(trace.INVALID_SPAN, context))
    headers.pop("traceparent", None)
    for name in [name for name in headers if name.endswith(_DERIVED_HEADERS)]:
        headers[name + OF_CALLER] = headers.pop(name)
    return headers


def reference(context: Context, parent: Parent | None) -> bytes:
    """The encoded fields of a span that begins in ``context``, besides the parent that the recorder has found there.

    They name a parent that a header of SkyWalking has named, and link a new trace to the span of ``context`` if that is
    over; otherwise they are empty.
    """
    if parent is None:
        return link_to_ended(context)
    known: Any = context.get(REFERENCE_KEY)
    return known.attribute_of(parent) if known is not None else b""


def caller_attribute(caller: bytes) -> bytes:
    """The encoded ``ray.parent_task_id``; empty if the caller is unknown."""
    return PARENT_TASK_ID + caller.hex().encode() if caller else b""


def incoming(carried: Carried) -> tuple[Context, Parent]:
    """The context that a call carried, with its submission as the current (remote) span, and that span."""
    context, trace_state = _NOTHING, None
    if carried.headers:
        context = propagate.extract({**carried.headers, "traceparent": _traceparent(carried)}, context)
        trace_state = trace.get_current_span(context).get_span_context().trace_state or None
    return context, Parent(carried.trace_id, carried.span_id, carried.flags, trace_state, remote=True)


def submission(carried: Carried, parent: Parent, name: str, attributes: bytes) -> bytes:
    """The encoded span of the submission that has carried this context, which is the ``parent`` of the execution.

    For the worker: of the times it knows when the call was submitted, so the span has no duration.
    """
    around = parent._replace(span_id=carried.parent_id) if carried.parent_id else None
    moment = carried.submit_time_ns
    return (
        encode.identity_of(carried.trace_id, carried.span_id, around)
        + encode.start_and_end(moment, encode.END_TAG, moment)
        + encode.name_and_kind(name, PRODUCER)
        + attributes
    )


def unrecorded_span(parent: Parent) -> trace.Span:
    return trace.NonRecordingSpan(parent.span_context())


def _traceparent(carried: Carried) -> str:
    return f"00-{carried.trace_id.hex()}-{carried.span_id.hex()}-{carried.flags:02x}"
