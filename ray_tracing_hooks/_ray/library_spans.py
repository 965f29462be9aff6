"""Spans of Ray's libraries, such as the execution of a dataset: of kind INTERNAL, below the span around them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.context import Context

from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._ray.objects import thread_attribute
from ray_tracing_hooks._ray.propagation import Begun, reference, unrecorded_span
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record import ids
from ray_tracing_hooks._record.current import SPAN_KEY, get_current
from ray_tracing_hooks._record.span import Parent


def begin(
    active: Tracing,
    name: str,
    context: Context,
    attributes: Mapping[str, Any] | None = None,
    *,
    start_time: int | None = None,
    more: bytes = b"",
) -> Begun:
    """Begin a span below that of ``context``; returns the context inside of it, and the span.

    Without a span in ``context`` it is below the driver's root span, or begins a trace. A library has kept a context
    other than the current one for this span: its span is then the parent, whenever it ended. The new span is None if it
    is not recorded: the context then propagates the sampling decision. ``start_time`` is in nanoseconds since the
    epoch, and ``more`` are further encoded fields, such as links.
    """
    recorder = active.recorder
    parent = recorder.parent(context) if context is get_current() else recorder.current(context)
    trace_id, flags = recorder.decide(parent)
    recording = recorder.of(flags)
    if recording is None:
        around = parent or Parent(trace_id, ids.new_span_id(), flags, None, remote=False)
        return Context({**context, SPAN_KEY: unrecorded_span(around)}), None
    first = encode.attributes(attributes or {}) + reference(context, parent) + thread_attribute(active) + more
    template = active.templates.of_waiting(name)
    span = recording.start(template, trace_id, flags, parent, first, start_time)
    return Context({**context, SPAN_KEY: span}), span
