"""Spans of the API that begin without a named parent: wraps ``Tracer.start_span`` of the SDK.

In a context whose span is over they begin a trace of their own, as Ray's calls do (``is_over`` in
``_record/recorder.py``). A span for which the program names the context stays below the span of that. Each span knows
the call or request that it is within.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import Tracer

from ray_tracing_hooks._record.current import SPAN_KEY, get_current
from ray_tracing_hooks._record.recorder import is_over, note_within, since_end
from ray_tracing_hooks._safety.exceptions import hide_frame, is_interruption
from ray_tracing_hooks._safety.guard import failed
from ray_tracing_hooks._safety.patching import Replacement


def _start_span(original: Callable[..., trace.Span]) -> Callable[..., trace.Span]:
    @functools.wraps(original)
    def start_span(
        self: Any,
        name: str,
        context: Context | None = None,
        kind: trace.SpanKind = trace.SpanKind.INTERNAL,
        attributes: Mapping[str, Any] | None = None,
        links: Sequence[trace.Link] | None = (),
        *rest: Any,
        **options: Any,
    ) -> trace.Span:
        if context is None:
            try:
                current = get_current()
                span: Any = current.get(SPAN_KEY)
                if is_over(span):
                    described = {**since_end(span), **(attributes or {})}
                    linked = (trace.Link(span.get_span_context()), *(links or ()))
                    apart = trace.set_span_in_context(trace.INVALID_SPAN, current)
                    context, attributes, links = apart, described, linked
            except Exception as error:  # noqa: BLE001  a fault here must not reach the user's program
                failed("beginning a span", error)
        try:
            begun = original(self, name, context, kind, attributes, links, *rest, **options)
        except BaseException as error:
            if not is_interruption(error):  # which is recognized by the frame that it has interrupted
                hide_frame(error)
            raise
        try:
            note_within(begun, get_current())
        except Exception as error:  # noqa: BLE001  as above
            failed("beginning a span", error)
        return begun

    return start_span


start_span = Replacement(Tracer, "start_span", _start_span)
